"""Opens the store, one DuckDB file, and keeps it up to date; the only caller of `duckdb.connect` on it.

A DuckDB file has one writer and no readers, or readers and no writer. So nobody keeps it open: a writer takes it for a
moment, a reader per answer, and whoever finds it taken waits for a bounded time.

The file is never opened, hashed or copied by descriptor here: closing that descriptor would drop the POSIX lock of a
connection in the same process, and let a second writer in.
"""

import os
import random
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from importlib import resources
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import duckdb

from agenttrace.compact import Compacted, compact
from agenttrace.errors import StoreBusyError, StoreError, StoreMissingError
from agenttrace.spool import Spool, default_db, spool_folder

if TYPE_CHECKING:
    from agenttrace.config import Settings

__all__ = [
    "SCHEMA_VERSION",
    "Refreshed",
    "compact_store",
    "default_db",
    "nearby_stores",
    "open_store",
    "refresh",
    "spool_folder",
]

SCHEMA_VERSION = 1

# Scripts in order; script i takes a store from version i + 1 to i + 2.
MIGRATIONS: tuple[str, ...] = ()

_FOREIGN = "{}: a DuckDB file without tables of agenttrace. Name another file with --db."
_NEARBY_FOLDERS = 100
_NEARBY_NAMES = 5

# A file that is no DuckDB database may make DuckDB look for an extension that reads it, over the network.
_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}


class Refreshed(NamedTuple):
    """What a refresh did and what it left.

    `pending` segments, the oldest `oldest_s` seconds old, are not yet in the store: it was busy, or, where `problem`
    says so, cannot be written.
    """

    compacted: int
    pending: int
    oldest_s: float
    rebuilt: int
    busy: bool
    problem: str | None = None


class _Process:
    """What this process does with the store; only one of its threads may write at a time."""

    def __init__(self) -> None:
        self.writing = threading.Lock()
        self.has_ghost = False

    def after_fork(self) -> None:
        # The child inherits an open database without its lock and threads, and would be handed that very database
        # by the next connect: it must leave the store to others.
        self.has_ghost = self.has_ghost or self.writing.locked()
        self.writing = threading.Lock()


_process = _Process()
os.register_at_fork(after_in_child=_process.after_fork)


def refresh(db: Path, *, settings: "Settings | None" = None, wait_s: float = 2.0) -> Refreshed:
    """Brings the store up to date: segments of the spool, then the steps and trajectories that they touch.

    Args:
        db: The store; it is created where segments wait for it, and left missing where none do.
        settings: Configuration of the rebuild; None: the defaults.
        wait_s: How long to wait for another process to let go of the file.

    Raises:
        StoreError: The file is no store of this release, or the disk is full.
    """
    from agenttrace.rebuild import rebuild

    spool = Spool(spool_folder(db))
    if not db.exists() and not spool.segments():
        return Refreshed(0, 0, 0.0, 0, busy=False)
    compacted, rebuilt, busy, problem = Compacted(0, 0), 0, False, None
    try:
        with _writer(db, wait_s, adopts=bool(spool.segments())) as con:
            compacted = compact(con, spool)
            rebuilt = rebuild(con, settings=settings)
    except StoreBusyError:
        busy = True
    except _ReadOnlyError as err:
        problem = str(err)
    pending = spool.pending()
    return Refreshed(compacted.segments, pending.segments, pending.oldest_s, rebuilt, busy, problem)


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
    if not spool.segments():
        return Compacted(0, 0)
    try:
        with _writer(db, wait_s) as con:
            return compact(con, spool, deadline=deadline)
    except StoreBusyError:
        return None


def open_store(db: Path, *, wait_s: float = 2.0, locked: bool = False) -> duckdb.DuckDBPyConnection:
    """Opens the store to read; close it soon, for while it is open nothing new comes in.

    Args:
        db: The store.
        wait_s: How long to wait for a writer to let go of the file.
        locked: For SQL that others wrote: no access to files and network, no change of settings.

    Raises:
        StoreMissingError: There is no such file, and no segments wait for one.
        StoreBusyError: A writer holds it all that time.
        StoreError: It is no store of this release.
    """
    if not db.exists():
        refresh(db, wait_s=wait_s)
    if not db.exists():
        raise StoreMissingError(_missing_message(db))
    config = _CONFIG | {"enable_external_access": "false"} if locked else _CONFIG
    con = _connect(db, wait_s, read_only=True, config=config)
    try:
        _check_readable(con, db)
        if locked:
            con.execute("SET lock_configuration = true")
    except BaseException:
        con.close()
        raise
    return con


