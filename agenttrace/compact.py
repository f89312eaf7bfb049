"""Moves segments of the spool into the store, each exactly once, whenever the process is killed.

Rows, ledger row and dirty marks of a segment are one transaction; the file is deleted after it. A segment that is
still there and in the ledger was committed by a compactor that died before it could delete.
"""

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib import resources
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, NamedTuple

import duckdb

from agenttrace import private
from agenttrace.errors import OtherReleaseError, SpoolError
from agenttrace.guard import warn_once
from agenttrace.segments import Content, table_of
from agenttrace.spool import Segment, Spool, load_segment

if TYPE_CHECKING:
    import pyarrow as pa

# What one transaction holds in memory, before DuckDB's own copies.
BATCH_BYTES = 64 << 20
_BATCH_SEGMENTS = 1_024

# Errors that say that the rows are at fault, not the disk, the memory or another program.
_ROW_ERRORS = (
    SpoolError,
    duckdb.DataError,
    duckdb.IntegrityError,
    duckdb.NotSupportedError,
    duckdb.InvalidInputException,
)

# One span has one start time, whoever delivers it, so only so much of the store is searched for those of a batch: at
# 10 M rows that takes 2 ms instead of 71. The millisecond either way is for producers that round.
_ROUNDING_NS = 1_000_000
_INT64_MAX = 2**63 - 1
_SET_ASIDE_BY = "set_aside_by"
_MAX_SLICES = 16
# The ledger forgets the segments whose files are gone once it has so many: to delete one takes as long as a thousand.
_FORGOTTEN = 64

# Most batches hold nothing but new spans, each once: to ask that takes half the time of telling what is the same.
_STORED = (
    "SELECT 1 FROM spans SEMI JOIN incoming_spans USING (trace_id, span_id)"
    " WHERE spans.start_time_unix_nano BETWEEN $earliest AND $latest LIMIT 1"
)


class Compacted(NamedTuple):
    """Segments that came into the store, and segments that had to be set aside."""

    segments: int
    set_aside: int


class Totals(NamedTuple):
    """What has come into a store from its spool since it was made, whoever brought it.

    Attributes:
        spans: Ended spans, each once.
        duplicate_spans: Ended spans that were there already.
        compacted_at: When rows came in last, in seconds since 1970-01-01 UTC; 0: never.
        lag_s: How long the oldest of those had been acknowledged by then.
        id_conflicts: Spans with the ids of another span: they are in `spans`, but in no run.
        too_large: Traces that do not fit into memory: their long values, or all of them, are in no run.
    """

    spans: int = 0
    duplicate_spans: int = 0
    compacted_at: float = 0.0
    lag_s: float = 0.0
    id_conflicts: int = 0
    too_large: int = 0


class _Read(NamedTuple):
    segment: Segment
    content: Content


def compact(
    con: duckdb.DuckDBPyConnection, spool: Spool, *, deadline: float | None = None, batch_bytes: int = BATCH_BYTES
) -> Compacted:
    """Moves the segments of the spool into the store.

    Args:
        con: Connection of the only process that may write the store.
        spool: Spool of the store.
        deadline: `time.monotonic()` after which no further batch begins; None: to the end.
        batch_bytes: Bound of the rows that one transaction takes.

    Raises:
        duckdb.Error: The disk is full.
    """
    if not spool.is_writable():
        # What cannot be deleted would be told for ever as not yet stored.
        return Compacted(0, 0)
    spool.clean()
    before = _try_again(con, spool)
    segments = spool.segments()
    names = {segment.path.name for segment in segments}
    ledger = {name for (name,) in con.execute("SELECT segment FROM segments").fetchall()}
    # A compactor that died between its commit and the deletion has left these.
    spool.remove(segment for segment in segments if segment.path.name in ledger)
    waiting = [segment for segment in segments if segment.path.name not in ledger]
    count = 0
    gone = ledger - names if len(ledger) > _FORGOTTEN else set[str]()
    for batch in _batches(spool, waiting, batch_bytes):
        count += _store(con, spool, batch, gone)
        gone = set[str]()
        # What could not be stored does not count, or it would keep off those behind it for ever.
        if count and deadline is not None and time.monotonic() >= deadline:
            break
    set_aside = len(spool.set_aside_paths()) - before
    if set_aside:
        _write_fact(con, _SET_ASIDE_BY, release())
    return Compacted(count, set_aside)


def _try_again(con: duckdb.DuckDBPyConnection, spool: Spool) -> int:
    """Takes back what another release has set aside, and returns how many segments stay set aside."""
    set_aside = len(spool.set_aside_paths())
    if not set_aside or _read_fact(con, _SET_ASIDE_BY) == release():
        return set_aside
    spool.take_back()
    _write_fact(con, _SET_ASIDE_BY, release())
    return len(spool.set_aside_paths())


