"""Files of benchmark cases: what is read, and how a wrong line is named."""

import json
from pathlib import Path
from typing import Any

import pytest

from agenttrace.errors import ConfigError
from agenttrace.evaluators import cases

WHOLE: dict[str, Any] = {
    "case_id": "restock-rice",
    "tenant_id": "acme",
    "user_input": "Order rice.",
    "mock_env": {"stock": {"rice": 6}},
    "acceptable_tool_sequences": [
        ["check_stock", {"tool": "place_order", "arguments": {"item": "rice", "qty": 40}}],
        [["check_stock", {"tool": "check_orders"}], "place_order"],
        [],
    ],
    "sequence_mode": "in_order",
    "arguments_mode": {"place_order": ["item"], "check_stock": "subset", "*": "ignore"},
    "forbidden_tools": ["change_price"],
    "expected_arguments": {"place_order": {"item": "rice", "qty": {"min": 1, "max": 40.5}, "to": {"min": 1, "zip": 2}}},
    "max_allowed_steps": 5,
    "optimal_steps": 2,
    "expected_outcome": {"must_include": ["40"], "must_not_include": ["sorry"]},
    "outcome_sql": "(SELECT count(*) FROM steps) > 1 -- more than one call",
}


def case_file(folder: Path, *lines: Any) -> Path:
    path = folder / "cases.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), encoding="utf-8")
    return path


def error(folder: Path, *lines: Any) -> str:
    path = case_file(folder, *lines)
    with pytest.raises(ConfigError) as caught:
        cases.read(path)
    message = str(caught.value)
    assert message.startswith(f"{path}, line ")
    assert "\n" not in message
    return message.removeprefix(f"{path}, ")


def test_every_key(tmp_path: Path) -> None:
    first, second = cases.table(case_file(tmp_path, WHOLE, "", {"case_id": "other"})).to_pylist()
    for key in ("mock_env", "acceptable_tool_sequences", "arguments_mode", "expected_arguments"):
        assert json.loads(first[key]) == WHOLE[key]
    for key in ("tenant_id", "user_input", "sequence_mode", "max_allowed_steps", "optimal_steps", "outcome_sql"):
        assert first[key] == WHOLE[key]
    assert (first["forbidden_tools"], first["must_include"], first["must_not_include"]) == (
        ["change_price"],
        ["40"],
        ["sorry"],
    )
    assert second == {**dict.fromkeys(cases.SCHEMA.names), "case_id": "other"}


def test_without_a_file_there_are_no_cases() -> None:
    assert cases.read(None) == []
    assert cases.table(None).schema == cases.SCHEMA


def test_null_is_as_good_as_no_key(tmp_path: Path) -> None:
    line = {**dict.fromkeys(WHOLE), "case_id": "a"}
    assert cases.read(case_file(tmp_path, line)) == cases.read(case_file(tmp_path, {"case_id": "a"}))


@pytest.mark.parametrize(("alias", "mode"), [("strict", "exact"), ("unordered", "any_order"), ("subset", "subset")])
def test_aliases_of_modes(tmp_path: Path, alias: str, mode: str) -> None:
    (row,) = cases.read(case_file(tmp_path, {"case_id": "a", "sequence_mode": alias, "arguments_mode": "superset"}))
    assert (row["sequence_mode"], row["arguments_mode"]) == (mode, "superset")


