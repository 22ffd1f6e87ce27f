"""One WebSocket with many requests in flight; api/wire.py describes the frames.

A request costs a future and no task: one task writes (all that was asked since its last write, in one message), one
reads. The connection is made when the first request needs it, and again whenever it breaks, after a pause that grows.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote

import aiohttp
import msgspec

from perdure.client.transport import CONNECT_SECONDS, ConnectionBroken, answer_within, pack, read_reply, refused
from perdure.core import messages as m
from perdure.core.errors import PerdureError

log = logging.getLogger("perdure.client")

MAX_MESSAGE = 4 * 1024 * 1024
"""Bytes of requests that are put into one message; a larger one travels alone."""
PING_SECONDS = 10.0
"""Between pings; a server that does not answer one for half of this is given up."""
LONGEST_PAUSE = 5.0
"""Between two tries to connect, at most."""

_WATCH_SECONDS = 1.0  #: between looks for requests that were not answered
_CLOSE_SECONDS = 0.5  #: for the server to answer the end of a connection

Hook = Callable[[], Awaitable[None]]


class _Frame(msgspec.Struct, array_like=True):
    id: int
    status: int
    body: msgspec.Raw


_frames = msgspec.msgpack.Decoder(list[_Frame]).decode


class _Request:
    """An open request; `sent` once it was handed to the connection, which breaks unless the answer has come by
    `until`."""

    __slots__ = ("future", "id", "op", "sent", "until")

    def __init__(self, id: int, op: str, until: float, future: asyncio.Future[Any]) -> None:
        self.id = id
        self.op = op
        self.until = until
        self.future = future
        self.sent = False


class WebSocketTransport:
    """After each connect `on_connect` runs before any other request does; only its own `open_session` passes."""

    def __init__(self, url: str, headers: dict[str, str], on_connect: Hook | None = None) -> None:
        self._url = f"{url}/wire"
        self._headers = headers
        self._on_connect = on_connect
        self._keeper: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None]
        self._connected = False
        self._told = False  #: that there is no connection, since there was one
        self._failures = 0  #: in a row
        self._requests: dict[int, _Request] = {}
        self._outbox: list[tuple[_Request | None, bytes]] = []
        self._filled = asyncio.Event()
        self._last_id = 0
        self._watched = 0.0  #: seconds of all connections

    async def ask(self, op: str, data: bytes, wait: float) -> Any:
        if self._keeper is None or self._keeper.done():
            self._new_ready()
            self._keeper = asyncio.create_task(self._keep(), name="perdure-connection")
        if not self._ready.done() or self._ready.exception() is not None:
            await self._until_ready(op)
        if not self._connected:
            raise ConnectionBroken(f"the connection to {self._url} broke", sent=False)
        self._last_id += 1
        until = self._watched + answer_within(wait)
        request = _Request(self._last_id, op, until, asyncio.get_running_loop().create_future())
        self._requests[request.id] = request
        self._post(request, pack((request.id, op, msgspec.Raw(data))))
        try:
            return await request.future
        except asyncio.CancelledError:
            if self._requests.pop(request.id, None) is not None and self._connected:
                self._post(None, pack((request.id, "abandon", None)))
            raise

    async def close(self) -> None:
        """Open requests end with ConnectionBroken."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)

    def _post(self, request: _Request | None, frame: bytes) -> None:
        self._outbox.append((request, frame))
        self._filled.set()

    def _new_ready(self) -> None:
        self._ready = asyncio.get_running_loop().create_future()

    async def _until_ready(self, op: str) -> None:
        if op == "open_session" and self._connected:
            return
        try:
            await asyncio.wait_for(asyncio.shield(self._ready), CONNECT_SECONDS)
        except TimeoutError:
            raise ConnectionBroken(f"no connection to {self._url}", sent=False) from None

    # --------------------------------------------------------------------------------------------------- connection
    async def _keep(self) -> None:
        """Connect, and connect again, until closed or refused."""
        end: Exception = ConnectionBroken("the client was closed", sent=False)
        try:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
            async with aiohttp.ClientSession(timeout=timeout, headers=self._headers) as session:
                while True:
                    self._failures += 1
                    await self._try(session)
                    await asyncio.sleep(random.uniform(0, min(0.05 * 2 ** min(self._failures, 10), LONGEST_PAUSE)))
        except PerdureError as error:
            end = error
        except Exception as error:
            log.exception("the connection to %s cannot be kept", self._url)
            end = error
        finally:
            if not self._ready.done():
                self._ready.set_exception(end)
                self._ready.exception()  # nobody may be waiting for it

    async def _try(self, session: aiohttp.ClientSession) -> None:
        """One connection from start to end. Raises what makes another try useless."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):  # what accepts connections need not answer
                socket = await session.ws_connect(
                    self._url,
                    compress=0,
                    max_msg_size=0,
                    heartbeat=PING_SECONDS,
                    timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_SECONDS),
                )
            async with socket:
                await self._serve(socket)
        except aiohttp.WSServerHandshakeError as error:
            header = "" if error.headers is None else error.headers.get(m.REFUSAL_HEADER, "")
            why = unquote(header) or f"the server refused the connection: {error.message}"
            if (refusal := refused(error.status, why)).status < 500:
                raise refusal from None
        except (aiohttp.ClientError, OSError, TimeoutError, ConnectionBroken) as error:
            log.log(logging.DEBUG if self._told else logging.WARNING, "no connection to %s: %s", self._url, error)
            self._told = True
        except PerdureError as error:
            if not error.retryable:
                raise

    async def _serve(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        """Until the connection ends, by an error always. Then every open request ends."""
        self._connected = True
        self._told = False
        work = (self._read(socket), self._write(socket), self._watch(), self._greet())
        parts = [asyncio.create_task(part) for part in work]
        try:
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_EXCEPTION)
            for part in done:
                part.result()
        finally:
            self._connected = False
            if self._ready.done():
                self._new_ready()
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)
            self._outbox.clear()
            requests, self._requests = self._requests, {}
            for request in requests.values():
                if not request.future.done():
                    broken = ConnectionBroken(f"the connection to {self._url} broke", sent=request.sent)
                    request.future.set_exception(broken)

    async def _greet(self) -> None:
        if self._on_connect is not None:
            await self._on_connect()
        self._failures = 0
        self._ready.set_result(None)

    async def _watch(self) -> None:
        """End a connection that swallowed a request, although others are answered. Time is counted in looks: while a
        handler blocks the event loop none passes, because the answers that came meanwhile are still to be read."""
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            self._watched += _WATCH_SECONDS
            for request in self._requests.values():
                if request.until < self._watched and not request.future.done():
                    raise ConnectionBroken(f"no answer to {request.op} came in time", sent=True)

    async def _write(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        while True:
            await self._filled.wait()
            self._filled.clear()
            outbox, self._outbox = self._outbox, []
            frames: list[msgspec.Raw] = []
            size = 0
            for position, (request, frame) in enumerate(outbox, 1):
                if request is not None:
                    request.sent = True
                if frames and size + len(frame) > MAX_MESSAGE:
                    await socket.send_bytes(pack(frames))
                    frames, size = [], 0
                frames.append(msgspec.Raw(frame))
                size += len(frame)
                if position == len(outbox):
                    await socket.send_bytes(pack(frames))

    async def _read(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        while True:
            message = await socket.receive()
            if message.type is not aiohttp.WSMsgType.BINARY:
                raise ConnectionBroken(f"the server closed: {socket.close_code}", sent=True)
            try:
                frames = _frames(message.data)
            except msgspec.DecodeError as error:
                raise ConnectionBroken(f"an answer cannot be read: {error}", sent=True) from None
            for frame in frames:
                request = self._requests.pop(frame.id, None)
                if request is None or request.future.done():
                    continue
                try:
                    request.future.set_result(read_reply(request.op, frame.status, frame.body))
                except PerdureError as error:
                    request.future.set_exception(error)
