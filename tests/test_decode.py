"""OTLP bodies -> rows: real recordings, near misses of real producers, and anything Hypothesis thinks of."""

import json
from base64 import b64decode
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from agenttrace.collectors.decode import Decoded, decode_logs_protobuf, decode_traces_protobuf
from agenttrace.collectors.decode_json import decode_json
from agenttrace.errors import DecodeError
from agenttrace.spans import LogRow, SpanRow

TRACES = Path(__file__).parent / "traces"
TRACE_ID = "2a752f9ec6d3244ee9a4f120bf2fea6e"
SPAN_ID = "bba327e92bb73f0b"


def otlp_json(message: Any) -> Any:
    """OTLP JSON of a request: protobuf's own, with ids in hex."""

    def with_hex_ids(value: Any) -> Any:
        if isinstance(value, list):
            return [with_hex_ids(item) for item in value]
        if not isinstance(value, dict):
            return value
        ids = ("traceId", "spanId", "parentSpanId")
        return {key: b64decode(item).hex() if key in ids else with_hex_ids(item) for key, item in value.items()}

    return with_hex_ids(MessageToDict(message, use_integers_for_enums=True))


def one_span(**changes: Any) -> dict[str, Any]:
    """A trace request with one span, in OTLP JSON."""
    span = {"traceId": TRACE_ID, "spanId": SPAN_ID, "name": "chat", "startTimeUnixNano": "5", **changes}
    return {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}


def only_span(decoded: Decoded) -> SpanRow:
    assert decoded.problems == []
    (row,) = decoded.spans
    return row


def attribute(value: Any) -> Any:
    """What one attribute value in OTLP JSON becomes."""
    row = only_span(decode_json(one_span(attributes=[{"key": "a", "value": value}])))
    return strict(row.attributes)["a"]


