"""Opens the store's file, alone or to read, and waits for whoever has it; words what DuckDB says of it.

The file is never opened, hashed or copied by descriptor here: closing that descriptor would drop the POSIX lock of a
connection in the same process, and let a second writer in.
"""

import os
import random
import re
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from agenttrace import private
from agenttrace.errors import StoreBusyError, StoreError
from agenttrace.limits import AGENT_MEMORY, MEMORY, bound_memory, spill_folder
from agenttrace.spool import spool_folder

Connection = duckdb.DuckDBPyConnection

# Full row groups go straight into the file, the rest of a batch through the log. With DuckDB's 122,880 rows a flush of
# 8,192 spans takes 3 times the processor time, and merging them up to 0.8 s at once. Commands merge the small ones.
AGENT_ROW_GROUP = 4_096

# A file that is no DuckDB database may make DuckDB look for an extension that reads it, over the network; and a store
# from elsewhere may have a view in place of a table of ours, which reads other files.
_EXTERNAL = "enable_external_access"
CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    _EXTERNAL: "false",
}


class ReadOnlyError(StoreError):
    """The file may be read and not written."""


class Process:
    """What this process does with the store; only one of its threads may write at a time."""

    def __init__(self) -> None:
        self.writing = threading.Lock()
        self.has_ghost = False
        # DuckDB without a file or a thread, and the folder whose stores may be attached to it. To start one takes 14 ms
        # of processor time, to attach a store 1 ms. It is taken away while it is in use, so that no child inherits it.
        self.idle: tuple[Path, Connection] | None = None

    def after_fork(self) -> None:
        """Leaves the store to the parent and to others."""
        # The child inherits an open database without its lock and threads, and would be handed that very database
        # by the next connect: it must leave the store to others.
        self.has_ghost = self.has_ghost or self.writing.locked()
        self.writing = threading.Lock()
        self.idle = None


process = Process()
os.register_at_fork(after_in_child=process.after_fork)


@contextmanager
def attached(db: Path, wait_s: float) -> Generator[Connection]:
    """Attaches the store for a moment to a DuckDB that this process keeps; after a fault, that one is given up."""
    _check_place(db)
    # DuckDB names its write-ahead log after the path that it is given; a link would have one of its own.
    path = os.path.realpath(db)
    folder = Path(path).parent
    idle, process.idle = process.idle, None
    con = idle[1] if idle is not None and idle[0] == folder else start(db, folder)
    # DuckDB sees to it that no two connections of a process have the file, here or by `connect`.
    attach = f"ATTACH ? AS store (ROW_GROUP_SIZE {AGENT_ROW_GROUP})"
    try:
        _patiently(db, wait_s, lambda: con.execute(attach, [path]), lambda con: con.execute("DETACH store"))
    except StoreBusyError:
        process.idle = folder, con
        raise
    try:
        con.execute("USE store")
        yield con
        con.execute("USE memory")
        con.execute("DETACH store")
    except BaseException:
        con.close()
        raise
    process.idle = folder, con


def start(db: Path, *folders: Path, is_agent: bool = True) -> Connection:
    """Starts a DuckDB without a file, which reads and writes in some folders alone."""
    config = {name: value for name, value in CONFIG.items() if name != _EXTERNAL}
    if is_agent:
        # Without threads of its own it survives a fork, and the agent's processors stay the agent's.
        config |= {"threads": 1, "async_threads": 0}
    con = duckdb.connect(config=config | {"temp_directory": str(spill_folder(db))})
    bound_memory(con, AGENT_MEMORY if is_agent else MEMORY)
    con.execute("SET enable_progress_bar = false")
    con.execute("SET TimeZone = 'UTC'")
    # The files of a store have several endings, so the whole folder it must be.
    con.execute("SET allowed_directories = ?", [[str(folder) for folder in folders]])
    con.execute(f"SET {_EXTERNAL} = false")
    return con


