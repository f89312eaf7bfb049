"""What commands share: exit codes, and the store with all that has arrived."""

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

from agenttrace import terminal
from agenttrace.config import Settings, load

PASSED, FAILED, IMPOSSIBLE = 0, 1, 2


def ready(db: Path | None, config: Path | None) -> tuple[Path, Settings]:
    """Returns path and settings of the store, with everything taken in that has arrived."""
    from agenttrace.store import default_db

    settings = load(config)
    path = default_db(db)
    take_in(path, settings)
    return path, settings


def take_in(path: Path, settings: Settings) -> None:
    """Takes in what waits in the spool, and says what could not be."""
    from agenttrace.store import refresh

    refreshed = refresh(path, settings=settings)
    if refreshed.problem:
        terminal.note(refreshed.problem)
    if refreshed.pending:
        reason = ", because another process holds the file; run the command again" if refreshed.busy else ""
        terminal.note(
            f"{path}: not in this answer: {refreshed.pending} segments of the spool, the oldest "
            f"{refreshed.oldest_s:.0f} s old{reason}."
        )
    elif refreshed.busy:
        terminal.note(f"{path}: another process holds the file; what arrived last may be missing in this answer.")


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns the end of a message about a name that is not known."""
    names = list(known)
    close = get_close_matches(name, names, n=1)
    return f"did you mean {close[0]}?" if close else f"known: {', '.join(names)}"
