"""OTLP JSON -> span and log rows; pure, shared by the receiver and the file readers.

Takes what OTLP JSON says, and the near misses that real producers write: base64 or upper-case ids, enum names, key
names in snake case, `instrumentationLibrarySpans`, NaN, halves of surrogate pairs. Each is counted in
`Decoded.leniencies`. Unknown keys are ignored, as OTLP demands of a receiver.
"""

from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, NamedTuple, cast

from opentelemetry.proto.logs.v1.logs_pb2 import SeverityNumber

from agenttrace.collectors.decode import (
    MAX_DEPTH,
    MAX_PARTS,
    SPAN_ID_BYTES,
    SPAN_KINDS,
    STATUS_CODES,
    TOO_DEEP,
    TRACE_ID_BYTES,
    BadRecordError,
    Decoded,
    Resource,
    Scope,
    checked_time,
    collector_off,
    event_name_of,
    json_text,
    name_of,
    resource_of,
    span_ids,
    strict_double,
    take_log,
)
from agenttrace.collectors.json_fields import (
    DROPPED,
    Leniencies,
    Object,
    base64_bytes,
    describe,
    dropped_of,
    enum_of,
    first_of,
    id_of,
    list_of,
    load_json,
    number_of,
    object_of,
    text_of,
    whole_number,
)
from agenttrace.errors import DecodeError
from agenttrace.spans import LogRow, SpanRow, hot_values, new_row

_KINDS = {f"SPAN_KIND_{name.upper()}": number for number, name in enumerate(SPAN_KINDS)}
_STATUSES = {f"STATUS_CODE_{name.upper()}": number for number, name in enumerate(STATUS_CODES)}
_SEVERITIES: dict[str, int] = dict(SeverityNumber.items())

# Not `dict` itself, for a checker would take what has this type for a dict of unknown types.
_OBJECT: Any = dict
_MAX_UINT32 = 2**32 - 1
_MAX_UINT64 = 2**64 - 1
_INT64 = range(-(2**63), 2**63)


class _Signal(NamedTuple):
    """Key names of one signal, OTLP's own first."""

    groups: tuple[str, ...]
    parts: tuple[str, ...]
    records: tuple[str, ...]


_TRACES = _Signal(
    ("resourceSpans", "resource_spans"),
    ("scopeSpans", "scope_spans", "instrumentationLibrarySpans", "instrumentation_library_spans"),
    ("spans",),
)
_LOGS = _Signal(
    ("resourceLogs", "resource_logs"),
    ("scopeLogs", "scope_logs", "instrumentationLibraryLogs", "instrumentation_library_logs"),
    ("logRecords", "log_records"),
)


def is_otlp(document: Any) -> bool:
    """Says whether a parsed document has the shape of a trace or log request, or is a list with one in it."""
    keys = (*_TRACES.groups, *_LOGS.groups)
    requests = cast("list[Any]", document) if isinstance(document, list) else [document]
    # An empty request is `{}`, no requests are `[]`.
    return document == [] or any(
        isinstance(request, dict) and (not request or any(key in request for key in keys)) for request in requests
    )


@collector_off()
def decode_json(document: Any, leniencies: Counter[str] | None = None, max_parts: int = MAX_PARTS) -> Decoded:
    """Decodes one trace or log request, or a list of them.

    Args:
        document: The body as bytes, or what `load_json` made of it.
        leniencies: Counts from reading the document, which the result goes on counting.
        max_parts: Most groups, records, events and links.

    Raises:
        DecodeError: It is not JSON, or holds neither spans nor log records; the message names what was seen. Or it has
            more than `max_parts`.
    """
    decoded = Decoded(leniencies=Counter() if leniencies is None else leniencies)
    if isinstance(document, bytes):
        document = load_json(document, decoded.leniencies)
    if isinstance(document, list):
        for index, request in enumerate(cast("list[Any]", document)):
            decoded.count(1, max_parts)
            _request(request, f"[{index}].", decoded, max_parts)
    else:
        _request(document, "", decoded, max_parts)
    return decoded


