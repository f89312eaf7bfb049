"""The calls of a run against accepted sequences: 43 published verdicts, the relation."""

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from tool_sequences import reference_of, run_of

from agenttrace.config import Cases, Settings
from agenttrace.errors import ConfigError
from agenttrace.evaluators import cases, sequences
from agenttrace.evaluators.run import evaluate
from agenttrace.evaluators.sequence_calls import Call, Equality
from agenttrace.evaluators.sequences import Match, match

DATA = Path(__file__).parent / "data" / "trajectory_match" / "cases.jsonl.gz"
ALIASES = {"strict": "exact", "unordered": "any_order"}


def published() -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(DATA.read_bytes()).splitlines()]


def messages_with_calls(messages: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The calls of each assistant message. No verdict hangs on the messages without calls, which are left out."""
    return [
        [
            {"tool": call["function"]["name"], "arguments": json.loads(call["function"]["arguments"])}
            for call in message["tool_calls"]
        ]
        for message in messages
        if message.get("tool_calls")
    ]


def grouped(case: dict[str, Any], key: str) -> list[list[dict[str, Any]]]:
    """The calls by model turn; three cases compare plain lists of calls, so there each call is a turn of its own."""
    groups = messages_with_calls(case[key])
    if case.get("compare") == "sequence":
        return [[call] for group in groups for call in group]
    return groups


@pytest.mark.parametrize("case", published(), ids=lambda case: case["id"])
def test_published_verdict(case: dict[str, Any]) -> None:
    run, reference = (
        [[Call(**call) for call in group] for group in grouped(case, key)] for key in ("outputs", "reference")
    )
    equality = Equality({"*": case["args_mode"], **(case["overrides"] or {})})
    result = match(run, reference, ALIASES.get(case["mode"], case["mode"]), equality)
    assert result.accepted is case["expected"]
    assert bool(result.edits) is not case["expected"]


def test_published_verdicts_from_a_store(fill_store: Callable[..., Path], tmp_path: Path) -> None:
    """The same through a file of cases, stored steps, the relation and the evaluator."""
    steps: list[dict[str, object]] = []
    runs: list[dict[str, object]] = []
    lines: list[str] = []
    for number, case in enumerate(published()):
        task, trace = case["id"], f"t{number}"
        place: dict[str, object] = {"trajectory_id": f"r{number}", "trace_id": trace}
        runs.append({**place, "task_id": task})
        lines.append(
            json.dumps(
                {
                    "case_id": task,
                    "sequence_mode": case["mode"],
                    "arguments_mode": {"*": case["args_mode"], **(case["overrides"] or {})},
                    "acceptable_tool_sequences": [grouped(case, "reference")],
                }
            )
        )
        for turn, group in enumerate(grouped(case, "outputs")):
            for call in group:
                steps.append(
                    {
                        **place,
                        "kind": "tool",
                        "span_id": f"s{len(steps)}",
                        "step_index": len(steps),
                        "tool_name": call["tool"],
                        "arguments": json.dumps(call["arguments"]),
                        "turn_span_id": f"m{turn}",
                    }
                )
    path = tmp_path / "agent_benchmarks.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    store = fill_store(steps=steps, trajectories=runs)
    result = evaluate(store, Settings(cases=Cases(path=path)), only=["tool_sequence"])
    failed = {finding.trajectory_id for finding in result.findings}
    assert failed == {f"r{number}" for number, case in enumerate(published()) if not case["expected"]}
    assert len(failed) == 18
    assert not result.not_evaluable


def test_ratios() -> None:
    # 2 of 3 calls have partners among 4: P = 2/3, R = 2/4, F1 = 2 * 2 / (3 + 4).
    result = match(run_of("a", "b", "x"), reference_of("a", "b", "c", "d"), "exact", Equality({}))
    assert (result.precision, result.recall, result.f1) == (2 / 3, 2 / 4, 4 / 7)
    assert sequences.ratios(0, 0, 0) == (1.0, 1.0, 1.0)
    assert sequences.ratios(0, 0, 2) == (None, 0.0, 0.0)
    assert sequences.ratios(0, 2, 0) == (0.0, None, 0.0)


def test_very_long_runs_keep_their_verdict() -> None:
    run = run_of(*(("read", {"page": page}) for page in range(1_500)))
    backwards = reference_of(*(("read", {"page": page}) for page in reversed(range(1_500))))
    result = match(run, backwards, "exact", Equality({"*": "exact"}))
    assert (result.accepted, result.f1, result.edits) == (False, 1.0, "the calls are in another order")
    assert match(run, backwards, "any_order", Equality({"*": "exact"})).accepted is True
    loop = match(run_of(*["read"] * 3_000), reference_of(*["read"] * 1_500, "stop"), "any_order", Equality({}))
    # 3,000 calls, 1,500 of them with a partner: 1,500 too many, and one is missing.
    assert (loop.accepted, loop.matched, loop.edit_count) == (False, 1_500, 1_501)


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE trajectories (trajectory_id VARCHAR, task_id VARCHAR)")
        connection.execute(
            "CREATE TABLE steps (trajectory_id VARCHAR, span_id VARCHAR, step_index INTEGER, kind VARCHAR,"
            " tool_name VARCHAR, arguments JSON, turn_span_id VARCHAR, tool_ran BOOLEAN, requested_tool_calls JSON,"
            " output_messages JSON, finish_reason VARCHAR)"
        )
        yield connection


def store_run(con: duckdb.DuckDBPyConnection, *steps: dict[str, Any], run: str = "r1", task: str = "t") -> None:
    con.execute("INSERT INTO trajectories VALUES (?, ?)", [run, task])
    for index, step in enumerate(steps):
        row = {"trajectory_id": run, "span_id": f"s{index}", "step_index": index, "kind": "tool", **step}
        marks = ", ".join("?" for _ in row)
        con.execute(f"INSERT INTO steps ({', '.join(row)}) VALUES ({marks})", list(row.values()))


def rows(con: duckdb.DuckDBPyConnection, folder: Path, *lines: dict[str, Any], **params: Any) -> list[dict[str, Any]]:
    path = folder / "cases.jsonl"
    path.write_text("\n".join(json.dumps({"case_id": "t", **line}) for line in lines), encoding="utf-8")
    return sequences.table(con, cases.read(path), params).to_pylist()


def test_one_row_per_run_and_sequence(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    store_run(con, {"tool_name": "check"}, {"tool_name": "place", "tool_ran": False}, {"tool_name": "place"})
    store_run(con, {"tool_name": "check"}, run="r2", task="other")
    first, second = rows(con, tmp_path, {"acceptable_tool_sequences": [["place"], ["check", "place"]]})
    assert (first["trajectory_id"], first["case_id"], first["sequence_index"], first["mode"]) == ("r1", "t", 0, "exact")
    assert (first["accepted"], first["closest"], first["edits"]) == (False, False, "step 0 check was not expected")
    assert first["differing_span_ids"] == ["s0"]
    assert (second["accepted"], second["closest"], second["edits"]) == (True, True, "")
    assert (second["run_length"], second["reference_length"], second["matched"]) == (2, 2, 2)


def test_calls_of_one_turn_are_a_group(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    store_run(con, *({"tool_name": name, "turn_span_id": "m1"} for name in "ba"), {"tool_name": "c"})
    line = {"acceptable_tool_sequences": [["a", "b", "c"], [["a", "b"], "c"], ["b", "c", "a"]]}
    assert [row["accepted"] for row in rows(con, tmp_path, line)] == [True, True, False]
    con.execute("UPDATE steps SET turn_span_id = NULL")
    assert [row["accepted"] for row in rows(con, tmp_path, line)] == [False, False, False]


def test_the_nearest_sequence_is_chosen(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    store_run(con, *({"tool_name": name} for name in "abc"))
    line = {"acceptable_tool_sequences": [["x", "y", "z"], ["a", "b"], ["a", "b", "c", "d"], ["a", "b", "c", "e"]]}
    # One edit each for the last three; F1 is 4/5, 6/7 and 6/7, and the first of equals is taken.
    assert [row["closest"] for row in rows(con, tmp_path, line)] == [False, False, True, False]


def test_tolerance_and_modes_come_from_configuration_and_case(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    store_run(con, {"tool_name": "pay", "arguments": '{"amount": 10.04, "note": "x"}'})
    line: dict[str, Any] = {
        "acceptable_tool_sequences": [[{"tool": "pay", "arguments": {"amount": 10}}]],
        "arguments_mode": {"pay": ["amount"]},
        "sequence_mode": "unordered",
    }
    (strict,) = rows(con, tmp_path, line)
    assert (strict["accepted"], strict["mode"]) == (False, "any_order")
    assert strict["edits"] == "step 0 pay(amount=10.04) instead of pay(amount=10)"
    (tolerant,) = rows(con, tmp_path, line, numeric_tolerance=0.05)
    assert tolerant["accepted"] is True
    (whole,) = rows(con, tmp_path, {**line, "arguments_mode": "superset"}, numeric_tolerance=0.05)
    assert whole["accepted"] is True
    (by_name,) = rows(con, tmp_path, {"acceptable_tool_sequences": line["acceptable_tool_sequences"]})
    assert by_name["accepted"] is True
    with pytest.raises(ConfigError, match="numeric_tolerance is -1; expected 0 or more"):
        rows(con, tmp_path, line, numeric_tolerance=-1)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (None, "the arguments of pay (step 0) were not captured"),
        ('{"to": ' + "[" * 900 + "]" * 900 + "}", "the arguments of pay (step 0) were not captured"),
        ('"not an object"', "the arguments of pay (step 0) were not captured"),
        ('{"to": "[REDACTED]"}', "the arguments of pay (step 0) hold values that were redacted or cut"),
    ],
)
def test_arguments_that_would_decide(
    con: duckdb.DuckDBPyConnection, tmp_path: Path, arguments: str | None, reason: str
) -> None:
    store_run(con, {"tool_name": "pay", "arguments": arguments})
    paid = {"tool": "pay", "arguments": {"to": "ann"}}
    (row,) = rows(con, tmp_path, {"acceptable_tool_sequences": [[paid]], "arguments_mode": "exact"})
    assert (row["accepted"], row["closest"], row["not_evaluable"], row["edits"]) == (None, True, reason, None)
    assert (row["precision"], row["f1"], row["run_length"]) == (None, None, 1)
    # Neither what fails whatever they are, nor what is accepted without them, hangs on them.
    for sequence, verdict in (([paid, "send"], False), (["pay"], True)):
        line = {"acceptable_tool_sequences": [sequence], "arguments_mode": "exact"}
        (row,) = rows(con, tmp_path, line)
        assert (row["accepted"], row["not_evaluable"]) == (verdict, None)
    # What may be accepted is nearer than what is not; what is accepted is nearest.
    both = {"acceptable_tool_sequences": [["send"], [paid]], "arguments_mode": "exact"}
    assert [row["closest"] for row in rows(con, tmp_path, both)] == [False, True]
    third = {"acceptable_tool_sequences": [[paid], ["pay"]], "arguments_mode": "exact"}
    assert [row["closest"] for row in rows(con, tmp_path, third)] == [False, True]


def test_a_run_is_accepted_where_one_way_needs_no_hidden_argument(
    con: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    store_run(con, *({"tool_name": "pay", "arguments": text} for text in ('{"to": "[REDACTED]"}', '{"to": "ann"}')))
    line = {"acceptable_tool_sequences": [[{"tool": "pay", "arguments": {"to": "ann"}}]]}
    (row,) = rows(con, tmp_path, {**line, "sequence_mode": "superset", "arguments_mode": "exact"})
    assert (row["accepted"], row["matched"], row["not_evaluable"]) == (True, 1, None)


MODEL = {"kind": "model"}
REQUEST = {"kind": "model", "requested_tool_calls": '[{"id": "c1", "name": "check"}]'}
UNRECORDED = "the model requested tool calls, and none was recorded"
NOTHING = "neither a tool call nor the output of a model was recorded"


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([REQUEST, MODEL], UNRECORDED),
        ([REQUEST, {"tool_name": "check", "tool_ran": False}], None),
        ([MODEL], NOTHING),
        ([], NOTHING),
        ([{"kind": "model", "finish_reason": "tool_calls"}], NOTHING),
        ([{"kind": "model", "finish_reason": "stop"}], None),
        ([{"kind": "model", "requested_tool_calls": "[]"}], None),
        ([{"kind": "model", "output_messages": "[]"}], None),
    ],
)
def test_no_call_is_a_verdict_only_where_calls_would_show(
    con: duckdb.DuckDBPyConnection, tmp_path: Path, steps: list[dict[str, Any]], reason: str | None
) -> None:
    store_run(con, *steps)
    (row,) = rows(con, tmp_path, {"acceptable_tool_sequences": [[]]})
    assert (row["not_evaluable"], row["accepted"]) == (reason, None if reason else True)


def test_without_a_case_there_is_nothing_to_compare(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    store_run(con, {"tool_name": "check"})
    assert rows(con, tmp_path) == []
    assert rows(con, tmp_path, {"sequence_mode": "exact"}) == []
    assert rows(con, tmp_path, {"case_id": "other", "acceptable_tool_sequences": [[]]}) == []


def test_a_match_without_differences_has_no_edits() -> None:
    result = match(run_of("a"), reference_of("a"), "exact", Equality({}))
    assert result == Match(True, 1, 1, 1, 1.0, 1.0, 1.0, 0, "", [], None)
