"""What comes into the store from segments that repeat, share ids, or are not for this release or this user."""

import os
import random
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from segment_rows import read_segment
from test_security_local import NOBODY, root_only, somebody_else
from test_store import evaluation, rows

from agenttrace import compact as compact_module
from agenttrace import doctor
from agenttrace.cli import main
from agenttrace.compact import Totals, read_totals
from agenttrace.completeness import lasting, of_store
from agenttrace.config import Settings
from agenttrace.errors import OtherReleaseError
from agenttrace.exporter import DuckDBSpanExporter
from agenttrace.guard import guard
from agenttrace.ids import OwnIds
from agenttrace.spans import SpanRow
from agenttrace.spool import Spool, spool_folder
from agenttrace.store import compact_store, open_store, refresh

MakeSpan = Callable[..., SpanRow]
T0 = 1_700_000_000_123_456_789


@pytest.fixture(autouse=True)
def _fresh_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "_seen", {})


def totals(store: Path) -> Totals:
    with open_store(store) as con:
        return read_totals(con)


def deliver(store: Path, *batches: list[SpanRow], apart: bool) -> None:
    for batch in batches:
        Spool(spool_folder(store)).write("spans", batch)
        if apart:
            compact_store(store, budget_s=10)
    compact_store(store, budget_s=10)


# Ids


