"""What is inside a segment of the spool: rows <-> bytes; pure.

Few rows are JSON: it costs per row, and a start record needs no pyarrow. Many are an Arrow file: it costs per column,
and zstd makes it a tenth. Columns that hold one value throughout, two in three of one program's spans, are not in the
file but in its metadata.
"""

import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from agenttrace.errors import OtherReleaseError, SpoolError
from agenttrace.spans import LogRow, OutcomeRow, SpanRow

if TYPE_CHECKING:
    import pyarrow as pa

# Up to these limits JSON is thirty times faster, and spares the 0.4 s of pyarrow's import; beyond them zstd saves more.
_JSON_ROWS = 64
_JSON_BYTES = 256 << 10

_CONSTANT_LENGTH = 2_048

# A segment goes into the store in one transaction, which must fit into memory.
_SEGMENT_BYTES = 32 << 20

_INT64_MAX = 2**63 - 1


class EvaluationRow(NamedTuple):
    """One finished evaluation, so that a run is in the store whole or not at all; each field is JSON text."""

    run: str
    findings: str
    measurements: str
    not_evaluable: str
    judgements: str = '{"trajectory_ids": [], "revisions": [], "judged": [], "is_new": []}'
    faults: str = "[]"


_ROW_TYPES: dict[str, type[tuple[Any, ...]]] = {
    "spans": SpanRow,
    "logs": LogRow,
    "outcomes": OutcomeRow,
    "evaluation": EvaluationRow,
}


class Content(NamedTuple):
    """What a segment holds: rows where it is JSON, else a table. `size_bytes` is what it takes in memory, about."""

    kind: str
    rows: Sequence[Sequence[Any]] | None
    table: "pa.Table | None"
    settled: bool
    size_bytes: int

    def __len__(self) -> int:
        """Counts the rows."""
        return self.table.num_rows if self.table is not None else len(self.rows or ())


class _Column(NamedTuple):
    name: str
    type: type
    required: bool


class Encoded(NamedTuple):
    """A segment to be: how many rows, the ending of the file's name, and its bytes."""

    rows: int
    ending: str
    payload: memoryview


def encode(kind: str, rows: Sequence[tuple[Any, ...]], settled: bool) -> Iterator[Encoded]:
    """Makes one segment of rows, and of very long ones several. A lone surrogate becomes "?".

    Raises:
        SpoolError: A row has a value that its column cannot hold.
    """
    try:
        yield _encode_part(kind, rows, settled, _SEGMENT_BYTES)
        return
    except _TooLongError:
        pass  # Few batches are, and to measure each row of every batch would take a tenth of the time of writing it.
    for part in _parts(rows):
        yield _encode_part(kind, part, settled, None)


def _parts(rows: Sequence[tuple[Any, ...]]) -> Iterator[Sequence[tuple[Any, ...]]]:
    """Splits rows by the length of their texts, a row at least each."""
    first = length = 0
    for number, row in enumerate(rows):
        added = sum(len(value) for value in row if isinstance(value, str))
        if number > first and length + added > _SEGMENT_BYTES:
            yield rows[first:number]
            first, length = number, 0
        length += added
    yield rows[first:]


class _TooLongError(Exception):
    """The rows are more than one segment takes."""


def _encode_part(kind: str, rows: Sequence[tuple[Any, ...]], settled: bool, most: int | None) -> Encoded:
    try:
        return _encode_strict(kind, rows, settled, most)
    except (UnicodeEncodeError, TypeError):
        pass  # A lone surrogate (orjson says TypeError). Only now is a walk over every value worth its time.
    try:
        return _encode_strict(kind, [_without_surrogates(row) for row in rows], settled, most)
    except TypeError as err:
        raise SpoolError(f"{kind}: a row cannot be stored: {err}") from err


def decode(kind: str, ending: str, content: bytes, count: int) -> Content:
    """Reads what `encode` wrote: so many rows.

    Raises:
        SpoolError: It is torn, corrupt, or of another shape than its kind.
        MemoryError: It does not fit for the moment.
    """
    check_known(kind, ending)
    import pyarrow as pa

    try:
        return _decode_json(kind, content, count) if ending == "json" else _decode_arrow(kind, content, count)
    except MemoryError:
        raise
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, OverflowError) as err:
        raise _unreadable(err) from err


