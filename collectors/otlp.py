"""The OTLP receiver: what it listens on, how it starts and how it stops."""

import asyncio
import errno
import logging
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType, TracebackType
from typing import Any

import uvicorn

from agenttrace.collectors.access import Tls, is_loopback, plain_address
from agenttrace.collectors.connections import KEEP_ALIVE_S, bounded_protocol
from agenttrace.collectors.counts import Counts
from agenttrace.collectors.intake import Intake
from agenttrace.collectors.otlp_grpc import OTLPService
from agenttrace.collectors.otlp_http import OTLPApp
from agenttrace.config import Settings
from agenttrace.errors import StoreError, UsageError
from agenttrace.guard import warn_once

HTTP_PORT = 4318
GRPC_PORT = 4317
MAX_BODY_BYTES = 16 << 20
MAX_INFLATED_BYTES = 64 << 20

_MAX_HEADER_BYTES = 32 << 10
_DRAIN_S = 10
_LOOK_S = 0.2
# Bodies, packed and unpacked, of requests that are being read, decoded and written.
_MIN_WAITING_BYTES = 256 << 20

_UNRESTRICTED = (
    "collect: {} is reached from other machines, and nothing says who may write into the store.\n"
    "Set a token (AGENTTRACE_TOKEN or --token-file), or ask for client certificates (--tls-client-ca), "
    "or say --allow-anonymous."
)

# By these asyncio fails to accept a connection; it tries again after a second, so that those who wait are served later.
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

_ADVICE = {
    errno.EADDRINUSE: "Another program may listen there; --{}-port 0 takes a free port.",
    errno.EACCES: "Ports below 1024 are the administrator's; name another with --{}-port.",
    errno.EADDRNOTAVAIL: "This machine does not have that address; name one of its own with --host.",
}

_logger = logging.getLogger("agenttrace")


