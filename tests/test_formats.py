"""Files of Jaeger and Tempo: real exports with their truth, and recordings translated as OpenTelemetry does."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenttrace.cli import FAILED, IMPOSSIBLE, PASSED, main
from agenttrace.collectors.decode import Decoded
from agenttrace.collectors.files import import_files
from agenttrace.collectors.formats import FORMATS, format_of
from agenttrace.collectors.jaeger import decode_jaeger, is_jaeger
from agenttrace.collectors.tempo import decode_tempo
from agenttrace.errors import DecodeError
from agenttrace.spans import SpanRow
from agenttrace.store import open_store, refresh

TESTS = Path(__file__).parent
SAMPLES = TESTS / "data" / "otel_agent_traces"
RECORDINGS = ["langfuse-openai/s9_refused_retry", "strands/s9_handoff", "vercel-ai/s6a_unknown_tool"]
TRACE_ID = "0000000000000000000000000000a12b"
SPAN_ID = "00000000000000c3"

Json = dict[str, Any]


def rows(db: Path, query: str) -> list[tuple[Any, ...]]:
    refresh(db)
    with open_store(db) as con:
        return con.execute(query).fetchall()


# Real exports


@pytest.mark.parametrize("name", ["helm", "k8s", "tempo_export_with_batches"])
def test_export_becomes_what_its_authors_say(name: str, store: Path) -> None:
    truth = json.loads((SAMPLES / f"{name}.truth.json").read_text(encoding="utf-8"))
    for _ in range(2):
        result = import_files([SAMPLES / f"{name}.json.gz"], store)
        assert (result.skipped, result.leniencies, result.traces) == ([], {}, 1)
        assert rows(store, "SELECT count(*) FROM spans") == [(result.spans,)]
    wanted = [call for turn in truth["turns"] for call in turn["tool_calls"]]
    calls = rows(
        store,
        "SELECT tool_name, arguments, status, observation FROM steps WHERE kind = 'tool' AND duplicate_of IS NULL "
        "ORDER BY start_time",
    )
    assert [(tool, json.loads(arguments), status) for tool, arguments, status, _ in calls] == [
        (call["name"], call["args"], "error" if call["is_error"] else "ok") for call in wanted
    ]
    for (*_, observation), call in zip(calls, wanted, strict=True):
        # ADK notes a result of MCP whole, later releases its text.
        found = json.loads(observation)
        assert (found if isinstance(found, str) else found["content"][0]["text"]) == call["result"]["content"][0][
            "text"
        ]
    ((input_tokens, output_tokens, answers),) = rows(
        store, "SELECT sum(input_tokens), sum(output_tokens), list(final_response) FROM trajectories"
    )
    assert {"input": input_tokens, "output": output_tokens} == truth["tokens"]
    assert truth["turns"][-1]["final_text"] in answers


# Recordings, translated


def spans_of(request: Json) -> list[tuple[Json, Json, Json]]:
    """Resource, scope and span of each span of a request in OTLP JSON."""
    return [
        (group.get("resource", {}), part.get("scope", {}), span)
        for group in request.get("resourceSpans", [])
        for part in group["scopeSpans"]
        for span in part["spans"]
    ]


def plain(value: Json) -> Any:
    """What an AnyValue says, as the Collector writes it into a text."""
    ((kind, member),) = value.items() or [("", None)]
    if kind == "arrayValue":
        return [plain(item) for item in member.get("values", [])]
    if kind == "kvlistValue":
        return {pair["key"]: plain(pair["value"]) for pair in member.get("values", [])}
    return int(member) if kind == "intValue" else member


def tag(key: str, value: Json) -> Json:
    types = {"stringValue": "string", "boolValue": "bool", "intValue": "int64", "doubleValue": "float64"}
    kind = types.get(next(iter(value), ""), "string")
    found = plain(value)
    return {"key": key, "type": kind, "value": found if isinstance(found, str | int | float) else json.dumps(found)}


def text(key: str, value: Any) -> list[Json]:
    return [{"key": key, "type": "string", "value": value}] if value else []


def tags(pairs: list[Json] | None) -> list[Json]:
    return [tag(pair["key"], pair.get("value", {})) for pair in pairs or []]


def to_jaeger(requests: list[Json]) -> Json:
    """Translates as the Collector does (pkg/translator/jaeger), and writes as Jaeger's query service does."""
    traces: dict[str, Json] = {}
    for resource, scope, span in (found for request in requests for found in spans_of(request)):
        trace = traces.setdefault(span["traceId"], {"traceID": span["traceId"], "spans": [], "processes": {}})
        process = f"p{len(trace['processes']) + 1}"
        attributes = {pair["key"]: pair for pair in resource.get("attributes", [])}
        service = attributes.pop("service.name", {"value": {"stringValue": "OTLPResourceNoServiceName"}})
        trace["processes"][process] = {
            "serviceName": service["value"]["stringValue"],
            "tags": tags(list(attributes.values())),
        }
        status = span.get("status", {})
        code = status.get("code", 0)
        kinds = ("", "internal", "server", "client", "producer", "consumer")
        start = int(span["startTimeUnixNano"]) // 1_000
        parent = [{"refType": "CHILD_OF", "traceID": span["traceId"], "spanID": span.get("parentSpanId")}]
        links = [
            {"refType": "FOLLOWS_FROM", "traceID": link["traceId"], "spanID": link["spanId"]}
            for link in span.get("links", [])
        ]
        trace["spans"].append(
            {
                "traceID": span["traceId"],
                "spanID": span["spanId"],
                "operationName": span["name"],
                "references": (parent if span.get("parentSpanId") else []) + links,
                "startTime": start,
                "duration": int(span["endTimeUnixNano"]) // 1_000 - start,
                "tags": [
                    *text("otel.scope.name", scope.get("name")),
                    *text("otel.scope.version", scope.get("version")),
                    *tags(span.get("attributes")),
                    *text("span.kind", kinds[span.get("kind", 0)]),
                    *text("otel.status_code", ("", "OK", "ERROR")[code]),
                    *([{"key": "error", "type": "bool", "value": True}] if code == 2 else []),
                    *text("otel.status_description", status.get("message")),
                    *text("w3c.tracestate", span.get("traceState")),
                ],
                "logs": [
                    {
                        "timestamp": int(event["timeUnixNano"]) // 1_000,
                        "fields": [*text("event", event.get("name")), *tags(event.get("attributes"))],
                    }
                    for event in span.get("events", [])
                ],
                "processID": process,
                "warnings": None,
            }
        )
    return {"data": list(traces.values()), "total": 0, "limit": 0, "offset": 0, "errors": None}