def _request(request: Any, place: str, decoded: Decoded, max_parts: int) -> None:
    members = cast("Object", request) if isinstance(request, dict) else {}
    spans = first_of(members, _TRACES.groups, decoded.leniencies)
    logs = first_of(members, _LOGS.groups, decoded.leniencies)
    # An empty request is `{}`: protobuf's JSON leaves out empty lists.
    if spans is None and logs is None and request != {}:
        raise DecodeError(
            f"{place.removesuffix('.') or 'the document'} is {describe(cast('object', request))}; "
            "expected the key 'resourceSpans' or 'resourceLogs'"
        )
    for at, k, resource, scope, span in _records(spans, place, _TRACES, decoded, max_parts):
        decoded.count(_parts_of(span), max_parts)
        try:
            decoded.share(resource, scope)
            decoded.spans.append(span_row(object_of(span, "the span"), resource, scope, decoded.leniencies))
        except BadRecordError as err:
            decoded.reject(f"{at}.spans[{k}]", err, spans=1)
    for at, k, resource, scope, record in _records(logs, place, _LOGS, decoded, max_parts):
        decoded.count(_parts_of(record), max_parts)
        try:
            decoded.share(resource, scope)
            take_log(decoded, *_log(object_of(record, "the log record"), resource, scope, decoded.leniencies))
        except BadRecordError as err:
            decoded.reject(f"{at}.logRecords[{k}]", err, logs=1)


class Guard:
    """Reports a bad part of a document and lets the rest go on; counts it as one rejected record."""

    def __init__(self, decoded: Decoded, place: str, *, spans: int = 0, logs: int = 0) -> None:
        self._decoded = decoded
        self._place = place
        self._spans = spans
        self._logs = logs

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, err: BaseException | None, _traceback: object) -> bool:
        if not isinstance(err, BadRecordError):
            return False
        self._decoded.reject(self._place, err, spans=self._spans, logs=self._logs)
        return True


def _parts_of(record: Any) -> int:
    """Counts a record with what of it takes room for itself."""
    if not isinstance(record, dict):
        return 1
    members = cast("Object", record)
    get = members.get
    events, links, attributes = get("events"), get("links"), get("attributes")
    parts = len(cast("list[Any]", attributes)) >> 4 if isinstance(attributes, list) else 0
    for items in (events, links):
        if items and isinstance(items, list):
            parts += len(cast("list[Any]", items))
    return 1 + parts


def _records(
    groups: Any, place: str, signal: _Signal, decoded: Decoded, max_parts: int
) -> Iterator[tuple[str, int, Resource, Scope, Any]]:
    """Yields place, number, resource, scope and each record; an unreadable group counts as one rejected record."""
    leniencies = decoded.leniencies

    def guard(at: str) -> Guard:
        return Guard(decoded, at, spans=signal is _TRACES, logs=signal is _LOGS)

    at = place + signal.groups[0]
    with guard(at):
        for i, group in enumerate(list_of(groups, "it")):
            at = f"{place}{signal.groups[0]}[{i}]"
            decoded.count(1, max_parts)
            with guard(at):
                resource = _resource(object_of(group, "it"), leniencies)
                for j, part in enumerate(list_of(first_of(group, signal.parts, leniencies), signal.parts[0])):
                    at = f"{place}{signal.groups[0]}[{i}].{signal.parts[0]}[{j}]"
                    decoded.count(1, max_parts)
                    with guard(at):
                        scope = _scope(object_of(part, "it"), leniencies)
                        records = list_of(first_of(part, signal.records, leniencies), signal.records[0])
                        for k, record in enumerate(records):
                            yield at, k, resource, scope, record


def _resource(group: Object, leniencies: Leniencies) -> Resource:
    resource = object_of(group.get("resource") or {}, "resource")
    return resource_of(
        attributes_of(resource.get("attributes"), 0, leniencies),
        text_of(group, ("schemaUrl", "schema_url"), leniencies),
        dropped_of(resource, "Attributes", leniencies),
    )


def _scope(part: Object, leniencies: Leniencies) -> Scope:
    names = ("scope", "instrumentationLibrary", "instrumentation_library")
    scope = object_of(first_of(part, names, leniencies) or {}, "scope")
    return Scope(
        text_of(scope, ("name",), leniencies) or None,
        text_of(scope, ("version",), leniencies) or None,
        json_text(attributes_of(scope.get("attributes"), 0, leniencies)),
        text_of(part, ("schemaUrl", "schema_url"), leniencies) or None,
        dropped_of(scope, "Attributes", leniencies),
    )


