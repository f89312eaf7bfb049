"""A receiver among clients that mean it ill, more of them than it can serve, without room, without handles, restarted
in the middle: its good clients are answered in bounded time, and what it acknowledged is in the store once.
"""

import logging
import random
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import chaos_faults as faults
import chaos_hostile as hostile
from chaos_clients import Clients, free_ports
from chaos_disk import small_disk
from chaos_ledger import Child, Ledger, Tally, account, until
from grpc import StatusCode
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpanExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

# It tells of each attempt.
logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)

# What a good client waits for one answer, hostile ones beside it, on a machine that has other things to do.
_LONGEST_S = 20.0
_EXPORT_S = 60.0
# Spans of an export; they have 200 kB together.
_BATCH = 20


def run(folder: Path, seed: int, *, seconds: float = 15.0, exporters: int = 12, only: str = "") -> Tally:
    tally, rng = Tally(), random.Random(seed)
    for name, part in PARTS.items():
        if only in name:
            place = folder / name
            place.mkdir()
            with tally.naming(name):
                part(tally, rng, place, seconds, exporters)
    return tally


class _Service:
    """A receiver process on ports of its own, started again after each end."""

    def __init__(self, tally: Tally, folder: Path, db: Path | None = None, **options: object) -> None:
        self.db = db or folder / "agenttrace.duckdb"
        self.http_port, self.grpc_port = free_ports(2)
        self._tally = tally
        self._options = options
        self.ends = [f"http://127.0.0.1:{self.http_port}/v1/traces", f"127.0.0.1:{self.grpc_port}"]
        self.start()

    def start(self) -> None:
        ports = {"http_port": self.http_port, "grpc_port": self.grpc_port}
        self.child = Child("receiver", db=str(self.db), **ports, **self._options)
        self._tally.check(until(self._is_up), "the receiver does not come up")

    def _is_up(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.http_port)):
            return True
        return not self.child.is_running()

    def stop(self, number: int = signal.SIGTERM) -> None:
        self.child.send(number)
        self.child.ending(self._tally, expected=(0,) if number == signal.SIGTERM else (-number,))


@contextmanager
def _service(tally: Tally, folder: Path, db: Path | None = None, **options: object) -> Iterator[_Service]:
    service = _Service(tally, folder, db, **options)
    try:
        yield service
    finally:
        service.stop()


def _clients(tally: Tally, service: _Service, folder: Path, rng: random.Random) -> Clients:
    return Clients(tally, folder, service.http_port, service.grpc_port, rng.random())


def _hostile(tally: Tally, rng: random.Random, folder: Path, seconds: float, _exporters: int) -> None:
    with _service(tally, folder) as service, _clients(tally, service, folder, rng) as clients:
        clients.wait_for_more(service.child, 4)
        guests = hostile.Guests(tally, service.http_port, service.grpc_port, rng.random())
        with guests:
            time.sleep(seconds)
        tally.check(clients.wait_for_more(service.child, 8), "good clients are not answered any more")
        tally.check(clients.longest_s < _LONGEST_S, f"a good client has waited for {clients.longest_s:.0f} s")
        for kind in hostile.KINDS:
            tally.check(guests.done[kind], f"{kind} has not been tried")
        tally.events["hostile requests"] += sum(guests.done.values())
    account(tally, service.db, folder)


