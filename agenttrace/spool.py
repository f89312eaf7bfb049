"""The spool: a folder of immutable segments beside the store, written by any number of processes without a lock.

One open DuckDB writer shuts every other process out of the file, so producers never touch it. A segment is written
under a temporary name, synced and renamed; the rename is the acknowledgement. The compactor moves it into the store.
"""

import errno
import fcntl
import logging
import os
import re
import time
import typing
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from agenttrace.errors import SpoolError, SpoolFullError
from agenttrace.spans import LogRow, OutcomeRow, SpanRow

if TYPE_CHECKING:
    import pyarrow as pa

_logger = logging.getLogger("agenttrace")

DEFAULT_DB = "agenttrace.duckdb"
CAP_BYTES = 2 << 30

# Arrow costs per column (1.5 ms for the 36 of a span, and its import 0.4 s once), JSON per row (0.7 us). Up to these
# limits JSON is thirty times faster, and a start record needs no pyarrow; beyond them zstd saves more than that.
_JSON_ROWS = 64
_JSON_BYTES = 256 << 10

# Writers lock their temporary file, so an unlocked one is of a dead process; the age covers the moment before the lock.
_TEMPORARY_AGE_S = 600.0
_SIZE_AGE_S = 30.0
_FULL_SIZE_AGE_S = 1.0

_INT64_MAX = 2**63 - 1
_NAME = re.compile(r"(?P<time_ns>\d{20})-[0-9a-f]{16}\.(?P<rows>\d+)\.(?P<kind>[a-z]+)\.(?:arrow|json)")


class EvaluationRow(NamedTuple):
    """One finished evaluation, so that a run is in the store whole or not at all; each field is JSON text."""

    run: str
    findings: str
    measurements: str
    not_evaluable: str


_ROW_TYPES: dict[str, type[tuple[Any, ...]]] = {
    "spans": SpanRow,
    "logs": LogRow,
    "outcomes": OutcomeRow,
    "evaluation": EvaluationRow,
}


class Segment(NamedTuple):
    """An acknowledged file of the spool; segments sort by the time of their arrival."""

    path: Path
    kind: str
    rows: int
    size_bytes: int
    received_at_ns: int


class SegmentRows(NamedTuple):
    """What a segment holds; `table` has the columns of its kind, and `received_at`."""

    table: "pa.Table"
    settled: bool


class Pending(NamedTuple):
    """What waits to be compacted; `oldest_s` is 0 where nothing does."""

    segments: int
    rows: int
    bytes: int
    oldest_s: float


class _Column(NamedTuple):
    name: str
    type: type
    required: bool


def default_db(db: str | Path | None = None) -> Path:
    """Returns the path of the store: the argument, else AGENTTRACE_DB, else agenttrace.duckdb in this folder."""
    return Path(db or os.environ.get("AGENTTRACE_DB") or DEFAULT_DB).expanduser()


def spool_folder(db: Path) -> Path:
    """Returns the spool of a store; two paths to one store, as through a symbolic link, have one spool."""
    real = Path(os.path.realpath(db))
    return real.with_name(real.name + ".spool")


