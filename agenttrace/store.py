"""Opens the store, one DuckDB file, and keeps it up to date; the only caller of `duckdb.connect` on it.

A DuckDB file has one writer and no readers, or readers and no writer. So nobody keeps it open: a writer takes it for a
moment, a reader per answer, and whoever finds it taken waits for a bounded time.

The file is never opened, hashed or copied by descriptor here: closing that descriptor would drop the POSIX lock of a
connection in the same process, and let a second writer in.
"""

import os
import random
import re
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import duckdb

from agenttrace import private
from agenttrace.compact import Compacted, Totals, compact, read_totals, release
from agenttrace.errors import StoreBusyError, StoreError, StoreMissingError
from agenttrace.limits import AGENT_MEMORY, MEMORY, bound_memory, spill_folder
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
# Full row groups go straight into the file, the rest of a batch through the log. With DuckDB's 122,880 rows a flush of
# 8,192 spans takes 3 times the processor time, and merging them up to 0.8 s at once. Commands merge the small ones.
_AGENT_ROW_GROUP = 4_096

# What a command or the receiver does at once; a batch that has begun is finished, which may take a few seconds more.
# Then others have a turn: those that wait look every 30 ms, and later on a busy machine, where turns are long too.
_TURN_S = 2.0
_PAUSE_S = 0.04
_PAUSE_SHARE = 0.05
# To read is worth a wait that is longer than a turn.
_TURN_WAIT_S = 10.0

# A small batch ends soon after the time that an agent may take at its end.
_AGENT_BATCH_BYTES = 8 << 20


# A file that is no DuckDB database may make DuckDB look for an extension that reads it, over the network; and a store
# from elsewhere may have a view in place of a table of ours, which reads other files.
_EXTERNAL = "enable_external_access"
_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    _EXTERNAL: "false",
}


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


class _Process:
    """What this process does with the store; only one of its threads may write at a time."""

    def __init__(self) -> None:
        self.writing = threading.Lock()
        self.has_ghost = False
        # DuckDB without a file or a thread, and the folder whose stores may be attached to it. To start one takes 14 ms
        # of processor time, to attach a store 1 ms. It is taken away while it is in use, so that no child inherits it.
        self.idle: tuple[Path, duckdb.DuckDBPyConnection] | None = None

    def after_fork(self) -> None:
        # The child inherits an open database without its lock and threads, and would be handed that very database
        # by the next connect: it must leave the store to others.
        self.has_ghost = self.has_ghost or self.writing.locked()
        self.writing = threading.Lock()
        self.idle = None


_process = _Process()
os.register_at_fork(after_in_child=_process.after_fork)


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
            with _writer(db, wait_s, adopts=bool(spool.segments())) as con:
                turn = _take_turn(con, spool, settings, waiting, plan)
            compacted, rebuilt, totals = compacted + turn.compacted, rebuilt + turn.rebuilt, turn.totals
            not_rebuilt = turn.not_rebuilt
            is_left, wait_s = turn.is_left, max(wait_s, _TURN_WAIT_S)
            if is_left:
                time.sleep(max(_PAUSE_S, _PAUSE_SHARE * (time.monotonic() - started)))
    except StoreBusyError as err:
        busy, holder = True, _holder(err)
    except _ReadOnlyError as err:
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
        with _writer(db, wait_s, is_agent=True) as con:
            # Small flushes would leave a row group each; one merge at a time keeps up with them.
            merges = int(sum(segment.rows for segment in segments) < _AGENT_ROW_GROUP)
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
    con = _connect(db, wait_s, read_only=True)
    try:
        _check_readable(con, db)
        if locked:
            con.execute("SET lock_configuration = true")
    except BaseException:
        con.close()
        raise
    return con


class _ReadOnlyError(StoreError):
    """The file may be read and not written."""


@contextmanager
def _writer(
    db: Path, wait_s: float, *, adopts: bool = True, is_agent: bool = False
) -> Generator[duckdb.DuckDBPyConnection]:
    """Holds the store alone, with today's schema in it.

    Args:
        db: The store.
        wait_s: How long to wait for another process to let go of the file.
        adopts: Whether a file without our tables gets them; a command that only reads leaves another program's alone.
        is_agent: Whether the process may be somebody else's, and gets by with one thread and little memory.
    """
    lock = _process.writing
    if _process.has_ghost or not lock.acquire(timeout=wait_s):
        raise StoreBusyError(f"{db}: another thread of this process is writing to it.")
    try:
        if not db.exists():
            _create(db, wait_s)
        try:
            with _attached(db, wait_s) if is_agent else closing(_connect(db, wait_s, read_only=False)) as con:
                if not adopts and _schema_version(con) is None:
                    raise StoreError(_FOREIGN.format(db))
                _migrate(con, db)
                yield con
        except duckdb.Error as err:
            # A full disk fails a commit too, and is no reason to wait.
            if isinstance(err, duckdb.TransactionException) and "onflict" in str(err):
                raise StoreBusyError(f"{db}: another connection of this process is writing to it.") from err
            raise StoreError(f"{db}: {_first_line(err)}") from err
    finally:
        lock.release()


