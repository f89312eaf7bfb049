"""Context managers for code without a function to decorate: a run, a tool call, a model call."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, cast

import orjson
from opentelemetry import context
from opentelemetry.util.types import AttributeValue

from agenttrace import semconv
from agenttrace.canonical import kept_apart
from agenttrace.encode import MESSAGES_LIMIT_BYTES, clean_text, encode
from agenttrace.guard import guarded, report, warn_once
from agenttrace.kinds import argument_attributes, result_attributes, tool_attributes
from agenttrace.messages import request_attributes
from agenttrace.recording import (
    Attributes,
    Place,
    Recording,
    open_run,
    record_start,
    start,
)
from agenttrace.redact import current_redaction
from agenttrace.responses import read_response, response_attributes


class _Block(ABC):
    """A span around a `with` block; without a tracer provider it does nothing."""

    def __init__(self) -> None:
        self._recording: Recording | None = None
        self._place: Place | None = None

    @abstractmethod
    def _start(self) -> Recording | None: ...

    def __enter__(self) -> Self:
        recording = self._recording = self._start()
        if recording is not None:
            self._place = Place(recording.context)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        recording, place = self._recording, self._place
        self._recording = self._place = None
        if recording is None or place is None:
            return
        place.leave()
        if error is None:
            recording.end()
        else:
            recording.fail(error)

    def _set(self, attributes: Callable[[], Mapping[str, AttributeValue]], doing: str) -> None:
        """Adds attributes, which are made only where somebody records them."""
        if self._recording is None or not self._recording.is_recording:
            return
        try:
            self._recording.span.set_attributes(attributes())
        except BaseException as error:
            report(doing, error)


class Run(_Block):
    """A run of an agent, as `agenttrace.run` gives it."""

    def __init__(self, name: str, given: Mapping[str, object], user_input: object) -> None:
        super().__init__()
        self._name = name
        self._given = given
        self._user_input = user_input

    def _start(self) -> Recording | None:
        return _start_run(self._name, self._given, self._user_input)

    def state(self, *, initial: object = None, final: object = None) -> None:
        """Records the state of the world before or after the run, any value that JSON can say."""
        states = {semconv.INITIAL_STATE: initial, semconv.FINAL_STATE: final}
        self._set(
            lambda: {
                key: encode(value, limit_bytes=MESSAGES_LIMIT_BYTES, redact=current_redaction()).text
                for key, value in states.items()
                if value is not None
            },
            "record a state",
        )

    @guarded("record a thought", against=BaseException)
    def thought(self, text: str) -> None:
        """Records why the agent does what it does next."""
        if self._recording is not None and self._recording.is_recording:
            thought = clean_text(text, redact=current_redaction())
            self._recording.span.add_event(semconv.THOUGHT, {semconv.THOUGHT: thought})

    def respond(self, response: object) -> None:
        """Records the final response of the run; a value that is no text as its JSON."""
        self._set(
            lambda: {semconv.FINAL_RESPONSE: clean_text(response, redact=current_redaction())}, "record a response"
        )


class ToolCall(_Block):
    """A tool call, as `agenttrace.tool_call` gives it."""

    def __init__(
        self,
        name: str,
        arguments: Mapping[str, object] | str | None,
        mutates: bool | None,
        call_id: str | None,
        idempotency_key: str | None,
    ) -> None:
        super().__init__()
        self._name = name
        self._arguments = arguments
        self._mutates = mutates
        self._call_id = call_id
        self._idempotency_key = idempotency_key

    @guarded("start a tool call")
    def _start(self) -> Recording | None:
        name = clean_text(self._name, redact=current_redaction())
        attributes = {semconv.OPERATION: semconv.EXECUTE_TOOL, **tool_attributes(name, self._mutates)}
        if self._call_id is not None:
            attributes[semconv.TOOL_CALL_ID] = clean_text(self._call_id)
        recording = start(f"{semconv.EXECUTE_TOOL} {name}", attributes)
        if recording is not None:
            recording.set(self._argument_attributes(recording) or {})
            if self._mutates:
                record_start(recording)
        return recording

    @guarded("record arguments", against=BaseException)
    def _argument_attributes(self, recording: Recording) -> Attributes | None:
        if self._arguments is None or not recording.is_recording:
            return None
        arguments = _as_mapping(self._arguments)
        if self._idempotency_key is not None and self._idempotency_key not in arguments:
            warn_once(
                f"idempotency key of {self._name}",
                "agenttrace: tool_call(%r, idempotency_key=...) names an argument, and %r is none of this call.",
                self._name,
                self._idempotency_key,
            )
        return argument_attributes(arguments, (), self._idempotency_key, recording.redact)

    def record(self, result: object) -> None:
        """Records what the tool gave back."""
        self._set(lambda: result_attributes(encode(result, redact=current_redaction())), "record a result")


def _as_mapping(arguments: object) -> Mapping[str, object]:
    """Returns arguments by name; what a model wrote and is no JSON object stands under `input`."""
    given = arguments
    if issubclass(type(given), str):
        with suppress(orjson.JSONDecodeError):
            given = orjson.loads(str.__str__(cast("str", given)))
    return cast("Mapping[str, object]", given) if issubclass(type(given), Mapping) else {"input": arguments}


class ModelCall(_Block):
    """A model call, as `agenttrace.model_call` gives it."""

    def __init__(self, model: str, provider: str | None, messages: object, tools: object) -> None:
        super().__init__()
        self._model = model
        self._provider = provider
        self._messages = messages
        self._tools = tools

    @guarded("start a model call")
    def _start(self) -> Recording | None:
        model = clean_text(self._model, redact=current_redaction())
        attributes: Attributes = {semconv.OPERATION: semconv.CHAT, semconv.REQUEST_MODEL: model}
        if self._provider is not None:
            attributes[semconv.PROVIDER] = clean_text(self._provider)
        recording = start(f"{semconv.CHAT} {model}", attributes)
        if recording is not None:
            recording.set(self._request_attributes(recording) or {})
        return recording

    @guarded("record messages", against=BaseException)
    def _request_attributes(self, recording: Recording) -> Attributes | None:
        if not recording.is_recording:
            return None
        return request_attributes(self._messages, self._tools, redact=current_redaction())

    def record(
        self,
        output: object = None,
        *,
        tool_calls: object = None,
        thought: str | None = None,
        model: str | None = None,
        response_id: str | None = None,
        finish_reason: str | None = None,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        cached_input_tokens: int | None = None,
        cache_write_tokens: int | None = None,
        reasoning_tokens: int | None = None,
        cost_usd: float | None = None,
    ) -> None:
        """Records what the model answered.

        Args:
            output: Text, a message, or the whole response of OpenAI, Anthropic or Gemini, whose usage is read too.
            tool_calls: Requested calls, `{"id", "name", "arguments"}` each, or as the provider gives them.
            thought: Reasoning text.
            model: Model that answered, where it is not the one asked for.
            response_id: Id that the provider gave the response.
            finish_reason: Why the model stopped.
            input_tokens: Cached ones included.
            output_tokens: Reasoning included.
            cached_input_tokens: Part of the input that came from the cache.
            cache_write_tokens: Part of the input that went into the cache.
            reasoning_tokens: Part of the output.
            cost_usd: What the provider charged, where it says so; else it is computed from the tokens.
        """
        stated = {
            name: value for name, value in locals().items() if name not in ("self", "output") and value is not None
        }
        self._set(lambda: _answer_attributes(output, stated), "record a model's answer")


def _answer_attributes(output: object, stated: Mapping[str, Any]) -> Attributes:
    redact = current_redaction()
    return response_attributes(read_response(output, redact)._replace(**stated), redact)


@guarded("start a run")
def _start_run(name: str, given: Mapping[str, object], user_input: object) -> Recording | None:
    redact = current_redaction()
    within = context.get_current()
    name = clean_text(name, redact=redact)
    stated: Attributes = {semconv.AGENT_NAME: name}
    for key, value in given.items():
        if value is not None:
            is_trial = key == semconv.TRIAL and type(value) is int
            stated[key] = value if is_trial else kept_apart(value, redact)  # pyright: ignore[reportArgumentType]
    recording = start(f"{semconv.INVOKE_AGENT} {name}", {semconv.OPERATION: semconv.INVOKE_AGENT, **stated})
    if recording is None:
        return None
    if user_input is not None and recording.is_recording:
        recording.set({semconv.USER_INPUT: clean_text(user_input, redact=redact)})
    open_run(recording, stated, within=within)
    return recording


def run(
    name: str,
    *,
    user_input: str | None = None,
    session_id: str | None = None,
    user_id: str | None = None,
    tenant_id: str | None = None,
    task_id: str | None = None,
    trial: int | None = None,
) -> Run:
    """Opens a run of an agent: everything recorded inside belongs to it.

    Args:
        name: Name of the agent.
        user_input: What the user asked.
        session_id: Session or conversation that the run is a turn of.
        user_id: End user.
        tenant_id: Tenant.
        task_id: Task that the run attempts.
        trial: Number of the attempt.
    """
    given = {
        semconv.CONVERSATION_ID: session_id,
        semconv.USER_ID: user_id,
        semconv.TENANT_ID: tenant_id,
        semconv.TASK_ID: task_id,
        semconv.TRIAL: trial,
    }
    return Run(name, given, user_input)


def tool_call(
    name: str,
    arguments: Mapping[str, object] | str | None = None,
    *,
    mutates: bool | None = None,
    call_id: str | None = None,
    idempotency_key: str | None = None,
) -> ToolCall:
    """Opens a tool call; `record` takes its result, an exception is recorded and passes.

    Args:
        name: Name of the tool.
        arguments: Arguments by name, or the JSON text that the model wrote.
        mutates: Whether the call changes the world; None: not said.
        call_id: Id that the model gave the call.
        idempotency_key: Name of the argument that holds the idempotency key.
    """
    return ToolCall(name, arguments, mutates, call_id, idempotency_key)


def model_call(model: str, *, provider: str | None = None, messages: object = None, tools: object = None) -> ModelCall:
    """Opens a model call; `record` takes its answer.

    Args:
        model: Model asked for.
        provider: As in "openai".
        messages: What the model was given: a text, or messages as OpenAI, Anthropic, Gemini or OpenTelemetry have them.
        tools: What it was offered: definitions in those forms, names, or functions.
    """
    return ModelCall(model, provider, messages, tools)
