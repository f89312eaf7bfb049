"""Opens the store, one DuckDB file, and keeps it up to date; the only caller of `duckdb.connect` on it.

A DuckDB file has one writer and no readers, or readers and no writer. So nobody keeps it open: a writer takes it for a
moment, a reader per answer, and whoever finds it taken waits for a bounded time.
"""

import os
import time
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import duckdb

from agenttrace import private
from agenttrace.compact import Compacted, Totals, compact, read_totals, release
from agenttrace.connect import (
    AGENT_ROW_GROUP,
    CONFIG,
    ReadOnlyError,
    attached,
    connect,
    first_line,
    holder_of,
    process,
    unusable,
)
from agenttrace.errors import StoreBusyError, StoreError, StoreMissingError
from agenttrace.nearby import missing_message
from agenttrace.spool import Spool, default_db, locked_folder, spool_folder

if TYPE_CHECKING:
    from agenttrace.config import Settings
    from agenttrace.rebuild import Plan

__all__ = [
    "SCHEMA_VERSION",
    "Refreshed",
    "compact_store",
    "default_db",
    "open_store",
    "refresh",
    "spool_folder",
]

SCHEMA_VERSION = 2

# Scripts in order; script i takes a store from version i + 1 to i + 2.
MIGRATIONS: tuple[str, ...] = ((resources.files("agenttrace") / "schema_2.sql").read_text(encoding="utf-8"),)

_FOREIGN = "{}: a DuckDB file without tables of agenttrace. Name another file with --db."

# What a command or the receiver does at once; a batch that has begun is finished, which may take a few seconds more.
# Then others have a turn: those that wait look every 30 ms, and later on a busy machine, where turns are long too.
_TURN_S = 2.0
_PAUSE_S = 0.04
_PAUSE_SHARE = 0.05
# To read is worth a wait that is longer than a turn.
_TURN_WAIT_S = 10.0

# A small batch ends soon after the time that an agent may take at its end.
_AGENT_BATCH_BYTES = 8 << 20


class Refreshed(NamedTuple):
    """What a refresh did and what it left.

    `pending` segments, the oldest `oldest_s` seconds old, are not yet in the store: it was busy, or, where `problem`
    says so, cannot be written. `holder` names the process that kept it busy, and `totals` is what has come into the
    store so far; None where that is not known. `not_rebuilt` traces have come in while it worked.
    """

    compacted: int
    pending: int
    oldest_s: float
    rebuilt: int
    busy: bool
    problem: str | None = None
    totals: Totals | None = None
    holder: str | None = None
    not_rebuilt: int = 0


def refresh(db: Path, *, settings: "Settings | None" = None, wait_s: float = 2.0) -> Refreshed:
    """Brings the store up to date: segments of the spool, then the steps and trajectories that they touch.

    Where much waits, the file is closed in between, so that others have a turn. What comes in meanwhile is left, or it
    might never end.

    Args:
        db: The store; it is created where segments wait for it, and left missing where none do.
        settings: Configuration of the rebuild; None: the defaults.
        wait_s: How long to wait for another process to let go of the file.

    Raises:
        StoreError: The file is no store of this release, or the disk is full.
    """
    spool = Spool(spool_folder(db))
    waiting = {segment.path.name for segment in spool.segments()}
    if not db.exists() and not waiting:
        return Refreshed(0, 0, 0.0, 0, busy=False)
    from agenttrace.rebuild import Plan

    compacted, rebuilt, not_rebuilt, busy, problem, totals, holder = 0, 0, 0, False, None, None, None
    plan, is_left = Plan(), True
    try:
        while is_left:
            started = time.monotonic()
            with writer(db, wait_s, adopts=bool(spool.segments())) as con:
                turn = _take_turn(con, spool, settings, waiting, plan)
            compacted, rebuilt, totals = compacted + turn.compacted, rebuilt + turn.rebuilt, turn.totals
            not_rebuilt = turn.not_rebuilt
            is_left, wait_s = turn.is_left, max(wait_s, _TURN_WAIT_S)
            if is_left:
                time.sleep(max(_PAUSE_S, _PAUSE_SHARE * (time.monotonic() - started)))
    except StoreBusyError as err:
        busy, holder = True, holder_of(err)
    except ReadOnlyError as err:
        problem = str(err)
    pending = spool.pending()
    if pending.segments and not spool.is_writable():
        problem = f"{spool.folder}: cannot be written by this user."
    return Refreshed(compacted, pending.segments, pending.oldest_s, rebuilt, busy, problem, totals, holder, not_rebuilt)