def _flood(tally: Tally, _rng: random.Random, folder: Path, seconds: float, exporters: int) -> None:
    """The SDK's own exporters, more of them than there is room for: they are told to come again, and do."""
    # Room for a few large requests at a time, and a disk that is slow.
    with _service(tally, folder, room=1 << 18, before=faults.have_slow_disk) as service:
        book = _Book(folder)
        at_once = threading.Barrier(exporters)
        threads = [
            threading.Thread(target=_export, args=(book, service.ends[n % 2], seconds, n, at_once))
            for n in range(exporters)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    refused = _refused_for_now(service.db)
    tally.events["refused for now"] += refused
    tally.events["given up by the SDK"] += book.failed
    tally.check(refused, "the flood was not refused once")
    account(tally, service.db, folder)


def _restarted(tally: Tally, rng: random.Random, folder: Path, seconds: float, _exporters: int) -> None:
    """SIGTERM and SIGKILL in turn, in the middle of streams; the SDK's own exporters go on after it is back."""
    with _service(tally, folder) as service, _clients(tally, service, folder, rng) as clients:
        book = _Book(folder)
        until_s = time.monotonic() + seconds
        at_once = threading.Barrier(2)
        threads = [
            threading.Thread(target=_export, args=(book, end, seconds, n, at_once))
            for n, end in enumerate(service.ends)
        ]
        for thread in threads:
            thread.start()
        while time.monotonic() < until_s:
            clients.wait_for_more(service.child, rng.randint(1, 20))
            service.stop(rng.choice((signal.SIGTERM, signal.SIGKILL)))
            service.start()
            tally.events["restarts"] += 1
        for thread in threads:
            thread.join()
        tally.check(clients.wait_for_more(service.child, 4), "clients do not find the receiver again")
        tally.check(book.acknowledged, "the SDK's exporters had nothing acknowledged")
    account(tally, service.db, folder)


def _full(tally: Tally, rng: random.Random, folder: Path, _seconds: float, _exporters: int) -> None:
    """A disk that is full for a while: no acknowledgement, then all goes on."""
    with small_disk(folder / "disk") as disk:
        if disk is None:
            tally.events["no small disk to be had"] += 1
            return
        service = _Service(tally, folder, disk / "agenttrace.duckdb")
        with _clients(tally, service, folder, rng) as clients:
            clients.wait_for_more(service.child, 10)
            faults.fill(str(disk / "filler"))
            refusals = {503, StatusCode.UNAVAILABLE}
            tally.check(until(lambda: refusals <= clients.refused), f"a full disk is answered by {clients.refused}")
            (disk / "filler").unlink()
            tally.check(clients.wait_for_more(service.child, 10), "nothing is taken after there is room again")
        service.stop()
        # The disk may be full by the acknowledged spans themselves: with more of it they come in.
        subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
        account(tally, service.db, folder)


def _locked(tally: Tally, rng: random.Random, folder: Path, seconds: float, _exporters: int) -> None:
    with _service(tally, folder) as service, _clients(tally, service, folder, rng) as clients:
        clients.wait_for_more(service.child, 4)
        until(service.db.exists)
        with faults.held(service.db, wait_s=30.0):
            taken = clients.count
            time.sleep(seconds / 3)
            tally.check(clients.count > taken, "nothing is taken while another program holds the store")
    account(tally, service.db, folder)


def _few_handles(tally: Tally, rng: random.Random, folder: Path, seconds: float, _exporters: int) -> None:
    """More connections than there are handles: when they leave, all goes on."""
    before = partial(faults.have_few_handles, 40)
    with _service(tally, folder, before=before) as service, _clients(tally, service, folder, rng) as clients:
        clients.wait_for_more(service.child, 4)
        with hostile.idle_connections([service.http_port, service.grpc_port], 60):
            time.sleep(seconds / 3)
        tally.check(clients.wait_for_more(service.child, 10), "nothing is taken after the handles are free again")
        tally.events["idle connections"] += 120
    account(tally, service.db, folder)


PARTS: dict[str, Callable[[Tally, random.Random, Path, float, int], None]] = {
    "hostile": _hostile,
    "flood": _flood,
    "restarted": _restarted,
    "full": _full,
    "locked": _locked,
    "few_handles": _few_handles,
}


class _Book:
    """Notes what the SDK's exporters have acknowledged."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.acknowledged = 0
        self.failed = 0

    def ledger(self, number: int) -> Ledger:
        return Ledger(self._folder / f"sdk-{number}.ledger")


def _export(book: _Book, end: str, seconds: float, number: int, at_once: threading.Barrier) -> None:
    """Exports batch after batch, at least one."""
    ledger = book.ledger(number)
    memory = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    exporter: SpanExporter
    if end.startswith("http"):
        exporter = OTLPSpanExporter(endpoint=end, timeout=_EXPORT_S)
    else:
        exporter = GrpcSpanExporter(endpoint=end, insecure=True, timeout=_EXPORT_S)
    tracer = provider.get_tracer("flood")
    until_s = 0.0
    while until_s == 0.0 or time.monotonic() < until_s:
        for _ in range(_BATCH):
            tracer.start_span("execute_tool", attributes={"text": "x" * (200_000 // _BATCH)}).end()
        if until_s == 0.0:
            at_once.wait(_EXPORT_S)
            until_s = time.monotonic() + seconds
        spans = memory.get_finished_spans()
        memory.clear()
        if exporter.export(spans) is SpanExportResult.SUCCESS:
            ledger.add(f"{span.context.span_id:016x}" for span in spans)
            book.acknowledged += len(spans)
        else:
            book.failed += 1
    exporter.shutdown()


def _refused_for_now(db: Path) -> int:
    """How often a receiver has said that a request can be taken later."""
    from agenttrace.collectors.counts import read_counts

    counts = read_counts(db)
    return counts.refused["503"] + counts.refused["UNAVAILABLE"] if counts else 0