def nearby_stores(db: Path) -> list[Path]:
    """Names DuckDB files in the folder of a store, in the one above it, and in those right below it."""
    here = Path(os.path.realpath(db)).parent
    folders = [here, here.parent]
    with suppress(OSError):
        below = (entry for entry in sorted(here.iterdir()) if entry.is_dir() and not entry.name.startswith("."))
        folders += [folder for folder, _ in zip(below, range(_NEARBY_FOLDERS), strict=False)]
    found: list[Path] = []
    for folder in folders:
        with suppress(OSError):
            found += sorted(path for path in folder.glob("*.duckdb") if path.is_file())
    return found


class _ReadOnlyError(StoreError):
    """The file may be read and not written."""


@contextmanager
def _writer(db: Path, wait_s: float, *, adopts: bool = True) -> Generator[duckdb.DuckDBPyConnection]:
    """Holds the store alone, with today's schema in it.

    Args:
        db: The store.
        wait_s: How long to wait for another process to let go of the file.
        adopts: Whether a file without our tables gets them; a command that only reads leaves another program's alone.
    """
    lock = _process.writing
    if _process.has_ghost or not lock.acquire(timeout=wait_s):
        raise StoreBusyError(f"{db}: another thread of this process is writing to it.")
    try:
        if not db.exists():
            _create(db)
        con = _connect(db, wait_s, read_only=False, config=_CONFIG)
        try:
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
            con.close()
    finally:
        lock.release()


def _connect(
    db: Path, wait_s: float, *, read_only: bool, config: dict[str, str | bool | int | float | list[str]]
) -> duckdb.DuckDBPyConnection:
    deadline = time.monotonic() + wait_s
    # DuckDB names its write-ahead log after the path that it is given; a link would have one of its own.
    path = os.path.realpath(db)
    while True:
        try:
            con = duckdb.connect(path, read_only=read_only, config=config)
        except duckdb.Error as err:
            if not _is_busy(err):
                raise _unusable(db, err) from err
            if time.monotonic() >= deadline:
                raise StoreBusyError(
                    f"{db}: another process holds it ({_first_line(err)}). Try again when it has finished."
                ) from err
            # Unequal pauses: two waiters that keep step would meet each time.
            time.sleep(random.uniform(0.005, 0.03))  # noqa: S311
        else:
            con.execute("SET enable_progress_bar = false")
            con.execute("SET TimeZone = 'UTC'")
            return con


def _is_busy(err: duckdb.Error) -> bool:
    text = str(err)
    return (isinstance(err, duckdb.IOException) and "Could not set lock" in text) or (
        isinstance(err, duckdb.ConnectionException) and "different configuration" in text
    )


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


def _create(db: Path) -> None:
    """Makes a store under a temporary name and links it into place, so that a kill leaves a whole file or none."""
    path = Path(os.path.realpath(db))
    folder = spool_folder(db)
    temporary = folder / f"create-{os.urandom(8).hex()}.tmp"
    orphan = path.with_name(path.name + ".wal")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            # The log of a store that someone deleted would make the new one unreadable.
            orphan.rename(orphan.with_name(orphan.name + ".bad"))
        con = duckdb.connect(temporary, config=_CONFIG)
        try:
            _migrate(con, db)
        finally:
            con.close()
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
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


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
            facts = {"version": str(SCHEMA_VERSION), "created_by": f"agenttrace-otel {_release()}"}
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
    tables = con.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'agenttrace_meta'").fetchone()
    if tables is None or tables[0] == 0:
        return None
    row = con.execute("SELECT value::INTEGER FROM agenttrace_meta WHERE key = 'schema_version'").fetchone()
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


def _missing_message(db: Path) -> str:
    nearby = [os.path.relpath(path) for path in nearby_stores(db)]
    if not nearby:
        return f"{db}: no such store. Record a first trace, or name another file with --db or AGENTTRACE_DB."
    more = f" and {len(nearby) - _NEARBY_NAMES} more" if len(nearby) > _NEARBY_NAMES else ""
    return f"{db}: no such store. Seen nearby: {', '.join(nearby[:_NEARBY_NAMES])}{more}. Name one with --db."


def _release() -> str:
    try:
        return version("agenttrace-otel")
    except PackageNotFoundError:  # pragma: no cover - a copied source tree
        return "unknown"
