"""The life of the data: what leaves the store, what comes into it from others, and what is gone for good."""

import gzip
import json
import os
import random
import re
import shlex
import shutil
import stat
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from google.protobuf.json_format import ParseDict
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from agenttrace import connect, prune, stored_redaction
from agenttrace.cli import FAILED, IMPOSSIBLE, PASSED, main
from agenttrace.collectors.decode_json import attributes_of
from agenttrace.collectors.files import import_files
from agenttrace.collectors.merge import merge
from agenttrace.config import Settings
from agenttrace.errors import StoreBusyError
from agenttrace.evaluators.run import evaluate
from agenttrace.evaluators.storing import write_evaluation
from agenttrace.otlp_lines import _pairs
from agenttrace.parquet import write_parquet
from agenttrace.rewrite import rewrite
from agenttrace.spans import LogRow, OutcomeRow, SpanRow
from agenttrace.spool import Spool, spool_folder
from agenttrace.store import open_store, refresh

MakeSpan = Callable[..., SpanRow]
TRACES = Path(__file__).parent / "traces"
DOCS = Path(__file__).parent.parent / "docs"
SECRET = "bob.secret@example.com"
DAY_NS = 86_400_000_000_000
NOW_NS = int(datetime.now(UTC).timestamp()) * 1_000_000_000


def rows(db: Path, query: str) -> list[tuple[Any, ...]]:
    with open_store(db) as con:
        return con.execute(query).fetchall()


