"""What does not speak the protocol: always a problem document of the 400s that says what is wrong, never a 500
(B162)."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest

from perdure.api.server import Server
from perdure.core.limits import MAX_BODY
from tests.api.calls import Answer, Rest

pack = msgspec.msgpack.encode
unpack = msgspec.msgpack.decode

POLL = {"incarnation": 1, "poll": 1, "queues": ["default"], "capacity": 1, "wait": 0.0}
BODIES: list[tuple[str, Any, str | None]] = [
    ("poll", {**POLL, "capacity": "many"}, "capacity"),
    ("poll", {**POLL, "capacity": True}, "capacity"),
    ("poll", {**POLL, "capacity": 1.5}, "capacity"),
    ("poll", {**POLL, "capacity": None}, "capacity"),
    ("poll", {**POLL, "capacities": 1}, "capacities"),
    ("poll", {**POLL, "queues": ["a", 5]}, "queues[1]"),
    ("poll", {"incarnation": 1}, "poll"),
    ("poll", [1, 2], None),
    ("poll", None, None),
    ("enqueue", {"tasks": [{"type": "a"}, {"queue": "b"}]}, "tasks[1].type"),
    ("enqueue", {"tasks": [{"type": "a", "timeouts": {"start": 1}}]}, "tasks[0].timeouts.start"),
    ("complete", {"completions": [{"lease": 5, "outcome": "succeeded"}]}, "completions[0].lease"),
    ("find", {"since": "yesterday"}, "since"),
]
ENCODERS = {"application/msgpack": pack, "application/json": msgspec.json.encode}


async def post(server: Server, path: str, data: Any, content_type: str) -> tuple[int, dict[str, Any]]:
    headers = {"Content-Type": content_type} if content_type else {}
    async with (
        aiohttp.ClientSession(skip_auto_headers=["Content-Type"]) as session,
        session.post(server.url + path, data=data, headers=headers) as answer,
    ):
        raw = await answer.read()
        decode = msgspec.json.decode if "json" in answer.content_type else unpack
        return answer.status, decode(raw)


@pytest.mark.parametrize("content_type", ENCODERS)
async def test_bodies_of_the_wrong_shape(server: Server, content_type: str) -> None:
    for op, body, field in BODIES:
        status, problem = await post(server, f"/wire/{op}", ENCODERS[content_type](body), content_type)
        assert (status, problem["code"]) == (400, "invalid_argument"), (op, body, problem)
        if field is not None:
            assert problem["field"].startswith(field), (body, problem)


@pytest.mark.parametrize("content_type", ENCODERS)
async def test_bodies_cut_off_anywhere(server: Server, content_type: str) -> None:
    whole = ENCODERS[content_type](POLL)
    for size in range(len(whole)):
        status, problem = await post(server, "/worker/poll", whole[:size], content_type)
        assert (status, problem["code"]) == (400, "invalid_argument"), whole[:size]
    status, _ = await post(server, "/worker/poll", whole + b"\x00", content_type)
    assert status == 400


async def test_bodies_that_are_no_bodies(server: Server) -> None:
    deep = b"[" * 100_000
    for data in (b"\xc1", b"\xff\xff", b'{"tasks":"\xff"}', b'{"a":"\\ud800"}', deep, b"\x91" * 100_000, b"NaN"):
        for content_type in ENCODERS:
            status, problem = await post(server, "/wire/enqueue", data, content_type)
            assert (status, problem["code"]) == (400, "invalid_argument"), (data[:20], content_type)


async def test_wrong_paths_methods_and_types(server: Server, rest: Rest) -> None:
    for path in ("/wire/", "/wire/nothing", "/wire/__init__", "/wire/close", "/worker/enqueue", "/wirepoll"):
        assert (await post(server, path, b"{}", "application/json"))[0] == 404, path
    for content_type in ("text/plain", "application/x-www-form-urlencoded", ""):
        status, problem = await post(server, "/wire/find", b"{}", content_type)
        assert (status, problem["field"]) == (400, "content-type")
    assert (await rest("GET", "/wire/poll")).status == 405
    assert (await rest("GET", "/wire")).status == 404


async def chunks(size: int) -> AsyncIterator[bytes]:
    for _ in range(0, size, 1 << 20):
        yield b"x" * (1 << 20)


async def test_bodies_that_are_too_large(server: Server) -> None:
    """413, declared or in chunks; the server goes on."""
    for path in ("/wire/enqueue", "/v1/tasks"):
        for data in (io.BytesIO(b"x" * (MAX_BODY + 1)), chunks(MAX_BODY + (2 << 20))):
            try:
                status, problem = await post(server, path, data, "application/json")
            except aiohttp.ClientError:
                continue  # answered and closed while the rest was still being sent
            assert (status, problem["code"]) == (413, "payload_too_large"), path
    assert (await post(server, "/wire/find", b"{}", "application/json"))[0] == 200


async def talk(server: Server, *messages: bytes | str) -> list[Any]:
    """The frames that a raw WebSocket gets for these messages, one answer each."""
    answers: list[Any] = []
    async with aiohttp.ClientSession() as session, session.ws_connect(server.url + "/wire") as socket:
        for message in messages:
            await (socket.send_str(message) if isinstance(message, str) else socket.send_bytes(message))
            answers += unpack(await socket.receive_bytes(timeout=5))
    return answers


async def test_messages_that_are_no_frames(server: Server) -> None:
    """They are answered under id 0, and the connection goes on."""
    good = pack([(7, "find", {})])
    garbage = [
        b"",
        b"\xc1",
        pack(5),
        pack([5]),
        b"\x91" * 100_000,
        pack([(1, "find")]),
        pack([("1", "find", {})]),
        good[:-1],
        "text",
    ]
    answers = await talk(server, *garbage, good)
    assert [(id, status) for id, status, _ in answers] == [(0, 400)] * len(garbage) + [(7, 0)]


MASK = bytes(4)
BROKEN_FRAMES = {
    "without a mask": (b"\x82\x01a", 1002),
    "of no kind": (b"\x83\x80" + MASK, 1002),
    "with reserved bits": (b"\xf2\x80" + MASK, 1002),
    "a part of nothing": (b"\x80\x81" + MASK + b"a", 1002),
    "two beginnings": (b"\x02\x81" + MASK + b"a" + b"\x02\x81" + MASK + b"b", 1002),
    "half a ping": (b"\x09\x80" + MASK, 1002),
    "a large ping": (b"\x89\xfe\x01\x00" + MASK + bytes(256), 1002),
    "a close of one byte": (b"\x88\x81" + MASK + b"a", 1002),
    "a terabyte": (b"\x82\xff" + (1 << 40).to_bytes(8) + MASK, 1009),
    "2**64 bytes": (b"\x82\xff" + b"\xff" * 8 + MASK, 1009),
}
UPGRADE = (
    b"GET /wire HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


@pytest.mark.parametrize("kind", BROKEN_FRAMES)
async def test_frames_that_are_no_frames_of_a_websocket(
    server: Server, rest: Rest, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """The connection is closed with the code that says why; the server goes on, and its log is quiet."""
    sent, code = BROKEN_FRAMES[kind]
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
    writer.write(UPGRADE)
    assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
    writer.write(sent)
    async with asyncio.timeout(5):
        answer = await reader.read()
    assert (answer[0], int.from_bytes(answer[2:4])) == (0x88, code)
    writer.close()
    assert (await rest("GET", "/healthz")).status == 200
    assert [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []


async def test_text_that_is_no_text_is_answered_like_other_text(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
    writer.write(UPGRADE)
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"\x81\x82" + MASK + b"\xff\xfe")
    async with asyncio.timeout(5):
        size = (await reader.readexactly(2))[1]
        size = int.from_bytes(await reader.readexactly(2)) if size == 126 else size
        [(id, status, _)] = unpack(await reader.readexactly(size))
    assert (id, status) == (0, 400)
    writer.close()
    assert caplog.records == []


async def test_frames_with_bad_bodies(server: Server) -> None:
    """Each is answered by itself; its neighbours in the message are served."""
    frames = [(n, op, body) for n, (op, body, _) in enumerate(BODIES, 1)]
    answers = await talk(server, pack([*frames, (98, "nothing", {}), (99, "cancel", {"task_id": "x"})]))
    assert {(id, status) for id, status, _ in answers} == {
        *((n, 400) for n in range(1, len(BODIES) + 1)), (98, 404), (99, 400),
    }  # fmt: skip


async def test_an_abandoned_request_is_not_answered(server: Server) -> None:
    """Its number is free again at once."""
    waiting = (1, "poll", {**POLL, "wait": 20.0})
    again = pack([waiting, waiting])
    assert [(id, status) for id, status, _ in await talk(server, again)] == [(1, 400)]
    answers = await talk(server, pack([waiting, (1, "abandon", None), (1, "poll", {**POLL, "poll": 2})]))
    assert answers == [[1, 0, {"tasks": []}]]


async def test_a_refused_handshake_is_answered_with_a_problem_document(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """And the log of the server holds no error: nothing went wrong with it."""
    request = (
        "GET /wire HTTP/1.1\r\nHost: localhost\r\nOrigin: https://example.org\r\n"
        "Upgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
    writer.write(request.encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 400")
    problem = msgspec.json.decode(body)
    assert (problem["code"], problem["field"]) == ("invalid_argument", "origin")
    writer.close()
    await server.stop()
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


async def test_web_pages_may_not_open_the_wire(server: Server) -> None:
    """A page from anywhere could else use a server on the visitor's machine."""
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await session.ws_connect(server.url + "/wire", origin="https://example.org")
        assert caught.value.status == 400
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await session.ws_connect(server.url + "/elsewhere")
        assert caught.value.status == 404


