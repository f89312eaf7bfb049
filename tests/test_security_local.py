"""Other users of the machine: who can read what is kept, and what they may have planted (docs/security.md)."""

import os
import stat
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest

from agenttrace import private, terminal
from agenttrace.cli import main
from agenttrace.errors import SpoolError, StoreError
from agenttrace.evaluators import promote
from agenttrace.redact import hash_key, set_key_folder
from agenttrace.spans import SpanRow
from agenttrace.spool import Segment, Spool, spool_folder
from agenttrace.store import compact_store, open_store

MakeSpan = Callable[..., SpanRow]
NOBODY = 65534
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def modes(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): mode(path) for path in folder.rglob("*")}


def record(store: Path, *spans: SpanRow) -> Path:
    return Spool(spool_folder(store)).write("spans", spans)


# --- who can read


def test_what_holds_prompts_is_for_its_owner_alone(store: Path, make_span: MakeSpan) -> None:
    record(store, make_span(1))
    record(store, *(make_span(number) for number in range(2, 100)))
    folder = spool_folder(store)
    bad = record(store, make_span(100))
    bad.write_bytes(b"torn")
    assert mode(folder) == 0o700
    assert {mode(path) for path in folder.iterdir()} == {0o600}
    compact_store(store, budget_s=10)
    assert mode(store) == 0o600
    assert modes(folder) == {f"{bad.name}.bad": 0o600}


def test_a_store_keeps_the_mode_that_somebody_gave_it(store: Path, make_span: MakeSpan) -> None:
    record(store, make_span(1))
    compact_store(store, budget_s=10)
    store.chmod(0o640)
    spool_folder(store).chmod(0o750)
    record(store, make_span(2))
    compact_store(store, budget_s=10)
    assert (mode(store), mode(spool_folder(store))) == (0o640, 0o750)


