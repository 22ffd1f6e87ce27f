"""The model itself: switches, the two halves of a locking select, deadlocks, and the mistakes that it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from perdure.core.commands import Heartbeat
from perdure.core.run import Message
from perdure.store.base import CommitUnknown, Demand, Store, StoreFault
from perdure.store.memory import MemoryStore
from tests.clock import START, SteppedClock
from tests.store.rows import changed, close, closed, insert, leased, new_key, new_task, read, task_id


class Gate:
    """A switch that runs something at the n-th point from now."""

    def __init__(self) -> None:
        self.points = 0
        self._planned: dict[int, Callable[[], Awaitable[None]]] = {}

    def plan(self, points: int, action: Callable[[], Awaitable[None]]) -> None:
        self._planned[self.points + points] = action

    async def __call__(self) -> None:
        self.points += 1
        action = self._planned.pop(self.points, None)
        if action is not None:
            await action()


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def gated(gate: Gate, clock: SteppedClock) -> MemoryStore:
    return MemoryStore(clock=clock.now, switch=gate)


def test_it_is_a_store() -> None:
    store: Store = MemoryStore()
    assert abs(store.now() - MemoryStore().now()) < 60_000_000


async def test_switch_before_every_verb_and_before_the_commit(gated: MemoryStore, gate: Gate) -> None:
    async with gated.batch() as batch:
        await batch.insert([new_task(1)])
        await batch.trace([task_id(1)])
    assert gate.points == 3
    await read(gated, 1)
    assert gate.points == 4


async def test_a_fault_at_the_commit_undoes_the_batch(gated: MemoryStore, gate: Gate) -> None:
    async def break_connection() -> None:
        raise StoreFault("gone")

    gate.plan(2, break_connection)
    with pytest.raises(StoreFault):
        await insert(gated, new_task(1))
    assert await gated.read([task_id(1)]) == {}


@asynccontextmanager
async def between_snapshot_and_locks(gate: Gate, action: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """The first verb inside finds its rows, then `action` happens, then it locks them."""
    ran = asyncio.Event()

    async def run() -> None:
        ran.set()
        await action()

    gate.plan(2, run)
    yield
    assert ran.is_set()


async def test_claim_asks_again_after_locking(gated: MemoryStore, gate: Gate) -> None:
    """Another server claimed and committed in between: the row is free by now, but no longer ready."""
    await insert(gated, new_task(1), new_task(2))

    async def claimed_elsewhere() -> None:
        async with gated.batch() as other:
            await other.lock([task_id(1)])
            await other.lease([leased(new_task(1))])

    async with gated.batch() as batch, between_snapshot_and_locks(gate, claimed_elsewhere):
        claimed = await batch.claim([Demand("lane-1", 2)])
    assert [task.id for task in claimed["lane-1"]] == [task_id(2)]


async def test_claim_does_not_see_what_became_ready_meanwhile(gated: MemoryStore, gate: Gate) -> None:
    await insert(gated, new_task(2))

    async with gated.batch() as batch, between_snapshot_and_locks(gate, lambda: insert(gated, new_task(1))):
        claimed = await batch.claim([Demand("lane-1", 2)])
    assert [task.id for task in claimed["lane-1"]] == [task_id(2)]


async def test_lock_does_not_return_what_was_closed_meanwhile(gated: MemoryStore, gate: Gate) -> None:
    await insert(gated, new_task(1))

    async with gated.batch() as batch, between_snapshot_and_locks(gate, lambda: close(gated, closed(new_task(1)))):
        assert await batch.lock([task_id(1)]) == {}


async def test_beat_asks_again_after_locking(gated: MemoryStore, gate: Gate) -> None:
    task = leased(new_task(1))
    await insert(gated, task)

    async def leased_again() -> None:
        async with gated.batch() as other:
            await other.lock([task.id])
            await other.lease([changed(task, lease_number=2)])

    async with gated.batch() as batch, between_snapshot_and_locks(gate, leased_again):
        assert await batch.beat([Heartbeat(lease=task.lease)]) == {}
    assert not (await read(gated, 1)).received


async def test_a_deadlock_is_a_fault_of_the_one_who_closes_the_circle() -> None:
    store = MemoryStore()
    await insert(store, new_task(1), new_task(2))
    async with store.batch() as one:
        await one.lock([task_id(1)])
        with pytest.raises(StoreFault):
            async with store.batch() as two:
                await two.lock([task_id(2)])
                waiting = asyncio.create_task(one.lock([task_id(2)], wait=True))
                await asyncio.sleep(0)
                await two.lock([task_id(1)], wait=True)
        assert set(await waiting) == {task_id(2)}


async def test_a_wait_that_is_given_up_holds_nobody_up() -> None:
    store = MemoryStore()
    async with store.batch() as one:
        await one.reserve_keys([new_key("k", 1)])
        async with store.batch() as two:
            waiting = asyncio.create_task(two.reserve_keys([new_key("k", 2)]))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
    async with store.batch() as batch:
        assert (await batch.read_keys([new_key("k", 1).name]))[new_key("k", 1).name].task_id == task_id(1)


async def test_the_statement_of_a_single_batch_commits_itself() -> None:
    store = MemoryStore()
    with pytest.raises(ZeroDivisionError):
        async with store.batch(single=True) as batch:
            await batch.insert([new_task(1)])
            assert set(await batch.trace([task_id(1)])) == {task_id(1)}
            raise ZeroDivisionError
    assert set(await store.read([task_id(1)])) == {task_id(1)}


async def test_mistakes_of_an_engine_are_refused() -> None:
    store = MemoryStore()
    await insert(store, new_task(1))
    with pytest.raises(AssertionError, match="did not lock"):
        async with store.batch() as batch:
            await batch.change([new_task(1)])
    with pytest.raises(AssertionError, match="one statement that writes"):
        async with store.batch(single=True) as batch:
            await batch.insert([new_task(2)])
            await batch.insert([new_task(3)])
    with pytest.raises(AssertionError, match="the run is not locked"):
        async with store.batch() as batch:
            await batch.post([Message(task_id(1), 1, 1, START, b"")])


async def test_committed_finds_the_rows_it_is_asked_for() -> None:
    store = MemoryStore()
    await insert(store, new_task(1))
    assert await store.committed(CommitUnknown("broken", task_ids=[task_id(1)]))
    assert not await store.committed(CommitUnknown("broken", task_ids=[task_id(2)]))
    with pytest.raises(StoreFault):
        await store.committed(CommitUnknown("broken"))


async def test_hints_reach_every_listener_until_the_store_is_closed(clock: SteppedClock) -> None:
    store = MemoryStore(clock=clock.now)
    heard: list[bytes] = []
    await store.open()
    await store.listen(heard.append)
    await store.announce(b"lane-1")
    await store.close()
    await store.announce(b"lane-2")
    assert heard == [b"lane-1"]
    assert not await store.changed()
    assert store.now() == START
