"""Processes that are killed: what was acknowledged is in the store, each row exactly once.

DURABILITY_SPANS makes them longer.
"""

import os
import random
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from agenttrace.spans import SpanRow
from agenttrace.spool import Spool, spool_folder
from agenttrace.store import compact_store, open_store, refresh

pytestmark = pytest.mark.usefixtures("unmeasured")

MakeSpan = Callable[..., SpanRow]
SPANS = int(os.environ.get("DURABILITY_SPANS", "10000"))
BATCH = 25

WRITER = """
import sys
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from agenttrace.exporter import DuckDBSpanExporter

log = open(sys.argv[4], "a")
exporter, memory = DuckDBSpanExporter(sys.argv[1]), InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(memory))
for batch in range(int(sys.argv[2]) // int(sys.argv[3])):
    for number in range(int(sys.argv[3])):
        provider.get_tracer("test").start_span("a").end()
    spans = memory.get_finished_spans()
    memory.clear()
    if exporter.export(spans) is SpanExportResult.SUCCESS:
        # One write: a kill between two would leave half a line.
        log.write("".join(f"{span.context.span_id:016x}\\n" for span in spans))
        log.flush()
    if batch % 10 == 9:
        exporter.force_flush()
exporter.shutdown()
"""


def start(script: str, *arguments: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def ending(process: "subprocess.Popen[str]") -> int:
    process.communicate(timeout=60)
    return process.returncode


def lines(log: Path) -> int:
    return log.read_text().count("\n") if log.exists() else 0


def size(path: Path) -> int:
    """0 for a file that is gone by now."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def stored(db: Path) -> Counter[str]:
    while Spool(spool_folder(db)).segments():
        compact_store(db, budget_s=60, wait_s=30)
    with open_store(db, wait_s=30) as con:
        return Counter(span_id for (span_id,) in con.execute("SELECT span_id FROM spans").fetchall())


def test_two_writers_one_of_them_killed_and_a_reader_in_a_loop(store: Path, tmp_path: Path) -> None:
    logs = [tmp_path / "first", tmp_path / "second"]
    writers = [start(WRITER, store, SPANS, BATCH, log) for log in logs]
    while lines(logs[0]) < SPANS // 2:
        assert writers[0].poll() is None
    writers[0].send_signal(signal.SIGKILL)
    reads = 0
    while writers[1].poll() is None:
        refresh(store, wait_s=0.2)
        with open_store(store, wait_s=30) as con:
            counted = con.execute("SELECT count(*), count(DISTINCT span_id) FROM spans").fetchone()
        assert counted is not None
        assert counted[0] == counted[1]
        reads += 1
    assert [ending(writer) for writer in writers] == [-signal.SIGKILL, 0]
    acknowledged = [line for log in logs for line in log.read_text().split()]
    found = stored(store)
    assert len(acknowledged) >= SPANS + SPANS // 2
    assert set(acknowledged) <= set(found)
    assert set(found.values()) == {1}
    assert reads > 0


COMPACTOR = """
import sys
from pathlib import Path
import pyarrow
from agenttrace import store
from agenttrace.compact import compact
from agenttrace.spool import Spool, spool_folder
db = Path(sys.argv[1])
print("ready", flush=True)
with store.writer(db, 10) as con:
    compact(con, Spool(spool_folder(db)), batch_bytes=int(sys.argv[2]))
"""


def run_until(condition: Callable[[], bool], *arguments: object) -> None:
    """Starts a compactor and kills it as soon as the condition holds."""
    with start(COMPACTOR, *arguments) as process:
        assert process.stdout is not None
        process.stdout.readline()
        while process.poll() is None and not condition():
            pass
        process.kill()


def test_a_compactor_that_is_killed_again_and_again(store: Path, make_span: MakeSpan) -> None:
    spool = Spool(spool_folder(store))
    chance = random.Random(7)
    number = 0
    for _ in range(3):
        for _ in range(20):
            # Each segment repeats half of the one before.
            spool.write("spans", [make_span(number + more) for more in range(10)])
            number += 5
        left = len(spool.segments()) - chance.randint(1, 15)
        run_until(lambda left=left: len(spool.segments()) <= left, store, 3_000)
        assert len(spool.segments()) <= left
    found = stored(store)
    assert found == Counter(f"{n:016x}" for n in range(number + 5))
    assert spool.segments() == []


def test_a_store_whose_creation_was_killed_is_whole_or_not_there(store: Path, make_span: MakeSpan) -> None:
    folder = spool_folder(store)
    Spool(folder).write("spans", [make_span(1)])
    stages: list[Callable[[], bool]] = [
        lambda: any(path.name.startswith("create-") for path in folder.iterdir()),
        lambda: any(path.name.startswith("create-") and size(path) > 100_000 for path in folder.iterdir()),
        store.exists,
    ]
    for stage in stages:
        run_until(stage, store, 1_000_000)
        if store.exists():
            with duckdb.connect(store) as con:
                assert con.execute("SELECT value FROM agenttrace_meta WHERE key = 'schema_version'").fetchall()
        for leftover in folder.glob("create-*"):
            leftover.unlink()
    assert stored(store) == {f"{1:016x}": 1}


KILLED_AMID_A_REFUND = """
import os, signal, sys
import agenttrace

agenttrace.configure(sys.argv[1], flush_interval=60)

@agenttrace.tool(mutates=True)
def refund(order: str) -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    return "done"

with agenttrace.run("refunds", user_input="refund order 7", session_id="s-44", task_id="task-17", trial=3):
    refund("7")
"""


def test_a_mutation_that_was_killed_is_unfinished_and_not_missing(store: Path) -> None:
    with start(KILLED_AMID_A_REFUND, store) as process:
        assert process.wait(60) == -signal.SIGKILL
    refresh(store)
    with open_store(store) as con:
        spans = con.execute(
            "SELECT name, end_time_unix_nano, tool_name FROM spans ORDER BY start_time_unix_nano"
        ).fetchall()
        steps = con.execute(
            "SELECT status, effect, mutability, session_id, task_id, trial FROM steps WHERE kind = 'tool'"
        ).fetchall()
    assert [(end, tool) for _, end, tool in spans] == [(None, None), (None, "refund")]
    assert steps == [("unfinished", "unknown", "mutating", "s-44", "task-17", 3)]


KILLED_IN_THE_MIDDLE = """
import os, signal, sys, time
from pathlib import Path
import agenttrace
from agenttrace.spool import Spool, spool_folder
from opentelemetry import trace

interval = 0.1
agenttrace.configure(sys.argv[1], flush_interval=interval)
tracer = trace.get_tracer("test")
spool = Spool(spool_folder(Path(sys.argv[1])))
until = time.monotonic() + 30
# The first write loads what later ones have.
while not spool.segments() and time.monotonic() < until:
    tracer.start_span("warm").end()
ended = []
until = time.monotonic() + 1.0
while time.monotonic() < until:
    tracer.start_span(str(len(ended))).end()
    ended.append(time.monotonic())
    time.sleep(0.001)
killed = time.monotonic()
print(sum(moment < killed - 2.5 * interval for moment in ended), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_loses_no_more_than_its_last_interval(store: Path) -> None:
    with start(KILLED_IN_THE_MIDDLE, store) as process:
        assert process.stdout is not None
        # Two and a half intervals: the write takes time too, on a machine that has other things to do.
        promised = int(process.stdout.readline())
    compact_store(store, budget_s=30)
    with open_store(store) as con:
        names = {int(name) for (name,) in con.execute("SELECT name FROM spans WHERE name <> 'warm'").fetchall()}
    assert promised > 0
    assert names >= set(range(promised))


def test_a_disk_that_fills_up_under_two_writers_keeps_what_it_acknowledged(small_disk: Path, tmp_path: Path) -> None:
    db = small_disk / "a.duckdb"
    script = WRITER.replace('("a")', '("a", attributes={"x": "y" * 9_000})')
    logs = [tmp_path / "first", tmp_path / "second"]
    for writer in [start(script, db, 500, BATCH, log) for log in logs]:
        assert ending(writer) == 0
    acknowledged = [line for log in logs for line in log.read_text().split()]
    assert 0 < len(acknowledged) < 1_000
    subprocess.run(["mount", "-o", "remount,size=64m", small_disk], check=True)
    found = stored(db)
    assert set(acknowledged) <= set(found)
    assert set(found.values()) == {1}
