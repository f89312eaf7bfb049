"""Where else a store may be, for somebody who named one that is not there."""

import os
from contextlib import suppress
from pathlib import Path

_FOLDERS = 100
_NAMES = 5


def nearby_stores(db: Path) -> list[Path]:
    """Names DuckDB files in the folder of a store, in the one above it, and in those right below it."""
    here = Path(os.path.realpath(db)).parent
    folders = [here, here.parent]
    with suppress(OSError):
        below = (entry for entry in sorted(here.iterdir()) if entry.is_dir() and not entry.name.startswith("."))
        folders += [folder for folder, _ in zip(below, range(_FOLDERS), strict=False)]
    found: list[Path] = []
    for folder in folders:
        with suppress(OSError):
            found += sorted(path for path in folder.glob("*.duckdb") if path.is_file())
    return found


def missing_message(db: Path) -> str:
    """Says that a store is not there, and which others are near."""
    nearby = [os.path.relpath(path) for path in nearby_stores(db)]
    if not nearby:
        return f"{db}: no such store. Record a first trace, or name another file with --db or AGENTTRACE_DB."
    more = f" and {len(nearby) - _NAMES} more" if len(nearby) > _NAMES else ""
    return f"{db}: no such store. Seen nearby: {', '.join(nearby[:_NAMES])}{more}. Name one with --db."
