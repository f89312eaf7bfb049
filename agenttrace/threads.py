"""Hands the current span to threads and thread pools."""

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any

from opentelemetry import context
from opentelemetry.context import Context

from agenttrace.guard import guarded


@guarded("hand context to threads")
def instrument_threads() -> None:
    """Makes what runs in a thread a child of the span that was current where it was started; once in a process."""
    from opentelemetry.instrumentation.threading import (  # pyright: ignore[reportMissingTypeStubs]
        ThreadingInstrumentor,
    )

    instrumentor = ThreadingInstrumentor()
    if not instrumentor.is_instrumented_by_opentelemetry:
        instrumentor.instrument()
    if not _State.is_wrapped:
        _State.is_wrapped = True
        threading.Thread.start = _reaching_own_run(threading.Thread.start)


class _State:
    is_wrapped = False


def _reaching_own_run(start: Callable[..., None]) -> Callable[..., None]:
    """The instrumentation wraps the `run` of Thread and Timer; this reaches subclasses with one of their own."""

    @wraps(start)
    def start_within(self: Any, *args: Any, **kwargs: Any) -> None:
        current = context.get_current()
        if current:
            _wrap_own_run(self, current)
        start(self, *args, **kwargs)

    return start_within


@guarded("hand context to a thread")
def _wrap_own_run(thread: Any, current: Context) -> None:
    owner = next(kind for kind in type(thread).__mro__ if "run" in vars(kind))
    if owner in (threading.Thread, threading.Timer) or "run" in vars(thread):
        return
    run = thread.run

    def run_within() -> None:
        with suppress(AttributeError):
            del thread.run
        token = context.attach(current)
        try:
            run()
        finally:
            context.detach(token)

    thread.run = run_within
