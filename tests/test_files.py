"""Import of files: every format and wrapping, what is skipped and where, and what stands in the store after it."""

import gzip
import io
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from segment_rows import read_segment

from agenttrace.collectors.decode import decode_traces_protobuf
from agenttrace.collectors.files import MAX_PROBLEMS, ImportResult, import_files
from agenttrace.collectors.json_documents import BadDocument, Document, json_documents
from agenttrace.errors import SpoolError
from agenttrace.spans import SpanRow
from agenttrace.spool import Spool, spool_folder
from agenttrace.store import compact_store, open_store, refresh

TRACES = Path(__file__).parent / "traces"
RECORDING = TRACES / "otel-openai-v2.s5_error_recovery.jsonl"
LOGS = TRACES / "otel-openai-v2-events.s1_happy.logs.jsonl"
BODY = TRACES / "openinference-openai.s2_duplicate_mutation.0.pb"


def request(number: int = 1, **changes: Any) -> dict[str, Any]:
    span = {
        "traceId": f"{number:032x}",
        "spanId": f"{number:016x}",
        "name": "chat",
        "startTimeUnixNano": "5",
        **changes,
    }
    return {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}


def line(number: int = 1, **changes: Any) -> bytes:
    return json.dumps(request(number, **changes)).encode() + b"\n"


def rows(db: Path, query: str = "SELECT trace_id, span_id FROM spans ORDER BY ALL") -> list[tuple[Any, ...]]:
    """What the store holds after everything has come in."""
    compact_store(db, budget_s=60.0)
    with open_store(db) as con:
        return con.execute(query).fetchall()


def skipped(result: ImportResult, folder: Path) -> list[str]:
    assert result.skipped_count == len(result.skipped)
    return [f"{place.removeprefix(str(folder) + os.sep)}: {message}" for place, message in result.skipped]


@pytest.fixture
def file(tmp_path: Path) -> Callable[[bytes], Path]:
    """Writes a file with a name that says nothing about its format."""

    def write(content: bytes) -> Path:
        path = tmp_path / "input"
        path.write_bytes(content)
        return path

    return write


# Formats


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("recording", [RECORDING, LOGS, BODY], ids=["json lines", "log lines", "protobuf"])
def test_every_format_lands_plain_and_gzip(
    recording: Path, packed: bool, store: Path, file: Callable[[bytes], Path]
) -> None:
    content = recording.read_bytes()
    result = import_files([file(gzip.compress(content) if packed else content)], store)
    assert result.skipped == []
    assert (result.files, result.leniencies) == (1, {})
    table = "log_records" if recording == LOGS else "spans"
    assert len(rows(store, f"FROM {table}")) == max(result.spans, result.logs) > 0


def test_pretty_printed_concatenated_and_listed_documents_land(store: Path, file: Callable[[bytes], Path]) -> None:
    content = b"\xef\xbb\xbf\n" + json.dumps(request(1), indent=2).encode()
    content += json.dumps(request(2), indent=1).encode() + json.dumps(request(3)).encode() + line(4)
    content += b"[\n" + line(5).strip() + b",\n" + line(6) + b"]\n"
    result = import_files([file(content)], store)
    assert result.skipped == []
    assert (result.spans, result.traces) == (6, 6)


def test_logs_in_protobuf_are_told_from_traces(store: Path, file: Callable[[bytes], Path]) -> None:
    from google.protobuf.json_format import ParseDict
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

    # A body over 127 bytes is no UTF-8 where a span has its name.
    for body in ("x", "x" * 200):
        message = ExportLogsServiceRequest()
        records = message.resource_logs.add().scope_logs.add().log_records
        ParseDict({"body": {"stringValue": body}}, records.add(trace_id=b"t" * 16, span_id=b"s" * 8))
        ParseDict({"body": {"stringValue": body}}, records.add(severity_number=9))
        result = import_files([file(message.SerializeToString())], store)
        assert (result.skipped, result.logs, result.logs_without_span, result.spans) == ([], 1, 1, 0)


