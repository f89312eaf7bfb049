"""What a flush takes from the program that it runs in, and what stays where something fails."""

import errno
import os
import random
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from segment_rows import read_segment

from agenttrace import compact as compact_module
from agenttrace import connect, limits, private, segments, spool
from agenttrace import store as store_module
from agenttrace.errors import StoreError
from agenttrace.spans import SpanRow
from agenttrace.spool import Spool, spool_folder
from agenttrace.store import compact_store, open_store, refresh

MakeSpan = Callable[..., SpanRow]


def write(db: Path, *batches: list[SpanRow]) -> list[Path]:
    return [Spool(spool_folder(db)).write("spans", batch) for batch in batches]


def query(db: Path, text: str) -> list[tuple[Any, ...]]:
    with open_store(db) as con:
        return con.execute(text).fetchall()


def test_many_small_segments_and_large_ones_keep_the_order_of_their_arrival(store: Path, make_span: MakeSpan) -> None:
    batches = [[make_span(number)] for number in range(5)]
    batches += [[make_span(number) for number in range(5, 105)], [make_span(105)], [make_span(106), make_span(107)]]
    write(store, *batches)
    assert compact_store(store, budget_s=10) == (8, 0)
    assert query(store, "SELECT span_id FROM spans") == [(f"{number:016x}",) for number in range(108)]
    assert query(store, "SELECT count(DISTINCT received_at) FROM spans") == [(8,)]


def test_a_segment_that_no_table_takes_is_set_aside_and_the_others_are_stored(store: Path, make_span: MakeSpan) -> None:
    good, bad, _ = write(store, [make_span(1)], [make_span(2)], [make_span(3)])
    # As another program might: whole by its name, which says no checksum, and of a wrong type within.
    content = bad.read_bytes().replace(b'"execute_tool check_stock"', b'["no", "text"]')
    bad.unlink()
    plain = ".".join(part for number, part in enumerate(bad.name.split(".")) if number != 3)
    bad.with_name(plain).write_bytes(content)
    assert compact_store(store, budget_s=10) == (2, 1)
    assert query(store, "SELECT span_id FROM spans ORDER BY ALL") == [(f"{1:016x}",), (f"{3:016x}",)]
    assert Spool(good.parent).set_aside_paths() == [bad.with_name(f"{plain}.bad")]


