"""Predicates of benchmark cases over the states and steps of their runs.

A predicate is SQL that a user wrote. It runs on a connection of its own, in memory, that holds nothing but the rows of
the runs concerned, reaches neither files nor network, and shows it one run at a time.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib import resources
from threading import Timer
from typing import Any

import duckdb
import pyarrow as pa

from agenttrace.errors import ConfigError
from agenttrace.evaluators import tables

SCHEMA = pa.schema(
    [
        ("trajectory_id", pa.string()),
        ("case_id", pa.string()),
        ("passed", pa.bool_()),
        ("not_evaluable", pa.string()),
    ]
)

# A predicate over one run takes milliseconds.
_SECONDS = 10.0
_SHOWN_CHARACTERS = 160
_RELATIONS = ("steps", "trajectories")
_RUNS_OF_CASES = """
    SELECT trajectory_id, task_id
    FROM trajectories SEMI JOIN (SELECT unnest($cases::VARCHAR[]) AS task_id) USING (task_id)
    ORDER BY trajectory_id
"""
_ROWS_OF_RUNS = "SELECT * FROM {} SEMI JOIN (SELECT unnest($runs::VARCHAR[]) AS trajectory_id) USING (trajectory_id)"


def table(con: duckdb.DuckDBPyConnection, cases: Sequence[Mapping[str, Any]], *, seconds: float = _SECONDS) -> pa.Table:
    """Returns the relation `outcome_checks`: one row per run whose case has an `outcome_sql`.

    Args:
        con: Has the relations `steps` and `trajectories`.
        cases: Benchmark cases, as `cases.read` returns them.
        seconds: The longest that one predicate may take on one run.

    Returns:
        Columns of `SCHEMA`, by trajectory_id; `passed` is NULL where `not_evaluable` says why.

    Raises:
        ConfigError: A predicate is no single boolean expression, reads what it may not, or takes too long.
    """
    predicates = {case["case_id"]: str(case["outcome_sql"]) for case in cases if case["outcome_sql"] is not None}
    if not predicates:
        return SCHEMA.empty_table()
    runs = con.execute(_RUNS_OF_CASES, {"cases": list(predicates)}).fetchall()
    with _sandbox(con, [trajectory_id for trajectory_id, _ in runs]) as sandbox:
        checks = {case_id: _Predicate(sandbox, case_id, sql, seconds) for case_id, sql in predicates.items()}
        rows = [(trajectory_id, case_id, *checks[case_id].verdict(trajectory_id)) for trajectory_id, case_id in runs]
    return tables.table(rows, SCHEMA)


@contextmanager
def _sandbox(con: duckdb.DuckDBPyConnection, trajectory_ids: Sequence[str]) -> Generator[duckdb.DuckDBPyConnection]:
    """Opens a database in memory with the rows of these runs, and views of the one that the variable `run` names."""
    with duckdb.connect(":memory:") as sandbox:
        sandbox.execute("CREATE SCHEMA stored; USE stored")
        sandbox.execute((resources.files("agenttrace") / "schema.sql").read_text(encoding="utf-8"))
        sandbox.execute("USE memory.main")
        for name in _RELATIONS:
            rows = con.sql(_ROWS_OF_RUNS.format(name), params={"runs": list(trajectory_ids)}).to_arrow_table()
            sandbox.register("incoming", rows)
            sandbox.execute(f"INSERT INTO stored.{name} BY NAME FROM incoming")
            sandbox.unregister("incoming")
            sandbox.execute(
                f"CREATE VIEW {name} AS SELECT * FROM stored.{name} WHERE trajectory_id = getvariable('run')"  # noqa: S608
            )
        sandbox.execute("SET enable_external_access = false; SET lock_configuration = true")
        yield sandbox


class _Predicate:
    """One case's expression, checked once and asked about each run."""

    def __init__(self, con: duckdb.DuckDBPyConnection, case_id: str, sql: str, seconds: float) -> None:
        self._con = con
        self._place = f"case {case_id!r}: outcome_sql"
        self._seconds = seconds
        # The end of the line closes a comment in the expression.
        self._query = f"SELECT (\n{sql}\n) AS passed FROM trajectories"  # noqa: S608
        self._check()

    def verdict(self, trajectory_id: str) -> tuple[bool | None, str | None]:
        """Returns whether the run passed; None with the reason where that cannot be told.

        Raises:
            ConfigError: The predicate takes too long, or gives more than one answer.
        """
        self._con.execute("SET VARIABLE run = ?", [trajectory_id])
        timer = Timer(self._seconds, self._con.interrupt)
        timer.start()
        try:
            answers = self._con.execute(self._query).fetchall()
        except duckdb.InterruptException as error:
            raise ConfigError(f"{self._place} takes longer than {self._seconds:g} s; make it cheaper") from error
        except duckdb.Error as error:
            # The values of this run are at fault, such as a text where a number was expected.
            return None, f"outcome_sql fails on the values of this run: {_first_line(error)}"
        finally:
            timer.cancel()
        if len(answers) != 1:
            raise ConfigError(f"{self._place} gives {len(answers)} answers for one run; expected a boolean expression")
        passed = answers[0][0]
        return passed, None if passed is not None else f"outcome_sql gives NULL{self._missing()}"

    def _check(self) -> None:
        try:
            statements = self._con.extract_statements(self._query)
            if len(statements) != 1:
                raise ConfigError(f"{self._place} holds several statements; expected a boolean expression")
            columns = self._con.execute(f"DESCRIBE {self._query}").fetchall()
        except duckdb.Error as error:
            raise ConfigError(f"{self._place}: {_first_line(error)}") from error
        types = [str(column[1]) for column in columns]
        if types != ["BOOLEAN"]:
            raise ConfigError(f"{self._place} gives {', '.join(types)}; expected one BOOLEAN")

    def _missing(self) -> str:
        row = self._con.execute("SELECT initial_state IS NULL, final_state IS NULL FROM trajectories").fetchone()
        states = [name for name, is_null in zip(("initial_state", "final_state"), row or (), strict=False) if is_null]
        return f": {' and '.join(states)} not recorded" if states else " for the values of this run"


def _first_line(error: duckdb.Error) -> str:
    return str(error).splitlines()[0][:_SHOWN_CHARACTERS]