def test_marks_line_ends_and_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    # U+2028 ends a line for many readers, but not for JSON.
    path.write_bytes('\ufeff{"case_id": "a"}\r\n\r\n  \r\n{"case_id": "b\u2028c"}\r\n'.encode())
    assert [row["case_id"] for row in cases.read(path)] == ["a", "b\u2028c"]


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        cases.read(tmp_path / "nothing.jsonl")
    (tmp_path / "latin.jsonl").write_bytes('{"case_id": "café"}'.encode("latin-1"))
    with pytest.raises(ConfigError, match="cannot be read as UTF-8"):
        cases.read(tmp_path / "latin.jsonl")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 3: not a JSON object: "),
        ('{"case_id": "b", "mock_env": {"x": NaN}}', "line 3: not a JSON object: "),
        ('{"case_id": "b", "mock_env": {"x": 1e999}}', "line 3: not a JSON object: "),
        ("[" * 100_000, "line 3: not a JSON object: "),
        (
            '{"case_id": "b", "mock_env": ' + '{"x":' * 100 + "1" + "}" * 101,
            "line 3: not a JSON object: nested in more than",
        ),
        ("[1]", "line 3: not a JSON object, but [1]; expected one case, an object, a line"),
        ({"case_id": "first"}, "line 3: case_id: 'first', as in line 1; expected each case_id once"),
        ({"user_input": "x"}, "line 3: case_id: nothing; expected a value"),
    ],
)
def test_a_line_that_is_no_case(tmp_path: Path, line: Any, message: str) -> None:
    assert error(tmp_path, {"case_id": "first"}, "", line).startswith(message)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"case_id": " "}, "case_id: ' '; expected a text that is not blank"),
        ({"case_id": 7}, "case_id: 7; expected a text"),
        ({"tenant_id": 1}, "tenant_id: 1; expected a text"),
        ({"user_input": ["x"]}, "user_input: ['x']; expected a text"),
        ({"mock_env": [1]}, "mock_env: [1]; expected an object"),
        ({"forbidden_tools": "a"}, "forbidden_tools: 'a'; expected a list"),
        ({"forbidden_tools": ["a", ""]}, "forbidden_tools[1]: ''; expected a text that is not blank"),
        ({"max_allowed_steps": "five"}, "max_allowed_steps: 'five'; expected a whole number"),
        ({"max_allowed_steps": True}, "max_allowed_steps: True; expected a whole number"),
        ({"max_allowed_steps": 2.5}, "max_allowed_steps: 2.5; expected a whole number"),
        ({"max_allowed_steps": -1}, "max_allowed_steps: -1; expected 0 or more"),
        ({"optimal_steps": 0}, "optimal_steps: 0; expected 1 or more"),
        ({"optimal_steps": 10**20}, f"optimal_steps: {10**20}; expected 1000000000 or less"),
        ({"expected_outcome": "good"}, "expected_outcome: 'good'; expected an object"),
        ({"expected_outcome": {"must_include": [3]}}, "expected_outcome.must_include[0]: 3; expected a text"),
        ({"user_input": 0, "mock_env": 0, "optimal_steps": "x" * 99}, "user_input: 0; expected a text (and 2 more)"),
        ({"max_allowed_steps": "x" * 99}, f"max_allowed_steps: '{'x' * 56}...; expected a whole number"),
    ],
)
def test_a_wrong_value_is_named_by_line_and_key(tmp_path: Path, values: dict[str, Any], message: str) -> None:
    assert error(tmp_path, {"case_id": "a", **values}) == f"line 1: {message}"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"forbiden_tools": []}, "forbiden_tools: unknown key; did you mean 'forbidden_tools'?"),
        ({"colour": 1}, "colour: unknown key; known here: case_id, tenant_id, "),
        ({"a\nb": 1}, "'a\\nb': unknown key; known here: case_id, "),
        ({"expected_outcome": {"must_includ": []}}, "expected_outcome.must_includ: unknown key; did you mean 'must_"),
        (
            {"acceptable_tool_sequences": [["a", "b", {"tol": "c"}]]},
            "acceptable_tool_sequences[0][2].tol: unknown key; did you mean 'tool'? (and 1 more)",
        ),
    ],
)
def test_unknown_keys_are_refused_with_the_nearest_known(tmp_path: Path, values: dict[str, Any], message: str) -> None:
    assert error(tmp_path, {"case_id": "a", **values}).startswith(f"line 1: {message}")


ITEM = "a tool's name, an object with tool and arguments, or a list of parallel calls"


