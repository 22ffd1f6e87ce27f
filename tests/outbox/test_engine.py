"""What an engine publishes of what its batches do, over each store."""

from __future__ import annotations

import asyncio

import pytest

from perdure.core import commands as c
from perdure.core.errors import Conflict, LeaseLost, ResourceExhausted
from perdure.core.limits import MAX_CHUNK, MAX_STREAM
from perdure.core.model import RetryPolicy, Task, Timeouts
from perdure.core.outbox import START, OutboxEvent
from perdure.core.streams import ChunkKind
from tests.clock import SteppedClock
from tests.engine.drive import Drive

DAY = 86_400


async def published(drive: Drive, namespace: str = "default") -> list[OutboxEvent]:
    return await drive.engine.outbox.events(namespace, START, 1_000, 0)


async def types(drive: Drive) -> list[str]:
    return [event.type for event in await published(drive)]


async def test_nothing_is_written_that_nobody_asked_for(drive: Drive) -> None:
    await drive.succeed(await drive.lease_new())
    assert await types(drive) == []


async def test_ends_and_retries_of_jobs(drive: Drive, clock: SteppedClock) -> None:
    """OBS-01, OBS-09: each end by its type, and each retry."""
    await drive.engine.outbox.record("default", True)
    done = await drive.lease_new()
    await drive.succeed(done)
    once = RetryPolicy(max_attempts=1)
    await drive.enqueue(retry=once)
    await drive.fail(await drive.lease())
    again = await drive.lease_new()
    await drive.fail(again)
    await drive.cancel(again.id)
    expired = await drive.enqueue(timeouts=Timeouts(schedule_to_start=1))
    await drive.elapse(clock, 2)
    events = await published(drive)
    assert [event.type for event in events] == [
        "task.succeeded", "task.failed", "task.retry_scheduled", "task.canceled", "task.expired",
    ]  # fmt: skip
    assert (events[0].task_id, events[0].task_type, events[0].queue, events[0].attempt) == (done.id, "t", "default", 1)
    assert events[0].at == (await drive.read(done.id)).closed_at
    assert [event.failure_code for event in events] == [
        "",
        "handler_error",
        "handler_error",
        "",
        "schedule_to_start_timeout",
    ]
    assert events[-1].task_id == expired


async def test_ends_without_a_look_at_the_rows(drive: Drive) -> None:
    """OBS-01: also where a worker at full speed exchanges successes for new tasks, and the exchange is one batch."""
    await drive.engine.outbox.record("default", True)
    for _ in range(6):
        await drive.enqueue()
    first = await drive.poll(3)
    done = [c.Complete(lease=task.lease, outcome="succeeded", result=b"r") for task in first]
    outcomes, second = await asyncio.gather(drive.engine.apply(done), drive.poll(3))
    assert len(second) == 3
    assert all(isinstance(outcome, c.Changed) for outcome in outcomes)
    events = await published(drive)
    assert {event.task_id for event in events} == {task.id for task in first}
    assert {event.type for event in events} == {"task.succeeded"}


async def test_namespaces_are_apart(drive: Drive) -> None:
    """SEC-19: and those that did not ask pay nothing."""
    await drive.engine.outbox.record("other", True)
    await drive.succeed(await drive.lease_new())
    await drive.fail(await drive.lease_new())
    assert await types(drive) == []
    assert await published(drive, "other") == []


async def test_a_server_that_starts_knows_before_its_first_batch(drive: Drive) -> None:
    await drive.engine.store.record_events("default", True)
    drive.engine.outbox._known = False
    await drive.succeed(await drive.lease_new())
    assert await types(drive) == ["task.succeeded"]


async def test_a_waiting_reader_is_told(drive: Drive) -> None:
    await drive.engine.outbox.record("default", True)
    task = await drive.lease_new()
    reading = asyncio.create_task(drive.engine.outbox.events("default", START, 10, 30))
    await asyncio.sleep(0)
    await drive.succeed(task)
    async with asyncio.timeout(10):
        (event,) = await reading
    assert event.task_id == task.id


async def test_old_events_are_deleted(drive: Drive, clock: SteppedClock) -> None:
    await drive.engine.outbox.record("default", True)
    await drive.succeed(await drive.lease_new())
    clock.advance(4 * DAY)
    await drive.succeed(await drive.lease_new())
    await drive.engine.outbox.run_once()
    assert len(await published(drive)) == 1
    assert (await drive.engine.store.feed("default")).trimmed > START


# streams -------------------------------------------------------------------------------------------------------------
def write(task: Task, first: int, *chunks: bytes) -> c.WriteStream:
    return c.WriteStream(lease=task.lease, first=first, chunks=[(ChunkKind.TEXT, chunk) for chunk in chunks])


async def stream(drive: Drive, task: Task) -> list[tuple[int, int, bytes]]:
    chunks, _closed = await drive.engine.outbox.chunks(task.id, 0, 1_000, 0)
    return [(chunk.number, chunk.attempt, chunk.data) for chunk in chunks]


async def test_streams_grow_under_the_lease(drive: Drive) -> None:
    task = await drive.lease_new()
    await drive.one(write(task, 0, b"a", b"b"))
    await drive.one(write(task, 2, b"c"))
    assert await stream(drive, task) == [(0, 1, b"a"), (1, 1, b"b"), (2, 1, b"c")]
    assert await drive.engine.outbox.chunks(task.id, 3, 10, 0) == ([], False)
    await drive.succeed(task)
    assert await drive.engine.outbox.chunks(task.id, 3, 10, 0) == ([], True)
    with pytest.raises(LeaseLost):
        await drive.one(write(task, 3, b"late"))


async def test_a_write_that_comes_twice_adds_nothing(drive: Drive) -> None:
    """IDEM-05 of streams: also when it comes again with more behind it, and not with less before it."""
    task = await drive.lease_new()
    await drive.one(write(task, 0, b"a", b"b"))
    await drive.one(write(task, 0, b"a", b"b"))
    await drive.one(write(task, 1, b"b", b"c"))
    with pytest.raises(Conflict):
        await drive.one(write(task, 5, b"f"))
    assert [data for _, _, data in await stream(drive, task)] == [b"a", b"b", b"c"]


async def test_another_attempt_goes_on_behind_the_first(drive: Drive, clock: SteppedClock) -> None:
    task = await drive.lease_new()
    await drive.one(write(task, 0, b"a"))
    await drive.fail(task)
    await drive.elapse(clock, 10)
    again = await drive.lease()
    with pytest.raises(LeaseLost):
        await drive.one(write(task, 1, b"late"))
    await drive.one(write(again, 0, b"b"))
    assert await stream(drive, again) == [(0, 1, b"a"), (1, 2, b"b")]


async def test_writes_and_the_end_in_one_batch(drive: Drive) -> None:
    task = await drive.lease_new()
    done = c.Complete(lease=task.lease, outcome="succeeded", result=b"r")
    written, changed = await drive.engine.apply([write(task, 0, b"a"), done])
    assert isinstance(written, c.Accepted)
    assert isinstance(changed, c.Changed)
    assert await stream(drive, task) == [(0, 1, b"a")]


async def test_a_stream_has_an_end(drive: Drive) -> None:
    task = await drive.lease_new()
    chunk = bytes(MAX_CHUNK)
    for first in range(0, MAX_STREAM // MAX_CHUNK, 32):
        await drive.one(write(task, first, *[chunk] * 32))
    with pytest.raises(ResourceExhausted):
        await drive.one(write(task, MAX_STREAM // MAX_CHUNK, b"x"))
