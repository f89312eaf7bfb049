"""Clients of a receiver that mean it ill."""

import gzip
import http.client
import itertools
import random
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial

import grpc
from chaos_clients import EXPORT, Senders, request
from chaos_ledger import Tally

_ANSWER_S = 60.0
_GOOD = request([1])
_PROTOBUF, _JSON = "application/x-protobuf", "application/json"

# What each kind of guest sends in one request, and the answers that are right.
_BODIES: dict[str, tuple[bytes, dict[str, str], set[int]]] = {
    "gzip bomb": (
        gzip.compress(bytes(200 << 20)),
        {"Content-Type": _PROTOBUF, "Content-Encoding": "gzip"},
        {413, 503},
    ),
    "body over the limit": (bytes(17 << 20), {"Content-Type": _PROTOBUF}, {413, 503}),
    "deep nesting": (b'{"resourceSpans":' + b"[" * 100_000, {"Content-Type": _JSON}, {400}),
    "deep protobuf": (_GOOD + b"\x0a\x80\x80\x80\x80\x08" * 50_000, {"Content-Type": _PROTOBUF}, {400}),
    "wrong content type": (_GOOD, {"Content-Type": "text/html"}, {415}),
    "invalid UTF-8": (b'{"resourceSpans": "\xff\xfe"}', {"Content-Type": _JSON}, {400}),
    "malformed protobuf": (bytes(range(256)) * 40, {"Content-Type": _PROTOBUF}, {400}),
    "torn gzip": (gzip.compress(_GOOD)[:-9], {"Content-Type": _PROTOBUF, "Content-Encoding": "gzip"}, {400}),
}
KINDS = (*_BODIES, "slow header", "slow body", "half open", "no end", "gRPC garbage")
_SLOW_S = 0.5


class Guests(Senders):
    """Threads that each misbehave in their own way until they are told to stop."""

    def __init__(self, tally: Tally, http_port: int, grpc_port: int, seed: float) -> None:
        self.done: Counter[str] = Counter()
        self._address = ("127.0.0.1", http_port)
        self._grpc = ("127.0.0.1", grpc_port)
        self._rng = random.Random(seed)
        works = [lambda kind=kind: self._post(kind) for kind in _BODIES]
        works += [lambda part=part: self._slowly(part) for part in ("slow header", "slow body")]
        works += [self._half_open, self._no_end, self._garbage]
        super().__init__(tally, [partial(self._again, work) for work in works])

    def _again(self, work: "itertools.repeat[None]") -> None:
        while True:
            work()  # type: ignore[operator]
            if self._stopping.wait(0.05):
                return

    def _post(self, kind: str) -> None:
        body, headers, expected = _BODIES[kind]
        connection = http.client.HTTPConnection(*self._address, timeout=_ANSWER_S)
        try:
            connection.request("POST", "/v1/traces", body, headers)
            status = connection.getresponse().status
            self._tally.check(status in expected, f"{kind}: HTTP {status}")
        except TimeoutError:
            self._tally.faults.append(f"{kind}: no answer")
        except (OSError, http.client.HTTPException):
            # It may hang up on a body that is too large to be read to its end.
            self._tally.check(kind in ("gzip bomb", "body over the limit"), f"{kind}: no answer")
        finally:
            connection.close()
        self.done[kind] += 1

    def _slowly(self, part: str) -> None:
        """Sends a byte at a time: a header, or the body after it."""
        head = b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        head += b"Content-Length: 1000\r\n\r\n"
        with suppress(OSError), socket.create_connection(self._address, timeout=_ANSWER_S) as client:
            rest = head if part == "slow header" else bytes(1_000)
            if part == "slow body":
                client.sendall(head)
            for byte in rest:
                client.sendall(bytes([byte]))
                self.done[part] += 1
                if self._stopping.wait(_SLOW_S):
                    return

    def _half_open(self) -> None:
        """Connects, says something, and is never heard of again; another one is reset."""
        with suppress(OSError), socket.create_connection(self._address, timeout=_ANSWER_S) as client:
            client.sendall(b"POST /v1/traces HTTP/1.1\r\nContent-Le")
            if self._rng.random() < 0.5:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes([1, 0, 0, 0, 0, 0, 0, 0]))
            else:
                self._stopping.wait(1.0)
        self.done["half open"] += 1

    def _no_end(self) -> None:
        """A body of chunks that never ends."""
        with suppress(OSError), socket.create_connection(self._address, timeout=_ANSWER_S) as client:
            client.sendall(b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n")
            client.sendall(b"Content-Type: application/json\r\n\r\n")
            while not self._stopping.is_set():
                client.sendall(b"1000\r\n" + bytes(0x1000) + b"\r\n")
                self.done["no end"] += 1
                time.sleep(0.01)

    def _garbage(self) -> None:
        """Bytes that are no HTTP/2, and calls whose message is no message."""
        with suppress(OSError), socket.create_connection(self._grpc, timeout=_ANSWER_S) as client:
            client.sendall(self._rng.randbytes(1_000))
        with grpc.insecure_channel(f"{self._grpc[0]}:{self._grpc[1]}") as channel:
            try:
                channel.unary_unary(EXPORT)(bytes(range(256)), timeout=_ANSWER_S)
                self._tally.faults.append("gRPC garbage: OK")
            except grpc.RpcError as error:
                expected = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNAVAILABLE)
                self._tally.check(error.code() in expected, f"gRPC garbage: {error.code()}")
        self.done["gRPC garbage"] += 1


@contextmanager
def idle_connections(ports: list[int], each: int) -> Iterator[None]:
    """Connections that say nothing."""
    with ExitStack() as stack:
        for port in ports:
            for _ in range(each):
                with suppress(OSError):
                    stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=2.0))
        yield