def to_tempo(requests: list[Json]) -> Json:
    """Writes as Tempo's query API does: protobuf's own JSON."""

    def translated(value: Any) -> Any:
        if isinstance(value, list):
            return [translated(item) for item in value]
        if not isinstance(value, dict):
            return value
        found = {key: translated(item) for key, item in value.items()}
        for key in {"traceId", "spanId", "parentSpanId"} & found.keys():
            found[key] = base64.b64encode(bytes.fromhex(found[key])).decode()
        if isinstance(kind := found.get("kind"), int):
            names = ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
            found["kind"] = f"SPAN_KIND_{names[kind]}"
        if isinstance(code := found.get("code"), int):
            found["code"] = f"STATUS_CODE_{('UNSET', 'OK', 'ERROR')[code]}"
        return found

    return {"batches": [translated(group) for request in requests for group in request["resourceSpans"]]}


def in_microseconds(requests: list[Json]) -> list[Json]:
    """What of a recording is left when times are whole microseconds."""

    def cut(value: Any) -> Any:
        if isinstance(value, list):
            return [cut(item) for item in value]
        if not isinstance(value, dict):
            return value
        return {
            key: str(int(item) // 1_000 * 1_000) if key.endswith("TimeUnixNano") or key == "timeUnixNano" else cut(item)
            for key, item in value.items()
        }

    return [cut(request) for request in requests]


STEPS = "SELECT * FROM steps ORDER BY ALL"
TRAJECTORIES = "SELECT * EXCLUDE (last_arrival, revision) FROM trajectories ORDER BY ALL"


@pytest.mark.parametrize("recording", RECORDINGS)
def test_recording_becomes_the_same_steps_by_way_of_jaeger_and_tempo(recording: str, tmp_path: Path) -> None:
    lines = (TESTS / "traces" / f"{recording}.jsonl").read_text(encoding="utf-8").splitlines()
    requests = in_microseconds([json.loads(line) for line in lines])
    found: list[Any] = []
    for name, document in (
        ("otlp", requests),
        ("jaeger", to_jaeger(requests)),
        ("tempo", to_tempo(requests)),
        ("tempo", {"trace": {"resourceSpans": to_tempo(requests)["batches"]}}),
    ):
        path, db = tmp_path / f"{len(found)}.json", tmp_path / f"{len(found)}.duckdb"
        path.write_text(json.dumps(document, indent=2), encoding="utf-8")
        result = import_files([path], db, form=name)
        assert (result.skipped, result.leniencies, result.files) == ([], {}, 1)
        found.append([rows(db, STEPS), rows(db, TRAJECTORIES)])
    assert all(found[0])
    assert found[1:] == found[:1] * 3


# Jaeger


def jaeger(*spans: Json, processes: Json | None = None) -> Json:
    return {"data": [{"traceID": "a12b", "spans": list(spans), "processes": processes or {}}]}


def span(**changes: Any) -> Json:
    return {
        "traceID": "a12b",
        "spanID": "c3",
        "operationName": "chat",
        "startTime": 1_700_000_000_000_001,
        "duration": 5,
        **changes,
    }


def one(document: Json) -> SpanRow:
    assert format_of(document) == "jaeger"
    decoded = decode_jaeger(document)
    assert (decoded.problems, decoded.leniencies) == ([], {})
    (row,) = decoded.spans
    return row


def test_whole_span_of_jaeger_is_kept() -> None:
    tagged = span(
        flags=1,
        references=[
            {"refType": "FOLLOWS_FROM", "traceID": "a12b", "spanID": "1"},
            {"refType": "CHILD_OF", "traceID": "ffff", "spanID": "2"},
            {"refType": "CHILD_OF", "traceID": "a12b", "spanID": "3"},
            {"refType": "CHILD_OF", "traceID": "a12b", "spanID": "4"},
        ],
        tags=[
            {"key": "otel.scope.name", "type": "string", "value": "lib"},
            {"key": "otel.scope.version", "type": "string", "value": "1.0"},
            {"key": "otel.library.name", "type": "string", "value": "lib"},
            {"key": "span.kind", "type": "string", "value": "client"},
            {"key": "otel.status_code", "type": "string", "value": "ERROR"},
            {"key": "otel.status_description", "type": "string", "value": "boom"},
            {"key": "error", "type": "bool", "value": True},
            {"key": "w3c.tracestate", "type": "string", "value": "a=b"},
            {"key": "otel.dropped_attributes_count", "type": "int64", "value": 7},
            {"key": "gen_ai.tool.name", "type": "string", "value": "pay"},
            {"key": "long", "type": "int64", "value": "9007199254740993"},
            {"key": "half", "type": "float64", "value": 0.5},
            {"key": "yes", "type": "bool", "value": False},
            {"key": "raw", "type": "binary", "value": "+/8="},
            {"key": "bare", "value": 3},
            {"key": "list", "type": "string", "value": ["a", {"b": 1}]},
            {"key": "none", "type": "string", "value": None},
        ],
        logs=[
            {"timestamp": 1_700_000_000_000_002, "fields": [{"key": "event", "type": "string", "value": "exception"}]},
            {
                "timestamp": 1_700_000_000_000_003,
                "fields": [
                    {"key": "message", "type": "string", "value": "of an early translation"},
                    {"key": "level", "type": "string", "value": "info"},
                ],
            },
        ],
        processID="p1",
    )
    process = {"serviceName": "shop", "tags": [{"key": "host.name", "type": "string", "value": "h"}]}
    row = one(jaeger(tagged, processes={"p1": process}))
    no_links = {"trace_state": None, "dropped_attributes_count": 0, "flags": None}
    child = {"opentracing.ref_type": "child_of"}
    assert row[:12] == (
        TRACE_ID,
        SPAN_ID,
        "0000000000000003",
        "chat",
        "client",
        1_700_000_000_000_001_000,
        1_700_000_000_000_006_000,
        "error",
        "boom",
        "shop",
        "lib",
        "1.0",
    )
    assert (row.tool_name, row.trace_state, row.flags, row.dropped_attributes_count) == ("pay", "a=b", 1, 7)
    assert json.loads(row.resource_attributes) == {"service.name": "shop", "host.name": "h"}
    assert json.loads(row.attributes) == {
        "gen_ai.tool.name": "pay",
        "long": 9007199254740993,
        "half": 0.5,
        "yes": False,
        "raw": "+/8=",
        "bare": 3,
        "list": '["a",{"b":1}]',
        "none": None,
    }
    assert [(event["name"], event["attributes"]) for event in json.loads(row.events)] == [
        ("exception", {}),
        ("of an early translation", {"level": "info"}),
    ]
    assert json.loads(row.links) == [
        {"trace_id": TRACE_ID, "span_id": "0000000000000001", "attributes": {}, **no_links},
        {"trace_id": f"{0xFFFF:032x}", "span_id": "0000000000000002", "attributes": child, **no_links},
        {"trace_id": TRACE_ID, "span_id": "0000000000000004", "attributes": child, **no_links},
    ]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"references": [{"refType": "FOLLOWS_FROM", "traceID": "a12b", "spanID": "1"}]}, "0000000000000001"),
        ({"references": [{"refType": "FOLLOWS_FROM", "traceID": "ffff", "spanID": "1"}]}, None),
        ({"parentSpanID": "9"}, "0000000000000009"),
        ({"references": None}, None),
    ],
)
def test_parent_of_a_span_of_jaeger(changes: Json, expected: str | None) -> None:
    assert one(jaeger(span(**changes))).parent_span_id == expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"error": True}, ("error", None)),
        ({"error": "true", "otel.status_description": "m"}, ("error", "m")),
        ({"error": False}, ("unset", None)),
        ({"otel.status_code": "OK"}, ("ok", None)),
        ({"otel.status_code": "Error"}, ("error", None)),
        ({"otel.status_code": "OK", "error": True}, ("error", None)),
        ({"otel.status_code": 5}, ("unset", None)),
    ],
)
def test_status_of_a_span_of_jaeger(found: Json, expected: tuple[str, str | None]) -> None:
    row = one(jaeger(span(tags=[{"key": key, "value": value} for key, value in found.items()])))
    assert (row.status_code, row.status_message) == expected


