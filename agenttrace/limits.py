"""What a connection of ours may take: memory, and a folder for what does not fit into it."""

import os
import shutil
import stat
import tempfile
from pathlib import Path

import duckdb

from agenttrace import private
from agenttrace.spool import SPILL, spool_folder

# A command or a receiver: an evaluation of 10 M spans and a rebuild of 100,000 at a time fit. An agent's process is not
# ours: a batch of the compactor fits, with its copies.
MEMORY = "2GB"
AGENT_MEMORY = "512MB"

# Below so much room beside the store, another place is looked for.
_ROOM_BYTES = 2 << 30


def spill_folder(db: Path) -> Path:
    """Returns the folder for what does not fit into memory: for its user alone, as it holds what the store holds.

    It is in the spool, beside the store: /tmp is memory itself on many machines. Where the spool is not there, cannot
    be written or its disk is full, it is in the folder for temporary files.
    """
    spool = spool_folder(db)
    beside = spool / f"{SPILL}{os.geteuid()}"
    room = _room(spool)
    if room >= _ROOM_BYTES:
        return beside
    try:
        elsewhere = Path(tempfile.gettempdir()) / f"agenttrace-{SPILL}{os.geteuid()}"
        if _room(elsewhere.parent) > room and _is_own(elsewhere):
            return elsewhere
    except OSError:
        pass
    return beside


def bound_memory(con: duckdb.DuckDBPyConnection, limit: str) -> None:
    """Limits a connection's memory; DuckDB's own limit, 80 % of the machine's or container's, stays if it is lower."""
    con.execute(
        "SET memory_limit = CASE"
        " WHEN parse_formatted_bytes(current_setting('memory_limit')) < parse_formatted_bytes($limit)"
        " THEN current_setting('memory_limit') ELSE $limit END",
        {"limit": limit},
    )


def _room(folder: Path) -> int:
    """Returns how many bytes may be written to a folder; 0 where none."""
    try:
        return shutil.disk_usage(folder).free if os.access(folder, os.W_OK | os.X_OK) else 0
    except OSError:
        return 0


def _is_own(folder: Path) -> bool:
    """Makes a folder where everybody may make one, unless somebody else has made it."""
    private.make_folder(folder)
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
