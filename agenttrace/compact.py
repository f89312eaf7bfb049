"""Moves segments of the spool into the store, each exactly once, whenever the process is killed.

Rows, ledger row and dirty marks of a segment are one transaction; the file is deleted after it. A segment that is
still there and in the ledger was committed by a compactor that died before it could delete.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, NamedTuple

import duckdb

from agenttrace.errors import SpoolError
from agenttrace.spool import Segment, SegmentRows, Spool, read_segment

if TYPE_CHECKING:
    import pyarrow as pa

# What one transaction holds in memory, before DuckDB's own copies.
BATCH_BYTES = 64 << 20
_BATCH_SEGMENTS = 4096

# Errors by which DuckDB says that the rows are at fault, not the disk, the memory or another program.
_ROW_ERRORS = (duckdb.DataError, duckdb.IntegrityError, duckdb.NotSupportedError, duckdb.InvalidInputException)


class Compacted(NamedTuple):
    """Segments that came into the store, and segments that had to be set aside."""

    segments: int
    set_aside: int


class _Read(NamedTuple):
    segment: Segment
    rows: SegmentRows


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
        duckdb.Error: The disk is full, or memory is.
    """
    spool.clean()
    segments = spool.segments()
    stored = _forget_deleted(con, segments)
    spool.remove(segment for segment in segments if segment.path.name in stored)
    waiting = [segment for segment in segments if segment.path.name not in stored]
    before = len(spool.set_aside_paths())
    count = 0
    for batch in _batches(spool, waiting, batch_bytes):
        count += _store(con, spool, batch)
        if deadline is not None and time.monotonic() >= deadline:
            break
    return Compacted(count, len(spool.set_aside_paths()) - before)


def _forget_deleted(con: duckdb.DuckDBPyConnection, segments: Sequence[Segment]) -> set[str]:
    """Prunes the ledger to files that still exist, and returns those: their rows are in the store."""
    names = [segment.path.name for segment in segments]
    con.execute("DELETE FROM segments WHERE segment NOT IN (SELECT unnest($names::VARCHAR[]))", {"names": names})
    return {name for (name,) in con.execute("SELECT segment FROM segments").fetchall()}


def _batches(spool: Spool, segments: Iterable[Segment], batch_bytes: int) -> Iterator[list[_Read]]:
    batch: list[_Read] = []
    size = 0
    for segment in segments:
        try:
            rows = read_segment(segment)
        except FileNotFoundError:
            continue
        except SpoolError as err:
            spool.set_aside(segment, str(err))
            continue
        if batch and (size + rows.table.nbytes > batch_bytes or len(batch) >= _BATCH_SEGMENTS):
            yield batch
            batch, size = [], 0
        batch.append(_Read(segment, rows))
        size += rows.table.nbytes
    if batch:
        yield batch


def _store(con: duckdb.DuckDBPyConnection, spool: Spool, batch: Sequence[_Read]) -> int:
    """Stores a batch in one transaction; where rows are refused, segment by segment, to find whose they are."""
    try:
        _commit(con, batch)
    except _ROW_ERRORS as err:
        if len(batch) > 1:
            return sum(_store(con, spool, [read]) for read in batch)
        spool.set_aside(batch[0].segment, f"the store refuses it: {type(err).__name__}: {err}")
        return 0
    spool.remove(read.segment for read in batch)
    return len(batch)


def _commit(con: duckdb.DuckDBPyConnection, batch: Sequence[_Read]) -> None:
    kinds = sorted({read.segment.kind for read in batch})
    con.begin()
    try:
        for kind in kinds:
            _insert(con, kind, [read.rows for read in batch if read.segment.kind == kind])
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
        for kind in kinds:
            con.unregister(f"incoming_{kind}")


def _insert(con: duckdb.DuckDBPyConnection, kind: str, batch: Sequence[SegmentRows]) -> None:
    con.register(f"incoming_{kind}", _joined([rows.table for rows in batch]))
    con.execute(_statements(kind))
    settled = [rows.table for rows in batch if rows.settled and kind == "spans"]
    if settled:
        con.register("incoming_spans", _joined(settled))
        con.execute(_statements("settled"))


def _joined(tables: Sequence["pa.Table"]) -> "pa.Table":
    """Concatenates tables and numbers their rows: the order of arrival, which a scan need not keep."""
    import pyarrow as pa

    table = pa.concat_tables(tables)
    return table.append_column("position", pa.array(range(table.num_rows), type=pa.int64()))


@cache
def _statements(name: str) -> str:
    return (resources.files("agenttrace") / f"compact_{name}.sql").read_text()
