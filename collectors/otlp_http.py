"""OTLP over HTTP: POST /v1/traces and /v1/logs, protobuf or JSON, plain, gzip or deflate; GET /metrics and /healthz.

Statuses say whether a client should send again. 503 with Retry-After: yes, it can be taken later. 4xx: no, it would be
refused again. A refused body is read and dropped within bounds before the answer: a client that still sends would see
a broken connection, take that for a network fault, and try again.
"""

import asyncio
import re
import zlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple

from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message
from google.rpc.code_pb2 import (
    INTERNAL,
    INVALID_ARGUMENT,
    PERMISSION_DENIED,
    UNAUTHENTICATED,
    UNAVAILABLE,
    UNIMPLEMENTED,
)
from google.rpc.status_pb2 import Status

from agenttrace.collectors.access import is_bearer, is_own_name
from agenttrace.collectors.decode import Decoded
from agenttrace.collectors.intake import (
    COMMIT_TIMEOUT_S,
    RETRY_AFTER_S,
    Encoding,
    Held,
    Intake,
    Response,
    Signal,
    response_for,
)
from agenttrace.collectors.receiver_metrics import PROMETHEUS, prometheus_text
from agenttrace.collectors.wire import TooManyPartsError
from agenttrace.errors import DecodeError, SpoolError

SIGNALS: dict[str, Signal] = {"/v1/traces": "traces", "/v1/logs": "logs"}

_ENCODINGS: dict[str, Encoding] = {"application/x-protobuf": "protobuf", "application/json": "json"}
_CONTENT_TYPES = {encoding: content_type for content_type, encoding in _ENCODINGS.items()}
_COMPRESSIONS = ("gzip", "x-gzip", "deflate")
_CODES = {
    400: INVALID_ARGUMENT,
    401: UNAUTHENTICATED,
    403: PERMISSION_DENIED,
    413: INVALID_ARGUMENT,
    503: UNAVAILABLE,
}
_IDLE_TIMEOUT_S = 10.0
_BODY_TIMEOUT_S = 60.0
_DRAIN_TIMEOUT_S = 5.0
_DRAIN_BYTES = 64 << 20
_INFLATE_STEP_BYTES = 1 << 20
_INFLATE_PIECE_BYTES = 64 << 10
_MAX_MEMBERS = 1_000
_NOT_ZERO = re.compile(b"[^\\0]")
_AUTHORITY = re.compile("^https?://[^/]*", re.IGNORECASE)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class _RefusedError(Exception):
    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})


class _ClientGoneError(Exception):
    pass


