"""Clients of a receiver that is killed, restarted, flooded or short of room: each 200 or OK goes into a ledger."""

import http.client
import itertools
import random
import socket
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Self

import grpc
from chaos_ledger import Child, Ledger, Tally, until
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_ANSWER_S = 45.0
_HANGS_S = 90.0
RETRYABLE = frozenset({429, 502, 503, 504})
PROTOBUF = {"Content-Type": "application/x-protobuf"}


def free_ports(number: int) -> list[int]:
    """Finds ports that are free now; receivers take them again after each restart."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def request(span_ids: "list[int]", *, ended: bool = True, name: str = "execute_tool") -> bytes:
    """An OTLP request with these spans, each a trace of its own."""
    message = ExportTraceServiceRequest()
    spans = message.resource_spans.add().scope_spans.add().spans
    for number in span_ids:
        spans.add(
            trace_id=number.to_bytes(16),
            span_id=number.to_bytes(8),
            name=name,
            start_time_unix_nano=1_700_000_000_000_000_000 + number % 1_000_000_000,
            end_time_unix_nano=1_700_000_001_000_000_000 + number % 1_000_000_000 if ended else 0,
        )
    return message.SerializeToString()


class Senders:
    """Threads that send until the block ends; one that hangs then is a fault."""

    def __init__(self, tally: Tally, works: Iterable[Callable[[], object]]) -> None:
        self._tally = tally
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in works]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(_HANGS_S)
        self._tally.check(not any(thread.is_alive() for thread in self._threads), f"{type(self).__name__}: one hangs")


class Clients(Senders):
    """Threads that send over HTTP and gRPC until they are told to stop, and send again what was not acknowledged."""

    def __init__(
        self, tally: Tally, folder: Path, http_port: int, grpc_port: int, seed: float, *, each: int = 2, size: int = 3
    ) -> None:
        self.count = 0
        self.longest_s = 0.0
        self.refused: set[object] = set()
        self._folder = folder
        self._ports = http_port, grpc_port
        self._rng = random.Random(seed)
        self._ids = itertools.count(self._rng.getrandbits(40) << 20 | 1)
        self._size = size
        sends = [self._over_http] * each + [self._over_grpc] * each
        super().__init__(tally, [partial(send, number) for number, send in enumerate(sends)])

    def wait_for_more(self, child: Child, number: int) -> bool:
        """Waits until this many more requests are acknowledged, or the child has ended."""
        wanted = self.count + number
        return until(lambda: self.count >= wanted or not child.is_running())

    def _spans(self) -> list[int]:
        return list(itertools.islice(self._ids, self._size))

    def _note(self, ledger: Ledger, spans: list[int], started: float) -> None:
        ledger.add(f"{number:016x}" for number in spans)
        self.longest_s = max(self.longest_s, time.monotonic() - started)
        self.count += 1

    def _over_http(self, number: int) -> None:
        ledger = Ledger(self._folder / f"http-{number}.ledger")
        connection = http.client.HTTPConnection("127.0.0.1", self._ports[0], timeout=_ANSWER_S)
        while not self._stopping.is_set():
            spans = self._spans()
            body, started = request(spans), time.monotonic()
            while not self._stopping.is_set():
                try:
                    connection.request("POST", "/v1/traces", body, PROTOBUF)
                    answer = connection.getresponse()
                    answer.read()
                except (OSError, http.client.HTTPException):
                    connection.close()
                    self._stopping.wait(0.02)
                    continue
                if answer.status == 200:
                    self._note(ledger, spans, started)
                    break
                self.refused.add(answer.status)
                self._tally.check(answer.status in RETRYABLE, f"HTTP {answer.status} for a good request")
                self._stopping.wait(0.05)
        connection.close()

    def _over_grpc(self, number: int) -> None:
        ledger = Ledger(self._folder / f"grpc-{number}.ledger")
        while not self._stopping.is_set():
            with grpc.insecure_channel(f"127.0.0.1:{self._ports[1]}") as channel:
                self._call(channel.unary_unary(EXPORT), ledger)

    def _call(self, export: "grpc.UnaryUnaryMultiCallable", ledger: Ledger) -> None:
        """Sends until the connection breaks: a new channel connects sooner than one that backs off."""
        while not self._stopping.is_set():
            spans, started = self._spans(), time.monotonic()
            try:
                export(request(spans), timeout=_ANSWER_S)
            except grpc.RpcError as error:
                code = error.code()
                if code not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
                    self._tally.faults.append(f"gRPC {code} for a good request")
                self.refused.add(code)
                self._stopping.wait(0.05)
                return
            self._note(ledger, spans, started)
