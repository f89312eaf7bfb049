"""OTLP over gRPC: the Export methods of TraceService and LogsService.

UNAVAILABLE tells a client to send again, and RetryInfo beside it when; every other code tells it not to.
"""

import threading
import time
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import NoReturn

import grpc
from google.rpc.code_pb2 import UNAVAILABLE
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from agenttrace.collectors.access import Tls, is_bearer
from agenttrace.collectors.connections import HEADER_TIMEOUT_S, KEEP_ALIVE_S, MAX_CONNECTIONS
from agenttrace.collectors.intake import COMMIT_TIMEOUT_S, RETRY_AFTER_S, Intake, Response, Signal, response_for
from agenttrace.errors import DecodeError, SpoolError, UsageError

SERVICES: dict[Signal, str] = {
    "traces": "opentelemetry.proto.collector.trace.v1.TraceService",
    "logs": "opentelemetry.proto.collector.logs.v1.LogsService",
}

_THREADS = 16
# A call beyond the first waits at the client, and a connection beyond MAX_CONNECTIONS is refused with UNAVAILABLE. One
# beyond the last is refused with RESOURCE_EXHAUSTED, after which a client does not send again; so it is not reached.
_MAX_CALLS_OF_A_CONNECTION = 64
_MAX_CALLS = MAX_CONNECTIONS * _MAX_CALLS_OF_A_CONNECTION
# Exporters themselves wait for 10 s.
_MESSAGE_TIMEOUT_S = 30.0
_LOOK_S = 1.0


class OTLPService:
    """A gRPC server that feeds an intake."""

    def __init__(self, intake: Intake, *, token: str | None, tls: Tls | None, max_inflated: int) -> None:
        self._intake = intake
        self._token = token
        self._tls = tls
        self._reads = _Reads()
        self._server = grpc.server(
            ThreadPoolExecutor(_THREADS, thread_name_prefix="agenttrace-grpc"),
            maximum_concurrent_rpcs=_MAX_CALLS,
            options=[
                ("grpc.max_receive_message_length", max_inflated),
                ("grpc.max_concurrent_streams", _MAX_CALLS_OF_A_CONNECTION),
                ("grpc.max_allowed_incoming_connections", MAX_CONNECTIONS),
                # From the first byte to the end of what TLS and HTTP/2 need to begin.
                ("grpc.server_handshake_timeout_ms", int(HEADER_TIMEOUT_S * 1000)),
                ("grpc.max_connection_idle_ms", KEEP_ALIVE_S * 1000),
                ("grpc.so_reuseport", 0),
            ],
        )
        for signal, service in SERVICES.items():
            # Without a deserializer the request arrives as the bytes that the decoder takes. As a stream, which is the
            # same to a client, so that the token is looked at before the message is, and the wait for it has an end.
            export: grpc.RpcMethodHandler[bytes, Response] = grpc.stream_unary_rpc_method_handler(
                partial(self._export, signal), response_serializer=_serialized
            )
            handler = grpc.method_handlers_generic_handler(service, {"Export": export})
            self._server.add_generic_rpc_handlers((handler,))

    def listen(self, host: str, port: int) -> int:
        """Takes an address; calls wait until `start`. Returns the port.

        Raises:
            UsageError: The address cannot be listened on.
        """
        try:
            if self._tls is not None:
                return self._server.add_secure_port(f"{host}:{port}", self._tls.credentials)
            return self._server.add_insecure_port(f"{host}:{port}")
        except RuntimeError as err:
            raise UsageError(
                f"collect: cannot listen on {host}:{port}. "
                "Another program may listen there; --grpc-port 0 takes a free port."
            ) from err

    def start(self) -> None:
        """Begins to take calls."""
        self._server.start()
        self._reads.start()

    def stop(self, grace_s: float) -> None:
        """Answers the calls that have begun, for a bounded time."""
        self._server.stop(grace_s).wait()
        self._reads.stop()

    def _export(self, signal: Signal, bodies: Iterator[bytes], context: grpc.ServicerContext) -> Response:
        self._check_token(context)
        body = self._read(bodies, context)
        with self._intake.holding() as held:
            if not held.grow(len(body)):
                self._refuse_for_now(context, "too many requests are waiting")
            try:
                decoded, written = self._intake.take(signal, "protobuf", body)
            except DecodeError as err:
                self._refuse(context, grpc.StatusCode.INVALID_ARGUMENT, str(err))
            except MemoryError:
                # There may be room when others have been served.
                self._refuse_for_now(context, "there is no memory for the request")
            except Exception as err:
                self._intake.count_fault(err)
                context.abort(grpc.StatusCode.INTERNAL, f"internal error: {type(err).__name__}")
                raise
            try:
                written.result(COMMIT_TIMEOUT_S)
            except (SpoolError, OSError) as err:
                self._refuse_for_now(context, f"the spool cannot be written: {type(err).__name__}")
        self._intake.count(decoded)
        return response_for(signal, decoded)

    def _read(self, bodies: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        with self._reads.limited(context), suppress(grpc.RpcError):
            for body in bodies:
                return body
        # Too large or too slow, which the client has been told already, or it has left, or has sent none.
        self._intake.count_refused("CANCELLED")
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call has no message")
        raise AssertionError  # abort does not return, which its type does not say

    def _check_token(self, context: grpc.ServicerContext) -> None:
        if self._token is None:
            return
        # Two make none: which of them a proxy in front has looked at is unknown.
        given = [str(value) for name, value in context.invocation_metadata() or () if name == "authorization"]
        if not is_bearer(", ".join(given), self._token):
            self._refuse(context, grpc.StatusCode.UNAUTHENTICATED, "expected metadata authorization: Bearer TOKEN")

    def _refuse_for_now(self, context: grpc.ServicerContext, message: str) -> NoReturn:
        retry = RetryInfo()
        retry.retry_delay.FromSeconds(RETRY_AFTER_S)
        status = Status(code=UNAVAILABLE, message=message)
        status.details.add().Pack(retry)
        # The first is gRPC's own place; Python's exporter looks at the second.
        details = (
            ("grpc-status-details-bin", status.SerializeToString()),
            ("google.rpc.retryinfo-bin", retry.SerializeToString()),
        )
        context.set_trailing_metadata(details)
        self._refuse(context, grpc.StatusCode.UNAVAILABLE, message)

    def _refuse(self, context: grpc.ServicerContext, code: grpc.StatusCode, message: str) -> NoReturn:
        self._intake.count_refused(code.name)
        context.abort(code, message)
        raise AssertionError  # abort does not return, which its type does not say


class _Reads:
    """Ends calls whose message does not arrive in time: each holds one of few threads."""

    def __init__(self) -> None:
        self._deadlines: dict[grpc.ServicerContext, float] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._look, name="agenttrace-grpc-reads", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()

    @contextmanager
    def limited(self, context: grpc.ServicerContext) -> Generator[None]:
        """Gives a call so much time; it ends as if the client had cancelled it, which tells that to send again."""
        with self._lock:
            self._deadlines[context] = time.monotonic() + _MESSAGE_TIMEOUT_S
        try:
            yield
        finally:
            with self._lock:
                self._deadlines.pop(context, None)

    def _look(self) -> None:
        while not self._stopping.wait(_LOOK_S):
            now = time.monotonic()
            with self._lock:
                late = [context for context, deadline in self._deadlines.items() if deadline < now]
                for context in late:
                    del self._deadlines[context]
            for context in late:
                context.cancel()


def _serialized(response: Response) -> bytes:
    return response.SerializeToString()
