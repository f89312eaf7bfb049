"""The store: every acknowledged row once, the most complete record of a span, clear words where it cannot be used."""

import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenttrace import rebuild as rebuilding
from agenttrace import store as store_module
from agenttrace.compact import compact
from agenttrace.completeness import left_out
from agenttrace.errors import StoreBusyError, StoreError, StoreMissingError
from agenttrace.spans import LogRow, OutcomeRow, SpanRow
from agenttrace.spool import EvaluationRow, Spool, spool_folder
from agenttrace.store import SCHEMA_VERSION, Refreshed, compact_store, open_store, refresh

MakeSpan = Callable[..., SpanRow]
TRACE = "a" * 32


def rows(db: Path, query: str) -> list[tuple[Any, ...]]:
    with open_store(db) as con:
        return con.execute(query).fetchall()


def write(db: Path, *segments: list[SpanRow], settled: bool = False) -> None:
    for segment in segments:
        Spool(spool_folder(db)).write("spans", segment, settled=settled)


def log(**changes: Any) -> LogRow:
    row = LogRow(
        trace_id=TRACE,
        span_id="b" * 16,
        event_name="gen_ai.choice",
        time_unix_nano=7,
        observed_time_unix_nano=None,
        severity_number=9,
        severity_text=None,
        body='"hello"',
        attributes="{}",
        service_name=None,
        scope_name=None,
        scope_version=None,
        resource_attributes="{}",
        scope_attributes="{}",
        flags=None,
        resource_schema_url=None,
        scope_schema_url=None,
        dropped_attributes_count=0,
        resource_dropped_attributes_count=0,
        scope_dropped_attributes_count=0,
    )
    return row._replace(**changes)


def evaluation(run_id: str = "r1", **changes: str) -> EvaluationRow:
    run = {
        "run_id": run_id,
        "label": None,
        "started_at": "2026-11-01T00:00:00Z",
        "finished_at": "2026-11-01T00:00:01.5Z",
        "since": None,
        "until": None,
        "trajectories": 2,
        "passed": False,
        "config_hash": "c",
        "evaluator_versions": {"budget_overruns": "v1"},
        "night": None,
        "details": {"gate": [], "cases": []},
    }
    finding = {
        "finding_id": "f1",
        "fingerprint": "p1",
        "run_id": run_id,
        "evaluator": "budget_overruns",
        "kind": "max_tool_calls",
        "severity": "error",
        "state": None,
        "trajectory_id": "t1",
        "trace_id": TRACE,
        "span_id": None,
        "related_span_ids": ["s1", "s2"],
        "tool_name": None,
        "message": "9 tool calls, the budget is 8",
        "evidence": '{"observed": 9}',
    }
    measurement = {
        "run_id": run_id,
        "metric": "cost_usd",
        "dimensions": {"quantile": "p95"},
        "value": 0.25,
        "unit": "usd",
        "n": 2,
        "n_not_evaluable": 0,
        "low": None,
        "high": None,
    }
    reason = {
        "run_id": run_id,
        "evaluator": "tool_hallucination",
        "kind": "not_offered",
        "trajectory_id": None,
        "reason": "no offered tools were captured",
    }
    row = EvaluationRow(json.dumps(run), json.dumps([finding]), json.dumps([measurement]), json.dumps([reason]))
    return row._replace(**changes)


def test_refresh_creates_the_store_where_segments_wait(store: Path, make_span: MakeSpan) -> None:
    write(store, [make_span(1), make_span(2)], [make_span(3)])
    refreshed = refresh(store)
    assert (refreshed.compacted, refreshed.pending, refreshed.busy, refreshed.problem) == (2, 0, False, None)
    assert refreshed.rebuilt == 3
    assert rows(store, "SELECT count(*) FROM spans") == [(3,)]
    assert rows(store, "SELECT count(*) FROM dirty_traces") == [(0,)]
    assert list(spool_folder(store).iterdir()) == []


def test_refresh_leaves_a_missing_store_missing_where_nothing_waits(store: Path) -> None:
    assert refresh(store) == Refreshed(0, 0, 0.0, 0, busy=False)
    assert not store.exists()