def test_protobuf_spans_without_ids_are_reported(tmp_path: Path, store: Path, file: Callable[[bytes], Path]) -> None:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    message = ExportTraceServiceRequest()
    message.resource_spans.add().scope_spans.add().spans.add(trace_id=b"t" * 16).attributes.add(key="a")
    result = import_files([file(message.SerializeToString())], store)
    assert skipped(result, tmp_path) == [
        "input: resourceSpans[0].scopeSpans[0].spans[0]: spanId is missing or zero; expected 8 bytes"
    ]


def test_messages_behind_their_length_land(tmp_path: Path, store: Path, file: Callable[[bytes], Path]) -> None:
    bodies = [path.read_bytes() for path in sorted(TRACES.glob("openinference-openai.*.pb"))]
    framed = b"".join(len(body).to_bytes(4) + body for body in bodies)
    expected = sum(len(decode_traces_protobuf(body).spans) for body in bodies)
    result = import_files([file(framed)], store)
    assert (result.skipped, result.spans) == ([], expected)
    result = import_files([file(framed[:-7])], store)
    assert skipped(result, tmp_path) == ["input: message 2: torn: the file ends inside it"]
    result = import_files([file((4).to_bytes(4) + b"\n\xff\xff\xff" + framed)], store)
    assert (result.skipped_count, result.spans) == (1, expected)
    assert result.skipped[0].message.startswith("not an OTLP protobuf request: ")


def test_standard_input_is_a_dash(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(line(1) + b"{\n" + line(2)))))
    result = import_files(["-"], store)
    assert result.spans == 2
    assert result.skipped == [("standard input:2", "the document that begins here does not end")]


def test_metrics_beside_traces_are_left_out_and_counted(store: Path, file: Callable[[bytes], Path]) -> None:
    result = import_files([file(b'{"resourceMetrics":[]}\n' + line())], store)
    assert (result.skipped, result.other_signals, result.spans) == ([], 1, 1)


def test_line_of_twenty_megabytes_lands(store: Path, file: Callable[[bytes], Path]) -> None:
    long = {"key": "a", "value": {"stringValue": "x" * (20 << 20)}}
    result = import_files([file(line(1) + line(2, attributes=[long]) + line(3))], store)
    assert (result.spans, result.skipped) == (3, [])
    assert rows(store, "SELECT max(length(attributes)) FROM spans") == [((20 << 20) + len('{"a":""}'),)]


def test_many_rows_become_few_segments(store: Path, file: Callable[[bytes], Path]) -> None:
    reported: list[tuple[str, int]] = []
    spans = [span for number in range(1, 10_001) for span in request(number)["resourceSpans"]]
    path = file(json.dumps({"resourceSpans": spans}).encode())
    result = import_files([path], store, progress=lambda name, count: reported.append((name, count)))
    assert (result.spans, result.traces) == (10_000, 10_000)
    segments = Spool(spool_folder(store)).segments()
    assert [segment.rows for segment in segments] == [8_192, 1_808]
    assert all(read_segment(segment).settled for segment in segments)
    assert reported == [(str(path), 10_000)]


# What is skipped


def test_bad_line_and_bad_span_are_reported_with_their_places(
    tmp_path: Path, store: Path, file: Callable[[bytes], Path]
) -> None:
    content = (
        line(1) + b'{"resourceSpans":[{"secret' + b"\n" + line(2) + b"\n" + line(3, spanId="x") + b"secret\n" + line(4)
    )
    result = import_files([file(content)], store)
    assert skipped(result, tmp_path) == [
        "input:2: not JSON: unexpected end of data: line 1 column 27 (char 26)",
        "input:5: resourceSpans[0].scopeSpans[0].spans[0]: spanId is 'x'; expected 16 hex characters",
        "input:6: not JSON: unexpected character, expected a JSON value: line 1 column 1 (char 0)",
    ]
    assert rows(store) == [(f"{number:032x}", f"{number:016x}") for number in (1, 2, 4)]


