"""Clients of an OTLP receiver, a program of its own: many connections, each sending requests one after the other.

Run: `python benchmarks/clients.py ADDRESS '{"clients": 8, "requests": 400}'`; see `Load`. It prints what came of it as
JSON.
"""

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

import grpc
from otlp_requests import RUN, Bodies, Encoding

_TIMEOUT_S = 60.0
_EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"

Door = Literal["http", "grpc"]


@dataclass(frozen=True)
class Load:
    """What to send.

    Attributes:
        clients: Connections.
        requests: Requests in all; 0: until `seconds` are over.
        seconds: How long to send at most; 0: until `requests` are sent.
        rate: Requests per second, of all clients; 0: as fast as they are answered.
        spans: Spans of a request.
        door: How to send; gRPC takes protobuf alone.
        encoding: Of the bodies.
        first: Number of the first request, with which its ids begin.
        headers: Further headers, over HTTP.
    """

    clients: int = 1
    requests: int = 0
    seconds: float = 0.0
    rate: float = 0.0
    spans: int = RUN
    door: Door = "http"
    encoding: Encoding = "protobuf"
    first: int = 1
    headers: dict[str, str] = field(default_factory=dict[str, str])


@dataclass
class Sent:
    """What came of it.

    Attributes:
        acknowledged: Numbers of the requests that were answered with 200, or OK over gRPC.
        refused: Other answers, by status; all but 4xx were sent again, as exporters do, and over gRPC UNAVAILABLE.
        latencies_s: Seconds from the first byte sent to the whole answer, of acknowledged requests in their order.
        answered_s: When each of these was answered, in seconds from the start.
        wall_s: From the first request to the last answer.
        body_bytes: Size of a body.
    """

    acknowledged: list[int] = field(default_factory=list[int])
    refused: dict[str, int] = field(default_factory=dict[str, int])
    latencies_s: list[float] = field(default_factory=list[float])
    answered_s: list[float] = field(default_factory=list[float])
    wall_s: float = 0.0
    body_bytes: int = 0

    def quantile_ms(self, share: float) -> float:
        """Returns a quantile of the latencies."""
        return 1e3 * quantile(self.latencies_s, share)


def quantile(values: Sequence[float], share: float) -> float:
    """Returns the nearest value of a quantile; NaN where there are none."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else float("nan")


def send(address: str, load: Load) -> Sent:
    """Runs the clients in a process of their own."""
    done = subprocess.run(
        [sys.executable, __file__, address, json.dumps(asdict(load))], check=True, stdout=subprocess.PIPE, text=True
    )
    return Sent(**json.loads(done.stdout))


class _Client(threading.Thread):
    """One connection."""

    def __init__(self, address: str, load: Load, numbers: "_Numbers") -> None:
        super().__init__(daemon=True)
        self.sent = Sent()
        self._numbers = numbers
        self._bodies = Bodies(load.spans, load.encoding)
        self._url = urlsplit(address)
        self._open(load)

    def _open(self, load: Load) -> None:
        kind = {"protobuf": "application/x-protobuf", "json": "application/json"}[load.encoding]
        headers = {"Host": self._url.netloc, "Content-Type": kind, **load.headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._head = f"POST {self._url.path or '/v1/traces'} HTTP/1.1\r\n{lines}Content-Length: "
        self._socket = self._connected()

    def _connected(self) -> socket.socket:
        connected = socket.create_connection((self._url.hostname, self._url.port), _TIMEOUT_S)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connected

    def run(self) -> None:
        """Sends until no number is left."""
        while (number := self._numbers.next()) is not None:
            body = self._bodies.body(number)
            self.sent.body_bytes = len(body)
            while True:
                started_s = self._numbers.now_s()
                status = self._exchange(body)
                if status == "200":
                    answered_s = self._numbers.now_s()
                    self.sent.latencies_s.append(answered_s - started_s)
                    self.sent.answered_s.append(answered_s)
                    self.sent.acknowledged.append(number)
                    break
                self.sent.refused[status] = self.sent.refused.get(status, 0) + 1
                if status[0] == "4":
                    break
                time.sleep(1.0)

    def _exchange(self, body: bytes) -> str:
        """Sends a request and reads its answer whole; returns the status."""
        try:
            self._socket.sendall(f"{self._head}{len(body)}\r\n\r\n".encode() + body)
            content = b""
            while b"\r\n\r\n" not in content:
                content += self._received()
            head, _, rest = content.partition(b"\r\n\r\n")
            missing = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 0) - len(rest)
            while missing > 0:
                missing -= len(self._received())
            if b"connection: close" in head.lower():
                self._socket = self._connected()
            return head.split(b" ", 2)[1].decode()
        except OSError as err:
            self._socket.close()
            self._socket = self._connected()
            return f"5: {type(err).__name__}"

    def _received(self) -> bytes:
        if content := self._socket.recv(1 << 16):
            return content
        raise ConnectionResetError


class _GrpcClient(_Client):
    """One connection over gRPC; its codes come as statuses of HTTP."""

    def _open(self, load: Load) -> None:
        # Else all channels of a process to one address share a connection.
        channel = grpc.insecure_channel(self._url.netloc, [("grpc.use_local_subchannel_pool", 1)])
        self._export: Any = channel.unary_unary(_EXPORT)

    def _exchange(self, body: bytes) -> str:
        try:
            self._export(body, timeout=_TIMEOUT_S)
        except grpc.RpcError as err:
            code: Any = err.code()  # pyright: ignore[reportAttributeAccessIssue]
            return f"{5 if code is grpc.StatusCode.UNAVAILABLE else 4}: {code.name}"
        return "200"


class _Numbers:
    """Hands out the numbers of requests, at a rate where there is one."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._started = 0.0
        self._given = 0

    def start(self) -> None:
        """Begins to count the time."""
        self._started = time.perf_counter()

    def now_s(self) -> float:
        """Returns the seconds since the start."""
        return time.perf_counter() - self._started

    def next(self) -> int | None:
        """Returns the next number when it is due; None at the end."""
        with self._lock:
            index = self._given
            self._given += 1
        due_s = index / self._load.rate if self._load.rate else 0.0
        now_s = self.now_s()
        if self._load.seconds and max(due_s, now_s) > self._load.seconds:
            return None
        if self._load.requests and index >= self._load.requests:
            return None
        if due_s > now_s:
            time.sleep(due_s - now_s)
        return self._load.first + index


def main(address: str, text: str) -> None:
    """Sends, and prints what came of it."""
    load = Load(**json.loads(text))
    numbers = _Numbers(load)
    kind = _GrpcClient if load.door == "grpc" else _Client
    clients = [kind(address, load, numbers) for _ in range(load.clients)]
    numbers.start()
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    sent = Sent(wall_s=numbers.now_s())
    for client in clients:
        sent.acknowledged += client.sent.acknowledged
        sent.latencies_s += client.sent.latencies_s
        sent.answered_s += client.sent.answered_s
        sent.body_bytes = max(sent.body_bytes, client.sent.body_bytes)
        for status, count in client.sent.refused.items():
            sent.refused[status] = sent.refused.get(status, 0) + count
    print(json.dumps(asdict(sent)))


if __name__ == "__main__":
    main(*sys.argv[1:])
