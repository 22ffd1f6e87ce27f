"""Events and streams as readers get them: by every transport, by REST, and as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from perdure.api.keys import hash_key, new_key
from perdure.api.server import Server
from perdure.client.base import Service
from perdure.core import event_messages as e
from perdure.core import messages as m
from perdure.core.errors import Conflict, Gone, InvalidArgument, LeaseLost, NotFound, PayloadTooLarge, from_problem
from perdure.core.limits import MAX_CHUNK
from perdure.core.model import Failure, RetryPolicy
from perdure.engine.engine import Engine
from tests.api.calls import Rest, enqueue, new_rest, poll, succeed

LONG = 20
"""Seconds that something which should come at once may take on a slow machine."""


@asynccontextmanager
async def sse(server: Server, path: str, **headers: str) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """The events of an answer that goes on, signs of life left out."""
    async with (
        aiohttp.ClientSession(server.url) as session,
        session.get(path, headers={"Accept": "text/event-stream", **headers}) as response,
    ):
        assert response.status == 200, await response.text()
        assert response.content_type == "text/event-stream"

        async def events() -> AsyncIterator[dict[str, Any]]:
            found: dict[str, Any] = {}
            async for line in response.content:
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name in ("id", "event"):
                    found[name] = value
                elif name == "data":
                    found["data"] = json.loads(value)
                elif not line.strip():
                    if "data" in found:
                        yield found
                    found = {}

        async with asyncio.timeout(LONG):
            yield events()


async def done(service: Service, number: int) -> str:
    """The id of a task that succeeded."""
    (task_id,) = await enqueue(service)
    (delivery,) = await poll(service, number)
    await succeed(service, delivery)
    return task_id


# events --------------------------------------------------------------------------------------------------------------
async def test_events_by_every_transport(service: Service) -> None:
    """API-20: from a cursor on, in order, each once."""
    with pytest.raises(Conflict):
        await service.events(e.ReadEvents())
    feed = await service.record_events(e.RecordEvents())
    ids = [await done(service, number) for number in (1, 2, 3)]
    first = await service.events(e.ReadEvents(feed.last, limit=2, wait=LONG))
    assert [event.subject for event in first.events] == ids[:2]
    second = await service.events(e.ReadEvents(first.cursor, wait=LONG))
    assert [event.subject for event in second.events] == ids[2:]
    event = second.events[0]
    assert (event.specversion, event.type, event.source) == ("1.0", "task.succeeded", "/namespaces/default")
    assert event.data == e.EventData(ids[2], "t", "default", "default", "SUCCEEDED", 1)
    assert second.cursor == event.id
    assert (await service.events(e.ReadEvents(second.cursor))).events == []
    assert (await service.events(e.ReadEvents())).cursor == second.cursor
    assert len((await service.events(e.ReadEvents("oldest"))).events) == 3


async def test_types_filter(service: Service) -> None:
    await service.record_events(e.RecordEvents())
    await done(service, 1)
    (gone,) = await enqueue(service)
    await service.cancel(m.Cancel(gone))
    page = await service.events(e.ReadEvents("oldest", ("task.canceled", "workflow.*")))
    assert [event.subject for event in page.events] == [gone]
    assert len((await service.events(e.ReadEvents("oldest", ("task.*",)))).events) == 2
    empty = await service.events(e.ReadEvents("oldest", ("workflow.failed",), wait=0.01))
    assert (empty.events, empty.cursor) == ([], page.cursor)


async def test_bad_requests_name_the_field(service: Service) -> None:
    await service.record_events(e.RecordEvents())
    for body, field in (
        (e.ReadEvents("x"), "cursor"),
        (e.ReadEvents(types=("task.exploded",)), "types"),
        (e.ReadEvents(limit=0), "limit"),
    ):
        with pytest.raises(InvalidArgument) as caught:
            await service.events(body)
        assert caught.value.field == field


async def test_a_cursor_that_is_too_old(service: Service, engine: Engine) -> None:
    """Never a gap in silence: the oldest cursor is in the answer."""
    await service.record_events(e.RecordEvents())
    await done(service, 1)
    first = await service.events(e.ReadEvents("oldest", wait=LONG))
    await done(service, 2)
    async with engine.store.batch() as batch:
        await batch.trim_events(engine.now() + 1, 10)
    with pytest.raises(Gone) as caught:
        await service.events(e.ReadEvents("0-0"))
    oldest = caught.value.limit
    assert oldest is not None
    assert oldest > first.cursor
    assert (await service.events(e.ReadEvents(oldest))).events == []


async def test_recording_can_end(service: Service) -> None:
    await service.record_events(e.RecordEvents())
    await done(service, 1)
    assert (await service.record_events(e.RecordEvents(False))).recording is False
    await done(service, 2)
    assert len((await service.events(e.ReadEvents("oldest"))).events) == 1, "what was recorded can be read"


async def test_server_sent_events(service: Service, server: Server) -> None:
    """API-20: they come as they happen, and a reader that comes back misses nothing."""
    await service.record_events(e.RecordEvents())
    old = await done(service, 1)
    async with sse(server, "/v1/events?cursor=oldest") as events:
        first = await anext(events)
        assert (first["event"], first["data"]["subject"]) == ("task.succeeded", old)
        assert first["data"]["data"]["failure_code"] is None
        new = await done(service, 2)
        assert (await anext(events))["data"]["subject"] == new
    async with sse(server, "/v1/events?cursor=oldest", **{"Last-Event-ID": first["id"]}) as events:
        assert (await anext(events))["data"]["subject"] == new


async def test_refused_before_the_first_event(rest: Rest) -> None:
    answer = await rest("GET", "/v1/events", headers={"Accept": "text/event-stream"})
    assert (answer.status, answer.body["code"]) == (409, "conflict")


async def test_a_reader_that_takes_nothing_is_only_behind(service: Service, server: Server) -> None:
    """OBS-28: neither the server nor other readers wait for it, and it gets all in the end."""
    await service.record_events(e.RecordEvents())
    async with sse(server, "/v1/events?cursor=oldest&limit=1") as slow:
        ids = [await done(service, number) for number in range(1, 40)]
        page = await service.events(e.ReadEvents("oldest", limit=100, wait=LONG))
        assert [event.subject for event in page.events] == ids
        assert [(await anext(slow))["data"]["subject"] for _ in ids] == ids


async def test_a_server_that_stops_ends_the_answers(service: Service, server: Server) -> None:
    await service.record_events(e.RecordEvents())
    async with sse(server, "/v1/events?cursor=oldest") as events:
        await done(service, 1)
        await anext(events)
        async with asyncio.timeout(LONG):
            await server.stop()
        assert [event async for event in events] == []


async def test_an_answer_ends_when_the_key_is_revoked(
    engine: Engine, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SEC-02: also one that goes on."""
    monkeypatch.setattr("perdure.api.sse.BEAT_SECONDS", 0.1)
    key = new_key()
    await engine.store.add_api_key(hash_key(key), "default", "test")
    await engine.outbox.record("default", True)
    async with asyncio.timeout(LONG):
        while not server._app.gate.locked:
            await asyncio.sleep(0.05)
    async with sse(server, "/v1/events?cursor=oldest", Authorization=f"Bearer {key}") as events:
        await engine.store.remove_api_key(hash_key(key))
        (last,) = [event async for event in events]
    assert (last["event"], last["data"]["code"]) == ("problem", "unauthenticated")