class _Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class OTLPApp:
    """The ASGI application."""

    def __init__(
        self, intake: Intake, *, token: str | None, own_host: str | None, max_body: int, max_inflated: int
    ) -> None:
        """Prepares it; `own_host` is what is listened on where requests must name this machine; None: they need not."""
        self._intake = intake
        self._token = token
        self._own_host = own_host
        self._max_body = max_body
        self._max_inflated = max_inflated
        # Decoding holds Python's lock anyway; two threads let a small request pass a large one.
        self._decoders = ThreadPoolExecutor(2, thread_name_prefix="agenttrace-decode")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        headers: dict[str, str] = {}
        for name, value in scope["headers"]:
            # By the standard a header that comes twice is a list; none of those that are looked at here may be one.
            before = headers.get(key := name.decode("latin-1"))
            headers[key] = value.decode("latin-1") if before is None else f"{before}, {value.decode('latin-1')}"
        body = _Body(receive)
        encoding = _ENCODINGS.get(_media_type(headers), "json")
        try:
            with self._intake.holding() as held:
                answer = await self._answer(scope, headers, body, held)
        except _RefusedError as refused:
            self._intake.count_refused(str(refused.status))
            # A client that was too slow is not waited for again.
            if refused.status == 408 or not await body.drain():
                refused.headers["connection"] = "close"
            status = Status(code=_CODES.get(refused.status, UNIMPLEMENTED), message=str(refused))
            answer = _encoded(refused.status, status, encoding, refused.headers)
        except _ClientGoneError:
            return
        except Exception as err:
            # A fault of ours, which the same body would meet again.
            self._intake.count_fault(err)
            status = Status(code=INTERNAL, message=f"internal error: {type(err).__name__}")
            answer = _encoded(500, status, encoding, {"connection": "close"})
        head = [(name.encode(), value.encode("latin-1")) for name, value in answer.headers.items()]
        head.append((b"content-length", str(len(answer.body)).encode()))
        await send({"type": "http.response.start", "status": answer.status, "headers": head})
        await send({"type": "http.response.body", "body": answer.body})

    def close(self) -> None:
        """Ends the decoding threads."""
        self._decoders.shutdown()

    async def _answer(self, scope: Scope, headers: Mapping[str, str], body: "_Body", held: Held) -> _Answer:
        # A client may name the whole address (RFC 9112, 3.2.2).
        path = "/" + _AUTHORITY.sub("", scope["path"]).strip("/")
        if path == "/healthz" and scope["method"] in ("GET", "HEAD"):
            return _Answer(200, {"content-type": "application/json"}, b'{"status":"ok"}')
        if path == "/metrics" and scope["method"] in ("GET", "HEAD"):
            self._check_token(headers)
            text = await asyncio.to_thread(prometheus_text, self._intake)
            return _Answer(200, {"content-type": PROMETHEUS}, text.encode())
        signal = _signal(path)
        if scope["method"] != "POST":
            raise _RefusedError(405, f"{scope['method']} {path}: expected POST", {"allow": "POST"})
        self._check_token(headers)
        encoding = _encoding(headers)
        compression = _compression(headers)
        content = await self._read(headers, body, held)
        decoded, written = await self._take(signal, encoding, compression, content, held)
        await _commit(written)
        self._intake.count(decoded)
        return _encoded(200, response_for(signal, decoded), encoding, {})

    def _check_token(self, headers: Mapping[str, str]) -> None:
        if self._token is None:
            # Any page that a user opens can reach this machine from inside, if it has its own name resolve to it.
            if "origin" in headers:
                raise _RefusedError(403, "web pages may not send here; with a token those that know it may")
            if self._own_host is not None and not is_own_name(headers.get("host", ""), self._own_host):
                raise _RefusedError(403, "the Host is not localhost; other names are taken with a token")
            return
        if not is_bearer(headers.get("authorization", ""), self._token):
            raise _RefusedError(401, "expected the header Authorization: Bearer TOKEN", {"www-authenticate": "Bearer"})

    async def _read(self, headers: Mapping[str, str], body: "_Body", held: Held) -> bytes:
        too_large = _RefusedError(413, f"the body is larger than {self._max_body} bytes; send smaller batches")
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > self._max_body:
            raise too_large
        content = bytearray()
        try:
            async with asyncio.timeout(_BODY_TIMEOUT_S):
                async for chunk in body:
                    if len(content) + len(chunk) > self._max_body:
                        raise too_large
                    if not held.grow(len(chunk)):
                        raise _busy()
                    content += chunk
        except TimeoutError as err:
            raise _RefusedError(408, "the body did not arrive in time") from err
        return bytes(content)

    async def _take(
        self, signal: Signal, encoding: Encoding, compression: str, content: bytes, held: Held
    ) -> "tuple[Decoded, Future[None]]":
        def work() -> "tuple[Decoded, Future[None]]":
            inflated = self._inflate(compression, content, held) if compression else content
            return self._intake.take(signal, encoding, inflated)

        try:
            return await asyncio.get_running_loop().run_in_executor(self._decoders, work)
        except TooManyPartsError as err:
            raise _RefusedError(413, str(err)) from err
        except DecodeError as err:
            raise _RefusedError(400, str(err)) from err
        except MemoryError as err:
            # There may be room when others have been served.
            raise _busy("there is no memory for the request") from err

    def _inflate(self, compression: str, content: bytes, held: Held) -> bytes:
        """Unpacks while watching the size: a few kilobytes can hold gigabytes."""
        inflated = bytearray()
        unread = memoryview(content)
        try:
            # gzip may have several members, one after the other.
            for _ in range(_MAX_MEMBERS):
                unpacker = zlib.decompressobj(_window_bits(compression, unread))
                while not unpacker.eof:
                    # What a step leaves is copied, so it must not be given all of a body.
                    piece = unread[:_INFLATE_PIECE_BYTES]
                    step = unpacker.decompress(piece, _INFLATE_STEP_BYTES)
                    unread = unread[len(piece) - len(unpacker.unused_data or unpacker.unconsumed_tail) :]
                    if not step and not piece and not unpacker.eof:
                        raise DecodeError(f"torn {compression} body")
                    if len(inflated) + len(step) > self._max_inflated:
                        raise _RefusedError(413, f"the body unpacks to more than {self._max_inflated} bytes")
                    if not held.grow(len(step)):
                        raise _busy()
                    inflated += step
                if compression != "deflate":
                    # Files are filled up with zeros to the size of a block, and gunzip does not mind.
                    content_begins = _NOT_ZERO.search(unread)
                    unread = unread[content_begins.start() if content_begins else len(unread) :]
                if not unread:
                    return bytes(inflated)
            raise _RefusedError(413, f"the body has more than {_MAX_MEMBERS} gzip members")
        except zlib.error as err:
            raise DecodeError(f"not a {compression} body: {err}") from err


