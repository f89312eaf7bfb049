"""Readers of spans that a tracer provider recorded in memory, for the tests of the instrumentation."""

import json
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


def only(recorded: InMemorySpanExporter) -> ReadableSpan:
    (span,) = recorded.get_finished_spans()
    return span


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def arguments(span: ReadableSpan) -> Any:
    return json.loads(attributes(span)["gen_ai.tool.call.arguments"])


def result(span: ReadableSpan) -> Any:
    return json.loads(attributes(span)["gen_ai.tool.call.result"])


def by_name(recorded: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name.split()[-1]: span for span in recorded.get_finished_spans()}


def is_child(child: ReadableSpan, parent: ReadableSpan) -> bool:
    assert parent.context is not None
    return child.parent is not None and child.parent.span_id == parent.context.span_id