def check_known(kind: str, ending: str) -> None:
    """Tells by a segment's name that another release has written it.

    Raises:
        OtherReleaseError: This one does not know the kind or the format.
    """
    if kind not in _ROW_TYPES:
        raise OtherReleaseError(f"kind {kind!r} is unknown")
    if ending not in ("json", "arrow"):
        raise OtherReleaseError(f"format {ending!r} is unknown")


def table_of(contents: Sequence[tuple[Content, int]]) -> "pa.Table":
    """Joins contents of one kind in their order, each with its time of arrival in microseconds since 1970-01-01 UTC.

    Returns:
        The columns of the kind, and `received_at`.

    Raises:
        SpoolError: A row has a value that its column cannot hold.
    """
    import pyarrow as pa

    tables: list[pa.Table] = []
    try:
        for is_json, group in groupby(contents, lambda each: each[0].table is None):
            if is_json:
                tables.append(_table_of_rows(list(group)))
            else:
                tables += [_timed(content.table, time_us) for content, time_us in group if content.table is not None]
        table = pa.concat_tables(tables)
    except MemoryError:
        raise
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as err:
        raise _unreadable(err) from err
    _check_required(contents[0][0].kind, table)
    return table


def _unreadable(err: Exception) -> SpoolError:
    return SpoolError(f"not a readable segment: {type(err).__name__}: {err}")


def _encode_strict(kind: str, rows: Sequence[tuple[Any, ...]], settled: bool, most: int | None) -> Encoded:
    if len(rows) <= _JSON_ROWS:
        _check_values(kind, rows)
        payload = orjson.dumps({"settled": settled, "rows": [list(row) for row in rows]})
        if len(payload) <= _JSON_BYTES:
            return Encoded(len(rows), "json", memoryview(payload))
    return Encoded(len(rows), "arrow", memoryview(_encode_arrow(kind, rows, settled, most)))


def _encode_arrow(kind: str, rows: Sequence[tuple[Any, ...]], settled: bool, most: int | None) -> "pa.Buffer":
    import pyarrow as pa

    size = 0
    arrays: list[pa.Array[Any]] = []
    fields: list[pa.Field[Any]] = []
    constants: dict[str, Any] = {}
    try:
        for values, column, field in zip(zip(*rows, strict=True), _columns(kind), _schema(kind), strict=True):
            first = values[0]
            if values[-1] is first and values.count(first) == len(values) and _is_small(first):
                _check_value(kind, first, column)
                constants[column.name] = first
                continue
            array = pa.array(values, type=field.type)
            if column.required and array.null_count:
                raise SpoolError(f"{kind}: {column.name} is missing in a row.")
            size += array.nbytes
            if most is not None and size > most and len(rows) > 1:
                raise _TooLongError
            arrays.append(array)
            fields.append(field)
        facts = {"kind": kind, "settled": "1" if settled else "0", "rows": str(len(rows))}
        schema = pa.schema(fields, facts | {"constants": orjson.dumps(constants)})
        table = pa.Table.from_arrays(arrays, schema=schema)
    except UnicodeEncodeError:
        raise
    except (pa.ArrowException, ValueError, OverflowError) as err:
        raise SpoolError(f"{kind}: a row cannot be stored: {err}") from err
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _is_small(value: object) -> bool:
    """Whether a value may stand in the metadata, which are not compressed and come twice, as JSON, which has no NaN."""
    return not isinstance(value, float) and not (isinstance(value, str) and len(value) > _CONSTANT_LENGTH)


def _decode_json(kind: str, content: bytes, count: int) -> Content:
    document = orjson.loads(content)
    rows = document["rows"]
    _check_count(len(rows), count)
    if any(len(row) != len(_columns(kind)) for row in rows):
        raise _other_columns(kind)
    # As columns of text, it takes about as much again.
    return Content(kind, typing.cast(list[list[Any]], rows), None, document["settled"] is True, 2 * len(content))


