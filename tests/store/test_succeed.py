"""`succeed`: what decide.succeed says, in one statement that looks at nothing but the lease."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.core import decide
from perdure.core.commands import Complete
from perdure.core.model import SECOND, Lease, Task
from perdure.core.states import State
from perdure.store.base import Store
from tests.clock import START, SteppedClock
from tests.store.rows import changed, insert_leased, new_task, plain, read, task_id
from tests.store.rows import insert as insert_rows

BEFORE: dict[str, dict[str, Any]] = {
    "plain": {},
    "told": {"progress": b"old", "checkpoint": b"old", "received": True, "started_at": START - 7, "lost_deliveries": 1},
    "again": {"attempt": 3, "failure": b"earlier", "done_number": 1, "done_bits": 5, "done_state": 4},
    "asked to cancel": {"cancel_requested_at": START, "cancel_reason": "why", "cancel_deadline": START + SECOND},
    "limited": {"attempt_deadline": START + SECOND, "deadline": START + SECOND, "heartbeat_deadline": START + SECOND},
    "from a later clock": {"updated_at": START + 90 * SECOND},
}
NEWS: list[dict[str, bytes]] = [{}, {"progress": b"p"}, {"checkpoint": b"c"}]


def done(task: Task, **news: Any) -> Complete:
    return Complete(lease=task.lease, outcome="succeeded", result=b"result", **news)


async def leased(store: Store, n: int, **fields: Any) -> Task:
    """A leased task with `fields`."""
    task = changed(await insert_leased(store, n), **fields)
    async with store.batch() as batch:
        await batch.lock([task.id])
        await batch.change([task])
    return task


async def succeed(store: Store, *completions: Complete) -> set[bytes]:
    async with store.batch() as batch:
        return await batch.succeed(completions)


@pytest.mark.parametrize("news", NEWS)
@pytest.mark.parametrize("before", BEFORE)
async def test_it_leaves_what_the_slow_way_leaves(
    store: Store, clock: SteppedClock, before: str, news: dict[str, bytes]
) -> None:
    """LEASE-05, TASK-03: the same row as by lock, decide and close."""
    task, twin = [await leased(store, n, **BEFORE[before]) for n in (1, 2)]
    clock.advance(2)
    async with store.batch() as batch:
        held = (await batch.lock([twin.id]))[twin.id]
        await batch.close([decide.succeed(held, done(twin, **news), batch.now).task])
    assert await succeed(store, done(task, **news)) == {task.id}
    expected = changed(await read(store, 2), id=task.id)
    assert plain(await read(store, 1)) == expected
    assert expected.state is State.SUCCEEDED
    assert expected.result == b"result"
    async with store.batch() as batch:
        assert await batch.lock([task.id]) == {}


@pytest.mark.parametrize(("number", "bits"), [(2, 77), (0, 77), (1, 78), (1, -77)])
async def test_a_stale_lease_closes_nothing(store: Store, number: int, bits: int) -> None:
    """LEASE-05: the lease is compared whole, for each row by itself."""
    stale, current = [await insert_leased(store, n) for n in (1, 2)]
    late = Complete(lease=Lease(stale.id, number, bits), outcome="succeeded", result=b"stale")
    assert await succeed(store, late, done(current)) == {current.id}
    assert await read(store, 1) == stale
    assert (await read(store, 2)).state is State.SUCCEEDED


async def test_what_is_not_leased_is_left_alone(store: Store) -> None:
    await insert_rows(store, new_task(1, lease_number=1, lease_bits=77))
    task = await insert_leased(store, 2)
    assert await succeed(store, done(task)) == {task.id}
    leases = [Complete(lease=Lease(task_id(n), 1, 77), outcome="succeeded") for n in (1, 2, 3)]
    assert await succeed(store, *leases) == set()
    assert (await read(store, 2)).result == b"result"


async def test_many_in_all_chunks(store: Store) -> None:
    """Statements of SQLite take fixed numbers of rows: one stale lease in some of them hides no other."""
    tasks = [await insert_leased(store, n) for n in range(1, 271)]
    stale = {3, 203, 269}
    completions = [
        Complete(lease=Lease(task.id, 1, 78 if n in stale else 77), outcome="succeeded")
        for n, task in enumerate(tasks, 1)
    ]
    wanted = {task_id(n) for n in range(1, 271) if n not in stale}
    assert await succeed(store, *completions) == wanted
    found = await store.read([task.id for task in tasks])
    assert {i for i, task in found.items() if task.state is State.SUCCEEDED} == wanted
    assert {i for i, task in found.items() if task.state is State.LEASED} == {task_id(n) for n in stale}


async def test_nothing_to_do(store: Store) -> None:
    assert await succeed(store) == set()


async def test_what_is_held_elsewhere_is_left_alone(shared: Store) -> None:
    first, second = [await insert_leased(shared, n) for n in (1, 2)]
    async with shared.batch() as one, shared.batch() as two:
        await one.lock([first.id])
        assert await two.succeed([done(first), done(second)]) == {second.id}
    assert (await read(shared, 1)).state is State.LEASED
