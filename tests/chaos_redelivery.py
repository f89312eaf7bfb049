"""Redelivery: every request twice and in random order, over HTTP, gRPC and the exporter's own spool, across restarts
and compactions, with started and ended records in both orders. The store must be the one that a single delivery gives.
"""

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import httpx
from chaos_clients import EXPORT, PROTOBUF, free_ports, request
from chaos_ledger import WAIT_S, Child, Ledger, Tally, account, query, settle, until
from conftest import _span

from agenttrace.spans import SpanRow
from agenttrace.spool import Spool, spool_folder

_SPANS_OF_A_REQUEST = 5
# Traces that only ever begin: nothing may make an end of them.
_UNFINISHED = 0.1

Delivery = Callable[[], None]


def run(folder: Path, seed: int, *, requests: int = 300, restarts: int = 6) -> Tally:
    tally, rng = Tally(), random.Random(seed)
    for part in (_through_the_spool, _through_a_receiver):
        place = folder / part.__name__.strip("_")
        place.mkdir()
        part(tally, rng, place, requests, restarts)
    return tally


def _through_the_spool(tally: Tally, rng: random.Random, folder: Path, requests: int, restarts: int) -> None:
    """Segments of an exporter that sends again what it does not know to have arrived."""
    db, once = folder / "agenttrace.duckdb", folder / "once.duckdb"
    ledger = Ledger(folder / "a.ledger")
    batches: list[list[SpanRow]] = []
    for number in range(requests):
        numbers = range(number * _SPANS_OF_A_REQUEST, (number + 1) * _SPANS_OF_A_REQUEST)
        batches.append([_span(each, end_time_unix_nano=None) for each in numbers])
        if rng.random() > _UNFINISHED:
            batches.append([_span(each, name="ended") for each in numbers])
    for batch in batches:
        Spool(spool_folder(once)).write("spans", batch)
    spool = Spool(spool_folder(db))
    pause = max(1, 2 * len(batches) // restarts)
    for position, batch in enumerate(rng.sample(batches * 2, 2 * len(batches))):
        spool.write("spans", batch)
        ledger.add(row.span_id for row in batch)
        if position % pause == 0:
            # A compactor that is killed leaves segments that are in the store already.
            Child("compactor", db=str(db), step=rng.randint(1, 60)).ending(tally, expected=(0, -9))
            tally.events["compactions"] += 1
    tally.events["segments twice"] += len(batches)
    account(tally, db, folder)
    _compare(tally, db, once, "* EXCLUDE (received_at)")


def _through_a_receiver(tally: Tally, rng: random.Random, folder: Path, requests: int, restarts: int) -> None:
    """Clients that lost the answer, and send the same bytes again, by the same way or the other."""
    db, once = folder / "agenttrace.duckdb", folder / "once.duckdb"
    ledger = Ledger(folder / "a.ledger")
    deliveries: list[tuple[list[int], bytes]] = []
    for number in range(requests):
        numbers = list(range(1 + number * _SPANS_OF_A_REQUEST, 1 + (number + 1) * _SPANS_OF_A_REQUEST))
        deliveries.append((numbers, request(numbers, ended=False)))
        if rng.random() > _UNFINISHED:
            deliveries.append((numbers, request(numbers)))
    shuffled = rng.sample(deliveries * 2, 2 * len(deliveries))
    pause = max(1, len(shuffled) // restarts)
    for start in range(0, len(shuffled), pause):
        with _receiving(tally, db, rng.choice((9, 15))) as send:
            for numbers, body in shuffled[start : start + pause]:
                send(body, over=rng.choice(("http", "grpc")))
                ledger.add(f"{number:016x}" for number in numbers)
        tally.events["restarts"] += 1
    with _receiving(tally, once, 15) as send:
        for _, body in deliveries:
            send(body, over="http")
    tally.events["requests twice"] += len(deliveries)
    settle(once)
    account(tally, db, folder)
    _compare(tally, db, once, "* EXCLUDE (received_at)")


def _compare(tally: Tally, db: Path, once: Path, columns: str) -> None:
    settle(once)
    sql = f"SELECT {columns} FROM spans ORDER BY trace_id, span_id"
    tally.check(query(db, sql) == query(once, sql), f"{db}: spans are not those that come from one delivery")


class _receiving:
    """A receiver process, and a way to send to it; at the end it gets a signal."""

    def __init__(self, tally: Tally, db: Path, number: int) -> None:
        self._tally, self._number = tally, number
        self._http_port, self._grpc_port = free_ports(2)
        self._child = Child("receiver", db=str(db), http_port=self._http_port, grpc_port=self._grpc_port)
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{self._http_port}", timeout=WAIT_S)

    def __enter__(self) -> Callable[..., None]:
        self._tally.check(until(self._is_up), "the receiver does not come up")
        self._channel = grpc.insecure_channel(f"127.0.0.1:{self._grpc_port}")
        return self._send

    def __exit__(self, *_: object) -> None:
        self._child.send(self._number)
        self._child.ending(self._tally, expected=(0,) if self._number == 15 else (-self._number,))
        self._channel.close()
        self._http.close()

    def _is_up(self) -> bool:
        with suppress(httpx.TransportError):
            return self._http.get("/healthz").status_code == 200
        return False

    def _send(self, body: bytes, over: str) -> Any:
        if over == "grpc":
            self._channel.unary_unary(EXPORT)(body, timeout=WAIT_S)
            return
        answer = self._http.post("/v1/traces", content=body, headers=PROTOBUF)
        self._tally.check(answer.status_code == 200, f"HTTP {answer.status_code} for a good request")