def span_row(span: Object, resource: Resource, scope: Scope, leniencies: Leniencies) -> SpanRow:
    """Reads one span.

    Raises:
        BadRecordError: It cannot be stored.
    """
    status = object_of(span.get("status") or {}, "status")
    rare = _NO_RARE if _RARE.isdisjoint(span) else _rare_columns(span, leniencies)
    attributes = attributes_of(span.get("attributes"), 0, leniencies)
    trace_id, span_id, parent_span_id = span_ids(
        id_of(span, ("traceId", "trace_id"), TRACE_ID_BYTES, leniencies),
        id_of(span, ("spanId", "span_id"), SPAN_ID_BYTES, leniencies),
        id_of(span, ("parentSpanId", "parent_span_id"), SPAN_ID_BYTES, leniencies),
    )
    values = (
        trace_id,
        span_id,
        parent_span_id,
        text_of(span, ("name",), leniencies),
        name_of(SPAN_KINDS, enum_of(span, ("kind",), _KINDS, leniencies)),
        _time(span, ("startTimeUnixNano", "start_time_unix_nano"), leniencies),
        _time(span, ("endTimeUnixNano", "end_time_unix_nano"), leniencies) or None,
        name_of(STATUS_CODES, enum_of(status, ("code",), _STATUSES, leniencies)) if status else STATUS_CODES[0],
        text_of(status, ("message",), leniencies) or None if status else None,
        resource.service_name,
        scope.name,
        scope.version,
        *hot_values(attributes),
        json_text(attributes),
        _json_list(_event, span, "events", leniencies),
        _json_list(_link, span, "links", leniencies),
        resource.attributes,
        scope.attributes,
        rare.trace_state,
        rare.flags,
        resource.schema_url,
        scope.schema_url,
        rare.dropped_attributes_count,
        rare.dropped_events_count,
        rare.dropped_links_count,
        resource.dropped_attributes_count,
        scope.dropped_attributes_count,
    )
    return new_row(SpanRow, values)


class _Rare(NamedTuple):
    """What few spans say; one look at the keys of a span tells whether it does."""

    trace_state: str | None
    flags: int | None
    dropped_attributes_count: int
    dropped_events_count: int
    dropped_links_count: int


_NO_RARE = _Rare(None, None, 0, 0, 0)
_TRACE_STATE = ("traceState", "trace_state")
_RARE = frozenset((*_TRACE_STATE, "flags", *chain.from_iterable(DROPPED.values())))


def _rare_columns(span: Object, leniencies: Leniencies) -> _Rare:
    return _Rare(
        text_of(span, _TRACE_STATE, leniencies) or None,
        number_of(span, ("flags",), _MAX_UINT32, leniencies) or None,
        *(dropped_of(span, what, leniencies) for what in ("Attributes", "Events", "Links")),
    )


def _log(record: Object, resource: Resource, scope: Scope, leniencies: Leniencies) -> tuple[LogRow, Object]:
    attributes = attributes_of(record.get("attributes"), 0, leniencies)
    body = _value(record.get("body"), 0, leniencies)
    row = LogRow(
        trace_id=id_of(record, ("traceId", "trace_id"), TRACE_ID_BYTES, leniencies),
        span_id=id_of(record, ("spanId", "span_id"), SPAN_ID_BYTES, leniencies),
        event_name=event_name_of(text_of(record, ("eventName", "event_name"), leniencies), attributes),
        time_unix_nano=_time(record, ("timeUnixNano", "time_unix_nano"), leniencies) or None,
        observed_time_unix_nano=_time(record, ("observedTimeUnixNano", "observed_time_unix_nano"), leniencies) or None,
        severity_number=enum_of(record, ("severityNumber", "severity_number"), _SEVERITIES, leniencies) or None,
        severity_text=text_of(record, ("severityText", "severity_text"), leniencies) or None,
        body=None if body is None else json_text(body),
        attributes=json_text(attributes),
        service_name=resource.service_name,
        scope_name=scope.name,
        scope_version=scope.version,
        resource_attributes=resource.attributes,
        scope_attributes=scope.attributes,
        flags=number_of(record, ("flags",), _MAX_UINT32, leniencies) or None,
        resource_schema_url=resource.schema_url,
        scope_schema_url=scope.schema_url,
        dropped_attributes_count=dropped_of(record, "Attributes", leniencies),
        resource_dropped_attributes_count=resource.dropped_attributes_count,
        scope_dropped_attributes_count=scope.dropped_attributes_count,
    )
    return row, attributes


def _time(record: Object, names: tuple[str, ...], leniencies: Leniencies) -> int:
    return checked_time(number_of(record, names, _MAX_UINT64, leniencies))


def _json_list(read: Callable[[Object, Leniencies], Object], span: Object, name: str, leniencies: Leniencies) -> str:
    items = list_of(span.get(name), name)
    if not items:
        return "[]"
    return json_text([read(object_of(item, f"an item of {name}"), leniencies) for item in items])


def _event(event: Object, leniencies: Leniencies) -> Object:
    return {
        "time_unix_nano": _time(event, ("timeUnixNano", "time_unix_nano"), leniencies),
        "name": text_of(event, ("name",), leniencies),
        "attributes": attributes_of(event.get("attributes"), 0, leniencies),
        "dropped_attributes_count": dropped_of(event, "Attributes", leniencies),
    }


