"""The calls of a run against the accepted sequences of its case: maximum matching, shortest edit script."""

from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa

# One row per judged run with a case and accepted sequence.
SCHEMA = pa.schema(
    [
        ("trajectory_id", pa.string()),
        ("case_id", pa.string()),
        ("sequence_index", pa.int64()),
        ("mode", pa.string()),
        ("accepted", pa.bool_()),
        ("closest", pa.bool_()),
        ("matched", pa.int64()),
        ("run_length", pa.int64()),
        ("reference_length", pa.int64()),
        ("precision", pa.float64()),
        ("recall", pa.float64()),
        ("f1", pa.float64()),
        ("edits", pa.string()),
        ("differing_span_ids", pa.list_(pa.string())),
        ("not_evaluable", pa.string()),
    ]
)


def table(con: duckdb.DuckDBPyConnection, cases: Sequence[Mapping[str, Any]], params: Mapping[str, Any]) -> pa.Table:
    """Returns the relation `sequence_matches`."""
    return SCHEMA.empty_table()