class _Body:
    """The body of a request as it arrives."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._has_more = True

    def __aiter__(self) -> "_Body":
        return self

    async def __anext__(self) -> bytes:
        if not self._has_more:
            raise StopAsyncIteration
        async with asyncio.timeout(_IDLE_TIMEOUT_S):
            message = await self._receive()
        if message["type"] == "http.disconnect":
            raise _ClientGoneError
        self._has_more = message.get("more_body", False)
        return message.get("body", b"")

    async def drain(self) -> bool:
        """Reads and drops the rest; False where there is too much of it."""
        size = 0
        with suppress(TimeoutError, _ClientGoneError):
            async with asyncio.timeout(_DRAIN_TIMEOUT_S):
                async for chunk in self:
                    size += len(chunk)
                    if size > _DRAIN_BYTES:
                        return False
            return True
        return False


async def _commit(written: "Future[None]") -> None:
    try:
        async with asyncio.timeout(COMMIT_TIMEOUT_S):
            await asyncio.wrap_future(written)
    except (SpoolError, OSError) as err:
        # Full, or slow (TimeoutError is an OSError too): room comes back.
        raise _busy(f"the spool cannot be written: {type(err).__name__}") from err


def _busy(message: str = "too many requests are waiting") -> _RefusedError:
    return _RefusedError(503, message, {"retry-after": str(RETRY_AFTER_S)})


def _signal(path: str) -> Signal:
    if path in SIGNALS:
        return SIGNALS[path]
    hint = "; metrics are not taken, set OTEL_METRICS_EXPORTER=none" if path == "/v1/metrics" else ""
    raise _RefusedError(404, f"nothing here; expected {' or '.join(SIGNALS)}{hint}")


def _media_type(headers: Mapping[str, str]) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def _encoding(headers: Mapping[str, str]) -> Encoding:
    encoding = _ENCODINGS.get(_media_type(headers))
    if encoding is None:
        raise _RefusedError(415, f"expected the content type {' or '.join(_ENCODINGS)}")
    return encoding


def _compression(headers: Mapping[str, str]) -> str:
    compression = headers.get("content-encoding", "").strip().lower()
    if compression in ("", "identity"):
        return ""
    if compression not in _COMPRESSIONS:
        raise _RefusedError(415, "expected the content encoding gzip or deflate", {"accept-encoding": "gzip, deflate"})
    return compression


def _window_bits(compression: str, content: memoryview) -> int:
    if compression != "deflate":
        return 16 + zlib.MAX_WBITS
    # By the standard deflate has zlib's two bytes before it; some clients leave them out.
    is_zlib = len(content) > 1 and content[0] & 15 == 8 and int.from_bytes(content[:2]) % 31 == 0
    return zlib.MAX_WBITS if is_zlib else -zlib.MAX_WBITS


def _encoded(status: int, message: Message | Response, encoding: Encoding, headers: dict[str, str]) -> _Answer:
    body = message.SerializeToString() if encoding == "protobuf" else MessageToJson(message, indent=None).encode()
    return _Answer(status, {"content-type": _CONTENT_TYPES[encoding], **headers}, body)
