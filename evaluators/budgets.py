"""Which limits of the configuration apply to which run."""

from collections.abc import Mapping
from fnmatch import fnmatchcase

import duckdb
import pyarrow as pa

from agenttrace.config import Budget
from agenttrace.evaluators import tables

SCHEMA = pa.schema(
    [("trajectory_id", pa.string()), ("budget", pa.string()), ("allowed", pa.float64()), ("source", pa.string())]
)

_WILDCARDS = "*?["


def limits(settings: Mapping[str, Budget], agent: str | None, task: str | None) -> dict[str, tuple[float, str]]:
    """Returns the limits for the runs of one agent and task.

    Each limit on its own comes from the most specific budget that sets it: the task's, by name or by the longest glob
    that matches, then the agent's, then the default.

    Returns:
        Name of the limit to (its value, the budget that it comes from).
    """
    found: dict[str, tuple[float, str]] = {}
    for key in sorted((key for key in settings if _applies(key, agent, task)), key=_specificity):
        for name, value in settings[key].model_dump().items():
            if value is not None:
                found[name] = (float(value), key)
    return found


def table(con: duckdb.DuckDBPyConnection, settings: Mapping[str, Budget]) -> pa.Table:
    """Returns one row per run and limit: trajectory_id, budget, allowed, source."""
    if not settings:
        return SCHEMA.empty_table()
    rows: list[tuple[str, str, float, str]] = []
    known: dict[tuple[str | None, str | None], dict[str, tuple[float, str]]] = {}
    for trajectory_id, agent, task in con.execute(
        "SELECT trajectory_id, agent_name, task_id FROM trajectories"
    ).fetchall():
        if (agent, task) not in known:
            known[agent, task] = limits(settings, agent, task)
        rows.extend((trajectory_id, name, *limit) for name, limit in known[agent, task].items())
    return tables.table(rows, SCHEMA)


def _applies(key: str, agent: str | None, task: str | None) -> bool:
    scope, _, name = key.partition(":")
    if scope == "agent":
        return agent == name
    if scope == "task":
        return task is not None and fnmatchcase(task, name)
    return True


def _specificity(key: str) -> tuple[int, bool, int, str]:
    """The later a key sorts, the more specific it is."""
    scope, _, name = key.partition(":")
    return ("default", "agent", "task").index(scope), not any(mark in name for mark in _WILDCARDS), len(name), key
