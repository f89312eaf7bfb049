"""When a process ends: at exit, on SIGTERM, and at the end of a multiprocessing child, which skips `atexit`."""

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

# They end in good order on SIGTERM, so that `atexit` or a finalizer runs; a handler of ours would be in their way.
_SERVERS = frozenset(
    {
        "asyncio",
        "billiard",
        "celery",
        "daphne",
        "eventlet",
        "gevent",
        "granian",
        "gunicorn",
        "hypercorn",
        "kombu",
        "sanic",
        "tornado",
        "twisted",
        "uvicorn",
        "uvloop",
        "waitress",
    }
)


class _Hooks:
    """What is to be done at the end; installed once in a process and its forks."""

    finish: Callable[[], None] | None = None
    save: Callable[[], None] | None = None


_hooks = _Hooks()


def install(finish: Callable[[], None], save: Callable[[], None]) -> None:
    """Has spans flushed when the process ends.

    Args:
        finish: Flushes all, in bounded time.
        save: Puts spans on disk and no more; it runs in a signal handler.
    """
    is_first = _hooks.finish is None
    _hooks.finish, _hooks.save = finish, save
    if is_first:
        atexit.register(_finish)
        os.register_at_fork(after_in_child=_watch_multiprocessing)
        _watch_multiprocessing()
    _handle_sigterm()


def _finish() -> None:
    if _hooks.finish is not None:
        _hooks.finish()


def _watch_multiprocessing() -> None:
    """Registers a finalizer where this process is, or will be, a child of multiprocessing: it ends by `os._exit`."""
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        # A child forgets the finalizers that it inherits, and those that its import of the main module makes; then it
        # calls what is registered here.
        util.register_after_fork(_hooks, _add_finalizer)
        _add_finalizer(_hooks)


def _add_finalizer(_hooks: _Hooks) -> None:
    sys.modules["multiprocessing.util"].Finalize(None, _finish, exitpriority=-100)


def _handle_sigterm() -> None:
    """Flushes before SIGTERM does what it did, be that the default or a function of the user's."""
    if threading.current_thread() is not threading.main_thread():
        return
    previous = signal.getsignal(signal.SIGTERM)
    if previous is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _flush_and_die)
    elif callable(previous) and _is_users(previous):
        signal.signal(signal.SIGTERM, _Chained(previous))


def _is_users(handler: Callable[..., Any]) -> bool:
    if handler is _flush_and_die or isinstance(handler, _Chained):
        return False
    module = getattr(handler, "__module__", None) or type(handler).__module__
    owner = getattr(handler, "__self__", None)
    modules = {str(module).partition(".")[0], type(owner).__module__.partition(".")[0]}
    return not modules & _SERVERS


def _flush_and_die(signum: int, frame: FrameType | None) -> None:
    if _hooks.save is not None:
        _hooks.save()
    # The process dies by the signal, as it would have without us, and its parent can tell.
    signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)
    # Still here: the kernel spares process 1 of a container a default action.
    signal.signal(signum, _flush_and_die)


class _Chained:
    """Flushes, then calls the handler that was there first."""

    def __init__(self, previous: Callable[[int, FrameType | None], Any]) -> None:
        self._previous = previous

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        if _hooks.save is not None:
            _hooks.save()
        self._previous(signum, frame)
