"""The decorators on functions, methods and coroutines, against a real tracer provider."""

import abc
import asyncio
import concurrent.futures
import contextlib
import contextvars
import functools
import inspect
import itertools
import json
import pickle
import socket
import sys
import traceback
import types
import typing
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import requests
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from recorded_spans import arguments, attributes, is_child, only, result

import agenttrace


@agenttrace.tool
def add(a: int, b: int = 2, *more: int, scale: int = 1, **rest: Any) -> int:
    """Adds."""
    return (a + b + sum(more)) * scale


# --- functions


def test_a_call_is_a_tool_span_with_arguments_and_result(recorded: InMemorySpanExporter) -> None:
    assert add(1, scale=3) == 9
    assert only(recorded).name == "execute_tool add"
    assert attributes(only(recorded)) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "add",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.arguments": '{"a":1,"b":2,"scale":3}',
        "gen_ai.tool.call.result": "9",
    }
    assert only(recorded).status.status_code is trace.StatusCode.UNSET
    scope = only(recorded).instrumentation_scope
    assert scope is not None
    assert scope.name == "agenttrace"


@pytest.mark.parametrize(
    "value",
    [
        {"item": "rice", "qty": 40},
        {"mail": "ada@example.com", "note": None},
        {"lines": [{"qty": 1.5}]},
        {"qty": float("nan")},
        {"text": "x" * 200_000},
        OSError("no connection to ada@example.com"),
    ],
    ids=("flat", "secret", "nested", "nan", "long", "exception"),
)
def test_one_call_is_recorded_alike_by_each_kind_of_function(recorded: InMemorySpanExporter, value: Any) -> None:
    def act(value: Any, note: str | None = None) -> Any:
        if isinstance(value, Exception):
            raise value
        return value

    async def act_later(value: Any, note: str | None = None) -> Any:
        return act(value, note)

    def said(span: ReadableSpan) -> Any:
        stated = {key: value for key, value in attributes(span).items() if key != "agenttrace.tool.mutates"}
        events = [(event.name, (event.attributes or {}).get("exception.message")) for event in span.events]
        return span.kind, stated, span.status.status_code, span.status.description, events

    tools = [agenttrace.tool("act")(act), agenttrace.tool("act", mutates=True)(act), agenttrace.tool("act")(act_later)]
    with agenttrace.run("shop", session_id="s-1"):
        for tool in tools:
            with contextlib.suppress(OSError):
                given = tool(value)
                if inspect.iscoroutine(given):
                    asyncio.run(given)
    plain, *others = [said(span) for span in recorded.get_finished_spans() if span.name == "execute_tool act"]
    assert plain[1]["gen_ai.conversation.id"] == "s-1"
    assert others == [plain, plain]


def test_positional_and_named_arguments_and_defaults_are_equal(recorded: InMemorySpanExporter) -> None:
    add(1)
    add(a=1)
    add(1, 2)
    add(b=2, a=1, scale=1)
    texts = {attributes(span)["gen_ai.tool.call.arguments"] for span in recorded.get_finished_spans()}
    assert {json.dumps(json.loads(text), sort_keys=True) for text in texts} == {'{"a": 1, "b": 2, "scale": 1}'}


def test_surplus_arguments_keep_their_names(recorded: InMemorySpanExporter) -> None:
    assert add(1, 2, 3, 4, color="red") == 10
    assert arguments(only(recorded)) == {"color": "red", "a": 1, "b": 2, "more": [3, 4], "scale": 1}


def test_a_positional_only_parameter_wins_over_a_keyword_of_its_name(recorded: InMemorySpanExporter) -> None:
    @agenttrace.tool
    def find(name: str, /, **filters: str) -> None: ...

    find("a", name="b")
    assert arguments(only(recorded)) == {"name": "a"}


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((1,), {"c": 2}), ((1, 2, 3), {}), ((1,), {"a": 1})])
def test_wrong_arguments_raise_the_functions_own_error(
    recorded: InMemorySpanExporter, args: tuple[int, ...], kwargs: dict[str, int]
) -> None:
    def place(a: int, b: int = 0) -> None: ...

    with pytest.raises(TypeError) as plain:
        place(*args, **kwargs)
    with pytest.raises(TypeError) as traced:
        agenttrace.tool(place)(*args, **kwargs)
    assert str(traced.value) == str(plain.value)
    assert attributes(only(recorded))["error.type"] == "TypeError"


