"""OTLP protobuf bodies -> span and log rows; pure, shared by the receiver and the file readers.

`decode_json.py` does the same for OTLP JSON, and one request gives equal rows in either encoding. A record that cannot
be stored is reported with its place and skipped; the rest of the request lands.
"""

import gc
import math
from base64 import b64encode
from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.proto.resource.v1.resource_pb2 import Resource as ResourceMessage
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from agenttrace.collectors.agent_events import step_row
from agenttrace.collectors.wire import Signal, TooManyPartsError
from agenttrace.errors import DecodeError
from agenttrace.spans import LogRow, SpanRow, hot_values, new_row

MAX_DEPTH = 64
MAX_PARTS = 1 << 21
"""Most groups, records, events and links of one request; few bytes can hold millions of empty ones."""
MAX_SHARED_BYTES = 128 << 20
"""Most bytes that the attributes of resources and scopes may take when they stand beside every record."""
MAX_PROBLEMS = 1_000
TOO_DEEP = f"[nested deeper than {MAX_DEPTH} levels]"
TRACE_ID_BYTES = 16
SPAN_ID_BYTES = 8
SPAN_KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")
STATUS_CODES = ("unset", "ok", "error")

_MAX_INT64 = 2**63 - 1
_EMPTY_LIST = "[]"
_NO_TRACE_ID = bytes(TRACE_ID_BYTES)
_NO_SPAN_ID = bytes(SPAN_ID_BYTES)
_UNSET: tuple[str, str | None] = STATUS_CODES[0], None
_KIND_NAMES = dict(enumerate(SPAN_KINDS))
_STATUS_NAMES = dict(enumerate(STATUS_CODES))

_TRACES = Signal(ExportTraceServiceRequest, ResourceSpans, ScopeSpans, Span, ("resource_spans", "scope_spans", "spans"))
_LOGS = Signal(
    ExportLogsServiceRequest, ResourceLogs, ScopeLogs, LogRecord, ("resource_logs", "scope_logs", "log_records")
)


@dataclass
class Decoded:
    """Rows of one or more requests, and what was wrong with them.

    Attributes:
        spans: Spans in the order of the request; also the steps that coding agents report as log records.
        logs: Log records that belong to a span, in the order of the request.
        problems: One text per skipped record: its place in the request and the reason; at most MAX_PROBLEMS.
        rejected_spans: Spans that were skipped.
        rejected_logs: Log records that were skipped.
        logs_without_span: Other log records with no trace or span id. They say nothing about a trajectory: left out.
        leniencies: What was taken although OTLP forbids it, and how often: {"base64 ids": 3}.
        shared_bytes: What the attributes of resources and scopes take where they stand beside every record.
    """

    spans: list[SpanRow] = field(default_factory=list[SpanRow])
    logs: list[LogRow] = field(default_factory=list[LogRow])
    problems: list[str] = field(default_factory=list[str])
    rejected_spans: int = 0
    rejected_logs: int = 0
    logs_without_span: int = 0
    leniencies: Counter[str] = field(default_factory=Counter[str])
    shared_bytes: int = field(default=0, compare=False)
    _parts: int = field(default=0, compare=False)

    def count(self, parts: int, max_parts: int) -> None:
        """Counts parts of a request.

        Raises:
            TooManyPartsError: There are too many of them.
        """
        self._parts += parts
        if self._parts > max_parts:
            raise TooManyPartsError(max_parts)

    def share(self, resource: "Resource", scope: "Scope") -> None:
        """Accounts for what each record gets a copy of.

        Raises:
            BadRecordError: The copies take too much room.
        """
        self.shared_bytes += len(resource.attributes) + len(scope.attributes)
        if self.shared_bytes > MAX_SHARED_BYTES:
            raise BadRecordError("the attributes of its resource and scope are too large to stand beside every record")

    def shares_all(self, resource: "Resource", scope: "Scope", records: int) -> bool:
        """Accounts for the copies of many records at once; False, and nothing accounted, where they take too much."""
        size = records * (len(resource.attributes) + len(scope.attributes))
        if self.shared_bytes + size > MAX_SHARED_BYTES:
            return False
        self.shared_bytes += size
        return True

    def reject(self, place: str, err: "BadRecordError", *, spans: int = 0, logs: int = 0) -> None:
        """Counts a skipped record."""
        self.rejected_spans += spans
        self.rejected_logs += logs
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(f"{place}: {err}")


