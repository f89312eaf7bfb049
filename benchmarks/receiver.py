"""OTLP over HTTP and gRPC -> rows, through `agenttrace collect` as a process of its own, and clients in another one.

Run: `python benchmarks/receiver.py [ROUNDS [SHARE]]`; a share of 0.1 sends a tenth. The baseline is the same server
doing the least that a receiver must: parse the body and answer; beside it, the same with a write and an fsync for each
request before the answer. Processor time is the server's, per span: ours includes what comes after the answer, until
rows and steps are in the store. After each run the store must hold every acknowledged span once.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import duckdb
from bare_server import start
from clients import Door, Load, Sent, send
from otlp_requests import Encoding
from processes import AGENTTRACE, Server
from ratios import Figure, Taken, Work, measure, report

from agenttrace.spool import Spool, spool_folder

ROUNDS = 3
# Spans of a request, and requests to send: small ones as of an agent that exports each run, and full batches.
SIZES = {20: 200, 512: 24}
CLIENTS = (1, 8, 64)
DOORS: dict[str, tuple[Door, Encoding]] = {
    "protobuf": ("http", "protobuf"),
    "json": ("http", "json"),
    "gRPC": ("grpc", "protobuf"),
}
_LAG_S = 120.0
_WARM = Load(requests=20, first=1 << 30)


def collector(folder: Path, door: Door = "http") -> Server:
    """Starts `agenttrace collect` on free ports."""
    ports = ["--http-port", "0", "--grpc-port", "0"]
    return Server(
        [AGENTTRACE, "collect", *ports, "--db", str(folder / "store.duckdb")], rf"listening on ({door}://\S+)"
    )


def bare(does: str, folder: Path, load: Load) -> Callable[[], Callable[[], Taken]]:
    """The baseline: parses, and answers."""

    def prepare() -> Callable[[], Taken]:
        server = start(does, folder, load.door)
        send(server.address, replace(_WARM, door=load.door))
        before = server.cpu_s()

        def run() -> Taken:
            with server:
                sent = send(server.address, load)
                return taken(sent, load, server.stop() - before)

        return run

    return prepare


def ours(folder: Path, load: Load) -> Callable[[], Callable[[], Taken]]:
    """`agenttrace collect`, until all is in the store."""

    def prepare() -> Callable[[], Taken]:
        home = Path(tempfile.mkdtemp(dir=folder))
        server = collector(home, load.door)
        warm = send(server.address, replace(_WARM, door=load.door))
        before = server.cpu_s()

        def run() -> Taken:
            with server:
                sent = send(server.address, load)
                answered_s = server.cpu_s() - before
                lag_s = wait_until_stored(home)
                result = taken(sent, load, server.stop() - before)
            check(home, [(_WARM, warm), (load, sent)])
            spans = len(sent.acknowledged) * load.spans
            return result._replace(more={**result.more, "us/span to answer": 1e6 * answered_s / spans, "lag s": lag_s})

        return run

    return prepare


def taken(sent: Sent, load: Load, cpu_s: float) -> Taken:
    """Per span, and what a client sees."""
    spans = len(sent.acknowledged) * load.spans
    return Taken(
        cpu_s / spans,
        sent.wall_s / spans,
        {
            "requests/s": len(sent.acknowledged) / sent.wall_s,
            "spans/s": spans / sent.wall_s,
            "p50 ms": sent.quantile_ms(0.5),
            "p99 ms": sent.quantile_ms(0.99),
        },
    )


def wait_until_stored(folder: Path) -> float:
    """Waits until no segment is left in the spool, without opening the store; returns the seconds that it took."""
    spool, started = Spool(spool_folder(folder / "store.duckdb")), time.monotonic()
    while spool.segments():
        assert time.monotonic() - started < _LAG_S, f"{spool.pending()} after {_LAG_S:.0f} s"
        time.sleep(0.01)
    return time.monotonic() - started


def check(folder: Path, loads: list[tuple[Load, Sent]]) -> None:
    """Every acknowledged span is in the store, and once."""
    with duckdb.connect(str(folder / "store.duckdb"), read_only=True) as con:
        rows = con.execute(
            "SELECT left(trace_id, 8), count(*), count(DISTINCT trace_id || span_id) FROM spans GROUP BY 1"
        ).fetchall()
    found = {int(number, 16): (spans, distinct) for number, spans, distinct in rows}
    for load, sent in loads:
        for number in sent.acknowledged:
            assert found.get(number) == (load.spans, load.spans), f"request {number}: {found.get(number)} {load.spans}"


def table(folder: Path, load: Load, rounds: int) -> list[Figure]:
    """Measures one load."""
    works = [
        Work("bare: parse, answer", bare("parse", folder, load)),
        Work("bare: and fsync each", bare("append", folder, load)),
        Work("agenttrace collect", ours(folder, load)),
    ]
    return measure(works, rounds=rounds)


def main(rounds: int = ROUNDS, share: float = 1.0) -> bool:
    """Prints a table per load."""
    tables: dict[str, list[Figure]] = {}
    checked = 0
    with tempfile.TemporaryDirectory() as name:
        for called, (door, encoding) in DOORS.items():
            for spans, requests in SIZES.items():
                for clients in CLIENTS:
                    sizes = {"clients": clients, "requests": max(int(requests * share), 1), "spans": spans}
                    load = Load(**sizes, door=door, encoding=encoding)
                    title = f"{called}, {spans} spans a request, {clients} client{'s' * (clients > 1)} (per span)"
                    tables[title] = table(Path(name), load, rounds)
                    checked += rounds * (load.requests * spans)
    facts = {"spans acknowledged, and each found once in the store": f"{checked:,} of {checked:,}"}
    return report("receiver", tables, facts)


if __name__ == "__main__":
    sys.exit(not main(*(int(it) if it.isdigit() else float(it) for it in sys.argv[1:])))