class Spool:
    """Writes segments, and lists them for the compactor.

    Any number of threads and processes may use one folder; a `Spool` survives a fork.
    """

    def __init__(self, folder: Path, *, cap_bytes: int = CAP_BYTES) -> None:
        self.folder = folder
        self._cap_bytes = cap_bytes
        self._known_bytes = 0
        self._measured_at = float("-inf")

    def write(self, kind: str, rows: Sequence[tuple[Any, ...]], *, settled: bool = False) -> Path:
        """Writes one segment and returns its path once it is on disk: from here on the rows are acknowledged.

        Args:
            kind: "spans", "logs", "outcomes" or "evaluation".
            rows: SpanRow, LogRow, OutcomeRow or EvaluationRow, at least one. A lone surrogate becomes "?".
            settled: The rows are whole traces of the past (an import): nothing more is waited for.

        Raises:
            SpoolFullError: The spool is at its cap.
            SpoolError: A row has a value that its column cannot hold.
            OSError: The disk is full or the folder cannot be written.
        """
        if not rows:
            raise SpoolError(f"{self.folder}: a segment needs at least one row.")
        suffix, payload = _encode(kind, rows, settled)
        self._reserve(len(payload))
        # The kernel's random bytes differ between threads, processes and forks without any shared state.
        name = f"{time.time_ns():020d}-{os.urandom(8).hex()}.{len(rows)}.{kind}.{suffix}"
        try:
            return self._store(name, payload)
        except FileNotFoundError:
            _make_folder(self.folder)
            return self._store(name, payload)

    def segments(self) -> list[Segment]:
        """Lists acknowledged segments, oldest first."""
        found: list[Segment] = []
        for name, size in self._files():
            if match := _NAME.fullmatch(name):
                path = self.folder / name
                found.append(Segment(path, match["kind"], int(match["rows"]), size, int(match["time_ns"])))
        return sorted(found)

    def pending(self) -> Pending:
        """Counts what waits."""
        segments = self.segments()
        oldest_s = max(0.0, time.time() - segments[0].received_at_ns / 1e9) if segments else 0.0
        rows = sum(segment.rows for segment in segments)
        return Pending(len(segments), rows, sum(segment.size_bytes for segment in segments), oldest_s)

    def set_aside(self, segment: Segment, reason: str) -> None:
        """Renames a segment that cannot be read to `.bad`: it neither blocks the others nor is it lost."""
        bad = segment.path.with_name(segment.path.name + ".bad")
        with suppress(FileNotFoundError):
            segment.path.rename(bad)
            _logger.warning("%s: set aside, its %d rows are not in the store: %s", bad, segment.rows, reason)

    def set_aside_paths(self) -> list[Path]:
        """Lists the segments that were set aside."""
        return sorted(self.folder / name for name, _ in self._files() if name.endswith(".bad"))

    def remove(self, segments: Iterable[Segment]) -> None:
        """Deletes segments that are in the store, durably: their ledger rows may go afterwards."""
        for segment in segments:
            segment.path.unlink(missing_ok=True)
        _sync_folder(self.folder)

    def clean(self) -> None:
        """Deletes temporary files of dead writers; they were never acknowledged."""
        for name, _ in self._files():
            if name.endswith(".tmp"):
                with suppress(OSError):
                    _remove_abandoned(self.folder / name)

    def _files(self) -> Iterator[tuple[str, int]]:
        try:
            with os.scandir(self.folder) as entries:
                for entry in entries:
                    # Another process may delete it between the listing and the stat.
                    with suppress(FileNotFoundError):
                        yield entry.name, entry.stat(follow_symlinks=False).st_size
        except (FileNotFoundError, NotADirectoryError):
            return

    def _reserve(self, size: int) -> None:
        """Counts the folder at most every half minute: the spool of a day has tens of thousands of files."""
        age_s = time.monotonic() - self._measured_at
        is_full = self._known_bytes + size > self._cap_bytes
        if age_s > (_FULL_SIZE_AGE_S if is_full else _SIZE_AGE_S):
            self._known_bytes = sum(size for _, size in self._files())
            self._measured_at = time.monotonic()
        if self._known_bytes + size > self._cap_bytes:
            raise SpoolFullError(
                f"{self.folder}: {self._known_bytes} bytes wait, the cap is {self._cap_bytes}. "
                "Any agenttrace command, such as `agenttrace list`, moves them into the store."
            )
        self._known_bytes += size

    def _store(self, name: str, payload: memoryview) -> Path:
        path = self.folder / name
        with _temporary_file(self.folder / f"{name}.tmp") as (temporary, descriptor):
            while payload:
                payload = payload[os.write(descriptor, payload) :]
            os.fsync(descriptor)
            temporary.rename(path)
        _sync_folder(self.folder)
        return path


