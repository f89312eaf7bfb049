"""Jaeger JSON -> span rows: answers of Jaeger's query API, and what its UI saves. Pure.

A span of Jaeger is translated to one of OTLP and read like that. OpenTelemetry writes what Jaeger has no field for into
tags: scope, status, kind, trace state, the name of an event; they become fields again. Jaeger's times are whole
microseconds, and its lists and objects are JSON texts. Spans of Jaeger's own clients (OpenTracing) are read alike.
"""

from collections import Counter
from typing import Any, cast

from agenttrace.collectors.decode import (
    SPAN_ID_BYTES,
    SPAN_KINDS,
    STATUS_CODES,
    TRACE_ID_BYTES,
    BadRecordError,
    Decoded,
    Resource,
    Scope,
    collector_off,
    resource_of,
)
from agenttrace.collectors.decode_json import Guard, attributes_of, decode_json, is_otlp, span_row
from agenttrace.collectors.json_fields import Leniencies, Object, cut, list_of, object_of, text_of, whole_number
from agenttrace.errors import DecodeError
from agenttrace.json_text import dump
from agenttrace.spans import SpanRow

_NO_SERVICE = "OTLPResourceNoServiceName"
_VALUES = {
    "string": "stringValue",
    "bool": "boolValue",
    "int64": "intValue",
    "float64": "doubleValue",
    "binary": "bytesValue",
}
# A tag without a type: that of its value.
_TYPES = {str: "string", bool: "bool", int: "int64", float: "float64"}
# The later name first; exporters of some years wrote both.
_SCOPE_NAME = ("otel.scope.name", "otel.library.name")
_SCOPE_VERSION = ("otel.scope.version", "otel.library.version")
_EVENT_NAME = ("event", "message")
_DROPPED = {
    "droppedAttributesCount": "otel.dropped_attributes_count",
    "droppedEventsCount": "otel.dropped_events_count",
    "droppedLinksCount": "otel.dropped_links_count",
}
_MAX_MICROSECONDS = 2**63 // 1_000
_MAX_UINT32 = 2**32 - 1

# Key -> value of OTLP.
Tags = dict[str, Object]


def is_jaeger(document: Any) -> bool:
    """Says whether a parsed document is an answer of Jaeger's API, or one trace out of it."""
    if not isinstance(document, dict):
        return False
    members = cast("Object", document)
    data, result = members.get("data"), members.get("result")
    if isinstance(data, list):
        traces = cast("list[Any]", data)
        return any(map(_is_trace, traces)) if traces else "errors" in members
    if isinstance(result, dict):
        request = cast("Object", result)
        return bool(request) and is_otlp(request)
    return _is_trace(members) or ("data" in members and isinstance(members.get("errors"), list))


def _is_trace(value: Any) -> bool:
    members = cast("Object", value) if isinstance(value, dict) else {}
    return isinstance(members.get("spans"), list) and ("traceID" in members or "processes" in members)


@collector_off()
def decode_jaeger(document: Any, leniencies: Leniencies | None = None) -> Decoded:
    """Decodes one document.

    Args:
        document: What `is_jaeger` recognises.
        leniencies: Counts from reading the document, which the result goes on counting.

    Raises:
        DecodeError: It holds no traces.
    """
    decoded = Decoded(leniencies=Counter() if leniencies is None else leniencies)
    members = cast("Object", document)
    if "result" in members:
        # The third version of the API answers in OTLP.
        return decode_json(members["result"], decoded.leniencies)
    if _is_trace(members):
        _trace(members, "", decoded)
        return decoded
    if not members.get("data"):
        raise DecodeError(f"an answer of Jaeger that holds no traces{_reason(members.get('errors'))}")
    for index, trace in enumerate(cast("list[Any]", members["data"])):
        place = f"data[{index}]"
        with Guard(decoded, place, spans=1):
            _trace(object_of(trace, "the trace"), f"{place}.", decoded)
    return decoded


def _reason(errors: Any) -> str:
    first: Any = cast("list[Any]", errors)[0] if isinstance(errors, list) and errors else None
    message = cast("Object", first).get("msg") if isinstance(first, dict) else None
    return f": {cut(message)}" if message else ""


def _trace(trace: Object, place: str, decoded: Decoded) -> None:
    processes = object_of(trace.get("processes") or {}, "processes")
    resources: dict[str, Resource] = {}
    for index, span in enumerate(list_of(trace.get("spans"), "spans")):
        with Guard(decoded, f"{place}spans[{index}]", spans=1):
            members = object_of(span, "the span")
            name = text_of(members, ("processID",), decoded.leniencies)
            if name not in resources:
                process: Any = processes.get(name) or members.get("process") or {}
                resource = _resource(object_of(process, "the process"), decoded.leniencies)
                # A span may hold its process itself.
                resources |= {name: resource} if name else {}
            else:
                resource = resources[name]
            decoded.spans.append(_span(members, resource, decoded))


def _resource(process: Object, leniencies: Leniencies) -> Resource:
    service = text_of(process, ("serviceName",), leniencies)
    named: Tags = {"service.name": {"stringValue": service}} if service and service != _NO_SERVICE else {}
    return resource_of(attributes_of(_pairs({**named, **_tags(process, "tags")}), 0, leniencies), "", 0)