def test_wrong_arguments_of_a_model_are_kept(recorded: InMemorySpanExporter) -> None:
    @agenttrace.tool
    def place(item: str, qty: int) -> None: ...

    with pytest.raises(TypeError):
        place("rice", amount=4)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    assert arguments(only(recorded)) == {"item": "rice", "amount": 4}


def test_metadata_and_types_are_kept() -> None:
    assert add.__name__ == "add"
    assert add.__doc__ == "Adds."
    assert add.__module__ == __name__
    assert inspect.signature(add) == inspect.signature(inspect.unwrap(add))
    assert typing.get_type_hints(add)["scale"] is int
    assert pickle.loads(pickle.dumps(add)) is add
    assert typing.assert_type(add(1), int) == 3
    assert not hasattr(abc.abstractmethod(add), "missing")


def test_abstract_methods_stay_abstract() -> None:
    class Shop(abc.ABC):
        @agenttrace.tool
        @abc.abstractmethod
        def order(self) -> None: ...

    with pytest.raises(TypeError):
        Shop()  # type: ignore[abstract] # pyright: ignore[reportAbstractUsage]


def test_names_may_be_given(recorded: InMemorySpanExporter) -> None:
    agenttrace.tool("place_order", mutates=True)(lambda: 1)()
    agenttrace.tool(mutates=False)(lambda: 1)()
    first, second = recorded.get_finished_spans()
    assert attributes(first)["gen_ai.tool.name"] == "place_order"
    assert attributes(first)["agenttrace.tool.mutates"] is True
    assert attributes(second)["agenttrace.tool.mutates"] is False


def test_nested_and_recursive_calls_are_children(recorded: InMemorySpanExporter) -> None:
    @agenttrace.tool
    def factorial(n: int) -> int:
        return 1 if n == 0 else n * factorial(n - 1)

    assert factorial(3) == 6
    spans = recorded.get_finished_spans()
    assert [result(span) for span in spans] == [1, 1, 2, 6]
    assert all(is_child(inner, outer) for inner, outer in itertools.pairwise(spans))
    assert spans[-1].parent is None


# --- methods and callables


class Shop:
    @agenttrace.tool
    def order(self, item: str) -> str:
        return item

    @agenttrace.tool
    @staticmethod
    def static_outer(item: str) -> str:
        return item

    @staticmethod
    @agenttrace.tool
    def static_inner(item: str) -> str:
        return item

    @agenttrace.tool
    @classmethod
    def class_outer(cls, item: str) -> str:
        return cls.__name__ + item

    @classmethod
    @agenttrace.tool
    def class_inner(cls, item: str) -> str:
        return cls.__name__ + item

    @agenttrace.tool
    async def reorder(self, item: str) -> str:
        return item

    @agenttrace.tool
    def stream(self, item: str) -> Iterator[str]:
        yield item

    @property
    @agenttrace.tool
    def stock(self) -> int:
        return 7


class Loud(Shop):
    def order(self, item: str) -> str:
        return super().order(item) + "!"


def test_methods_leave_their_receiver_out(recorded: InMemorySpanExporter) -> None:
    shop = Shop()
    assert shop.order("rice") == Shop.order(shop, "rice") == Shop.static_outer("rice") == shop.static_inner("rice")
    assert Shop.class_outer("!") == shop.class_inner("!") == "Shop!"
    assert asyncio.run(shop.reorder("rice")) == "rice"
    assert list(shop.stream("rice")) == list(Shop.stream(shop, "rice")) == ["rice"]
    assert shop.stock == 7
    assert Loud().order("rice") == "rice!"
    spans = recorded.get_finished_spans()
    assert {json.dumps(arguments(span)) for span in spans} == {'{"item": "rice"}', '{"item": "!"}', "{}"}
    assert len(spans) == 11


def test_bound_methods_and_builtins(recorded: InMemorySpanExporter) -> None:
    assert agenttrace.tool(Loud().order)("rice") == "rice!"
    assert agenttrace.tool(max)(3, 4) == 4
    _, bound, builtin = recorded.get_finished_spans()
    assert arguments(bound) == {"item": "rice"}
    assert arguments(builtin) == {"args": [3, 4]}


def test_partials_include_the_arguments_that_they_hold(recorded: InMemorySpanExporter) -> None:
    def place(item: str, qty: int, note: str = "") -> str:
        return f"{qty} {item}"

    assert agenttrace.tool(functools.partial(place, "rice", note="x"))(40) == "40 rice"
    assert attributes(only(recorded))["gen_ai.tool.name"] == "place"
    assert arguments(only(recorded)) == {"item": "rice", "qty": 40, "note": "x"}