def test_wrappings_of_jaeger_are_taken() -> None:
    (trace,) = jaeger(span(process={"serviceName": "OTLPResourceNoServiceName"}))["data"]
    row = one(trace)
    assert row.resource_attributes == "{}"
    otlp = {"traceId": TRACE_ID, "spanId": SPAN_ID, "name": "chat"}
    assert one({"result": {"resourceSpans": [{"scopeSpans": [{"spans": [otlp]}]}]}}).name == "chat"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"traceID": ""}, "traceId is missing or zero; expected 16 bytes"),
        ({"spanID": "0"}, "spanId is missing or zero; expected 8 bytes"),
        ({"spanID": 5}, "spanID is a number; expected a string"),
        ({"spanID": "x"}, "spanId is '000000000000000x'; expected 16 hex characters"),
        ({"startTime": "soon"}, "startTime is 'soon'; expected microseconds, as a whole number"),
        ({"duration": -1}, "duration is -1; expected microseconds, as a whole number"),
        ({"startTime": 2**62}, f"startTime is {2**62}; expected microseconds, as a whole number"),
        ({"tags": {}}, "tags is an empty object; expected a list"),
        ({"tags": [5]}, "an item of tags is a number; expected an object"),
        ({"logs": [None]}, "an item of logs is null; expected an object"),
        ({"references": ["x"]}, "a reference is a string; expected an object"),
        ({"processID": "p1"}, "the process is a list; expected an object"),
    ],
)
def test_bad_span_of_jaeger_is_reported_with_its_place_and_the_rest_lands(changes: Json, reason: str) -> None:
    decoded = decode_jaeger(jaeger(span(**changes), span(spanID="d4"), processes={"p1": ["x"]}))
    assert decoded.problems == [f"data[0].spans[0]: {reason}"]
    assert (decoded.rejected_spans, [row.span_id for row in decoded.spans]) == (1, ["00000000000000d4"])


