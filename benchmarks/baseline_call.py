"""One tool in each form that Python has, and the same with a hand-written span: the baseline of every decorator.

It needs opentelemetry-sdk alone, so that a script in an environment without agenttrace can import it.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, NamedTuple

from opentelemetry.trace import Span, Tracer

CALLS = 1_000
ARGS = ("rice", 40, "deliver to the back door before noon")
KWARGS = {"request_id": "r-17"}

Decorator = Callable[[Any], Any]


class Calls(NamedTuple):
    """The same tool as each kind of callable."""

    function: Callable[..., Any]
    method: Callable[..., Any]
    coroutine: Callable[..., Any]
    generator: Callable[..., Any]
    async_generator: Callable[..., Any]


def place_order(item: str, qty: int, note: str, request_id: str | None = None) -> dict[str, Any]:
    """Does nothing that takes time."""
    return {"order_id": "PO-1", "item": item, "qty": qty, "eta_days": 3, "status": "open", "total": 812.5}


async def place_order_later(item: str, qty: int, note: str, request_id: str | None = None) -> dict[str, Any]:
    """Never waits: the event loop is not what is measured."""
    return place_order(item, qty, note, request_id)


def tell_order(item: str, qty: int, note: str, request_id: str | None = None) -> Iterator[str]:
    """Yields a text in chunks, as a model does."""
    yield from ("Order ", "PO-1 ", "is open, ", "3 days ", "to go.")


async def tell_order_later(item: str, qty: int, note: str, request_id: str | None = None) -> AsyncIterator[str]:
    """Yields the same chunks."""
    for chunk in tell_order(item, qty, note, request_id):
        yield chunk


def decorated(decorate: Decorator) -> Calls:
    """Decorates each of them; the decorator must record arguments and result."""

    class Shop:
        @decorate
        def place_order(self, item: str, qty: int, note: str, request_id: str | None = None) -> dict[str, Any]:
            return place_order(item, qty, note, request_id)

    return Calls(
        decorate(place_order),
        Shop().place_order,
        decorate(place_order_later),
        decorate(tell_order),
        decorate(tell_order_later),
    )


def by_hand(tracer: Tracer) -> Calls:
    """Writes the span by hand: 6 attributes, and json.dumps of arguments and result."""

    def call(item: str, qty: int, note: str, request_id: str | None = None) -> dict[str, Any]:
        with tracer.start_as_current_span("execute_tool place_order") as span:
            _start(span, item, qty, note, request_id)
            result = place_order(item, qty, note, request_id)
            span.set_attribute("gen_ai.tool.call.result", json.dumps(result))
            return result

    async def call_later(item: str, qty: int, note: str, request_id: str | None = None) -> dict[str, Any]:
        with tracer.start_as_current_span("execute_tool place_order") as span:
            _start(span, item, qty, note, request_id)
            result = await place_order_later(item, qty, note, request_id)
            span.set_attribute("gen_ai.tool.call.result", json.dumps(result))
            return result

    def tell(item: str, qty: int, note: str, request_id: str | None = None) -> Iterator[str]:
        with tracer.start_as_current_span("execute_tool place_order") as span:
            _start(span, item, qty, note, request_id)
            chunks: list[str] = []
            for chunk in tell_order(item, qty, note, request_id):
                chunks.append(chunk)
                yield chunk
            span.set_attribute("gen_ai.tool.call.result", json.dumps("".join(chunks)))

    async def tell_later(item: str, qty: int, note: str, request_id: str | None = None) -> AsyncIterator[str]:
        with tracer.start_as_current_span("execute_tool place_order") as span:
            _start(span, item, qty, note, request_id)
            chunks: list[str] = []
            async for chunk in tell_order_later(item, qty, note, request_id):
                chunks.append(chunk)
                yield chunk
            span.set_attribute("gen_ai.tool.call.result", json.dumps("".join(chunks)))

    class Shop:
        def place_order(self, item: str, qty: int, note: str, request_id: str | None = None) -> dict[str, Any]:
            return call(item, qty, note, request_id)

    return Calls(call, Shop().place_order, call_later, tell, tell_later)


def _start(span: Span, item: str, qty: int, note: str, request_id: str | None) -> None:
    span.set_attribute("gen_ai.operation.name", "execute_tool")
    span.set_attribute("gen_ai.tool.name", "place_order")
    span.set_attribute("gen_ai.tool.type", "function")
    span.set_attribute("gen_ai.tool.call.id", "call_1")
    arguments = {"item": item, "qty": qty, "note": note, "request_id": request_id}
    span.set_attribute("gen_ai.tool.call.arguments", json.dumps(arguments))


def run(calls: Calls, kind: str, count: int = CALLS) -> None:
    """Calls one of them `count` times, to the end of what it yields."""
    function = getattr(calls, kind)
    if kind in ("coroutine", "async_generator"):
        asyncio.run((_await if kind == "coroutine" else _drain)(function, count))
    elif kind == "generator":
        for _ in range(count):
            for _chunk in function(*ARGS, **KWARGS):
                pass
    else:
        for _ in range(count):
            function(*ARGS, **KWARGS)


async def _await(function: Callable[..., Any], count: int) -> None:
    for _ in range(count):
        await function(*ARGS, **KWARGS)


async def _drain(function: Callable[..., Any], count: int) -> None:
    for _ in range(count):
        async for _chunk in function(*ARGS, **KWARGS):
            pass


UNDECORATED = decorated(lambda function: function)
