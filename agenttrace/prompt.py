"""The prompt of `agenttrace sql`: a statement at a time, each on a store that is opened for it and closed after it."""

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from agenttrace import terminal
from agenttrace.errors import AgentTraceError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

try:
    import readline
except ImportError:  # pragma: no cover - a Python without it edits no lines
    readline = None

_LOOK_S = 0.1
_MAX_HISTORY = 1_000
_WORDS = " \t\n,;()=<>+-*/'\""

Work = Callable[[str], None]


def read_statements(run: Work, words: list[str]) -> None:
    """Reads statements, which may be over several lines and end with `;`, and runs each; Ctrl-D ends it.

    Args:
        run: Runs one; an error of ours is printed, and the prompt goes on.
        words: What the tab key completes.
    """
    history = _history_file()
    _remember(history, words)
    lines: list[str] = []
    while True:
        try:
            line = input("agenttrace> " if not lines else "       ... ")
        except EOFError:
            terminal.out("")
            break
        except KeyboardInterrupt:
            terminal.out("")
            lines = []
            continue
        if not lines and line.strip().lower() in ("exit", "quit", ".exit", ".quit"):
            break
        lines.append(line)
        if line.rstrip().endswith(";"):
            _run(run, "\n".join(lines).rstrip().removesuffix(";"))
            lines = []
    _keep(history)


def interruptible(connection: "DuckDBPyConnection", work: Callable[[], None]) -> None:
    """Does what DuckDB computes, until it is done or Ctrl-C; then it is broken off and the prompt goes on."""
    errors: list[BaseException] = []

    def do() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    def break_off(_signal: int, _frame: object) -> None:
        connection.interrupt()

    # Python runs it between two looks; DuckDB itself does not look at all.
    before = signal.signal(signal.SIGINT, break_off)
    try:
        thread = threading.Thread(target=do)
        thread.start()
        while thread.is_alive():
            thread.join(_LOOK_S)
    finally:
        signal.signal(signal.SIGINT, before)
    if errors:
        raise errors[0]


def _run(run: Work, statement: str) -> None:
    if not statement.strip():
        return
    try:
        run(statement)
    except AgentTraceError as error:
        terminal.note(str(error))
    except KeyboardInterrupt:
        terminal.note("broken off")


def _history_file() -> Path:
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "agenttrace" / "sql_history"


def _remember(history: Path, words: list[str]) -> None:
    if readline is None:
        return
    with suppress(OSError):
        readline.read_history_file(history)
    readline.set_history_length(_MAX_HISTORY)
    readline.set_completer_delims(_WORDS)
    readline.set_completer(lambda text, state: _completion(words, text, state))
    readline.parse_and_bind("tab: complete")


def _completion(words: list[str], text: str, state: int) -> str | None:
    fitting = [word for word in words if word.startswith(text.lower())]
    return fitting[state] if state < len(fitting) else None


def _keep(history: Path) -> None:
    if readline is None:
        return
    # A home that cannot be written is no reason to fail; what is asked may hold what nobody else shall read.
    with suppress(OSError):
        history.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        readline.write_history_file(history)
        history.chmod(0o600)