def test_every_column_of_a_span_comes_back(store: Path, make_span: MakeSpan) -> None:
    row = make_span(1)
    row = SpanRow(
        *(row[i] if row[i] is not None else (5 if "tokens" in name else "x") for i, name in enumerate(row._fields))
    )
    write(store, [row])
    compact_store(store, budget_s=10)
    assert rows(store, "SELECT * EXCLUDE (received_at) FROM spans") == [tuple(row)]


@pytest.mark.parametrize("apart", [True, False], ids=["in two compactions", "in one"])
@pytest.mark.parametrize("reverse", [True, False])
def test_an_ended_record_replaces_the_started_one(store: Path, make_span: MakeSpan, apart: bool, reverse: bool) -> None:
    records = [make_span(1, end_time_unix_nano=None), make_span(1, name="ended")]
    for record in reversed(records) if reverse else records:
        write(store, [record])
        if apart:
            compact_store(store, budget_s=10)
    compact_store(store, budget_s=10)
    assert rows(store, "SELECT name, end_time_unix_nano IS NULL FROM spans") == [("ended", False)]


@pytest.mark.parametrize("apart", [True, False], ids=["in two compactions", "in one"])
def test_the_first_of_two_ended_records_stays(store: Path, make_span: MakeSpan, apart: bool) -> None:
    for name in ("first", "second"):
        write(store, [make_span(1, name=name)])
        if apart:
            compact_store(store, budget_s=10)
    compact_store(store, budget_s=10)
    assert rows(store, "SELECT name FROM spans") == [("first",)]


def test_the_first_received_wins_though_it_is_compacted_last(store: Path, make_span: MakeSpan, tmp_path: Path) -> None:
    write(store, [make_span(1, name="first")])
    [late] = spool_folder(store).iterdir()
    hidden = late.rename(tmp_path / late.name)
    write(store, [make_span(1, name="second")])
    compact_store(store, budget_s=10)
    hidden.rename(late)
    compact_store(store, budget_s=10)
    assert rows(store, "SELECT name FROM spans") == [("first",)]


def test_a_span_id_is_its_own_in_each_trace(store: Path, make_span: MakeSpan) -> None:
    write(store, [make_span(1), make_span(1, trace_id=TRACE)])
    compact_store(store, budget_s=10)
    assert rows(store, "SELECT count(*) FROM spans") == [(2,)]


def test_a_repeat_with_a_rounded_start_time_is_the_same_span(store: Path, make_span: MakeSpan) -> None:
    write(store, [make_span(999_999)])
    compact_store(store, budget_s=10)
    write(store, [make_span(999_999, start_time_unix_nano=1_700_000_000_000_000_000)])
    compact_store(store, budget_s=10)
    assert rows(store, "SELECT count(*) FROM spans") == [(1,)]


def test_times_at_the_ends_of_the_range_do_not_overflow(store: Path, make_span: MakeSpan) -> None:
    write(store, [make_span(1, start_time_unix_nano=0), make_span(2, start_time_unix_nano=2**63 - 1)])
    for _ in range(2):
        compact_store(store, budget_s=10)
        write(store, [make_span(2, start_time_unix_nano=2**63 - 1)])
    assert rows(store, "SELECT count(*) FROM spans") == [(2,)]


def test_rows_mark_their_traces_dirty_and_repeats_do_not(store: Path, make_span: MakeSpan) -> None:
    write(store, [make_span(1)])
    refresh(store)
    write(store, [make_span(1)], [make_span(2)])
    compact_store(store, budget_s=10)
    assert rows(store, "SELECT trace_id FROM dirty_traces") == [(f"{2:032x}",)]


def test_a_trace_is_marked_dirty_once(store: Path, make_span: MakeSpan) -> None:
    for number in range(3):
        write(store, [make_span(number, trace_id=TRACE)])
        compact_store(store, budget_s=10)
    Spool(spool_folder(store)).write("logs", [log()])
    compact_store(store, budget_s=10)
    assert rows(store, "SELECT trace_id FROM dirty_traces") == [(TRACE,)]


