"""The least that a receiver of OTLP must do, as a baseline: read a body, parse it, answer 200.

Run: `python benchmarks/bare_server.py parse|append FOLDER http|grpc`: `append` writes the body to one file and calls
fsync before it answers. Same web server, with the same HTTP parser, and same gRPC server as `agenttrace collect`.
"""

import os
import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson
import uvicorn
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from processes import Server

Message = MutableMapping[str, Any]


def start(does: str, folder: Path, door: str = "http") -> Server:
    """Starts it on a free port."""
    return Server([sys.executable, __file__, does, str(folder), door], rf"listening on ({door}://\S+)")


def application(descriptor: int | None) -> Callable[..., Awaitable[None]]:
    """Makes the ASGI application."""

    async def answer(
        scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        is_json = (b"content-type", b"application/json") in scope["headers"]
        (orjson.loads if is_json else ExportTraceServiceRequest.FromString)(body)
        keep(body, descriptor)
        content = b"{}" if is_json else b""
        headers = [(b"content-length", str(len(content)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    return answer


def keep(body: bytes, descriptor: int | None) -> None:
    """Writes a body to disk where there is a file for it."""
    if descriptor is not None:
        os.write(descriptor, body)
        os.fsync(descriptor)


def serve_grpc(descriptor: int | None) -> None:
    """Does the same over gRPC."""
    # What idles over HTTP, which another benchmark measures, has no need of it.
    import grpc

    def export(body: bytes, _context: grpc.ServicerContext) -> bytes:
        ExportTraceServiceRequest.FromString(body)
        keep(body, descriptor)
        return b""

    server = grpc.server(ThreadPoolExecutor(16))
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(export)
    service = "opentelemetry.proto.collector.trace.v1.TraceService"
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"Export": handler}),))
    print(f"listening on grpc://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}", flush=True)
    server.start()
    server.wait_for_termination()


def main(does: str, folder: str, door: str) -> None:
    """Serves until SIGTERM."""
    flags = os.O_CREAT | os.O_APPEND | os.O_WRONLY
    descriptor = os.open(Path(folder) / "bodies", flags, 0o600) if does == "append" else None
    if door == "grpc":
        serve_grpc(descriptor)
        return
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    listening.listen(128)
    print(f"listening on http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    config = uvicorn.Config(
        application(descriptor), http="h11", ws="none", lifespan="off", log_config=None, access_log=False
    )
    uvicorn.Server(config).run([listening])


if __name__ == "__main__":
    main(*sys.argv[1:])
