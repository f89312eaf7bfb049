"""A tool call under a peer's decorator against the same span written by hand, in that peer's own environment.

Run there: `python benchmarks/peer_calls.py NAME [ROUNDS [CALLS]]`, which needs nothing but the peer and OpenTelemetry's
SDK; `peers.py` makes the environments. Each peer is set up by its own documentation, sends nothing, and its spans end
in an exporter or processor that drops them. Printed as JSON: seconds of each round, and one span as it was recorded.
"""

import gc
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from baseline_call import Calls, by_hand, decorated, run
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

KINDS = ("function", "coroutine")
_last: list[ReadableSpan] = []


class DropSpans(SpanProcessor):
    """Spans end here."""

    def on_end(self, span: ReadableSpan) -> None:
        _last[:] = [span]


class DropExported(SpanExporter):
    """The same behind a peer's own processor."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        _last[:] = spans[-1:]
        return SpanExportResult.SUCCESS


def agenttrace() -> Callable[[Any], Any]:
    from opentelemetry import trace

    import agenttrace

    trace.set_tracer_provider(_provider())
    return agenttrace.tool


def openinference() -> Callable[[Any], Any]:
    from openinference.instrumentation import TracerProvider as OpenInferenceProvider

    provider = OpenInferenceProvider()
    provider.add_span_processor(DropSpans())
    return provider.get_tracer("peers").tool


def traceloop() -> Callable[[Any], Any]:
    from traceloop.sdk import Traceloop
    from traceloop.sdk.decorators import tool

    Traceloop.init("peers", processor=DropSpans(), telemetry_enabled=False, instruments=set())
    return tool()


def logfire() -> Callable[[Any], Any]:
    import logfire

    logfire.configure(send_to_logfire=False, console=False, metrics=False, additional_span_processors=[DropSpans()])
    return logfire.instrument("place_order", extract_args=True, record_return=True, allow_generator=True)


def langfuse() -> Callable[[Any], Any]:
    from langfuse import Langfuse, observe

    Langfuse(public_key="pk-none", secret_key="sk-none", base_url="http://127.0.0.1:9", span_exporter=DropExported())
    return observe(as_type="tool")


def mlflow() -> Callable[[Any], Any]:
    import mlflow
    from mlflow.tracing.processor.otel import OtelSpanProcessor
    from mlflow.tracing.provider import provider as own

    # Its mode for OTLP, with its own processor; to its own server it writes each trace with several requests.
    own.set(provider := TracerProvider())
    own.once._done = True
    provider.add_span_processor(OtelSpanProcessor(DropExported(), export_metrics=False))
    return mlflow.trace(span_type="TOOL")


PEERS = {peer.__name__: peer for peer in (agenttrace, openinference, traceloop, logfire, langfuse, mlflow)}


def _provider() -> TracerProvider:
    provider = TracerProvider()
    provider.add_span_processor(DropSpans())
    return provider


def seconds(calls: Calls, kind: str, count: int) -> tuple[float, float]:
    """Processor and wall time of a call."""
    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    run(calls, kind, count)
    return (time.process_time() - cpu) / count, (time.perf_counter() - wall) / count


def example(calls: Calls) -> dict[str, Any]:
    """What the decorator recorded of one call."""
    _last.clear()
    run(calls, "function", 1)
    deadline = time.monotonic() + 20
    while not _last and time.monotonic() < deadline:
        time.sleep(0.1)
    return {"name": _last[0].name, "attributes": dict(_last[0].attributes or {})}


def main(name: str, rounds: int = 15, count: int = 500) -> dict[str, Any]:
    """Measures one peer; returns what is printed."""
    base, theirs = by_hand(_provider().get_tracer("peers")), decorated(PEERS[name]())
    found: dict[str, Any] = {"example": example(theirs)}
    for kind in KINDS:
        run(theirs, kind, count)
        rounds_s = [(seconds(base, kind, count), seconds(theirs, kind, count)) for _ in range(rounds)]
        found[kind] = {"by hand": [base for base, _ in rounds_s], "decorated": [own for _, own in rounds_s]}
    return found


if __name__ == "__main__":
    result = json.dumps(main(sys.argv[1], *map(int, sys.argv[2:])), default=str)
    sys.stdout.write(result + "\n")
    sys.stdout.flush()
    # Some peers wait at exit for a server that is not there.
    os._exit(0)
