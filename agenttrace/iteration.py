"""Generators and async generators under trace: one span over the whole iteration.

The span's context is entered around each resumption only, so the consumer never sees it between two chunks, wherever
it iterates: two generators interleave, and another task or thread may go on with one or close it. What the consumer
sends or throws reaches the generator outside of any `except` block, or the exceptions that it raises would get a
`__context__` that they would not have otherwise.
"""

import inspect
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from types import MethodType
from typing import Any, Protocol

from opentelemetry import context
from opentelemetry.context import Context

from agenttrace.chunks import Chunks
from agenttrace.recording import Place, Recording, is_tracing


class Observer(Protocol):
    """What the iteration needs to know of a tool, agent or model."""

    def start(self, args: tuple[Any, ...], kwargs: dict[str, Any], within: Context | None = None) -> Recording | None:
        """Starts the span of a call."""
        ...

    def chunks(self, recording: Recording | None) -> Chunks | None:
        """Returns what collects the chunks of a call, or None where its result is not recorded."""
        ...

    def finish_iteration(self, recording: Recording, chunks: Chunks | None, error: BaseException | None) -> None:
        """Ends the span."""
        ...


class IterationFunction:
    """A generator function under trace.

    The parent span is the one at the call, not at the first iteration, which may happen elsewhere. A generator function
    cannot know about its call, so this is an object that passes for one: `inspect` recognises it by its code.
    """

    __qualname__: str
    __code__: Any
    __defaults__: Any
    __kwdefaults__: Any

    def __init__(self, function: Callable[..., Any], body: Any, observer: Observer) -> None:
        code_owner = getattr(body, "__func__", body)
        for name in ("__code__", "__defaults__", "__kwdefaults__"):
            setattr(self, name, getattr(code_owner, name, None))
        self._function = function
        self._observer = observer

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Calls the function, which refuses wrong arguments now, and wraps the iterator that it returns."""
        iterator: Any = self._function(*args, **kwargs)
        if not is_tracing():
            return iterator
        within = context.get_current()
        drive: Any = _drive_async if inspect.isasyncgen(iterator) else _drive
        driven: Any = drive(iterator, self._observer, (args, kwargs, within))
        driven.__name__, driven.__qualname__ = iterator.__name__, iterator.__qualname__
        return driven

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> str:
        return self.__qualname__

    def __repr__(self) -> str:
        return repr(self._function)


_Call = tuple[tuple[Any, ...], dict[str, Any], Context]


def _drive(generator: Generator[Any, Any, Any], observer: Observer, call: _Call) -> Generator[Any, Any, Any]:
    recording = observer.start(*call)
    chunks = observer.chunks(recording)
    if recording is None:
        return (yield from generator)
    sent: Any = None
    thrown: BaseException | None = None
    while True:
        token = context.attach(recording.context)
        try:
            chunk = generator.send(sent) if thrown is None else generator.throw(thrown)
        except StopIteration as stop:
            context.detach(token)
            if chunks is not None and not chunks.count and stop.value is not None:
                chunks.add(stop.value)
            observer.finish_iteration(recording, chunks, None)
            return stop.value
        except BaseException as error:
            context.detach(token)
            observer.finish_iteration(recording, chunks, None if _is_close(thrown, error) else error)
            thrown = None
            raise
        context.detach(token)
        sent = thrown = None
        if chunks is not None:
            chunks.add(chunk)
        try:
            sent = yield chunk
        except BaseException as error:
            thrown = error


async def _drive_async(
    generator: AsyncGenerator[Any, Any], observer: Observer, call: _Call
) -> AsyncGenerator[Any, Any]:
    recording = observer.start(*call)
    chunks = observer.chunks(recording)
    thrown: BaseException | None = None
    step: Awaitable[Any] = _first_step(generator)
    while True:
        place = Place(call[2] if recording is None else recording.context)
        try:
            chunk = await step
        except StopAsyncIteration:
            place.leave()
            if recording is not None:
                observer.finish_iteration(recording, chunks, None)
            return
        except BaseException as error:
            place.leave()
            if recording is not None:
                observer.finish_iteration(recording, chunks, None if _is_close(thrown, error) else error)
            thrown = None
            raise
        place.leave()
        sent = thrown = None
        if chunks is not None:
            chunks.add(chunk)
        try:
            sent = yield chunk
        except BaseException as error:
            thrown = error
        step = generator.asend(sent) if thrown is None else generator.athrow(thrown)


def _first_step(generator: AsyncGenerator[Any, Any]) -> Awaitable[Any]:
    """Begins the iteration such that the event loop does not hear of the inner generator.

    It would close that at its own end beside the one that wraps it, and the two would meet.
    """
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, None)
    try:
        return generator.asend(None)
    finally:
        sys.set_asyncgen_hooks(*hooks)


def _is_close(thrown: BaseException | None, error: BaseException) -> bool:
    """Tells whether the consumer closed the generator, by `break`, `close` or letting go of it: not a fault."""
    return isinstance(thrown, GeneratorExit) and isinstance(error, GeneratorExit)
