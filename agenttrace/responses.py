"""What a model call gave back, in the shapes of OpenAI, Anthropic and Gemini, -> answer, usage, finish reason.

Tokens follow the GenAI conventions: cached ones are part of the input, reasoning is part of the output. Sources: the
providers' API references (chat completions, responses, messages, generateContent), checked 2026-11.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast

from agenttrace import semconv
from agenttrace.encode import clean_text
from agenttrace.messages import output_message, plain, to_json
from agenttrace.recording import Attributes
from agenttrace.redact import Redactor

_Plain = dict[str, Any]


class Response(NamedTuple):
    """One answer of a model; None is what it does not say."""

    output: object = None
    tool_calls: object = None
    thought: object = None
    model: str | None = None
    response_id: str | None = None
    finish_reason: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_usd: float | None = None
    time_to_first_chunk_s: float | None = None


_KEYS: Final = {
    "model": semconv.RESPONSE_MODEL,
    "response_id": semconv.RESPONSE_ID,
    "input_tokens": semconv.INPUT_TOKENS,
    "output_tokens": semconv.OUTPUT_TOKENS,
    "cached_input_tokens": semconv.CACHED_INPUT_TOKENS,
    "cache_write_tokens": semconv.CACHE_WRITE_TOKENS,
    "reasoning_tokens": semconv.REASONING_TOKENS,
    "cost_usd": semconv.COST,
    "time_to_first_chunk_s": semconv.TIME_TO_FIRST_CHUNK,
}


def response_attributes(response: Response, redact: Redactor | None) -> Attributes:
    """Returns the attributes of an answer; what it does not say is left out."""
    message = output_message(response.output, response.tool_calls, response.thought, redact)
    attributes: Attributes = {semconv.OUTPUT_MESSAGES: to_json([message])} if message["parts"] else {}
    for name, key in _KEYS.items():
        value = getattr(response, name)
        if (shown := _scalar(value, redact)) is not None:
            attributes[key] = shown
    if type(reason := _scalar(response.finish_reason, redact)) is str:
        attributes[semconv.FINISH_REASONS] = [reason]
    return attributes


def _scalar(value: object, redact: Redactor | None) -> str | int | float | None:
    """Returns a number or text of exactly the built-in type: a subclass of them would be a user's code in a span."""
    kind = type(value)
    if issubclass(kind, str):
        return clean_text(value, redact=redact)
    if issubclass(kind, (int, float)) and kind is not bool:
        return int.__int__(cast("int", value)) if issubclass(kind, int) else float.__float__(cast("float", value))
    return None


def read_response(result: object, redact: Redactor | None) -> Response:
    """Recognises a provider's response by its shape; anything else is the output itself."""
    if result is None or type(result) is str:
        return Response(output=result)
    said = plain(result, redact)
    if not isinstance(said, dict):
        return Response(output=said)
    body = cast("_Plain", said)
    for read in (_read_chat_completion, _read_anthropic, _read_openai_response, _read_gemini):
        response = read(body)
        if response is not None:
            return response
    return Response(output=body)


def _read_chat_completion(body: _Plain) -> Response | None:
    choice = _first(body.get("choices"))
    if choice is None or not isinstance(choice.get("message"), dict):
        return None
    usage = _section(body, "usage")
    return Response(
        output=choice["message"],
        thought=choice["message"].get("reasoning_content"),
        finish_reason=choice.get("finish_reason"),
        input_tokens=usage.get("prompt_tokens"),
        output_tokens=usage.get("completion_tokens"),
        cached_input_tokens=_section(usage, "prompt_tokens_details").get("cached_tokens"),
        reasoning_tokens=_section(usage, "completion_tokens_details").get("reasoning_tokens"),
        **_identity(body),
    )


def _read_anthropic(body: _Plain) -> Response | None:
    if not isinstance(body.get("content"), list) or body.get("type") != "message":
        return None
    usage = _section(body, "usage")
    cached, written = usage.get("cache_read_input_tokens"), usage.get("cache_creation_input_tokens")
    fresh = usage.get("input_tokens")
    return Response(
        output={"role": "assistant", "content": body["content"]},
        finish_reason=body.get("stop_reason"),
        # Anthropic counts cached tokens beside the input.
        input_tokens=_sum(fresh, cached, written),
        output_tokens=usage.get("output_tokens"),
        cached_input_tokens=cached,
        cache_write_tokens=written,
        **_identity(body),
    )


def _read_openai_response(body: _Plain) -> Response | None:
    if not isinstance(body.get("output"), list) or body.get("object") != "response":
        return None
    parts: list[Any] = []
    for item in cast("list[Any]", body["output"]):
        is_message = isinstance(item, dict) and cast("_Plain", item).get("type") == "message"
        content = cast("_Plain", item).get("content") if is_message else None
        parts += cast("list[Any]", content) if isinstance(content, list) else [item]
    usage = _section(body, "usage")
    return Response(
        output={"role": "assistant", "content": parts},
        finish_reason=body.get("status"),
        input_tokens=usage.get("input_tokens"),
        output_tokens=usage.get("output_tokens"),
        cached_input_tokens=_section(usage, "input_tokens_details").get("cached_tokens"),
        reasoning_tokens=_section(usage, "output_tokens_details").get("reasoning_tokens"),
        **_identity(body),
    )


def _read_gemini(body: _Plain) -> Response | None:
    candidate = _first(body.get("candidates"))
    if candidate is None or not isinstance(candidate.get("content"), dict):
        return None
    usage = _section(body, "usage_metadata")
    thoughts = usage.get("thoughts_token_count")
    return Response(
        output={"role": "assistant", "parts": candidate["content"].get("parts") or []},
        model=body.get("model_version"),
        response_id=body.get("response_id"),
        finish_reason=candidate.get("finish_reason"),
        input_tokens=usage.get("prompt_token_count"),
        output_tokens=_sum(usage.get("candidates_token_count"), thoughts),
        cached_input_tokens=usage.get("cached_content_token_count"),
        reasoning_tokens=thoughts,
    )


def _identity(body: _Plain) -> Mapping[str, Any]:
    return {"model": body.get("model"), "response_id": body.get("id")}


def _sum(count: Any, *parts: Any) -> int | None:
    """Adds to a count what is given as a number."""
    return sum(part for part in parts if type(part) is int) + count if type(count) is int else None


def _section(body: _Plain, name: str) -> _Plain:
    value = body.get(name)
    return cast("_Plain", value) if isinstance(value, dict) else {}


def _first(values: Any) -> _Plain | None:
    first = cast("list[Any]", values)[0] if isinstance(values, list) and values else None
    return cast("_Plain", first) if isinstance(first, dict) else None