def test_answer_without_traces_says_so() -> None:
    empty = {"data": [], "total": 0, "errors": None}
    failed = {"data": None, "errors": [{"code": 404, "msg": "trace not found"}]}
    for document, reason in ((empty, "holds no traces$"), (failed, "holds no traces: 'trace not found'$")):
        assert format_of(document) == "jaeger"
        with pytest.raises(DecodeError, match=f"an answer of Jaeger that {reason}"):
            decode_jaeger(document)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["key", "type", "value", "spans", "refType", "fields", "traceID"]), inner)
    ),
    max_leaves=10,
)


@given(value=json_values, field=st.sampled_from(["tags", "logs", "references", "flags", "processID", "process"]))
def test_any_json_is_decoded_or_raises_decode_error(value: Any, field: str) -> None:
    for document in (jaeger(span(**{field: value})), {"data": value}, {"data": [value, {"spans": value}]}, value):
        for form in FORMATS.values():
            if form.recognises(document):
                try:
                    decoded = form.decode(document, None)
                except DecodeError:
                    continue
                assert isinstance(decoded, Decoded)
                assert len(decoded.problems) == decoded.rejected_spans + decoded.rejected_logs
    assert is_jaeger(jaeger(span(**{field: value})))


# Tempo


def test_bad_span_of_tempo_is_reported_and_the_rest_lands() -> None:
    document = {"batches": [{"scopeSpans": [{"spans": [{"traceId": "?"}, {"traceId": TRACE_ID, "spanId": SPAN_ID}]}]}]}
    assert format_of(document) == "tempo"
    decoded = decode_tempo(document)
    assert (len(decoded.spans), decoded.rejected_spans, len(decoded.problems)) == (1, 1, 1)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({}, "otlp"),
        ({"resourceSpans": []}, "otlp"),
        ([{"resource_spans": []}], "otlp"),
        ({"batches": []}, "tempo"),
        ({"trace": {"batches": []}}, "tempo"),
        ({"batches": [5]}, None),
        ({"trace": "t1", "messages": []}, None),
        ({"traceID": "1", "spans": []}, "jaeger"),
        ({"data": [{"id": 1}]}, None),
        ({"data": [], "next": None}, None),
        ({"spans": []}, None),
        ({"result": {}}, None),
        ({"messages": []}, None),
        ([], "otlp"),
        (None, None),
    ],
)
def test_format_is_told_by_content(document: Any, expected: str | None) -> None:
    assert format_of(document) == expected


