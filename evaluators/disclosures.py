"""Secrets and runs of the system prompt in final responses."""

import duckdb
import pyarrow as pa

SCHEMA = pa.schema(
    [
        ("trajectory_id", pa.string()),
        ("trace_id", pa.string()),
        ("span_id", pa.string()),
        ("kind", pa.string()),
        ("what", pa.string()),
        ("shown", pa.string()),
    ]
)


def table(con: duckdb.DuckDBPyConnection) -> pa.Table:
    """Returns the relation `disclosures`."""
    return SCHEMA.empty_table()
