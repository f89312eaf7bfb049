"""Decorated generators and async generators, against a real tracer provider."""

import asyncio
import copy
import gc
import inspect
import pickle
import sys
import threading
import typing
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from recorded_spans import arguments, attributes, by_name, is_child, only, result

import agenttrace

# --- generators


def test_a_generator_span_covers_its_iteration_and_joins_text(recorded: InMemorySpanExporter) -> None:
    @agenttrace.tool
    def stream(n: int) -> Generator[str, None, str]:
        for number in range(n):
            yield f"chunk {number} "
        return "done"

    assert inspect.isgeneratorfunction(stream)
    assert inspect.signature(stream) == inspect.signature(inspect.unwrap(stream))
    iterator = stream(3)
    assert inspect.isgenerator(iterator)
    assert (iterator.__name__, iterator.__qualname__) == ("stream", stream.__qualname__)
    assert next(iterator) == "chunk 0 "
    assert not recorded.get_finished_spans()
    assert list(iterator) == ["chunk 1 ", "chunk 2 "]
    assert result(only(recorded)) == "chunk 0 chunk 1 chunk 2 "
    assert arguments(only(recorded)) == {"n": 3}


def test_other_chunks_make_a_list(recorded: InMemorySpanExporter) -> None:
    @agenttrace.tool
    def stream(chunks: list[Any]) -> Iterator[Any]:
        yield from chunks

    for chunks in ([1, {"a": 2}], ["a", 1, "b"], [], [None]):
        recorded.clear()
        assert list(stream(chunks)) == chunks
        assert result(only(recorded)) == (chunks or "")


def test_a_reused_chunk_is_recorded_as_it_was_yielded(recorded: InMemorySpanExporter) -> None:
    @agenttrace.tool
    def stream() -> Iterator[dict[str, int]]:
        row: dict[str, int] = {}
        for number in range(3):
            row["n"] = number
            yield row

    for _ in stream():
        pass
    assert result(only(recorded)) == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_the_return_value_passes_and_stands_in_for_absent_chunks(recorded: InMemorySpanExporter) -> None:
    @agenttrace.tool
    def stream(n: int) -> Generator[int, None, str]:
        yield from range(n)
        return "all"

    def consume() -> Generator[int, None, str]:
        return (yield from stream(0))

    with pytest.raises(StopIteration) as stop:
        next(consume())
    assert stop.value.value == "all"
    assert result(only(recorded)) == "all"


def test_an_endless_stream_is_bounded(recorded: InMemorySpanExporter) -> None:
    @agenttrace.tool
    def stream(chunk: Any, count: int) -> Iterator[Any]:
        for _ in range(count):
            yield chunk

    for chunk in ("x" * 1000, {"x": "y" * 1000}, b"z" * 100_000):
        recorded.clear()
        assert sum(1 for _ in stream(chunk, 300)) == 300
        span = only(recorded)
        result(span)
        assert len(attributes(span)["gen_ai.tool.call.result"]) < 70_000
        assert attributes(span)["agenttrace.result.original_bytes"] > 60_000


@pytest.mark.parametrize("how", ["break", "close", "collected"])
def test_a_generator_closed_early_is_no_error(recorded: InMemorySpanExporter, how: str) -> None:
    closed: list[bool] = []

    @agenttrace.tool
    def stream() -> Iterator[str]:
        try:
            yield "a"
            yield "b"
        finally:
            closed.append(trace.get_current_span().get_span_context().is_valid)

    if how == "break":
        for _ in stream():
            break
    else:
        iterator = stream()
        next(iterator)
        if how == "close":
            typing.cast("Generator[str, None, None]", iterator).close()
        del iterator
    gc.collect()
    assert closed == [True]
    assert only(recorded).status.status_code is trace.StatusCode.UNSET
    assert result(only(recorded)) == "a"
    assert not only(recorded).events


def test_a_generator_never_iterated_did_nothing(recorded: InMemorySpanExporter) -> None:
    @agenttrace.tool
    def stream() -> Iterator[int]:
        yield 1

    del [stream][0]
    stream()
    gc.collect()
    assert not recorded.get_finished_spans()
    with pytest.raises(TypeError):
        stream(1)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]


def conversation(log: list[Any]) -> Generator[Any, Any, Any]:
    """Says everything that can happen to a generator."""
    try:
        log.append((yield 1))
        log.append((yield 2))
    except KeyError as error:
        log.append(error)
        yield "caught"
    except ZeroDivisionError:
        log.append(sys.exc_info()[1] is not None)
        raise ValueError("while handling") from None
    except LookupError:
        pass
    finally:
        log.append("finally")
    log.append(sys.exc_info())
    try:
        raise OSError("afterwards")
    except OSError as error:
        log.append(error.__context__)
    yield "end"
    return 9


