"""Field cases on callers who mean no good, or are very slow (B162): others hear nothing of them."""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from collections.abc import Callable

import aiohttp
import msgspec
import pytest

from perdure.api import guard
from perdure.api.server import Server
from perdure.core.limits import MAX_HEAD, REQUEST_SECONDS
from tests.api.calls import Rest, until
from tests.api.conftest import engine, rest, server, store  # noqa: F401  # fixtures

HEAD = (
    "POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
)
WHOLE = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
UPGRADE = (
    b"GET /wire HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
LONG_POLL = (
    b"POST /worker/poll HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 72\r\n\r\n"
    b'{"incarnation": 1, "poll": 1, "queues": ["q"], "capacity":1, "wait": 20}'
)
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect(server: Server, sent: bytes = b"", answer: bytes = b"") -> Connection:  # noqa: F811
    """A connection on which this was sent, and this answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
    writer.write(sent)
    if answer:
        async with asyncio.timeout(5):
            assert answer in await reader.readuntil(b"\r\n\r\n")
    return reader, writer


async def is_open(connection: Connection) -> bool:
    """Whether the server still keeps it, a tenth of a second later."""
    try:
        async with asyncio.timeout(0.1):
            return await connection[0].read(1) != b""
    except TimeoutError:
        return True
    except ConnectionError:
        return False


async def settled(server: Server, count: int, ready: Callable[[guard.Http], bool]) -> guard.Guard:  # noqa: F811
    """The guard, once so many connections are as this says."""
    assert server._guard is not None and server._uvicorn is not None
    state = server._uvicorn.server_state
    await until(lambda: sum(isinstance(it, guard.Http) and ready(it) for it in state.connections) == count)
    return server._guard


async def test_b162_idle_connections_and_slow_bodies_hold_up_nobody(
    server: Server,  # noqa: F811
    rest: Rest,  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A thousand connections that say nothing, and a hundred bodies that come byte by byte and end in the middle. That
    is no error in the log."""
    port = int(server.url.rpartition(":")[2])
    idle = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", port) for _ in range(1000)))
    slow = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", port) for _ in range(100)))
    for _, writer in slow:
        writer.write(HEAD.encode())
    for byte in b'{"type"':
        for _, writer in slow:
            writer.write(b"1\r\n%c\r\n" % byte)
        begin = time.monotonic()
        assert (await rest("POST", "/v1/tasks", {"type": "t"})).status == 202
        assert (await rest("GET", "/v1/tasks")).status == 200
        assert time.monotonic() - begin < 1
    for _, writer in (*idle, *slow):
        writer.transport.abort()
    assert (await rest("GET", "/healthz")).status == 200
    assert len((await rest("GET", "/v1/tasks")).body["tasks"]) == 7
    await server.stop()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_b162_requests_that_do_not_come_are_given_up(server: Server, rest: Rest) -> None:  # noqa: F811
    """Nothing, blank lines, half a head, half a body and half a second request: not for longer than the limit. What
    waits for its answer, works, or rests between requests stays."""
    slow = [
        await connect(server),
        await connect(server, b"\r\n"),
        await connect(server, WHOLE[:-2]),
        await connect(server, HEAD.encode() + b"1\r\n{\r\n"),
        await connect(server, WHOLE, b"200 OK"),
    ]
    await slow[-1][0].read(15)
    slow[-1][1].write(WHOLE[:10])
    good = [await connect(server, UPGRADE, b"101 "), await connect(server, LONG_POLL), await connect(server, WHOLE)]
    look = (await settled(server, len(slow), lambda it: it.awaited is not None)).look
    now = asyncio.get_running_loop().time()
    look(now + REQUEST_SECONDS - 5)
    assert all([await is_open(connection) for connection in slow])
    await good[-1][0].readuntil(b'"}')
    look(now + REQUEST_SECONDS + 5)
    assert [await is_open(connection) for connection in slow] == [False] * len(slow)
    assert all([await is_open(connection) for connection in good])
    assert (await rest("GET", "/healthz")).status == 200
    for _, writer in (*slow, *good):
        writer.transport.abort()


@pytest.mark.parametrize("part", [b"GET /v1/tasks?state=", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: "])
async def test_b162_a_head_has_a_limit(server: Server, rest: Rest, part: bytes) -> None:  # noqa: F811
    reader, writer = await connect(server, part + b"a" * (MAX_HEAD - 1000))
    assert await is_open((reader, writer))
    writer.write(b"a" * 2000)
    async with asyncio.timeout(5):
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 431 ")
    problem = msgspec.json.decode(body)
    assert (problem["code"], problem["limit"]) == ("head_too_large", f"{MAX_HEAD} bytes")
    assert (await rest("GET", "/healthz", headers={"X": "a" * 30_000})).status == 200
    writer.close()


async def test_b162_what_is_not_http_gets_a_problem_document(server: Server) -> None:  # noqa: F811
    for garbage in (
        b"\x16\x03\x01\x02\x00",
        b"GARBAGE\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET //\xff HTTP/1.1\r\n\r\n",
    ):
        reader, writer = await connect(server, garbage)
        async with asyncio.timeout(5):
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ") and b"application/problem+json" in head
        assert msgspec.json.decode(body)["code"] == "invalid_argument"
        writer.close()


async def test_b162_unfinished_requests_take_bounded_memory(
    server: Server,  # noqa: F811
    rest: Rest,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By POST and by WebSocket: the largest goes, the small ones are served."""
    monkeypatch.setattr(guard, "MAX_UNFINISHED", 1_000_000)
    post = "POST /wire/find HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"
    small = await connect(server, post.format(300_000).encode() + b" " * 299_998)
    large = await connect(server, post.format(700_000).encode() + b" " * 600_000)
    frame = b"\x02\xff" + (800_000).to_bytes(8) + bytes(4)
    by_wire = await connect(server, UPGRADE, b"101 ")
    by_wire[1].write(frame + bytes(700_000))
    watch = await settled(server, 1, lambda it: it.held == 600_000)
    assert server._uvicorn is not None
    await until(lambda: sum(map(guard._held, server._uvicorn.server_state.connections)) == 1_599_998)
    watch.look(asyncio.get_running_loop().time())
    assert [await is_open(it) for it in (small, large, by_wire)] == [True, True, False]
    watch.look(asyncio.get_running_loop().time())
    small[1].write(b"{}")
    assert b"200 OK" in await small[0].readuntil(b"\r\n\r\n")
    large[1].write(b" " * 99_998 + b"{}")
    assert b"200 OK" in await large[0].readuntil(b"\r\n\r\n")
    watch.look(asyncio.get_running_loop().time())
    assert sum(map(guard._held, server._uvicorn.server_state.connections)) == 0
    for _, writer in (small, large, by_wire):
        writer.transport.abort()


async def test_b162_descriptors_are_left_for_the_database(
    server: Server,  # noqa: F811
    rest: Rest,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those that have said nothing for the longest time have to go."""
    assert (await rest("GET", "/healthz")).status == 200
    good = [await connect(server, UPGRADE, b"101 "), await connect(server, LONG_POLL)]
    idle = [await connect(server) for _ in range(10)]
    look = (await settled(server, 10, lambda it: it.awaited is not None)).look
    monkeypatch.setattr(guard, "SPARE_DESCRIPTORS", resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 7)
    look(asyncio.get_running_loop().time())
    assert [await is_open(it) for it in idle] == [False] * 6 + [True] * 4
    assert all([await is_open(it) for it in good])
    assert (await rest("GET", "/healthz")).status == 200
    for _, writer in (*idle, *good):
        writer.transport.abort()


async def test_b162_a_message_of_many_requests_lets_others_have_their_turn(
    server: Server,  # noqa: F811
    rest: Rest,  # noqa: F811
) -> None:
    """200,000 in one WebSocket message: each is answered, and the server answers others meanwhile."""
    async with aiohttp.ClientSession() as session, session.ws_connect(server.url + "/wire", max_msg_size=0) as socket:
        await socket.send_bytes(msgspec.msgpack.encode([(n, "nothing", {}) for n in range(200_000)]))
        longest, answered = 0.0, 0

        async def read() -> None:
            nonlocal answered
            while answered < 200_000:
                answered += len(msgspec.msgpack.decode(await socket.receive_bytes(timeout=10)))

        reading = asyncio.create_task(read())
        while not reading.done():
            begin = time.monotonic()
            assert (await rest("GET", "/healthz")).status == 200
            longest = max(longest, time.monotonic() - begin)
        await reading
    assert longest < 1


@pytest.mark.parametrize("path", ["/v1/tasks", "/healthz", "/wire/find", "/wire"])
@pytest.mark.parametrize("host", ["evil.example", "evil.example:7400", "127.0.0.1.evil.example", "[2001:db8::1]:7400"])
async def test_b162_a_name_that_stands_for_this_machine_reaches_nothing(server: Server, host: str, path: str) -> None:  # noqa: F811
    """A page may let its name stand for 127.0.0.1; then its requests are of the same origin for a browser."""
    _, writer = await connect(server, UPGRADE.replace(b"localhost", host.encode()), b" 403 ")
    writer.transport.abort()
    async with aiohttp.ClientSession() as session, session.get(server.url + path, headers={"Host": host}) as answer:
        assert answer.status == 403
        assert (await answer.json(content_type="application/problem+json"))["field"] == "host"


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:80", "127.0.0.1", "[::1]", "[::1]:7400", "perdure.localhost:7400"]
)
async def test_b162_names_of_this_machine_reach_a_server_without_keys(server: Server, host: str) -> None:  # noqa: F811
    headers = {"Host": host}
    async with aiohttp.ClientSession() as session, session.get(server.url + "/v1/tasks", headers=headers) as answer:
        assert answer.status == 200


@pytest.mark.parametrize(
    ("site", "status"), [("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200), (None, 200)]
)
async def test_b162_pages_of_other_sites_change_nothing(server: Server, site: str | None, status: int) -> None:  # noqa: F811
    """A POST without a body is sent by a browser without asking first, whatever page has made it."""
    headers = {} if site is None else {"Sec-Fetch-Site": site}
    async with aiohttp.ClientSession(headers=headers) as session:
        for path in ("/v1/queues/default/pause", "/v1/queues/default/resume"):
            async with session.post(server.url + path) as answer:
                assert answer.status == status
        async with session.get(server.url + "/v1/tasks") as answer:
            assert answer.status == 200