def _decode_arrow(kind: str, content: bytes, count: int) -> Content:
    import pyarrow as pa

    with pa.ipc.open_file(pa.BufferReader(content)) as reader:
        varying = reader.read_all()
    varying.validate(full=True)
    facts: Mapping[bytes, bytes] = varying.schema.metadata or {}
    # Before anything is made as long as it says.
    _check_count(int(facts[b"rows"]), count)
    constants: dict[str, Any] = orjson.loads(facts[b"constants"])
    columns: list[pa.ChunkedArray[Any] | pa.Array[Any]] = []
    for field in _schema(kind):
        if field.name in constants:
            columns.append(pa.repeat(pa.scalar(constants[field.name], field.type), count))
        else:
            columns.append(varying.column(field.name))
    table = pa.Table.from_arrays(columns, schema=_schema(kind))
    table.validate()
    if varying.num_columns + len(constants) != table.num_columns:
        raise _other_columns(kind)
    return Content(kind, None, table, facts[b"settled"] == b"1", table.nbytes)


def _other_columns(kind: str) -> ValueError:
    return ValueError(f"its columns are not those of {kind}")


def _check_count(found: int, count: int) -> None:
    if found != count:
        raise SpoolError(f"holds {found} rows, its name says {count}.")


def _table_of_rows(contents: Sequence[tuple[Content, int]]) -> "pa.Table":
    """Makes one table of many small segments: it costs per column, whatever their number."""
    import pyarrow as pa

    kind = contents[0][0].kind
    rows = [row for content, _ in contents for row in content.rows or ()]
    arrays: list[pa.Array[Any]] = [
        pa.array(values, type=field.type) for values, field in zip(zip(*rows, strict=True), _schema(kind), strict=True)
    ]
    times = [received_at_us for content, received_at_us in contents for _ in range(len(content))]
    arrays.append(pa.array(times, pa.int64()).cast(_received_at().type))
    return pa.Table.from_arrays(arrays, schema=_schema(kind).append(_received_at()))


def _timed(table: "pa.Table", received_at_us: int) -> "pa.Table":
    import pyarrow as pa

    times = pa.repeat(pa.scalar(received_at_us, _received_at().type), table.num_rows)
    return table.append_column(_received_at(), times)


@cache
def _schema(kind: str) -> "pa.Schema":
    import pyarrow as pa

    # Large strings: the values of one segment may exceed 2 GiB together.
    types = {str: pa.large_string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    return pa.schema([pa.field(column.name, types[column.type]) for column in _columns(kind)])


@cache
def _received_at() -> "pa.Field[Any]":
    import pyarrow as pa

    return pa.field("received_at", pa.timestamp("us", tz="UTC"))


@cache
def _columns(kind: str) -> tuple[_Column, ...]:
    hints = typing.get_type_hints(_ROW_TYPES[kind])
    columns: list[_Column] = []
    for name, hint in hints.items():
        kinds = typing.get_args(hint) or (hint,)
        columns.append(_Column(name, kinds[0], type(None) not in kinds))
    return tuple(columns)


def _check_values(kind: str, rows: Iterable[tuple[Any, ...]]) -> None:
    """Refuses what JSON would take and the reader could not: after the acknowledgement it would be too late."""
    columns = _columns(kind)
    for row in rows:
        for value, column in zip(row, columns, strict=True):
            # The usual types are told without a call each.
            if type(value) is not str or column.type is not str:
                _check_value(kind, value, column)


def _check_value(kind: str, value: object, column: _Column) -> None:
    if not _fits(value, column):
        # The value itself may be a secret, so the message names its type alone.
        found = "an integer over 64 bits" if isinstance(value, int) else type(value).__name__
        raise SpoolError(f"{kind}: {column.name} is {found}, expected {column.type.__name__}.")


def _fits(value: object, column: _Column) -> bool:
    if value is None:
        return not column.required
    if column.type is int:
        return isinstance(value, int) and not isinstance(value, bool) and -_INT64_MAX <= value <= _INT64_MAX
    return isinstance(value, (float, int) if column.type is float else column.type)


def _check_required(kind: str, table: "pa.Table") -> None:
    for column in _columns(kind):
        if column.required and table.column(column.name).null_count:
            raise SpoolError(f"{kind}: {column.name} is missing in a row.")


def _without_surrogates(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value.encode("utf-8", "replace").decode() if isinstance(value, str) else value for value in row)