Script = list[tuple[str, Any]]
SCRIPTS: list[Script] = [
    [("next", None)] * 6,
    [("send", None), ("send", "x"), ("send", "y"), ("send", None)],
    [("send", "too early")],
    [("next", None), ("throw", KeyError("k")), ("next", None), ("next", None)],
    [("next", None), ("throw", IndexError("i")), ("next", None)],
    [("next", None), ("throw", ZeroDivisionError("z")), ("next", None)],
    [("next", None), ("throw", OSError("passes")), ("next", None)],
    [("next", None), ("close", None), ("next", None)],
    [("throw", OSError("unstarted")), ("next", None)],
    [("close", None), ("next", None)],
    [("next", None), ("throw", GeneratorExit()), ("next", None)],
    [("next", None), ("throw", StopIteration(5)), ("next", None)],
]


def play(generator: Generator[Any, Any, Any], script: Script) -> list[Any]:
    seen: list[Any] = []
    for action, value in script:
        method = {"next": generator.__next__, "close": generator.close}.get(action)
        try:
            seen.append(method() if method is not None else getattr(generator, action)(value))
        except BaseException as error:
            seen.append((type(error), str(error), error.args, type(error.__context__), type(error.__cause__)))
    return seen


def plain_log(log: list[Any]) -> list[Any]:
    return [(type(each), each.args) if isinstance(each, BaseException) else each for each in log]


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_generator_behaves_as_it_did_undecorated(recorded: InMemorySpanExporter, script: Script) -> None:
    plain: list[Any] = []
    traced: list[Any] = []
    assert play(agenttrace.tool(conversation)(traced), script) == play(conversation(plain), script)
    assert plain_log(traced) == plain_log(plain)
    assert len(recorded.get_finished_spans()) <= 1


def test_an_exception_half_way_keeps_the_chunks(recorded: InMemorySpanExporter) -> None:
    error = OSError("half-way")

    @agenttrace.tool
    def stream() -> Iterator[str]:
        yield "a"
        raise error

    with pytest.raises(OSError, match="half-way") as caught:
        list(stream())
    assert caught.value is error
    assert error.__context__ is None
    assert result(only(recorded)) == "a"
    assert attributes(only(recorded))["error.type"] == "OSError"


def test_the_consumer_never_sees_a_generators_context(recorded: InMemorySpanExporter) -> None:
    inside: list[int] = []

    @agenttrace.tool
    def stream(name: str) -> Iterator[str]:
        for _ in range(2):
            inside.append(trace.get_current_span().get_span_context().span_id)
            leaf(name)
            yield name

    @agenttrace.tool
    def leaf(name: str) -> None: ...

    with trace.get_tracer("test").start_as_current_span("outer") as outer:
        for first, second in zip(stream("a"), stream("b"), strict=True):
            assert (first, second) == ("a", "b")
            assert trace.get_current_span() is outer
    spans = recorded.get_finished_spans()
    streams = {arguments(span)["name"]: span for span in spans if span.name == "execute_tool stream"}
    assert len(set(inside)) == 2
    for span in spans:
        if span.name == "execute_tool leaf":
            assert is_child(span, streams[arguments(span)["name"]])


def test_a_generator_keeps_the_parent_of_its_call_wherever_it_is_consumed(recorded: InMemorySpanExporter) -> None:
    @agenttrace.tool
    def stream() -> Iterator[int]:
        leaf()
        yield 1
        yield 2

    @agenttrace.tool
    def leaf() -> None: ...

    @agenttrace.agent
    def serve(request: str) -> Any:
        return stream()

    iterator = serve("x")
    assert next(iterator) == 1
    rest: list[int] = []
    thread = threading.Thread(target=lambda: rest.extend(iterator))
    thread.start()
    thread.join()
    assert rest == [2]
    spans = by_name(recorded)
    assert is_child(spans["stream"], spans["serve"])
    assert is_child(spans["leaf"], spans["stream"])


# --- async generators


def test_async_generators(recorded: InMemorySpanExporter) -> None:
    @agenttrace.tool
    async def stream(n: int) -> AsyncGenerator[str, None]:
        for number in range(n):
            await asyncio.sleep(0)
            yield str(number)

    async def main() -> list[str]:
        iterator = stream(3)
        assert inspect.isasyncgen(typing.cast("object", iterator))
        return [chunk async for chunk in iterator]

    assert inspect.isasyncgenfunction(stream)
    assert asyncio.run(main()) == ["0", "1", "2"]
    assert result(only(recorded)) == "012"


async def aconversation(log: list[Any]) -> AsyncGenerator[Any, Any]:
    try:
        log.append((yield 1))
        await asyncio.sleep(0)
        log.append((yield 2))
    except KeyError as error:
        log.append(error)
        yield "caught"
    except ZeroDivisionError:
        raise ValueError("while handling") from None
    except LookupError:
        pass
    finally:
        await asyncio.sleep(0)
        log.append("finally")
    log.append(sys.exc_info())
    try:
        raise OSError("afterwards")
    except OSError as error:
        log.append(error.__context__)
    yield "end"


