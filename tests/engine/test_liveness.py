"""Nobody waits for ever or for nothing: no lost wake-ups, no starvation, and one bad row holds up nobody."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from perdure.core import commands as c
from perdure.core.model import Lease, Timeouts
from perdure.core.states import State
from perdure.engine.gather import MAX_ROWS, Gatherer
from perdure.store.memory import MemoryStore
from tests.clock import SteppedClock
from tests.engine.drive import LANE, Drive, enqueue, running


async def test_demand_beyond_a_batch_is_served_by_the_next(drive: Drive) -> None:
    await drive.engine.apply([enqueue() for _ in range(1200)])
    polls = [asyncio.create_task(drive.poll(400, wait=10.0)) for _ in range(3)]
    async with asyncio.timeout(5):
        assert [len(await poll) for poll in polls] == [400, 400, 400]


async def test_a_poll_whose_claim_was_canceled_in_the_same_batch_looks_again(drive: Drive) -> None:
    first, second = await drive.enqueue(), await drive.enqueue()
    polling = asyncio.create_task(drive.poll(1, wait=10.0))
    await drive.cancel(first)
    async with asyncio.timeout(5):
        (got,) = await polling
    if got.id == second:
        assert await drive.state(first) == State.CANCELED
    else:  # the claim came first; its worker will be told
        assert (await drive.read(first)).cancel_requested_at is not None


async def test_what_a_match_leaves_over_is_announced(drive: Drive) -> None:
    """Polls that the other batch in flight has, and other servers, hear of it."""
    told: list[set[str]] = []
    drive.engine._hints.tell = lambda lanes, closed, nudges: told.append(set(lanes))  # type: ignore
    polling = asyncio.create_task(drive.poll(1, wait=10.0))
    while not drive.engine.dispatch.waiting:
        await asyncio.sleep(0)
    await drive.engine.apply([enqueue() for _ in range(3)])
    await polling
    assert any(LANE in lanes for lanes in told)


async def test_repeats_of_an_idle_poll_back_off(drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    """B056: an idle worker costs next to nothing."""
    looks = 0
    take = drive.engine.dispatch.take

    def counted(touched: set[str]) -> Any:
        nonlocal looks
        found = take(touched)
        looks += bool(found)
        return found

    monkeypatch.setattr(drive.engine.dispatch, "take", counted)
    await drive.poll(1, wait=2.0)
    assert looks < 9


async def test_doubled_beats_count_as_one(drive: Drive) -> None:
    task = await drive.lease_new()
    batches = 0
    batch = drive.engine.store.batch

    def counted(**options: Any) -> Any:
        nonlocal batches
        batches += 1
        return batch(**options)

    drive.engine.store.batch = counted  # type: ignore[method-assign]
    beats: list[c.Command] = [c.Heartbeat(lease=task.lease, checkpoint=b"%d" % n) for n in range(300)]
    outcomes = await drive.engine.apply(beats)
    assert set(outcomes) == {c.Alive(False)}
    assert batches < 10
    assert (await drive.read(task.id)).checkpoint == b"299"


async def test_a_row_that_somebody_else_holds_stops_nobody() -> None:
    """A frozen server, or an operator's transaction, holds rows: only what names them waits."""
    store = MemoryStore(clock=SteppedClock().now)
    async with running(store) as drive:
        held = [await drive.enqueue() for _ in range(3)]
        async with store.batch() as rows:
            await rows.lock(held)
            cancels = [asyncio.create_task(drive.cancel(task_id)) for task_id in held]
            for _ in range(20):
                async with asyncio.timeout(2):
                    await drive.enqueue(queue="another")
                await asyncio.sleep(0.02)
            assert not any(cancel.done() for cancel in cancels)
        async with asyncio.timeout(5):
            assert {(await cancel).state for cancel in cancels} == {State.CANCELED}


def test_no_class_shuts_out_a_later_one() -> None:
    """DESIGN 3: order of classes, but each that waits has its share."""
    loop = asyncio.new_event_loop()
    gatherer = Gatherer()
    gatherer.put([enqueue()], loop.create_future())
    gatherer.put([c.Cancel(namespace="default", task_id=b"")], loop.create_future())
    done: list[c.Command] = [c.Complete(lease=Lease(b"", 1, 1), outcome="succeeded") for _ in range(3 * MAX_ROWS)]
    gatherer.put(done, loop.create_future())
    kinds = {type(item.command) for item in gatherer.take()}
    assert kinds == {c.Enqueue, c.Cancel, c.Complete}
    loop.close()


async def test_a_row_that_cannot_be_read_does_not_stop_the_alarms() -> None:
    clock = SteppedClock()
    store = MemoryStore(clock=clock.now)
    async with running(store) as drive:
        good = await drive.enqueue(delay=1.1)
        task = await drive.lease_new()
        await drive.beat(task)
        row = store._tables.tasks.rows[task.id]
        row.retry_policy = b"\xc1"
        row.attempt_deadline = row.wake_at = clock.now()
        clock.advance(2)
        await drive.ring()
        assert (await drive.read(good)).place is not None
        assert (await drive.read(task.id)).wake_at == clock.now() + 60_000_000


async def test_a_row_that_cannot_be_claimed_steps_aside(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore(clock=SteppedClock().now)
    async with running(store) as drive:
        bad = await drive.enqueue(timeouts=Timeouts(start_to_close=5))
        good = await drive.enqueue()
        store._tables.tasks.rows[bad].timeouts = b"\xc1"
        async with asyncio.timeout(5):
            assert [t.id for t in await drive.poll(5, wait=4.0)] == [good]
        assert (await drive.read(bad)).ready_at is not None
        assert [record.levelno for record in caplog.records] == [logging.ERROR]
