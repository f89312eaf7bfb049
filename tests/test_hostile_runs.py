"""Evaluators over runs that were made to cost much: they end soon, in little memory, and say what they left out."""

import json
import time
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
import test_evaluators as evaluators

from agenttrace.evaluators import sequences

STEP = """
    'r1' AS trajectory_id, 't1' AS trace_id, 's' || i AS span_id, i::INTEGER AS step_index,
    'tool' AS kind, 'ok' AS status,
    'yes' AS effect, 'mutating' AS mutability,
    TIMESTAMPTZ '2026-01-01 00:00:00+00' + to_seconds(i) AS start_time,
    TIMESTAMPTZ '2026-01-01 00:00:00+00' + to_seconds(i) AS end_time
"""


@pytest.fixture(scope="module")
def store() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1, "memory_limit": "500MB", "max_temp_directory_size": "0KB"}) as con:
        evaluators.create_store(con)
        evaluators.create_relations(con)
        con.execute("INSERT INTO trajectories (trajectory_id, session_id, tool_call_count) VALUES ('r1', 'x', 1)")
        yield con


@pytest.fixture
def con(store: duckdb.DuckDBPyConnection) -> Iterator[duckdb.DuckDBPyConnection]:
    """A store with one run; what a test puts into it goes with its transaction."""
    store.execute("BEGIN")
    yield store
    store.execute("ROLLBACK")


def add(con: duckdb.DuckDBPyConnection, first: int, last: int, columns: str) -> None:
    """Adds steps whose columns are expressions of their number i."""
    con.execute(f"INSERT INTO steps BY NAME SELECT {STEP}, {columns} FROM range({first}, {last}) AS r(i)")


def found(con: duckdb.DuckDBPyConnection, name: str, **params: Any) -> list[dict[str, Any]]:
    """The rows of an evaluator, which has five seconds of processor time."""
    begin = time.process_time()
    rows = evaluators.answer(con, name, params)
    assert time.process_time() - begin < 5
    return rows


def kinds(rows: list[dict[str, Any]]) -> dict[str, int]:
    return {kind: sum(row["kind"] == kind for row in rows) for kind in {row["kind"] for row in rows}}


def test_redacted_arguments_are_compared_by_their_rarest_value(con: duckdb.DuckDBPyConnection) -> None:
    add(con, 0, 2000, """'place_order' AS tool_name, '{"to":"[REDACTED]","unit":"kg","n":' || i || '}' AS arguments""")
    assert found(con, "duplicate_mutations") == []
    add(con, 2000, 2001, """'place_order' AS tool_name, '{"to":"[REDACTED]","unit":"kg","n":7}' AS arguments""")
    (row,) = found(con, "duplicate_mutations")
    assert row["message"].startswith("arguments of place_order were redacted without a hash")


def test_redacted_arguments_of_which_nothing_is_rare_may_be_equal(con: duckdb.DuckDBPyConnection) -> None:
    """No two are alike, which is not looked for where each value stands in more than a hundred others."""
    arguments = """'{"to":"[REDACTED]","a":' || (i // 12) || ',"b":' || (i % 12) || '}' AS arguments"""
    add(con, 0, 144, f"'place_order' AS tool_name, {arguments}")
    assert found(con, "duplicate_mutations") == []
    arguments = """'{"to":"[REDACTED]","a":' || (i // 102) || ',"b":' || (i % 2) || ',"c":0}' AS arguments"""
    add(con, 1000, 1102, f"'pay' AS tool_name, {arguments}")
    assert kinds(found(con, "duplicate_mutations")) == {"not_evaluable": 1}