class BadRecordError(DecodeError):
    """One span or log record cannot be stored; the decoder reports it with its place and goes on."""


class Resource(NamedTuple):
    """What the spans and log records of one resource share."""

    attributes: str
    service_name: str | None
    schema_url: str | None
    dropped_attributes_count: int


class Scope(NamedTuple):
    """What the spans and log records of one instrumentation scope share."""

    name: str | None
    version: str | None
    attributes: str
    schema_url: str | None
    dropped_attributes_count: int


@contextmanager
def collector_off() -> Generator[None]:
    """Keeps Python's cyclic collector from walking the many new containers again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@collector_off()
def decode_traces_protobuf(body: bytes, max_parts: int = MAX_PARTS) -> Decoded:
    """Decodes an ExportTraceServiceRequest.

    Raises:
        DecodeError: The body is not one, or has more than `max_parts`; nothing of it is used.
    """
    decoded = Decoded()
    for i, (group, parts) in enumerate(_TRACES.groups(body, max_parts)):
        decoded.count(1 + _weight(group.resource.attributes), max_parts)
        resource = _resource(group.resource, group.schema_url)
        for j, (part, spans) in enumerate(parts):
            decoded.count(1 + _weight(part.scope.attributes) + len(spans), max_parts)
            scope = _scope(part.scope, part.schema_url)
            fit = decoded.shares_all(resource, scope, len(spans))
            for k, span in enumerate(spans):
                # Every look at a repeated field makes an object, hence one look at each.
                attributes, events, links = span.attributes, span.events, span.links
                if more := len(events) + len(links) + _weight(attributes):
                    decoded.count(more, max_parts)
                try:
                    if not fit:
                        decoded.share(resource, scope)
                    decoded.spans.append(_span(span, attributes, events, links, resource, scope, decoded.leniencies))
                except BadRecordError as err:
                    decoded.reject(f"resourceSpans[{i}].scopeSpans[{j}].spans[{k}]", err, spans=1)
    return decoded


@collector_off()
def decode_logs_protobuf(body: bytes, max_parts: int = MAX_PARTS) -> Decoded:
    """Decodes an ExportLogsServiceRequest.

    Raises:
        DecodeError: The body is not one, or has more than `max_parts`; nothing of it is used.
    """
    decoded = Decoded()
    for i, (group, parts) in enumerate(_LOGS.groups(body, max_parts)):
        decoded.count(1 + _weight(group.resource.attributes), max_parts)
        resource = _resource(group.resource, group.schema_url)
        for j, (part, records) in enumerate(parts):
            decoded.count(1 + _weight(part.scope.attributes) + len(records), max_parts)
            scope = _scope(part.scope, part.schema_url)
            for k, record in enumerate(records):
                decoded.count(_weight(record.attributes), max_parts)
                try:
                    decoded.share(resource, scope)
                    take_log(decoded, *_log(record, resource, scope, decoded.leniencies))
                except BadRecordError as err:
                    decoded.reject(f"resourceLogs[{i}].scopeLogs[{j}].logRecords[{k}]", err, logs=1)
    return decoded


def take_log(decoded: Decoded, row: LogRow, attributes: Mapping[str, Any]) -> None:
    """Sorts a log record: a step of a coding agent, a record that belongs to a span, or neither."""
    step = step_row(row, attributes)
    if step is not None:
        decoded.spans.append(step)
    elif row.trace_id and row.span_id:
        decoded.logs.append(row)
    else:
        decoded.logs_without_span += 1


def resource_of(attributes: Mapping[str, Any], schema_url: str, dropped_attributes_count: int) -> Resource:
    """Encodes a resource once for all its records."""
    service_name = attributes.get("service.name")
    return Resource(
        json_text(attributes),
        service_name if isinstance(service_name, str) else None,
        schema_url or None,
        dropped_attributes_count,
    )


def name_of(names: Sequence[str], number: int) -> str:
    """Names an enum's number; one that OTLP does not know counts as the first, which means unspecified."""
    return names[number] if 0 <= number < len(names) else names[0]


