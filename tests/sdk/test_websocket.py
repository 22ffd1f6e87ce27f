"""The WebSocket against servers that accept it and then misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest
from aiohttp import web

from perdure.client import transport, websocket
from perdure.client.http import HttpService
from perdure.client.transport import pack
from perdure.core import messages as m
from perdure.core.errors import OutcomeUnknown


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
        if way == "swallows":
            await socket.receive()
            await self.end.wait()
            return socket
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


@pytest.mark.parametrize("key", ["k", None])
async def test_a_request_that_was_swallowed_is_sent_again_on_another_connection(
    server: OddServer, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    """IDEM-05: but for an enqueue without a key, which may have been committed."""
    monkeypatch.setattr(transport, "ANSWER_SECONDS", 0.05)
    monkeypatch.setattr(websocket, "_WATCH_SECONDS", 0.02)
    monkeypatch.setattr(websocket, "_CLOSE_SECONDS", 0.01)
    server.ways = ["swallows"]
    service = HttpService(server.url)
    async with asyncio.timeout(20):
        if key is None:
            with pytest.raises(OutcomeUnknown):
                await service.enqueue(m.Enqueue([m.NewTask("t")]))
        else:
            assert await service.close_session(m.CloseSession(1)) == m.Done()
    await service.close()
