"""Rows to Arrow tables, the form in which DuckDB takes prepared relations."""

from collections.abc import Sequence
from typing import Any, cast

import pyarrow as pa

# The type stubs of pyarrow know the element type of literals only.
_arrow = cast(Any, pa)


def table(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.Table:
    """Returns rows as a table; the values of a row stand in the order of the schema."""
    fields: list[Any] = list(schema)
    columns: list[Any] = list(zip(*rows, strict=True)) if rows else [[] for _ in fields]
    arrays = [_arrow.array(column, field.type) for column, field in zip(columns, fields, strict=True)]
    return _arrow.table(arrays, schema=schema)
