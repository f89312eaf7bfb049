"""A store -> OTLP JSON lines, each one request, as the OpenTelemetry Collector's file exporter writes and reads them.

Source: opentelemetry-proto, `docs/specification.md`, "JSON Protobuf Encoding": ids in hexadecimal digits, 64-bit
integers as text, names in lowerCamelCase.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any, NamedTuple, cast

import orjson

from agenttrace.connect import Connection
from agenttrace.spans import LogRow, SpanRow

# Receivers refuse requests over 4 MiB (gRPC's own bound) or 16 MiB (ours).
_MAX_ROWS = 512
_MAX_BYTES = 2 << 20
_FETCHED = 1_024

_RUNS = """
trace_id IN (
    SELECT trace_id FROM trajectories
    WHERE ($since IS NULL OR start_time >= $since) AND ($until IS NULL OR start_time < $until)
)
"""

Json = dict[str, Any]


class _Signal(NamedTuple):
    row: type[SpanRow] | type[LogRow]
    record: Callable[[Any], Json]
    name: str
    member: str
    table: str
    order: str


def lines(con: Connection, since: datetime | None = None, until: datetime | None = None) -> Iterator[bytes]:
    """Yields the spans and then the log records of a store, in the order of time.

    Args:
        con: The store.
        since: Only traces with a run that starts at or after this.
        until: Only traces with a run that starts before this.
    """
    where, values = ("TRUE", {}) if since is None and until is None else (_RUNS, {"since": since, "until": until})
    for signal in _SIGNALS:
        columns = ", ".join(signal.row._fields)
        query = f"SELECT {columns} FROM {signal.table} WHERE {where} ORDER BY {signal.order}"  # noqa: S608 - ours
        for rows in _batches(con.execute(query, values)):
            yield _request(signal, [signal.row._make(row) for row in rows])


def _batches(cursor: Connection) -> Iterator[list[tuple[Any, ...]]]:
    batch: list[tuple[Any, ...]] = []
    size = 0
    while found := cursor.fetchmany(_FETCHED):
        for row in found:
            length = sum(len(value) for value in row if isinstance(value, str))
            if batch and (len(batch) >= _MAX_ROWS or size + length > _MAX_BYTES):
                yield batch
                batch, size = [], 0
            batch.append(row)
            size += length
    if batch:
        yield batch


def _request(signal: "_Signal", rows: Sequence[Any]) -> bytes:
    groups: list[Json] = []
    for _, of_resource in groupby(sorted(rows, key=_resource_key), key=_resource_key):
        same = sorted(of_resource, key=_scope_key)
        scopes = [[*found] for _, found in groupby(same, key=_scope_key)]
        parts = [_scope(found[0]) | {signal.member: [signal.record(row) for row in found]} for found in scopes]
        groups.append(_resource(same[0]) | {f"scope{signal.name}": parts})
    return orjson.dumps({f"resource{signal.name}": groups}) + b"\n"


def _resource_key(row: SpanRow | LogRow) -> tuple[Any, ...]:
    return row.resource_attributes, row.resource_dropped_attributes_count, row.resource_schema_url or ""


def _scope_key(row: SpanRow | LogRow) -> tuple[Any, ...]:
    scope = row.scope_name or "", row.scope_version or "", row.scope_schema_url or ""
    return *scope, row.scope_attributes, row.scope_dropped_attributes_count


def _resource(row: SpanRow | LogRow) -> Json:
    resource = {
        "attributes": _attributes(row.resource_attributes),
        **_dropped("Attributes", row.resource_dropped_attributes_count),
    }
    return {"resource": resource, **_stated(schemaUrl=row.resource_schema_url)}


def _scope(row: SpanRow | LogRow) -> Json:
    scope = {
        **_stated(name=row.scope_name, version=row.scope_version),
        "attributes": _attributes(row.scope_attributes),
        **_dropped("Attributes", row.scope_dropped_attributes_count),
    }
    return {"scope": scope, **_stated(schemaUrl=row.scope_schema_url)}


def _span(row: SpanRow) -> Json:
    from agenttrace.collectors.decode import SPAN_KINDS, STATUS_CODES

    return {
        "traceId": row.trace_id,
        "spanId": row.span_id,
        **_stated(parentSpanId=row.parent_span_id, traceState=row.trace_state, flags=row.flags),
        "name": row.name,
        "kind": SPAN_KINDS.index(row.span_kind),
        "startTimeUnixNano": str(row.start_time_unix_nano),
        # 0 is a span that has not ended.
        "endTimeUnixNano": str(row.end_time_unix_nano or 0),
        "attributes": _attributes(row.attributes),
        "events": [_event(event) for event in json.loads(row.events)],
        "links": [_link(link) for link in json.loads(row.links)],
        **_dropped("Attributes", row.dropped_attributes_count),
        **_dropped("Events", row.dropped_events_count),
        **_dropped("Links", row.dropped_links_count),
        "status": {"code": STATUS_CODES.index(row.status_code), **_stated(message=row.status_message)},
    }


def _log(row: LogRow) -> Json:
    return {
        "traceId": row.trace_id,
        "spanId": row.span_id,
        **_stated(
            eventName=row.event_name,
            timeUnixNano=_time(row.time_unix_nano),
            observedTimeUnixNano=_time(row.observed_time_unix_nano),
            severityNumber=row.severity_number,
            severityText=row.severity_text,
            flags=row.flags,
        ),
        **({} if row.body is None else {"body": _value(json.loads(row.body))}),
        "attributes": _attributes(row.attributes),
        **_dropped("Attributes", row.dropped_attributes_count),
    }


def _event(event: Json) -> Json:
    return {
        "timeUnixNano": str(event.get("time_unix_nano") or 0),
        "name": event.get("name") or "",
        "attributes": _pairs(event.get("attributes") or {}),
        **_dropped("Attributes", event.get("dropped_attributes_count") or 0),
    }


def _link(link: Json) -> Json:
    return {
        "traceId": link.get("trace_id") or "",
        "spanId": link.get("span_id") or "",
        **_stated(traceState=link.get("trace_state"), flags=link.get("flags")),
        "attributes": _pairs(link.get("attributes") or {}),
        **_dropped("Attributes", link.get("dropped_attributes_count") or 0),
    }


def _stated(**members: Any) -> Json:
    return {name: value for name, value in members.items() if value is not None}


def _dropped(what: str, number: int) -> Json:
    return {f"dropped{what}Count": number} if number else {}


def _time(nanoseconds: int | None) -> str | None:
    return None if nanoseconds is None else str(nanoseconds)


def _attributes(text: str) -> list[Json]:
    return _pairs(json.loads(text))


def _pairs(attributes: Json) -> list[Json]:
    return [{"key": key, "value": _value(value)} for key, value in attributes.items()]


def _value(value: Any) -> Json:
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(part) for part in cast("list[Any]", value)]}}
    return {"kvlistValue": {"values": _pairs(cast("Json", value))}} if isinstance(value, dict) else {}


_SIGNALS: tuple[_Signal, ...] = (
    _Signal(SpanRow, _span, "Spans", "spans", "spans", "start_time_unix_nano, trace_id, span_id"),
    _Signal(
        LogRow,
        _log,
        "Logs",
        "logRecords",
        "log_records",
        "coalesce(time_unix_nano, observed_time_unix_nano, 0), trace_id, span_id, event_name, attributes, body",
    ),
)