class _Turn(NamedTuple):
    compacted: int
    rebuilt: int
    totals: Totals
    is_left: bool
    not_rebuilt: int


def _take_turn(
    con: duckdb.DuckDBPyConnection, spool: Spool, settings: "Settings | None", waiting: set[str], plan: "Plan"
) -> _Turn:
    """Does what fits into one turn, a batch at least; rebuilds only once all that waited is in the store."""
    from agenttrace.rebuild import count_dirty, rebuild

    deadline = time.monotonic() + _TURN_S
    compacted = 0
    if plan.left is None:
        compacted = compact(con, spool, deadline=deadline).segments
        before = len(waiting)
        waiting.intersection_update(segment.path.name for segment in spool.segments())
        # Some may stay: this user may not read them, or they do not fit into memory.
        if len(waiting) < before and time.monotonic() >= deadline:
            return _Turn(compacted, 0, read_totals(con), True, 0)
    rebuilt = rebuild(con, settings=settings, deadline=deadline, plan=plan)
    return _Turn(compacted, rebuilt, read_totals(con), bool(plan.left), count_dirty(con))


def compact_store(db: Path, *, budget_s: float, wait_s: float = 0.0) -> Compacted | None:
    """Moves segments into the store without rebuilding anything; None where another process holds it.

    Args:
        db: The store; created where segments wait for it.
        budget_s: After this time no further batch begins.
        wait_s: How long to wait for another process to let go of the file.

    Raises:
        StoreError: The file is no store of this release, or the disk is full.
    """
    deadline = time.monotonic() + budget_s
    spool = Spool(spool_folder(db))
    segments = spool.segments()
    if not segments:
        return Compacted(0, 0)
    try:
        with writer(db, wait_s, is_agent=True) as con:
            # Small flushes would leave a row group each; one merge at a time keeps up with them.
            merges = int(sum(segment.rows for segment in segments) < AGENT_ROW_GROUP)
            con.execute("SET max_vacuum_tasks = ?", [merges])
            return compact(con, spool, deadline=deadline, batch_bytes=_AGENT_BATCH_BYTES)
    except StoreBusyError:
        return None


def open_store(db: Path, *, wait_s: float = _TURN_WAIT_S, locked: bool = False) -> duckdb.DuckDBPyConnection:
    """Opens the store to read; close it soon, for while it is open nothing new comes in.

    Args:
        db: The store.
        wait_s: How long to wait for a writer to let go of the file.
        locked: For SQL that others wrote: no change of settings. Files and network are out of reach anyway.

    Raises:
        StoreMissingError: There is no such file, and no segments wait for one.
        StoreBusyError: A writer holds it all that time.
        StoreError: It is no store of this release.
    """
    if not db.exists():
        refresh(db, wait_s=wait_s)
    if not db.exists():
        raise StoreMissingError(missing_message(db))
    con = connect(db, wait_s, read_only=True)
    try:
        _check_readable(con, db)
        if locked:
            con.execute("SET lock_configuration = true")
    except BaseException:
        con.close()
        raise
    return con


@contextmanager
def writer(
    db: Path, wait_s: float, *, adopts: bool = True, is_agent: bool = False
) -> Generator[duckdb.DuckDBPyConnection]:
    """Holds the store alone, with today's schema in it.

    Args:
        db: The store.
        wait_s: How long to wait for another process to let go of the file.
        adopts: Whether a file without our tables gets them; a command that only reads leaves another program's alone.
        is_agent: Whether the process may be somebody else's, and gets by with one thread and little memory.

    Raises:
        StoreBusyError: Somebody has the file all that time.
        StoreError: It is no store of this release, or the disk is full.
    """
    lock = process.writing
    if process.has_ghost or not lock.acquire(timeout=wait_s):
        raise StoreBusyError(f"{db}: another thread of this process is writing to it.")
    try:
        if not db.exists():
            _create(db, wait_s)
        try:
            with attached(db, wait_s) if is_agent else closing(connect(db, wait_s, read_only=False)) as con:
                if not adopts and _schema_version(con) is None:
                    raise StoreError(_FOREIGN.format(db))
                _migrate(con, db)
                yield con
        except duckdb.Error as err:
            # A full disk fails a commit too, and is no reason to wait.
            if isinstance(err, duckdb.TransactionException) and "onflict" in str(err):
                raise StoreBusyError(f"{db}: another connection of this process is writing to it.") from err
            raise StoreError(f"{db}: {first_line(err)}") from err
    finally:
        lock.release()


