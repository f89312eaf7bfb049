"""Writes a store anew and puts the new file in the place of the old one.

DuckDB keeps the bytes of a deleted row until it needs their room. So whatever must be gone is left out of a copy. The
old file is whole until the new one takes its name; a kill leaves one of the two.
"""

import os
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import duckdb

from agenttrace import private
from agenttrace.connect import Connection, attach_to_read, first_line, start
from agenttrace.errors import StoreBusyError, StoreError
from agenttrace.places import real_path
from agenttrace.spool import locked_folder, spool_folder, sync_folder
from agenttrace.store import open_store, writer

# Whoever opens a file asks for its lock within microseconds: so long it is kept, for those who have opened the old one.
_GRACE_S = 0.5
_TRIES = 20
_PREFIX = "rewrite-"

Selects = Mapping[str, str]
"""By table, the query of the rows that the new file gets; of a table that it does not name, all."""


class Rewritten(NamedTuple):
    """Sizes of the file in bytes."""

    before: int
    after: int


def _all_rows(_con: Connection) -> Selects:
    return {}


def rewrite(db: Path, select: Callable[[Connection], Selects] = _all_rows, *, wait_s: float = 60.0) -> Rewritten:
    """Writes a store anew, with all that it holds or with what `select` says; tables of other programs, too.

    Meanwhile others may read; what they write waits in the spool.

    Args:
        db: The store.
        select: Called once nobody can write any more, with the old file as the database in use; returns the queries.
        wait_s: How long to wait for others who have the file, or who rewrite it.

    Raises:
        StoreBusyError: Somebody has it all that time.
        StoreError: There is none, it is no store of this release, or the disk is full; it is as it was.
    """
    # Where there is no store, none is made.
    open_store(db, wait_s=wait_s).close()
    path = real_path(db)
    folder = spool_folder(db)
    private.make_folder(folder)
    with locked_folder(folder, wait_s) as is_alone:
        if not is_alone:
            raise StoreBusyError(f"{db}: another command works on the whole of it; try again when it has ended.")
        _remove_leftovers(folder)
        temporary = folder / f"{_PREFIX}{os.urandom(8).hex()}.tmp"
        try:
            with _unchanging(db, path, wait_s) as con:
                _fill(con, temporary, select)
                before = path.stat()
                with suppress(OSError):
                    os.chown(temporary, before.st_uid, before.st_gid)
                temporary.chmod(before.st_mode & 0o777)
                after = temporary.stat().st_size
                temporary.rename(path)
                sync_folder(path.parent)
                time.sleep(_GRACE_S)
        except (duckdb.Error, OSError) as err:
            reason = first_line(err) if isinstance(err, duckdb.Error) else err.strerror
            raise StoreError(f"{db}: cannot be written anew, and is as it was: {reason}") from err
        finally:
            _remove_leftovers(folder)
    return Rewritten(before.st_size, after)


@contextmanager
def _unchanging(db: Path, path: Path, wait_s: float) -> Generator[Connection]:
    """Holds the file as a reader does, without a log beside it: no other process can write to it."""
    con = start(db, path.parent, is_agent=False)
    try:
        for _ in range(_TRIES):
            with writer(db, wait_s, adopts=False) as alone:
                alone.execute("FORCE CHECKPOINT")
            attach_to_read(con, db, wait_s)
            # A writer that was killed in between has left one, and it would go with the new file.
            if not path.with_name(f"{path.name}.wal").exists():
                yield con
                return
            con.execute("USE memory")
            con.execute("DETACH store")
    finally:
        con.close()
    raise StoreBusyError(f"{db}: others write to it all the time; stop them, or try again.")


def _fill(con: Connection, temporary: Path, select: Callable[[Connection], Selects]) -> None:
    con.execute("ATTACH ? AS fresh", [str(temporary)])
    con.execute("COPY FROM DATABASE store TO fresh (SCHEMA)")
    queries = select(con)
    tables = con.execute(
        "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = 'store' ORDER BY table_oid"
    ).fetchall()
    con.begin()
    for schema, table in tables:
        name = ".".join('"' + part.replace('"', '""') + '"' for part in (schema, table))
        query = queries.get(table) if schema == "main" else None
        con.execute(f"INSERT INTO fresh.{name} BY NAME {query or f'FROM store.{name}'}")
    con.commit()
    con.execute("FORCE CHECKPOINT fresh")
    con.execute("DETACH fresh")


def _remove_leftovers(folder: Path) -> None:
    """Deletes what a rewriting has left that failed or was killed; nobody else is at it."""
    for path in folder.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            path.unlink()
