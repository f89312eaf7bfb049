"""A decorated tool call against a hand-written SDK span with 6 attributes and json.dumps, which is 1.00.

Rounds of both are interleaved, and the median of the rounds' ratios of processor time is printed, so that a busy
machine slows both alike. Targets: at most 0.70 with redaction off, at most 1.5 with its defaults.

    python benchmarks/decorated_call.py
"""

import json
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider

import agenttrace

CALLS = 1000
ROUNDS = 41


class Discard(SpanProcessor):
    """Spans end here: exporting is another benchmark."""

    def on_end(self, span: ReadableSpan) -> None:
        pass


trace.set_tracer_provider(provider := TracerProvider())
provider.add_span_processor(Discard())
tracer = trace.get_tracer("benchmark")


def place_order(item: str, qty: int, note: str, request_id: str | None = None) -> dict[str, Any]:
    return {"order_id": "PO-1", "item": item, "qty": qty, "eta_days": 3, "status": "open", "total": 812.5}


def by_hand(item: str, qty: int, note: str, request_id: str | None = None) -> dict[str, Any]:
    with tracer.start_as_current_span("execute_tool place_order") as span:
        span.set_attribute("gen_ai.operation.name", "execute_tool")
        span.set_attribute("gen_ai.tool.name", "place_order")
        span.set_attribute("gen_ai.tool.type", "function")
        span.set_attribute("gen_ai.tool.call.id", "call_1")
        arguments = {"item": item, "qty": qty, "note": note, "request_id": request_id}
        span.set_attribute("gen_ai.tool.call.arguments", json.dumps(arguments))
        result = place_order(item, qty, note, request_id)
        span.set_attribute("gen_ai.tool.call.result", json.dumps(result))
        return result


decorated = agenttrace.tool(place_order)


def cost(function: Callable[..., Any]) -> float:
    start = time.process_time_ns()
    for _ in range(CALLS):
        function("rice", 40, "deliver to the back door before noon", request_id="r-17")
    return (time.process_time_ns() - start) / CALLS / 1000


def ratio(redaction: str) -> tuple[float, float]:
    os.environ["AGENTTRACE_REDACT"] = redaction
    rounds = [(cost(by_hand), cost(decorated)) for _ in range(ROUNDS)]
    return statistics.median(ours / base for base, ours in rounds), statistics.median(base for base, _ in rounds)


def main() -> None:
    for redaction, target in (("off", 0.70), ("default", 1.5)):
        measured, base_us = ratio(redaction)
        print(f"redaction {redaction:8} {measured:.2f} (target {target:.2f}; 1.00 = {base_us:.1f} us)")


if __name__ == "__main__":
    main()