def test_partials_of_coroutines_and_generators(recorded: InMemorySpanExporter) -> None:
    async def wait(n: int) -> int:
        return n

    def count(n: int) -> Iterator[int]:
        yield from range(n)

    assert asyncio.run(agenttrace.tool(functools.partial(wait, 3))()) == 3
    assert list(agenttrace.tool(functools.partial(count, 3))()) == [0, 1, 2]
    assert list(functools.partial(agenttrace.tool(count), 2)()) == [0, 1]
    assert [result(span) for span in recorded.get_finished_spans()] == [3, [0, 1, 2], [0, 1]]


def test_callable_objects(recorded: InMemorySpanExporter) -> None:
    class Search:
        """Finds."""

        def __init__(self) -> None:
            self.calls = 0

        def __call__(self, query: str) -> int:
            self.calls += 1
            return self.calls

    class Fetch:
        async def __call__(self, url: str) -> str:
            return url

    class Tail:
        def __call__(self, n: int) -> Iterator[int]:
            yield from range(n)

    search = Search()
    traced = agenttrace.tool(search)
    assert traced("a") == 1
    assert traced("b") == 2
    assert search.calls == 2
    assert traced.__doc__ == "Finds."
    fetch, tail = agenttrace.tool(Fetch()), agenttrace.tool(Tail())
    assert inspect.iscoroutinefunction(fetch)
    assert asyncio.run(fetch("u")) == "u"
    assert inspect.isgeneratorfunction(tail)
    assert list(tail(2)) == [0, 1]
    names = [attributes(span)["gen_ai.tool.name"] for span in recorded.get_finished_spans()]
    assert names == ["Search", "Search", "Fetch", "Tail"]


def test_decorators_below(recorded: InMemorySpanExporter) -> None:
    @agenttrace.tool
    @functools.lru_cache
    def slow(n: int) -> int:
        return n

    assert slow(1) == slow(1) == 1
    assert [arguments(span) for span in recorded.get_finished_spans()] == [{"n": 1}, {"n": 1}]


# --- wrong use


def test_wrong_use_fails_where_it_is_written() -> None:
    decorator: Any = agenttrace.tool
    for what in (3, Shop, property(lambda self: 1)):
        with pytest.raises(TypeError, match=r"agenttrace\.tool decorates functions"):
            decorator(what)
    with pytest.raises(TypeError, match=r"agenttrace\.agent decorates functions"):
        typing.cast("Any", agenttrace.agent)(3)
    with pytest.raises(ValueError, match="place has no parameter 'requestid'; its parameters are: item") as caught:

        @agenttrace.tool(idempotency_key="requestid")
        def place(item: str) -> None: ...

    assert traceback.extract_tb(caught.value.__traceback__)[0].filename == __file__
    for wrong in ({"capture": "item"}, {"ignore": "item"}):
        with pytest.raises(TypeError, match="list of names"):
            decorator(**wrong)


# --- exceptions


class SupplierError(TimeoutError, LookupError):
    """Raised by a supplier."""


def test_an_exception_passes_unchanged_and_is_recorded(recorded: InMemorySpanExporter) -> None:
    cause = KeyError("x")
    error = SupplierError("no answer for bob@example.com")

    @agenttrace.tool
    def place() -> None:
        raise error from cause

    with pytest.raises(SupplierError) as caught:
        place()
    assert caught.value is error
    assert error.__cause__ is cause
    assert error.__context__ is None
    frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert frames[-1] == "place"
    span = only(recorded)
    assert span.status.status_code is trace.StatusCode.ERROR
    assert span.status.description == "no answer for [REDACTED]"
    assert attributes(span)["error.type"] == f"{__name__}.SupplierError"
    assert attributes(span)["agenttrace.error.bases"] == ("TimeoutError", "OSError", "LookupError")
    assert "gen_ai.tool.call.result" not in attributes(span)
    (event,) = span.events
    described = dict(event.attributes or {})
    assert event.name == "exception"
    assert described["exception.type"] == f"{__name__}.SupplierError"
    assert described["exception.message"] == "no answer for [REDACTED]"
    assert "in place" in str(described["exception.stacktrace"])
    assert "bob@" not in str(described)