@pytest.mark.parametrize("apart", [True, False], ids=["in many compactions", "in one"])
def test_a_span_is_known_by_its_ids_and_its_start(store: Path, make_span: MakeSpan, apart: bool) -> None:
    rounded = [T0, *(T0 // unit * unit + up for unit in (1_000, 1_000_000) for up in (0, unit))]
    starts = [*rounded, T0 + 1_001, T0 + 5_000_000, T0 + 3_600 * 10**9]
    first = [make_span(number, start_time_unix_nano=T0, name="first") for number in range(len(starts))]
    again = [
        span._replace(start_time_unix_nano=start, name="again", attributes='{"more":1}')
        for span, start in zip(first, starts, strict=True)
    ]
    begun = [[span._replace(end_time_unix_nano=None) for span in spans] for spans in (first, again)]
    deliver(store, begun[0], first, begun[1], again, again, first, apart=apart)
    # The same span by another door is one row; another span under its ids is not lost.
    assert rows(store, "SELECT span_id, name FROM spans WHERE end_time_unix_nano IS NOT NULL ORDER BY ALL") == sorted(
        [(span.span_id, "first") for span in first] + [(span.span_id, "again") for span in again[len(rounded) :]]
    )
    assert rows(store, "SELECT count(*) FROM spans") == [(11,)]
    found = totals(store)
    assert (found.spans, found.duplicate_spans) == (11, 21)


def test_spans_that_are_in_no_run_are_counted_and_told(store: Path, make_span: MakeSpan) -> None:
    spans = [make_span(1, start_time_unix_nano=T0 + late * 10**9, name=f"{late}") for late in range(3)]
    deliver(store, spans, apart=False)
    refreshed = refresh(store)
    assert refreshed.totals is not None
    assert refreshed.totals.id_conflicts == 2
    # Whose children are whose is unknown, so a run has one of them.
    assert rows(store, "SELECT name FROM steps") == [("0",)]
    [line] = lasting(store, refreshed)
    assert "2 spans have the ids of other spans" in line.fact
    assert "id_generator=agenttrace.ids.OwnIds()" in str(line.advice)
    # A trace that is rebuilt is not counted anew.
    deliver(store, [make_span(1, span_id="b" * 16)], apart=False)
    refresh(store)
    with open_store(store) as con:
        assert [each.fact for each in of_store(con) if "the ids of other spans" in each.fact] == [
            line.fact.removeprefix(f"{store}: ")
        ]


def test_a_program_that_seeds_random_loses_no_span_and_with_own_ids_has_no_conflict(tmp_path: Path) -> None:
    before = random.getstate()
    try:
        for name, options, conflicts in (("sdk", {}, 1), ("own", {"id_generator": OwnIds()}, 0)):
            store = tmp_path / name / "agenttrace.duckdb"
            provider = TracerProvider(**options)
            provider.add_span_processor(SimpleSpanProcessor(DuckDBSpanExporter(store)))
            for _ in range(2):
                random.seed(42)
                provider.get_tracer("mine").start_span("work").end()
            provider.shutdown()
            found = rows(store, "SELECT count(*) - count(DISTINCT (trace_id, span_id)), count(*) FROM spans")
            assert found == [(conflicts, 2)]
    finally:
        random.setstate(before)


def test_a_copied_segment_adds_nothing(store: Path, make_span: MakeSpan) -> None:
    spool = Spool(spool_folder(store))
    spool.write("evaluation", [evaluation()])
    spool.write("spans", [make_span(1)])
    for path in [segment.path for segment in spool.segments()]:
        os.link(path, path.with_name("9" + path.name[1:]))
    assert compact_store(store, budget_s=10) == (4, 0)
    tables = ("evaluation_runs", "findings", "measurements", "not_evaluable", "spans")
    assert [rows(store, f"SELECT count(*) FROM {table}") for table in tables] == [[(1,)]] * 5
    assert list(spool.folder.iterdir()) == []


# Segments of other releases


def put(spool: Spool, kind: str, document: object, ending: str = "json") -> Path:
    content = orjson.dumps(document)
    path = spool.folder / f"{time.time_ns():020d}-{'0' * 16}.1.{kind}.{zlib.crc32(content):08x}.{ending}"
    path.write_bytes(content)
    return path


def test_segments_of_another_release_wait(store: Path, make_span: MakeSpan, capsys: pytest.CaptureFixture[str]) -> None:
    spool = Spool(spool_folder(store))
    spool.write("spans", [make_span(1)])
    whole = {"settled": False, "rows": [list(make_span(2))]}
    others = [
        put(spool, "metrics", whole),
        put(spool, "spans_v2", whole),
        put(spool, "spans", whole, "parquet"),
        put(spool, "spans", {"settled": False, "rows": [[*make_span(2), "new"]]}),
        put(spool, "spans", {"settled": False, "rows": [list(make_span(2))[1:]]}),
        put(spool, "spans", {"columns": []}),
        put(spool, "spans", {"columns": []}, "arrow"),
    ]
    for segment in spool.segments()[1:]:
        with pytest.raises(OtherReleaseError):
            read_segment(segment)
    assert main(["sql", "SELECT span_id FROM spans", "--format", "csv", "--db", str(store)]) == 0
    output = capsys.readouterr()
    assert output.out.split() == ["span_id", make_span(1).span_id]
    assert "another release has written it" in output.err
    assert "upgrade agenttrace-otel" in output.err
    assert "not in this answer: 7 segments" in output.err
    [line] = doctor._take_in(store, Settings())
    assert (line.state, line.fact[:28]) == ("warn", "7 segments stay in the spool")
    assert sorted(spool.folder.iterdir()) == sorted(others)


# Segments set aside


def test_what_is_set_aside_takes_no_room_and_every_answer_says_so(
    store: Path, make_span: MakeSpan, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = spool_folder(store)
    bad = Spool(folder).write("spans", [make_span(1)])
    bad.write_bytes(b"x" * 5_000)
    assert compact_store(store, budget_s=10) == (0, 1)
    Spool(folder, cap_bytes=4_000).write("spans", [make_span(2)])
    main(["sql", "SELECT 1", "--db", str(store)])
    said = capsys.readouterr().err
    assert "1 segments that could not be read are set aside, 5,000 bytes" in said
    assert f"{bad.name}.bad" in said
    assert "delete them" in said
    with open_store(store) as con:
        assert any("set aside" in line.fact for line in of_store(con))


def test_another_release_tries_what_was_set_aside_once_more(
    store: Path, make_span: MakeSpan, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(spool_folder(store))
    torn = spool.write("spans", [make_span(1)])
    torn.write_bytes(b"torn")
    refused = spool.write("evaluation", [evaluation(findings='"text"')])
    good = spool.write("spans", [make_span(2)])
    good = good.rename(good.with_name(good.name + ".bad"))
    tries: list[str] = []
    load = compact_module.load_segment
    monkeypatch.setattr(compact_module, "load_segment", lambda each: (tries.append(each.path.name), load(each))[1])
    names = sorted((torn.name, refused.name))
    # Set aside before that was noted: as by another release.
    assert compact_store(store, budget_s=10) == (1, 2)
    assert rows(store, "SELECT span_id FROM spans") == [(make_span(2).span_id,)]
    for release in ("this", "9.9.9"):
        monkeypatch.setattr(compact_module, "release", lambda release=release: release)
        for _ in range(2):
            tries.clear()
            Spool(spool.folder).write("spans", [make_span(3)])
            compact_store(store, budget_s=10)
            assert len(tries) in (1, 3)
        assert len(tries) == 1
        assert [path.name for path in spool.set_aside_paths()] == [f"{name}.bad" for name in names]


# Other users


def shared(folder: Path, make_span: MakeSpan) -> tuple[Path, Spool]:
    """A store of one span that others may write, with its spool."""
    for parent in list(folder.parents)[:-2]:
        parent.chmod(0o755)
    folder.chmod(0o777)
    store = folder / "agenttrace.duckdb"
    spool = Spool(spool_folder(store))
    spool.write("spans", [make_span(1)])
    compact_store(store, budget_s=10)
    store.chmod(0o666)
    return store, spool


@root_only
def test_a_spool_that_this_user_may_not_write_is_named_and_no_crash(tmp_path: Path, make_span: MakeSpan) -> None:
    store, spool = shared(tmp_path, make_span)
    segment = spool.write("spans", [make_span(2)])
    segment.chmod(0o644)
    # Who may not list it sees what is in the store.
    for mode, pending in ((0o755, 1), (0o711, 0), (0o700, 0)):
        spool.folder.chmod(mode)
        with somebody_else(NOBODY, []):
            refreshed = refresh(store)
        assert (refreshed.pending, refreshed.problem is not None) == (pending, pending > 0)
        assert segment.exists()
    assert rows(store, "SELECT count(*) FROM spans") == [(1,)]
    compact_store(store, budget_s=10)
    assert rows(store, "SELECT count(*) FROM spans") == [(2,)]


@root_only
def test_files_that_this_user_may_not_delete_or_read_stay_and_are_stored_once(
    tmp_path: Path, make_span: MakeSpan
) -> None:
    store, spool = shared(tmp_path, make_span)
    kept, torn, hidden = (spool.write("spans", [make_span(number)]) for number in (2, 3, 4))
    torn.write_bytes(b"torn")
    kept.chmod(0o644)
    torn.chmod(0o644)
    spool.folder.chmod(0o1777)
    with somebody_else(NOBODY, []):
        for _ in range(2):
            assert compact_store(store, budget_s=10) is not None
    assert {path.name for path in spool.folder.iterdir()} >= {kept.name, torn.name, hidden.name}
    assert rows(store, "SELECT count(*) FROM spans") == [(2,)]
    compact_store(store, budget_s=10)
    assert rows(store, "SELECT count(*) FROM spans") == [(3,)]
    assert [segment.path for segment in spool.segments()] == []