@pytest.mark.parametrize(
    "torn",
    [
        b'{"resourceSpans":[\n',
        b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"tor\n',
        b'{"resourceSpans":[]]}\n',
        b'{"resourceSpans":[}\n',
        b"}\n",
        b"]]\n",
        b"null\n",
        b'"text"\n',
        b'{\n  "a": "torn\n  "b": 1\n}\n',
        b'{\n  "a": 1,\n}\n',
        b"{}{\n",
        b"[\n",
        b'[{"resourceSpans":[]},\n',
        b'{"data":[\n',
        b'{"resourceLogs":[{"scopeLogs":[\n',
        b"\x00\x01\xff\n",
    ],
)
def test_torn_document_costs_itself_alone(torn: bytes, store: Path, file: Callable[[bytes], Path]) -> None:
    result = import_files([file(line(1) + torn + line(2))], store)
    assert result.spans == 2
    assert [place.rsplit(":", 1)[1] for place, _ in result.skipped] == ["2"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (b"\x7fELF\x02\x01\x01\0", "is binary data of another kind (it begins with 7f 45 4c 46)"),
        (b"PAR1\x15\x04", "is a Parquet file"),
        (b"PK\x03\x04\x14\0", "is a zip archive"),
        (b"SQLite format 3\0", "is a SQLite database"),
        (b'\xff\xfe{\0"\0', "is UTF-16 text; save it as UTF-8"),
        (gzip.compress(gzip.compress(b"{}", mtime=0), mtime=0), "is gzip inside gzip"),
        (b"hello\nsecret\n", "is text that is neither JSON nor outcomes (task_id, trial, passed or reward, source)"),
        (b"task_id,passed\rt1,true\r", "is text that is neither JSON nor outcomes (task_id, trial, passed or reward"),
        (b"task_id,comment\n", "is text that is neither JSON nor outcomes (task_id, trial, passed or reward, source)"),
        (b"\n\x07\x00garbage", "not an OTLP protobuf request: "),
    ],
)
def test_file_of_another_kind_is_named(
    content: bytes, message: str, tmp_path: Path, store: Path, file: Callable[[bytes], Path]
) -> None:
    result = import_files([file(content)], store)
    (found,) = skipped(result, tmp_path)
    assert found.startswith(f"input: {message}")
    assert "\n" not in found
    assert "secret" not in found
    assert found.endswith(
        "; accepted are OTLP JSON or protobuf, Jaeger and Tempo JSON, chat transcripts as JSON, "
        "and outcomes as CSV, each also as gzip"
    )
    assert (result.files, result.spans) == (0, 0)
    assert not spool_folder(store).exists()


def test_json_of_another_kind_is_named_by_its_keys(tmp_path: Path, store: Path, file: Callable[[bytes], Path]) -> None:
    result = import_files([file(b'{"traceEvents": [], "\\u001b[31m": 1}')], store)
    assert skipped(result, tmp_path) == [
        "input:1: the document is an object with the keys 'traceEvents', '\\x1b[31m'; "
        "expected the key 'resourceSpans' or 'resourceLogs' (OTLP), 'data' (Jaeger), 'batches' (Tempo), "
        "or chat messages under 'messages' or 'traj' (--messages KEY names another)"
    ]


def test_missing_file_and_folder_are_reported_and_the_rest_lands(tmp_path: Path, store: Path) -> None:
    result = import_files([tmp_path / "absent", tmp_path, RECORDING / "below", RECORDING], store)
    assert skipped(result, tmp_path) == [
        "absent: no such file",
        f"{tmp_path}: is a folder; name the files in it",
        f"{RECORDING / 'below'}: cannot be read: Not a directory",
    ]
    assert (result.files, result.spans > 0) == (1, True)