@pytest.fixture
def add(store: Path, make_span: MakeSpan) -> Callable[..., None]:
    """Lets a run of one mutating call arrive that ended so many days ago."""

    def add(number: int, days: float, *, session: str | None = None, arguments: object = None, **stated: Any) -> None:
        attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "issue_refund", **stated}
        if session:
            attributes["gen_ai.conversation.id"] = session
        if arguments is not None:
            attributes["gen_ai.tool.call.arguments"] = json.dumps(arguments)
        end = NOW_NS - int(days * DAY_NS)
        span = make_span(
            number,
            name="execute_tool issue_refund",
            tool_name="issue_refund",
            conversation_id=session,
            start_time_unix_nano=end - 1_000_000,
            end_time_unix_nano=end,
            attributes=json.dumps(attributes),
        )
        Spool(spool_folder(store)).write("spans", [span], settled=True)

    return add


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings of every framework in one store, with findings."""
    db = tmp_path_factory.mktemp("recorded") / "agenttrace.duckdb"
    found = sorted(path for path in TRACES.rglob("*.json*") if "expected" not in path.name)
    import_files(found[::9], db)
    refresh(db)
    write_evaluation(db, evaluate(db, Settings(), label="base"))
    refresh(db)
    return db


SAME = {
    "spans": "SELECT * EXCLUDE (received_at) FROM spans ORDER BY ALL",
    "log_records": "SELECT * EXCLUDE (received_at) FROM log_records ORDER BY ALL",
    "steps": "SELECT * FROM steps ORDER BY ALL",
    "trajectories": "SELECT * EXCLUDE (last_arrival, revision) FROM trajectories ORDER BY ALL",
}


def same(one: Path, other: Path) -> None:
    for table, query in SAME.items():
        assert rows(one, query) == rows(other, query), table


def found_in(db: Path) -> list[Any]:
    return [finding._replace(state=None) for finding in evaluate(db, Settings()).findings]


# --- export


@pytest.mark.xdist_group("keeping")
@pytest.mark.parametrize("name", ["spans.jsonl", "spans.jsonl.gz"])
def test_what_is_exported_as_otlp_comes_back_equal(recorded: Path, store: Path, tmp_path: Path, name: str) -> None:
    target = tmp_path / name
    assert main(["export", str(target), "--db", str(recorded)]) == PASSED
    assert not import_files([target], store).skipped
    refresh(store)
    same(recorded, store)
    assert rows(store, "SELECT count(*) > 30 FROM trajectories") == [(True,)]
    if name.endswith("l"):
        findings = found_in(store)
        assert findings == found_in(recorded)
        assert len(findings) > 3


@pytest.mark.xdist_group("keeping")
def test_every_line_is_a_request_that_a_stock_receiver_takes(recorded: Path, tmp_path: Path) -> None:
    target = tmp_path / "spans.jsonl.gz"
    assert main(["export", str(target), "--db", str(recorded)]) == PASSED
    spans = logs = 0
    with gzip.open(target, "rb") as file:
        for line in file:
            document = json.loads(line)
            # Both refuse names that OTLP does not have, and values of other types.
            if "resourceSpans" in document:
                request = ParseDict(document, ExportTraceServiceRequest())
                spans += sum(len(scope.spans) for group in request.resource_spans for scope in group.scope_spans)
            else:
                records = ParseDict(document, ExportLogsServiceRequest())
                logs += sum(len(scope.log_records) for group in records.resource_logs for scope in group.scope_logs)
            assert len(line) < 4 << 20
    assert [(spans, logs)] == rows(recorded, "SELECT (SELECT count(*) FROM spans), (SELECT count(*) FROM log_records)")


ATTRIBUTES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), ATTRIBUTES, max_size=4))
def test_any_attributes_come_back(attributes: dict[str, Any]) -> None:
    from collections import Counter

    written = json.loads(json.dumps(_pairs(attributes)))
    assert attributes_of(written, 0, Counter()) == attributes


def test_a_period_and_a_span_that_has_not_ended_are_exported(
    add: Callable[..., None], store: Path, make_span: MakeSpan, tmp_path: Path, capfdbinary: Any
) -> None:
    add(1, 9)
    add(2, 1)
    Spool(spool_folder(store)).write("spans", [make_span(3, end_time_unix_nano=None)])
    assert main(["export", "-", "--since", "3d", "--db", str(store)]) == PASSED
    [line] = capfdbinary.readouterr().out.splitlines()
    assert b"%032x" % 2 in line
    assert b"%032x" % 1 not in line
    assert main(["export", str(tmp_path / "all.jsonl"), "--db", str(store)]) == PASSED
    import_files([tmp_path / "all.jsonl"], tmp_path / "other.duckdb")
    refresh(tmp_path / "other.duckdb")
    unended = rows(tmp_path / "other.duckdb", "SELECT trace_id FROM spans WHERE end_time_unix_nano IS NULL")
    assert unended == [(f"{3:032x}",)]


@pytest.mark.xdist_group("keeping")
def test_parquet_holds_all_tables_in_types_that_every_engine_has(recorded: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    counts = write_parquet(recorded, folder)
    with duckdb.connect() as con:
        con.execute(f"ATTACH '{recorded}' AS store (READ_ONLY)")
        for table, count in counts.items():
            place = folder / f"{table}.parquet"
            files = f"'{place}'" if place.exists() else f"'{folder / table}/*/*/*.parquet'"
            if not count:
                continue
            found = f"read_parquet({files}, hive_partitioning = true)"
            kinds = {kind for _, kind, *_ in con.execute(f"DESCRIBE FROM {found}").fetchall()}
            assert kinds <= {
                *("VARCHAR", "VARCHAR[]", "BIGINT", "INTEGER", "DOUBLE", "BOOLEAN", "DATE"),
                "TIMESTAMP WITH TIME ZONE",
            }
            stored = con.execute(
                "SELECT column_name, data_type FROM duckdb_columns() WHERE database_name = 'store' AND table_name = ?",
                [table],
            ).fetchall()
            columns = ", ".join(name for name, _ in stored)
            texts = ", ".join(f"{name}::VARCHAR AS {name}" if kind == "JSON" else name for name, kind in stored)
            written = con.execute(f"SELECT {columns} FROM {found}").fetchall()
            kept = con.execute(f"SELECT {texts} FROM store.{table}").fetchall()
            assert sorted(map(repr, written)) == sorted(map(repr, kept)), table
        steps, runs = (f"read_parquet('{folder / table}/*/*/*.parquet')" for table in ("steps", "trajectories"))
        # A place may be judged alone: it has the whole of each session, and the steps of its runs.
        parted = con.execute(f"SELECT session_id FROM {runs} GROUP BY ALL HAVING count(DISTINCT (day, bucket)) > 1")
        assert parted.fetchall() in ([], [(None,)])
        strays = con.execute(
            f"SELECT count(*) FROM {steps} AS s JOIN {runs} AS r USING (trajectory_id)"
            " WHERE (s.day, s.bucket) IS DISTINCT FROM (r.day, r.bucket)"
        )
        assert strays.fetchall() == [(0,)]


@pytest.mark.xdist_group("keeping")
def test_lines_on_a_terminal_do_not_act(
    add: Callable[..., None], store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    add(1, 1, note="\x9b31m\u202e")
    command = ["export", "-", "--db", str(store)]
    assert main(command) == PASSED
    assert "\x9b31m\u202e" in capsys.readouterr().out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert main(command) == PASSED
    printed = capsys.readouterr().out
    assert "\x9b" not in printed
    assert "\u202e" not in printed


def test_nothing_is_written_over(recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["export", str(tmp_path), "--format", "parquet", "--db", str(recorded)]
    assert main(command) == IMPOSSIBLE
    assert "is there already" in capsys.readouterr().err
    assert main([*command[:1], str(tmp_path / "a"), *command[2:], "--since", "1d"]) == IMPOSSIBLE
    assert list(tmp_path.iterdir()) == []


# --- rewriting


@pytest.mark.xdist_group("keeping")
def test_a_store_written_anew_is_the_same_and_keeps_what_others_have_put_there(recorded: Path, store: Path) -> None:
    shutil.copyfile(recorded, store)
    store.chmod(0o640)
    with duckdb.connect(store) as con:
        con.execute("CREATE TABLE own (id INTEGER PRIMARY KEY); INSERT INTO own VALUES (7)")
        con.execute("COMMENT ON TABLE own IS 'somebody else made it'")
        con.execute('CREATE SCHEMA other; CREATE TABLE other."odd name" AS SELECT \'x\' AS "col umn"')
        con.execute("CREATE VIEW dear AS SELECT * FROM trajectories WHERE cost_usd > 1")
    sizes = rewrite(store)
    assert sizes.after <= sizes.before
    same(recorded, store)
    assert rows(store, "FROM own") == [(7,)]
    assert rows(store, 'FROM other."odd name"') == [("x",)]
    assert rows(store, "SELECT count(*) FROM duckdb_views() WHERE view_name = 'dear'") == [(1,)]
    comments = "SELECT table_name, column_name, comment FROM duckdb_columns() WHERE comment IS NOT NULL ORDER BY ALL"
    assert rows(store, comments) == rows(recorded, comments)
    assert stat.S_IMODE(store.stat().st_mode) == 0o640
    assert [path.name for path in spool_folder(store).iterdir()] == []


@pytest.mark.xdist_group("keeping")
def test_a_link_stays_a_link(recorded: Path, store: Path, tmp_path: Path) -> None:
    real = tmp_path / "elsewhere" / "real.duckdb"
    real.parent.mkdir()
    shutil.copyfile(recorded, real)
    store.symlink_to(real)
    rewrite(store)
    assert store.is_symlink()
    same(recorded, real)


def test_who_reads_or_writes_all_the_time_is_waited_for_in_vain(add: Callable[..., None], store: Path) -> None:
    add(1, 1)
    refresh(store)
    before = store.stat().st_ino
    with duckdb.connect(store, read_only=True), pytest.raises(StoreBusyError):
        rewrite(store, wait_s=0.2)
    assert store.stat().st_ino == before
    assert rows(store, "SELECT count(*) FROM spans") == [(1,)]


def test_a_full_disk_leaves_the_store_as_it_was(
    small_disk: Path, make_span: MakeSpan, capsys: pytest.CaptureFixture[str]
) -> None:
    db = small_disk / "agenttrace.duckdb"
    Spool(spool_folder(db)).write("spans", [make_span(1)])
    refresh(db)
    filler = small_disk / "filler"
    with filler.open("wb") as file:
        file.write(b"x" * max(0, shutil.disk_usage(small_disk).free - 300_000))
    before = rows(db, SAME["spans"])
    assert main(["compact", "--db", str(db)]) == IMPOSSIBLE
    assert "cannot be written anew, and is as it was" in capsys.readouterr().err
    assert rows(db, SAME["spans"]) == before
    assert list(spool_folder(db).glob("rewrite-*")) == []


def test_what_is_written_meanwhile_comes_in_afterwards(
    add: Callable[..., None], store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 40):
        add(number, number)
    refresh(store)
    stop = threading.Event()

    def write() -> None:
        number = 1_000
        while not stop.is_set():
            add(number, 0)
            refresh(store, wait_s=0.1)
            number += 1
        written.append(number - 1_000)

    written: list[int] = []
    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(3):
            rewrite(store)
    finally:
        stop.set()
        thread.join()
    refresh(store)
    assert rows(store, "SELECT count(*) FROM spans") == [(39 + written[0],)]
    assert written[0] > 3


def test_who_has_opened_the_file_that_was_replaced_opens_the_new_one(
    add: Callable[..., None], store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(1, 1)
    refresh(store)
    open_file = duckdb.connect
    opened: list[object] = []

    def late(path: str, **options: Any) -> Any:
        con = open_file(path, **options)
        if not opened:
            # As if the rewriting came between this process's opening of the file and its lock.
            shutil.copyfile(store, store.with_name("new"))
            store.with_name("new").rename(store)
        opened.append(con)
        return con

    monkeypatch.setattr(connect.duckdb, "connect", late)
    with connect.connect(store, 5.0, read_only=False) as con:
        con.execute("CREATE TABLE kept AS SELECT 1")
    assert len(opened) == 2
    monkeypatch.undo()
    assert rows(store, "FROM kept") == [(1,)]


# --- prune


def runs(db: Path) -> set[int]:
    return {int(trace, 16) for (trace,) in rows(db, "SELECT trace_id FROM trajectories")}


def test_old_runs_go_by_whole_sessions_and_findings_stay(add: Callable[..., None], store: Path) -> None:
    add(1, 40)
    add(2, 40, session="long")
    add(3, 1, session="long")
    add(4, 40, session="old")
    add(5, 35, session="old")
    add(6, 1)
    Spool(spool_folder(store)).write("outcomes", [OutcomeRow("t", None, None, "human", True, None, None, NOW_NS)])
    refresh(store)
    write_evaluation(store, evaluate(store, Settings()))
    refresh(store)
    before = rows(store, "FROM findings"), rows(store, "FROM outcomes"), rows(store, "FROM evaluation_runs")
    month = datetime.now(UTC) - timedelta(days=30)
    planned = prune.plan(store, month, None)
    assert (planned.runs, planned.spans, planned.runs_left) == (3, 3, 3)
    assert runs(store) == {1, 2, 3, 4, 5, 6}
    prune.prune(store, month, None)
    assert runs(store) == {2, 3, 6}
    assert rows(store, "SELECT count(*) FROM spans") == [(3,)]
    assert (rows(store, "FROM findings"), rows(store, "FROM outcomes"), rows(store, "FROM evaluation_runs")) == before


def test_what_the_newest_evaluation_of_a_label_covers_stays(add: Callable[..., None], store: Path) -> None:
    add(1, 40)
    refresh(store)
    write_evaluation(store, evaluate(store, Settings(), label="base"))
    add(2, 40)
    refresh(store)
    month = datetime.now(UTC) - timedelta(days=30)
    assert prune.plan(store, month, None).labelled == {"base": 1}
    prune.prune(store, month, None)
    assert runs(store) == {1}
    # A newer one of that name covers what came since, and the first run is free.
    write_evaluation(store, evaluate(store, Settings(), label="base", since=month))
    refresh(store)
    prune.prune(store, month, None)
    assert runs(store) == set()


def test_clocks_that_are_wrong_keep_nothing_and_lose_nothing(
    add: Callable[..., None], store: Path, make_span: MakeSpan
) -> None:
    # A clock that is a year ahead is as old as its arrival; one without a time, too.
    add(1, -365)
    path = Spool(spool_folder(store)).write("spans", [make_span(2, start_time_unix_nano=0, end_time_unix_nano=0)])
    refresh(store)
    assert not path.exists()
    now = datetime.now(UTC)
    assert prune.plan(store, now - timedelta(minutes=5), None).spans == 0
    assert prune.plan(store, now + timedelta(minutes=5), None).spans == 2


def test_the_oldest_go_until_the_file_is_small_enough(
    add: Callable[..., None], store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(1)
    for number in range(1, 41):
        add(number, 41 - number, arguments={"noise": rng.randbytes(50_000).hex()})
    refresh(store)
    rewrite(store)
    size = store.stat().st_size
    bound = size * 2 // 3
    assert main(["prune", "--max-size", str(bound), "--db", str(store)]) == PASSED
    assert runs(store) == set(range(1, 41))
    assert main(["prune", "--max-size", str(bound), "--yes", "--db", str(store)]) == PASSED
    assert store.stat().st_size <= bound
    left = runs(store)
    # The newest, and not far fewer than there is room for.
    assert left == set(range(41 - len(left), 41))
    assert len(left) > 15
    capsys.readouterr()
    assert main(["prune", "--max-size", "10KB", "--yes", "--db", str(store)]) == FAILED
    assert "is still over 10 KB" in capsys.readouterr().err


def test_the_room_of_what_was_deleted_counts_too(
    add: Callable[..., None], store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add(1, 1)
    refresh(store)
    with duckdb.connect(store) as con:
        for table, count in (("gone", 400_000), ("stays", 20_000)):
            con.execute(f"CREATE TABLE {table} AS SELECT md5(range::VARCHAR) AS noise FROM range({count})")
            con.execute("CHECKPOINT")
        con.execute("DROP TABLE gone; CHECKPOINT")
    bound = ["--max-size", "4MB", "--db", str(store)]
    assert store.stat().st_size > 6_000_000
    assert main(["prune", *bound]) == PASSED
    assert "would delete no run, and give back the room" in capsys.readouterr().out
    assert main(["prune", *bound, "--yes"]) == PASSED
    assert store.stat().st_size <= 4_000_000
    assert runs(store) == {1}


def test_log_records_alone_are_pruned(store: Path, make_span: MakeSpan) -> None:
    record = LogRow(*[None] * len(LogRow._fields))._replace(
        trace_id=f"{1:032x}",
        span_id=f"{1:016x}",
        time_unix_nano=NOW_NS - 40 * DAY_NS,
        attributes="{}",
        resource_attributes="{}",
        scope_attributes="{}",
        dropped_attributes_count=0,
        resource_dropped_attributes_count=0,
        scope_dropped_attributes_count=0,
    )
    Spool(spool_folder(store)).write("logs", [record])
    refresh(store)
    assert main(["prune", "--older-than", "30d", "--yes", "--db", str(store)]) == PASSED
    assert rows(store, "SELECT count(*) FROM log_records") == [(0,)]


# --- redact


def test_what_is_pruned_or_redacted_is_in_no_byte_of_the_file(
    add: Callable[..., None], store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = "x7Qz-gone-with-its-run"
    add(1, 40, arguments={"order": gone})
    add(2, 1, arguments={"email": SECRET, "order": "x7Qz-hidden-by-a-pattern"}, task=SECRET)
    refresh(store)
    write_evaluation(store, evaluate(store, Settings()))
    refresh(store)
    content = store.read_bytes()
    for text in (gone, SECRET, "x7Qz-hidden-by-a-pattern"):
        assert text.encode() in content
    assert main(["prune", "--older-than", "30d", "--yes", "--db", str(store)]) == PASSED
    assert gone.encode() not in store.read_bytes()
    assert main(["redact", "--pattern", "x7Qz-[a-z-]+", "--db", str(store)]) == PASSED
    assert "would hide something in 1 of 1 rows of spans" in capsys.readouterr().out
    assert SECRET.encode() in store.read_bytes()
    assert main(["redact", "--pattern", "x7Qz-[a-z-]+", "--yes", "--db", str(store)]) == PASSED
    content = b"".join(path.read_bytes() for path in store.parent.rglob("*") if path.is_file())
    assert SECRET.encode() not in content
    assert b"x7Qz" not in content
    assert main(["redact", "--db", str(store)]) == PASSED
    assert capsys.readouterr().out.endswith("nothing to hide\n")
    # The steps are made anew.
    [(arguments, hashed)] = rows(store, "SELECT arguments::VARCHAR, arguments_hash FROM steps")
    assert json.loads(arguments) == {"email": "[REDACTED]", "order": "[REDACTED]"}
    assert len(hashed) == 64


def test_two_that_were_different_stay_two(add: Callable[..., None], store: Path) -> None:
    add(1, 1, session="ann@example.com", arguments={"to": "ann@example.com"})
    add(2, 1, session="bob@example.com", arguments={"to": "bob@example.com"})
    add(3, 1, session="bob@example.com", arguments={"to": "bob@example.com"})
    refresh(store)
    before = [(each.evaluator, each.kind, each.trace_id) for each in found_in(store)]
    assert before
    stored_redaction.redact(store, ())
    refresh(store)
    assert [(each.evaluator, each.kind, each.trace_id) for each in found_in(store)] == before
    sessions = rows(store, "SELECT session_id, count(*) FROM trajectories GROUP BY ALL ORDER BY 2")
    assert [count for _, count in sessions] == [1, 2]
    assert not any("@" in session for session, _ in sessions)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.just(SECRET),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.just("password"), inner, max_size=4),
    max_leaves=12,
)


@given(JSON, st.booleans())
def test_any_json_keeps_its_shape_and_its_numbers(value: Any, is_ascii: bool) -> None:
    hidden = stored_redaction._Hiding(()).text(json.dumps(value, ensure_ascii=is_ascii))
    assert SECRET not in hidden

    def expected(part: Any, key: str = "") -> Any:
        if isinstance(part, dict):
            return {name: expected(inner, name) for name, inner in part.items()}
        if isinstance(part, list):
            return [expected(inner) for inner in part]
        if isinstance(part, str):
            return "[REDACTED]" if part and key == "password" else part.replace(SECRET, "[REDACTED]")
        return part

    if not isinstance(value, str):
        assert json.loads(hidden) == expected(value)


def test_content_under_the_name_of_an_id_keeps_its_words() -> None:
    hidden = json.loads(
        stored_redaction._Hiding(()).text(
            json.dumps({"task": f"Write to {SECRET} today", "user": SECRET, "user.id": SECRET})
        )
    )
    assert hidden["task"] == "Write to [REDACTED] today"
    assert len(hidden["user"]) == len(hidden["user.id"]) == 64


def test_json_within_a_text_is_json(add: Callable[..., None]) -> None:
    hiding = stored_redaction._Hiding(())
    inner = json.dumps({"user_id": SECRET, "password": "hunter2", "n": 12345678901234567890123, "f": 1e400})
    inner = inner.replace("Infinity", "1e400")
    outer = json.loads(hiding.text(json.dumps({"metadata": inner})))
    found = json.loads(outer["metadata"])
    assert found["n"] == 12345678901234567890123
    assert found["password"] == "[REDACTED]"
    assert len(found["user_id"]) == 64


@pytest.mark.parametrize("pattern", ["(", "[z-a]"])
def test_a_pattern_that_is_none_is_named(store: Path, pattern: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["redact", "--pattern", pattern, "--db", str(store)]) == IMPOSSIBLE
    assert f"--pattern {pattern!r} is no regular expression" in capsys.readouterr().err


# --- merge


@pytest.mark.xdist_group("keeping")
def test_stores_of_two_machines_become_one_and_a_second_time_nothing_comes(
    recorded: Path, add: Callable[..., None], store: Path, tmp_path: Path, make_span: MakeSpan
) -> None:
    add(1, 1)
    refresh(store)
    other = tmp_path / "other.duckdb"
    Spool(spool_folder(other)).write("spans", [make_span(2, end_time_unix_nano=None)])
    Spool(spool_folder(other)).write("outcomes", [OutcomeRow("t", 1, None, "human", True, 0.5, None, NOW_NS)])
    refresh(other)
    for _ in range(2):
        assert main(["merge", str(recorded), str(other), "--db", str(store)]) == PASSED
        with duckdb.connect(":memory:") as con:
            con.execute(f"ATTACH '{store}' AS s (READ_ONLY); ATTACH '{recorded}' AS r (READ_ONLY)")
            for table, query in SAME.items():
                own = "" if table == "log_records" else f" WHERE trace_id NOT IN ('{1:032x}', '{2:032x}')"
                merged = con.execute(query.replace(f"FROM {table}", f"FROM s.{table}{own}")).fetchall()
                assert merged == con.execute(query.replace(f"FROM {table}", f"FROM r.{table}")).fetchall(), table
        for table in ("findings", "measurements", "not_evaluable", "evaluation_runs"):
            ours, theirs = (rows(db, f"FROM {table} ORDER BY ALL") for db in (store, recorded))
            assert ours == theirs
        assert rows(store, "SELECT task_id, trial, passed, score FROM outcomes WHERE task_id = 't'") == [
            ("t", 1, True, 0.5)
        ]
    # What was open there is open here.
    assert rows(store, f"SELECT complete FROM trajectories WHERE trace_id = '{2:032x}'") == [(False,)]


def test_nights_stay_with_their_machine(add: Callable[..., None], store: Path, tmp_path: Path) -> None:
    add(1, 1)
    assert main(["nightly", "--db", str(store), "--fail-on", "never"]) in (PASSED, FAILED, IMPOSSIBLE)
    assert rows(store, "SELECT count(*) FROM evaluation_runs WHERE night IS NOT NULL") == [(1,)]
    other = tmp_path / "other.duckdb"
    assert merge(store, other).evaluations == 0
    refresh(other)
    assert rows(other, "SELECT (SELECT count(*) FROM evaluation_runs), (SELECT count(*) FROM spans)") == [(0, 1)]


def test_a_store_is_not_merged_with_itself_nor_with_none(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["merge", str(store), "--db", str(store)]) == IMPOSSIBLE
    assert "is the store itself" in capsys.readouterr().err
    assert main(["merge", "nowhere.duckdb", "--db", str(store)]) == IMPOSSIBLE
    assert "nowhere.duckdb: no such store" in capsys.readouterr().err
    assert not store.exists()


@pytest.mark.parametrize("command", [["compact"], ["prune", "--older-than", "1d"], ["redact"], ["export", "x"]])
def test_where_there_is_no_store_none_is_made(
    store: Path, command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(store.parent)
    assert main([*command, "--db", str(store)]) == IMPOSSIBLE
    assert "no such store" in capsys.readouterr().err
    assert os.listdir(store.parent) == []


def test_prune_says_what_is_missing(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prune", "--db", str(store)]) == IMPOSSIBLE
    assert "say what goes" in capsys.readouterr().err
    assert main(["prune", "--max-size", "5 XB", "--db", str(store)]) == IMPOSSIBLE
    assert "'5 XB' is no size" in capsys.readouterr().err


def test_every_command_of_the_documentation_runs(
    add: Callable[..., None], store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    add(1, 40, arguments={"customer": "CUST-77"})
    add(2, 1, arguments={"customer": "CUST-78"})
    refresh(store)
    shutil.copyfile(store, "laptop.duckdb")
    shutil.copyfile(store, "server.duckdb")
    commands = re.findall(r"^\$ agenttrace (.+)$", (DOCS / "data.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(commands) == 8
    for command in commands:
        assert main(shlex.split(command)) == PASSED, command
    assert sorted(path.name for path in tmp_path.iterdir() if "duckdb" not in path.name) == [
        "agenttrace.key",
        "traces",
        "traces.jsonl.gz",
    ]
    assert rows(store, "SELECT arguments ->> '$.customer' FROM steps") == [("[REDACTED]",)]
    assert rows(tmp_path / "all.duckdb", "SELECT count(*) FROM steps") == [(2,)]
