"""The least that a receiver of OTLP over HTTP must do, as a baseline: read a body, parse it, answer 200.

Run: `python benchmarks/bare_server.py parse|append FOLDER`: `append` writes the body to one file and calls fsync before
it answers. Same web server, with the same HTTP parser, as `agenttrace collect`.
"""

import os
import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

import orjson
import uvicorn
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from processes import Server

Message = MutableMapping[str, Any]


def start(does: str, folder: Path) -> Server:
    """Starts it on a free port."""
    return Server([sys.executable, __file__, does, str(folder)], r"listening on (http://\S+)")


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
        if descriptor is not None:
            os.write(descriptor, body)
            os.fsync(descriptor)
        content = b"{}" if is_json else b""
        headers = [(b"content-length", str(len(content)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    return answer


def main(does: str, folder: str) -> None:
    """Serves until SIGTERM."""
    flags = os.O_CREAT | os.O_APPEND | os.O_WRONLY
    descriptor = os.open(Path(folder) / "bodies", flags, 0o600) if does == "append" else None
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
