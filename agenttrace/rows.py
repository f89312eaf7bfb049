"""The rows of a query as a table, Markdown, JSON, CSV or Parquet."""

import json
import math
import sys
from collections.abc import Iterable, Iterator
from decimal import Decimal
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agenttrace import markdown, terminal
from agenttrace.errors import UsageError
from agenttrace.query import explain

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation

# Rows that a table shows: aligning columns needs all rows at hand, and nobody reads more.
TABLE_ROWS = 1_000
_BATCH_ROWS = 2_048

# A cast keeps what the other side can hold: OTLP has nanoseconds, Parquet readers such as Spark do not.
_PARQUET_CASTS = {"TIMESTAMP_NS": "TIMESTAMP", "UBIGINT": "DECIMAL(20, 0)", "UHUGEINT": "VARCHAR", "BIT": "VARCHAR"}
_INTEGERS = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"})
_NUMBERS = _INTEGERS | {f"U{name}" for name in _INTEGERS} | {"FLOAT", "DOUBLE"}


def write(found: "DuckDBPyRelation", form: str, output: Path | None) -> None:
    """Runs the query and writes its rows.

    Args:
        found: The prepared query.
        form: table, markdown, json (one list of objects), csv or parquet.
        output: File to write, which appears when it is whole; None is standard output.

    Raises:
        UsageError: The query fails while it runs, or Parquet would go to a terminal.
    """
    import duckdb

    try:
        if form == "parquet":
            _write_parquet(found, output)
        elif output is None:
            _print(found, form)
        else:
            with terminal.whole_file(output) as part, part.open("w", encoding="utf-8", newline="") as file:
                file.writelines(piece + "\n" for piece in _text(found, form, limit=None))
    except duckdb.Error as error:
        raise UsageError(f"sql: {explain(error)}") from error


def _print(found: "DuckDBPyRelation", form: str) -> None:
    # A file of data keeps every character; a terminal must not act on them.
    clean = terminal.inert if form == "csv" and sys.stdout.isatty() else str
    for piece in _text(found, form, limit=TABLE_ROWS):
        if not terminal.out(clean(piece)):
            return


def _text(found: "DuckDBPyRelation", form: str, *, limit: int | None) -> Iterator[str]:
    if form == "json":
        return _json_lines(found)
    if form == "csv":
        return _csv_lines(found)
    cells = _cells(found, limit)
    if form == "markdown":
        return iter([markdown.table([markdown.cell(name) for name in found.columns], cells)])
    numeric = frozenset(index for index, kind in enumerate(found.types) if _is_number(str(kind)))
    return iter([terminal.table(found.columns, cells, fit=terminal.width(), right=numeric)])


def _rows(found: "DuckDBPyRelation", casts: Iterable[str]) -> Iterator[tuple[Any, ...]]:
    columns = ", ".join(f"{cast} AS c{index}" for index, cast in enumerate(casts))
    for batch in found.project(columns).to_arrow_reader(_BATCH_ROWS):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _texts(found: "DuckDBPyRelation") -> Iterator[tuple[str | None, ...]]:
    # DuckDB's own text of each type: exact, the same on every machine, and without Python's detours.
    return _rows(found, (f"#{index}::VARCHAR" for index in range(1, len(found.columns) + 1)))


def _cells(found: "DuckDBPyRelation", limit: int | None) -> list[list[str]]:
    rows = list(islice(_texts(found), None if limit is None else limit + 1))
    if limit is not None and len(rows) > limit:
        rows.pop()
        terminal.note(f"Only the first {limit:,} rows are shown; --format csv, json or parquet gives all.")
    return [["NULL" if cell is None else cell for cell in row] for row in rows]


def _csv_lines(found: "DuckDBPyRelation") -> Iterator[str]:
    yield ",".join(_csv_cell(name) for name in found.columns)
    for row in _texts(found):
        yield ",".join(_csv_cell(cell) for cell in row)


def _csv_cell(cell: str | None) -> str:
    # NULL is nothing at all and an empty text is "", so that one can be told from the other.
    if cell is None:
        return ""
    if cell == "" or any(character in cell for character in ',"\n\r') or cell != cell.strip():
        return '"' + cell.replace('"', '""') + '"'
    return cell


def _json_lines(found: "DuckDBPyRelation") -> Iterator[str]:
    kinds = [str(kind) for kind in found.types]
    casts = [_json_cast(index, kind) for index, kind in enumerate(kinds, 1)]
    nested = [kind == "JSON" or _is_nested(kind) for kind in kinds]
    names = found.columns
    before = "["
    for row in _rows(found, casts):
        values = [_parsed(value) if parse else _number(value) for value, parse in zip(row, nested, strict=True)]
        yield before + json.dumps(dict(zip(names, values, strict=True)), allow_nan=False)
        before = ","
    yield "[]" if before == "[" else "]"


def _is_number(kind: str) -> bool:
    return kind in _NUMBERS or (kind.startswith("DECIMAL") and kind.endswith(")"))


def _is_nested(kind: str) -> bool:
    return kind.endswith("]") or kind.startswith(("STRUCT", "MAP", "UNION"))


def _json_cast(index: int, kind: str) -> str:
    if kind == "BOOLEAN" or _is_number(kind):
        return f"#{index}"
    return f"to_json(#{index})::VARCHAR" if _is_nested(kind) else f"#{index}::VARCHAR"


def _number(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() and value.as_tuple().exponent == 0 else float(value)
    # JSON has no word for them; DuckDB's own JSON output writes `NaN`, which no strict reader takes.
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _parsed(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text, parse_constant=lambda _: None, parse_float=lambda digits: _number(float(digits)))
    except (ValueError, RecursionError):
        return text


def _write_parquet(found: "DuckDBPyRelation", output: Path | None) -> None:
    if output is None and sys.stdout.isatty():
        raise UsageError("sql: Parquet is not for a terminal; name a file with --output, or pipe it on.")
    casts = [_parquet_cast(index, str(kind)) for index, kind in enumerate(found.types, 1)]
    columns = ", ".join(f'{cast} AS "{_quoted(name)}"' for cast, name in zip(casts, found.columns, strict=True))
    reader = found.project(columns).to_arrow_reader(_BATCH_ROWS)
    if output is None:
        _copy_parquet(reader, sys.stdout.buffer)
        return
    with terminal.whole_file(output) as part:
        _copy_parquet(reader, part)


def _quoted(name: str) -> str:
    return name.replace('"', '""')


def _parquet_cast(index: int, kind: str) -> str:
    return f"#{index}::{_PARQUET_CASTS[kind]}" if kind in _PARQUET_CASTS else f"#{index}"


def _copy_parquet(reader: Any, target: Any) -> None:
    # pyarrow has no type stubs.
    parquet: Any = import_module("pyarrow.parquet")
    with parquet.ParquetWriter(target, reader.schema, compression="zstd") as writer:
        for batch in reader:
            writer.write_batch(batch)
