"""Runs, tool calls and model calls recorded by context managers."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.instrumentation.threading import ThreadingInstrumentor  # pyright: ignore[reportMissingTypeStubs]
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from recorded_spans import attributes
from segment_rows import read_segment

import agenttrace
from agenttrace.spool import Spool, spool_folder


def by_name(recorded: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in recorded.get_finished_spans()}


def span_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


def only(recorded: InMemorySpanExporter) -> dict[str, Any]:
    (span,) = recorded.get_finished_spans()
    return attributes(span)


@agenttrace.tool
def look(item: str) -> int:
    return 6


PLACE = {
    "gen_ai.conversation.id": "s-44",
    "user.id": "u-1",
    "agenttrace.tenant.id": "acme",
    "agenttrace.task.id": "task-17",
    "agenttrace.trial": 3,
}


def test_sessions_named_by_an_address_stay_two_and_show_none(recorded: InMemorySpanExporter) -> None:
    for address in ("ann@example.com", "bob@example.com", "bob@example.com"):
        with agenttrace.run("shop", session_id=address, user_id=address):
            pass
    ann, bob, again = (attributes(span) for span in recorded.get_finished_spans())
    for key in ("gen_ai.conversation.id", "user.id"):
        assert ann[key] != bob[key] == again[key]
        assert "@" not in ann[key] + bob[key]


def test_a_run_as_in_the_documentation(recorded: InMemorySpanExporter) -> None:
    with agenttrace.run(
        "restock",
        user_input="order rice",
        session_id="s-44",
        user_id="u-1",
        tenant_id="acme",
        task_id="task-17",
        trial=3,
    ) as run:
        run.state(initial={"stock": 6})
        with agenttrace.tool_call("place_order", {"item": "rice", "qty": 40}, mutates=True, call_id="c-1") as step:
            step.record({"id": "PO-1"})
        look("rice")
        run.thought("supplier timed out; mail bob@example.com")
        run.state(final={"open_orders": 1})
        run.respond("Done. 40 bags ordered.")
    spans = by_name(recorded)
    root = spans["invoke_agent restock"]
    assert attributes(root) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "restock",
        **PLACE,
        "agenttrace.user_input": "order rice",
        "agenttrace.state.initial": '{"stock":6}',
        "agenttrace.state.final": '{"open_orders":1}',
        "agenttrace.final_response": "Done. 40 bags ordered.",
    }
    (event,) = root.events
    assert event.name == "agenttrace.thought"
    assert dict(event.attributes or {}) == {"agenttrace.thought": "supplier timed out; mail [REDACTED]"}
    assert attributes(spans["execute_tool place_order"]) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.agent.name": "restock",
        **PLACE,
        "gen_ai.tool.name": "place_order",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "c-1",
        "agenttrace.tool.mutates": True,
        "gen_ai.tool.call.arguments": '{"item":"rice","qty":40}',
        "gen_ai.tool.call.result": '{"id":"PO-1"}',
    }
    assert attributes(spans["execute_tool look"]).items() >= {"gen_ai.agent.name": "restock", **PLACE}.items()
    assert all(span.parent is None or span.parent.span_id == span_id(root) for span in spans.values())


def test_an_inner_run_inherits_what_it_does_not_state(recorded: InMemorySpanExporter) -> None:
    with agenttrace.run("outer", session_id="s", task_id="t", trial=1):
        with agenttrace.run("inner", trial=2):
            look("a")
        look("b")
    spans = recorded.get_finished_spans()
    places = [
        tuple(attributes(span).get(key) for key in ("gen_ai.agent.name", "gen_ai.conversation.id", "agenttrace.trial"))
        for span in spans
    ]
    assert places == [("inner", "s", 2), ("inner", "s", 2), ("outer", "s", 1), ("outer", "s", 1)]


def test_a_run_reaches_tasks_and_threads(recorded: InMemorySpanExporter) -> None:
    async def main() -> None:
        await asyncio.gather(*(asyncio.to_thread(look, "rice") for _ in range(2)))

    ThreadingInstrumentor().instrument()
    try:
        with agenttrace.run("r", task_id="t"):
            asyncio.run(main())
            with ThreadPoolExecutor() as pool:
                list(pool.map(look, ["a", "b"]))
    finally:
        ThreadingInstrumentor().uninstrument()
    spans = recorded.get_finished_spans()
    assert len(spans) == 5
    assert {attributes(span)["agenttrace.task.id"] for span in spans} == {"t"}
    assert sum(span.parent is None for span in spans) == 1


def test_exceptions_pass_through_blocks(recorded: InMemorySpanExporter) -> None:
    error = TimeoutError("no answer")
    with pytest.raises(TimeoutError) as caught, agenttrace.run("r"), agenttrace.tool_call("place_order"):
        raise error
    assert caught.value is error
    assert error.__context__ is None
    for span in recorded.get_finished_spans():
        assert attributes(span)["error.type"] == "TimeoutError"
        assert span.status.description == "no answer"
        assert [event.name for event in span.events] == ["exception"]


def test_a_block_left_elsewhere_is_left_in_silence(
    recorded: InMemorySpanExporter, caplog: pytest.LogCaptureFixture
) -> None:
    async def stream() -> AsyncGenerator[int, None]:
        with agenttrace.tool_call("search", {"q": "a"}):
            yield 1
            yield 2

    async def main() -> None:
        iterator = stream()
        for step in (iterator.asend(None), iterator.aclose()):
            await asyncio.create_task(finish(step))

    async def finish(step: Awaitable[Any]) -> None:
        await step

    asyncio.run(main())
    assert only(recorded)["gen_ai.tool.name"] == "search"
    assert not caplog.records


def test_what_a_model_wrote_as_arguments(recorded: InMemorySpanExporter) -> None:
    given: list[Any] = ['{"a": 1}', "not json", "[1]", None, {"to": "bob@example.com", "key": "k-1"}]
    for arguments in given:
        with agenttrace.tool_call("mail bob@example.com", arguments, idempotency_key="key"):
            pass
    said = [attributes(span) for span in recorded.get_finished_spans()]
    texts = [each.get("gen_ai.tool.call.arguments") for each in said]
    assert texts[:4] == ['{"a":1}', '{"input":"not json"}', '{"input":"[1]"}', None]
    assert json.loads(str(texts[4])) == {"to": "[REDACTED]", "key": "k-1"}
    assert said[4]["agenttrace.tool.idempotency_key"] == "k-1"
    assert len(said[4]["agenttrace.tool.arguments_hash"]) == 64
    assert {each["gen_ai.tool.name"] for each in said} == {"mail [REDACTED]"}


def test_calls_outside_their_block_do_nothing(recorded: InMemorySpanExporter) -> None:
    run = agenttrace.run("r")
    run.thought("early")
    run.state(initial=1)
    with run:
        pass
    run.respond("late")
    assert only(recorded) == {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "r"}


# --- model calls


def place_order(item: str) -> None:
    """Orders."""


def test_a_model_call(recorded: InMemorySpanExporter) -> None:
    messages = [{"role": "system", "content": "You order."}, {"role": "user", "content": "rice for bob@example.com"}]
    offered = [{"name": "check", "description": "Checks.", "parameters": {"type": "object"}}, place_order, "cancel"]
    with agenttrace.model_call("gpt-4o", provider="openai", messages=messages, tools=offered) as call:
        call.record(
            output="ordering",
            tool_calls=[{"id": "c1", "name": "place_order", "arguments": {"item": "rice"}}],
            thought="hm",
            model="gpt-4o-2024",
            response_id="r-1",
            finish_reason="tool_calls",
            input_tokens=10,
            output_tokens=5,
            cached_input_tokens=4,
            cache_write_tokens=3,
            reasoning_tokens=2,
            cost_usd=0.01,
        )
    said = only(recorded)
    assert json.loads(said.pop("gen_ai.input.messages")) == [
        {"role": "system", "parts": [{"type": "text", "content": "You order."}]},
        {"role": "user", "parts": [{"type": "text", "content": "rice for [REDACTED]"}]},
    ]
    assert json.loads(said.pop("gen_ai.output.messages")) == [
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "content": "hm"},
                {"type": "text", "content": "ordering"},
                {"type": "tool_call", "id": "c1", "name": "place_order", "arguments": {"item": "rice"}},
            ],
        }
    ]
    assert json.loads(said.pop("gen_ai.tool.definitions")) == [
        {"type": "function", "name": "check", "description": "Checks.", "parameters": {"type": "object"}},
        {"type": "function", "name": "place_order", "description": "Orders."},
        {"type": "function", "name": "cancel"},
    ]
    assert said == {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.provider.name": "openai",
        "gen_ai.response.model": "gpt-4o-2024",
        "gen_ai.response.id": "r-1",
        "gen_ai.response.finish_reasons": ("tool_calls",),
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "gen_ai.usage.cache_write.input_tokens": 3,
        "gen_ai.usage.reasoning.output_tokens": 2,
        "gen_ai.usage.cost": 0.01,
    }


CALL = {"type": "tool_call", "id": "c1", "name": "f", "arguments": {"a": 1}}
MESSAGES: list[tuple[Any, list[Any]]] = [
    ("hi", [{"role": "user", "parts": [{"type": "text", "content": "hi"}]}]),
    (
        [{"role": "user", "parts": [{"type": "text", "content": "otel"}, {"type": "blob", "x": 1}]}],
        [
            {
                "role": "user",
                "parts": [{"type": "text", "content": "otel"}, {"type": "other", "content": {"type": "blob", "x": 1}}],
            }
        ],
    ),
    (
        # OpenAI chat
        [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "2", "name": "f"},
            {"role": "user", "content": [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {}}]},
        ],
        [
            {"role": "assistant", "parts": [CALL]},
            {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "2", "name": "f"}]},
            {
                "role": "user",
                "parts": [
                    {"type": "text", "content": "see"},
                    {"type": "media", "content": {"type": "image_url", "image_url": {}}},
                ],
            },
        ],
    ),
    (
        # Anthropic
        [
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm"},
                    {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}},
                ],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "no", "is_error": True}],
            },
        ],
        [
            {"role": "assistant", "parts": [{"type": "reasoning", "content": "hm"}, CALL]},
            {
                "role": "user",
                "parts": [{"type": "tool_call_response", "id": "c1", "response": "no", "is_error": True}],
            },
        ],
    ),
    (
        # OpenAI responses
        [
            {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "function_call", "id": "fc", "call_id": "c1", "name": "f", "arguments": '{"a": 1}'},
            {"type": "function_call_output", "call_id": "c1", "output": "2"},
        ],
        [
            {"role": "assistant", "parts": [{"type": "reasoning", "content": "hm"}]},
            {"role": "assistant", "parts": [CALL]},
            {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "2"}]},
        ],
    ),
    (
        # Gemini
        [
            {
                "role": "model",
                "parts": [
                    {"text": "hm", "thought": True},
                    {"text": "hi"},
                    {"function_call": {"id": "c1", "name": "f", "args": {"a": 1}}},
                ],
            },
            {"role": "user", "parts": [{"function_response": {"id": "c1", "name": "f", "response": {"r": 2}}}]},
        ],
        [
            {
                "role": "model",
                "parts": [{"type": "reasoning", "content": "hm"}, {"type": "text", "content": "hi"}, CALL],
            },
            {
                "role": "user",
                "parts": [{"type": "tool_call_response", "id": "c1", "response": {"r": 2}, "name": "f"}],
            },
        ],
    ),
    ([3, None, {"role": "user"}, {}, {"content": {"x": 1}}], None),  # type: ignore[list-item]
]


@pytest.mark.parametrize(("given", "expected"), MESSAGES)
def test_messages_of_the_common_forms(recorded: InMemorySpanExporter, given: Any, expected: Any) -> None:
    with agenttrace.model_call("m", messages=given):
        pass
    said = json.loads(only(recorded)["gen_ai.input.messages"])
    assert expected is None or said == expected
    assert all(isinstance(message["parts"], list) for message in said)


RESPONSES: list[tuple[Any, dict[str, Any], list[Any]]] = [
    (
        {
            "id": "x",
            "model": "gpt",
            "choices": [
                {
                    "finish_reason": "tool_calls",
                    "message": {
                        "role": "assistant",
                        "content": "hi",
                        "tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": '{"a":1}'}}],
                    },
                }
            ],
            "usage": {
                "prompt_tokens": 9,
                "completion_tokens": 4,
                "prompt_tokens_details": {"cached_tokens": 2},
                "completion_tokens_details": {"reasoning_tokens": 1},
            },
        },
        {"input_tokens": 9, "output_tokens": 4, "cache_read.input_tokens": 2, "reasoning.output_tokens": 1},
        [{"type": "text", "content": "hi"}, CALL],
    ),
    (
        {
            "type": "message",
            "id": "x",
            "model": "claude",
            "content": [
                {"type": "text", "text": "hi"},
                {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}},
            ],
            "stop_reason": "tool_use",
            "usage": {
                "input_tokens": 5,
                "output_tokens": 4,
                "cache_read_input_tokens": 3,
                "cache_creation_input_tokens": 1,
            },
        },
        # Cached tokens are beside the input: 5 + 3 + 1.
        {"input_tokens": 9, "output_tokens": 4, "cache_read.input_tokens": 3, "cache_write.input_tokens": 1},
        [{"type": "text", "content": "hi"}, CALL],
    ),
    (
        {
            "object": "response",
            "status": "completed",
            "output": [
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]},
                {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a":1}'},
            ],
            "usage": {"input_tokens": 9, "output_tokens": 4, "input_tokens_details": {"cached_tokens": 2}},
        },
        {"input_tokens": 9, "output_tokens": 4, "cache_read.input_tokens": 2},
        [{"type": "text", "content": "hi"}, CALL],
    ),
    (
        {
            "candidates": [{"content": {"parts": [{"text": "hi"}]}, "finish_reason": "STOP"}],
            "usage_metadata": {"prompt_token_count": 9, "candidates_token_count": 3, "thoughts_token_count": 1},
        },
        # Thoughts are beside the answer: 3 + 1.
        {"input_tokens": 9, "output_tokens": 4, "reasoning.output_tokens": 1},
        [{"type": "text", "content": "hi"}],
    ),
    ({"role": "assistant", "content": "hi"}, {}, [{"type": "text", "content": "hi"}]),
    ({"answer": 1}, {}, [{"type": "text", "content": '{"answer":1}'}]),
]


@pytest.mark.parametrize(("response", "usage", "parts"), RESPONSES)
def test_responses_of_providers(
    recorded: InMemorySpanExporter, response: Any, usage: dict[str, Any], parts: list[Any]
) -> None:
    with agenttrace.model_call("m") as call:
        call.record(response)
    said = only(recorded)
    prefix = "gen_ai.usage."
    assert {key.removeprefix(prefix): value for key, value in said.items() if key.startswith(prefix)} == usage
    messages = json.loads(said.get("gen_ai.output.messages", '[{"parts": []}]'))
    assert messages[0]["parts"] == parts


def test_what_is_stated_beats_what_the_response_says(recorded: InMemorySpanExporter) -> None:
    with agenttrace.model_call("m") as call:
        call.record(RESPONSES[0][0], input_tokens=1)
    assert only(recorded)["gen_ai.usage.input_tokens"] == 1


def test_a_nonsense_answer_is_left_out(recorded: InMemorySpanExporter) -> None:
    with agenttrace.model_call("m", tools={"name": "one"}) as call:
        call.record(input_tokens="many", finish_reason=3)  # type: ignore[arg-type] # pyright: ignore
        call.record(SimpleNamespace(choices=[]), tool_calls={"id": "c1", "name": "f", "arguments": "{bad"})
    said = only(recorded)
    assert "gen_ai.response.finish_reasons" not in said
    part = json.loads(said["gen_ai.output.messages"])[0]["parts"][-1]
    assert part == {"type": "tool_call", "id": "c1", "name": "f", "arguments": "{bad"}


# --- the store


@pytest.fixture
def kept(
    store: Path, recorded: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], Any]]:
    """Gives the rows of a kind that are on disk at this moment, under a provider with an exporter of ours."""
    exporter = agenttrace.DuckDBSpanExporter(store)
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(recorded))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", provider)

    def rows(kind: str) -> list[dict[str, Any]]:
        segments = Spool(spool_folder(store)).segments()
        return [row for segment in segments if segment.kind == kind for row in read_segment(segment).table.to_pylist()]

    yield rows
    provider.shutdown()


def test_mutating_tools_and_runs_are_on_disk_before_they_run(kept: Callable[[str], Any]) -> None:
    seen: list[list[tuple[str, str]]] = []

    def started() -> list[tuple[str, str]]:
        open_rows = [row for row in kept("spans") if row["end_time_unix_nano"] is None]
        return sorted((row["name"], row["attributes"]) for row in open_rows)

    @agenttrace.tool(mutates=True, idempotency_key="key")
    def place_order(item: str, key: str) -> None:
        seen.append(started())

    @agenttrace.tool
    def check(item: str) -> None:
        seen.append(started())

    @agenttrace.agent
    def clerk(request: str) -> None:
        check("a")
        place_order("rice", "k-1")
        with agenttrace.tool_call("refund", {"order": 7}, mutates=True):
            seen.append(started())

    with agenttrace.run("shop", user_input="hi", session_id="s", task_id="t", trial=3):
        clerk("go")
    assert [[name for name, _ in rows] for rows in seen] == [
        ["invoke_agent shop"],
        ["execute_tool place_order", "invoke_agent shop"],
        ["execute_tool place_order", "execute_tool refund", "invoke_agent shop"],
    ]
    shop = json.loads(seen[0][0][1])
    assert shop["agenttrace.user_input"] == "hi"
    order = json.loads(seen[1][0][1])
    assert order["gen_ai.tool.call.arguments"] == '{"item":"rice","key":"k-1"}'
    said = {key: order[key] for key in ("gen_ai.conversation.id", "agenttrace.task.id", "agenttrace.trial")}
    assert said == {"gen_ai.conversation.id": "s", "agenttrace.task.id": "t", "agenttrace.trial": 3}
    assert order["gen_ai.agent.name"] == "clerk"
    assert order["agenttrace.tool.idempotency_key"] == "k-1"


@pytest.mark.parametrize(
    "answer",
    [
        {"type": ["string", "null"]},
        {"type": {"a": 1}},
        {"role": "assistant", "content": "x", "tool_calls": 5},
        {
            "type": "message",
            "content": [{"type": "text", "text": "x"}],
            "usage": {"input_tokens": "5", "cache_read_input_tokens": 3},
        },
        {"object": "response", "output": ["x", None]},
        {"candidates": [{"content": {"parts": [{"text": "x"}]}}], "usage_metadata": {"candidates_token_count": "1"}},
    ],
)
def test_an_answer_of_an_odd_shape_is_recorded(recorded: InMemorySpanExporter, answer: Any) -> None:
    with agenttrace.model_call("m", messages=[answer]) as call:
        call.record(answer)
    (span,) = recorded.get_finished_spans()
    attributes = span.attributes or {}
    assert json.loads(str(attributes["gen_ai.input.messages"]))[0]["parts"]
    assert json.loads(str(attributes["gen_ai.output.messages"]))[0]["parts"]


def test_subclasses_of_text_and_numbers_are_recorded_as_plain_ones(recorded: InMemorySpanExporter) -> None:
    class Text(str):
        def __len__(self) -> int:
            raise KeyboardInterrupt

    class Number(int):
        __le__ = __ge__ = Text.__len__  # type: ignore[assignment]

    with agenttrace.model_call("m") as call:
        call.record(model=Text("gpt"), input_tokens=Number(5), cost_usd=0.5)
    (span,) = recorded.get_finished_spans()
    attributes = span.attributes or {}
    kinds = {key: type(attributes[key]) for key in ("gen_ai.response.model", "gen_ai.usage.input_tokens")}
    assert kinds == {"gen_ai.response.model": str, "gen_ai.usage.input_tokens": int}


def test_an_idempotency_key_that_names_no_argument_is_said(
    recorded: InMemorySpanExporter, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        with agenttrace.tool_call("pay_once", {"amount": 1}, idempotency_key="k-17"):
            pass
    assert [record.getMessage() for record in caplog.records] == [
        "agenttrace: tool_call('pay_once', idempotency_key=...) names an argument, and 'k-17' is none of this call."
    ]