# Files


def otlp(number: int) -> Json:
    span = {"traceId": f"{number:032x}", "spanId": f"{number:016x}", "name": "chat", "startTimeUnixNano": "5"}
    return {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}


def test_formats_stand_beside_each_other_in_one_file(store: Path, tmp_path: Path) -> None:
    several = jaeger(span())
    several["data"] *= 2
    lines = [otlp(1), several, {"batches": otlp(2)["resourceSpans"]}, [jaeger(span(spanID="d4")), otlp(3)]]
    (tmp_path / "mixed").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    # One trace to a line, within one document.
    spread = '{"data":[\n' + ",\n".join(json.dumps(jaeger(span(spanID=str(n)))["data"][0]) for n in (5, 6)) + "\n]}"
    (tmp_path / "spread").write_text(spread, encoding="utf-8")
    result = import_files([tmp_path / "mixed", tmp_path / "spread"], store)
    assert (result.skipped, result.spans) == ([], 8)
    assert rows(store, "SELECT count(*) FROM spans") == [(7,)]


@pytest.mark.parametrize(
    ("named", "content", "found"),
    [
        ("jaeger", json.dumps(otlp(1)), "is OTLP, not Jaeger JSON"),
        ("otlp", json.dumps(jaeger(span())), "is Jaeger JSON, not OTLP"),
        ("otlp", json.dumps([jaeger(span())]), "is Jaeger JSON, not OTLP"),
        ("transcripts", '{"batches": []}', "is Tempo JSON, not chat transcripts"),
        ("tempo", '{"a": 1}', "is not Tempo JSON: FILE:1 is an object with the keys 'a'"),
        ("outcomes", "{}", "is JSON, not outcomes as CSV"),
        ("tempo", "task_id,passed\nt1,true\n", "is outcomes as CSV, not Tempo JSON"),
        ("jaeger", "\n\x00", "is OTLP as protobuf, not Jaeger JSON"),
    ],
)
def test_file_of_another_format_than_named_is_refused(
    named: str, content: str, found: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, db = tmp_path / "input", tmp_path / "agenttrace.duckdb"
    path.write_text(content, encoding="utf-8")
    assert main(["import", str(path), "--format", named, "--db", str(db)]) == IMPOSSIBLE
    wanted = f"{path}: skipped: {found.replace('FILE', str(path))}; leave --format out, or name what the file is\n"
    assert capsys.readouterr().err.startswith(wanted)


def test_what_came_before_another_format_has_landed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, db = tmp_path / "input", tmp_path / "agenttrace.duckdb"
    path.write_text("\n".join(map(json.dumps, [otlp(1), jaeger(span()), otlp(2)])), encoding="utf-8")
    assert main(["import", str(path), "--format", "otlp", "--db", str(db)]) == FAILED
    assert capsys.readouterr().out.startswith("1 spans of 1 traces")
    assert main(["import", str(path), "--db", str(db)]) == PASSED


def test_format_that_is_unknown_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "x", "--format", "zipkin", "--db", str(tmp_path / "db")]) == IMPOSSIBLE
    assert "'jaeger'" in capsys.readouterr().err
