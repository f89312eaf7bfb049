"""Connections to the HTTP port: bounded in number and time, with TLS where it is wanted."""

import asyncio
import ssl
from typing import cast

from uvicorn.protocols.http.h11_impl import H11Protocol

from agenttrace.guard import warn_once

MAX_CONNECTIONS = 512
# Exporters send every few seconds on one connection. One that closes in between breaks the next request, which not all
# of them send again; so the client's own limit, 90 s where it has one, must come first.
KEEP_ALIVE_S = 120
HEADER_TIMEOUT_S = 10.0

# TLS says goodbye and waits for the same; a client that rests does not listen.
_FAREWELL_S = 1.0
# What a client begins with that speaks something else, and what to tell whoever runs it.
_MISTAKEN = {
    b"PRI * HTTP/2.0": "a client speaks gRPC to the HTTP port; name the gRPC port in its endpoint",
    b"\x16\x03": "a client speaks TLS to a port without it; its endpoint must begin with http://, or set --tls-cert",
}


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 that gives up on a client that connects and does not finish its headers in time.

    Between two requests a connection may rest for longer; it makes way for a new one where there are too many.
    """

    tls: ssl.SSLContext | None = None

    _deadline: asyncio.TimerHandle | None = None
    _rests_since: float | None = None
    _handshake: asyncio.Task[None] | None = None
    _early = b""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Begins to wait for a request, or first for what TLS needs."""
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS and not self._makes_way():
            transport.abort()
        elif self.tls is not None:
            transport.pause_reading()
            self._handshake = self.loop.create_task(self._shake_hands(transport, self.tls))
        else:
            self._await_request(HEADER_TIMEOUT_S)

    async def _shake_hands(self, transport: asyncio.Transport, tls: ssl.SSLContext) -> None:
        encrypted = None
        try:
            encrypted = await self.loop.start_tls(
                transport,
                self,
                tls,
                server_side=True,
                ssl_handshake_timeout=HEADER_TIMEOUT_S,
                ssl_shutdown_timeout=_FAREWELL_S,
            )
        except OSError as err:
            if getattr(err, "reason", "") == "HTTP_REQUEST":
                warn_once("plain http", "a client speaks plain HTTP to the port of TLS; its endpoint is https://")
        self._handshake = None
        if encrypted is None:
            self.connections.discard(self)
            transport.abort()
            return
        super().connection_made(encrypted)
        self._await_request(HEADER_TIMEOUT_S)
        if self._early:
            self.data_received(self._early)

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the wait."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Ends the wait where the headers are complete."""
        if self._handshake is not None:
            # It may come with the last message of the handshake, before its end is known here.
            self._early += data
            return
        before = self.cycle
        for beginning, advice in _MISTAKEN.items():
            if data.startswith(beginning):
                warn_once(advice, advice)
        if self._rests_since is not None:
            self._await_request(HEADER_TIMEOUT_S)
        super().data_received(data)
        if self.cycle is not before:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        """Waits for the next request on this connection."""
        before = self.cycle
        super().on_response_complete()
        if self.cycle is before:
            self._await_request(KEEP_ALIVE_S)
            self._rests_since = self.loop.time()

    def _await_request(self, seconds: float) -> None:
        self._stop_waiting()
        self._deadline = self.loop.call_later(seconds, self._give_up)

    def _stop_waiting(self) -> None:
        self._rests_since = None
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self.transport.abort()

    def _makes_way(self) -> bool:
        """Ends the connection that has rested longest; False where none rests."""
        others = cast("set[BoundedProtocol]", self.connections)
        resting = [other for other in others if other._rests_since is not None]
        if not resting:
            return False
        longest = min(resting, key=lambda other: other._rests_since or 0.0)
        longest._stop_waiting()
        longest._give_up()
        return True


def bounded_protocol(tls: ssl.SSLContext | None) -> type[BoundedProtocol]:
    """Returns the protocol of one receiver's connections; None: without TLS."""
    return type("BoundedProtocol", (BoundedProtocol,), {"tls": tls})
