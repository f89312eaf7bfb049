"""What a traced program must not notice: hostile values, no provider, no sampling, faults of ours."""

import asyncio
import contextlib
import dataclasses
import json
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import StatusCode
from recorded_spans import attributes, only, result

import agenttrace
from agenttrace.guard import guard


@agenttrace.tool
def add(a: int, b: int = 2) -> int:
    """Adds."""
    return a + b


@agenttrace.tool
def echo(item: str) -> Iterator[str]:
    yield item


# --- what the user's program must not notice


class Hostile:
    """Raises from everything."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)

    def _raise(self, *_: Any) -> Any:
        raise RuntimeError

    __eq__ = __hash__ = __iter__ = __len__ = __bool__ = __repr__ = __str__ = __reduce__ = _raise  # type: ignore[assignment]


class Foreign(BaseException):
    """No Exception, as the time-outs of some event loops."""


def _raise_foreign(*_: Any) -> Any:
    raise Foreign


class HostileToAll:
    __getattribute__ = __repr__ = __eq__ = __hash__ = _raise_foreign  # type: ignore[assignment]


class HostileText(str):
    __str__ = __len__ = __hash__ = __eq__ = __getitem__ = encode = isascii = strip = _raise_foreign  # type: ignore[assignment]


class HostileInt(int):
    __int__ = __repr__ = __eq__ = __lt__ = __le__ = __hash__ = bit_length = _raise_foreign  # type: ignore[assignment]


class HostileDict(dict[str, Any]):
    __iter__ = __len__ = __getitem__ = get = items = keys = values = _raise_foreign  # type: ignore[assignment]


def cycle() -> list[Any]:
    one: list[Any] = []
    one.append(one)
    return one


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


HOSTILE: dict[str, Callable[[], Any]] = {
    "object": Hostile,
    "class": lambda: Hostile,
    "no exception": HostileToAll,
    "text subclass": lambda: HostileText("a@example.com"),
    "int subclass": lambda: HostileInt(5),
    "dict subclass": lambda: HostileDict(a=1),
    "cycle": cycle,
    "deep": lambda: deep(100_000),
    "wide": lambda: list(range(300_000)),
    "nan": lambda: [float("nan"), float("inf")],
    "surrogate": lambda: "\ud800",
    "big int": lambda: 10**30,
    "huge int": lambda: 10**6000,
    "lock": threading.Lock,
    "generator": lambda: (n for n in range(3)),
    "iterator": lambda: iter([1, 2, 3]),
    "coroutine": lambda: asyncio.sleep(0),
    "file": lambda: open("/dev/null"),  # noqa: SIM115 - closed at the end of the test
    "client": httpx.Client,
    "text": lambda: "x" * 1_000_000,
    "module": lambda: json,
    "dataclass": lambda: dataclasses.make_dataclass("Row", ["a"])(Hostile()),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.filterwarnings("ignore:coroutine")
def test_a_decorated_function_gives_what_it_gave(recorded: InMemorySpanExporter, name: str) -> None:
    value = HOSTILE[name]()

    @agenttrace.tool(mutates=True, idempotency_key="key")
    def give(value: Any, key: Any = None) -> Any:
        return value

    @agenttrace.tool
    def plain(value: Any) -> Any:
        return value

    @agenttrace.tool
    async def agive(value: Any) -> Any:
        return value

    @agenttrace.tool
    def stream(value: Any) -> Iterator[Any]:
        yield value

    @agenttrace.agent
    def agent(value: Any) -> Any:
        return value

    @agenttrace.model
    def model(messages: Any) -> Any:
        return messages

    for call in (plain, give, agent, model):
        assert call(value) is value
    assert give(value, key=value) is value
    # As the result of a task it would break asyncio itself.
    given: list[Any] = []

    async def main() -> None:
        given.append(await agive(value))

    asyncio.run(main())
    assert given[0] is value
    assert next(iter(stream(value))) is value
    spans = recorded.get_finished_spans()
    assert len(spans) >= 6
    for span in spans:
        for key, text in attributes(span).items():
            if key.startswith("gen_ai.tool.call."):
                json.loads(str(text), parse_constant=pytest.fail)
                str(text).encode()
    if name in ("generator", "iterator"):
        assert list(value) in ([0, 1, 2], [1, 2, 3])
    if name in ("file", "client", "coroutine"):
        value.close()


def test_without_a_provider_nothing_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", None)
    assert add(1) == 3
    assert list(echo("a")) == ["a"]
    with agenttrace.run("r") as run, agenttrace.tool_call("t", {"a": 1}) as step, agenttrace.model_call("m") as call:
        run.state(initial=1)
        run.thought("x")
        run.respond("y")
        step.record(1)
        call.record("z")


def test_a_span_that_is_not_sampled_encodes_nothing(
    recorded: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(recorded))
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", provider)
    looked: list[int] = []

    class Watched:
        def __repr__(self) -> str:
            looked.append(1)
            return ""

    @agenttrace.agent
    def agent(request: str, value: Any) -> Any:
        give(value)
        with agenttrace.tool_call("t", {"a": value}) as step:
            step.record(value)
        return list(stream(value))

    @agenttrace.tool(mutates=True)
    def give(value: Any) -> Any:
        return value

    @agenttrace.tool
    def stream(value: Any) -> Iterator[Any]:
        yield value

    @agenttrace.tool
    def plain(value: Any) -> Any:
        return value

    agent("x", Watched())
    plain(Watched())
    assert looked == []
    assert not recorded.get_finished_spans()


def test_a_fault_of_ours_is_logged_once_and_goes_no_further(
    recorded: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(SimpleSpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            raise RuntimeError("secret")

        on_end = on_start  # type: ignore[assignment]

    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(Broken(recorded))
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", provider)
    monkeypatch.setattr(guard, "strict", False)
    with caplog.at_level(logging.WARNING, "agenttrace"):
        assert [add(1) for _ in range(3)] == [3, 3, 3]
        assert list(echo("a")) == ["a"]
        with agenttrace.run("r"):
            pass
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1
    assert "could not start a span: RuntimeError at" in lines[0]
    assert "secret" not in lines[0]


def test_a_processor_that_fails_at_the_end_is_none_of_the_callers_business(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(SpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            raise RuntimeError("secret")

    @agenttrace.tool
    def fail() -> None:
        raise OSError("own")

    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(Broken())
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", provider)
    monkeypatch.setattr(guard, "strict", False)
    with caplog.at_level(logging.WARNING, "agenttrace"):
        assert add(1) == 3
        assert list(echo("a")) == ["a"]
        with pytest.raises(OSError, match="own"):
            fail()
        with agenttrace.model_call("m"):
            pass
    assert [record.getMessage().split(" at ")[0] for record in caplog.records] == [
        "agenttrace could not end a span: RuntimeError"
    ]


def test_near_the_recursion_limit_the_call_still_counts(recorded: InMemorySpanExporter) -> None:
    guard.strict = False

    def fall() -> int:
        with contextlib.suppress(RecursionError):
            return fall() + 1
        return add(1)

    with contextlib.suppress(RecursionError):
        fall()
    assert add(1) == 3


class Unprintable(Exception):
    def __str__(self) -> str:
        raise Foreign


class OddNotes(Exception):
    @property
    def __notes__(self) -> Any:
        raise Foreign


class OddCause(Exception):
    @property
    def __cause__(self) -> Any:  # type: ignore[override]
        raise RuntimeError


class NothingReadable(Exception):
    __getattribute__ = _raise_foreign  # type: ignore[assignment]


class OddName(type):
    __module__ = property(_raise_foreign)  # type: ignore[assignment]


class Unnamed(Exception, metaclass=OddName):
    pass


class OddText(Exception):
    def __str__(self) -> str:
        return HostileText("odd")


UNREADABLE: dict[str, Callable[[], Exception]] = {
    "text": Unprintable,
    "notes": OddNotes,
    "cause": OddCause,
    "all": NothingReadable,
    "name": Unnamed,
    "subclass of text": OddText,
    "syntax error": lambda: SyntaxError("x", ("f", "1", "2", 5)),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_an_exception_that_resists_being_read_passes_and_is_recorded(recorded: InMemorySpanExporter, name: str) -> None:
    error = UNREADABLE[name]()

    @agenttrace.tool
    def fail() -> None:
        raise error

    raised = None
    try:
        fail()
    except BaseException as caught:
        raised = caught
    assert raised is error
    assert only(recorded).status.status_code is StatusCode.ERROR
    assert [event.name for event in only(recorded).events] == ["exception"]


def test_a_long_chain_of_exceptions_is_not_followed(recorded: InMemorySpanExporter) -> None:
    error = ValueError("the last")
    link: BaseException = error
    for _ in range(1000):
        link.__context__ = ValueError("before")
        link = link.__context__

    @agenttrace.tool
    def fail() -> None:
        raise error

    with pytest.raises(ValueError, match="the last"):
        fail()
    (event,) = only(recorded).events
    stack = str((event.attributes or {})["exception.stacktrace"])
    assert stack.endswith("ValueError: the last\n")
    assert "before" not in stack


def test_a_secret_that_the_cut_of_a_stack_trace_halves_is_hidden(recorded: InMemorySpanExporter) -> None:
    body = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC" * 50
    key = f"-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n"

    @agenttrace.tool
    def fail() -> None:
        raise ValueError(f"bad key: {key} {'x' * (15_500)}")

    with pytest.raises(ValueError, match="bad key"):
        fail()
    (event,) = only(recorded).events
    assert "MIIEvQ" not in str(event.attributes)


class Deadline(Exception):
    pass


def test_what_a_signal_handler_raises_reaches_the_program(recorded: InMemorySpanExporter) -> None:
    class Slow:
        def __repr__(self) -> str:
            signal.raise_signal(signal.SIGUSR2)
            return "slow"

    def over(*_: Any) -> None:
        raise Deadline

    @agenttrace.tool
    def take(value: Any) -> None:
        pass

    @agenttrace.tool
    def give() -> Any:
        return Slow()

    guard.strict = False
    before = signal.signal(signal.SIGUSR2, over)
    try:
        for call in (lambda: take(Slow()), lambda: take([{"a": Slow()}]), give):
            with pytest.raises(Deadline):
                call()
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert [span.status.status_code for span in recorded.get_finished_spans()] == [StatusCode.ERROR] * 3


def test_lazy_objects_are_not_asked(recorded: InMemorySpanExporter) -> None:
    asked: list[str] = []

    class Lazy:
        def __getattr__(self, name: str) -> Any:
            asked.append(name)
            raise AttributeError(name)

    class Query:
        def __aiter__(self) -> Any:
            asked.append("aiter")

        def __repr__(self) -> str:
            asked.append("repr")
            return ""

    @agenttrace.tool
    def give(value: Any) -> Any:
        return value

    for value in (Lazy(), Query()):
        assert give(value) is value
    assert asked == []
    assert "Lazy" in result(recorded.get_finished_spans()[0])
