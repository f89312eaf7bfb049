"""Gives a connection the relations that evaluators read, for some runs of the store, and locks it down."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from typing import Any, cast

import duckdb
import pyarrow as pa

from agenttrace.config import Settings, ToolSettings
from agenttrace.evaluators import (
    argument_errors,
    budgets,
    cases,
    claims,
    disclosures,
    outcome_checks,
    sequences,
    tables,
)

_STORED = ("steps", "trajectories", "outcomes")


@dataclass(frozen=True)
class Selection:
    """Which runs are judged.

    Attributes:
        since: Only runs that start at or after this; None is no bound.
        until: Only runs that start before this.
        include_open: Also runs that may still go on.
        runs: Only these trajectories; None is no limit.
    """

    since: datetime | None
    until: datetime | None
    include_open: bool
    runs: Sequence[str] | None = None


def select(con: duckdb.DuckDBPyConnection, selection: Selection) -> int:
    """Fills `judged`, and makes the tables of the store reachable as `stored_*`.

    Returns:
        Number of runs that are judged.
    """
    con.execute("SET enable_progress_bar = false")
    # DuckDB compares every row with every row where it expects few of them, and it expects few after joins.
    con.execute("SET asof_loop_join_threshold = 0")
    row = con.execute("SELECT current_database()").fetchone()
    name = str(row[0] if row else "").replace('"', '""')
    for table in _STORED:
        # Temporary views of the same names hide these tables from evaluators.
        con.execute(f'CREATE OR REPLACE TEMP VIEW stored_{table} AS SELECT * FROM "{name}".main.{table}')  # noqa: S608
    values = {
        "since": selection.since,
        "until": selection.until,
        "include_open": selection.include_open,
        "runs": selection.runs,
    }
    con.execute(_query("judged"), values)
    return _count(con, "judged")


def slices(con: duckdb.DuckDBPyConnection, selection: Selection, most_steps: int) -> list[Selection]:
    """Cuts a selection into parts of about so many steps, each with whole sessions; `select` comes first."""
    con.execute("CREATE OR REPLACE TEMP TABLE chosen AS FROM judged")
    _run(con, "near")
    return [replace(selection, runs=runs) for (runs,) in rows(con, "slices", most=most_steps)]


def relations(
    con: duckdb.DuckDBPyConnection, settings: Settings, reads: Collection[str], *, with_sessions: bool = True
) -> None:
    """Makes the relations over the judged runs; `select` comes first.

    The costly ones are computed only if `reads` names them, else they are empty. Unless `with_sessions` is off, other
    runs of the judged sessions are there too, as context.
    """
    con.execute(_query("chosen") if with_sessions else "CREATE OR REPLACE TEMP TABLE chosen AS FROM judged")
    _run(con, "near")
    _run(con, "tool_role")
    _fill(con, "tool_mutability", _mutability(con, settings.tools))
    _show_steps(con)
    _run(con, "outcomes")
    for name, (schema, compute) in PREPARED.items():
        _fill(con, name, compute(con, settings) if name in reads else schema.empty_table())


def _show_steps(con: duckdb.DuckDBPyConnection) -> None:
    """Makes the views `steps` and `trajectories` in the cheapest form that is right.

    A join that finds nothing costs as much as a scan. Columns that a query leaves out cost nothing, so they are no
    copies.
    """
    _run(con, "listings")
    if _count(con, "listings") or _count(con, "tool_mutability"):
        _run(con, "listed")
        _run(con, "steps_adjusted")
    else:
        all_runs = _count(con, "chosen") == _count(con, "stored_trajectories")
        _run(con, "steps_of_all_runs" if all_runs else "steps")


def verdicts(con: duckdb.DuckDBPyConnection, *, whole_store: bool) -> list[tuple[Any, ...]]:
    """Returns one row per trial with an outcome, with the fields of `metrics.Verdict`.

    With `whole_store` also the outcomes of trials that are not in the store, without a trajectory_id.
    """
    return con.execute(_query("verdicts"), {"whole_store": whole_store}).fetchall()


def clusters(
    con: duckdb.DuckDBPyConnection, flagged: Collection[str | None], blind: Collection[str | None]
) -> list[tuple[Any, ...]]:
    """Returns one row per task: task_id, runs that could not be judged, flagged runs, runs."""
    return con.execute(_query("clusters"), {"flagged": list(flagged), "blind": list(blind)}).fetchall()


def rows(con: duckdb.DuckDBPyConnection, name: str, **values: Any) -> list[tuple[Any, ...]]:
    """Returns the rows of the query `relations/<name>.sql`, whose first comment says what they are."""
    return con.execute(_query(name), values).fetchall()


def lock_down(con: duckdb.DuckDBPyConnection) -> None:
    """Takes files, network and settings from whatever runs next; the connection itself is read-only."""
    con.execute("SET enable_external_access = false")
    con.execute("SET lock_configuration = true")


def mutability_of(tool: str, tools: ToolSettings) -> str | None:
    """Returns what the configuration says of a tool: mutating, read_only or idempotent; None where it says nothing."""
    lists = (("mutating", tools.mutating), ("read_only", tools.read_only), ("idempotent", tools.idempotent))
    for mutability, globs in lists:
        if tool in globs:
            return mutability
    for mutability, globs in lists:
        if any(fnmatchcase(tool, glob) for glob in globs):
            return mutability
    return None


def _mutability(con: duckdb.DuckDBPyConnection, tools: ToolSettings) -> pa.Table:
    rows: list[tuple[str, str]] = []
    if tools.mutating or tools.read_only or tools.idempotent:
        names = con.execute("SELECT DISTINCT tool_name FROM near_steps WHERE tool_name IS NOT NULL ORDER BY ALL")
        rows = [(name, found) for (name,) in names.fetchall() if (found := mutability_of(name, tools))]
    return tables.table(rows, pa.schema([("tool_name", pa.string()), ("mutability", pa.string())]))


def _claims(con: duckdb.DuckDBPyConnection, settings: Settings) -> pa.Table:
    texts = con.execute(_query("texts")).fetchall()
    if not texts:
        return claims.SCHEMA.empty_table()
    words = claims.Vocabulary(
        con.execute(_query("vocabulary")).fetchall(), lambda tool: mutability_of(tool, settings.tools)
    )
    return claims.table(texts, words, _claim_patterns(settings))


def _claim_patterns(settings: Settings) -> Mapping[str, Iterable[str]]:
    patterns: Any = settings.evaluators.get("tool_hallucination", {}).get("claim_patterns", {})
    return cast(dict[str, list[str]], patterns) if isinstance(patterns, dict) else {}


def _errors(con: duckdb.DuckDBPyConnection, settings: Settings) -> pa.Table:
    schemas: dict[str, Any] = settings.evaluators.get("tool_arguments", {}).get("schemas", {})
    values = {"tools": list(schemas), "definitions": argument_errors.definitions(schemas)}
    return argument_errors.table(con.execute(_query("requests"), values).fetchall())


def _sequence_matches(con: duckdb.DuckDBPyConnection, settings: Settings) -> pa.Table:
    return sequences.table(con, cases.read(settings.cases.path), settings.evaluators.get("tool_sequence", {}))


def _run(con: duckdb.DuckDBPyConnection, name: str) -> None:
    for statement in con.extract_statements(_query(name)):
        con.execute(statement)


def _count(con: duckdb.DuckDBPyConnection, name: str) -> int:
    row = con.execute(f"SELECT count(*) FROM {name}").fetchone()  # noqa: S608
    return int(row[0]) if row else 0


def _fill(con: duckdb.DuckDBPyConnection, name: str, table: pa.Table) -> None:
    con.register("incoming_relation", table)
    con.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT * FROM incoming_relation")  # noqa: S608
    con.unregister("incoming_relation")


@cache
def _query(name: str) -> str:
    return (resources.files("agenttrace.evaluators.relations") / f"{name}.sql").read_text(encoding="utf-8")


# Relation to its columns, the same whether or not anything fills it, and what computes it where an evaluator reads it.
PREPARED: Mapping[str, tuple[pa.Schema, Callable[[duckdb.DuckDBPyConnection, Settings], pa.Table]]] = {
    "budgets": (budgets.SCHEMA, lambda con, settings: budgets.table(con, settings.budgets)),
    "cases": (cases.SCHEMA, lambda _, settings: cases.table(settings.cases.path)),
    "sequence_matches": (sequences.SCHEMA, _sequence_matches),
    "outcome_checks": (
        outcome_checks.SCHEMA,
        lambda con, settings: outcome_checks.table(con, cases.read(settings.cases.path)),
    ),
    "disclosures": (disclosures.SCHEMA, lambda con, _: disclosures.table(con)),
    "claims": (claims.SCHEMA, _claims),
    "argument_errors": (argument_errors.SCHEMA, _errors),
}