def event_name_of(event_name: str, attributes: Mapping[str, Any]) -> str | None:
    """Picks the event name of a log record: its field, else the attribute that older SDKs and other exporters write."""
    older = attributes.get("event.name") or attributes.get("otel.event.name")
    return event_name or (older if isinstance(older, str) else None)


def id_text(raw: bytes, size: int, field_name: str, leniencies: Counter[str]) -> str:
    """Writes an id as lower-case hex; "" where it is absent or all zeros.

    Some exporters put the hex text where the bytes belong, which doubles the length; that is read as what was meant.

    Raises:
        BadRecordError: The id has another length.
    """
    if len(raw) == size:
        return raw.hex() if any(raw) else ""
    if len(raw) == 2 * size:
        try:
            raw = bytes.fromhex(raw.decode("ascii"))
        except ValueError:
            pass
        else:
            leniencies["ids as hex text inside bytes"] += 1
            return raw.hex() if any(raw) else ""
    if any(raw):
        raise BadRecordError(f"{field_name} has {len(raw)} bytes; expected {size}")
    return ""


def span_ids(trace_id: str, span_id: str, parent_span_id: str) -> tuple[str, str, str | None]:
    """Checks that a span can be told from others.

    Raises:
        BadRecordError: The trace id or the span id is absent or zero.
    """
    if not trace_id:
        raise BadRecordError("traceId is missing or zero; expected 16 bytes")
    if not span_id:
        raise BadRecordError("spanId is missing or zero; expected 8 bytes")
    return trace_id, span_id, parent_span_id or None


def checked_time(nanoseconds: int) -> int:
    """Passes a time that fits BIGINT.

    Raises:
        BadRecordError: It does not.
    """
    if nanoseconds > _MAX_INT64:
        raise BadRecordError(f"time {nanoseconds} is after the year 2262; expected nanoseconds since 1970")
    return nanoseconds


def json_text(value: object) -> str:
    """Writes strict JSON; the value holds no float that JSON cannot say, see `strict_double`."""
    return orjson.dumps(value).decode()


def strict_double(value: float) -> float | str:
    """Replaces the numbers that JSON lacks by the words that OTLP JSON uses for them."""
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _weight(attributes: Sequence[KeyValue]) -> int:
    # A request of the largest size has so many of them only where they are next to empty.
    return len(attributes) >> 4


def _resource(message: ResourceMessage, schema_url: str) -> Resource:
    return resource_of(_attributes(message.attributes), schema_url, message.dropped_attributes_count)


def _scope(message: InstrumentationScope, schema_url: str) -> Scope:
    return Scope(
        message.name or None,
        message.version or None,
        json_text(_attributes(message.attributes)),
        schema_url or None,
        message.dropped_attributes_count,
    )


def _span(
    span: Span,
    pairs: Iterable[KeyValue],
    events: Sequence[Span.Event],
    links: Sequence[Span.Link],
    resource: Resource,
    scope: Scope,
    leniencies: Counter[str],
) -> SpanRow:
    # Every span comes through here, and a call for each part of it would take a fifth of the time: hence in one piece.
    attributes: dict[str, Any] = {}
    for pair in pairs:
        value = pair.value
        attributes[pair.key] = value.string_value or value.int_value or value.bool_value or _rare_value(value, 0)
    trace_id, span_id, parent_id = span.trace_id, span.span_id, span.parent_span_id
    if (
        len(trace_id) == TRACE_ID_BYTES
        and len(span_id) == SPAN_ID_BYTES == len(parent_id or span_id)
        and trace_id != _NO_TRACE_ID
        and _NO_SPAN_ID not in (span_id, parent_id)
    ):
        ids = trace_id.hex(), span_id.hex(), parent_id.hex() or None
    else:
        ids = span_ids(
            id_text(trace_id, TRACE_ID_BYTES, "traceId", leniencies),
            id_text(span_id, SPAN_ID_BYTES, "spanId", leniencies),
            id_text(parent_id, SPAN_ID_BYTES, "parentSpanId", leniencies),
        )
    start, end = span.start_time_unix_nano, span.end_time_unix_nano
    if start > _MAX_INT64 or end > _MAX_INT64:
        checked_time(start)
        checked_time(end)
    code, message = _UNSET
    if span.HasField("status"):
        status = span.status
        code, message = _STATUS_NAMES.get(status.code, STATUS_CODES[0]), status.message or None
    resource_attributes, service_name, resource_schema_url, resource_dropped = resource
    scope_name, scope_version, scope_attributes, scope_schema_url, scope_dropped = scope
    values = (
        *ids,
        span.name,
        _KIND_NAMES.get(span.kind, SPAN_KINDS[0]),
        start,
        end or None,
        code,
        message,
        service_name,
        scope_name,
        scope_version,
        *hot_values(attributes),
        orjson.dumps(attributes).decode(),
        json_text([_event(event) for event in events]) if events else _EMPTY_LIST,
        json_text([_link(link, leniencies) for link in links]) if links else _EMPTY_LIST,
        resource_attributes,
        scope_attributes,
        span.trace_state or None,
        span.flags or None,
        resource_schema_url,
        scope_schema_url,
        span.dropped_attributes_count,
        span.dropped_events_count,
        span.dropped_links_count,
        resource_dropped,
        scope_dropped,
    )
    return new_row(SpanRow, values)


