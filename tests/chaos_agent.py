"""The processes of the fault campaigns: agents, compactors and receivers, each a function that returns its exit code.

`python tests/chaos_agent.py ROLE OPTIONS`, options as JSON, does in a new interpreter what the campaigns mostly do in
a fork of one that has loaded everything.
"""

import asyncio
import itertools
import json
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow.compute
from chaos_ledger import Ledger
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExportResult

import agenttrace
from agenttrace import cli, compact, rebuild, rewrite, store
from agenttrace.collectors import otlp
from agenttrace.config import Settings
from agenttrace.evaluators import catalog, storing
from agenttrace.evaluators import nightly as nights
from agenttrace.exporter import DuckDBSpanExporter
from agenttrace.spool import Spool, spool_folder

# Whoever compacts loads it.
_LOADED = pyarrow.compute

WRONG_RESULT = 3
NOT_COUNTED = 4
SAID_TOO_OFTEN = 5
TOO_SLOW = 6
EVALUATORS = ("duplicate_mutations", "cost_percentiles")
# It is 2 s, on a machine that has nothing else to do.
_EXIT_S = 8.0
_STEPS = ("open", "write", "fsync", "rename", "unlink", "link", "close", "replace", "mkdir")


def note_acknowledged(ledger: str) -> None:
    """Has each span noted whose export succeeds, at that moment."""
    book = Ledger(Path(ledger))
    export = DuckDBSpanExporter.export

    def noting(self: DuckDBSpanExporter, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = export(self, spans)
        if result is SpanExportResult.SUCCESS:
            book.add(f"{span.context.span_id:016x}" for span in spans)
        return result

    DuckDBSpanExporter.export = noting  # type: ignore[method-assign]


def die_at(step: int) -> None:
    """Has this process killed at its nth call that changes a file; 0 is never."""
    if step == 0:
        return
    left = itertools.count(step - 1, -1)

    def stepping(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            number = next(left)
            if number == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            result = function(*args, **options)
            if number == 1:
                # Half of the deaths come right after a call, before anyone has seen its result.
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return call

    for name in _STEPS:
        setattr(os, name, stepping(getattr(os, name)))


def step_clock(jumps: Sequence[float]) -> None:
    """Moves the wall clock by each number of seconds in turn, every few readings of it."""
    real, real_ns = time.time, time.time_ns
    turn = itertools.count()

    def offset() -> float:
        return jumps[next(turn) // 7 % len(jumps)] if jumps else 0.0

    def now() -> float:
        return real() + offset()

    def now_ns() -> int:
        return real_ns() + int(offset() * 1e9)

    for module in list(sys.modules.values()):
        for name, old, new in (("time", real, now), ("time_ns", real_ns, now_ns)):
            if getattr(module, name, None) is old:
                setattr(module, name, new)


class _Warnings(logging.Handler):
    """What agenttrace says to the program."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


class _Ended(SpanProcessor):
    """Counts the spans that this process has ended."""

    def __init__(self) -> None:
        self.count = itertools.count()
        self.total = 0

    def on_end(self, span: ReadableSpan) -> None:
        self.total = next(self.count) + 1


@agenttrace.tool(mutates=True)
def pay(order: int, amount: int) -> int:
    return order + amount


@agenttrace.tool
def look_up(order: int) -> str:
    return f"order {order}"


@agenttrace.agent
def serve(order: int) -> bool:
    # The second payment is a fault for the evaluators to find.
    return look_up(order) == f"order {order}" and pay(order, 1) == order + 1 and pay(order, 1) == order + 1


@agenttrace.tool
async def wait_for(order: int) -> int:
    await asyncio.sleep(0)
    return order


async def _serve_at_once(orders: Sequence[int]) -> bool:
    return await asyncio.gather(*(wait_for(order) for order in orders)) == list(orders)


def _serve_in_turn(orders: Sequence[int], flush_every: int) -> bool:
    right = True
    for order in orders:
        right = serve(order) and right
        if flush_every and order % flush_every == flush_every - 1:
            agenttrace.flush(5.0)
    return right


def _serve_in_threads(orders: Sequence[int], flush_every: int) -> bool:
    results: list[bool] = []
    shares = [orders[start::4] for start in range(4)]
    threads = [
        threading.Thread(target=lambda share=share: results.append(_serve_in_turn(share, flush_every)))
        for share in shares
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results == [True] * len(shares)


def _serve_in_forks(orders: Sequence[int], flush_every: int) -> bool:
    """Pre-forked workers: they inherit what their parent has configured."""
    children: list[int] = []
    for start in range(4):
        child = os.fork()
        if child == 0:
            os._exit(0 if _serve_in_turn(orders[start::4], flush_every) and agenttrace.shutdown().dropped == 0 else 1)
        children.append(child)
    return [os.waitpid(child, 0)[1] for child in children] == [0] * 4


def _worker(db: str, ledger: str, orders: Sequence[int]) -> None:
    agenttrace.configure(db, flush_interval=0.05)
    if not getattr(_worker, "inherits", False):
        note_acknowledged(ledger)
    if not _serve_in_turn(orders, 0):
        raise SystemExit(WRONG_RESULT)


def _serve_in_workers(method: str, db: str, ledger: str, orders: Sequence[int]) -> bool:
    context = multiprocessing.get_context(method)
    _worker.inherits = method == "fork"  # type: ignore[attr-defined]
    workers = [
        context.Process(target=_worker, args=(db, f"{ledger}-{start}.ledger", orders[start::2])) for start in range(2)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return [worker.exitcode for worker in workers] == [0] * len(workers)


def agent(
    db: str,
    ledger: str,
    *,
    orders: int = 20,
    first: int = 0,
    how: str = "turn",
    flush_every: int = 10,
    step: int = 0,
    jumps: Sequence[float] = (),
    before: Callable[[], None] | None = None,
    after: Callable[[], None] | None = None,
) -> int:
    """An agent that takes orders, and the checks of what it may ask of its tracer: results, counts, words, time.

    Args:
        db: The store.
        ledger: Where its acknowledged spans are noted.
        orders: How many.
        first: Number of the first order.
        how: Who does the work: "turn", "threads", "tasks", "forks", or a start method of multiprocessing.
        flush_every: Orders between two flushes; 0 for none.
        step: It is killed at this call that changes a file.
        jumps: Seconds by which the clock goes wrong.
        before: What is done to it before it configures anything.
        after: What is done to it once its first order is served.
    """
    note_acknowledged(ledger)
    warnings = _Warnings()
    logging.getLogger("agenttrace").addHandler(warnings)
    step_clock(jumps)
    die_at(step)
    if before is not None:
        before()
    agenttrace.configure(db, flush_interval=0.05)
    ended = _Ended()
    trace.get_tracer_provider().add_span_processor(ended)  # type: ignore[attr-defined]
    numbers = range(first, first + orders)
    is_right = serve(first)
    if after is not None:
        agenttrace.flush(5.0)
        after()
    if how == "turn":
        is_right = _serve_in_turn(numbers, flush_every) and is_right
    elif how == "threads":
        is_right = _serve_in_threads(numbers, flush_every) and is_right
    elif how == "tasks":
        is_right = asyncio.run(_serve_at_once(numbers)) and is_right
    elif how == "forks":
        is_right = _serve_in_forks(numbers, flush_every) and is_right
    else:
        is_right = _serve_in_workers(how, db, ledger, numbers) and is_right
    started = time.monotonic()
    result = agenttrace.shutdown()
    if time.monotonic() - started > _EXIT_S:
        return TOO_SLOW
    if not is_right:
        return WRONG_RESULT
    if result.written + result.dropped != ended.total:
        print(f"{result}, ended {ended.total}", file=sys.stderr)
        return NOT_COUNTED
    if len(set(warnings.said)) != len(warnings.said) or (result.dropped and not warnings.said):
        print(warnings.said, file=sys.stderr)
        return SAID_TOO_OFTEN
    return 0


def compactor(db: str, *, batch_bytes: int = 3_000, step: int = 0, rebuilds: bool = False) -> int:
    """Brings the spool into the store in many small transactions."""
    compact.BATCH_BYTES = batch_bytes
    rebuild._BATCH_SPANS = 5
    die_at(step)
    path = Path(db)
    with store.writer(path, 30.0) as con:
        compact.compact(con, Spool(spool_folder(path)), batch_bytes=batch_bytes)
        if rebuilds:
            rebuild.rebuild(con)
    return 0


def rewriter(db: str, *, step: int = 0) -> int:
    """Writes the store anew, as `agenttrace compact` does."""
    die_at(step)
    rewrite.rewrite(Path(db))
    return 0


def killed_with_log(db: str) -> int:
    """A compactor that dies after a commit, so that its write-ahead log stays."""
    path = Path(db)
    with store.writer(path, 30.0) as con:
        con.execute("INSERT INTO settled_traces SELECT range::VARCHAR FROM range(5000)")
        os.kill(os.getpid(), signal.SIGKILL)
    return 0


def migrator(db: str, *, scripts: Sequence[str], step: int = 0) -> int:
    """A release that has more migrations than this one."""
    store.MIGRATIONS = tuple(scripts)
    store.SCHEMA_VERSION = 1 + len(scripts)
    die_at(step)
    return compactor(db)


def evaluation(db: str, *, step: int = 0) -> int:
    """`agenttrace evaluate` with two evaluators, one of which finds something."""
    die_at(step)
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for the rest of the process
    only = [argument for name in EVALUATORS for argument in ("--only", name)]
    return cli.main(["evaluate", "--db", db, "--fail-on", "never", "--include-open", *only])


def nightly(db: str, *, night: int, step: int = 0) -> int:
    """What `agenttrace nightly` does on one of the nights, with the same two evaluators."""
    die_at(step)
    path, day = Path(db), date(2026, 1, 1) + timedelta(days=night)
    load = catalog.load
    catalog.load = lambda folders=(): {name: found for name, found in load(folders).items() if name in EVALUATORS}
    with nights.alone(path):
        store.refresh(path, wait_s=30.0)
        if storing.read_night(path, day, "UTC") is None:
            nights.judge(path, Settings(), day, nights.zone("UTC"))
            store.refresh(path, wait_s=30.0)
    return 0


def receiver(
    db: str,
    *,
    http_port: int,
    grpc_port: int,
    step: int = 0,
    room: int = 0,
    before: Callable[[], None] | None = None,
) -> int:
    """`agenttrace collect`.

    Args:
        db: The store.
        http_port: Where it listens.
        grpc_port: The same.
        step: It is killed at this call that changes a file.
        room: Bytes of requests that it takes at once; 0: what it takes otherwise.
        before: What is done to it first.
    """
    die_at(step)
    if before is not None:
        before()
    sizes = {"max_body": room, "max_inflated": room} if room else {}
    otlp._MIN_WAITING_BYTES = room or otlp._MIN_WAITING_BYTES
    otlp.OTLPReceiver(Path(db), http_port=http_port, grpc_port=grpc_port, **sizes).run()
    return 0


def idle() -> int:
    return 0


ROLES: dict[str, Callable[..., int]] = {
    function.__name__: function
    for function in (agent, compactor, migrator, evaluation, nightly, receiver, rewriter, killed_with_log, idle)
}

if __name__ == "__main__":
    sys.exit(ROLES[sys.argv[1]](**json.loads(sys.argv[2])))
