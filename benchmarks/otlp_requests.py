"""OTLP requests as an agent's exporter sends them: runs of 20 spans, with words drawn at random.

Every request of a template has ids and times of its own, so that what was acknowledged can be looked for: its number is
the first half of a span id, and the beginning of a trace id.
"""

import json
import random
import time
from base64 import b64decode
from collections.abc import Iterator
from typing import Any, Literal

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

RUN = 20
_draw = random.Random(1)
_WORDS = ["".join(_draw.choices("aeiourstlnmd", k=5)) for _ in range(2_000)]
# Where the number of a request, which begins its trace and span ids, and its time stand in the JSON of a template.
_NUMBER, _SECONDS = 0xEEEEEEEE, "1" * 10

Encoding = Literal["protobuf", "json"]


def request(spans: int, seed: int = 0) -> ExportTraceServiceRequest:
    """Makes runs of an agent, one span in two a model call that is sent the history, the other a tool call."""
    draw = random.Random(seed)
    message = ExportTraceServiceRequest()
    group = message.resource_spans.add()
    group.resource.attributes.add(key="service.name").value.string_value = "shop"
    part = group.scope_spans.add()
    part.scope.name = "agents"
    for number in range(spans):
        run, place = divmod(number, RUN)
        texts, tokens = _attributes(place, draw)
        span = part.spans.add(name=f"{texts['gen_ai.operation.name']} shop", kind=1)
        span.trace_id = (run + 1).to_bytes(16)
        span.span_id = (number + 1).to_bytes(8)
        if place:
            span.parent_span_id = (run * RUN + 1).to_bytes(8)
        span.start_time_unix_nano = 1_111_111_111_000_000_000 + place * 40_000_000
        span.end_time_unix_nano = span.start_time_unix_nano + (30_000_000 if place else 900_000_000)
        for key, text in texts.items():
            span.attributes.add(key=key).value.string_value = text
        for key, count in tokens.items():
            span.attributes.add(key=key).value.int_value = count
    return message


def _attributes(place: int, draw: random.Random) -> tuple[dict[str, str], dict[str, int]]:
    def words(count: int) -> str:
        return " ".join(draw.choices(_WORDS, k=count))

    if place == 0:
        return {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "shop"}, {}
    if place % 2 == 0:
        return {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "check_stock",
            "gen_ai.tool.call.id": f"call_{place}",
            "gen_ai.tool.call.arguments": json.dumps({"item": words(1), "qty": place, "note": words(8)}),
            "gen_ai.tool.call.result": json.dumps({"bags": draw.randrange(1_000), "text": words(12)}),
        }, {}
    call = {"type": "tool_call", "id": f"call_{place + 1}", "name": "check_stock", "arguments": {"item": words(1)}}
    history = [{"role": "user", "parts": [{"type": "text", "content": words(12)}]} for _ in range(place // 2 + 1)]
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.input.messages": json.dumps(history),
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [call]}]),
    }, {"gen_ai.usage.input_tokens": 100 * place, "gen_ai.usage.output_tokens": 20}


def spans_of(message: ExportTraceServiceRequest) -> Iterator[Any]:
    """Yields the spans of a request."""
    for group in message.resource_spans:
        for part in group.scope_spans:
            yield from part.spans


def otlp_json(message: ExportTraceServiceRequest) -> str:
    """Returns a request in OTLP's JSON, which has its ids in hex."""
    document = MessageToDict(message, use_integers_for_enums=True)
    for group in document["resourceSpans"]:
        for part in group["scopeSpans"]:
            for span in part["spans"]:
                for key in ("traceId", "spanId", "parentSpanId"):
                    if key in span:
                        span[key] = b64decode(span[key]).hex()
    return json.dumps(document)


class Bodies:
    """Makes the body of each request from one template."""

    def __init__(self, spans: int, encoding: Encoding) -> None:
        self._message = request(spans)
        self._spans = list(spans_of(self._message))
        self._ids = [(span.trace_id[4:], span.span_id[4:], span.parent_span_id[4:]) for span in self._spans]
        self._offsets = [
            (span.start_time_unix_nano % 1_000_000_000, span.end_time_unix_nano % 1_000_000_000) for span in self._spans
        ]
        self._text = ""
        if encoding == "json":
            self._stamp(_NUMBER, int(_SECONDS))
            self._text = otlp_json(self._message)

    def body(self, number: int) -> bytes:
        """Returns the body of one request, with runs that end at present."""
        seconds = int(time.time())
        if self._text:
            text = self._text.replace(f'"{_NUMBER:08x}', f'"{number:08x}').replace(f'"{_SECONDS}', f'"{seconds}')
            return text.encode()
        self._stamp(number, seconds)
        return self._message.SerializeToString()

    def _stamp(self, number: int, seconds: int) -> None:
        head, base = number.to_bytes(4), seconds * 1_000_000_000
        for span, (trace_id, id_, parent), (start, end) in zip(self._spans, self._ids, self._offsets, strict=True):
            span.trace_id, span.span_id = head + trace_id, head + id_
            if parent:
                span.parent_span_id = head + parent
            span.start_time_unix_nano, span.end_time_unix_nano = base + start, base + end
