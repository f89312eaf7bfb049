"""Where a store is: the path that somebody gave, checked for what DuckDB would take for something else."""

import os
import re
from pathlib import Path
from typing import Final

from agenttrace.errors import ConfigError

DEFAULT_DB: Final = "agenttrace.duckdb"

# DuckDB takes these for another place than the file system does; `Path` makes one slash of two.
_ELSEWHERE: Final = re.compile(r":memory:|(?:md|motherduck):|[A-Za-z][A-Za-z0-9+.-]*:/")
_MISREAD: Final = {
    "\\": "a backslash, which DuckDB takes for /",
    "?": "a question mark, where DuckDB ends the name of its log",
    "\0": "a NUL, which ends a name",
}
_WAY_OUT: Final = "Name a file without it, with --db, AGENTTRACE_DB or configure()."


def default_db(db: str | Path | None = None) -> Path:
    """Returns the path of the store: the argument, else AGENTTRACE_DB, else agenttrace.duckdb in this folder.

    Raises:
        ConfigError: DuckDB would take it for another place, or for none.
    """
    text = os.fspath(db) if db is not None else os.environ.get("AGENTTRACE_DB") or DEFAULT_DB
    if not text:
        raise ConfigError("'': is no path of a store. Name a file such as agenttrace.duckdb.")
    if _ELSEWHERE.match(text):
        raise ConfigError(f"{text!r}: is no file, and a store is one. Name a file such as agenttrace.duckdb.")
    _check_letters(text, text)
    try:
        path = Path(text).expanduser()
    except RuntimeError as err:
        raise ConfigError(f"{text!r}: there is no such user's folder. Write the whole path, or ./~name.") from err
    # A link, or the current folder, may lead to a name that DuckDB misreads.
    _check_letters(text, str(real_path(path)))
    return path


def real_path(path: Path) -> Path:
    """Returns the full path, links followed.

    Where the current folder has been deleted, a relative path stays one: what is written there fails, and is counted.
    """
    try:
        return Path(os.path.realpath(path))
    except FileNotFoundError:
        return path


def _check_letters(given: str, path: str) -> None:
    place = repr(given) if given == path else f"{given!r} ({path!r})"
    for letter, what in _MISREAD.items():
        if letter in path:
            raise ConfigError(f"{place}: has {what}. {_WAY_OUT}")
    try:
        path.encode()
    except UnicodeEncodeError as err:
        letter = path[err.start]
        raise ConfigError(f"{place}: has {letter!r}, which is no UTF-8, as DuckDB wants it. {_WAY_OUT}") from err