def test_the_log_of_an_agent_that_was_killed_is_as_private_as_its_store(
    store: Path, make_span: MakeSpan, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(store, make_span(1))
    compact_store(store, budget_s=10)
    record(store, make_span(2))
    log, seen = store.with_name(f"{store.name}.wal"), list[tuple[bool, int]]()
    remove = Spool.remove

    def looked(spool: Spool, segments: Iterable[Segment]) -> None:
        # Between commit and removal, where a kill leaves the log behind.
        if found := list(segments):
            seen.append((log.stat().st_size > 0, mode(log)))
        remove(spool, found)

    monkeypatch.setattr(Spool, "remove", looked)
    compact_store(store, budget_s=10)
    assert seen == [(True, 0o600)]


def test_commands_make_all_files_for_their_user_alone(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What DuckDB makes, such as its log, has the mode that the process's mask leaves.
    made = tmp_path / "made"
    monkeypatch.setattr("agenttrace.doctor.examine", lambda *_: made.touch() or iter(()))
    main(["doctor", "--db", str(store)])
    assert mode(made) == 0o600
    # The mask of a program that calls us as a function is its own again.
    other = tmp_path / "other"
    other.touch()
    assert mode(other) == 0o644


def test_what_memory_cannot_hold_goes_into_the_private_folder(store: Path, make_span: MakeSpan) -> None:
    record(store, make_span(1))
    compact_store(store, budget_s=10)
    with open_store(store) as con:
        (folder,) = con.execute("SELECT current_setting('temp_directory')").fetchall()[0]
    assert Path(folder).parent == spool_folder(store)


def test_reports_are_private_and_an_existing_one_keeps_its_mode(tmp_path: Path) -> None:
    report, public = tmp_path / "report.html", tmp_path / "public.html"
    public.touch()
    public.chmod(0o664)
    for path in (report, public):
        with terminal.whole_file(path) as part:
            assert mode(part) == mode(path) if path.exists() else 0o600
            part.write_text("prompts")
    assert (mode(report), mode(public)) == (0o600, 0o664)


def test_exported_cases_are_private(tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    promotion = promote.Promotion({"user_input": "rice"}, "../../escaped", "/tmp/escaped", True, [], [])
    promote.append(promotion, path)
    assert mode(path) == 0o600
    path.chmod(0o644)
    promote.append(promotion, path)
    assert mode(path) == 0o644
    # Names that a trace has made up are no file names.
    assert [found.name for found in tmp_path.iterdir()] == ["cases.jsonl"]


# --- sharing on purpose


def test_a_folder_with_the_set_group_id_bit_shares_with_its_group(tmp_path: Path, make_span: MakeSpan) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o2770)
    store = folder / "agenttrace.duckdb"
    record(store, make_span(1))
    with terminal.whole_file(folder / "report.html") as part:
        part.write_text("prompts")
    set_key_folder(folder)
    hash_key()
    assert mode(spool_folder(store)) == 0o2770
    assert {mode(path) for path in spool_folder(store).iterdir()} == {0o660}
    compact_store(store, budget_s=10)
    assert [mode(folder / name) for name in (store.name, "report.html", "agenttrace.key")] == [0o660] * 3


@contextmanager
def somebody_else(user: int, groups: list[int]) -> Generator[None]:
    before = os.getgroups()
    os.setgroups(groups)
    os.setegid(65533)
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(before)


@root_only
def test_a_service_account_records_and_an_analyst_of_its_group_takes_in(tmp_path: Path, make_span: MakeSpan) -> None:
    for parent in (tmp_path, *list(tmp_path.parents)[:-2]):
        parent.chmod(0o755)
    folder = tmp_path / "shared"
    folder.mkdir()
    os.chown(folder, 1234, 4242)
    folder.chmod(0o2770)
    store = folder / "agenttrace.duckdb"
    # What root makes in that folder is the service account's; what the analyst makes, the group's.
    record(store, make_span(1))
    assert compact_store(store, budget_s=10) == (1, 0)
    assert {path.stat().st_uid for path in folder.rglob("*")} == {1234}
    record(store, make_span(2))
    with somebody_else(NOBODY, [4242]):
        assert compact_store(store, budget_s=10) == (1, 0)
        record(store, make_span(3))
    with somebody_else(1234, [4242]):
        assert compact_store(store, budget_s=10) == (1, 0)
    with somebody_else(NOBODY, []), pytest.raises(PermissionError):
        record(store, make_span(4))


# --- what others have planted


def test_a_file_is_never_made_over_something_else(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "link").symlink_to(victim)
    (tmp_path / "dangling").symlink_to(tmp_path / "made-for-others")
    for name in ("victim", "link", "dangling"):
        with pytest.raises(FileExistsError):
            private.create(tmp_path / name)
    assert victim.read_text() == "precious"
    assert not (tmp_path / "made-for-others").exists()


def test_a_report_does_not_go_through_a_planted_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    # The name that a draft had before: an attacker knows report and process id.
    (tmp_path / f".report.html.{os.getpid()}.part").symlink_to(victim)
    with terminal.whole_file(tmp_path / "report.html") as part:
        part.write_text("prompts")
    assert victim.read_text() == "precious"


def test_links_and_pipes_in_the_spool_are_not_read(store: Path, make_span: MakeSpan, tmp_path: Path) -> None:
    good = record(store, make_span(1))
    elsewhere = tmp_path / "elsewhere.json"
    good.rename(elsewhere)
    good.symlink_to(elsewhere)
    pipe = good.with_name(f"{'9' * 20}-{'0' * 16}.1.spans.json")
    os.mkfifo(pipe)
    old = good.with_name("old.tmp")
    os.mkfifo(old)
    os.utime(old, (0, 0))
    # A reader of either pipe would wait for ever.
    compact_store(store, budget_s=10)
    with open_store(store) as con:
        assert con.execute("SELECT count(*) FROM spans").fetchone() == (0,)
    assert {path.name for path in spool_folder(store).iterdir()} == {f"{good.name}.bad", f"{pipe.name}.bad"}


@root_only
def test_what_another_user_has_planted_in_a_public_folder_is_not_used(tmp_path: Path, make_span: MakeSpan) -> None:
    public = tmp_path / "tmp"
    public.mkdir()
    public.chmod(0o1777)
    store = public / "agenttrace.duckdb"
    folder = spool_folder(store)
    folder.mkdir()
    folder.chmod(0o777)
    os.chown(folder, NOBODY, NOBODY)
    with pytest.raises(SpoolError, match="another user has put it there"):
        record(store, make_span(1))
    os.chown(folder, 0, 0)
    record(store, make_span(1))
    with duckdb.connect(store) as con:
        con.execute("CREATE TABLE trap (a INTEGER)")
    store.chmod(0o666)
    os.chown(store, NOBODY, NOBODY)
    with pytest.raises(StoreError, match="another user has put it there"):
        compact_store(store, budget_s=10)
    os.chown(store, 0, 0)


@root_only
def test_a_hash_key_that_another_user_has_planted_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENTTRACE_HASH_KEY", raising=False)
    monkeypatch.setattr("agenttrace.guard.guard.strict", False)
    tmp_path.chmod(0o1777)
    planted = tmp_path / "agenttrace.key"
    planted.write_text("known")
    os.chown(planted, NOBODY, NOBODY)
    set_key_folder(tmp_path)
    assert hash_key() != b"known"
    os.chown(planted, 0, 0)
    set_key_folder(tmp_path)
    assert hash_key() == b"known"
