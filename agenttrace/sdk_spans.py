"""OpenTelemetry SDK spans -> SpanRow, with all that OTLP carries; pure."""

import base64
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import orjson
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, StatusCode
from opentelemetry.trace.span import DEFAULT_TRACE_STATE, TraceState

from agenttrace.spans import SpanRow, hot_values

# OTLP span flags: bits 0 to 7 are the W3C trace flags. Source: opentelemetry-proto, trace.proto, checked 2026-11.
_HAS_IS_REMOTE = 0x100
_IS_REMOTE = 0x200

_INT64_MAX = 2**63 - 1
# JSON numbers may be of any size; Python refuses to print those over 4,300 digits.
_PRINTABLE_BITS = 4096
_MAX_DEPTH = 200
_NEVER_NULL = frozenset((str, int, bool))
_CACHED = 256

_KINDS = {
    SpanKind.INTERNAL: "internal",
    SpanKind.SERVER: "server",
    SpanKind.CLIENT: "client",
    SpanKind.PRODUCER: "producer",
    SpanKind.CONSUMER: "consumer",
}
_INTERNAL = SpanKind.INTERNAL
_UNSET = StatusCode.UNSET
_STATUS = {StatusCode.UNSET: "unset", StatusCode.OK: "ok", StatusCode.ERROR: "error"}


class _ResourceColumns(NamedTuple):
    service_name: str | None
    attributes: str
    schema_url: str | None


class _ScopeColumns(NamedTuple):
    name: str | None
    version: str | None
    attributes: str
    schema_url: str | None


def sdk_span_row(span: ReadableSpan) -> SpanRow:
    """Converts a span; one that has not ended has no end time.

    Bytes become base64 text, NaN and the infinities the strings of the JSON mapping of protobuf.
    """
    return SpanRow._make(sdk_span_values(span))


def sdk_span_values(span: ReadableSpan) -> tuple[Any, ...]:
    """Converts a span to the values of a SpanRow, in a bare tuple.

    Thousands of them are made at once, and of tuples only bare ones cost the cyclic collector nothing.
    """
    own: Any = span
    try:
        # Past the properties of the SDK: those are calls, and some copy or lock what they return. Together they would
        # cost twice as much as the attributes' JSON.
        name, kind, context, parent = own._name, own._kind, own._context, own._parent
        start, end, resource, scope = own._start_time, own._end_time, own._resource, own._instrumentation_scope
        mapping, event_list, link_list, full_status = own._attributes, own._events, own._links, own._status
        attributes, events, links = mapping._dict, event_list._dq, link_list._dq
        dropped = mapping.dropped, event_list.dropped, link_list.dropped
        status, description = full_status._status_code, full_status._description
    except AttributeError:
        # Another release of the SDK, or a class that is a span in all but its fields.
        name, kind, context, parent = span.name, span.kind, span.context, span.parent
        start, end, resource, scope = span.start_time, span.end_time, span.resource, span.instrumentation_scope
        attributes, events, links = _plain_dict(span.attributes), span.events, span.links
        dropped = span.dropped_attributes, span.dropped_events, span.dropped_links
        status, description = span.status.status_code, span.status.description
    if context is None:
        raise ValueError("a span without a context has no id")
    trace_id, span_id, _, trace_flags, trace_state, _ = context
    known = _resources.get(id(resource))
    service_name, resource_attributes, resource_url = _resource_columns(resource) if known is None else known[1]
    cached = _scopes.get(id(scope))
    scope_name, version, scope_attributes, scope_url = _scope_columns(scope) if cached is None else cached[1]
    return (
        trace_id.to_bytes(16).hex(),
        span_id.to_bytes(8).hex(),
        parent[1].to_bytes(8).hex() if parent is not None and parent[1] else None,
        name if type(name) is str else str.__str__(name) if isinstance(name, str) else str(name),
        # The hash of an Enum member is a Python function; most spans need none.
        "internal" if kind is _INTERNAL else _KINDS.get(kind, "unspecified"),
        start if type(start) is int and 0 <= start <= _INT64_MAX else _time(start) or 0,
        end if type(end) is int and 0 <= end <= _INT64_MAX else _time(end),
        "unset" if status is _UNSET else _STATUS.get(status, "unset"),
        description or None,
        service_name,
        scope_name,
        version,
        *hot_values(attributes),
        json_text(attributes),
        _events_text(events) if events else "[]",
        _links_text(links) if links else "[]",
        resource_attributes,
        scope_attributes,
        None if trace_state is DEFAULT_TRACE_STATE else _trace_state_text(trace_state),
        trace_flags | (_HAS_IS_REMOTE if parent is None or not parent[2] else _HAS_IS_REMOTE | _IS_REMOTE),
        resource_url,
        scope_url,
        *dropped,
        0,
        0,
    )


