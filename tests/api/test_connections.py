"""What happens to calls when a connection, a server or a client goes away in the middle of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web

from perdure.api import wire
from perdure.api.auth import Gate
from perdure.api.parking import Parking
from perdure.api.server import App, Server
from perdure.api.service import Caller
from perdure.api.service import Service as ServerService
from perdure.client import http
from perdure.client.embedded import EmbeddedService
from perdure.client.http import HttpService, repeatable
from perdure.core import messages as m
from perdure.core.errors import OutcomeUnknown, PayloadTooLarge, Unavailable
from perdure.engine.engine import Engine
from tests.api.calls import INCARNATION, enqueue, payload, poll, task, until

TRANSPORTS = ("websocket", "http")


@pytest.fixture(params=TRANSPORTS)
async def remote(request: pytest.FixtureRequest, server: Server) -> AsyncIterator[HttpService]:
    service = HttpService(server.url, transport=request.param)
    yield service
    await service.close()


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("gone", ["closed", "canceled"])
async def test_nothing_is_leased_to_a_poll_that_nobody_waits_for(
    engine: Engine, server: Server, transport: str, gone: str
) -> None:
    """CLUS-17, PERF rule 27: the parked poll of a lost connection goes, and the next task is another worker's."""
    dead = HttpService(server.url, transport=transport)  # type: ignore[arg-type]
    polling = asyncio.ensure_future(poll(dead, wait=20.0))
    await until(lambda: engine.dispatch.waiting)
    if gone == "closed":
        await dead.close()
        with pytest.raises(Unavailable):
            await polling
    else:
        polling.cancel()
    await until(lambda: not engine.dispatch.waiting)
    live = HttpService(server.url)
    [task_id] = await enqueue(live)
    [delivery] = (await live.poll(m.Poll(INCARNATION + 1, 1, ["default"], 1))).tasks
    assert (delivery.task_id, delivery.attempt) == (task_id, 1)
    view = await live.get(m.Get(task_id))
    assert (view.lost_deliveries, [attempt.outcome for attempt in view.attempts]) == (0, ["running"])
    await asyncio.gather(dead.close(), live.close())


async def test_parked_requests_end_before_the_server_does(engine: Engine, remote: HttpService) -> None:
    """A stop takes no 25 seconds; whoever waits is told to come back."""
    server = Server(App(engine), port=0)
    await server.start()
    async with aiohttp.ClientSession(server.url) as session:
        [task_id] = await enqueue(remote)
        rest = asyncio.ensure_future(session.get(f"/v1/tasks/{task_id}?wait=25"))
        body = {"incarnation": 1, "poll": 1, "queues": ["other"], "capacity": 1}
        wire = asyncio.ensure_future(session.post("/worker/poll", json=body))
        await until(lambda: engine.dispatch.waiting and bool(engine.watches))
        async with asyncio.timeout(5):
            await server.stop()
        for answer in (await rest, await wire):
            problem = await answer.json(content_type="application/problem+json")
            assert (answer.status, problem["code"], answer.headers["retry-after"]) == (503, "unavailable", "1")


async def test_many_calls_share_a_connection(remote: HttpService) -> None:
    """Answers come in any order and find their calls."""
    polls = [asyncio.ensure_future(remote.poll(m.Poll(n, 1, [f"q{n}"], 1, 20.0))) for n in range(20)]
    ids = await asyncio.gather(*(enqueue(remote, task(queue=f"q{n}")) for n in range(20)))
    answered = await asyncio.gather(*polls)
    assert [reply.tasks[0].task_id for reply in answered] == [found for [found] in ids]


async def test_large_requests_and_answers_pass(remote: HttpService) -> None:
    """Many at the payload limit in one message; over 16 MB is refused before it is sent."""
    big = payload(b'"' + b"x" * (250 * 1024) + b'"')
    await asyncio.gather(*(enqueue(remote, *[task(payload=big)] * 20) for _ in range(3)))
    assert len(await poll(remote, capacity=60)) >= 20
    with pytest.raises(PayloadTooLarge):
        await remote.enqueue(m.Enqueue([task(payload=big)] * 70))
    assert len((await remote.find(m.Find(limit=5))).tasks) == 5


def test_what_may_be_repeated() -> None:
    keyed, bare = task(idempotency_key="k"), task()
    assert repeatable(m.Enqueue([keyed])) and repeatable(m.Cancel("x"))
    assert not repeatable(m.Enqueue([keyed, bare]))


