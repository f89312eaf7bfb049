"""Log records of coding agents become rows of their own: deterministic, and nobody else's."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from recordings import TRACES, Json, as_recorded_and_arranged

from agenttrace.collectors.decode import Decoded, decode_logs_protobuf
from agenttrace.collectors.decode_json import decode_json
from agenttrace.collectors.files import import_files

CLAUDE = "com.anthropic.claude_code.events"
PROMPT = {"event.name": "user_prompt", "session.id": "s1", "prompt.id": "p1", "prompt": "Hello."}
CODEX_RESULT = {"event.name": "codex.tool_result", "conversation.id": "c1", "tool_name": "shell", "duration_ms": "40"}
TRACE_ID, SPAN_ID = "5b8efff798038103d269b633813fc60c", "eee19b7ec3c1b174"


def _value(value: Any) -> Json:
    return {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}


def _record(attributes: Json, *, time: int = 2_000_000_000, **fields: Any) -> Json:
    pairs = [{"key": key, "value": _value(value)} for key, value in attributes.items()]
    return {"timeUnixNano": str(time), "attributes": pairs, **fields}


def _request(*records: Json, scope: str = "any") -> Json:
    return {"resourceLogs": [{"resource": {}, "scopeLogs": [{"scope": {"name": scope}, "logRecords": list(records)}]}]}


def _decoded(*records: Json, scope: str = "any") -> Decoded:
    return decode_json(orjson.dumps(_request(*records, scope=scope)))


def test_a_record_of_claude_code_is_a_row_in_the_trace_of_its_prompt() -> None:
    result = PROMPT | {"event.name": "tool_result", "duration_ms": "500"}
    found = _decoded(_record(PROMPT), _record(result, time=3_000_000_000), scope=CLAUDE)
    assert [row.name for row in found.spans] == ["claude_code.user_prompt", "claude_code.tool_result"]
    assert len({row.trace_id for row in found.spans}) == 1
    assert len({row.span_id for row in found.spans}) == 2
    assert (found.spans[1].start_time_unix_nano, found.spans[1].end_time_unix_nano) == (2_500_000_000, 3_000_000_000)
    assert (found.logs, found.logs_without_span) == ([], 0)


def test_another_prompt_is_another_trace() -> None:
    found = _decoded(_record(PROMPT), _record(PROMPT | {"prompt.id": "p2"}), scope=CLAUDE)
    assert len({row.trace_id for row in found.spans}) == 2


def test_without_prompt_ids_a_session_is_one_trace() -> None:
    older = {key: value for key, value in PROMPT.items() if key != "prompt.id"}
    found = _decoded(_record(older), _record(older | {"prompt": "Again."}), scope=CLAUDE)
    assert len({row.trace_id for row in found.spans}) == 1


def test_the_body_names_claude_code_where_the_scope_is_lost() -> None:
    found = _decoded(_record(PROMPT, body={"stringValue": "claude_code.user_prompt"}))
    assert [row.name for row in found.spans] == ["claude_code.user_prompt"]


def test_a_record_within_a_span_stays_in_its_trace() -> None:
    (row,) = _decoded(_record(PROMPT, traceId=TRACE_ID, spanId=SPAN_ID), scope=CLAUDE).spans
    assert (row.trace_id, row.parent_span_id) == (TRACE_ID, SPAN_ID)
    assert row.span_id != SPAN_ID


def test_records_of_codex_meet_in_the_trace_of_their_conversation_whatever_ids_some_have() -> None:
    place = {"eventName": "event otel/src/tool_result.rs:54"}
    one = _record(CODEX_RESULT, **place)
    other = _record(CODEX_RESULT | {"call_id": "b"}, traceId=TRACE_ID, spanId=SPAN_ID)
    found = _decoded(one, other)
    assert [(row.name, row.parent_span_id) for row in found.spans] == [("codex.tool_result", None)] * 2
    assert len({row.trace_id for row in found.spans}) == 1
    assert found.spans[0].trace_id != TRACE_ID


def test_a_time_of_observation_will_do() -> None:
    record = _record(CODEX_RESULT) | {"observedTimeUnixNano": "7000000000"}
    record.pop("timeUnixNano")
    (row,) = _decoded(record).spans
    assert (row.start_time_unix_nano, row.end_time_unix_nano) == (6_960_000_000, 7_000_000_000)


@pytest.mark.parametrize("duration", ["long", "-5", "1e300", "nan", "inf", ""])
def test_a_duration_that_no_clock_measured_is_none(duration: str) -> None:
    (row,) = _decoded(_record(CODEX_RESULT | {"duration_ms": duration})).spans
    assert row.start_time_unix_nano == row.end_time_unix_nano


def test_the_same_record_is_the_same_row_in_any_encoding_and_order_of_attributes() -> None:
    request = _request(_record(CODEX_RESULT))
    turned = _record(dict(reversed(CODEX_RESULT.items())))
    protobuf = ParseDict(request, ExportLogsServiceRequest()).SerializeToString()
    (row,) = decode_json(orjson.dumps(request)).spans
    assert decode_logs_protobuf(protobuf).spans == [row]
    assert _decoded(turned).spans[0].span_id == row.span_id


@pytest.mark.parametrize(
    "attributes",
    [
        {"event.name": "user_prompt", "session.id": "s1", "prompt": "Another agent's."},
        {"event.name": "codex.startup_phase", "conversation.id": "c1"},
        {"event.name": "codex.sse_event", "event.kind": "response.output_text.delta", "conversation.id": "c1"},
        {"event.name": "codex.tool_decision", "decision": "approved", "conversation.id": "c1"},
        {"event.name": "claude_code.tool_decision", "decision": "accept", "session.id": "s1"},
        {"event.name": "codex.user_prompt", "prompt": "of no conversation"},
        {"message": "no event"},
    ],
)
def test_other_records_without_ids_are_left_out_and_counted(attributes: Json) -> None:
    found = _decoded(_record(attributes))
    assert (found.spans, found.logs, found.logs_without_span, found.problems) == ([], [], 1, [])


def test_a_protobuf_file_of_such_records_alone_is_read(tmp_path: Path) -> None:
    request = ParseDict(_request(_record(CODEX_RESULT)), ExportLogsServiceRequest())
    (tmp_path / "logs.pb").write_bytes(request.SerializeToString())
    result = import_files([tmp_path / "logs.pb"], tmp_path / "agenttrace.duckdb")
    assert (result.spans, result.skipped) == (1, [])


def _records_alone(lines: list[str]) -> list[str]:
    """One request per log record, the last one first."""
    requests = [
        json.dumps({"resourceLogs": [group | {"scopeLogs": [part | {"logRecords": [record]}]}]})
        for line in lines
        for group in json.loads(line).get("resourceLogs", [])
        for part in group["scopeLogs"]
        for record in part["logRecords"]
    ]
    return requests[::-1] or lines


def _twice_shuffled(lines: list[str]) -> list[str]:
    return random.Random(7).sample(lines * 2, len(lines) * 2)


@pytest.mark.parametrize("arrange", [_records_alone, _twice_shuffled])
@pytest.mark.parametrize("folder", ["claude-code", "claude-code-logs", "codex"])
def test_the_order_of_records_makes_no_difference(
    folder: str, arrange: Callable[[list[str]], list[str]], tmp_path: Path
) -> None:
    plain, arranged = as_recorded_and_arranged(TRACES / folder, arrange, tmp_path)
    assert all(plain)
    assert arranged == plain