async def aplay(generator: AsyncGenerator[Any, Any], script: Script) -> list[Any]:
    seen: list[Any] = []
    for action, value in script:
        calls: dict[str, Callable[[Any], Awaitable[Any]]] = {
            "next": lambda _: generator.__anext__(),
            "send": generator.asend,
            "throw": generator.athrow,
            "close": lambda _: generator.aclose(),
        }
        try:
            seen.append(await calls[action](value))
        except BaseException as error:
            seen.append((type(error), str(error), error.args, type(error.__context__), type(error.__cause__)))
    return seen


@pytest.mark.parametrize("script", SCRIPTS)
def test_an_async_generator_behaves_as_it_did_undecorated(recorded: InMemorySpanExporter, script: Script) -> None:
    plain: list[Any] = []
    traced: list[Any] = []
    expected = asyncio.run(aplay(aconversation(plain), script))
    assert asyncio.run(aplay(agenttrace.tool(aconversation)(traced), script)) == expected
    assert plain_log(traced) == plain_log(plain)
    assert len(recorded.get_finished_spans()) <= 1


@pytest.mark.parametrize("how", ["break", "aclose", "loop end", "another task"])
def test_an_async_generator_closed_early_is_no_error(
    recorded: InMemorySpanExporter, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    closed: list[bool] = []

    @agenttrace.tool
    async def stream() -> AsyncGenerator[str, None]:
        try:
            yield "a"
            yield "b"
        finally:
            await asyncio.sleep(0)
            closed.append(trace.get_current_span().get_span_context().is_valid)

    async def main() -> None:
        iterator = stream()
        async for _ in iterator:
            break
        if how == "aclose":
            await iterator.aclose()
        elif how == "another task":
            await asyncio.ensure_future(iterator.aclose())
        elif how == "loop end":
            kept.append(iterator)
        else:
            del iterator
            gc.collect()
            for _ in range(3):
                await asyncio.sleep(0)

    kept: list[Any] = []
    asyncio.run(main())
    assert closed == [True]
    assert only(recorded).status.status_code is trace.StatusCode.UNSET
    assert result(only(recorded)) == "a"
    assert not caplog.records


def test_a_cancelled_async_generator(recorded: InMemorySpanExporter, caplog: pytest.LogCaptureFixture) -> None:
    @agenttrace.tool
    async def stream() -> AsyncIterator[str]:
        yield "a"
        await asyncio.Event().wait()

    async def consume() -> None:
        async for _ in stream():
            pass

    async def main() -> None:
        task = asyncio.ensure_future(consume())
        for _ in range(3):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert attributes(only(recorded))["agenttrace.cancelled"] is True
    assert result(only(recorded)) == "a"
    assert not caplog.records


def test_async_generators_interleave_and_move_between_tasks(
    recorded: InMemorySpanExporter, caplog: pytest.LogCaptureFixture
) -> None:
    @agenttrace.tool
    async def leaf(name: str) -> None:
        await asyncio.sleep(0)

    @agenttrace.tool
    async def stream(name: str) -> AsyncGenerator[str, None]:
        for _ in range(3):
            await leaf(name)
            yield name

    @agenttrace.agent
    async def serve(request: str) -> list[AsyncGenerator[str, None]]:
        return [stream("a"), stream("b")]

    async def main() -> None:
        iterators = await serve("x")
        before = trace.get_current_span()
        for _ in range(3):
            for iterator in iterators:
                # Each step in a task of its own, as servers do it.
                await asyncio.ensure_future(typing.cast("Any", iterator).__anext__())
                assert trace.get_current_span() is before
        for iterator in iterators:
            with pytest.raises(StopAsyncIteration):
                await iterator.__anext__()

    asyncio.run(main())
    spans = recorded.get_finished_spans()
    streams = {arguments(span)["name"]: span for span in spans if span.name == "execute_tool stream"}
    assert all(is_child(span, by_name(recorded)["serve"]) for span in streams.values())
    leaves = [span for span in spans if span.name == "execute_tool leaf"]
    assert len(leaves) == 6
    assert all(is_child(span, streams[arguments(span)["name"]]) for span in leaves)
    assert not caplog.records


class Feed:
    @agenttrace.tool
    def stream(self) -> Iterator[str]:
        yield "a"


def test_a_decorated_generator_function_is_like_a_function() -> None:
    stream: Any = Feed.stream
    assert copy.deepcopy(stream) is stream
    assert pickle.loads(pickle.dumps(stream)) is stream
    assert "stream" in repr(stream)
    assert typing.get_type_hints(stream) == {"return": Iterator[str]}
    feed: Any = Feed()
    assert feed.stream.__self__ is feed