REST: list[tuple[str, str, Any, int, str | None]] = [
    ("POST", "/v1/tasks", b"{", 400, None),
    ("POST", "/v1/tasks", b"", 400, None),
    ("POST", "/v1/tasks", [], 400, None),
    ("POST", "/v1/tasks", {}, 400, "task_type"),
    ("POST", "/v1/tasks", {"type": 5}, 400, "type"),
    ("POST", "/v1/tasks", {"type": "a", "task_type": "b"}, 400, "task_type"),
    ("POST", "/v1/tasks", {"type": "a", "color": "red"}, 400, "color"),
    ("POST", "/v1/tasks", {"type": "a", "delay": "42 parsecs"}, 400, "delay"),
    ("POST", "/v1/tasks", {"type": "a", "delay": -1}, 400, "delay"),
    ("POST", "/v1/tasks", {"type": "a", "run_at": "2027-01-01T00:00:00"}, 400, "run_at"),
    ("POST", "/v1/tasks", {"type": "a", "run_at": "2027-01-01T00:00:00Z", "delay": 1}, 400, "run_at"),
    ("POST", "/v1/tasks", {"type": "a", "priority": 6}, 400, "priority"),
    ("POST", "/v1/tasks", {"type": "a", "retry": {"max_attempts": 0}}, 400, "retry.max_attempts"),
    ("POST", "/v1/tasks", {"type": "a", "retry": {"attempts": 3}}, 400, "retry.attempts"),
    ("POST", "/v1/tasks", {"type": "a", "timeouts": {"lease": "PT0.1S"}}, 400, "timeouts.lease"),
    ("POST", "/v1/tasks", {"type": "a", "payload": "x" * 300_000}, 413, "payload"),
    ("POST", "/v1/tasks", {"type": "\x00"}, 400, "type"),
    ("POST", "/v1/tasks:batch", {"tasks": []}, 400, "tasks"),
    ("POST", "/v1/tasks:batch", {"tasks": [{"type": "a"}] * 1_001}, 400, "tasks"),
    ("GET", "/v1/tasks?limit=-1", None, 400, "limit"),
    ("GET", "/v1/tasks?limit=1000000000", None, 400, "limit"),
    ("GET", "/v1/tasks?limit=abc", None, 400, "limit"),
    ("GET", "/v1/tasks?state=%27--", None, 400, "state"),
    ("GET", "/v1/tasks?since=tomorrow", None, 400, "since"),
    ("GET", "/v1/tasks?since=2027-01-01", None, 400, "since"),
    ("GET", "/v1/tasks?cursor=%00", None, 400, "cursor"),
    ("GET", "/v1/tasks?stat=FAILED", None, 400, "stat"),
    ("GET", "/v1/tasks?state=FAILED&or=1", None, 400, "or"),
    ("GET", "/v1/queues?limit=5", None, 400, "limit"),
    ("GET", "/v1/tasks?type=" + "a" * 10_000, None, 400, "type"),
    ("GET", "/jobs/7?wait=-1", None, 400, "wait"),
    ("GET", "/jobs/7?wait=nan", None, 400, "wait"),
    ("GET", "/jobs/7/result?wait=1e9", None, 400, "wait"),
    ("GET", "/v1/tasks/7", None, 400, "task_id"),
    ("GET", "/v1/tasks/01a22c5e-1f18-7000-aa4d-4bdddeb7e306?wait=1h", None, 400, "wait"),
    ("GET", "/v1/tasks/01a22c5e-1f18-7000-aa4d-4bdddeb7e306?wait=", None, 400, "wait"),
    ("GET", "/v1/tasks/01a22c5e-1f18-7000-aa4d-4bdddeb7e306", None, 404, "task_id"),
    ("GET", "/jobs/01a22c5e-1f18-7000-aa4d-4bdddeb7e306", None, 404, "task_id"),
    ("POST", "/v1/tasks/7/cancel", None, 400, "task_id"),
    ("POST", "/v1/tasks/7/cancel", {"reason": 5}, 400, "reason"),
    ("POST", "/v1/jobs/7/cancel", b"{", 400, None),
    ("POST", "/v1/tasks/01a22c5e-1f18-7000-aa4d-4bdddeb7e306/retry", None, 404, "task_id"),
    ("GET", "/v1/nothing", None, 404, None),
    ("GET", "/", None, 404, None),
    ("GET", "/v1/tasks/%ff%fe", None, 400, "task_id"),
]


