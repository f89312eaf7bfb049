"""The spool: what is acknowledged is there, whole and once, and nothing broken stands in its way."""

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from segment_rows import read_segment

from agenttrace.errors import SpoolError, SpoolFullError
from agenttrace.spans import LogRow, OutcomeRow, SpanRow
from agenttrace.spool import EvaluationRow, Segment, Spool, default_db, spool_folder

MakeSpan = Callable[..., SpanRow]
ROWS_OF_KIND = {"spans": SpanRow, "logs": LogRow, "outcomes": OutcomeRow, "evaluation": EvaluationRow}


def rows_of(segment: Segment) -> list[tuple[object, ...]]:
    table = read_segment(segment).table
    row_type = ROWS_OF_KIND[segment.kind]
    return [row_type(*values) for values in zip(*(table[name].to_pylist() for name in row_type._fields), strict=True)]


TEXT = st.text(st.characters(codec="utf-8"))
INTEGER = st.integers(-(2**63) + 1, 2**63 - 1)
TYPES = {
    "str": TEXT,
    "str | None": st.none() | TEXT,
    "int": INTEGER,
    "int | None": st.none() | INTEGER,
    "bool | None": st.none() | st.booleans(),
    "float | None": st.none() | st.floats(allow_nan=False, allow_infinity=False),
}


def any_row(row_type: type) -> st.SearchStrategy[tuple[object, ...]]:
    fields = [
        TYPES[str(getattr(kind, "__name__", kind)) if isinstance(kind, type) else str(kind)]
        for kind in row_type.__annotations__.values()
    ]
    return st.tuples(*fields).map(lambda values: row_type(*values))


def write_until_refused(spool: Spool, make_span: MakeSpan, **changes: object) -> None:
    for number in range(1_000):
        spool.write("spans", [make_span(number, **changes)])