def _span(span: Object, resource: Resource, decoded: Decoded) -> SpanRow:
    leniencies = decoded.leniencies
    tags = _tags(span, "tags")
    scope = Scope(_text(tags, _SCOPE_NAME) or None, _text(tags, _SCOPE_VERSION) or None, "{}", None, 0)
    decoded.share(resource, scope)
    trace_id = _id(span, "traceID", TRACE_ID_BYTES, leniencies)
    parent, links = _references(span, trace_id, leniencies)
    start = _microseconds(span, "startTime")
    translated: Object = {
        "traceId": trace_id,
        "spanId": _id(span, "spanID", SPAN_ID_BYTES, leniencies),
        "parentSpanId": parent,
        "name": span.get("operationName"),
        "startTimeUnixNano": start * 1_000,
        "endTimeUnixNano": (start + _microseconds(span, "duration")) * 1_000,
        "kind": _kind(tags),
        "status": _status(tags),
        "traceState": _text(tags, ("w3c.tracestate",)),
        "flags": (whole_number(span.get("flags")) or 0) & 1,
        "events": [_event(log) for log in list_of(span.get("logs"), "logs")],
        "links": links,
    }
    for field_name, key in _DROPPED.items():
        count = whole_number(tags.pop(key, {}).get("intValue"))
        translated[field_name] = count if count is not None and 0 <= count <= _MAX_UINT32 else 0
    return span_row({**translated, "attributes": _pairs(tags)}, resource, scope, leniencies)


def _id(record: Object, name: str, size: int, leniencies: Leniencies) -> str:
    """Reads an id; Jaeger left out zeros in front of one for years."""
    text = text_of(record, (name,), leniencies)
    return text.zfill(2 * size) if text else ""


def _microseconds(record: Object, name: str) -> int:
    value = record.get(name)
    number = 0 if value is None else whole_number(value)
    if number is None or not 0 <= number <= _MAX_MICROSECONDS:
        raise BadRecordError(f"{name} is {cut(value)}; expected microseconds, as a whole number")
    return number


def _references(span: Object, trace_id: str, leniencies: Leniencies) -> tuple[str, list[Object]]:
    """Tells the parent from other references: the first CHILD_OF of the same trace, else its first FOLLOWS_FROM."""
    links: list[Object] = []
    parent = -1
    for item in list_of(span.get("references"), "references"):
        reference = object_of(item, "a reference")
        is_child = reference.get("refType") != "FOLLOWS_FROM"
        link = {
            "traceId": _id(reference, "traceID", TRACE_ID_BYTES, leniencies),
            "spanId": _id(reference, "spanID", SPAN_ID_BYTES, leniencies),
            # A link of OpenTelemetry is FOLLOWS_FROM.
            "attributes": _pairs({"opentracing.ref_type": {"stringValue": "child_of"}} if is_child else {}),
        }
        links.append(link)
        if link["traceId"] == trace_id and (parent < 0 or (is_child and not links[parent]["attributes"])):
            parent = len(links) - 1
    if parent < 0:
        return _id(span, "parentSpanID", SPAN_ID_BYTES, leniencies), links
    return links.pop(parent)["spanId"], links


def _kind(tags: Tags) -> int:
    kind = tags.get("span.kind", {}).get("stringValue")
    if kind not in SPAN_KINDS:
        return 0
    del tags["span.kind"]
    return SPAN_KINDS.index(kind)


def _status(tags: Tags) -> Object:
    code = _text(tags, ("otel.status_code",)).lower()
    message = _text(tags, ("otel.status_description",))
    if tags.get("error") in ({"boolValue": True}, {"stringValue": "true"}):
        # To Jaeger this tag decides.
        del tags["error"]
        code = "error"
    return {"code": STATUS_CODES.index(code) if code in STATUS_CODES else 0, "message": message}


def _event(log: Any) -> Object:
    members = object_of(log, "an item of logs")
    fields = _tags(members, "fields")
    name = next((key for key in _EVENT_NAME if "stringValue" in fields.get(key, {})), None)
    return {
        "timeUnixNano": _microseconds(members, "timestamp") * 1_000,
        "name": fields.pop(name)["stringValue"] if name else "",
        "attributes": _pairs(fields),
    }


def _tags(record: Object, name: str) -> Tags:
    found: Tags = {}
    for item in list_of(record.get(name), name):
        tag = object_of(item, f"an item of {name}")
        found[text_of(tag, ("key",), Counter())] = _value(str(tag.get("type")).lower(), tag.get("value"))
    return found


def _value(kind: str, value: Any) -> Object:
    if value is None:
        return {}
    if isinstance(value, dict | list):
        return {"stringValue": _json_text(value)}
    return {_VALUES[kind if kind in _VALUES else _TYPES[type(value)]]: value}


def _json_text(value: Any) -> str:
    try:
        return dump(value)
    except (RecursionError, ValueError) as err:
        raise BadRecordError("a value is nested too deeply") from err


def _pairs(tags: Tags) -> list[Object]:
    return [{"key": key, "value": value} for key, value in tags.items()]


def _text(tags: Tags, keys: tuple[str, ...]) -> str:
    """Takes tags away, and returns the first of them that holds a text."""
    values = [tags.pop(key, {}).get("stringValue") for key in keys]
    return next((value for value in values if isinstance(value, str)), "")
