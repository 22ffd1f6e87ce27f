"""Events and streams with real applications and workers over a SQLite file."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure import (
    AsyncPerdure,
    Cancelled,
    DataConverter,
    InvalidArgument,
    PayloadTooLarge,
    Perdure,
    RetryPolicy,
    task,
    workflow,
)
from perdure.core.errors import ResourceExhausted, Unavailable
from perdure.core.event_messages import ReadEvents, ReadStream
from perdure.core.limits import MAX_CHUNK
from perdure.core.streams import ChunkKind
from perdure.sdk.converter import PLAIN
from perdure.sdk.stream import Chunk, StreamWriter

LONG = 60
"""Seconds that something which should come at once may take on a slow machine."""
GO = threading.Event()


@task(name="outbox_tell")
def tell(ctx: Any, words: list[str]) -> int:
    for word in words:
        ctx.stream.write(word)
    return len(words)


@task(name="outbox_values")
async def values(ctx: Any, _: None) -> None:
    for value in (b"\xff\x00", "text", {"a": [1, None]}, 1.5, None, ["x"]):
        ctx.stream.write(value)


@task(name="outbox_twice", retries=RetryPolicy(max_attempts=2, delays=(0.01,)))
def twice(ctx: Any, _: None) -> None:
    ctx.stream.write(f"attempt {ctx.attempt}")
    if ctx.attempt == 1:
        raise ValueError("again")


@task(name="outbox_waiting")
async def waiting(ctx: Any, _: None) -> str:
    ctx.stream.write("before")
    while not GO.is_set():
        await asyncio.sleep(0.01)
    ctx.stream.write("after")
    return "done"


@task(name="outbox_process", process=True)
def in_process(ctx: Any, _: None) -> str:
    try:
        ctx.stream.write("x")
    except InvalidArgument as error:
        return str(error.field)
    return "none"


@workflow(name="outbox_greeting")
async def greeting(ctx: Any, name: str) -> int:
    return int(await ctx.execute_activity(tell, [name], start_to_close="1m"))


TASKS: list[Any] = [tell, values, twice, waiting, in_process]


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[AsyncPerdure]:
    async with AsyncPerdure(f"sqlite:///{tmp_path / 'jobs.db'}") as app:
        yield app


async def collected(chunks: AsyncIterator[Chunk]) -> list[Chunk]:
    async with asyncio.timeout(LONG):
        return [chunk async for chunk in chunks]


async def test_a_stream_is_read_while_the_task_runs_and_after_it(app: AsyncPerdure) -> None:
    """EVO-04, WORK-21: what `write` returned for is there before the end of the task is."""
    GO.clear()
    async with app.worker(tasks=TASKS, queues=["default"], workflows=[]):
        job = await app.enqueue(waiting)
        stream = job.stream()
        async with asyncio.timeout(LONG):
            assert (await anext(stream)).value == "before"
        assert (await job.status()).closed_at is None
        GO.set()
        assert await job.result(LONG) == "done"
        assert [chunk.value for chunk in await collected(stream)] == ["after"]
    assert await collected(job.stream(1)) == [Chunk(1, 1, "after")]


async def test_chunks_arrive_as_they_were_written(app: AsyncPerdure) -> None:
    async with app.worker(tasks=TASKS, queues=["default"], workflows=[]):
        job = await app.enqueue(values)
        chunks = await collected(job.stream())
    assert [chunk.value for chunk in chunks] == [b"\xff\x00", "text", {"a": [1, None]}, 1.5, None, ["x"]]
    assert [chunk.offset for chunk in chunks] == list(range(6))


async def test_many_chunks_of_many_tasks(app: AsyncPerdure) -> None:
    words = [str(number) for number in range(2_000)]
    async with app.worker(tasks=TASKS, queues=["default"], workflows=[]):
        jobs = [await app.enqueue(tell, words) for _ in range(5)]
        for job in jobs:
            assert [chunk.value for chunk in await collected(job.stream())] == words
            assert await job.result(LONG) == len(words)


async def test_another_attempt_says_that_it_began_again(app: AsyncPerdure) -> None:
    async with app.worker(tasks=TASKS, queues=["default"], workflows=[]):
        job = await app.enqueue(twice)
        chunks = await collected(job.stream())
    assert chunks == [Chunk(0, 1, "attempt 1"), Chunk(1, 2, "attempt 2", restarted=True)]


async def test_handlers_in_processes_have_no_stream(app: AsyncPerdure) -> None:
    async with app.worker(tasks=TASKS, queues=["default"], workflows=[]):
        assert await (await app.enqueue(in_process)).result(LONG) == "stream"


class Flipped(DataConverter):
    """Stands for encryption."""

    encoding = "test/flipped"

    def encode(self, data: bytes) -> bytes:
        return data[::-1]

    def decode(self, data: bytes) -> bytes:
        return data[::-1]


async def test_chunks_go_through_the_converter(tmp_path: Path) -> None:
    """What is encrypted at rest elsewhere is no plain text here."""
    async with AsyncPerdure(f"sqlite:///{tmp_path / 'jobs.db'}", converter=Flipped()) as app:
        async with app.worker(tasks=TASKS, queues=["default"], workflows=[]):
            job = await app.enqueue(tell, ["secret"])
            assert [chunk.value for chunk in await collected(job.stream())] == ["secret"]
        service = await app.service()
        (chunk,) = (await service.stream(ReadStream(job.id))).chunks
        assert chunk.kind == ChunkKind.PAYLOAD.name.lower()
        assert b"secret" not in chunk.data


async def test_events_of_an_application(app: AsyncPerdure) -> None:
    """API-20: without end, from a cursor on."""
    await app.record_events()
    async with app.worker(tasks=TASKS, queues=["default"], workflows=[]):
        jobs = [await app.enqueue(tell, []) for _ in range(3)]
        async with asyncio.timeout(LONG):
            events = app.events("oldest", ["task.*"])
            found = [await anext(events) for _ in jobs]
            assert {event.subject for event in found} == {job.id for job in jobs}
            assert (await anext(app.events(found[0].id))).id == found[1].id
            later = app.events()
            following = asyncio.ensure_future(anext(later))
            await asyncio.sleep(0.05)
            job = await app.enqueue(tell, [])
            assert (await following).subject == job.id


async def test_events_of_workflows(app: AsyncPerdure) -> None:
    """A run is told of from its beginning to its end, and its activities are not."""
    await app.record_events()
    async with app.worker(tasks=TASKS, queues=["default"], workflows=[greeting]):
        run = await app.start_workflow(greeting, "you", id="outbox-1")
        assert await run.result(LONG) == 1
        async with asyncio.timeout(LONG):
            events = app.events("oldest")
            found = [await anext(events) for _ in range(2)]
    assert [event.type for event in found] == ["workflow.started", "workflow.succeeded"]
    assert {(event.data.workflow_id, event.subject, event.data.type) for event in found} == {
        ("outbox-1", run.run_id, "outbox_greeting")
    }
    page = await (await app.service()).events(ReadEvents("oldest"))
    assert len(page.events) == 2


@pytest.fixture
def blocking_app(tmp_path: Path) -> Iterator[Perdure]:
    with Perdure(f"sqlite:///{tmp_path / 'jobs.db'}") as app:
        yield app


def test_the_blocking_face(blocking_app: Perdure) -> None:
    app = blocking_app
    app.record_events()
    with app.worker(tasks=TASKS, queues=["default"], workflows=[]):
        job = app.enqueue(tell, ["a", "b"])
        assert [chunk.value for chunk in job.stream()] == ["a", "b"]
        assert [chunk.value for chunk in app.stream(job.id, 1)] == ["b"]
        assert next(app.events("oldest")).subject == job.id
    assert app.webhooks() == []


# the writer ----------------------------------------------------------------------------------------------------------
def new_writer() -> StreamWriter:
    return StreamWriter(PLAIN, lambda writer: None)


def test_chunks_are_bounded() -> None:
    writer = new_writer()
    writer.write(bytes(MAX_CHUNK))
    with pytest.raises(PayloadTooLarge):
        writer.write(bytes(MAX_CHUNK + 1))
    for _ in range(255):
        writer.write(bytes(MAX_CHUNK))
    with pytest.raises(ResourceExhausted):
        writer.write(b"x")


@pytest.mark.parametrize("value", [(1, 2), float("nan"), {1: 2}, "\ud800"], ids=repr)
def test_what_would_not_arrive_as_it_is_is_refused(value: object) -> None:
    """B135."""
    with pytest.raises(InvalidArgument):
        new_writer().write(value)


def test_a_writer_whose_lease_is_lost() -> None:
    writer = new_writer()
    writer.write("a")
    writer.end(Cancelled("lost"))
    assert writer.waiting(1_000) == (0, [])
    with pytest.raises(Cancelled):
        writer.write("b")


async def test_a_write_whose_answer_was_lost_comes_again_with_the_same_numbers(app: AsyncPerdure) -> None:
    """IDEM-05 of streams: nothing is stored twice."""
    service = await app.service()
    write = service.write_stream
    lost: list[Any] = []

    async def losing(body: Any) -> Any:
        reply = await write(body)
        if len(lost) < 2:
            lost.append(body)
            raise Unavailable("the answer was lost")
        return reply

    service.write_stream = losing  # type: ignore[method-assign]
    async with app.worker(tasks=TASKS, queues=["default"], workflows=[]):
        job = await app.enqueue(tell, ["a", "b"])
        assert [chunk.value for chunk in await collected(job.stream())] == ["a", "b"]
        assert await job.result(LONG) == 2
    assert len(lost) == 2