async def test_a_task_is_followed_to_its_end(service: Service, server: Server) -> None:
    (task_id,) = await enqueue(service)
    async with sse(server, f"/v1/tasks/{task_id}/events") as events:
        assert (await anext(events))["data"]["state"] == "ENQUEUED"
        (delivery,) = await poll(service)
        assert (await anext(events))["data"]["state"] == "LEASED"
        await succeed(service, delivery)
        last = await anext(events)
        assert (last["event"], last["data"]["state"]) == ("closed", "SUCCEEDED")
        assert [event async for event in events] == []


async def test_events_of_another_namespace(server: Server, service: Service) -> None:
    """SEC-19: none of them, nor its streams."""
    await service.record_events(e.RecordEvents())
    task_id = await done(service, 1)
    async with new_rest(server.url, **{"Perdure-Namespace": "other"}) as other:
        await other("POST", "/v1/events:record", {"on": True})
        assert (await other("GET", "/v1/events?cursor=oldest")).body["events"] == []
        assert (await other("GET", f"/v1/tasks/{task_id}/stream")).status == 404


# streams -------------------------------------------------------------------------------------------------------------
def item(data: bytes, kind: str = "text") -> e.StreamItem:
    return e.StreamItem(kind, data)


async def write(service: Service, delivery: m.Delivery, first: int, *items: e.StreamItem) -> None:
    (outcome,) = (
        await service.write_stream(e.WriteStream([e.StreamWrite(delivery.lease, first, list(items))]))
    ).outcomes
    if outcome.error is not None:
        raise from_problem(outcome.error)


