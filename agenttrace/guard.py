"""The one place where faults of our own end when they happen inside a user's program.

Tracing never changes what the program does: a fault becomes one line on the `agenttrace` logger per cause, and the call
goes on untraced. Lines carry no prompts, arguments or results.
"""

import logging
from collections.abc import Callable
from threading import Lock
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_logger = logging.getLogger("agenttrace")
_MAX_CAUSES = 1000


class _Guard:
    """Causes seen so far; `strict` re-raises, for tests of our own."""

    def __init__(self) -> None:
        self.strict = False
        self._seen: set[tuple[str, str, str]] = set()
        self._lock = Lock()

    def is_new(self, cause: tuple[str, str, str]) -> bool:
        with self._lock:
            if cause in self._seen or len(self._seen) >= _MAX_CAUSES:
                return False
            self._seen.add(cause)
            return True


guard = _Guard()


def report(doing: str, error: BaseException) -> None:
    """Logs a fault of ours once per cause; a handler that fails is not our concern any more."""
    if guard.strict:
        raise error
    try:
        traceback = error.__traceback__
        while traceback is not None and traceback.tb_next is not None:
            traceback = traceback.tb_next
        code = traceback.tb_frame.f_code if traceback is not None else None
        line = traceback.tb_lineno if traceback is not None else 0
        place = f"{code.co_filename}:{line}" if code is not None else ""
        if guard.is_new((doing, type(error).__qualname__, place)):
            _logger.warning(
                "agenttrace could not %s: %s at %s. The call itself went on.", doing, type(error).__qualname__, place
            )
    except Exception:  # noqa: S110 - a logging handler of the user's; nothing is left to tell it to
        pass


def guarded(doing: str) -> Callable[[Callable[P, R]], Callable[P, R | None]]:
    """Makes a function of ours return None where it fails, and reports the fault.

    Args:
        doing: What the function does, for the log line, as in "record a result".
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R | None]:
        def call(*args: P.args, **kwargs: P.kwargs) -> R | None:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                report(doing, error)
                return None

        return call

    return decorate


def warn_once(cause: str, message: str, *values: object) -> None:
    """Logs a warning the first time that its cause comes up."""
    if guard.is_new(("warning", cause, "")):
        _logger.warning(message, *values)
