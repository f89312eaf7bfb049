"""Where stores may be, and what becomes of a path whose link is changed while an agent runs."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from test_exporter import ended_span

import agenttrace
from agenttrace import exporter as exporter_module
from agenttrace import private
from agenttrace.cli import main
from agenttrace.errors import ConfigError, SpoolError
from agenttrace.exporter import DuckDBSpanExporter
from agenttrace.places import default_db
from agenttrace.redact import hash_key, set_key_folder
from agenttrace.spans import OutcomeRow
from agenttrace.spool import Spool, spool_folder

REFUSED = {
    "a?b.duckdb": "a question mark",
    "a\\b.duckdb": "a backslash",
    "a\0b.duckdb": "a NUL",
    "a\udcff.duckdb": "no UTF-8",
    "s3:/bucket/x": "is no file",
    "md:x": "is no file",
    ":memory:": "is no file",
    "~nosuchuser/x": "no such user's folder",
}


@pytest.mark.parametrize("path", REFUSED)
def test_a_path_that_duckdb_takes_for_another_is_refused_with_its_reason(
    path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match=REFUSED[path]) as caught:
        agenttrace.configure(path)
    assert repr(path) in str(caught.value)
    if "\0" in path:
        return  # No argument of a command can hold one.
    assert main(["list", "--db", path]) == 2
    assert REFUSED[path] in capsys.readouterr().err


def test_a_folder_and_nothing_are_refused_as_targets(tmp_path: Path) -> None:
    for target in (tmp_path, ""):
        with pytest.raises(ConfigError, match=r"is a folder|is no path"):
            agenttrace.configure(target)


def test_a_link_to_a_name_that_duckdb_misreads_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("a?b.duckdb")
    with pytest.raises(ConfigError, match="a question mark"):
        default_db(tmp_path / "link")


def test_a_wrong_limit_in_the_environment_is_told_in_a_line(tmp_path: Path) -> None:
    script = (
        "import agenttrace\ntry: agenttrace.configure('x.duckdb')\nexcept agenttrace.AgentTraceError as e: print(e)"
    )
    environment = os.environ | {"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "abc"}
    command = [sys.executable, "-c", script]
    out = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT must be a non-negative integer but got abc" in out


def test_spans_go_to_the_store_that_a_link_names_by_now(tmp_path: Path) -> None:
    link = tmp_path / "current.duckdb"
    exporter = DuckDBSpanExporter(link)
    for name in ("monday", "tuesday"):
        link.unlink(missing_ok=True)
        link.symlink_to(f"{name}.duckdb")
        exporter.export([ended_span()])
    assert [len(Spool(spool_folder(tmp_path / f"{name}.duckdb")).segments()) for name in ("monday", "tuesday")] == [
        1,
        1,
    ]


class Late(Exception):
    """A time limit of the program's own."""


def test_the_programs_own_exception_ends_the_wait_and_not_the_flush(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy, done = threading.Event(), threading.Event()

    def slow(*_: Any, **__: Any) -> None:
        busy.set()
        time.sleep(0.1)
        done.set()

    def expire(*_: Any) -> None:
        raise Late

    monkeypatch.setattr("agenttrace.store.compact_store", slow)
    exporter = DuckDBSpanExporter(store)
    before = signal.signal(signal.SIGALRM, expire)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.03)
        with pytest.raises(Late):
            exporter.force_flush()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert busy.is_set()
    assert done.wait(10)


def test_a_disk_that_stands_still_holds_neither_a_verdict_nor_a_flush(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free, write = threading.Event(), Spool.write

    def stuck(spool: Spool, kind: str, rows: Any, **options: Any) -> Path:
        assert free.wait(10)
        return write(spool, kind, rows, **options)

    monkeypatch.setattr(Spool, "write", stuck)
    monkeypatch.setattr(exporter_module, "_OUTCOME_WAIT_S", 0.02)
    exporter = DuckDBSpanExporter(store)
    assert exporter.write_outcome(OutcomeRow("t", 1, None, "human", True, None, None, 0))
    assert not exporter.force_flush(20), "a verdict waits, so not all is on disk"
    free.set()
    assert exporter.force_flush(10_000)
    exporter.shutdown()


def test_each_lost_span_has_the_cause_of_its_own_write(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = DuckDBSpanExporter(store)

    def fail(_: Spool, kind: str, rows: Any) -> None:
        if kind == "spans":
            # Another thread's write fails meanwhile.
            exporter.store_rows("outcomes", [()])
            raise SpoolError("torn")
        raise OSError(28, "full")

    monkeypatch.setattr(Spool, "write", fail)
    exporter.export([ended_span()])
    assert exporter.causes == {"SpoolError": 1}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_a_planted_file_or_link_does_not_open_what_is_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    own, planted, link = tmp_path / "own", tmp_path / "planted", tmp_path / "link"
    planted.touch()
    planted.chmod(0o666)
    os.chown(planted, 4242, 4242)
    link.symlink_to("/dev/null")
    os.lchown(link, 4242, 4242)
    for leader in (planted, link):
        own.touch(0o600)
        own.chmod(0o600)
        private.follow(own, leader)
        assert own.stat().st_mode & 0o777 == 0o600
        assert private.is_planted(leader)


def test_a_draft_of_the_key_that_a_kill_left_is_removed(tmp_path: Path) -> None:
    old, new = (tmp_path / f"agenttrace.key.{letter * 16}" for letter in "ab")
    old.touch()
    new.touch()
    os.utime(old, (0, 0))
    set_key_folder(tmp_path)
    hash_key()
    assert (old.exists(), new.exists()) == (False, True)