def test_an_import_settles_its_traces_for_good(store: Path, make_span: MakeSpan) -> None:
    write(store, [make_span(1)], [make_span(2)], settled=True)
    write(store, [make_span(3)])
    compact_store(store, budget_s=10)
    write(store, [make_span(1, span_id="late")])
    write(store, [make_span(2)], settled=True)
    compact_store(store, budget_s=10)
    assert rows(store, "SELECT trace_id FROM settled_traces ORDER BY 1") == [(f"{1:032x}",), (f"{2:032x}",)]


def test_equal_log_records_are_stored_once(store: Path) -> None:
    spool = Spool(spool_folder(store))
    spool.write("logs", [log(), log(), log(body=None)])
    compact_store(store, budget_s=10)
    spool.write("logs", [log(), log(severity_number=None), log(trace_id="c" * 32)])
    compact_store(store, budget_s=10)
    stored = rows(store, "SELECT trace_id[:1], body, severity_number FROM log_records ORDER BY ALL")
    assert stored == [("a", '"hello"', 9), ("a", '"hello"', None), ("a", None, 9), ("c", '"hello"', 9)]


def test_outcomes_keep_their_time_and_are_stored_once(store: Path) -> None:
    spool = Spool(spool_folder(store))
    first = OutcomeRow("task-17", 3, None, "checker", True, 0.5, "stock is 46", 1_700_000_000_123_456_789)
    spool.write("outcomes", [first, first])
    spool.write(
        "outcomes", [first, first._replace(passed=False), OutcomeRow(None, None, "t1", "human", None, None, None, 0)]
    )
    compact_store(store, budget_s=10)
    stored = rows(store, "SELECT * REPLACE (epoch_us(recorded_at) AS recorded_at) FROM outcomes ORDER BY ALL")
    assert stored == [
        ("task-17", 3, None, "checker", False, 0.5, "stock is 46", 1_700_000_000_123_456),
        ("task-17", 3, None, "checker", True, 0.5, "stock is 46", 1_700_000_000_123_456),
        (None, None, "t1", "human", None, None, None, 0),
    ]


def test_an_evaluation_is_unnested_into_its_four_tables(store: Path) -> None:
    spool = Spool(spool_folder(store))
    for _ in range(2):
        spool.write("evaluation", [evaluation()])
        compact_store(store, budget_s=10)
    in_ms = "epoch_ms(started_at) AS started_at, epoch_ms(finished_at) AS finished_at"
    run = rows(store, f"SELECT * REPLACE ({in_ms}) FROM evaluation_runs")
    texts = '{"budget_overruns":"v1"}', None, '{"gate":[],"cases":[]}'
    assert run == [("r1", None, 1_793_491_200_000, 1_793_491_201_500, None, None, 2, False, "c", *texts)]
    [finding] = rows(store, "SELECT related_span_ids, evidence ->> '$.observed', message FROM findings")
    assert finding == (["s1", "s2"], "9", "9 tool calls, the budget is 8")
    assert rows(store, "SELECT metric, dimensions ->> '$.quantile', value, n, low FROM measurements") == [
        ("cost_usd", "p95", 0.25, 2, None)
    ]
    assert rows(store, "SELECT evaluator, trajectory_id FROM not_evaluable") == [("tool_hallucination", None)]


def test_an_evaluation_without_findings_is_a_run(store: Path) -> None:
    Spool(spool_folder(store)).write("evaluation", [evaluation(findings="[]", measurements="[]", not_evaluable="[]")])
    compact_store(store, budget_s=10)
    assert rows(store, "SELECT count(*) FROM evaluation_runs") == [(1,)]
    assert rows(store, "SELECT count(*) FROM findings") == [(0,)]


@pytest.mark.parametrize("broken", ["{", '[{"finding_id": 1}]', '[{"run_id": null}]', '"text"', "[[[[["])
def test_a_segment_that_the_store_refuses_blocks_no_other_and_is_kept(
    store: Path, make_span: MakeSpan, broken: str
) -> None:
    spool = Spool(spool_folder(store))
    spool.write("evaluation", [evaluation("good")])
    bad = spool.write("evaluation", [evaluation("bad", findings=broken)])
    write(store, [make_span(1)])
    compacted = compact_store(store, budget_s=10)
    assert compacted == (2, 1)
    assert spool.set_aside_paths() == [bad.with_name(bad.name + ".bad")]
    assert rows(store, "SELECT run_id FROM evaluation_runs") == [("good",)]
    assert rows(store, "SELECT count(*) FROM spans") == [(1,)]


