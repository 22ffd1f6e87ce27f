"""`exchange`: successes in, leases out, as `succeed` and decide.claim say."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.core import decide
from perdure.core.commands import Complete
from perdure.core.model import SECOND, Task, Timeouts, pack
from perdure.core.states import State
from perdure.store.base import Demand, Order, Place, Store
from tests.clock import START, SteppedClock
from tests.store.rows import insert, insert_leased, new_task, read, task_id

BITS = (5, -7, 2**63 - 1, -(2**63), 0, 1)


def order(limit: int = 5, lane: str = "lane-1", after: Place | None = None) -> Order:
    return Order(Demand(lane, limit, after), 7, "w1", 3, BITS[:limit])


async def exchange(store: Store, order: Order, *done: Task) -> tuple[set[bytes], list[Task], bool, int]:
    async with store.batch() as batch:
        completions = [Complete(lease=task.lease, outcome="succeeded", result=b"r") for task in done]
        return *await batch.exchange(completions, order), batch.now


WAITING: dict[str, dict[str, Any]] = {
    "plain": {},
    "again": {"lease_number": 4, "lease_bits": 9, "attempt": 2, "started_at": START - 9, "worker": "w0"},
    "short lease": {"lease_length": 2 * SECOND, "checkpoint": b"c", "progress": b"p", "headers": None},
    "with a deadline": {"deadline": START + 4 * SECOND, "wake_at": START + 4 * SECOND},
    "from a later clock": {"updated_at": START + 90 * SECOND, "ready_at": START},
}


@pytest.mark.parametrize("before", WAITING)
async def test_a_claim_is_what_decide_claim_says(store: Store, clock: SteppedClock, before: str) -> None:
    """LEASE-01, LEASE-05."""
    await insert(store, new_task(1, **WAITING[before]))
    clock.advance(2)
    closed, [task], timed, now = await exchange(store, order())
    assert (closed, timed, now) == (set(), False, clock.now())
    assert task.payload == b"payload"
    leased = decide.claim(task, 7, "w1", 3, now, BITS[0]).task
    stored = await read(store, 1)
    assert stored == leased
    assert stored.state is State.LEASED


async def test_tasks_come_in_queue_order_and_each_has_its_bits(store: Store) -> None:
    await insert(store, *(new_task(n, place=9 - n, priority=3 - n % 2) for n in range(1, 6)), new_task(6, lane="x"))
    _, tasks, _, _ = await exchange(store, order(4))
    assert [task.id for task in tasks] == [task_id(n) for n in (5, 3, 1, 4)]
    assert [(await read(store, n)).lease_bits for n in (5, 3, 1, 4)] == list(BITS[:4])
    assert [(await read(store, n)).state for n in (2, 6)] == [State.ENQUEUED] * 2
    _, tasks, _, _ = await exchange(store, order(4))
    assert [task.id for task in tasks] == [task_id(2)]


async def test_it_starts_behind_a_place(store: Store) -> None:
    await insert(store, *(new_task(n) for n in range(1, 5)))
    _, tasks, _, _ = await exchange(store, order(5, after=Place(3, 2, task_id(2))))
    assert [task.id for task in tasks] == [task_id(n) for n in (3, 4)]


async def test_successes_and_claims_together(store: Store) -> None:
    """A stale success is not closed, and what is closed is not claimed."""
    current, stale = [await insert_leased(store, n) for n in (1, 2)]
    stale.lease_bits += 1
    await insert(store, new_task(3))
    closed, tasks, _, _ = await exchange(store, order(), current, stale)
    assert closed == {current.id}
    assert [task.id for task in tasks] == [task_id(3)]
    assert [(await read(store, n)).state for n in (1, 2, 3)] == [State.SUCCEEDED, State.LEASED, State.LEASED]


async def test_time_outs_are_for_core(store: Store) -> None:
    """TMO-01: one such task among those wanted, and none is leased; the successes count."""
    done = await insert_leased(store, 1)
    await insert(store, new_task(2), new_task(3, timeouts=pack(Timeouts(start_to_close=5))), new_task(4))
    closed, tasks, timed, _ = await exchange(store, order(), done)
    assert (closed, tasks, timed) == ({done.id}, [], True)
    assert [(await read(store, n)).state for n in (2, 3, 4)] == [State.ENQUEUED] * 3
    _, tasks, timed, _ = await exchange(store, order(1))
    assert ([task.id for task in tasks], timed) == ([task_id(2)], False)


async def test_nothing_is_there(store: Store) -> None:
    assert (await exchange(store, order()))[:3] == (set(), [], False)


async def test_two_at_once_share_a_lane(shared: Store) -> None:
    """WORK-09, LEASE-08."""
    held = await insert_leased(shared, 9)
    await insert(shared, *(new_task(n) for n in range(1, 7)))
    async with shared.batch() as one, shared.batch() as two:
        await one.lock([held.id])
        _, mine, _ = await one.exchange([], order(2))
        closed, theirs, _ = await two.exchange([Complete(lease=held.lease, outcome="succeeded")], order(3))
        assert closed == set()
        assert [task.id for task in mine] == [task_id(n) for n in (1, 2)]
        assert [task.id for task in theirs] == [task_id(n) for n in (3, 4, 5)]