def release() -> str:
    """Returns the version of this release."""
    try:
        return version("agenttrace-otel")
    except PackageNotFoundError:  # pragma: no cover - a copied source tree
        return "unknown"


def _batches(spool: Spool, segments: Iterable[Segment], batch_bytes: int) -> Iterator[list[_Read]]:
    batch: list[_Read] = []
    size = 0
    for segment in segments:
        try:
            content = load_segment(segment)
        except PermissionError:
            warn_once(f"unreadable {spool.folder}", "%s: waits, this user may not read it", segment.path)
            continue
        except (OSError, MemoryError):
            # Taken by another compactor, or unreadable for the moment: it is acknowledged, so it stays.
            continue
        except OtherReleaseError as err:
            warn_once(
                f"other release {spool.folder}",
                "%s: waits, another release has written it (%s): upgrade agenttrace-otel to take it in",
                segment.path,
                err,
            )
            continue
        except SpoolError as err:
            spool.set_aside(segment, str(err))
            continue
        if batch and (size + content.size_bytes > batch_bytes or len(batch) >= _BATCH_SEGMENTS):
            yield batch
            batch, size = [], 0
        batch.append(_Read(segment, content))
        size += content.size_bytes
    if batch:
        yield batch


def _store(con: duckdb.DuckDBPyConnection, spool: Spool, batch: Sequence[_Read], gone: Iterable[str]) -> int:
    """Stores a batch in one transaction; where rows are refused or do not fit into memory, segment by segment."""
    try:
        _commit(con, batch, gone)
    except _ROW_ERRORS as err:
        if len(batch) > 1:
            return sum(_store(con, spool, [read], gone) for read in batch)
        spool.set_aside(batch[0].segment, f"the store refuses it: {type(err).__name__}: {err}")
        return 0
    except (duckdb.Error, MemoryError) as err:
        if not is_short_of_memory(err):
            raise
        if len(batch) > 1:
            return sum(_store(con, spool, [read], gone) for read in batch)
        # It is whole, and may fit elsewhere: a command may take more memory than an agent.
        path = batch[0].segment.path
        warn_once(f"memory {path}", "%s: waits, its %d rows do not fit into memory", path, batch[0].segment.rows)
        return 0
    # DuckDB makes its log as the process's umask says, and a kill leaves it.
    store = spool.folder.with_suffix("")
    private.follow(store.with_name(f"{store.name}.wal"), store)
    spool.remove(read.segment for read in batch)
    return len(batch)


def is_short_of_memory(err: Exception) -> bool:
    """Tells whether less data might have succeeded."""
    # A commit says it in a class of its own.
    return isinstance(err, (duckdb.OutOfMemoryException, MemoryError)) or "could not allocate block" in str(err)