def test_a_corrupt_segment_blocks_no_other_and_is_kept(store: Path, make_span: MakeSpan) -> None:
    write(store, [make_span(1)], [make_span(2)], [make_span(3)])
    middle = sorted(spool_folder(store).iterdir())[1]
    middle.write_bytes(middle.read_bytes()[:50])
    assert compact_store(store, budget_s=10) == (2, 1)
    assert rows(store, "SELECT name FROM spans ORDER BY ALL") == [("execute_tool check_stock",)] * 2
    assert [path.name for path in spool_folder(store).iterdir()] == [middle.name + ".bad"]


def test_small_batches_give_what_one_batch_gives(store: Path, make_span: MakeSpan) -> None:
    for number in range(0, 200, 10):
        write(store, [make_span(number + more) for more in range(15)])
    with store_module.writer(store, 1.0) as con:
        assert compact(con, Spool(spool_folder(store)), batch_bytes=2_000).segments == 20
    assert rows(store, "SELECT count(*), count(DISTINCT (trace_id, span_id)) FROM spans") == [(205, 205)]


def test_a_deadline_ends_the_work_after_a_batch_and_loses_nothing(store: Path, make_span: MakeSpan) -> None:
    write(store, *[[make_span(number)] for number in range(3)])
    assert compact_store(store, budget_s=0) == (3, 0)
    assert rows(store, "SELECT count(*) FROM spans") == [(3,)]


def test_a_segment_in_the_ledger_is_deleted_and_not_stored_again(store: Path, make_span: MakeSpan) -> None:
    spool = Spool(spool_folder(store))
    path = spool.write("evaluation", [evaluation()])
    content = path.read_bytes()
    compact_store(store, budget_s=10)
    # The compactor died between its commit and the deletion.
    path.write_bytes(content.replace(b"r1", b"r2"))
    write(store, [make_span(1)])
    compact_store(store, budget_s=10)
    assert rows(store, "SELECT run_id FROM evaluation_runs") == [("r1",)]
    assert spool.segments() == []


def test_the_ledger_forgets_files_that_are_gone(store: Path, make_span: MakeSpan) -> None:
    for number in range(70):
        write(store, [make_span(number)])
        compact_store(store, budget_s=10)
    assert rows(store, "SELECT count(DISTINCT segment) < 10, count(DISTINCT span_id) FROM segments, spans") == [
        (True, 70)
    ]