def test_the_handled_exception_of_the_caller_stays_current(recorded: InMemorySpanExporter) -> None:
    @agenttrace.tool
    def seen() -> Any:
        return sys.exc_info()[1]

    outer, during = ValueError("outer"), None
    try:
        raise outer
    except ValueError:
        during = seen()
    assert during is outer
    assert seen() is None


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (TimeoutError("t"), "TimeoutError"),
        (asyncio.exceptions.TimeoutError("t"), "TimeoutError"),
        (concurrent.futures.TimeoutError("t"), "TimeoutError"),
        (socket.timeout("t"), "TimeoutError"),  # noqa: UP041 - that it is the same class is what is tested
        (httpx.ReadTimeout("t"), "httpx.ReadTimeout"),
        (requests.ReadTimeout("t"), "requests.exceptions.ReadTimeout"),
    ],
)
def test_time_outs_are_named(recorded: InMemorySpanExporter, error: BaseException, name: str) -> None:
    @agenttrace.tool
    def place() -> None:
        raise error

    with pytest.raises(type(error)):
        place()
    assert attributes(only(recorded))["error.type"] == name
    bases = attributes(only(recorded)).get("agenttrace.error.bases", ())
    assert any("Timeout" in each for each in (name, *bases))


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_exceptions_that_end_programs_are_recorded_and_pass(
    recorded: InMemorySpanExporter, error: BaseException
) -> None:
    @agenttrace.tool
    def place() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        place()
    assert caught.value is error
    assert attributes(only(recorded))["error.type"] == type(error).__name__


def test_an_exception_that_cannot_be_printed(recorded: InMemorySpanExporter) -> None:
    class Evil(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

        __repr__ = __str__

    @agenttrace.tool
    def place() -> None:
        raise Evil

    with pytest.raises(Evil):
        place()
    assert "unreadable" in str(only(recorded).status.description)


# --- coroutines


def test_coroutines(recorded: InMemorySpanExporter) -> None:
    @agenttrace.tool
    async def wait(n: int) -> int:
        """Waits."""
        await asyncio.sleep(0)
        return n

    assert inspect.iscoroutinefunction(wait)
    assert wait.__doc__ == "Waits."
    assert asyncio.run(wait(n=4)) == 4
    assert arguments(only(recorded)) == {"n": 4}
    assert result(only(recorded)) == 4


def test_a_generator_based_coroutine_can_be_awaited(recorded: InMemorySpanExporter) -> None:
    @agenttrace.tool
    @types.coroutine
    def pause(item: str) -> Iterator[None]:
        yield
        return item  # type: ignore[return-value]

    async def main() -> Any:
        return await pause("a")  # type: ignore[misc]

    assert asyncio.run(main()) == "a"
    assert result(only(recorded)) == "a"


def test_gather_and_task_groups_keep_parents(recorded: InMemorySpanExporter) -> None:
    @agenttrace.tool
    async def leaf(n: int) -> int:
        await asyncio.sleep(0)
        return n

    @agenttrace.agent
    async def gathered(request: str) -> list[int]:
        return await asyncio.gather(*(leaf(n) for n in range(3)))

    @agenttrace.agent
    async def grouped(request: str) -> None:
        async with asyncio.TaskGroup() as group:
            for n in range(3):
                group.create_task(leaf(n))

    async def main() -> None:
        await asyncio.gather(gathered("a"), grouped("b"))

    asyncio.run(main())
    spans = recorded.get_finished_spans()
    agents = {span.name: span for span in spans if span.name.startswith("invoke_agent")}
    leaves = [span for span in spans if span.name == "execute_tool leaf"]
    assert sum(is_child(span, agents["invoke_agent gathered"]) for span in leaves) == 3
    assert sum(is_child(span, agents["invoke_agent grouped"]) for span in leaves) == 3


def test_a_cancelled_call_is_recorded_as_cancelled(recorded: InMemorySpanExporter) -> None:
    @agenttrace.tool
    async def forever() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        task = asyncio.ensure_future(forever())
        await asyncio.sleep(0)
        task.cancel("enough")
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(forever(), 0.001)

    asyncio.run(main())
    for span in recorded.get_finished_spans():
        assert attributes(span)["agenttrace.cancelled"] is True
        assert attributes(span)["error.type"] == "asyncio.exceptions.CancelledError"
        assert span.status.status_code is trace.StatusCode.ERROR
    assert len(recorded.get_finished_spans()) == 2


def test_a_coroutine_dropped_elsewhere_ends_its_span_in_silence(
    recorded: InMemorySpanExporter, caplog: pytest.LogCaptureFixture
) -> None:
    @agenttrace.tool
    async def forever() -> None:
        await asyncio.sleep(0)

    coroutine = forever()
    contextvars.copy_context().run(coroutine.send, None)
    coroutine.close()
    assert attributes(only(recorded))["agenttrace.cancelled"] is True
    assert not caplog.records
    assert not trace.get_current_span().get_span_context().is_valid