def attach_to_read(con: Connection, db: Path, wait_s: float) -> None:
    """Attaches a store to a DuckDB of `start`, as the database in use: others may read it, and nobody may write.

    Raises:
        StoreBusyError: A writer has it all that time.
        StoreError: It cannot be read.
    """
    path = os.path.realpath(db)
    attach = "ATTACH ? AS store (READ_ONLY)"
    _patiently(db, wait_s, lambda: con.execute(attach, [path]), lambda stale: stale.execute("DETACH store"))
    con.execute("USE store")


def connect(db: Path, wait_s: float, *, read_only: bool) -> Connection:
    """Opens the store's file, as a writer alone, as a reader with others.

    Raises:
        StoreBusyError: Somebody has it all that time.
        StoreError: It is no DuckDB file, or this user may not open it so.
    """
    _check_place(db)
    config = CONFIG | {"temp_directory": str(spill_folder(db))}
    path = os.path.realpath(db)
    con = _patiently(
        db, wait_s, lambda: duckdb.connect(path, read_only=read_only, config=config), lambda stale: stale.close()
    )
    bound_memory(con, MEMORY)
    con.execute("SET enable_progress_bar = false")
    con.execute("SET TimeZone = 'UTC'")
    return con


def _check_place(db: Path) -> None:
    """Refuses a store that another user may have planted.

    Raises:
        StoreError: It may be one.
    """
    for path in (db, spool_folder(db)):
        if private.is_planted(path):
            raise StoreError(private.PLANTED.format(path))
    private.keep_off_streams()


def _patiently(
    db: Path, wait_s: float, take: Callable[[], Connection], give_back: Callable[[Connection], object]
) -> Connection:
    """Tries to take the file until whoever holds it lets go, or time is up."""
    deadline = time.monotonic() + wait_s
    while True:
        there = _identity(db)
        try:
            con = take()
        except duckdb.Error as err:
            if not _is_busy(err):
                raise unusable(db, err) from err
            if time.monotonic() >= deadline:
                raise StoreBusyError(
                    f"{db}: another process holds it ({first_line(err)}). Try again when it has finished."
                ) from err
            # Unequal pauses: two waiters that keep step would meet each time.
            time.sleep(random.uniform(0.005, 0.03))  # noqa: S311
            continue
        # Whoever has opened a file that `rewrite` has replaced since would write into what is deleted.
        if _identity(db) == there:
            return con
        give_back(con)


def _identity(db: Path) -> tuple[int, int] | None:
    try:
        found = db.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _is_busy(err: duckdb.Error) -> bool:
    text = str(err)
    return (
        (isinstance(err, duckdb.IOException) and "Could not set lock" in text)
        or (isinstance(err, duckdb.ConnectionException) and "different configuration" in text)
        or "Unique file handle conflict" in text
    )


def holder_of(err: StoreBusyError) -> str | None:
    """Returns whom DuckDB names as the holder of its lock."""
    found = re.search(r"held in (.+?) \(PID (\d+)\)", str(err))
    return f"process {found[2]} ({found[1]})" if found else None


def unusable(db: Path, err: duckdb.Error) -> StoreError:
    """Returns the error that says why a file cannot be opened, and what to do."""
    text = str(err)
    if db.is_dir():
        return StoreError(f"{db}: is a folder; expected a DuckDB file. Name one with --db or AGENTTRACE_DB.")
    if "Permission denied" in text or "Read-only file system" in text:
        if os.access(db, os.R_OK):
            return ReadOnlyError(f"{db}: cannot be written by this user.")
        return StoreError(f"{db}: cannot be read by this user (permission denied).")
    if "not a valid DuckDB" in text or "extension" in text:
        found = "is empty" if db.exists() and db.stat().st_size == 0 else "is not a DuckDB file"
        return StoreError(f"{db}: {found}. Delete it, or name another file with --db or AGENTTRACE_DB.")
    if any(word in text for word in ("read enough bytes", "checksum", "orrupt", "Failed to load")):
        return StoreError(
            f"{db}: is damaged ({first_line(err)}). Put a copy back, or move it away: "
            "a new one takes in what the spool holds."
        )
    return StoreError(f"{db}: {first_line(err)}")


def first_line(err: duckdb.Error) -> str:
    """Returns what DuckDB says, without its advice."""
    return str(err).partition("\n")[0].partition(". See also")[0]