@asynccontextmanager
async def scripted(*handlers: Callable[[web.Request], Awaitable[Any]]) -> AsyncIterator[tuple[str, list[int]]]:
    """A server whose n-th connection or request is met by the n-th handler, the last one from then on."""
    seen: list[int] = []

    async def handle(request: web.Request) -> Any:
        seen.append(len(seen))
        return await handlers[min(seen[-1], len(handlers) - 1)](request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", seen
    finally:
        await runner.cleanup()


async def hang_up(request: web.Request) -> Any:
    """Take a request whole and close the connection without a word."""
    if request.headers.get("upgrade") == "websocket":
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.receive()
    else:
        await request.read()
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def error_page(request: web.Request) -> Any:
    return web.Response(status=502, text="<h1>Bad gateway</h1>")


def forward(url: str) -> Callable[[web.Request], Awaitable[Any]]:
    """Pass a POST on to a real server."""

    async def handle(request: web.Request) -> Any:
        async with (
            aiohttp.ClientSession() as session,
            session.post(url + request.path, data=await request.read(), headers=request.headers) as answer,
        ):
            return web.Response(status=answer.status, body=await answer.read(), content_type=answer.content_type)

    return handle


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_an_enqueue_without_key_is_never_sent_twice(transport: str) -> None:
    """IDEM-06, IDEM-07: whether it was committed is not known, and the caller is told so."""
    async with scripted(hang_up) as (url, seen):
        service = HttpService(url, transport=transport)  # type: ignore[arg-type]
        with pytest.raises(OutcomeUnknown):
            await service.enqueue(m.Enqueue([task()]))
        requests = len(seen)
        if transport == "http":
            assert requests == 1
        await service.close()


async def test_a_keyed_enqueue_is_repeated_until_it_is_answered(server: Server) -> None:
    """IDEM-05: over lost connections and a proxy's error pages; one task in the end."""
    async with scripted(hang_up, error_page, forward(server.url)) as (url, seen):
        service = HttpService(url, transport="http")
        [task_id] = await enqueue(service, task(idempotency_key="k"))
        assert len(seen) == 3
        assert [view.task_id for view in (await service.find(m.Find())).tasks] == [task_id]
        await service.close()


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_server_that_stays_away_is_unavailable(monkeypatch: pytest.MonkeyPatch, transport: str) -> None:
    monkeypatch.setattr(http, "RETRY_SECONDS", 0.2)
    monkeypatch.setattr("perdure.client.websocket.CONNECT_SECONDS", 0.1)
    service = HttpService("http://127.0.0.1:9", transport=transport)  # type: ignore[arg-type]
    with pytest.raises(Unavailable):
        await service.find(m.Find())
    with pytest.raises(Unavailable):  # known not to have been sent, so its outcome is known too
        await service.enqueue(m.Enqueue([task()]))
    await service.close()
    with pytest.raises(Unavailable):
        await service.find(m.Find())


async def test_an_embedded_service_is_called_from_other_threads(engine: Engine) -> None:
    """A heartbeat thread has an event loop of its own."""
    service = EmbeddedService(ServerService(engine, Caller("default")))
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.extend(asyncio.run(enqueue(service))))
    thread.start()
    await asyncio.to_thread(thread.join)
    assert (await service.get(m.Get(found[0]))).state == "ENQUEUED"
    polling = asyncio.ensure_future(poll(service, wait=20.0))
    await until(lambda: engine.dispatch.waiting or polling.done())
    await polling
    waiting = asyncio.ensure_future(poll(service, 2, wait=20.0))
    await until(lambda: engine.dispatch.waiting)
    await service.close()
    with pytest.raises(Unavailable):
        await waiting


async def test_parking_tells_its_end_from_a_cancel() -> None:
    parking = Parking()
    forever = asyncio.Event()
    told, canceled = (asyncio.ensure_future(parking.hold(forever.wait())) for _ in range(2))
    await asyncio.sleep(0)
    canceled.cancel()
    parking.end()
    with pytest.raises(Unavailable):
        await told
    with pytest.raises(asyncio.CancelledError):
        await canceled
    with pytest.raises(Unavailable):
        await parking.hold(forever.wait())


class _Deaf:
    """The client of a connection: it asks and asks, and takes no answer."""

    def __init__(self, message: bytes) -> None:
        self.read = 0
        self._message = message

    async def receive(self) -> dict[str, Any]:
        await asyncio.sleep(0)
        self.read += 1
        return {"type": "websocket.receive", "bytes": self._message}

    async def send(self, message: Any) -> None:
        await asyncio.Event().wait()


async def test_a_client_that_takes_no_answers_is_read_no_more_and_closed(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits for it would grow without bound."""
    monkeypatch.setattr(wire, "MAX_UNSENT", 1_000_000)
    monkeypatch.setattr(wire, "STALL_SECONDS", 0.1)
    service = ServerService(engine, Caller("default"))
    [task_id] = await enqueue(service, task(payload=payload(b'"' + b"x" * 200_000 + b'"')))
    client = _Deaf(msgspec.msgpack.encode([(1, "get", {"task_id": task_id})]))
    app = wire.Wire(engine, Gate(engine.store), Parking())
    connection = wire.Connection(app, client.send, Caller("default"))  # type: ignore[arg-type]
    connection.service = service
    async with asyncio.timeout(10):
        await connection.run(client.receive)  # type: ignore[arg-type]
    assert not connection.alive()
    assert 5 <= client.read < 1_000


async def test_a_slow_client_is_waited_for(engine: Engine, monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    monkeypatch.setattr(wire, "MAX_UNSENT", 100_000)
    remote = HttpService(server.url)
    [task_id] = await enqueue(remote, task(payload=payload(b'"' + b"x" * 200_000 + b'"')))
    views = await asyncio.gather(*(remote.get(m.Get(task_id)) for _ in range(100)))
    assert {view.task_id for view in views} == {task_id}
    await remote.close()