@contextmanager
def _attached(db: Path, wait_s: float) -> Generator[duckdb.DuckDBPyConnection]:
    """Attaches the store for a moment to a DuckDB that this process keeps; after a fault, that one is given up."""
    _check_place(db)
    # DuckDB names its write-ahead log after the path that it is given; a link would have one of its own.
    path = os.path.realpath(db)
    folder = Path(path).parent
    idle, _process.idle = _process.idle, None
    con = idle[1] if idle is not None and idle[0] == folder else _start(db, folder)
    # DuckDB sees to it that no two connections of a process have the file, here or by `connect`.
    attach = f"ATTACH ? AS store (ROW_GROUP_SIZE {_AGENT_ROW_GROUP})"
    try:
        _patiently(db, wait_s, lambda: con.execute(attach, [path]))
    except StoreBusyError:
        _process.idle = folder, con
        raise
    try:
        con.execute("USE store")
        yield con
        con.execute("USE memory")
        con.execute("DETACH store")
    except BaseException:
        con.close()
        raise
    _process.idle = folder, con


def _start(db: Path, folder: Path) -> duckdb.DuckDBPyConnection:
    """Starts a DuckDB without a file, for stores of one folder."""
    # Without threads of its own it survives a fork, and the agent's processors stay the agent's.
    config = {name: value for name, value in _CONFIG.items() if name != _EXTERNAL}
    con = duckdb.connect(config=config | {"threads": 1, "async_threads": 0, "temp_directory": str(spill_folder(db))})
    bound_memory(con, AGENT_MEMORY)
    con.execute("SET enable_progress_bar = false")
    con.execute("SET TimeZone = 'UTC'")
    # Its own files have several endings, so the whole folder it must be.
    con.execute("SET allowed_directories = ?", [[str(folder)]])
    con.execute(f"SET {_EXTERNAL} = false")
    return con


def _connect(db: Path, wait_s: float, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    _check_place(db)
    config = _CONFIG | {"temp_directory": str(spill_folder(db))}
    path = os.path.realpath(db)
    con = _patiently(db, wait_s, lambda: duckdb.connect(path, read_only=read_only, config=config))
    bound_memory(con, MEMORY)
    con.execute("SET enable_progress_bar = false")
    con.execute("SET TimeZone = 'UTC'")
    return con


def _check_place(db: Path) -> None:
    for path in (db, spool_folder(db)):
        if private.is_planted(path):
            raise StoreError(private.PLANTED.format(path))
    private.keep_off_streams()


def _patiently(db: Path, wait_s: float, take: Callable[[], duckdb.DuckDBPyConnection]) -> duckdb.DuckDBPyConnection:
    """Tries to take the file until whoever holds it lets go, or time is up."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            return take()
        except duckdb.Error as err:
            if not _is_busy(err):
                raise _unusable(db, err) from err
            if time.monotonic() >= deadline:
                raise StoreBusyError(
                    f"{db}: another process holds it ({_first_line(err)}). Try again when it has finished."
                ) from err
            # Unequal pauses: two waiters that keep step would meet each time.
            time.sleep(random.uniform(0.005, 0.03))  # noqa: S311


def _is_busy(err: duckdb.Error) -> bool:
    text = str(err)
    return (
        (isinstance(err, duckdb.IOException) and "Could not set lock" in text)
        or (isinstance(err, duckdb.ConnectionException) and "different configuration" in text)
        or "Unique file handle conflict" in text
    )


def _holder(err: StoreBusyError) -> str | None:
    """Returns whom DuckDB names as the holder of its lock."""
    found = re.search(r"held in (.+?) \(PID (\d+)\)", str(err))
    return f"process {found[2]} ({found[1]})" if found else None


def _unusable(db: Path, err: duckdb.Error) -> StoreError:
    text = str(err)
    if db.is_dir():
        return StoreError(f"{db}: is a folder; expected a DuckDB file. Name one with --db or AGENTTRACE_DB.")
    if "Permission denied" in text or "Read-only file system" in text:
        if os.access(db, os.R_OK):
            return _ReadOnlyError(f"{db}: cannot be written by this user.")
        return StoreError(f"{db}: cannot be read by this user (permission denied).")
    if "not a valid DuckDB" in text or "extension" in text:
        found = "is empty" if db.exists() and db.stat().st_size == 0 else "is not a DuckDB file"
        return StoreError(f"{db}: {found}. Delete it, or name another file with --db or AGENTTRACE_DB.")
    if any(word in text for word in ("read enough bytes", "checksum", "orrupt", "Failed to load")):
        return StoreError(
            f"{db}: is damaged ({_first_line(err)}). Put a copy back, or move it away: "
            "a new one takes in what the spool holds."
        )
    return StoreError(f"{db}: {_first_line(err)}")


def _first_line(err: duckdb.Error) -> str:
    return str(err).partition("\n")[0].partition(". See also")[0]


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
            con = duckdb.connect(temporary, config=_CONFIG)
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
        raise _unusable(db, err) from err
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
            f"{db}: holds tables of another program ({_first_line(err)}). Name another file with --db."
        ) from err


def _schema_version(con: duckdb.DuckDBPyConnection) -> int | None:
    """Returns the schema version; None for a file without tables of ours."""
    try:
        # To look for the table first takes six times as long.
        row = con.execute("SELECT value::INTEGER FROM agenttrace_meta WHERE key = 'schema_version'").fetchone()
    except (duckdb.CatalogException, duckdb.BinderException, duckdb.ConversionException):
        return None
    return int(row[0]) if row else None


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