def _create(db: Path, wait_s: float) -> None:
    """Makes a store under a temporary name and links it into place, so that a kill leaves a whole file or none."""
    path = Path(os.path.realpath(db))
    folder = spool_folder(db)
    temporary = folder / f"create-{os.urandom(8).hex()}.tmp"
    orphan = path.with_name(path.name + ".wal")
    try:
        private.make_folder(folder)
        # One at a time: whoever comes second would take the log of the first one's store for an orphan.
        with locked_folder(folder, wait_s) as is_alone:
            if not is_alone:
                raise StoreBusyError(f"{db}: another process is making it. Try again when it has finished.")
            if path.exists():
                return
            with suppress(FileNotFoundError):
                # The log of a store that someone deleted would make the new one unreadable.
                orphan.rename(orphan.with_name(orphan.name + ".bad"))
            con = duckdb.connect(temporary, config=CONFIG)
            try:
                _migrate(con, db)
            finally:
                con.close()
            private.protect(temporary, path)
            # Unlike a rename, a link never replaces what another process has made meanwhile. Where the file system
            # has no links, DuckDB makes the file in place.
            os.link(temporary, path)
    except FileExistsError:
        return
    except duckdb.Error as err:
        raise unusable(db, err) from err
    except NotADirectoryError as err:
        raise StoreError(f"{db}: {err.strerror}. Name another file with --db or AGENTTRACE_DB.") from err
    except OSError as err:
        if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
            raise StoreError(f"{db}: its folder cannot be written: {err.strerror}.") from err
    finally:
        for leftover in (temporary, temporary.with_name(f"{temporary.name}.wal")):
            with suppress(OSError):
                leftover.unlink(missing_ok=True)


def _migrate(con: duckdb.DuckDBPyConnection, db: Path) -> None:
    """Creates the tables in a new file, and brings an older store to this release's schema, in one transaction."""
    found = _schema_version(con)
    if found == SCHEMA_VERSION:
        return
    _refuse_newer(found, db)
    con.begin()
    try:
        if found is None:
            con.execute((resources.files("agenttrace") / "schema.sql").read_text())
            facts = {"version": str(SCHEMA_VERSION), "created_by": f"agenttrace-otel {release()}"}
            con.execute(
                "INSERT INTO agenttrace_meta VALUES ('schema_version', $version), ('created_by', $created_by)", facts
            )
        else:
            for script in MIGRATIONS[found - 1 :]:
                con.execute(script)
            con.execute("UPDATE agenttrace_meta SET value = ? WHERE key = 'schema_version'", [str(SCHEMA_VERSION)])
        con.commit()
    except duckdb.CatalogException as err:
        con.rollback()
        raise StoreError(
            f"{db}: holds tables of another program ({first_line(err)}). Name another file with --db."
        ) from err


def _schema_version(con: duckdb.DuckDBPyConnection) -> int | None:
    """Returns the schema version; None for a file without tables of ours."""
    try:
        # To look for the table first takes six times as long.
        rows = con.execute("SELECT value::INTEGER FROM agenttrace_meta WHERE key = 'schema_version'").fetchall()
    except (duckdb.CatalogException, duckdb.BinderException, duckdb.ConversionException):
        return None
    return int(rows[0][0]) if rows else None


def _refuse_newer(found: int | None, db: Path) -> None:
    if found is not None and found > SCHEMA_VERSION:
        raise StoreError(
            f"{db}: schema version {found}, this release knows up to {SCHEMA_VERSION}. "
            "Upgrade agenttrace-otel, or name another file with --db."
        )


def _check_readable(con: duckdb.DuckDBPyConnection, db: Path) -> None:
    found = _schema_version(con)
    _refuse_newer(found, db)
    if found is None:
        raise StoreError(_FOREIGN.format(db))
    if found < SCHEMA_VERSION:
        raise StoreError(
            f"{db}: schema version {found}, this release needs {SCHEMA_VERSION}. "
            "Run `agenttrace list` as a user who may write the file: it migrates it."
        )
