"""A short version of each fault campaign (`make chaos` runs the long ones), and the faults that they have found."""

import asyncio
import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import chaos
import chaos_disk
import chaos_kills
import chaos_processes
import chaos_receiver
import chaos_redelivery
import httpx
import pytest
from chaos_clients import PROTOBUF, request
from chaos_ledger import Tally, query, settle
from segment_rows import read_segment

from agenttrace import private
from agenttrace import spool as spool_module
from agenttrace.collectors import intake, otlp
from agenttrace.collectors.otlp import OTLPReceiver
from agenttrace.errors import SpoolError, UsageError
from agenttrace.spans import SpanRow
from agenttrace.spool import Spool, locked_folder, spool_folder
from agenttrace.store import compact_store, refresh

# One worker runs them all, so that one process that has loaded everything forks the agents.
pytestmark = [pytest.mark.xdist_group("chaos"), pytest.mark.usefixtures("unmeasured")]

MakeSpan = Callable[..., SpanRow]
SEED = 7


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that agents of other users may enter; pytest's are for their owner alone."""
    folder = chaos_disk.reached_by_others()
    yield folder
    shutil.rmtree(folder)


def counted(tally: Tally) -> None:
    assert tally.faults == []
    assert (tally.lost, tally.twice, tally.crashes) == (0, 0, 0)
    assert tally.found == tally.acknowledged


def test_what_was_acknowledged_before_a_kill_is_in_the_store_once(folder: Path) -> None:
    kinds = ("exporters", "receivers", "compactors", "evaluations")
    tally = chaos_kills.run(folder, SEED, kills=1, kinds=kinds, shared=True)
    counted(tally)
    assert tally.acknowledged > 0
    assert all(tally.events[kind] for kind in kinds)


def test_agents_of_every_make_share_a_store(folder: Path) -> None:
    tally = chaos_processes.run(folder, SEED, agents=7, orders=1, short=True)
    counted(tally)
    assert tally.acknowledged > 0


def test_a_starved_agent_goes_on_and_counts_what_it_could_not_keep(folder: Path) -> None:
    tally = chaos_disk.run(folder, SEED, only="starved", rounds=0, orders=1)
    counted(tally)
    assert tally.acknowledged > 0


@pytest.mark.parametrize("part", ["hostile", "flood"])
def test_a_receiver_in_trouble_keeps_what_it_has_acknowledged(part: str, folder: Path) -> None:
    tally = chaos_receiver.run(folder, SEED, only=part, seconds=0.2, exporters=8)
    counted(tally)
    assert tally.acknowledged > 0


def test_every_request_twice_and_in_random_order_gives_what_one_delivery_gives(folder: Path) -> None:
    tally = chaos_redelivery.run(folder, SEED, requests=6, restarts=1)
    counted(tally)
    assert tally.acknowledged == 2 * 6 * 5


