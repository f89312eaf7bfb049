"""What decorated tools, agents and models record of their arguments and results."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from opentelemetry import baggage, context
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from recorded_spans import arguments, attributes, by_name, is_child, only, result

import agenttrace


@agenttrace.tool
def add(a: int, b: int = 2, *more: int, scale: int = 1, **rest: Any) -> int:
    """Adds."""
    return (a + b + sum(more)) * scale


# --- what is captured


def test_ignored_arguments_are_hidden_and_hashed(recorded: InMemorySpanExporter) -> None:
    @agenttrace.tool(ignore=["password"])
    def log_in(user: str, password: str) -> bool:
        return True

    log_in("u", "a")
    log_in("u", "b")
    log_in(user="u", password="a")
    spans = recorded.get_finished_spans()
    assert arguments(spans[0]) == {"user": "u", "password": "[REDACTED]"}
    hashes = [attributes(span)["agenttrace.tool.arguments_hash"] for span in spans]
    assert hashes[0] == hashes[2] != hashes[1]


def test_capture_names_what_is_recorded(recorded: InMemorySpanExporter) -> None:
    @agenttrace.tool(capture=["user"])
    def log_in(user: str, password: str) -> bool:
        return True

    @agenttrace.tool(capture=False)
    def nothing(user: str) -> str:
        return user

    @agenttrace.tool(ignore=["return"])
    def quiet(user: str) -> str:
        return user

    @agenttrace.tool(capture=False)
    def stream(user: str) -> Iterator[str]:
        yield user

    log_in("u", "p")
    nothing("u")
    quiet("u")
    list(stream("u"))
    spans = [attributes(span) for span in recorded.get_finished_spans()]
    assert json.loads(spans[0]["gen_ai.tool.call.arguments"]) == {"user": "u", "password": "[REDACTED]"}
    assert spans[0]["gen_ai.tool.call.result"] == "true"
    for hidden in (spans[1], spans[3]):
        assert not {"gen_ai.tool.call.arguments", "gen_ai.tool.call.result"} & set(hidden)
        assert len(hidden["agenttrace.tool.arguments_hash"]) == 64
    assert "gen_ai.tool.call.arguments" in spans[2]
    assert "gen_ai.tool.call.result" not in spans[2]


def test_the_idempotency_key_is_its_value_and_no_part_of_the_hash(recorded: InMemorySpanExporter) -> None:
    @agenttrace.tool(mutates=True, idempotency_key="request_id")
    def refund(email: str, request_id: Any = None) -> None: ...

    refund("bob@example.com", "r-1")
    refund("bob@example.com", request_id=2)
    refund("bob@example.com")
    refund("alice@example.com", "bob@example.com/1")
    first, second, third, fourth = (attributes(span) for span in recorded.get_finished_spans())
    assert first["agenttrace.tool.idempotency_key"] == "r-1"
    assert second["agenttrace.tool.idempotency_key"] == "2"
    assert "agenttrace.tool.idempotency_key" not in third
    hashes = [each["agenttrace.tool.arguments_hash"] for each in (first, second, third, fourth)]
    assert hashes[0] == hashes[1] == hashes[2] != hashes[3]
    # An address inside the key is hidden, and two such keys stay two.
    assert len(fourth["agenttrace.tool.idempotency_key"]) == 64


def test_cut_arguments_keep_their_size_and_a_hash(recorded: InMemorySpanExporter) -> None:
    add(1, text="x" * 100_000)
    add(1, text="x" * 100_001)
    first, second = (attributes(span) for span in recorded.get_finished_spans())
    assert first["agenttrace.arguments.original_bytes"] == 100_000 + len('{"text":"","a":1,"b":2,"scale":1}')
    assert first["agenttrace.tool.arguments_hash"] != second["agenttrace.tool.arguments_hash"]
    assert len(first["gen_ai.tool.call.arguments"]) <= 65_536


def test_arguments_are_recorded_as_they_were_before_the_call(recorded: InMemorySpanExporter) -> None:
    @agenttrace.tool
    def drain(items: list[int]) -> None:
        items.clear()

    drain([1, 2])
    assert arguments(only(recorded)) == {"items": [1, 2]}


# --- agents and models


def test_an_agents_first_text_is_the_user_input(recorded: InMemorySpanExporter) -> None:
    @agenttrace.agent
    def shop(limit: int, request: str, mode: str = "fast") -> str:
        return f"done, {mode}"

    @agenttrace.agent("clerk")
    def other(mode: str = "fast", request: str = "") -> Any:
        return {"ok": True}

    shop(3, "order rice")
    other(request="hello")
    agenttrace.agent(lambda: None)()
    first, second, third = recorded.get_finished_spans()
    assert first.name == "invoke_agent shop"
    assert attributes(first) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "shop",
        "agenttrace.user_input": "order rice",
        "agenttrace.final_response": "done, fast",
    }
    assert attributes(second)["agenttrace.user_input"] == "hello"
    assert attributes(second)["agenttrace.final_response"] == '{"ok":true}'
    assert "agenttrace.final_response" not in attributes(third)


def test_an_agent_that_streams(recorded: InMemorySpanExporter) -> None:
    @agenttrace.agent
    async def talk(request: str) -> AsyncIterator[str]:
        for word in ("all ", "done"):
            add(1)
            yield word

    @agenttrace.agent
    def events(request: str) -> Iterator[dict[str, int]]:
        yield {"n": 1}

    async def main() -> None:
        async for _ in talk("go"):
            pass

    asyncio.run(main())
    list(events("go"))
    spans = by_name(recorded)
    assert attributes(spans["talk"])["agenttrace.final_response"] == "all done"
    assert attributes(spans["talk"])["agenttrace.user_input"] == "go"
    assert attributes(spans["events"])["agenttrace.final_response"] == '[{"n":1}]'
    assert is_child(spans["add"], spans["talk"])
    assert attributes(spans["add"])["gen_ai.agent.name"] == "talk"


def test_baggage_says_task_and_trial(recorded: InMemorySpanExporter) -> None:
    @agenttrace.agent
    def shop(request: str) -> None:
        add(1)

    entered = context.get_current()
    for key, value in {"agenttrace.task.id": "t-1", "agenttrace.trial": "3", "session.id": "s", "other": "x"}.items():
        entered = baggage.set_baggage(key, value, entered)
    token = context.attach(entered)
    try:
        shop("x")
        add(2)
    finally:
        context.detach(token)
    for span in recorded.get_finished_spans():
        said = attributes(span)
        assert (said["agenttrace.task.id"], said["agenttrace.trial"], said["gen_ai.conversation.id"]) == ("t-1", 3, "s")


def test_a_model_call_reads_messages_and_answer(recorded: InMemorySpanExporter) -> None:
    @agenttrace.model(provider="openai")
    def ask(model: str, messages: list[Any], tools: list[Any] | None = None) -> dict[str, Any]:
        return {
            "id": "c-1",
            "model": "gpt-4o-2024",
            "choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 2},
        }

    ask("gpt-4o", [{"role": "user", "content": "hello"}], tools=[add])
    said = attributes(only(recorded))
    assert only(recorded).name == "chat ask"
    assert said["gen_ai.request.model"] == "gpt-4o"
    assert said["gen_ai.response.model"] == "gpt-4o-2024"
    assert said["gen_ai.provider.name"] == "openai"
    assert json.loads(said["gen_ai.tool.definitions"]) == [{"type": "function", "name": "add", "description": "Adds."}]
    assert json.loads(said["gen_ai.input.messages"]) == [
        {"role": "user", "parts": [{"type": "text", "content": "hello"}]}
    ]
    assert json.loads(said["gen_ai.output.messages"]) == [
        {"role": "assistant", "parts": [{"type": "text", "content": "hi"}]}
    ]
    assert (said["gen_ai.usage.input_tokens"], said["gen_ai.usage.output_tokens"]) == (7, 2)
    assert said["gen_ai.response.finish_reasons"] == ("stop",)


def test_a_model_that_streams(recorded: InMemorySpanExporter) -> None:
    @agenttrace.model("gpt-4o")
    def ask(prompt: str) -> Iterator[str]:
        yield "he"
        yield "llo"

    assert "".join(ask("x")) == "hello"
    said = attributes(only(recorded))
    assert only(recorded).name == "chat gpt-4o"
    assert json.loads(said["gen_ai.output.messages"])[0]["parts"] == [{"type": "text", "content": "hello"}]
    assert said["gen_ai.response.time_to_first_chunk"] >= 0


def test_redaction_can_be_switched_off(recorded: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch) -> None:
    @agenttrace.tool
    def mail(to: str) -> str:
        return to

    mail("bob@example.com")
    monkeypatch.setenv("AGENTTRACE_REDACT", "off")
    mail("bob@example.com")
    hidden, shown = recorded.get_finished_spans()
    assert arguments(hidden) == {"to": "[REDACTED]"}
    assert result(hidden) == "[REDACTED]"
    assert "agenttrace.tool.arguments_hash" in attributes(hidden)
    assert arguments(shown) == {"to": "bob@example.com"}
    assert "agenttrace.tool.arguments_hash" not in attributes(shown)
