"""The WebSocket against servers that accept it and then misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest
from aiohttp import web

from perdure.client import websocket
from perdure.client.http import HttpService
from perdure.client.transport import pack
from perdure.core import messages as m


class OddServer:
    """The first connections go as `ways` say; those after them are answered."""

    def __init__(self) -> None:
        self.url = ""
        self.ways: list[str] = []
        self.end = asyncio.Event()

    async def wire(self, request: web.Request) -> web.StreamResponse:
        way = self.ways.pop(0) if self.ways else "answers"
        if way == "hangs":
            await self.end.wait()
            return web.Response(status=503)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        [[id, _, _]] = msgspec.msgpack.decode((await socket.receive()).data)
        await socket.send_bytes(b"\xc1" if way == "garbles" else pack([(id, 200, m.Done())]))
        await socket.receive()
        return socket


@pytest.fixture
async def server() -> AsyncIterator[OddServer]:
    odd = OddServer()
    app = web.Application()
    app.router.add_get("/wire", odd.wire)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    odd.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield odd
    odd.end.set()
    await runner.cleanup()


async def test_an_answer_that_cannot_be_read_breaks_the_connection_only(
    server: OddServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The call is made again on the next one, as after any break."""
    server.ways = ["garbles"]
    service = HttpService(server.url)
    async with asyncio.timeout(20):
        assert await service.close_session(m.CloseSession(1)) == m.Done()
    await service.close()
    assert [record.levelname for record in caplog.records] == ["WARNING"]


async def test_a_server_that_accepts_and_never_answers_is_left(
    server: OddServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a client would hang on it for ever, also after the server was mended."""
    monkeypatch.setattr(websocket, "CONNECT_SECONDS", 0.1)
    server.ways = ["hangs", "hangs"]
    service = HttpService(server.url)
    async with asyncio.timeout(20):
        assert await service.close_session(m.CloseSession(1)) == m.Done()
    await service.close()
