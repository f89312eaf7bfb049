"""Predicates of benchmark cases over the states and steps of their runs."""

from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa

SCHEMA = pa.schema(
    [
        ("trajectory_id", pa.string()),
        ("case_id", pa.string()),
        ("passed", pa.bool_()),
        ("not_evaluable", pa.string()),
    ]
)


def table(con: duckdb.DuckDBPyConnection, cases: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Returns the relation `outcome_checks`: one row per run whose case has an `outcome_sql`."""
    return SCHEMA.empty_table()