@pytest.mark.parametrize(
    "error", [OSError(errno.EMFILE, "Too many open files"), MemoryError(), PermissionError(13, "")]
)
def test_a_segment_that_cannot_be_read_for_the_moment_waits(
    store: Path, make_span: MakeSpan, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    hidden, _ = write(store, [make_span(1)], [make_span(2)])
    read = private.read

    def fail(path: Path) -> bytes:
        if path == hidden:
            raise error
        return read(path)

    monkeypatch.setattr(private, "read", fail)
    assert compact_store(store, budget_s=10) == (1, 0)
    assert [segment.path for segment in Spool(hidden.parent).segments()] == [hidden]
    monkeypatch.setattr(private, "read", read)
    assert compact_store(store, budget_s=10) == (1, 0)
    assert query(store, "SELECT count(*) FROM spans") == [(2,)]


def test_a_segment_that_claims_more_rows_than_its_name_says_is_refused_before_they_are_made(
    make_span: MakeSpan, tmp_path: Path
) -> None:
    [(_, ending, payload)] = segments.encode("spans", [make_span(number) for number in range(100)], False)
    assert ending == "arrow"
    with pa.ipc.open_file(pa.BufferReader(payload)) as reader:
        table = reader.read_all()
    sink = pa.BufferOutputStream()
    facts = {**(table.schema.metadata or {}), b"rows": b"1000000000000"}
    with pa.ipc.new_file(sink, table.schema.with_metadata(facts)) as writer:
        writer.write_table(table)
    path = tmp_path / f"{7:020d}-{'0' * 16}.100.spans.arrow"
    path.write_bytes(sink.getvalue())
    with pytest.raises(spool.SpoolError, match="holds 1000000000000 rows, its name says 100"):
        read_segment(Spool(tmp_path).segments()[0])


def test_a_long_value_is_stored_once_where_all_rows_share_it(make_span: MakeSpan, tmp_path: Path) -> None:
    text = '{"a":"' + os.urandom(100_000).hex() + '"}'
    path = Spool(tmp_path).write("spans", [make_span(number, attributes=text) for number in range(100)])
    # Random hex digits halve; without compression, or in the metadata, they would be there more than once.
    assert path.stat().st_size < 2 * len(text)
    assert read_segment(Spool(tmp_path).segments()[0]).table["attributes"].to_pylist() == [text] * 100


def test_very_long_rows_become_several_segments_of_a_row_at_least(
    store: Path, make_span: MakeSpan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "_JSON_BYTES", 1_000)
    monkeypatch.setattr(segments, "_SEGMENT_BYTES", 100_000)
    lengths = [10, 40_000, 40_000, 250_000, 40_000, 10]
    rows = [make_span(number, attributes='"' + "\u00e4" * length + '"') for number, length in enumerate(lengths)]
    folder = spool_folder(store)
    last = Spool(folder).write("spans", rows)
    waiting = Spool(folder).segments()
    assert [segment.rows for segment in waiting] == [3, 1, 2]
    assert waiting[-1].path == last
    assert compact_store(store, budget_s=10) == (3, 0)
    assert query(store, "SELECT strlen(attributes) FROM spans ORDER BY span_id") == [(2 * n + 2,) for n in lengths]


def test_a_segment_that_does_not_fit_into_memory_waits_and_those_behind_it_are_stored(
    store: Path, make_span: MakeSpan, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connect, "AGENT_MEMORY", "24MB")
    monkeypatch.setattr(connect.process, "idle", None)
    monkeypatch.setattr(store_module, "_AGENT_BATCH_BYTES", 1 << 30)
    _, large, *_ = write(store, [make_span(1)], [make_span(2, attributes="x" * 40_000_000)], [make_span(3)])
    write(store, [make_span(4)])
    for together in (True, False):
        monkeypatch.setattr(store_module, "_AGENT_BATCH_BYTES", 1 << 30 if together else 1)
        write(store, [make_span(5 + together)])
        compact_store(store, budget_s=0)
        assert [segment.path for segment in Spool(large.parent).segments()] == [large]
    assert [message for message in caplog.messages if "memory" in message] == [
        f"{large}: waits, its 1 rows do not fit into memory"
    ]
    connect.process.idle = None
    assert refresh(store).compacted == 1
    assert query(store, "SELECT count(*) FROM spans") == [(6,)]


def test_a_commit_that_does_not_fit_into_memory_is_known_by_its_words(
    store: Path, make_span: MakeSpan, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = compact_module._commit

    def fail(con: Any, batch: Sequence[Any], gone: Iterable[str]) -> None:
        if any(read.segment.rows == 2 for read in batch):
            raise duckdb.TransactionException("Failed to commit: could not allocate block of size 256.0 KiB")
        commit(con, batch, gone)

    monkeypatch.setattr(compact_module, "_commit", fail)
    large, _ = write(store, [make_span(1), make_span(2)], [make_span(3)])
    assert compact_store(store, budget_s=10) == (1, 0)
    assert [segment.path for segment in Spool(large.parent).segments()] == [large]


def test_an_agent_looks_at_the_time_after_few_bytes(store: Path, make_span: MakeSpan) -> None:
    write(store, *[[make_span(number, attributes=f'"{"x" * 5_000_000}"')] for number in range(4)])
    assert compact_store(store, budget_s=0) == (1, 0)
    assert compact_store(store, budget_s=10) == (3, 0)


def test_any_order_of_starts_ends_and_repeats_leaves_the_same_spans(store: Path, make_span: MakeSpan) -> None:
    ended = [make_span(number, name="ended") for number in range(200)]
    started = [make_span(number, name="started", end_time_unix_nano=None) for number in range(250)]
    records = [*ended, *started] * 2
    random.Random(5).shuffle(records)
    for first in range(0, len(records), 90):
        write(store, records[first : first + 90])
        if first % 4 == 0:
            compact_store(store, budget_s=10)
    compact_store(store, budget_s=10)
    assert query(store, "SELECT name, count(*), count(DISTINCT span_id) FROM spans GROUP BY ALL ORDER BY ALL") == [
        ("ended", 200, 200),
        ("started", 50, 50),
    ]


def test_a_flush_leaves_no_thread_and_no_lock_behind(store: Path, make_span: MakeSpan) -> None:
    write(store, [make_span(1)])
    threads = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0
    for number in range(2, 4):
        compact_store(store, budget_s=10)
        write(store, [make_span(number)])
    if threads:
        assert len(os.listdir("/proc/self/task")) <= threads
    # Any program may have the file now, this one too.
    with duckdb.connect(store) as con:
        assert con.execute("SELECT count(*) FROM spans").fetchone() == (2,)
        assert compact_store(store, budget_s=10) is None
    assert compact_store(store, budget_s=10) == (1, 0)


def test_a_connection_of_the_program_itself_keeps_a_flush_out(store: Path, make_span: MakeSpan) -> None:
    write(store, [make_span(1)])
    compact_store(store, budget_s=10)
    write(store, [make_span(2)])
    with duckdb.connect(store, read_only=True):
        assert compact_store(store, budget_s=10) is None
        assert compact_store(store, budget_s=10) is None
    assert compact_store(store, budget_s=10) == (1, 0)


def test_a_child_of_a_fork_flushes_on_its_own(store: Path, make_span: MakeSpan) -> None:
    write(store, [make_span(1)])
    compact_store(store, budget_s=10)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            write(store, [make_span(2)])
            code = 0 if compact_store(store, budget_s=10) == (1, 0) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    write(store, [make_span(3)])
    assert compact_store(store, budget_s=10) == (1, 0)
    assert query(store, "SELECT count(*) FROM spans") == [(3,)]


def test_after_a_flush_that_failed_the_next_one_works(store: Path, make_span: MakeSpan, tmp_path: Path) -> None:
    write(store, [make_span(1)])
    compact_store(store, budget_s=10)
    write(store, [make_span(2)])
    whole = tmp_path / "whole"
    store.rename(whole)
    store.write_bytes(b"something else")
    with pytest.raises(StoreError, match="is not a DuckDB file"):
        compact_store(store, budget_s=10)
    store.unlink()
    whole.rename(store)
    assert compact_store(store, budget_s=10) == (1, 0)


def test_stores_of_two_folders_take_turns(tmp_path: Path, make_span: MakeSpan) -> None:
    stores = [tmp_path / "a" / "a.duckdb", tmp_path / "b" / "it's.duckdb"]
    for number in range(4):
        write(stores[number % 2], [make_span(number)])
        assert compact_store(stores[number % 2], budget_s=10) == (1, 0)
    assert [query(db, "SELECT count(*) FROM spans") for db in stores] == [[(2,)], [(2,)]]


def test_every_connection_is_bounded_in_memory(store: Path, make_span: MakeSpan) -> None:
    write(store, [make_span(1)])
    compact_store(store, budget_s=10)
    assert connect.process.idle is not None
    limit = "SELECT parse_formatted_bytes(current_setting('memory_limit'))"
    agent = connect.process.idle[1].execute(limit).fetchone() or (0,)
    with open_store(store) as con:
        reader = con.execute(limit).fetchone() or (0,)
    assert 0 < agent[0] <= 512_000_000
    assert agent[0] <= reader[0] <= 2_000_000_000


def test_a_lower_limit_of_the_machine_stays() -> None:
    with duckdb.connect(config={"memory_limit": "100MB"}) as con:
        limits.bound_memory(con, limits.MEMORY)
        after = con.execute("SELECT parse_formatted_bytes(current_setting('memory_limit'))").fetchone() or (0,)
    assert 0 < after[0] <= 100_000_000


def test_what_does_not_fit_goes_beside_the_store(store: Path, make_span: MakeSpan) -> None:
    write(store, [make_span(1)])
    assert limits.spill_folder(store).parent == spool_folder(store)


def test_it_goes_elsewhere_where_the_disk_is_full_or_cannot_be_written(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    db = small_disk / "a.duckdb"
    spool_folder(db).mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for folder in (db, small_disk / "no such folder" / "a.duckdb"):
        found = limits.spill_folder(folder)
        assert found.parent == tmp_path
        assert found.stat().st_mode & 0o777 == 0o700


def test_a_place_for_it_that_another_user_has_made_is_not_taken(
    store: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = limits.spill_folder(store)
    found.chmod(0o777)
    assert limits.spill_folder(store).parent == spool_folder(store)


def test_more_than_memory_holds_is_sorted_in_the_place_for_it(
    store: Path, make_span: MakeSpan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "MEMORY", "30MB")
    write(store, [make_span(1)])
    compact_store(store, budget_s=10)
    with open_store(store, locked=True) as con:
        con.execute("CREATE TEMP TABLE long AS SELECT hash(i) AS h, repeat('x', 300) || i AS t FROM range(150000) r(i)")
        used = con.execute("SELECT sum(size) FROM duckdb_temporary_files()").fetchone() or (0,)
        assert used[0] > 0
        assert next(spool_folder(store).glob("spill-*/*"))
    assert list(spool_folder(store).glob("spill-*/*")) == []


def test_a_spool_that_is_deleted_between_two_flushes_is_made_again(store: Path, make_span: MakeSpan) -> None:
    write(store, [make_span(1)])
    compact_store(store, budget_s=10)
    shutil.rmtree(spool_folder(store))
    assert compact_store(store, budget_s=10) == (0, 0)
    write(store, [make_span(2)])
    assert compact_store(store, budget_s=10) == (1, 0)
    assert query(store, "SELECT count(*) FROM spans") == [(2,)]
