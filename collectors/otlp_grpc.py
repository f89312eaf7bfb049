"""OTLP over gRPC: the Export methods of TraceService and LogsService.

UNAVAILABLE tells a client to send again, and RetryInfo beside it when; every other code tells it not to.
"""

import hmac
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NoReturn

import grpc
from google.rpc.code_pb2 import UNAVAILABLE
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from agenttrace.collectors.intake import COMMIT_TIMEOUT_S, RETRY_AFTER_S, Intake, Response, Signal, response_for
from agenttrace.errors import DecodeError, SpoolError, UsageError

SERVICES: dict[Signal, str] = {
    "traces": "opentelemetry.proto.collector.trace.v1.TraceService",
    "logs": "opentelemetry.proto.collector.logs.v1.LogsService",
}

_THREADS = 16
# A call beyond the first waits at the client. One beyond the second is refused with RESOURCE_EXHAUSTED, after which a
# client does not send again.
_MAX_CALLS_OF_A_CONNECTION = 128
_MAX_CALLS = 8_192


class OTLPService:
    """A gRPC server that feeds an intake."""

    def __init__(self, intake: Intake, *, token: str | None, max_inflated: int) -> None:
        self._intake = intake
        self._token = token
        self._server = grpc.server(
            ThreadPoolExecutor(_THREADS, thread_name_prefix="agenttrace-grpc"),
            maximum_concurrent_rpcs=_MAX_CALLS,
            options=[
                ("grpc.max_receive_message_length", max_inflated),
                ("grpc.max_concurrent_streams", _MAX_CALLS_OF_A_CONNECTION),
                ("grpc.so_reuseport", 0),
            ],
        )
        for signal, service in SERVICES.items():
            # Without a deserializer the request arrives as the bytes that the decoder takes.
            export: grpc.RpcMethodHandler[bytes, Response] = grpc.unary_unary_rpc_method_handler(
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
            return self._server.add_insecure_port(f"{host}:{port}")
        except RuntimeError as err:
            raise UsageError(
                f"collect: cannot listen on {host}:{port}. "
                "Another program may listen there; --grpc-port 0 takes a free port."
            ) from err

    def start(self) -> None:
        """Begins to take calls."""
        self._server.start()

    def stop(self, grace_s: float) -> None:
        """Answers the calls that have begun, for a bounded time."""
        self._server.stop(grace_s).wait()

    def _export(self, signal: Signal, body: bytes, context: grpc.ServicerContext) -> Response:
        self._check_token(context)
        with self._intake.holding() as held:
            if not held.grow(len(body)):
                self._refuse_for_now(context, "too many requests are waiting")
            try:
                decoded, written = self._intake.take(signal, "protobuf", body)
            except DecodeError as err:
                self._refuse(context, grpc.StatusCode.INVALID_ARGUMENT, str(err))
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

    def _check_token(self, context: grpc.ServicerContext) -> None:
        if self._token is None:
            return
        metadata = dict(context.invocation_metadata() or ())
        given = str(metadata.get("authorization", ""))
        scheme, _, token = given.partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(token.strip().encode(), self._token.encode()):
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


def _serialized(response: Response) -> bytes:
    return response.SerializeToString()