class OTLPReceiver:
    """Takes spans over OTLP into the spool of a store, and the spool into the store.

    An answer of 200, or OK from gRPC, means that the spans are on disk. The receiver holds the store only for moments.
    """

    def __init__(
        self,
        db: Path,
        host: str = "127.0.0.1",
        *,
        http_port: int = HTTP_PORT,
        grpc_port: int | None = None,
        token: str | None = None,
        tls: Tls | None = None,
        allow_anonymous: bool = False,
        max_body: int = MAX_BODY_BYTES,
        max_inflated: int = MAX_INFLATED_BYTES,
        settings: Settings | None = None,
    ) -> None:
        """Prepares the receiver.

        Args:
            db: The store.
            host: Address to listen on.
            http_port: Port of OTLP/HTTP; 0 is a free one.
            grpc_port: Port of OTLP/gRPC; 0 is a free one; None: no gRPC.
            token: What clients must send as bearer token; None: nothing.
            tls: The certificate of both ports; None: what is sent can be read on the way.
            allow_anonymous: Listen beyond this machine although nothing says who may send.
            max_body: Largest body in bytes, as it is sent.
            max_inflated: Largest body in bytes, unpacked.
            settings: Configuration of the rebuild; None: the defaults.
        """
        self._host = plain_address(host)
        self._db = db
        self._http_port = http_port
        self._grpc_port = grpc_port
        self._tls = tls
        self._has_token = token is not None
        self._is_restricted = token is not None or (tls is not None and tls.asks_for_certificates)
        self._allow_anonymous = allow_anonymous
        self._intake = Intake(
            db, settings=settings, max_waiting_bytes=max(_MIN_WAITING_BYTES, 2 * (max_body + max_inflated))
        )
        # Without any of these it listens on loopback alone.
        own_host = None if self._is_restricted or allow_anonymous else host
        self._app = OTLPApp(self._intake, token=token, own_host=own_host, max_body=max_body, max_inflated=max_inflated)
        self._service = OTLPService(self._intake, token=token, tls=tls, max_inflated=max_inflated)
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        # Why it ends: True, it was asked to. Signals interrupt anything, their own handler too, which therefore must
        # not wait for a lock, as that of an Event.
        self._ends: SimpleQueue[bool] = SimpleQueue()

    @property
    def urls(self) -> list[str]:
        """Where it listens, once it does."""
        return list(self._intake.counts.urls)

    @property
    def counts(self) -> Counts:
        """What it has done so far."""
        return self._intake.counts

    def start(self) -> None:
        """Listens, in a thread of its own.

        Raises:
            StoreError: The store is a folder.
            UsageError: The address cannot be listened on, or reaches beyond this machine and nothing says who may send.
            SpoolError: The spool cannot be written.
        """
        if self._db.is_dir():
            # It would take spans that never come into the store.
            raise StoreError(f"{self._db}: is a folder; expected a DuckDB file. Name one with --db or AGENTTRACE_DB.")
        is_exposed = not is_loopback(self._host)
        if is_exposed and not self._is_restricted and not self._allow_anonymous:
            raise UsageError(_UNRESTRICTED.format(self._host or "every address"))
        address = self._host or "0.0.0.0"  # noqa: S104 - asked for, and allowed
        listening = _listen(address, self._http_port, "http")
        host = f"[{address}]" if ":" in address else address
        s = "" if self._tls is None else "s"
        urls = [f"http{s}://{host}:{listening.getsockname()[1]}"]
        try:
            if self._grpc_port is not None:
                # gRPC does not say why it cannot listen.
                _listen(address, self._grpc_port, "grpc").close()
                urls.append(f"grpc{s}://{host}:{self._service.listen(host, self._grpc_port)}")
            self._intake.counts.urls = urls
            self._intake.start()
        except BaseException:
            listening.close()
            raise
        if self._grpc_port is not None:
            self._service.start()
        if is_exposed:
            self._warn(host)
        self._server = server = _Server(_config(self._app, self._tls))
        self._thread = threading.Thread(
            target=self._serve, args=(server, listening), name="agenttrace-http", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Answers the requests that have begun, writes them, and brings them into the store if that is free."""
        if self._server is None or self._thread is None:
            return
        self._server.should_exit = True
        self._service.stop(_DRAIN_S)
        self._thread.join()
        self._server = self._thread = None
        self._app.close()
        self._intake.stop()

    def run(self, *, ready: Callable[[list[str]], None] | None = None) -> None:
        """Listens until Ctrl-C or SIGTERM, then stops in good order; to be called from the main thread.

        Args:
            ready: Called with the addresses once it listens.

        Raises:
            UsageError: It has ended by itself.
        """
        is_asked = False
        handlers = {number: signal.signal(number, self._end) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            self.start()
            if ready is not None:
                ready(self.urls)
            is_asked = self._until_the_end()
        finally:
            self.stop()
            for number, handler in handlers.items():
                signal.signal(number, handler or signal.SIG_DFL)
        if not is_asked:
            # Whoever watches over it starts it again; one that lives on and answers nobody would look well.
            raise UsageError("collect: it has stopped listening by itself, as when memory is short. Start it again.")

    def _until_the_end(self) -> bool:
        while True:
            # Of two signals at once the kernel may give both to a thread of gRPC. That does not wake this thread, which
            # alone runs Python's handlers, so it looks by itself.
            with suppress(Empty):
                return self._ends.get(timeout=_LOOK_S)

    def _end(self, _number: int, _frame: FrameType | None) -> None:
        # A second one ends it at once; with Python's handler of Ctrl-C it would wait for the threads.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        self._ends.put(True)

    def _serve(self, server: uvicorn.Server, listening: socket.socket) -> None:
        try:
            server.run([listening])
        finally:
            self._ends.put(False)

    def _warn(self, host: str) -> None:
        if not self._is_restricted:
            _logger.warning("listening on %s without a token: whoever reaches it can write into the store.", host)
        elif self._has_token and self._tls is None:
            _logger.warning(
                "listening on %s without TLS: the token and all spans can be read on the way. "
                "Set --tls-cert and --tls-key, unless a proxy in front of it encrypts.",
                host,
            )

    def __enter__(self) -> "OTLPReceiver":
        """Starts it."""
        self.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        """Stops it."""
        self.stop()


class _Server(uvicorn.Server):
    """Says once that there are too many connections, where asyncio prints thousands of tracebacks a second."""

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serves until it is told to stop."""
        asyncio.get_running_loop().set_exception_handler(_report)
        await super().serve(sockets)


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if isinstance(error, OSError) and error.errno in _EXHAUSTED:
        warn_once(
            "accept", "collect: %s: new connections wait. Raise the limit of open files (ulimit -n).", error.strerror
        )
    elif not (isinstance(error, ValueError) and "Invalid file descriptor" in str(error)):
        # That one comes thousands of times where the server closes before asyncio has tried again.
        loop.default_exception_handler(context)


def _listen(host: str, port: int, option: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol named, asyncio sets TCP_NODELAY on what it accepts; without, each answer waits 40 ms for an ACK.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(128)
    except OSError as err:
        listening.close()
        advice = _ADVICE.get(err.errno or 0, "Name another place with --host and --{}-port.").format(option)
        raise UsageError(f"collect: cannot listen on {host}:{port}: {err.strerror}. {advice}") from err
    return listening


def _config(app: OTLPApp, tls: Tls | None) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        # Uvicorn's own TLS would neither count nor time the connections that have not shaken hands yet.
        http=bounded_protocol(None if tls is None else tls.context),
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        h11_max_incomplete_event_size=_MAX_HEADER_BYTES,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=_DRAIN_S,
    )