def json_text(value: Mapping[str, Any] | Sequence[Any]) -> str:
    """Encodes attributes as strict JSON."""
    try:
        text = orjson.dumps(value, default=_base64)
    except (TypeError, RecursionError):
        # Big integers, lone surrogates and great depth.
        return _slow_json_text(value)
    # orjson writes NaN and the infinities as null. To search for that takes longer than to write it all, so the usual
    # attributes, which can be neither, are spared it.
    if isinstance(value, dict) and _NEVER_NULL.issuperset(map(type, value.values())):
        return text.decode()
    return _slow_json_text(value) if b"null" in text else text.decode()


def _slow_json_text(value: object) -> str:
    return json.dumps(_plain(value, 0), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _plain(value: object, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, int):
        return int(value) if value.bit_length() <= _PRINTABLE_BITS else f"{value:#x}"
    if isinstance(value, float):
        return value if math.isfinite(value) else _non_finite(value)
    if isinstance(value, bytes):
        return _base64(value)
    if depth >= _MAX_DEPTH:
        return "[nested too deeply]"
    if isinstance(value, Mapping):
        items = cast(Mapping[object, object], value).items()
        return {str(_plain(key, depth + 1)): _plain(item, depth + 1) for key, item in items}
    if isinstance(value, Sequence):
        return [_plain(item, depth + 1) for item in cast(Sequence[object], value)]
    return f"[{type(value).__qualname__}]"


def _non_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _base64(value: object) -> object:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return _plain_dict(cast(Mapping[str, Any], value))
    raise TypeError(type(value).__qualname__)


def _plain_dict(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    if attributes is None:
        return {}
    # `dict()` of the SDK's mapping takes a Python call per key; its own `copy` takes one.
    copy: Callable[[], dict[str, Any]] | None = getattr(attributes, "copy", None)
    return dict(attributes) if copy is None else copy()


def _time(unix_nano: int | None) -> int | None:
    # The SDK takes any number for a time, and a column has 64 bits.
    if unix_nano is None or 0 <= unix_nano <= _INT64_MAX:
        return None if unix_nano is None else int(unix_nano)
    return 0 if unix_nano < 0 else _INT64_MAX


def _events_text(events: Sequence[Event]) -> str:
    return json_text(
        [
            {
                "time_unix_nano": event.timestamp,
                "name": event.name,
                "attributes": _plain_dict(event.attributes),
                "dropped_attributes_count": event.dropped_attributes,
            }
            for event in events
        ]
    )


def _links_text(links: Sequence[Link]) -> str:
    return json_text(
        [
            {
                "trace_id": f"{link.context.trace_id:032x}",
                "span_id": f"{link.context.span_id:016x}",
                "trace_state": _trace_state_text(link.context.trace_state),
                "attributes": _plain_dict(link.attributes),
                "dropped_attributes_count": link.dropped_attributes,
                "flags": _flags(link.context.trace_flags, link.context),
            }
            for link in links
        ]
    )


def _trace_state_text(trace_state: TraceState | None) -> str | None:
    return trace_state.to_header() if trace_state else None


def _flags(trace_flags: int, remote: SpanContext | None) -> int:
    return int(trace_flags) | _HAS_IS_REMOTE | (_IS_REMOTE if remote is not None and remote.is_remote else 0)


# A process has one resource and a scope per library, and encoding them anew for each span would double its cost.
# The object is kept beside its columns, so that its id is not given to another one.
_resources: dict[int, tuple[Resource, _ResourceColumns]] = {}
_scopes: dict[int, tuple[InstrumentationScope, _ScopeColumns]] = {}


def _resource_columns(resource: Resource) -> _ResourceColumns:
    cached = _resources.get(id(resource))
    if cached is not None:
        return cached[1]
    attributes = dict(resource.attributes)
    service_name = attributes.get("service.name")
    columns = _ResourceColumns(
        service_name if isinstance(service_name, str) else None, json_text(attributes), resource.schema_url or None
    )
    if len(_resources) >= _CACHED:
        _resources.clear()
    _resources[id(resource)] = (resource, columns)
    return columns


def _scope_columns(scope: InstrumentationScope | None) -> _ScopeColumns:
    if scope is None:
        return _ScopeColumns(None, None, "{}", None)
    cached = _scopes.get(id(scope))
    if cached is not None:
        return cached[1]
    attributes = json_text(_plain_dict(scope.attributes))
    # The SDK takes any value for these, such as a version that is a number.
    name, version, schema_url = (str(text) if text else None for text in (scope.name, scope.version, scope.schema_url))
    columns = _ScopeColumns(name, version, attributes, schema_url)
    if len(_scopes) >= _CACHED:
        _scopes.clear()
    _scopes[id(scope)] = (scope, columns)
    return columns