@pytest.mark.parametrize("kind", sorted(ROWS_OF_KIND))
@given(data=st.data())
def test_rows_come_back_as_they_went_in(
    kind: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rows = data.draw(st.lists(any_row(ROWS_OF_KIND[kind]), min_size=1, max_size=3))
    # Few rows are written in one format, many in the other; both must hold every value.
    rows *= data.draw(st.sampled_from([1, 40]))
    spool = Spool(tmp_path_factory.mktemp("spool"))
    spool.write(kind, rows)
    [segment] = spool.segments()
    assert rows_of(segment) == rows
    assert (segment.kind, segment.rows) == (kind, len(rows))


@pytest.mark.parametrize("count", [1, 200])
@pytest.mark.parametrize("settled", [True, False])
def test_a_segment_says_whether_an_import_wrote_it_and_when(
    make_span: MakeSpan, tmp_path: Path, count: int, settled: bool
) -> None:
    spool = Spool(tmp_path)
    spool.write("spans", [make_span(number) for number in range(count)], settled=settled)
    [segment] = spool.segments()
    rows = read_segment(segment)
    assert rows.settled is settled
    assert rows.table["received_at"].type == pa.timestamp("us", tz="UTC")
    assert rows.table["received_at"].cast(pa.int64()).to_pylist() == [segment.received_at_ns // 1000] * count


@pytest.mark.parametrize("count", [1, 200])
def test_lone_surrogates_become_question_marks(make_span: MakeSpan, tmp_path: Path, count: int) -> None:
    spool = Spool(tmp_path)
    spool.write("spans", [make_span(number, name="a\ud800b") for number in range(count)])
    [segment] = spool.segments()
    assert {row[3] for row in rows_of(segment)} == {"a?b"}


@pytest.mark.parametrize("count", [1, 200])
@pytest.mark.parametrize(
    "change",
    [{"trace_id": None}, {"name": 7}, {"flags": 2**63}, {"flags": True}, {"end_time_unix_nano": "soon"}],
    ids=lambda change: next(iter(change)),
)
def test_a_value_that_no_reader_could_take_is_refused_at_once(
    make_span: MakeSpan, tmp_path: Path, count: int, change: dict[str, object]
) -> None:
    spool = Spool(tmp_path)
    with pytest.raises(SpoolError):
        spool.write("spans", [make_span(number, **change) for number in range(count)])
    assert list(tmp_path.iterdir()) == []


def test_a_message_of_refusal_names_the_column_and_not_the_value(make_span: MakeSpan, tmp_path: Path) -> None:
    with pytest.raises(SpoolError, match=r"spans: flags is str, expected int\.") as caught:
        Spool(tmp_path).write("spans", [make_span(1, flags="my secret")])
    assert "secret" not in str(caught.value)


def test_an_empty_segment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpoolError):
        Spool(tmp_path).write("spans", [])


def test_segments_are_listed_by_the_time_of_their_arrival(make_span: MakeSpan, tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    paths = [spool.write("spans", [make_span(number)]) for number in range(20)]
    assert [segment.path for segment in spool.segments()] == paths


def test_eight_threads_write_segments_of_their_own(make_span: MakeSpan, tmp_path: Path) -> None:
    spool = Spool(tmp_path / "new" / "spool")

    def write(start: int) -> None:
        for number in range(start, start + 25):
            spool.write("spans", [make_span(number)])

    threads = [threading.Thread(target=write, args=(number * 25,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    names = {row[0] for segment in spool.segments() for row in rows_of(segment)}
    assert names == {f"{number:032x}" for number in range(200)}


def test_a_full_spool_refuses_new_segments_and_keeps_the_old(make_span: MakeSpan, tmp_path: Path) -> None:
    spool = Spool(tmp_path, cap_bytes=2_000)
    with pytest.raises(SpoolFullError, match="the cap is 2000"):
        write_until_refused(spool, make_span)
    assert len(spool.segments()) > 0
    assert sum(segment.size_bytes for segment in spool.segments()) <= 2_000


def test_the_cap_counts_what_other_processes_wrote(make_span: MakeSpan, tmp_path: Path) -> None:
    Spool(tmp_path).write("spans", [make_span(1)])
    with pytest.raises(SpoolFullError):
        Spool(tmp_path, cap_bytes=100).write("spans", [make_span(2)])


def test_room_that_a_compactor_made_is_used(make_span: MakeSpan, tmp_path: Path) -> None:
    spool = Spool(tmp_path, cap_bytes=1_000)
    spool.write("spans", [make_span(1)])
    spool.remove(spool.segments())
    assert Spool(tmp_path, cap_bytes=1_000).write("spans", [make_span(2)]).exists()


def test_pending_counts_segments_rows_bytes_and_age(make_span: MakeSpan, tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    assert spool.pending() == (0, 0, 0, 0.0)
    spool.write("spans", [make_span(1), make_span(2)])
    spool.write("outcomes", [OutcomeRow("t", 1, None, "human", True, None, None, 5)])
    pending = spool.pending()
    assert pending[:2] == (2, 3)
    assert pending.bytes > 0
    assert pending.oldest_s >= 0


@pytest.mark.parametrize("count", [1, 200])
@pytest.mark.parametrize("damage", ["cut", "empty", "noise", "flip"])
def test_a_damaged_segment_is_an_error_and_never_a_crash(
    make_span: MakeSpan, tmp_path: Path, count: int, damage: str
) -> None:
    spool = Spool(tmp_path)
    path = spool.write("spans", [make_span(number) for number in range(count)])
    content = path.read_bytes()
    middle = len(content) // 2
    damaged = {
        "cut": content[:middle],
        "empty": b"",
        "noise": b"\x00" * len(content),
        "flip": content[: len(content) - 9] + bytes([content[-9] ^ 0xFF]) + content[len(content) - 8 :],
    }[damage]
    path.write_bytes(damaged)
    [segment] = spool.segments()
    with pytest.raises(SpoolError):
        read_segment(segment)


@given(content=st.binary(max_size=400))
def test_any_bytes_in_place_of_a_segment_are_an_error(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("spool")
    for suffix in ("arrow", "json"):
        (folder / f"{7:020d}-{'0' * 16}.1.spans.{suffix}").write_bytes(content)
    for segment in Spool(folder).segments():
        with pytest.raises(SpoolError):
            read_segment(segment)


def test_a_segment_of_another_kind_or_length_than_its_name_says_is_an_error(
    make_span: MakeSpan, tmp_path: Path
) -> None:
    spool = Spool(tmp_path)
    path = spool.write("spans", [make_span(1)])
    renamed = path.rename(path.with_name(path.name.replace(".1.spans.", ".2.spans.")))
    with pytest.raises(SpoolError, match="holds 1 rows, its name says 2"):
        read_segment(spool.segments()[0])
    renamed.rename(path.with_name(path.name.replace("spans", "logs")))
    with pytest.raises(SpoolError):
        read_segment(spool.segments()[0])
    next(tmp_path.iterdir()).rename(path.with_name(path.name.replace("spans", "metrics")))
    with pytest.raises(SpoolError, match="kind 'metrics' is unknown"):
        read_segment(spool.segments()[0])


def test_a_segment_set_aside_is_kept_and_not_listed(make_span: MakeSpan, tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    path = spool.write("spans", [make_span(1)])
    spool.set_aside(spool.segments()[0], "a reason")
    assert spool.segments() == []
    assert spool.set_aside_paths() == [path.with_name(path.name + ".bad")]


def test_strange_files_in_the_folder_are_let_alone(make_span: MakeSpan, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "folder").mkdir()
    spool = Spool(tmp_path)
    spool.write("spans", [make_span(1)])
    spool.clean()
    assert len(spool.segments()) == 1
    assert (tmp_path / "notes.txt").exists()


def test_a_spool_folder_that_was_deleted_is_made_again(make_span: MakeSpan, tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    spool.remove([Segment(spool.write("spans", [make_span(1)]), "spans", 1, 0, 0)])
    (tmp_path / "spool").rmdir()
    spool.write("spans", [make_span(2)])
    assert len(spool.segments()) == 1


def test_a_folder_that_cannot_be_made_is_an_oserror(make_span: MakeSpan, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="Not a directory"):
        Spool(tmp_path / "file" / "spool").write("spans", [make_span(1)])


def test_temporary_files_of_dead_writers_are_deleted_and_of_living_ones_kept(tmp_path: Path) -> None:
    script = "import fcntl, os, sys; fcntl.flock(os.open(sys.argv[1], os.O_CREAT | os.O_RDWR), 2); print(); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script, tmp_path / "slow.tmp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        for name in ("dead.tmp", "fresh.tmp"):
            (tmp_path / name).write_bytes(b"half")
        for name in ("dead.tmp", "slow.tmp"):
            os.utime(tmp_path / name, (1, 1))
        Spool(tmp_path).clean()
        assert sorted(path.name for path in tmp_path.iterdir()) == ["fresh.tmp", "slow.tmp"]
        writer.kill()


def test_a_full_disk_leaves_no_file_and_no_acknowledgement(make_span: MakeSpan, small_disk: Path) -> None:
    spool = Spool(small_disk / "spool")
    with pytest.raises(OSError, match="No space left") as caught:
        write_until_refused(spool, make_span, attributes='{"a":"' + "x" * 20_000 + '"}')
    assert caught.value.errno == errno.ENOSPC
    assert [path for path in spool.folder.iterdir() if path.suffix == ".tmp"] == []
    for segment in spool.segments():
        read_segment(segment)


def test_two_paths_to_one_store_have_one_spool(tmp_path: Path) -> None:
    (tmp_path / "other").symlink_to(tmp_path / "real.duckdb")
    assert spool_folder(tmp_path / "other") == tmp_path / "real.duckdb.spool"
    assert spool_folder(tmp_path / "real.duckdb") == tmp_path / "real.duckdb.spool"


def test_the_store_is_the_argument_else_the_variable_else_in_this_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_db() == Path("agenttrace.duckdb")
    monkeypatch.setenv("AGENTTRACE_DB", "~/traces.duckdb")
    assert default_db() == Path.home() / "traces.duckdb"
    assert default_db("mine.duckdb") == Path("mine.duckdb")
    monkeypatch.setenv("AGENTTRACE_DB", "")
    assert default_db() == Path("agenttrace.duckdb")
