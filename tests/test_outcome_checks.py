"""Predicates of cases: what they may say, what they may not do, and what they do not see."""

import json
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import duckdb
import pytest

from agenttrace.errors import ConfigError
from agenttrace.evaluators import outcome_checks

RUNS = (
    ("r1", "restock", {"open_orders": 1, "note": "rice"}),
    ("r2", "restock", {"open_orders": 2, "note": "40"}),
    ("r3", "restock", None),
    ("r4", "other", {"open_orders": 1}),
    ("r5", None, {"open_orders": 1}),
)


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    """Five runs, r2 with two refunds, the others with one."""
    with duckdb.connect() as con:
        con.execute((resources.files("agenttrace") / "schema.sql").read_text(encoding="utf-8"))
        for trajectory_id, task_id, state in RUNS:
            values: dict[str, Any] = {
                "trajectory_id": trajectory_id,
                "trace_id": "t1",
                "task_id": task_id,
                "tools": [],
                **dict.fromkeys(("tool_call_count", "model_call_count", "error_count"), 0),
                **dict.fromkeys(("mutation_count", "unpriced_model_calls"), 0),
                "complete": True,
                "root_ended": True,
                "last_arrival": "2026-01-01 00:00:00+00",
                "final_state": None if state is None else json.dumps(state),
            }
            insert(con, "trajectories", values)
            for number in range(2 if trajectory_id == "r2" else 1):
                step = {"trajectory_id": trajectory_id, "trace_id": "t1", "span_id": f"s{number}", "kind": "tool"}
                insert(con, "steps", {**step, "tool_name": "issue_refund", "status": "ok", "origin": "span"})
        yield con


def insert(con: duckdb.DuckDBPyConnection, name: str, values: dict[str, Any]) -> None:
    con.execute(f"INSERT INTO {name} ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})", [*values.values()])


def verdicts(con: duckdb.DuckDBPyConnection, sql: str, **options: Any) -> dict[str, bool | None]:
    rows = outcome_checks.table(con, [{"case_id": "restock", "outcome_sql": sql}], **options).to_pylist()
    return {row["trajectory_id"]: row["passed"] for row in rows}


def reasons(con: duckdb.DuckDBPyConnection, sql: str) -> list[str | None]:
    rows = outcome_checks.table(con, [{"case_id": "restock", "outcome_sql": sql}]).to_pylist()
    return [row["not_evaluable"] for row in rows]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("(final_state ->> 'open_orders')::INTEGER = 1", {"r1": True, "r2": False, "r3": None}),
        ("(SELECT count(*) FROM steps WHERE tool_name = 'issue_refund') = 1", {"r1": True, "r2": False, "r3": True}),
        ("(SELECT count(*) FROM trajectories) = 1", {"r1": True, "r2": True, "r3": True}),
        ("TRUE -- whatever happened", {"r1": True, "r2": True, "r3": True}),
        ("final_state IS NOT NULL AND initial_state IS NULL", {"r1": True, "r2": True, "r3": False}),
    ],
)
def test_expressions_see_one_run(con: duckdb.DuckDBPyConnection, sql: str, expected: dict[str, bool | None]) -> None:
    assert verdicts(con, sql) == expected


def test_reasons_of_no_verdict(con: duckdb.DuckDBPyConnection) -> None:
    assert reasons(con, "final_state ->> 'open_orders' = '1'") == [
        None,
        None,
        "outcome_sql gives NULL: initial_state and final_state not recorded",
    ]
    assert reasons(con, "CASE WHEN trajectory_id <> 'r1' THEN TRUE END")[0] == (
        "outcome_sql gives NULL: initial_state not recorded"
    )


def test_values_of_one_run_stop_nothing(con: duckdb.DuckDBPyConnection) -> None:
    first, second, _ = reasons(con, "(final_state ->> 'note')::INTEGER = 40")
    assert second is None
    assert first is not None
    assert first.startswith("outcome_sql fails on the values of this run: Conversion Error")


def test_cases_without_an_expression_or_a_run(con: duckdb.DuckDBPyConnection) -> None:
    cases = [{"case_id": "restock", "outcome_sql": None}, {"case_id": "unseen", "outcome_sql": "TRUE"}]
    assert outcome_checks.table(con, cases).num_rows == 0
    assert outcome_checks.table(con, cases).schema == outcome_checks.SCHEMA
    assert outcome_checks.table(con, []).num_rows == 0


@pytest.mark.parametrize(
    ("sql", "complaint"),
    [
        ("(SELECT count(*) FROM read_csv('/etc/passwd')) > 0", "file system operations are disabled"),
        ("(SELECT count(*) FROM read_text('/etc/passwd')) > 0", "file system operations are disabled"),
        ("(COPY trajectories TO '/tmp/out.csv')", "Parser Error"),
        ("TRUE) FROM trajectories; DROP TABLE stored.steps; SELECT (TRUE", "several statements"),
        ("TRUE) FROM trajectories UNION ALL SELECT (TRUE", "2 answers for one run"),
        ("TRUE, FALSE", "expected one BOOLEAN"),
        ("TRUE) AS a, (TRUE", "gives BOOLEAN, BOOLEAN; expected one BOOLEAN"),
        ("1", "gives INTEGER; expected one BOOLEAN"),
        ("final_state ->> 'open_orders'", "gives VARCHAR; expected one BOOLEAN"),
        ("NULL", "expected one BOOLEAN"),
        ("no_such_column = 1", "no_such_column"),
        ("final_state ->", "Parser Error"),
        ("", "gives TUPLE; expected one BOOLEAN"),
    ],
)
def test_anything_else_is_refused(con: duckdb.DuckDBPyConnection, sql: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as caught:
        verdicts(con, sql)
    assert str(caught.value).startswith("case 'restock': outcome_sql")
    assert "\n" not in str(caught.value)


def test_a_wrong_expression_is_refused_before_any_run_has_its_case(con: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(ConfigError, match="case 'unseen': outcome_sql"):
        outcome_checks.table(con, [{"case_id": "unseen", "outcome_sql": "no_such_column = 1"}])


def test_a_runaway_expression_is_stopped(con: duckdb.DuckDBPyConnection) -> None:
    endless = "(SELECT count(*) FROM range(10_000_000) AS a, range(10_000_000) AS b WHERE a.range * b.range = -1) = 0"
    with pytest.raises(ConfigError, match=r"takes longer than 0\.05 s"):
        verdicts(con, endless, seconds=0.05)


def test_no_file_is_written(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    with pytest.raises(ConfigError):
        verdicts(con, f"TRUE) FROM trajectories; COPY stored.steps TO '{target}'; SELECT (TRUE")
    assert not target.exists()