def _link(link: Object, leniencies: Leniencies) -> Object:
    return {
        "trace_id": id_of(link, ("traceId", "trace_id"), TRACE_ID_BYTES, leniencies),
        "span_id": id_of(link, ("spanId", "span_id"), SPAN_ID_BYTES, leniencies),
        "trace_state": text_of(link, ("traceState", "trace_state"), leniencies) or None,
        "attributes": attributes_of(link.get("attributes"), 0, leniencies),
        "dropped_attributes_count": dropped_of(link, "Attributes", leniencies),
        "flags": number_of(link, ("flags",), _MAX_UINT32, leniencies) or None,
    }


def attributes_of(pairs: Any, depth: int, leniencies: Leniencies) -> Object:
    """Reads a list of keys and values."""
    attributes: Object = {}
    for pair in list_of(pairs, "attributes"):
        members: Object = pair if type(pair) is _OBJECT else object_of(pair, "an attribute")
        key: Any = members.get("key")
        value: Any = members.get("value")
        if type(key) is not str:
            key = text_of(members, ("key",), leniencies)
        # Most values are texts: no call for those.
        text = value.get("stringValue") if type(value) is _OBJECT else None
        is_text = type(text) is str and len(value) == 1
        attributes[key] = text if is_text else _value(value, depth, leniencies)
    return attributes


def _value(value: Any, depth: int, leniencies: Leniencies) -> Any:
    """Reads an AnyValue; null and `{}` are None, as in protobuf."""
    if value is None:
        return None
    members: Object = value if type(value) is _OBJECT else object_of(value, "a value")
    for name, member in members.items():
        read = _MEMBERS.get(name)
        if read is not None and member is not None:
            return read(member, depth, leniencies)
    if members:
        leniencies["values of an unknown type"] += 1
    return None


def _string_value(member: Any, _depth: int, leniencies: Leniencies) -> Any:
    return member if isinstance(member, str) else _other_scalar(member, leniencies)


def _bool_value(member: Any, _depth: int, leniencies: Leniencies) -> Any:
    return member if isinstance(member, bool) else _other_scalar(member, leniencies)


def _int_value(member: Any, _depth: int, leniencies: Leniencies) -> Any:
    number = whole_number(member)
    return number if number is not None and number in _INT64 else _other_scalar(member, leniencies)


def _double_value(member: Any, _depth: int, leniencies: Leniencies) -> Any:
    try:
        return strict_double(float(_scalar(member)))
    except (ValueError, OverflowError):
        return _other_scalar(member, leniencies)


def _bytes_value(member: Any, _depth: int, leniencies: Leniencies) -> Any:
    raw = base64_bytes(member) if isinstance(member, str) else None
    return _other_scalar(member, leniencies) if raw is None else b64encode(raw).decode()


def _array_value(member: Any, depth: int, leniencies: Leniencies) -> Any:
    values = list_of(object_of(member, "arrayValue").get("values"), "values")
    return TOO_DEEP if depth == MAX_DEPTH else [_value(value, depth + 1, leniencies) for value in values]


def _kvlist_value(member: Any, depth: int, leniencies: Leniencies) -> Any:
    pairs = object_of(member, "kvlistValue").get("values")
    return TOO_DEEP if depth == MAX_DEPTH else attributes_of(pairs, depth + 1, leniencies)


_MEMBERS: dict[str, Callable[[Any, int, Leniencies], Any]] = {
    "stringValue": _string_value,
    "string_value": _string_value,
    "boolValue": _bool_value,
    "bool_value": _bool_value,
    "intValue": _int_value,
    "int_value": _int_value,
    "doubleValue": _double_value,
    "double_value": _double_value,
    "bytesValue": _bytes_value,
    "bytes_value": _bytes_value,
    "arrayValue": _array_value,
    "array_value": _array_value,
    "kvlistValue": _kvlist_value,
    "kvlist_value": _kvlist_value,
}


def _other_scalar(member: Any, leniencies: Leniencies) -> Any:
    """Keeps a value whose type is not the one that its key says; a whole span is worth more than the label."""
    leniencies["values of another type than their key says"] += 1
    member = _scalar(member)
    if isinstance(member, float):
        return strict_double(member)
    return str(member) if isinstance(member, int) and member not in _INT64 else member


def _scalar(member: Any) -> Any:
    if isinstance(member, dict | list):
        raise BadRecordError(f"a value is {describe(cast('object', member))}; expected a string or a number")
    return member