def test_the_command_prints_counts_and_fails_where_a_span_is_lost(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def run(_folder: Path, seed: int) -> Tally:
        return Tally(acknowledged=10, found=10 - seed, lost=seed)

    monkeypatch.setattr(chaos_redelivery, "run", run)
    for seed in (0, 1):
        monkeypatch.setattr(
            sys, "argv", ["chaos", "--only", "redelivery", "--seed", str(seed), "--folder", str(tmp_path / str(seed))]
        )
        assert chaos.main() == seed
        assert f"seed {seed}" in capsys.readouterr().out


@pytest.mark.parametrize("rows", [2, 100], ids=["json", "arrow"])
def test_a_segment_whose_bits_have_changed_is_never_read_as_something_else(
    rows: int, store: Path, make_span: MakeSpan
) -> None:
    spool = Spool(spool_folder(store))
    spool.write("spans", [make_span(number) for number in range(rows)])
    [segment] = spool.segments()
    content = segment.path.read_bytes()
    for position in range(0, len(content), max(1, len(content) // 300)):
        changed = bytearray(content)
        changed[position] ^= 1
        segment.path.write_bytes(changed)
        with pytest.raises(SpoolError, match="has changed"):
            read_segment(segment)


@pytest.mark.parametrize(
    "error", [OSError(errno.EMFILE, "Too many open files"), OSError(errno.EIO, "Input/output error"), MemoryError()]
)
def test_a_segment_that_cannot_be_read_for_the_moment_waits(
    error: Exception, store: Path, make_span: MakeSpan, monkeypatch: pytest.MonkeyPatch
) -> None:
    Spool(spool_folder(store)).write("spans", [make_span(1)])

    def fail(_path: Path) -> bytes:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(spool_module.private, "read", fail)
        assert refresh(store).pending == 1
    assert Spool(spool_folder(store)).set_aside_paths() == []
    settle(store)
    assert query(store, "SELECT count(*) FROM spans") == [(1,)]


def test_nothing_of_those_who_died_stays(store: Path, make_span: MakeSpan) -> None:
    spool = spool_folder(store)
    Spool(spool).write("spans", [make_span(1)])
    left = [spool / "create-0123456789abcdef.tmp", spool / "create-0123456789abcdef.tmp.wal", spool / "x.json.1.tmp"]
    for path in left:
        path.write_bytes(b"half")
        os.utime(path, (0, 0))
    (spool / f"spill-{os.getuid()}").mkdir()
    (spool / f"spill-{os.getuid()}" / "duckdb_temp_1_storage_DEFAULT-0.tmp").write_bytes(b"half")
    settle(store)
    assert list(spool.iterdir()) == []


def test_a_store_is_made_by_one_process_at_a_time(store: Path, make_span: MakeSpan) -> None:
    """A second one would take the log of the first one's store for that of a deleted one, and put it aside."""
    Spool(spool_folder(store)).write("spans", [make_span(1)])
    with locked_folder(spool_folder(store), 0.0) as is_alone:
        assert is_alone
        assert compact_store(store, budget_s=1.0) is None
    assert compact_store(store, budget_s=1.0) == (1, 0)


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread"), KeyError("x")])
def test_a_fault_while_writing_costs_one_answer_and_not_the_receiver(
    error: Exception, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(intake, "_REFRESH_S", 0.01)
    with OTLPReceiver(store, http_port=0) as receiver, httpx.Client(base_url=receiver.urls[0], timeout=30) as client:
        send = partial(client.post, "/v1/traces", headers=PROTOBUF)
        with monkeypatch.context() as patched:
            patched.setattr(Spool, "write", fail)
            answer = send(content=request([1]))
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
        with monkeypatch.context() as patched:
            patched.setattr(intake, "refresh", fail)
            assert send(content=request([2])).status_code == 200
            time.sleep(0.05)
        assert send(content=request([3])).status_code == 200
    # The thread that brings segments into the store has lived on as well.
    assert query(store, "SELECT count(*) FROM spans") == [(2,)]


def test_a_request_for_which_there_is_no_memory_is_to_be_sent_again(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(intake, "_decode", fail)
    with OTLPReceiver(store, http_port=0) as receiver:
        assert httpx.post(f"{receiver.urls[0]}/v1/traces", content=request([1]), headers=PROTOBUF).status_code == 503


def test_a_receiver_that_stops_listening_by_itself_ends(store: Path) -> None:
    receiver = OTLPReceiver(store, http_port=0)

    def end(_urls: list[str]) -> None:
        assert receiver._server
        receiver._server.should_exit = True

    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(UsageError, match="stopped listening by itself"):
        receiver.run(ready=end)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers


FOLDERLESS = """
import os, tempfile
os.chdir(folder := tempfile.mkdtemp())
os.rmdir(folder)
import agenttrace

@agenttrace.tool
def add(a: int, b: int) -> int:
    return a + b

agenttrace.configure()
print(add(1, 2), agenttrace.flush().dropped)
"""


def test_an_agent_whose_folder_is_gone_goes_on_and_says_so() -> None:
    done = subprocess.run([sys.executable, "-c", FOLDERLESS], capture_output=True, text=True, check=True)
    assert done.stdout == "3 1\n"
    [line] = done.stderr.splitlines()
    assert line.startswith("agenttrace.duckdb: spans were not recorded: [Errno 2] No such file or directory")


def test_connections_beyond_the_limit_of_handles_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.new_event_loop()
    for number in (errno.EMFILE, errno.ENFILE, errno.EMFILE):
        fault = {"message": "socket.accept() out of system resource", "exception": OSError(number, "Too many")}
        otlp._report(loop, fault)
    loop.close()
    assert caplog.messages == ["collect: Too many: new connections wait. Raise the limit of open files (ulimit -n)."]


def test_a_file_never_takes_the_place_of_a_closed_stream(tmp_path: Path) -> None:
    script = "import os, sys; from pathlib import Path; from agenttrace import private\n"
    script += "os.close(1); os.close(2); print(private.create(Path(sys.argv[1])) > 2, file=open(sys.argv[2], 'w'))"
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "a"), str(tmp_path / "b")], check=True)
    assert (tmp_path / "b").read_text() == "True\n"
    assert private.read(tmp_path / "a") == b""