async def test_streams_by_every_transport(service: Service) -> None:
    """A/Evolution (EVO-04, WORK-21): read from an offset on while the task runs, and after it."""
    (task_id,) = await enqueue(service)
    assert await service.stream(e.ReadStream(task_id)) == e.StreamPage([], 0)
    (delivery,) = await poll(service)
    await write(service, delivery, 0, item(b"Once"), item(b" upon"))
    page = await service.stream(e.ReadStream(task_id, wait=LONG))
    assert page == e.StreamPage([e.StreamChunk(0, 1, "text", b"Once"), e.StreamChunk(1, 1, "text", b" upon")], 2)
    reading = asyncio.create_task(service.stream(e.ReadStream(task_id, page.next, wait=LONG)))
    await write(service, delivery, 2, item(b'{"a":1}', "json"))
    assert (await reading).chunks == [e.StreamChunk(2, 1, "json", b'{"a":1}')]
    await succeed(service, delivery)
    assert await service.stream(e.ReadStream(task_id, 3, wait=LONG)) == e.StreamPage([], 3, True)
    with pytest.raises(LeaseLost):
        await write(service, delivery, 3, item(b"late"))


async def test_bad_chunks_are_refused_one_by_one(service: Service) -> None:
    await enqueue(service, m.NewTask("a"), m.NewTask("b"))
    one, two = await poll(service)
    writes = [
        e.StreamWrite(one.lease, 0, [item(bytes(MAX_CHUNK + 1))]),
        e.StreamWrite(two.lease, 0, [item(b"fine")]),
        e.StreamWrite(one.lease, 0, [item(b"", "picture")]),
    ]
    large, fine, strange = (await service.write_stream(e.WriteStream(writes))).outcomes
    assert large.error is not None
    assert (large.error.code, large.error.field) == (PayloadTooLarge.code, "chunks[0].data")
    assert fine.error is None
    assert strange.error is not None
    assert strange.error.field == "chunks[0].kind"
    with pytest.raises(NotFound):
        await service.stream(e.ReadStream("01a22c60-3b9a-7000-9de6-012d84a3cb20"))


async def test_streams_as_server_sent_events(service: Service, server: Server, rest: Rest) -> None:
    """Another attempt shows as such, and the end of the task ends the answer."""
    retry = RetryPolicy(delays=(0.001,))
    (task_id,) = await enqueue(service, m.NewTask("t", retry=retry))
    (delivery,) = await poll(service)
    async with sse(server, f"/v1/tasks/{task_id}/stream") as events:
        await write(service, delivery, 0, item(b"a"), item(b"\xff\xfe", "bytes"))
        assert [(await anext(events))["data"]["data"] for _ in range(2)] == ["a", "//4="]
        failure = Failure(message="boom")
        await service.complete(m.Complete([m.Completion(delivery.lease, "failed", failure=failure)]))
        (again,) = await poll(service, 2)
        await write(service, again, 0, item(b"[1]", "json"))
        restarted, chunk = await anext(events), await anext(events)
        assert (restarted["event"], restarted["data"]) == ("restarted", {"attempt": 2})
        assert chunk == {"id": "3", "event": "chunk", "data": {"offset": 2, "attempt": 2, "kind": "json", "data": [1]}}
        await succeed(service, again)
        assert [event["event"] async for event in events] == ["closed"]
    page = (await rest("GET", f"/v1/tasks/{task_id}/stream?offset=2")).body
    assert page == {"chunks": [{"offset": 2, "attempt": 2, "kind": "json", "data": [1]}], "next": 3, "closed": False}
    assert (await rest("GET", f"/v1/tasks/{task_id}/stream?offset=3")).body == {"chunks": [], "next": 3, "closed": True}


async def test_pages_of_large_chunks(service: Service) -> None:
    """An answer has 4 MiB at most, and the next one goes on behind it."""
    (task_id,) = await enqueue(service)
    (delivery,) = await poll(service)
    for first in range(0, 80, 10):
        await write(service, delivery, first, *[item(bytes(MAX_CHUNK), "bytes")] * 10)
    page = await service.stream(e.ReadStream(task_id))
    assert [chunk.offset for chunk in page.chunks] == list(range(64))
    rest = await service.stream(e.ReadStream(task_id, page.next))
    assert [chunk.offset for chunk in rest.chunks] == list(range(64, 80))