def _log(
    record: LogRecord, resource: Resource, scope: Scope, leniencies: Counter[str]
) -> tuple[LogRow, dict[str, Any]]:
    attributes = _attributes(record.attributes)
    body = _value(record.body, 0)
    row = LogRow(
        trace_id=id_text(record.trace_id, TRACE_ID_BYTES, "traceId", leniencies),
        span_id=id_text(record.span_id, SPAN_ID_BYTES, "spanId", leniencies),
        event_name=event_name_of(record.event_name, attributes),
        time_unix_nano=checked_time(record.time_unix_nano) or None,
        observed_time_unix_nano=checked_time(record.observed_time_unix_nano) or None,
        severity_number=record.severity_number or None,
        severity_text=record.severity_text or None,
        body=None if body is None else json_text(body),
        attributes=json_text(attributes),
        service_name=resource.service_name,
        scope_name=scope.name,
        scope_version=scope.version,
        resource_attributes=resource.attributes,
        scope_attributes=scope.attributes,
        flags=record.flags or None,
        resource_schema_url=resource.schema_url,
        scope_schema_url=scope.schema_url,
        dropped_attributes_count=record.dropped_attributes_count,
        resource_dropped_attributes_count=resource.dropped_attributes_count,
        scope_dropped_attributes_count=scope.dropped_attributes_count,
    )
    return row, attributes


def _event(event: Span.Event) -> dict[str, Any]:
    return {
        "time_unix_nano": checked_time(event.time_unix_nano),
        "name": event.name,
        "attributes": _attributes(event.attributes),
        "dropped_attributes_count": event.dropped_attributes_count,
    }


def _link(link: Span.Link, leniencies: Counter[str]) -> dict[str, Any]:
    return {
        "trace_id": id_text(link.trace_id, TRACE_ID_BYTES, "traceId of a link", leniencies),
        "span_id": id_text(link.span_id, SPAN_ID_BYTES, "spanId of a link", leniencies),
        "trace_state": link.trace_state or None,
        "attributes": _attributes(link.attributes),
        "dropped_attributes_count": link.dropped_attributes_count,
        "flags": link.flags or None,
    }


def _attributes(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    for pair in pairs:
        # As in `_value`, without a call per attribute.
        value = pair.value
        attributes[pair.key] = value.string_value or value.int_value or value.bool_value or _rare_value(value, 0)
    return attributes


def _value(value: AnyValue, depth: int) -> Any:
    # Most values are texts or numbers, and asking which member is set costs more than reading these.
    return value.string_value or value.int_value or value.bool_value or _rare_value(value, depth)


def _rare_value(value: AnyValue, depth: int) -> Any:
    match value.WhichOneof("value"):
        case "double_value":
            return strict_double(value.double_value)
        case "array_value":
            return TOO_DEEP if depth == MAX_DEPTH else [_value(item, depth + 1) for item in value.array_value.values]
        case "kvlist_value":
            pairs = value.kvlist_value.values
            return TOO_DEEP if depth == MAX_DEPTH else {pair.key: _value(pair.value, depth + 1) for pair in pairs}
        case "bytes_value":
            return b64encode(value.bytes_value).decode()
        case "string_value":
            return ""
        case "int_value":
            return 0
        case "bool_value":
            return False
        case _:
            # Nothing set; or an index into a string table, which only profiles carry.
            return None
