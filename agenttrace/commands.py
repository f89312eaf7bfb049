"""What commands share: exit codes, and the store with all that has arrived."""

import signal
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from agenttrace import terminal
from agenttrace.config import Settings, load

if TYPE_CHECKING:
    from agenttrace.store import Refreshed

PASSED, FAILED, IMPOSSIBLE = 0, 1, 2


def ready(db: Path | None, config: Path | None) -> tuple[Path, Settings]:
    """Returns path and settings of the store, with everything taken in that has arrived."""
    from agenttrace.store import default_db

    settings = load(config)
    path = default_db(db)
    take_in(path, settings)
    return path, settings


@contextmanager
def interruptible() -> Generator[None]:
    """Lets Ctrl-C end the process at once, for SQL that others wrote.

    DuckDB computes without looking at Python's signals; what it has written aside is deleted by the next one.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def take_in(path: Path, settings: Settings, *, wait_s: float = 2.0) -> "Refreshed":
    """Takes in what waits in the spool, and says what could not be."""
    from agenttrace.completeness import lasting, left_out
    from agenttrace.store import refresh

    refreshed = refresh(path, settings=settings, wait_s=wait_s)
    if refreshed.problem:
        terminal.note(refreshed.problem)
    if missing := left_out(path, refreshed):
        terminal.note(missing)
    for line in lasting(path, refreshed):
        terminal.note(f"{line.fact}.\n  {line.advice}.")
    return refreshed


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns the end of a message about a name that is not known."""
    names = list(known)
    close = get_close_matches(name, names, n=1)
    return f"did you mean {close[0]}?" if close else f"known: {', '.join(names)}"