def test_torn_gzip_lands_up_to_the_tear(tmp_path: Path, store: Path, file: Callable[[bytes], Path]) -> None:
    packed = gzip.compress(b"".join(line(number, name=os.urandom(40).hex()) for number in range(1, 3_001)))
    result = import_files([file(packed[: len(packed) // 2])], store)
    assert 0 < result.spans < 3_000
    (found,) = skipped(result, tmp_path)
    assert found.startswith("input: torn or corrupt gzip (")
    assert found.endswith("); what came before has been read")
    assert len(rows(store)) == result.spans


def test_problems_are_counted_beyond_those_that_are_kept(store: Path, file: Callable[[bytes], Path]) -> None:
    result = import_files([file(b'{"a":1}\n' * (MAX_PROBLEMS + 5) + line())], store)
    assert (len(result.skipped), result.skipped_count, result.spans) == (MAX_PROBLEMS, MAX_PROBLEMS + 5, 1)
    bad = request(2, spanId="x")["resourceSpans"] * (MAX_PROBLEMS + 5)
    result = import_files([file(json.dumps({"resourceSpans": bad}).encode() + line())], store)
    assert (len(result.skipped), result.skipped_count, result.spans) == (MAX_PROBLEMS, MAX_PROBLEMS + 5, 1)


def test_what_is_too_long_to_be_held_is_skipped(
    tmp_path: Path, store: Path, file: Callable[[bytes], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agenttrace.collectors.json_documents.MAX_DOCUMENT_BYTES", 1 << 20)
    monkeypatch.setattr("agenttrace.collectors.files.MAX_DOCUMENT_BYTES", 1 << 10)
    for length, count in ((2 << 20, 1), (300 << 10, 4)):
        long_document = b'{"a": [\n' + b",\n".join([b'"' + b"x" * length + b'"'] * count) + b"\n]}\n"
        content = line(1) + line(2, name="x" * (3 << 20)) + line(3) + long_document + line(4)
        result = import_files([file(content)], store)
        assert skipped(result, tmp_path) == ["input:2: longer than 1 MiB", "input:4: longer than 1 MiB"]
        assert result.spans == 3
    result = import_files([file(BODY.read_bytes())], store)
    assert skipped(result, tmp_path) == ["input: longer than 0 MiB"]


def test_objects_of_a_document_may_stand_on_lines_of_their_own(store: Path, file: Callable[[bytes], Path]) -> None:
    groups = [json.dumps(request(number)["resourceSpans"][0]).encode() for number in (1, 2, 3)]
    content = b'{"resourceSpans":[\n' + b",\n".join(groups) + b"\n]}\n"
    result = import_files([file(content)], store)
    assert (result.skipped, result.spans) == ([], 3)


def test_bad_item_of_a_list_costs_itself_alone(tmp_path: Path, store: Path, file: Callable[[bytes], Path]) -> None:
    result = import_files([file(json.dumps([request(1), 5, {"a": 1}, [request(3)], request(2)]).encode())], store)
    assert [message.partition(";")[0] for message in skipped(result, tmp_path)] == [
        "input:1[1]: the document is a number",
        "input:1[2]: the document is an object with the keys 'a'",
    ]
    assert result.spans == 3


def test_spool_that_cannot_be_written_is_named(store: Path) -> None:
    spool_folder(store).write_text("a file where the folder should be")
    with pytest.raises(SpoolError, match="cannot be written"):
        import_files([RECORDING], store)


# Into the store


def test_the_same_file_twice_adds_nothing(store: Path, tmp_path: Path) -> None:
    outcomes = tmp_path / "outcomes.csv"
    outcomes.write_text("task_id,trial,passed\nt1,0,true\n")
    files = [RECORDING, LOGS, BODY, outcomes]
    columns = {"spans": "* EXCLUDE (received_at)", "log_records": "* EXCLUDE (received_at)", "outcomes": "*"}
    import_files(files, store)
    first = [rows(store, f"SELECT {which} FROM {table} ORDER BY ALL") for table, which in columns.items()]
    assert all(first)
    import_files([*files, *files], store)
    assert [rows(store, f"SELECT {which} FROM {table} ORDER BY ALL") for table, which in columns.items()] == first


def test_span_with_two_start_times_is_one_step(store: Path, file: Callable[[bytes], Path]) -> None:
    # More than a minute apart the store does not see that they are one; every join of the rebuild doubles what stands
    # there twice.
    late = str(10**18)
    chat = [{"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}}]
    content = line(1, attributes=chat) + line(1, attributes=chat, startTimeUnixNano=late, endTimeUnixNano=late)
    for part in content.splitlines():
        import_files([file(part)], store)
        refresh(store)
    assert rows(store, "SELECT kind, end_time IS NOT NULL FROM steps") == [("model", True)]


def test_import_settles_what_it_brings(store: Path, file: Callable[[bytes], Path]) -> None:
    tool = [{"key": "gen_ai.operation.name", "value": {"stringValue": "execute_tool"}}]
    import_files([file(line(1, endTimeUnixNano="0", attributes=tool))], store)
    refresh(store)
    assert rows(store, "SELECT complete FROM trajectories") == [(True,)]


def test_task_and_trial_stand_in_the_resource_where_the_record_names_none(
    store: Path, file: Callable[[bytes], Path]
) -> None:
    own = [{"key": "agenttrace.task.id", "value": {"stringValue": "own"}}]
    quoted = [{"key": "note", "value": {"stringValue": '{"agenttrace.task.id": "no"}'}}]
    from_resource = request(4)
    from_resource["resourceSpans"][0]["resource"] = {"attributes": own}
    content = line(1) + line(2, attributes=own) + line(3, attributes=quoted) + json.dumps(from_resource).encode()
    import_files([file(content), LOGS], store, task_id="task-17", trial=3)
    found = rows(store, "SELECT resource_attributes FROM spans ORDER BY trace_id")
    both = {"agenttrace.task.id": "task-17", "agenttrace.trial": 3}
    assert [json.loads(text) for (text,) in found] == [
        both,
        {"agenttrace.trial": 3},
        both,
        {"agenttrace.task.id": "own", "agenttrace.trial": 3},
    ]
    (text,) = rows(store, "SELECT DISTINCT resource_attributes FROM log_records")[0]
    assert json.loads(text).items() >= {**both, "service.name": "purchasing-agent"}.items()


def test_file_and_receiver_bodies_give_equal_rows(store: Path) -> None:
    import_files([BODY], store)
    columns = ", ".join(SpanRow._fields)
    found = rows(store, f"SELECT {columns} FROM spans ORDER BY span_id")
    assert found == [
        tuple(row) for row in sorted(decode_traces_protobuf(BODY.read_bytes()).spans, key=lambda row: row.span_id)
    ]


# Outcomes


def test_outcomes_are_read(store: Path, tmp_path: Path, file: Callable[[bytes], Path]) -> None:
    content = (
        "\ufeffTask_ID, trial,passed,reward,source,trajectory_id,score,detail,comment\r\n"
        't1,0,TRUE,,,,,"two\nlines",x\r\n'
        "t1,1.0,no,,human\r\n"
        "t2,,,1.0,judge,,,,\r\n"
        "t2,,,0.9999999,,,,,\r\n"
        "t3,,,0.5,,,,,\r\n"
        "\r\n"
        ",,,,,tr1,0.25,,\r\n"
    )
    result = import_files([file(content.encode())], store)
    assert (result.skipped, result.outcomes, result.files) == ([], 6, 1)
    columns = "task_id, trial, trajectory_id, source, passed, score, detail"
    assert rows(store, f"SELECT {columns} FROM outcomes ORDER BY ALL") == [
        ("t1", 0, None, "checker", True, None, "two\nlines"),
        ("t1", 1, None, "human", False, None, None),
        ("t2", None, None, "checker", True, 0.9999999, None),
        ("t2", None, None, "judge", True, 1.0, None),
        ("t3", None, None, "checker", False, 0.5, None),
        (None, None, "tr1", "checker", None, 0.25, None),
    ]


def test_bad_outcomes_are_reported_with_their_lines(tmp_path: Path, store: Path, file: Callable[[bytes], Path]) -> None:
    lines = [
        "task_id,trial,passed,reward,source",
        "t1,0,maybe,,",
        "t1,0,,much,",
        "t1,0,,nan,",
        "t1,x,true,,",
        "t1,-1,true,,",
        "t1,0.5,true,,",
        ",0,true,,",
        "t1,0,true,,rumour",
        "t1,0,true,,human,6",
        "t1,0,true,,human",
    ]
    result = import_files([file("\n".join(lines).encode())], store)
    assert skipped(result, tmp_path) == [
        "input:2: passed is 'maybe'; expected true, false, or error if it could not run",
        "input:3: reward is 'much'; expected a number",
        "input:4: reward is 'nan'; expected a number",
        "input:5: trial is 'x'; expected a whole number",
        "input:6: trial is '-1'; expected a whole number",
        "input:7: trial is '0.5'; expected a whole number",
        "input:8: names no run; expected a task_id or a trajectory_id",
        "input:9: source is 'rumour'; expected checker, judge or human",
        "input:10: 6 cells; the header has 5",
    ]
    assert result.outcomes == 1


def test_trial_that_could_not_run_has_neither_verdict_nor_score(store: Path, file: Callable[[bytes], Path]) -> None:
    path = file(b"task_id,trial,passed,reward\nt1,0,,\nt1,1\nt1,2,Error,0.0\nt1,3,could not run,\nt1,4,,0\n")
    for _ in range(2):
        result = import_files([path], store)
        assert (result.skipped, result.outcomes) == ([], 5)
    assert rows(store, "SELECT trial, passed, score FROM outcomes ORDER BY trial") == [
        *((trial, None, None) for trial in range(4)),
        (4, False, 0.0),
    ]


def test_cell_that_csv_cannot_hold_is_reported(tmp_path: Path, store: Path, file: Callable[[bytes], Path]) -> None:
    content = b"task_id,passed,detail\nt1,true," + b"x" * 200_000 + b"\nt2,true,\n"
    result = import_files([file(content)], store)
    assert skipped(result, tmp_path) == ["input:2: not CSV: field larger than field limit (131072)"]
    assert result.outcomes == 1


def test_quote_that_does_not_end_is_reported(tmp_path: Path, store: Path, file: Callable[[bytes], Path]) -> None:
    result = import_files([file(b'task_id,passed\nt1,true\n"t2,true\nt3,true\n')], store)
    assert skipped(result, tmp_path) == ["input:4: not CSV: unexpected end of data"]
    assert result.outcomes == 1


def test_outcomes_may_quote_control_characters(store: Path, file: Callable[[bytes], Path]) -> None:
    result = import_files([file(b"task_id,passed,detail\nt1,true,\x1b[31mred\n")], store)
    assert (result.outcomes, result.skipped) == (1, [])
    assert rows(store, "SELECT detail FROM outcomes") == [("\x1b[31mred",)]


def test_task_and_trial_are_those_of_outcomes_that_name_none(store: Path, file: Callable[[bytes], Path]) -> None:
    import_files([file(b"task_id,trial,passed\n,,true\nt1,2,true\n")], store, task_id="task-17", trial=0)
    assert rows(store, "SELECT task_id, trial FROM outcomes ORDER BY ALL") == [("t1", 2), ("task-17", 0)]


# A spool at its cap


def test_import_larger_than_the_spool_makes_its_own_room(
    store: Path, file: Callable[[bytes], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    spans = [span for number in range(1, 20_001) for span in request(number)["resourceSpans"]]
    path = file(json.dumps({"resourceSpans": spans}).encode())
    import_files([path], store)
    largest = max(segment.size_bytes for segment in Spool(spool_folder(store)).segments())
    shutil.rmtree(spool_folder(store))
    monkeypatch.setattr("agenttrace.spool.Spool.__init__.__kwdefaults__", {"cap_bytes": largest * 3 // 2})
    assert import_files([path], store).spans == 20_000
    assert len(rows(store)) == 20_000


# Any stream


pieces = st.lists(
    st.sampled_from([b"{", b"}", b"[", b"]", b'"', b"\\", b"\n", b",", b":", b" ", b"1", b'"a"', b"{}\n", b"\xff"])
)


@given(content=pieces.map(b"".join) | st.binary())
def test_any_stream_is_split_without_error(content: bytes) -> None:
    from collections import Counter

    for found in json_documents(io.BytesIO(content), Counter()):
        assert isinstance(found, Document | BadDocument)
        assert 1 <= found.line <= content.count(b"\n") + 1


@given(
    documents=st.lists(st.dictionaries(st.text(max_size=3), st.lists(st.text(max_size=3), max_size=3), max_size=3)),
    indent=st.sampled_from([None, 0, 2]),
    between=st.sampled_from([b"\n", b"\r\n", b"", b"\n\n", b",\n"]),
)
def test_documents_come_out_as_they_went_in(documents: list[Any], indent: int | None, between: bytes) -> None:
    from collections import Counter

    stream = between.join(json.dumps(document, indent=indent).encode() for document in documents)
    assert [
        found.value for found in json_documents(io.BytesIO(stream), Counter()) if isinstance(found, Document)
    ] == documents