@settings(max_examples=6)
@given(data=st.data())
def test_any_order_and_repetition_of_segments_gives_the_same_table(
    data: st.DataObject, make_span: MakeSpan, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("store")
    spans = [
        make_span(number, end_time_unix_nano=end) for number in range(4) for end in (None, 1_800_000_000_000_000_000)
    ]
    written = Spool(folder / "written")
    for _ in range(data.draw(st.integers(1, 6))):
        written.write("spans", data.draw(st.lists(st.sampled_from(spans), min_size=1, max_size=5)))
    files = [segment.path for segment in written.segments()]

    def table(name: str, order: list[Path], stops: set[int]) -> list[tuple[Any, ...]]:
        db = folder / name
        spool_folder(db).mkdir()
        for place, path in enumerate(order):
            # A name of its own, as when a producer sends the same batch again; the time of arrival stays.
            copy = f"{path.name[:21]}{place:016x}{path.name[37:]}"
            (spool_folder(db) / copy).write_bytes(path.read_bytes())
            if place in stops:
                compact_store(db, budget_s=10)
        compact_store(db, budget_s=10)
        return rows(db, "SELECT * FROM spans ORDER BY trace_id")

    order = data.draw(st.permutations(files * 2))
    stops = data.draw(st.sets(st.integers(0, len(order) - 1), max_size=2))
    assert table("shuffled.duckdb", order, stops) == table("plain.duckdb", files, set())


@settings(max_examples=8)
@given(data=st.data())
def test_any_row_comes_back_from_the_store(
    data: st.DataObject, make_span: MakeSpan, tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = st.text(st.characters(codec="utf-8"))
    number = st.integers(-(2**63) + 1, 2**63 - 1)
    row = make_span(
        1,
        name=data.draw(text),
        parent_span_id=data.draw(st.none() | text),
        attributes=data.draw(text),
        start_time_unix_nano=data.draw(number),
        end_time_unix_nano=data.draw(st.none() | number),
        input_tokens=data.draw(st.none() | number),
    )
    db = tmp_path_factory.mktemp("store") / "any.duckdb"
    write(db, [row])
    compact_store(db, budget_s=10)
    assert rows(db, "SELECT * EXCLUDE (received_at) FROM spans") == [tuple(row)]


HOLD = """
import duckdb, sys
con = duckdb.connect(sys.argv[1], read_only=sys.argv[2] == "reader")
print("held", flush=True)
sys.stdin.readline()
"""


def hold(db: Path, role: str) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, db, role], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


@pytest.mark.parametrize("role", ["writer", "reader"])
def test_while_another_program_holds_the_file_segments_wait_and_are_counted(
    store: Path, make_span: MakeSpan, role: str
) -> None:
    write(store, [make_span(1)])
    refresh(store)
    with hold(store, role) as process:
        write(store, [make_span(2)])
        assert compact_store(store, budget_s=10) is None
        refreshed = refresh(store, wait_s=0.05)
        assert (refreshed.compacted, refreshed.pending, refreshed.busy) == (0, 1, True)
        assert refreshed.oldest_s > 0
        process.communicate("\n")
    assert refresh(store).compacted == 1
    assert rows(store, "SELECT count(*) FROM spans") == [(2,)]


def test_refresh_waits_for_another_program_to_finish(store: Path, make_span: MakeSpan) -> None:
    write(store, [make_span(1)])
    refresh(store)
    write(store, [make_span(2)])
    with hold(store, "writer") as process:
        waiting = threading.Thread(target=lambda: done.append(refresh(store, wait_s=60)))
        done: list[Any] = []
        waiting.start()
        process.communicate("\n")
        waiting.join()
    assert done[0].compacted == 1


def test_a_reader_waits_for_a_bounded_time_only(store: Path, make_span: MakeSpan) -> None:
    write(store, [make_span(1)])
    refresh(store)
    with hold(store, "writer") as process:
        with pytest.raises(StoreBusyError, match="another process holds it"):
            open_store(store, wait_s=0.05)
        process.communicate("\n")
    open_store(store).close()


def test_a_reader_of_the_same_process_counts_as_busy(store: Path, make_span: MakeSpan) -> None:
    write(store, [make_span(1)])
    refresh(store)
    with open_store(store):
        assert refresh(store, wait_s=0.05).busy


def test_others_have_a_turn_while_much_is_brought_in(
    store: Path, make_span: MakeSpan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_TURN_S", 0.0)
    monkeypatch.setattr(store_module.compact, "__kwdefaults__", {"deadline": None, "batch_bytes": 1})
    monkeypatch.setattr(rebuilding, "_BATCH_SPANS", 1)
    write(store, *[[make_span(number, trace_id=f"{number:032x}")] for number in range(1, 4)])
    seen: list[tuple[Any, ...]] = []

    def look(seconds: float) -> None:
        with duckdb.connect(store, read_only=True) as con:
            counts = "SELECT (SELECT count(*) FROM spans), (SELECT count(*) FROM dirty_traces)"
            seen.extend(con.execute(counts).fetchall())

    monkeypatch.setattr(store_module.time, "sleep", look)
    refreshed = refresh(store)
    assert seen == [(1, 1), (2, 2), (3, 3), (3, 2), (3, 1)]
    assert (refreshed.compacted, refreshed.rebuilt, refreshed.pending, refreshed.busy) == (3, 3, 0, False)
    assert rows(store, "SELECT count(*) FROM dirty_traces") == [(0,)]


def test_a_refresh_ends_although_spans_come_in_faster_than_it_works(
    store: Path, make_span: MakeSpan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_TURN_S", 0.0)
    monkeypatch.setattr(rebuilding, "_BATCH_SPANS", 1)
    numbers = itertools.count(1)

    def send(segments: int) -> None:
        for number in itertools.islice(numbers, segments):
            assert number < 30
            write(store, [make_span(number, trace_id=f"{number:032x}")])

    def meanwhile(seconds: float) -> None:
        monkeypatch.setattr(store_module, "_TURN_S", 10.0)
        send(1)
        compact_store(store, budget_s=10)
        send(1)
        monkeypatch.setattr(store_module, "_TURN_S", 0.0)

    send(2)
    monkeypatch.setattr(store_module.time, "sleep", meanwhile)
    refreshed = refresh(store)
    assert refreshed.rebuilt >= 2
    assert refreshed.pending == 1
    assert refreshed.not_rebuilt == rows(store, "SELECT count(*) FROM dirty_traces")[0][0] > 0
    assert f"{refreshed.not_rebuilt} traces that came in meanwhile" in str(left_out(store, refreshed))


@pytest.mark.parametrize(("time", "observed"), [(None, 7), (5, None), (None, None)])
def test_log_records_without_a_time_are_stored_once(store: Path, time: int | None, observed: int | None) -> None:
    spool = Spool(spool_folder(store))
    same = log(time_unix_nano=time, observed_time_unix_nano=observed)
    for batch in ([same], [same, log(time_unix_nano=1, observed_time_unix_nano=1)], [same]):
        spool.write("logs", batch)
        compact_store(store, budget_s=10)
    assert rows(store, "SELECT time_unix_nano FROM log_records ORDER BY ALL NULLS LAST") == [(1,), (time,)]


def test_two_threads_that_compact_at_once_store_each_segment_once(store: Path, make_span: MakeSpan) -> None:
    spool = Spool(spool_folder(store))
    for number in range(30):
        spool.write("evaluation", [evaluation(f"r{number}")])
        write(store, [make_span(number)])
    threads = [
        threading.Thread(target=compact_store, args=(store,), kwargs={"budget_s": 10, "wait_s": 10}) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rows(store, "SELECT count(*) FROM spans") == [(30,)]
    assert rows(store, "SELECT count(*), count(DISTINCT run_id) FROM findings") == [(30, 30)]


def test_a_locked_store_reads_nothing_but_itself(store: Path, make_span: MakeSpan, tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("a,b\n1,2\n")
    write(store, [make_span(1)])
    refresh(store)
    with open_store(store, locked=True) as con:
        assert con.execute("SELECT count(*) FROM spans").fetchall() == [(1,)]
        for query in (
            f"SELECT * FROM '{tmp_path}/secret.csv'",
            f"COPY spans TO '{tmp_path}/out.csv'",
            f"ATTACH '{tmp_path}/other.duckdb'",
            "SET enable_external_access = true",
            "SET threads = 1",
            "DELETE FROM spans",
        ):
            with pytest.raises(duckdb.Error):
                con.execute(query)


def test_times_are_shown_in_utc(store: Path, make_span: MakeSpan) -> None:
    write(store, [make_span(1)])
    refresh(store)
    assert rows(store, "SELECT current_setting('TimeZone'), received_at::VARCHAR LIKE '%+00' FROM spans") == [
        ("UTC", True)
    ]


def test_a_missing_store_names_those_seen_nearby(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "project"
    for db in (tmp_path / "above.duckdb", folder / "beside.duckdb", folder / "runs" / "below.duckdb"):
        db.parent.mkdir(exist_ok=True)
        db.touch()
    (folder / "runs" / "deep").mkdir()
    (folder / "runs" / "deep" / "too_far.duckdb").touch()
    monkeypatch.chdir(folder)
    with pytest.raises(StoreMissingError) as caught:
        open_store(Path("agenttrace.duckdb"))
    assert str(caught.value) == (
        "agenttrace.duckdb: no such store. Seen nearby: beside.duckdb, ../above.duckdb, runs/below.duckdb. "
        "Name one with --db."
    )


def test_a_missing_store_with_nothing_nearby_says_what_to_do(store: Path) -> None:
    with pytest.raises(StoreMissingError, match="Record a first trace, or name another file with --db"):
        open_store(store)


def test_a_missing_store_with_a_spool_is_made_from_it(store: Path, make_span: MakeSpan) -> None:
    write(store, [make_span(1)])
    assert rows(store, "SELECT count(*) FROM spans") == [(1,)]


def test_a_newer_store_is_refused_by_name_and_version(store: Path, make_span: MakeSpan) -> None:
    write(store, [make_span(1)])
    refresh(store)
    with duckdb.connect(store) as con:
        con.execute("UPDATE agenttrace_meta SET value = '7' WHERE key = 'schema_version'")
    write(store, [make_span(2)])
    message = f"schema version 7, this release knows up to {SCHEMA_VERSION}. Upgrade agenttrace-otel, or name"
    for use in (refresh, open_store):
        with pytest.raises(StoreError, match=message):
            use(store)
    assert len(Spool(spool_folder(store)).segments()) == 1


def test_an_older_store_is_migrated_in_place(store: Path, make_span: MakeSpan, monkeypatch: pytest.MonkeyPatch) -> None:
    write(store, [make_span(1)])
    refresh(store)
    later = (*store_module.MIGRATIONS, "ALTER TABLE outcomes ADD COLUMN judge VARCHAR")
    monkeypatch.setattr(store_module, "MIGRATIONS", later)
    monkeypatch.setattr(store_module, "SCHEMA_VERSION", 3)
    with pytest.raises(StoreError, match="schema version 2, this release needs 3"):
        open_store(store)
    refresh(store)
    assert rows(store, "SELECT value FROM agenttrace_meta WHERE key = 'schema_version'") == [("3",)]
    assert rows(store, "SELECT judge FROM outcomes") == []


def test_a_store_of_the_first_schema_becomes_like_a_new_one(store: Path, make_span: MakeSpan) -> None:
    with duckdb.connect(store) as con:
        con.execute((Path(__file__).parent / "data" / "schema_1.sql").read_text(encoding="utf-8"))
        con.execute("INSERT INTO agenttrace_meta VALUES ('schema_version', '1')")
    write(store, [make_span(1)])
    refresh(store)
    facts = "SELECT table_name, column_name, data_type, column_default, is_nullable, comment FROM duckdb_columns()"
    order = " WHERE NOT internal AND schema_name = 'main' ORDER BY table_name, column_index"
    new = duckdb.connect()
    new.execute((Path(store_module.__file__).parent / "schema.sql").read_text(encoding="utf-8"))
    assert rows(store, facts + order) == new.execute(facts + order).fetchall()
    comments = "SELECT table_name, comment FROM duckdb_tables() ORDER BY table_name"
    assert rows(store, comments) == new.execute(comments).fetchall()
    assert rows(store, "SELECT revision > 0 FROM trajectories") == [(True,)]


def test_the_tables_of_a_user_in_the_same_file_stay(store: Path, make_span: MakeSpan) -> None:
    with duckdb.connect(store) as con:
        con.execute("CREATE TABLE mine AS SELECT 42 AS answer")
    write(store, [make_span(1)])
    refresh(store)
    assert rows(store, "SELECT answer, count(*) FROM mine, spans GROUP BY ALL") == [(42, 1)]


def test_a_file_with_foreign_tables_of_our_names_is_refused_unchanged(store: Path, make_span: MakeSpan) -> None:
    with duckdb.connect(store) as con:
        con.execute("CREATE TABLE spans (a INTEGER)")
    write(store, [make_span(1)])
    with pytest.raises(StoreError, match="holds tables of another program"):
        refresh(store)
    with duckdb.connect(store, read_only=True) as con:
        assert con.execute("SELECT table_name FROM duckdb_tables()").fetchall() == [("spans",)]


def test_a_duckdb_file_without_our_tables_says_so_and_stays_as_it_is(store: Path) -> None:
    with duckdb.connect(store) as con:
        con.execute("CREATE TABLE sales (a INTEGER)")
    for read in (refresh, open_store):
        with pytest.raises(StoreError, match="without tables of agenttrace"):
            read(store)
    with duckdb.connect(store, read_only=True) as con:
        assert con.execute("SELECT table_name FROM duckdb_tables()").fetchall() == [("sales",)]


def test_a_damaged_file_says_what_to_do(store: Path, make_span: MakeSpan) -> None:
    write(store, [make_span(1)])
    refresh(store)
    os.truncate(store, 100_000)
    with pytest.raises(StoreError, match=r"is damaged .* move it away"):
        open_store(store)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"not a database" * 1_000, "is not a DuckDB file"),
        (b"SQLite format 3\x00" + bytes(4_080), "not a DuckDB"),
    ],
    ids=["empty", "text", "sqlite"],
)
def test_a_file_of_another_kind_is_named_and_left_as_it_is(
    store: Path, make_span: MakeSpan, content: bytes, message: str
) -> None:
    store.write_bytes(content)
    write(store, [make_span(1)])
    for use in (refresh, open_store):
        with pytest.raises(StoreError, match=message):
            use(store)
    assert store.read_bytes() == content
    assert len(Spool(spool_folder(store)).segments()) == 1


def test_a_folder_in_place_of_the_store_is_named(store: Path, make_span: MakeSpan) -> None:
    store.mkdir()
    write(store, [make_span(1)])
    for use in (refresh, open_store):
        with pytest.raises(StoreError, match="is a folder; expected a DuckDB file"):
            use(store)


def test_a_path_below_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreMissingError):
        open_store(tmp_path / "file" / "a.duckdb")


def test_a_link_to_a_store_is_the_same_store(store: Path, make_span: MakeSpan, tmp_path: Path) -> None:
    link = tmp_path / "link.duckdb"
    link.symlink_to(store)
    write(link, [make_span(1)])
    refresh(link)
    write(store, [make_span(2)])
    refresh(link)
    assert rows(store, "SELECT count(*) FROM spans") == rows(link, "SELECT count(*) FROM spans") == [(2,)]


def test_the_log_of_a_deleted_store_does_not_spoil_the_new_one(store: Path, make_span: MakeSpan) -> None:
    wal = store.with_name(store.name + ".wal")
    wal.write_bytes(b"left over" * 100)
    write(store, [make_span(1)])
    refresh(store)
    assert rows(store, "SELECT count(*) FROM spans") == [(1,)]
    assert wal.with_name(wal.name + ".bad").exists()


AS_NOBODY = """
import os, sys
from pathlib import Path
import agenttrace.rebuild  # while the interpreter's own files can be read
from agenttrace.store import refresh, open_store
os.setgid(65534); os.setuid(65534)
try:
    print(refresh(Path(sys.argv[1])).problem)
    print(open_store(Path(sys.argv[1])).execute("SELECT count(*) FROM spans").fetchall())
except Exception as err:
    print(type(err).__name__, err)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize(
    ("mode", "answer"),
    [
        (0o644, ["{db}: cannot be written by this user.", "[(1,)]"]),
        (0o600, ["StoreError {db}: cannot be read by this user (permission denied)."]),
    ],
    ids=["readable", "not readable"],
)
def test_a_store_of_another_user(store: Path, make_span: MakeSpan, mode: int, answer: list[str]) -> None:
    write(store, [make_span(1)])
    refresh(store)
    store.chmod(mode)
    for folder in list(store.parents)[:-2]:
        folder.chmod(0o755)
    result = subprocess.run([sys.executable, "-c", AS_NOBODY, store], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines() == [line.format(db=store) for line in answer]


def test_a_full_disk_keeps_the_segments(small_disk: Path, make_span: MakeSpan) -> None:
    db = small_disk / "full.duckdb"
    write(db, [make_span(1)])
    refresh(db)
    write(db, [make_span(2, attributes=f'{{"a":"{os.urandom(500_000).hex()}"}}')])
    ballast = small_disk / "ballast"
    free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_bsize
    ballast.write_bytes(bytes(free - 100_000))
    with pytest.raises(StoreError, match=r"full\.duckdb"):
        compact_store(db, budget_s=10)
    assert len(Spool(spool_folder(db)).segments()) == 1
    ballast.unlink()
    assert refresh(db).compacted == 1
    assert rows(db, "SELECT count(*) FROM spans") == [(2,)]