def test_too_much_between_two_calls_is_said(con: duckdb.DuckDBPyConnection) -> None:
    """1,500 orders, each made again 2,000 steps later: what lies between the nearest is looked at, the rest is said."""
    order = "'place_order' AS tool_name, '{\"item\":' || (i % 2000) || '}' AS arguments"
    add(con, 0, 1500, order)
    add(con, 1500, 2000, "'get_stock' AS tool_name, '{\"item\":-1}' AS arguments")
    con.execute("UPDATE steps SET mutability = 'read_only' WHERE tool_name = 'get_stock'")
    add(con, 2000, 3500, order)
    rows = found(con, "duplicate_mutations")
    assert kinds(rows) == {"confirmed": 2_000_000 // 2000, "not_evaluable": 1}
    (note,) = (row for row in rows if row["kind"] == "not_evaluable")
    assert (
        note["message"] == "too much lies between equal calls of place_order to tell whether it undid or checked them"
    )


def test_thousands_of_tools_that_share_a_noun(con: duckdb.DuckDBPyConnection) -> None:
    """Each runs twice at once, and none lies between the calls of another."""
    add(
        con,
        0,
        3000,
        "CASE WHEN i % 4 < 2 THEN 'create' ELSE 'cancel' END || '_order_' || (i // 2) AS tool_name, '{}' AS arguments",
    )
    assert kinds(found(con, "duplicate_mutations")) == {"confirmed": 1500}


@pytest.mark.parametrize(
    ("name", "params", "expected"),
    [
        ("duplicate_mutations", {}, {"confirmed": 1}),
        ("tool_arguments", {"max": {"place_order.n": 3999}}, {}),
        ("tenant_isolation", {"tenants": ["globex"]}, {"argument": 2, "not_evaluable": 1}),
    ],
)
def test_arguments_of_thousands_of_values(
    con: duckdb.DuckDBPyConnection, name: str, params: dict[str, Any], expected: dict[str, int]
) -> None:
    """DuckDB would hold the whole document once for each of its values."""
    con.execute("UPDATE trajectories SET tenant_id = 'acme'")
    document = json.dumps({"n": list(range(4000)), "of": "globex", "made": [{"id": f"PO-{n}"} for n in range(2000)]})
    add(con, 0, 2, f"'place_order' AS tool_name, '{document}' AS arguments")
    assert kinds(found(con, name, **params)) == expected


def test_thousands_of_unknown_names_at_once(con: duckdb.DuckDBPyConnection) -> None:
    """Few are compared with what was offered; of many the verdict stands without a guess at what was meant."""
    for number, names in enumerate((300, 1000)):
        offered = json.dumps([{"name": f"tool_{n}"} for n in range(names)])
        calls = json.dumps([{"id": f"c{n}", "name": f"tool_{n}x"} for n in range(names)])
        con.execute(
            "INSERT INTO steps(trajectory_id, trace_id, span_id, step_index, kind, offered_tools, requested_tool_calls)"
            " VALUES (?, 't1', 'm', 1, 'model', ?, ?)",
            [f"m{number}", offered, calls],
        )
        con.execute("INSERT INTO trajectories (trajectory_id, final_response) VALUES (?, 'Done.')", [f"m{number}"])
    rows = [row for row in found(con, "tool_hallucination") if row["kind"] == "unknown_tool"]
    assert len(rows) == 1300
    assert {row["trajectory_id"] for row in rows if row["meant"]} == {"m0"}


def test_thousands_of_results_that_the_model_wrote(con: duckdb.DuckDBPyConnection) -> None:
    add(
        con, 0, 3000, "'get_order' AS tool_name, '\"Order ' || i || ' is open and waits for its truck\"' AS observation"
    )
    con.execute(
        "INSERT INTO claims (trajectory_id, trace_id, span_id, position, source, form, text)"
        " SELECT 'r1', 't1', 's' || i, 1, 'answer', 'result', 'order ' || i || ' is open'"
        " FROM range(2000, 4000) AS r(i)"
    )
    assert kinds(found(con, "tool_hallucination"))["fabricated_result"] == 1000


def test_an_order_broken_thousands_of_times_names_a_hundred_calls(con: duckdb.DuckDBPyConnection) -> None:
    add(con, 0, 4000, "CASE WHEN i % 2 = 0 THEN 'check' ELSE 'pay' END AS tool_name")
    con.execute("UPDATE steps SET status = 'error' WHERE tool_name = 'check'")
    rows = found(con, "tool_order", before=[["check", "pay"]])
    assert len(rows) == 2000
    assert {tuple(row["related_span_ids"]) for row in rows} == {tuple(f"s{n}" for n in range(0, 200, 2))}


def test_thousands_of_expected_texts_of_a_long_answer(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("UPDATE trajectories SET task_id = 'k', final_response = repeat('The order was not changed. ', 500)")
    con.execute("INSERT INTO cases (case_id, must_include) SELECT 'k', list('word ' || i) FROM range(2000) AS r(i)")
    assert kinds(found(con, "response_content")) == {"missing": 2000}


def test_thousands_of_claims_of_calls_that_failed(con: duckdb.DuckDBPyConnection) -> None:
    add(con, 0, 2500, "'place_order' AS tool_name")
    con.execute("UPDATE steps SET status = 'timeout', effect = 'unknown'")
    con.execute(
        "INSERT INTO claims BY NAME SELECT 'r1' AS trajectory_id, 't1' AS trace_id, 's1' AS span_id, i AS position,"
        " 'answer' AS source, 'place_order' AS tool_name, ['place_order'] AS candidates, 'verb' AS form,"
        " 'past' AS tense, 'positive' AS polarity, FALSE AS quoted, TRUE AS by_agent, TRUE AS success,"
        " 'I placed order ' || i AS text FROM range(2500) AS r(i)"
    )
    (row,) = (row for row in found(con, "tool_hallucination") if row["kind"] != "not_evaluable")
    assert (row["kind"], len(row["related_span_ids"])) == ("claimed_despite_failure", 100)


@pytest.mark.parametrize(
    ("call_id", "turn"), [("NULL", "'m'"), ("'c'", "'m'"), ("'c'", "NULL")], ids=["no_id", "one_id", "one_id_no_turn"]
)
def test_hundreds_of_requests_that_nothing_tells_apart(con: duckdb.DuckDBPyConnection, call_id: str, turn: str) -> None:
    """Each has its finding, with the last hundred of the calls that it may have become."""
    con.execute(
        "INSERT INTO steps BY NAME SELECT 'r1' AS trajectory_id, 't1' AS trace_id, 'm' AS span_id, 0 AS step_index,"
        " 'model' AS kind, '[]'::JSON AS offered_tools,"
        f" to_json(list({{'id': {call_id}, 'name': 'pay'}})) AS requested_tool_calls FROM range(300)"
    )
    add(con, 1, 301, f"'pay' AS tool_name, {call_id} AS tool_call_id, {turn} AS turn_span_id")
    rows = [row for row in found(con, "tool_hallucination") if row["kind"] == "unknown_tool"]
    assert len(rows) == 300
    assert {tuple(row["related_span_ids"]) for row in rows} == {tuple(f"s{n}" for n in range(201, 301))}


def test_sequences_too_long_to_compare(con: duckdb.DuckDBPyConnection) -> None:
    add(con, 0, 1001, "'pay' AS tool_name, '{}' AS arguments")
    con.execute("UPDATE trajectories SET task_id = 'k'")
    case: dict[str, Any] = {"case_id": "k", "sequence_mode": None, "arguments_mode": None}
    for length, accepted in ((1000, None), (999, False)):
        case["acceptable_tool_sequences"] = json.dumps([["pay"] * length])
        (row,) = sequences.table(con, [case], {}).to_pylist()
        assert row["accepted"] is accepted
        assert (row["not_evaluable"] is None) is (accepted is not None)
