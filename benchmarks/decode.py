"""OTLP request -> rows, as a multiple of the bare parse of the same bytes in the same run.

Run: `python benchmarks/decode.py`. Targets (processor time): protobuf at most 14 times the bare upb parse.
"""

import gc
import json
import time
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from agenttrace.collectors.decode import decode_traces_protobuf
from agenttrace.collectors.decode_json import decode_json

SPANS = 8_192
TRACES = Path(__file__).parent.parent / "tests" / "traces"
TARGET_RATIO = 14.0


def request(spans: int) -> ExportTraceServiceRequest:
    """Spans of an agent: two in three are tool calls with 9 attributes, the rest model calls with messages."""
    message = ExportTraceServiceRequest()
    group = message.resource_spans.add()
    group.resource.attributes.add(key="service.name").value.string_value = "shop"
    part = group.scope_spans.add()
    part.scope.name = "agenttrace"
    for number in range(spans):
        span = part.spans.add(name="execute_tool place_order", kind=1)
        span.trace_id = (number // 20 + 1).to_bytes(16)
        span.span_id = (number + 1).to_bytes(8)
        span.parent_span_id = (number // 20 + 1).to_bytes(8)
        span.start_time_unix_nano = 1_790_000_000_000_000_000 + number
        span.end_time_unix_nano = 1_790_000_000_000_500_000 + number
        texts = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "place_order",
            "gen_ai.tool.call.id": f"call_{number}",
            "gen_ai.agent.name": "restock",
            "gen_ai.conversation.id": f"s-{number // 40}",
            "gen_ai.tool.call.arguments": json.dumps({"item": "rice", "qty": number, "note": "café " * 8}),
            "gen_ai.tool.call.result": json.dumps({"order": number, "state": "open"}),
        }
        if number % 3 == 0:
            texts["gen_ai.input.messages"] = json.dumps([{"role": "user", "content": "order rice " * 20}] * 6)
        for key, text in texts.items():
            span.attributes.add(key=key).value.string_value = text
        span.attributes.add(key="gen_ai.usage.input_tokens").value.int_value = number
        span.attributes.add(key="agenttrace.tool.mutates").value.bool_value = True
    return message


def seconds(*works: Callable[[], object], repeats: int = 7) -> list[float]:
    """Best processor time of each work; in turns, so that a busy machine slows all of them."""
    best = [float("inf")] * len(works)
    for _ in range(repeats):
        for index, work in enumerate(works):
            gc.collect()
            started = time.process_time()
            work()
            best[index] = min(best[index], time.process_time() - started)
    return best


def otlp_json(value: Any) -> Any:
    """Turns protobuf's JSON into OTLP's: ids in hex, enums as numbers."""
    if isinstance(value, list):
        return [otlp_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    ids = ("traceId", "spanId", "parentSpanId")
    return {key: b64decode(item).hex() if key in ids else otlp_json(item) for key, item in value.items()}


def main() -> None:
    """Prints the ratios."""
    bodies = [path.read_bytes() for path in sorted(TRACES.glob("*.pb"))]
    compare("recorded requests, one at a time", bodies * 50)
    compare(f"one request of {SPANS} short spans", [request(SPANS).SerializeToString()])


def compare(name: str, bodies: list[bytes]) -> None:
    """Prints the ratios of some requests."""
    messages = [ExportTraceServiceRequest.FromString(body) for body in bodies]
    texts = [orjson.dumps(otlp_json(MessageToDict(message, use_integers_for_enums=True))) for message in messages]
    parse, decode, load, decode_text = seconds(
        lambda: each(ExportTraceServiceRequest.FromString, bodies),
        lambda: each(decode_traces_protobuf, bodies),
        lambda: each(orjson.loads, texts),
        lambda: each(decode_json, texts),
    )
    print(f"{name}: {sum(map(len, bodies)):,} bytes protobuf, {sum(map(len, texts)):,} bytes JSON")
    print(f"  upb parse alone     {parse * 1e3:7.1f} ms   1.00")
    print(f"  protobuf -> rows    {decode * 1e3:7.1f} ms  {decode / parse:5.2f}   (target <= {TARGET_RATIO})")
    print(f"  orjson.loads alone  {load * 1e3:7.1f} ms   1.00")
    print(f"  OTLP JSON -> rows   {decode_text * 1e3:7.1f} ms  {decode_text / load:5.2f}")


def each(work: Callable[[bytes], object], bodies: list[bytes]) -> None:
    """Does the work on each body, and keeps nothing, as a receiver does."""
    for body in bodies:
        work(body)


if __name__ == "__main__":
    main()