def read_segment(segment: Segment) -> SegmentRows:
    """Reads a segment.

    Raises:
        FileNotFoundError: Another compactor has taken it.
        SpoolError: It is torn, corrupt, or of another shape than its kind.
    """
    import pyarrow as pa

    if segment.kind not in _ROW_TYPES:
        raise SpoolError(f"kind {segment.kind!r} is unknown; a newer agenttrace-otel may have written it.")
    try:
        content = segment.path.read_bytes()
        is_json = segment.path.suffix == ".json"
        rows = _decode_json(segment.kind, content) if is_json else _decode_arrow(segment.kind, content)
        rows.table.validate(full=True)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, OverflowError) as err:
        raise SpoolError(f"not a readable segment: {type(err).__name__}: {err}") from err
    if rows.table.num_rows != segment.rows:
        raise SpoolError(f"holds {rows.table.num_rows} rows, its name says {segment.rows}.")
    _check_required(segment.kind, rows.table)
    received_at = pa.scalar(segment.received_at_ns // 1000, pa.timestamp("us", tz="UTC"))
    return rows._replace(table=rows.table.append_column("received_at", pa.repeat(received_at, segment.rows)))


def _encode(kind: str, rows: Sequence[tuple[Any, ...]], settled: bool) -> tuple[str, memoryview]:
    try:
        return _encode_strict(kind, rows, settled)
    except (UnicodeEncodeError, TypeError):
        # A lone surrogate (orjson says TypeError). Only now is a walk over every value worth its time.
        return _encode_strict(kind, [_without_surrogates(row) for row in rows], settled)


def _encode_strict(kind: str, rows: Sequence[tuple[Any, ...]], settled: bool) -> tuple[str, memoryview]:
    if len(rows) <= _JSON_ROWS:
        _check_values(kind, rows)
        payload = orjson.dumps({"settled": settled, "rows": [list(row) for row in rows]})
        if len(payload) <= _JSON_BYTES:
            return "json", memoryview(payload)
    return "arrow", memoryview(_encode_arrow(kind, rows, settled))


def _encode_arrow(kind: str, rows: Sequence[tuple[Any, ...]], settled: bool) -> "pa.Buffer":
    import pyarrow as pa

    try:
        table = _table(kind, rows)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as err:
        if isinstance(err, UnicodeEncodeError):
            raise
        raise SpoolError(f"{kind}: a row cannot be stored: {err}") from err
    _check_required(kind, table)
    sink = pa.BufferOutputStream()
    table = table.replace_schema_metadata({"kind": kind, "settled": "1" if settled else "0"})
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _decode_json(kind: str, content: bytes) -> SegmentRows:
    document = orjson.loads(content)
    return SegmentRows(_table(kind, document["rows"]), document["settled"] is True)


def _decode_arrow(kind: str, content: bytes) -> SegmentRows:
    import pyarrow as pa

    with pa.ipc.open_file(pa.BufferReader(content)) as reader:
        table = reader.read_all()
    if not table.schema.equals(_schema(kind)):
        raise ValueError(f"its columns are not those of {kind}")
    metadata: dict[bytes, bytes] = table.schema.metadata or {}
    return SegmentRows(table, metadata.get(b"settled") == b"1")


def _table(kind: str, rows: Sequence[Sequence[Any]]) -> "pa.Table":
    import pyarrow as pa

    schema = _schema(kind)
    columns = zip(*rows, strict=True)
    arrays: list[pa.Array[Any]] = [_array(column, type_) for column, type_ in zip(columns, schema.types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _array(column: tuple[Any, ...], type_: "pa.DataType") -> "pa.Array[Any]":
    import pyarrow as pa

    first = column[0]
    # Two in three columns of one program's spans hold one value throughout.
    if column[-1] is first and column.count(first) == len(column):
        return pa.repeat(pa.scalar(first, type_), len(column))
    return pa.array(column, type=type_)


@cache
def _schema(kind: str) -> "pa.Schema":
    import pyarrow as pa

    # Large strings: the values of one segment may exceed 2 GiB together.
    types = {str: pa.large_string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    return pa.schema([pa.field(column.name, types[column.type]) for column in _columns(kind)])


@cache
def _columns(kind: str) -> tuple[_Column, ...]:
    hints = typing.get_type_hints(_ROW_TYPES[kind])
    columns: list[_Column] = []
    for name, hint in hints.items():
        kinds = typing.get_args(hint) or (hint,)
        columns.append(_Column(name, kinds[0], type(None) not in kinds))
    return tuple(columns)


def _check_values(kind: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Refuses what JSON would take and the reader could not: after the acknowledgement it would be too late."""
    columns = _columns(kind)
    for row in rows:
        for value, column in zip(row, columns, strict=True):
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


@contextmanager
def _temporary_file(path: Path) -> Generator[tuple[Path, int]]:
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    try:
        with suppress(OSError):  # Some network file systems know no flock: their leftovers stay until someone looks.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield path, descriptor
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def _remove_abandoned(path: Path) -> None:
    if time.time() - path.stat().st_mtime < _TEMPORARY_AGE_S:
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    finally:
        os.close(descriptor)


def _make_folder(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    except OSError as err:
        # Some file systems cannot sync a folder; there the rename is as durable as it gets.
        if err.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
