"""The one place where faults of our own end when they happen inside a user's program.

Tracing never changes what the program does: a fault becomes one line on the `agenttrace` logger per cause, and the call
goes on untraced. Lines carry no prompts, arguments or results.
"""

import logging
import signal
import threading
from collections.abc import Callable
from functools import partial
from traceback import walk_tb
from types import TracebackType
from typing import Any, Final, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")

_logger = logging.getLogger("agenttrace")
_MAX_CAUSES = 1000
# Those that programs handle in Python; asking for every signal there is would take longer than most calls.
_NAMES = ("SIGALRM", "SIGVTALRM", "SIGPROF", "SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCHLD")
_SIGNALS: Final = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]


class _Guard:
    """Causes seen so far; `strict` re-raises, for tests of our own."""

    def __init__(self) -> None:
        self.strict = False
        self._seen: dict[tuple[str, str, str], object] = {}

    def is_new(self, cause: tuple[str, str, str]) -> bool:
        # No lock: a signal handler, or the child of a fork, could find it taken for ever. This step is atomic.
        mark = object()
        return len(self._seen) < _MAX_CAUSES and self._seen.setdefault(cause, mark) is mark


guard = _Guard()


def is_programs_own(error: BaseException) -> bool:
    """Tells whether an exception is meant for the program, not for what we were doing when it came.

    That is what ends a program, and what the handler of a signal raises, such as a time limit set with SIGALRM.
    """
    if issubclass(type(error), (KeyboardInterrupt, SystemExit)):
        return True
    if threading.current_thread() is not threading.main_thread():
        return False
    codes = {_code_of(handler) for each in _SIGNALS if callable(handler := signal.getsignal(each))}
    return any(frame.f_code in codes for frame, _ in walk_tb(traceback_of(error)))


# Of the base class itself, which an exception of a user's cannot replace.
traceback_of: Final[Callable[[BaseException], TracebackType | None]] = vars(BaseException)["__traceback__"].__get__


def _code_of(handler: Any) -> object:
    while isinstance(handler, partial):
        handler = cast("Any", handler).func
    return getattr(handler, "__code__", None) or getattr(type(handler).__call__, "__code__", None)


def report(doing: str, error: BaseException) -> None:
    """Logs a fault of ours once per cause; a handler that fails is not our concern any more.

    Raises:
        BaseException: The error itself, where it is the program's own.
    """
    if guard.strict or is_programs_own(error):
        raise error
    try:
        traceback = traceback_of(error)
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


def guarded(
    doing: str, *, against: type[BaseException] = Exception
) -> Callable[[Callable[P, R]], Callable[P, R | None]]:
    """Makes a function of ours return None where it fails, and reports the fault.

    Args:
        doing: What the function does, for the log line, as in "record a result".
        against: BaseException where the function runs code of a user's values, which may raise anything. Not where it
            waits, for there an event loop such as gevent's raises what is meant for the program.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R | None]:
        def call(*args: P.args, **kwargs: P.kwargs) -> R | None:
            try:
                return function(*args, **kwargs)
            except against as error:
                report(doing, error)
                return None

        return call

    return decorate


def warn_once(cause: str, message: str, *values: object) -> None:
    """Logs a warning the first time that its cause comes up; a logging handler that fails is not our concern."""
    if guard.is_new(("warning", cause, "")):
        try:
            _logger.warning(message, *values)
        except Exception as error:
            if is_programs_own(error):
                raise