@pytest.mark.parametrize(
    ("sequences", "message"),
    [
        ("check", "acceptable_tool_sequences: 'check'; expected a list"),
        # An empty list of sequences would accept nothing; an empty sequence accepts a run without a call.
        ([], "acceptable_tool_sequences: []; expected at least one item"),
        (["check"], "acceptable_tool_sequences[0]: 'check'; expected a list"),
        ([["a", 7]], f"acceptable_tool_sequences[0][1]: 7; expected {ITEM}"),
        ([["a"], [" "]], "acceptable_tool_sequences[1][0]: ' '; expected a text that is not blank"),
        ([[{"tool": 1}]], "acceptable_tool_sequences[0][0].tool: 1; expected a text"),
        ([[{"arguments": {}}]], "acceptable_tool_sequences[0][0].tool: nothing; expected a value"),
        ([[{"tool": "a", "arguments": []}]], "acceptable_tool_sequences[0][0].arguments: []; expected an object"),
        ([["a", []]], "acceptable_tool_sequences[0][1]: []; expected at least one item"),
        (
            [["a", ["b", ["c"]]]],
            "acceptable_tool_sequences[0][1][1]: ['c']; expected a tool's name or an object with tool and arguments",
        ),
    ],
)
def test_wrong_sequences(tmp_path: Path, sequences: Any, message: str) -> None:
    assert error(tmp_path, {"case_id": "a", "acceptable_tool_sequences": sequences}) == f"line 1: {message}"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"sequence_mode": "any"},
            "sequence_mode: 'any'; expected 'exact', 'any_order', 'in_order', 'subset', 'superset', "
            "'strict' or 'unordered'",
        ),
        ({"arguments_mode": "exat"}, "arguments_mode: 'exat'; expected 'exact', 'ignore', 'subset' or 'superset'"),
        (
            {"arguments_mode": 3},
            "arguments_mode: 3; expected exact, ignore, subset, superset, or an object of them by tool",
        ),
        (
            {"arguments_mode": {"a": "all"}},
            "arguments_mode.a: 'all'; expected 'exact', 'ignore', 'subset' or 'superset'",
        ),
        ({"arguments_mode": {"a": ["x", 1]}}, "arguments_mode.a[1]: 1; expected a text"),
        (
            {"arguments_mode": {"a": {"x": 1}}},
            "arguments_mode.a: {'x': 1}; expected exact, ignore, subset, superset, or a list of argument paths",
        ),
    ],
)
def test_wrong_modes(tmp_path: Path, values: dict[str, Any], message: str) -> None:
    assert error(tmp_path, {"case_id": "a", **values}) == f"line 1: {message}"


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        ({"a": 3}, "expected_arguments.a: 3; expected an object"),
        ({"a": {"qty": {"min": "1"}}}, "expected_arguments.a.qty.min: '1'; expected a number"),
        ({"a": {"qty": {"max": True}}}, "expected_arguments.a.qty.max: True; expected a number"),
        (
            {"a": {"qty": {"min": 3, "max": 1}}},
            "expected_arguments.a.qty: {'min': 3, 'max': 1}: min 3 is above max 1; expected min up to max",
        ),
    ],
)
def test_wrong_limits(tmp_path: Path, expected: Any, message: str) -> None:
    assert error(tmp_path, {"case_id": "a", "expected_arguments": expected}) == f"line 1: {message}"


@pytest.mark.parametrize("value", [None, 0, [], {}, {"min": 1, "zip": 2}, {"requires_approval_above": 100}, {"max": 2}])
def test_values_and_limits(tmp_path: Path, value: Any) -> None:
    (row,) = cases.read(case_file(tmp_path, {"case_id": "a", "expected_arguments": {"pay": {"amount": value}}}))
    assert json.loads(row["expected_arguments"]) == {"pay": {"amount": value}}


@pytest.mark.parametrize(
    "expression",
    [
        "final_state ->> 'open' = '1'",
        "EXISTS (FROM steps WHERE tool_name = 'place')",
        "CASE WHEN TRUE THEN 1 ELSE 0 END -- and so on",
        "';' = 'x'",
    ],
)
def test_one_expression(tmp_path: Path, expression: str) -> None:
    (row,) = cases.read(case_file(tmp_path, {"case_id": "a", "outcome_sql": expression}))
    assert row["outcome_sql"] == expression


@pytest.mark.parametrize(
    "text",
    [
        "1; SELECT 2",
        "1, 2",
        "1) FROM steps WHERE (true",
        "TRUE) UNION SELECT (FALSE",
        "1 AS INT), CAST(2",
        "1 AS INT) FROM steps WHERE CAST(1",
        "a AS INT) + CAST(1",
        "DELETE FROM steps",
        "-- nothing",
        "'open",
        "TRUE ORDER BY 1",
    ],
)
def test_anything_but_one_expression_is_refused(tmp_path: Path, text: str) -> None:
    message = error(tmp_path, {"case_id": "a", "outcome_sql": text})
    assert message.startswith(f"line 1: outcome_sql: {text!r}: ")
    assert message.endswith("; expected one SQL expression")