def is_problem(answer: Answer) -> bool:
    return answer.type == "application/problem+json" and answer.body["status"] == answer.status


async def test_rest_refuses_with_problem_documents(rest: Rest) -> None:
    """API-25."""
    for method, path, body, status, field in REST:
        options = {"data": body, "headers": {"Content-Type": "application/json"}} if isinstance(body, bytes) else {}
        answer = await rest(method, path, None if options else body, **options)
        assert (answer.status, is_problem(answer)) == (status, True), (method, path, str(body)[:80], answer)
        assert answer.body.get("field") == field, (path, str(body)[:80], answer)


async def test_rest_answers_every_method_everywhere(rest: Rest) -> None:
    paths = ("/v1/tasks", "/v1/tasks:batch", "/v1/tasks/7", "/v1/tasks/7/cancel", "/jobs/7", "/healthz", "/v1/workers")
    for path in paths:
        for method in ("PUT", "DELETE", "PATCH"):
            answer = await rest(method, path)
            assert (answer.status, is_problem(answer), answer.body["code"]) == (405, True, "method_not_allowed")
            assert answer.headers["allow"]
        answer, get = await rest("HEAD", path), await rest("GET", path)
        assert (answer.status, answer.type, answer.body) == (get.status, get.type, None), path


async def test_rest_takes_only_what_says_it_is_json(rest: Rest) -> None:
    """A form on any web page can send text/plain to any server; JSON it cannot."""
    for content_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = await rest("POST", "/v1/tasks", data=b'{"type":"a"}', headers={"Content-Type": content_type})
        assert (answer.status, answer.body["field"]) == (400, "content-type")


async def test_numbers_are_kept_as_written(rest: Rest) -> None:
    """A payload is the owner's: no digit is rounded on its way through."""
    written = b'{"task_type":"t","payload":{"n":123456789012345678901234567890,"f":1.10,"n":1},"delay":60}'
    made = await rest("POST", "/v1/tasks", data=written, headers={"Content-Type": "application/json"})
    async with rest._session.get(f"/v1/tasks/{made.body['id']}") as answer:
        assert b'"payload":{"n":123456789012345678901234567890,"f":1.10,"n":1}' in await answer.read()
