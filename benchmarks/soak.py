"""`agenttrace collect` at half of its capacity for minutes: memory stays flat, the lag bounded, and nothing is lost.

Run: `python benchmarks/soak.py [MINUTES]` (10 by default). The capacity is what it takes from clients that wait for
nothing but answers, until all of that stands in the store with its steps: more is acknowledged for a while, and then
waits. Ends with 1 where the memory of the last minute is over 1.2 times that of the second one, where something waited
for longer than a minute to reach the store, or where a span is missing or there twice.
"""

import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from clients import Load, Sent, quantile, send
from processes import Server
from ratios import report
from receiver import check, collector, wait_until_stored

from agenttrace.spool import Spool, spool_folder

MINUTES = 10.0
LOAD = Load(clients=16, spans=100)
CAPACITY_REQUESTS = 600
MAX_GROWTH = 1.2
MAX_LAG_S = 60.0
_EVERY_S = 0.5


@dataclass(frozen=True)
class Sample:
    """The state of the collector at one moment."""

    at_s: float
    cpu_s: float
    memory_mb: float
    waiting_rows: int
    lag_s: float


def capacity(folder: Path, requests: int) -> tuple[float, float]:
    """Returns how many requests per second are acknowledged, and how many come into the store."""
    load = replace(LOAD, requests=requests)
    with collector(folder) as server:
        started = time.monotonic()
        sent = send(server.address, load)
        wait_until_stored(folder)
        server.stop()
    taken_s = time.monotonic() - started
    check(folder, [(load, sent)])
    return len(sent.acknowledged) / sent.wall_s, len(sent.acknowledged) / taken_s


def soak(folder: Path, load: Load) -> tuple[Sent, list[Sample]]:
    """Sends the load and watches; ends when all is in the store, and has been found there once."""
    spool = Spool(spool_folder(folder / "store.duckdb"))
    with collector(folder) as server, ThreadPoolExecutor(1) as pool:
        started = time.monotonic()
        sending = pool.submit(send, server.address, load)
        samples: list[Sample] = []
        while not sending.done():
            samples.append(sample(server, spool, time.monotonic() - started))
            time.sleep(_EVERY_S)
        sent = sending.result()
        wait_until_stored(folder)
        server.stop()
    check(folder, [(load, sent)])
    return sent, samples


def sample(server: Server, spool: Spool, at_s: float) -> Sample:
    """Looks at the collector from outside."""
    pending = spool.pending()
    return Sample(at_s, server.cpu_s(), server.memory_mb(), pending.rows, pending.oldest_s)


def by_minute(sent: Sent, samples: list[Sample]) -> list[dict[str, float]]:
    """A row for each minute; what waits and the memory are the highest of the minute."""
    rows: list[dict[str, float]] = []
    for minute in range(int(samples[-1].at_s // 60) + 1):
        of = [it for it in samples if it.at_s // 60 == minute]
        latencies = [it for it, at_s in zip(sent.latencies_s, sent.answered_s, strict=True) if at_s // 60 == minute]
        rows.append(
            {
                "minute": minute + 1,
                "spans acknowledged": len(latencies) * LOAD.spans,
                "p50 ms": 1e3 * quantile(latencies, 0.5),
                "p99 ms": 1e3 * quantile(latencies, 0.99),
                "processor %": 100 * (of[-1].cpu_s - of[0].cpu_s) / max(of[-1].at_s - of[0].at_s, _EVERY_S),
                "memory MB": max(it.memory_mb for it in of),
                "rows waiting": max(it.waiting_rows for it in of),
                "lag s": max(it.lag_s for it in of),
            }
        )
    # The last few samples fall into a minute that has only begun.
    return rows if len(rows) == 1 or len(of) > 10 / _EVERY_S else rows[:-1]


def main(minutes: float = MINUTES, capacity_requests: int = CAPACITY_REQUESTS) -> bool:
    """Prints a table by minute; True where memory and lag stay within their bounds."""
    with tempfile.TemporaryDirectory() as name:
        first, second = Path(name, "capacity"), Path(name, "soak")
        first.mkdir()
        second.mkdir()
        acknowledged, most = capacity(first, capacity_requests)
        sent, samples = soak(second, replace(LOAD, rate=most / 2, seconds=60 * minutes))
    rows = by_minute(sent, samples)
    # The first minute grows to its working size.
    growth = rows[-1]["memory MB"] / rows[min(1, len(rows) - 1)]["memory MB"]
    lag_s = max(row["lag s"] for row in rows)
    spans = len(sent.acknowledged) * LOAD.spans
    met = growth <= MAX_GROWTH and lag_s <= MAX_LAG_S
    report(
        "soak",
        {f"{minutes:g} minutes at half of {most * LOAD.spans:,.0f} spans/s, {LOAD.clients} clients": rows},
        {
            "acknowledged per second at full speed": f"{acknowledged * LOAD.spans:,.0f} spans",
            "spans acknowledged, and each found once in the store": f"{spans:,} of {spans:,}",
            "answers other than 200, sent again": sent.refused or 0,
            "memory of the last minute to that of the second": f"{growth:.2f} (at most {MAX_GROWTH})",
            "longest wait for the store": f"{lag_s:.1f} s (at most {MAX_LAG_S:.0f} s)",
        },
    )
    return met


if __name__ == "__main__":
    sys.exit(not main(*map(float, sys.argv[1:])))