def strict(text: str) -> Any:
    """Parses JSON as a strict parser does: no NaN, no Infinity."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


# Recordings


def test_recorded_request_is_the_same_in_protobuf_and_json() -> None:
    bodies = sorted(TRACES.glob("otel-openai-v2.s5_error_recovery.*.pb"))
    rows = [row for body in bodies for row in decode_traces_protobuf(body.read_bytes()).spans]
    lines = (TRACES / "otel-openai-v2.s5_error_recovery.jsonl").read_bytes().splitlines()
    from_json = {row.span_id: row for line in lines for row in decode_json(line).spans}
    assert rows
    assert {row.span_id: row for row in rows}.items() <= from_json.items()


def test_recorded_log_records_belong_to_spans() -> None:
    lines = (TRACES / "otel-openai-v2-events.s1_happy.logs.jsonl").read_bytes().splitlines()
    rows = [row for line in lines for row in decode_json(line).logs]
    assert {row.event_name for row in rows} == {"gen_ai.client.inference.operation.details"}
    messages = strict(rows[0].attributes)["gen_ai.input.messages"]
    assert messages[0]["role"] == "system"
    assert rows[0].body is None


def test_recorded_requests_survive_the_round_trip_to_json() -> None:
    for path in sorted(TRACES.glob("*.pb")):
        body = path.read_bytes()
        decoded = decode_traces_protobuf(body)
        assert decoded.problems == []
        assert decoded.spans == decode_json(otlp_json(ExportTraceServiceRequest.FromString(body))).spans


# Every field has a column


def test_every_field_of_a_span_has_a_column() -> None:
    stored = {
        Resource: {"attributes", "dropped_attributes_count"},
        InstrumentationScope: {"name", "version", "attributes", "dropped_attributes_count"},
        Span.Event: {"time_unix_nano", "name", "attributes", "dropped_attributes_count"},
        Span.Link: {"trace_id", "span_id", "trace_state", "attributes", "dropped_attributes_count", "flags"},
        Status: {"message", "code"},
    }
    # References to entities, in development, and to the string table of profiles.
    left_out = {"entity_refs"}
    for message, fields in stored.items():
        assert {field.name for field in message.DESCRIPTOR.fields} - left_out == fields
    columns = {"kind": "span_kind", "status": "status_code"}
    assert {columns.get(field.name, field.name) for field in Span.DESCRIPTOR.fields} <= set(SpanRow._fields)
    assert {field.name for field in LogRecord.DESCRIPTOR.fields} <= set(LogRow._fields)


def test_whole_span_is_kept() -> None:
    event = {"timeUnixNano": "7", "name": "e", "attributes": [], "droppedAttributesCount": 4}
    link = {"traceId": TRACE_ID, "spanId": SPAN_ID, "traceState": "k=v", "flags": 1, "droppedAttributesCount": 5}
    span = {
        "traceId": TRACE_ID,
        "spanId": SPAN_ID,
        "parentSpanId": "0000000000000001",
        "traceState": "a=b",
        "flags": 257,
        "name": "chat gpt-4o",
        "kind": 3,
        "startTimeUnixNano": "1796040371896029843",
        "endTimeUnixNano": "1796040371896029844",
        "attributes": [{"key": "gen_ai.tool.name", "value": {"stringValue": "place_order"}}],
        "droppedAttributesCount": 1,
        "events": [event],
        "droppedEventsCount": 2,
        "links": [link],
        "droppedLinksCount": 3,
        "status": {"code": 2, "message": "boom"},
    }
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}], "droppedAttributesCount": 6}
    scope = {"name": "lib", "version": "1.0", "attributes": [], "droppedAttributesCount": 7}
    part = {"scope": scope, "schemaUrl": "https://s", "spans": [span]}
    request = {"resourceSpans": [{"resource": resource, "schemaUrl": "https://r", "scopeSpans": [part]}]}
    expected_event = {"time_unix_nano": 7, "name": "e", "attributes": {}, "dropped_attributes_count": 4}
    expected_link = {
        "trace_id": TRACE_ID,
        "span_id": SPAN_ID,
        "trace_state": "k=v",
        "attributes": {},
        "dropped_attributes_count": 5,
        "flags": 1,
    }
    row = only_span(decode_json(request))
    assert row._replace(events="", links="") == SpanRow(
        trace_id=TRACE_ID,
        span_id=SPAN_ID,
        parent_span_id="0000000000000001",
        name="chat gpt-4o",
        span_kind="client",
        start_time_unix_nano=1796040371896029843,
        end_time_unix_nano=1796040371896029844,
        status_code="error",
        status_message="boom",
        service_name="shop",
        scope_name="lib",
        scope_version="1.0",
        operation_name=None,
        openinference_kind=None,
        agent_name=None,
        tool_name="place_order",
        tool_call_id=None,
        conversation_id=None,
        model=None,
        input_tokens=None,
        output_tokens=None,
        error_type=None,
        attributes='{"gen_ai.tool.name":"place_order"}',
        events="",
        links="",
        resource_attributes='{"service.name":"shop"}',
        scope_attributes="{}",
        trace_state="a=b",
        flags=257,
        resource_schema_url="https://r",
        scope_schema_url="https://s",
        dropped_attributes_count=1,
        dropped_events_count=2,
        dropped_links_count=3,
        resource_dropped_attributes_count=6,
        scope_dropped_attributes_count=7,
    )
    assert strict(row.events) == [expected_event]
    assert strict(row.links) == [expected_link]


def test_defaults_left_out_are_those_of_protobuf() -> None:
    row = only_span(
        decode_json({"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": TRACE_ID, "spanId": SPAN_ID}]}]}]})
    )
    assert (row.name, row.span_kind, row.start_time_unix_nano, row.end_time_unix_nano) == ("", "unspecified", 0, None)
    assert (row.status_code, row.parent_span_id, row.service_name, row.flags) == ("unset", None, None, None)
    assert decode_json({}) == decode_json({"resourceSpans": []}) == Decoded()


# Values


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"stringValue": "a"}, "a"),
        ({"stringValue": ""}, ""),
        ({"boolValue": False}, False),
        ({"intValue": "9223372036854775807"}, 9223372036854775807),
        ({"intValue": -3}, -3),
        ({"intValue": "0"}, 0),
        ({"intValue": 5.0}, 5),
        ({"doubleValue": 1}, 1.0),
        ({"doubleValue": "NaN"}, "NaN"),
        ({"doubleValue": "Infinity"}, "Infinity"),
        ({"doubleValue": "-Infinity"}, "-Infinity"),
        ({"bytesValue": "-_8"}, "+/8="),
        ({"arrayValue": {"values": [{"intValue": "1"}, {}, {"stringValue": "b"}]}}, [1, None, "b"]),
        ({"arrayValue": {}}, []),
        ({"kvlistValue": {"values": [{"key": "k", "value": {"boolValue": True}}]}}, {"k": True}),
        ({"kvlistValue": {}}, {}),
        ({"string_value": "snake"}, "snake"),
        ({}, None),
        (None, None),
    ],
)
def test_attribute_value(value: Any, expected: Any) -> None:
    found = attribute(value)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"intValue": "99999999999999999999999"}, "99999999999999999999999"),
        ({"intValue": 2**63}, str(2**63)),
        ({"intValue": "five"}, "five"),
        ({"intValue": True}, True),
        ({"doubleValue": "much"}, "much"),
        ({"stringValue": 5}, 5),
        ({"stringValue": 5.5}, 5.5),
        ({"boolValue": "true"}, "true"),
        ({"bytesValue": "not base64!"}, "not base64!"),
    ],
)
def test_value_of_another_type_than_its_key_says_is_kept_and_counted(value: Any, expected: Any) -> None:
    decoded = decode_json(one_span(attributes=[{"key": "a", "value": value}]))
    assert strict(only_span(decoded).attributes) == {"a": expected}
    assert decoded.leniencies == {"values of another type than their key says": 1}


def test_the_last_of_duplicate_keys_counts() -> None:
    pairs = [{"key": "a", "value": {"intValue": "1"}}, {"key": "a", "value": {"intValue": "2"}}]
    assert strict(only_span(decode_json(one_span(attributes=pairs))).attributes) == {"a": 2}


def test_value_of_an_unknown_type_is_null_and_counted() -> None:
    decoded = decode_json(one_span(attributes=[{"key": "a", "value": {"Value": {"StringValue": "x"}}}]))
    assert strict(only_span(decoded).attributes) == {"a": None}
    assert decoded.leniencies == {"values of an unknown type": 1}


@pytest.mark.parametrize("kind", ["arrayValue", "kvlistValue"])
def test_deep_values_end_in_a_marker(kind: str) -> None:
    value: Any = {"stringValue": "bottom"}
    for _ in range(200):
        value = {kind: {"values": [value if kind == "arrayValue" else {"key": "k", "value": value}]}}
    found, levels = attribute(value), 0
    while not isinstance(found, str):
        found, levels = found[0 if kind == "arrayValue" else "k"], levels + 1
    assert (found, levels) == ("[nested deeper than 64 levels]", 64)


def test_protobuf_nested_too_deep_is_refused() -> None:
    def field(number: int, content: bytes) -> bytes:
        length = bytes([len(content) & 127 | 128, len(content) >> 7]) if len(content) > 127 else bytes([len(content)])
        return bytes([number << 3 | 2]) + length + content

    value = field(1, b"bottom")
    for _ in range(300):
        value = field(5, field(1, value))
    span = field(1, b"t" * 16) + field(2, b"s" * 8) + field(9, field(1, b"a") + field(2, value))
    with pytest.raises(DecodeError, match="not an OTLP protobuf request"):
        decode_traces_protobuf(field(1, field(2, field(2, span))))


# Near misses of real producers


def test_ids_and_enums_in_other_spellings_are_taken_and_counted() -> None:
    plain = only_span(decode_json(one_span(kind=3, parentSpanId=SPAN_ID, status={"code": 2})))
    misspelt = {
        "base64 ids": one_span(
            traceId="KnUvnsbTJE7ppPEgvy/qbg==",
            spanId="u6Mn6Su3Pws=",
            parentSpanId="u6Mn6Su3Pws",
            kind=3,
            status={"code": 2},
        ),
        "upper-case ids": one_span(
            traceId=TRACE_ID.upper(), spanId=SPAN_ID.upper(), parentSpanId=SPAN_ID, kind=3, status={"code": 2}
        ),
        "enum names": one_span(kind="SPAN_KIND_CLIENT", parentSpanId=SPAN_ID, status={"code": "STATUS_CODE_ERROR"}),
    }
    for name, request in misspelt.items():
        decoded = decode_json(request)
        assert only_span(decoded) == plain
        assert set(decoded.leniencies) == {name}
    assert only_span(decode_json(one_span(kind="3", parentSpanId=SPAN_ID, status={"code": "2"}))) == plain


def test_base64_of_the_hex_text_of_an_id_is_taken() -> None:
    # The Swift exporter wrote traceId so; 32 characters of hex are 44 of base64.
    decoded = decode_json(one_span(traceId="MmE3NTJmOWVjNmQzMjQ0ZWU5YTRmMTIwYmYyZmVhNmU="))
    assert only_span(decoded).trace_id == TRACE_ID
    assert decoded.leniencies == {"base64 ids": 1, "ids as hex text inside bytes": 1}


def test_hex_text_in_the_bytes_of_a_protobuf_id_is_taken() -> None:
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    spans.add(trace_id=TRACE_ID.encode(), span_id=SPAN_ID.encode())
    decoded = decode_traces_protobuf(request.SerializeToString())
    assert only_span(decoded)[:3] == (TRACE_ID, SPAN_ID, None)
    assert decoded.leniencies == {"ids as hex text inside bytes": 2}


def test_old_and_snake_case_key_names_are_taken() -> None:
    plain = only_span(decode_json(one_span(endTimeUnixNano="9", attributes=[{"key": "a", "value": {"intValue": "1"}}])))
    span = {
        "trace_id": TRACE_ID,
        "span_id": SPAN_ID,
        "name": "chat",
        "start_time_unix_nano": 5,
        "end_time_unix_nano": 9,
        "attributes": [{"key": "a", "value": {"int_value": 1}}],
    }
    for parts in ("scope_spans", "instrumentationLibrarySpans", "instrumentation_library_spans"):
        decoded = decode_json({"resource_spans": [{parts: [{"spans": [span]}]}]})
        assert only_span(decoded) == plain
        assert set(decoded.leniencies) == {"old or snake-case key names"}
    named = {
        "resourceSpans": [
            {"instrumentationLibrarySpans": [{"instrumentationLibrary": {"name": "lib"}, "spans": [span]}]}
        ]
    }
    assert only_span(decode_json(named)).scope_name == "lib"


def test_what_strict_json_lacks_is_taken() -> None:
    # JavaScript cuts a text in the middle of an emoji; Python's json.dumps writes NaN.
    text = json.dumps(one_span(name="cut \ud83d", attributes=[{"key": "a", "value": {"doubleValue": float("nan")}}]))
    decoded = decode_json(b"\xef\xbb\xbf" + text.encode())
    row = only_span(decoded)
    assert (row.name, strict(row.attributes)) == ("cut \ufffd", {"a": "NaN"})
    assert set(decoded.leniencies) == {"NaN, lone surrogates or a byte order mark in JSON"}


def test_list_of_requests_is_taken() -> None:
    decoded = decode_json([one_span(), {"resourceLogs": []}, one_span(spanId="")])
    assert len(decoded.spans) == 1
    assert decoded.problems == [
        "[2].resourceSpans[0].scopeSpans[0].spans[0]: spanId is missing or zero; expected 8 bytes"
    ]


# Bad records


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"traceId": ""}, "traceId is missing or zero; expected 16 bytes"),
        ({"traceId": "0" * 32}, "traceId is missing or zero; expected 16 bytes"),
        ({"spanId": None}, "spanId is missing or zero; expected 8 bytes"),
        ({"traceId": "abc"}, "traceId is 'abc'; expected 32 hex characters"),
        ({"spanId": 7}, "spanId is a number; expected a string"),
        ({"name": {"a": 1}}, "name is an object with the keys 'a'; expected a string"),
        ({"attributes": {"a": 1}}, "attributes is an object with the keys 'a'; expected a list"),
        ({"attributes": [{"key": "a", "value": "b"}]}, "a value is a string; expected an object"),
        (
            {"attributes": [{"key": "a", "value": {"stringValue": ["secret"]}}]},
            "a value is a list; expected a string or a number",
        ),
        (
            {"startTimeUnixNano": "soon"},
            "startTimeUnixNano is 'soon'; expected a whole number from 0 to 18446744073709551615",
        ),
        ({"endTimeUnixNano": -1}, "endTimeUnixNano is -1; expected a whole number from 0 to 18446744073709551615"),
        ({"startTimeUnixNano": 2**63}, f"time {2**63} is after the year 2262; expected nanoseconds since 1970"),
        ({"events": [None]}, "an item of events is null; expected an object"),
        (
            {"events": [{"timeUnixNano": 2**63}]},
            f"time {2**63} is after the year 2262; expected nanoseconds since 1970",
        ),
        ({"links": [{"traceId": "?"}]}, "traceId is '?'; expected 32 hex characters"),
        ({"status": 2}, "status is a number; expected an object"),
        ({"droppedEventsCount": True}, "droppedEventsCount is True; expected a whole number from 0 to 4294967295"),
    ],
)
def test_bad_span_is_reported_with_its_place_and_the_rest_lands(changes: dict[str, Any], reason: str) -> None:
    request = one_span(**changes)
    request["resourceSpans"] += one_span()["resourceSpans"]
    decoded = decode_json(request)
    assert decoded.problems == [f"resourceSpans[0].scopeSpans[0].spans[0]: {reason}"]
    assert (len(decoded.spans), decoded.rejected_spans, decoded.rejected_logs) == (1, 1, 0)


def test_bad_protobuf_span_is_reported_with_its_place_and_the_rest_lands() -> None:
    request = ExportTraceServiceRequest()
    part = request.resource_spans.add().scope_spans.add()
    part.spans.add(trace_id=b"t" * 16)
    part.spans.add(trace_id=b"t" * 16, span_id=b"s" * 7)
    part.spans.add(trace_id=b"t" * 16, span_id=b"s" * 8, start_time_unix_nano=2**64 - 1)
    part.spans.add(trace_id=b"t" * 16, span_id=b"s" * 8)
    decoded = decode_traces_protobuf(request.SerializeToString())
    assert decoded.problems == [
        "resourceSpans[0].scopeSpans[0].spans[0]: spanId is missing or zero; expected 8 bytes",
        "resourceSpans[0].scopeSpans[0].spans[1]: spanId has 7 bytes; expected 8",
        f"resourceSpans[0].scopeSpans[0].spans[2]: time {2**64 - 1} is after the year 2262; "
        "expected nanoseconds since 1970",
    ]
    assert (len(decoded.spans), decoded.rejected_spans) == (1, 3)


@pytest.mark.parametrize(
    ("groups", "place"),
    [
        ({"a": 1}, "resourceSpans"),
        ([None], "resourceSpans[0]"),
        ([{"resource": []}], "resourceSpans[0]"),
        ([{"resource": 5}], "resourceSpans[0]"),
        ([{"scopeSpans": {"a": 1}}], "resourceSpans[0]"),
        ([{"scopeSpans": ["x"]}], "resourceSpans[0].scopeSpans[0]"),
        ([{"scopeSpans": [{"scope": "x"}]}], "resourceSpans[0].scopeSpans[0]"),
        ([{"scopeSpans": [{"spans": "x"}]}], "resourceSpans[0].scopeSpans[0]"),
    ],
)
def test_bad_group_is_reported_with_its_place_and_the_rest_lands(groups: Any, place: str) -> None:
    if isinstance(groups, list):
        groups += one_span()["resourceSpans"]
    decoded = decode_json({"resourceSpans": groups})
    if groups == [{"resource": []}, *one_span()["resourceSpans"]]:
        assert decoded.problems == []  # empty is absent
        return
    (problem,) = decoded.problems
    assert problem.startswith(f"{place}: ")
    assert len(decoded.spans) == (1 if isinstance(groups, list) else 0)


def test_bad_log_record_is_reported_and_one_without_span_is_counted() -> None:
    records = [{"body": {"stringValue": "x"}}, {"traceId": TRACE_ID, "spanId": "?"}, {"traceId": TRACE_ID}, 5]
    decoded = decode_json({"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]})
    assert decoded.problems == [
        "resourceLogs[0].scopeLogs[0].logRecords[1]: spanId is '?'; expected 16 hex characters",
        "resourceLogs[0].scopeLogs[0].logRecords[3]: the log record is a number; expected an object",
    ]
    assert (decoded.rejected_logs, decoded.logs_without_span, decoded.logs) == (2, 2, [])
    request = ExportLogsServiceRequest()
    part = request.resource_logs.add().scope_logs.add()
    part.log_records.add(trace_id=b"t" * 16)
    part.log_records.add(trace_id=b"t" * 16, span_id=b"s" * 3)
    decoded = decode_logs_protobuf(request.SerializeToString())
    assert decoded.problems == ["resourceLogs[0].scopeLogs[0].logRecords[1]: spanId has 3 bytes; expected 8"]
    assert (decoded.rejected_logs, decoded.logs_without_span) == (1, 1)


def test_event_name_of_a_log_record_may_be_an_attribute() -> None:
    record = {
        "traceId": TRACE_ID,
        "spanId": SPAN_ID,
        "severityNumber": "SEVERITY_NUMBER_WARN",
        "body": {"stringValue": "text"},
        "attributes": [{"key": "event.name", "value": {"stringValue": "gen_ai.choice"}}],
    }
    decoded = decode_json({"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]})
    (row,) = decoded.logs
    assert (row.event_name, row.body, row.severity_number, row.time_unix_nano) == ("gen_ai.choice", '"text"', 13, None)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b'{"resourceSpans": "\xff"}', "not JSON"),
        (b"[" * 5000 + b"]" * 5000, "not JSON"),
        (b"null", "the document is null; expected the key"),
        (b'"secret"', "the document is a string; expected the key"),
        (b"[1]", r"\[0\] is a number; expected the key"),
        (b'{"resourceMetrics": []}', "an object with the keys 'resourceMetrics'; expected the key"),
        (b'{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1}', "keys 'a', 'b', 'c', 'd', 'e', ...; expected"),
        (b'{"\\u001b[31m%s": 1}' % (b"x" * 100), r"keys '\\x1b\[31mxx"),
    ],
)
def test_what_is_no_otlp_json_is_named_without_its_content(body: bytes, message: str) -> None:
    with pytest.raises(DecodeError, match=message) as caught:
        decode_json(body)
    assert "secret" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("decode", [decode_traces_protobuf, decode_logs_protobuf])
def test_invalid_utf8_in_protobuf_is_refused(decode: Callable[[bytes], Decoded]) -> None:
    traces = ExportTraceServiceRequest()
    traces.resource_spans.add(schema_url="abc")
    body = traces.SerializeToString().replace(b"abc", b"a\xffc")
    with pytest.raises(DecodeError, match="not an OTLP protobuf request"):
        decode(body)


# Anything

texts = st.text(max_size=8)
any_values = st.recursive(
    st.one_of(
        st.just(AnyValue()),
        texts.map(lambda text: AnyValue(string_value=text)),
        st.booleans().map(lambda value: AnyValue(bool_value=value)),
        st.integers(-(2**63), 2**63 - 1).map(lambda value: AnyValue(int_value=value)),
        st.floats().map(lambda value: AnyValue(double_value=value)),
        st.binary(max_size=8).map(lambda value: AnyValue(bytes_value=value)),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: AnyValue(array_value={"values": items})),
        st.lists(st.builds(KeyValue, key=texts, value=inner), max_size=3).map(
            lambda items: AnyValue(kvlist_value={"values": items})
        ),
    ),
    max_leaves=8,
)
attributes = st.lists(st.builds(KeyValue, key=texts, value=any_values), max_size=4)
times = st.integers(0, 2**64 - 1)
counts = st.integers(0, 2**32 - 1)
trace_ids = st.sampled_from([b"", bytes(16), b"t" * 16, b"short", TRACE_ID.encode()])
span_ids = st.sampled_from([b"", bytes(8), b"s" * 8, b"short", SPAN_ID.encode()])
spans = st.builds(
    Span,
    trace_id=trace_ids,
    span_id=span_ids,
    parent_span_id=span_ids,
    trace_state=texts,
    flags=counts,
    name=texts,
    kind=st.integers(0, 7),
    start_time_unix_nano=times,
    end_time_unix_nano=times,
    attributes=attributes,
    dropped_attributes_count=counts,
    events=st.lists(st.builds(Span.Event, time_unix_nano=times, name=texts, attributes=attributes), max_size=2),
    dropped_events_count=counts,
    links=st.lists(st.builds(Span.Link, trace_id=trace_ids, span_id=span_ids, attributes=attributes), max_size=2),
    status=st.none() | st.builds(Status, message=texts, code=st.integers(0, 3)),
)
log_records = st.builds(
    LogRecord,
    trace_id=trace_ids,
    span_id=span_ids,
    time_unix_nano=times,
    observed_time_unix_nano=times,
    severity_number=st.integers(0, 30),
    severity_text=texts,
    body=st.none() | any_values,
    attributes=attributes,
    flags=counts,
    event_name=texts,
)
resources = st.none() | st.builds(Resource, attributes=attributes, dropped_attributes_count=counts)
scopes = st.none() | st.builds(InstrumentationScope, name=texts, version=texts, attributes=attributes)


@given(resource=resources, scope=scopes, records=st.lists(spans, max_size=3), schema_url=texts)
def test_trace_request_gives_equal_rows_in_protobuf_and_json(
    resource: Resource | None, scope: InstrumentationScope | None, records: list[Span], schema_url: str
) -> None:
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add(resource=resource, schema_url=schema_url)
    group.scope_spans.add(scope=scope, schema_url=schema_url, spans=records)
    from_protobuf = decode_traces_protobuf(request.SerializeToString())
    from_json = decode_json(json.dumps(otlp_json(request)).encode())
    assert from_protobuf.spans == from_json.spans
    assert from_protobuf.rejected_spans == from_json.rejected_spans
    for row in from_json.spans:
        for text in (row.attributes, row.events, row.links, row.resource_attributes, row.scope_attributes):
            strict(text)


@given(resource=resources, scope=scopes, records=st.lists(log_records, max_size=3))
def test_log_request_gives_equal_rows_in_protobuf_and_json(
    resource: Resource | None, scope: InstrumentationScope | None, records: list[LogRecord]
) -> None:
    request = ExportLogsServiceRequest()
    request.resource_logs.add(resource=resource).scope_logs.add(scope=scope, log_records=records)
    from_protobuf = decode_logs_protobuf(request.SerializeToString())
    from_json = decode_json(json.dumps(otlp_json(request)).encode())
    assert from_protobuf.logs == from_json.logs
    assert from_protobuf.rejected_logs == from_json.rejected_logs
    assert from_protobuf.logs_without_span == from_json.logs_without_span


recorded = st.sampled_from(sorted(path.name for path in TRACES.iterdir() if path.is_file())).map(
    lambda name: (TRACES / name).read_bytes()
)
torn = st.builds(
    lambda body, at, new: body[: at % len(body)] + new + body[at % len(body) + 1 :],
    recorded,
    st.integers(0, 2**16),
    st.binary(max_size=2),
)


@given(body=st.binary() | torn)
def test_any_bytes_decode_or_raise_decode_error(body: bytes) -> None:
    for decode in (decode_traces_protobuf, decode_logs_protobuf, decode_json):
        with suppress(DecodeError):
            decode(body)


JSON_KEYS = ["resourceSpans", "scopeSpans", "spans", "resource", "scope", "traceId", "spanId", "attributes", "key"]
JSON_KEYS += ["value", "stringValue", "intValue", "doubleValue", "arrayValue", "values", "events", "resourceLogs"]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(JSON_KEYS), inner, max_size=4),
    max_leaves=20,
)


@given(
    document=json_values, field=st.sampled_from(["attributes", "events", "links", "status", "kind", "name", "flags"])
)
def test_any_json_decodes_or_raises_decode_error(document: Any, field: str) -> None:
    for candidate in (document, one_span(**{field: document}), {"resourceSpans": document, "resourceLogs": document}):
        try:
            decoded = decode_json(json.dumps(candidate).encode())
        except DecodeError:
            continue
        assert len(decoded.problems) == decoded.rejected_spans + decoded.rejected_logs
        for row in decoded.spans:
            strict(row.attributes)
            "".join(text for text in row if isinstance(text, str)).encode()
