"""What a connection may cost before it has asked for anything: time, memory and descriptors (field case B162).

A request has to arrive whole within a time, its head within a size; uvicorn bounds neither. Once a second all of them
are looked at, which costs less than a timer each: those whose request does not come are closed; and while what was sent
of unfinished requests takes too much memory, or too few descriptors are left for the database, the worst one is.
"""

from __future__ import annotations

import asyncio
import logging
import resource

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.frames import Frame

from perdure.api.codec import JSON, invalid
from perdure.core.errors import InvalidArgument, PerdureError
from perdure.core.limits import MAX_HEAD, REQUEST_SECONDS

log = logging.getLogger("perdure.api")

MAX_UNFINISHED = 256 * 1024 * 1024
"""Bytes of all requests together that have not arrived whole."""
SPARE_DESCRIPTORS = 64
"""Not for connections of callers but for the database, and files."""
_LOOK_SECONDS = 1.0


class HeadTooLarge(InvalidArgument):
    code, title, status = "head_too_large", "Request head too large", 431


class Http(HttpToolsProtocol):
    """uvicorn's HTTP/1.1, which also knows since when a request is awaited and how much of it has come."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.awaited: float | None = self.loop.time()  #: since when; None between a whole request and the next one
        self.held = 0  #: bytes of a body that is not whole yet
        self._head: int | None = 0  #: bytes of a head that is not whole yet; None in a body

    def data_received(self, data: bytes) -> None:
        if self.awaited is None:
            self.awaited = self.loop.time()
        if self._head is not None:
            self._head += len(data)
        super().data_received(data)
        if self._head is not None and self._head > MAX_HEAD and not self.transport.is_closing():
            self._refuse(HeadTooLarge("the URL and the headers are too large", limit=f"{MAX_HEAD} bytes"))

    def on_headers_complete(self) -> None:
        self._head = None
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        if self.cycle is not None and not self.cycle.response_complete:  # else it is thrown away
            self.held += len(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self.awaited, self.held, self._head = None, 0, 0

    def send_400_response(self, msg: str) -> None:
        self._refuse(invalid("this is not HTTP/1.1"))

    def _refuse(self, error: PerdureError) -> None:
        """A problem document, as everywhere, and the end of the connection."""
        body = JSON.encode(error.problem())
        head = f"HTTP/1.1 {error.status} {error.title}\r\nconnection: close\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(head.encode() + b"content-type: " + JSON.problem_type + b"\r\n\r\n" + body)
        self.transport.close()


class WebSocket(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket, for a protocol that has no text: that is answered as what it is, no frames. So whoever sends
    bytes that are no UTF-8 as text writes no trace into the log."""

    def handle_text(self, event: Frame) -> None:
        self.handle_bytes(event)


class Guard:
    """Looks after the connections of a server, until `stop`."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._watch = asyncio.create_task(self._look_on(), name="perdure-guard")

    def stop(self) -> None:
        self._watch.cancel()

    async def _look_on(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            self.look(asyncio.get_running_loop().time())

    def look(self, now: float) -> None:
        """Close what has to go at this time of the event loop's clock."""
        connections = self._state.connections
        waiting = [it for it in connections if isinstance(it, Http) and it.awaited is not None]
        waiting.sort(key=lambda it: it.awaited or 0.0)
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        surplus = 0 if most == resource.RLIM_INFINITY else len(connections) - (most - SPARE_DESCRIPTORS)
        for number, late in enumerate(waiting):
            assert late.awaited is not None
            if number >= surplus and now - late.awaited < REQUEST_SECONDS:
                break
            late.transport.abort()
        if surplus > 0:
            log.warning("%d connections are too many: the descriptors of this process run out", len(connections))
        held = {it: size for it in connections if (size := _held(it))}
        total = left = sum(held.values())
        for connection, size in sorted(held.items(), key=lambda item: -item[1]):
            if left <= MAX_UNFINISHED:
                break
            connection.transport.abort()
            left -= size
        if left < total:
            log.warning("unfinished requests had %d bytes; the connections of the largest are closed", total)


def _held(connection: object) -> int:
    if isinstance(connection, WebSocketsSansIOProtocol):
        return len(connection.conn.reader.buffer) + sum(map(len, connection.frames))
    assert isinstance(connection, Http)
    return connection.held