def _commit(con: duckdb.DuckDBPyConnection, batch: Sequence[_Read], gone: Iterable[str]) -> None:
    """Stores a batch, and forgets segments that are in the ledger and whose files are gone for good."""
    import pyarrow as pa

    kinds = sorted({read.segment.kind for read in batch})
    con.begin()
    try:
        received = stored = 0
        for kind in kinds:
            reads = [read for read in batch if read.segment.kind == kind]
            table = table_of([(read.content, read.segment.received_at_ns // 1000) for read in reads])
            con.register(f"incoming_{kind}", table)
            if kind == "spans":
                received = _ended(table)
                if dropped := _merge(con, table):
                    table = _without(table, dropped)
                    con.register("incoming_spans", table)
                stored = _ended(table)
                con.register("incoming_traces", pa.table({"trace_id": table["trace_id"].unique()}))
            con.execute(_query(kind))
            if kind == "spans" and any(read.content.settled for read in reads):
                _settle(con, [read for read in reads if read.content.settled])
        _add_up(con, batch, received, stored)
        if gone:
            con.execute("DELETE FROM segments WHERE segment IN (SELECT unnest(?::VARCHAR[]))", [list(gone)])
        names = [read.segment.path.name for read in batch]
        con.execute("INSERT INTO segments SELECT unnest($names::VARCHAR[]), now()", {"names": names})
        con.commit()
    except BaseException:
        # A commit that failed has ended the transaction already.
        with suppress(duckdb.Error):
            con.rollback()
        raise
    finally:
        # An aborted transaction refuses even this, so it comes after the rollback.
        for name in (*(f"incoming_{kind}" for kind in kinds), "incoming_ids", "incoming_traces", "superseded"):
            con.unregister(name)


def _merge(con: duckdb.DuckDBPyConnection, table: "pa.Table") -> set[int]:
    """Returns the places of the spans of a batch that the store does not need, and deletes from it those they replace.

    The most complete record wins: ended over started, then the first received. Only ids and times are compared in SQL;
    that most batches hold nothing but new spans is what makes them cheap.
    """
    import pyarrow as pa
    from pyarrow import compute

    times: dict[str, int] = compute.min_max(table["start_time_unix_nano"]).as_py()
    window = {
        "earliest": max(times["min"] - _ROUNDING_NS, -_INT64_MAX),
        "latest": min(times["max"] + _ROUNDING_NS, _INT64_MAX),
    }
    has_repeats = len(table["span_id"].unique()) < len(table)
    is_stored = bool(con.execute(_STORED, window).fetchall())
    dropped: set[int] = set()
    if has_repeats or is_stored:
        ids = table.select(["trace_id", "span_id", "start_time_unix_nano", "end_time_unix_nano", "received_at"])
        # The order of arrival, which a scan need not keep.
        con.register("incoming_ids", ids.append_column("position", pa.array(range(len(ids)), type=pa.int64())))
    if has_repeats:
        dropped.update(position for (position,) in con.execute(_query("repeats")).fetchall())
    if is_stored:
        partners = [found for found in con.execute(_query("partners"), window).fetchall() if found[0] not in dropped]
        dropped.update(position for position, _, supersedes in partners if not supersedes)
        superseded = [stored for position, stored, _ in partners if position not in dropped]
        con.register("superseded", pa.table({"stored": pa.array(superseded, pa.int64())}))
        con.execute(_query("superseded"), window)
    return dropped


def _without(table: "pa.Table", dropped: set[int]) -> "pa.Table":
    import pyarrow as pa

    if len(dropped) > _MAX_SLICES:
        return table.filter(pa.array([position not in dropped for position in range(len(table))]))
    # Slices copy nothing.
    starts = [0, *(position + 1 for position in sorted(dropped))]
    ends = [*sorted(dropped), len(table)]
    return pa.concat_tables([table.slice(start, end - start) for start, end in zip(starts, ends, strict=True)])


def _settle(con: duckdb.DuckDBPyConnection, reads: Sequence[_Read]) -> None:
    """Marks the traces of segments that an import wrote: they are complete, whatever else arrives for them."""
    con.register("incoming_ids", table_of([(read.content, 0) for read in reads]).select(["trace_id"]))
    con.execute(_query("settled"))


def _ended(table: "pa.Table") -> int:
    return len(table) - table["end_time_unix_nano"].null_count


def read_totals(con: duckdb.DuckDBPyConnection) -> Totals:
    """Reads what has come into a store so far."""
    # The rebuild tells these apart, trace by trace.
    found = con.execute(
        "SELECT split_part(key, ' ', 1), sum(value::BIGINT)::BIGINT FROM agenttrace_meta"
        " WHERE key SIMILAR TO '(id_conflicts|too_large) .*' GROUP BY ALL"
    ).fetchall()
    return _read_counts(con)._replace(**dict(found))


def _read_counts(con: duckdb.DuckDBPyConnection) -> Totals:
    values: dict[str, Any] = json.loads(_read_fact(con, "totals") or "{}")
    # Another release may count other things as well.
    return Totals(**{name: values[name] for name in Totals._fields if name in values})


def _add_up(con: duckdb.DuckDBPyConnection, batch: Sequence[_Read], received: int, stored: int) -> None:
    """Counts a batch in the transaction that stores it, so that a kill neither loses nor repeats it.

    A start record gives way to the end of its span and is no duplicate of it, so only ends are counted.
    """
    before = _read_counts(con)
    now = time.time()
    oldest = min(read.segment.received_at_ns for read in batch) / 1e9
    totals = Totals(before.spans + stored, before.duplicate_spans + received - stored, now, max(0.0, now - oldest))
    counted = {name: value for name, value in totals._asdict().items() if name not in ("id_conflicts", "too_large")}
    _write_fact(con, "totals", json.dumps(counted))


def _read_fact(con: duckdb.DuckDBPyConnection, key: str) -> str | None:
    row = con.execute("SELECT value FROM agenttrace_meta WHERE key = ?", [key]).fetchone()
    return row[0] if row else None


def _write_fact(con: duckdb.DuckDBPyConnection, key: str, value: str) -> None:
    updated = con.execute("UPDATE agenttrace_meta SET value = ? WHERE key = ?", [value, key]).fetchone()
    if updated != (1,):
        con.execute("INSERT INTO agenttrace_meta VALUES (?, ?)", [key, value])


@cache
def _query(name: str) -> str:
    return (resources.files("agenttrace") / f"compact_{name}.sql").read_text()
