"""Pairs of commands that meet on one row or one key: whatever the order of their statements, what was answered is true
and what is true is legal. Every order on the memory store, drawn orders on PostgreSQL with two connections."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.core import commands as c
from perdure.core.errors import IdempotencyConflict, IllegalMove, LeaseLost, NotFound
from perdure.core.model import RetryPolicy, Task, Timeouts
from perdure.core.states import State, is_closed
from tests.clock import SteppedClock
from tests.engine import interleave
from tests.engine.drive import Drive, enqueue
from tests.engine.interleave import Race

MOST = 400
"""Schedules of one race that are tried on the memory store; most races have fewer."""
DRAWN = 8
"""Schedules of one race that are tried on PostgreSQL."""

SLOW = RetryPolicy(base=3600, cap=3600)
CLOCK = SteppedClock()
MINTED = bytes.fromhex("0199e0f8b5c07abc8def0123456789ab")


async def leased(drive: Drive) -> Task:
    await drive.enqueue(retry=SLOW)
    task = await drive.lease()
    await drive.beat(task)
    return task


async def expired(drive: Drive) -> Task:
    """A received lease whose time is over, the pulse being fresh."""
    await drive.elapse(CLOCK, 12)
    task = await leased(drive)
    for _ in range(8):
        CLOCK.advance(4)
        await drive.one(c.Ring(limit=0))
    return task


async def overrun(drive: Drive) -> Task:
    await drive.enqueue(timeouts=Timeouts(start_to_close=5), retry=SLOW)
    task = await drive.lease()
    await drive.beat(task)
    CLOCK.advance(5)
    return task


async def backing_off(drive: Drive) -> Task:
    task = await leased(drive)
    await drive.fail(task)
    return task


def succeed(drive: Drive, task: Task) -> Any:
    return drive.succeed(task)


def fail(drive: Drive, task: Task) -> Any:
    return drive.fail(task)


def cancel(drive: Drive, task: Task) -> Any:
    return drive.cancel(task.id)


def ring(drive: Drive, task: Any) -> Any:
    return drive.ring()


def beat(drive: Drive, task: Task) -> Any:
    return drive.beat(task)


def poll(drive: Drive, task: Any) -> Any:
    return drive.poll(5)


async def success_wins(drive: Drive, task: Task, left: Any, right: Any) -> None:
    """CANC-08: the completion was in time; a cancel after it finds a closed task."""
    assert left == State.SUCCEEDED
    assert isinstance(right, (c.Changed, NotFound))
    assert await drive.state(task.id) == State.SUCCEEDED


async def ends_canceled(drive: Drive, task: Task, left: Any, right: Any) -> None:
    assert await drive.state(task.id) == State.CANCELED
    assert left in (State.CANCELED, State.RETRY_WAIT)


async def one_claim(drive: Drive, task: Any, left: Any, right: Any) -> None:
    got = [*left, *right]
    assert len(got) == len({t.id for t in got}) <= 1
    stored = await drive.read(task)
    if got:
        assert stored.lease == got[0].lease
    else:
        assert [t.id for t in await drive.poll(5)] == [task]


async def canceled_or_told(drive: Drive, task: bytes, left: Any, right: Any) -> None:
    stored = await drive.read(task)
    if left:
        assert (stored.state, stored.lease) == (State.LEASED, left[0].lease)
        assert stored.cancel_requested_at is not None
    else:
        assert stored.state == State.CANCELED


async def alive_or_lost(drive: Drive, task: Task, left: Any, right: Any) -> None:
    """A late heartbeat is accepted until the expiry was processed, and then never."""
    await drive.ring()
    stored = await drive.read(task.id)
    if right is False:
        assert (stored.state, stored.attempt) == (State.LEASED, 0)
    else:
        assert isinstance(right, LeaseLost)
        assert (stored.state, stored.attempt) == (State.RETRY_WAIT, 1)


async def rung_once(drive: Drive, task: Task, left: Any, right: Any) -> None:
    await drive.ring()
    stored = await drive.read(task.id)
    assert (stored.state, stored.attempt) == (State.RETRY_WAIT, 1)
    assert len(await drive.engine.store.attempts([task.id])) == 1


async def told_the_truth(drive: Drive, task: Task, left: Any, right: Any) -> None:
    """A completion that was answered is what is stored; a refused one left no trace."""
    await drive.ring()
    stored = await drive.read(task.id)
    if left == State.SUCCEEDED:
        assert (stored.state, stored.attempt) == (State.SUCCEEDED, 1)
    else:
        assert isinstance(left, LeaseLost)
        assert (stored.state, stored.attempt, stored.result) == (State.RETRY_WAIT, 1, None)


async def one_task(drive: Drive, made: Any, left: Any, right: Any) -> None:
    """B040: one task, one id, one original."""
    assert left.task_id == right.task_id
    assert sorted([left.duplicate, right.duplicate]) == [False, True]
    assert [t.id for t in await drive.poll(5)] == [left.task_id]


async def runs_once(drive: Drive, made: Any, left: c.Enqueued, right: list[Task]) -> None:
    """IDEM-05: a request that was sent twice makes one task, even if that has closed before the late one is read."""
    assert not left.duplicate
    assert [t.id for t in right + await drive.poll(5)] == [MINTED]
    assert len(await drive.engine.store.read([MINTED])) == 1


async def one_body(drive: Drive, made: Any, left: Any, right: Any) -> None:
    """IDEM-15: the other body is refused, whoever came first."""
    refused = [r for r in (left, right) if isinstance(r, IdempotencyConflict)]
    assert len(refused) == 1
    assert len(await drive.poll(5)) == 1


async def taken_over_once(drive: Drive, made: bytes, left: Any, right: Any) -> None:
    """IDEM-02: an expired key of a closed task goes to exactly one new task."""
    assert left.task_id == right.task_id != made
    assert [t.id for t in await drive.poll(5)] == [left.task_id]


async def never_runs_again(drive: Drive, task: Task, left: Any, right: Any) -> None:
    assert isinstance(left, (c.Changed, IllegalMove))
    assert await drive.state(task.id) == State.CANCELED
    assert await drive.poll(5) == []


async def seen_or_gone(drive: Drive, task: Task, left: Any, right: Any) -> None:
    assert left == c.Did(1)
    assert right is None or right.state == State.SUCCEEDED
    assert await drive.engine.store.read([task.id]) == {}


async def recorded_once(drive: Drive, task: Task, left: Any, right: Any) -> None:
    """DESIGN 3, answers survive: the repeat gets the recorded answer."""
    assert left == right == State.SUCCEEDED
    assert (await drive.read(task.id)).attempt == 1


async def not_lost(drive: Drive, task: Any, left: Any, right: Any) -> None:
    """Whatever the end of the session met, the task can be leased again or has closed."""
    for _ in range(3):
        CLOCK.advance(2)
        await drive.one(c.Reap(limit=100))
    task_id = task.id if isinstance(task, Task) else task
    stored = await drive.read(task_id)
    if is_closed(stored.state):
        assert left == State.SUCCEEDED
    else:
        assert not isinstance(left, State) or left != State.SUCCEEDED
        assert stored.state in (State.ENQUEUED, State.RETRY_WAIT)


async def released_then_claimed(drive: Drive, task: Task, left: Any, right: Any) -> None:
    assert left == State.ENQUEUED
    got = right or await drive.poll(5)
    assert [(t.id, t.lease_number, t.attempt) for t in got] == [(task.id, 2, 0)]


async def _queued(drive: Drive) -> bytes:
    return await drive.enqueue()


async def _registered(drive: Drive) -> bytes:
    await _open(drive)
    return await drive.enqueue()


async def _registered_leased(drive: Drive) -> Task:
    await _open(drive)
    return await leased(drive)


async def _open(drive: Drive) -> None:
    await drive.one(
        c.OpenSession(namespace="default", incarnation=1, epoch=1, identity="w1", queues="default", slots=5)
    )


async def _end_session(drive: Drive, made: Any) -> None:
    await drive.one(c.CloseSession(incarnation=1))
    await drive.one(c.Reap(limit=100))


async def _closed_long_ago(drive: Drive) -> Task:
    task = await leased(drive)
    await drive.succeed(task)
    CLOCK.advance(100)
    return task


async def _expired_key(drive: Drive) -> bytes:
    task_id = await drive.enqueue(key="k")
    await drive.succeed(await drive.lease())
    CLOCK.advance(25 * 3600)
    return task_id


async def _minted(drive: Drive, made: Any) -> list[Task]:
    await drive.one(enqueue(minted=MINTED))
    return []


async def _live(drive: Drive, made: Any) -> list[Task]:
    """Enqueue, and work until there is nothing to do."""
    await drive.one(enqueue(minted=MINTED))
    tasks = await drive.poll(5)
    for task in tasks:
        await drive.succeed(task)
    return tasks


async def _nothing(drive: Drive) -> None:
    await drive.succeed(await drive.lease_new())


RACES = {
    "complete/cancel": Race(leased, succeed, cancel, success_wins),
    "fail/cancel": Race(leased, fail, cancel, ends_canceled),
    "claim/claim": Race(_queued, poll, poll, one_claim),
    "claim/cancel": Race(_queued, poll, lambda d, task_id: d.cancel(task_id), canceled_or_told),
    "alarm/heartbeat": Race(expired, ring, beat, alive_or_lost),
    "alarm/alarm": Race(overrun, ring, ring, rung_once),
    "complete/alarm": Race(overrun, succeed, ring, told_the_truth),
    "complete/complete": Race(leased, succeed, succeed, recorded_once),
    "enqueue/enqueue": Race(
        _nothing, lambda d, _: d.one(enqueue(key="k")), lambda d, _: d.one(enqueue(key="k")), one_task
    ),
    "minted/minted": Race(_nothing, lambda d, _: d.one(enqueue(minted=MINTED)), _minted, runs_once),
    "minted/its life": Race(_nothing, lambda d, _: d.one(enqueue(minted=MINTED)), _live, runs_once),
    "enqueue/other body": Race(
        _nothing, lambda d, _: d.one(enqueue(key="k")), lambda d, _: d.one(enqueue(key="k", digest=b"other")), one_body
    ),
    "expired key/expired key": Race(
        _expired_key, lambda d, _: d.one(enqueue(key="k")), lambda d, _: d.one(enqueue(key="k")), taken_over_once
    ),
    "retry/cancel": Race(
        backing_off, lambda d, t: d.one(c.Retry(namespace="default", task_id=t.id)), cancel, never_runs_again
    ),
    "retention/get": Race(
        _closed_long_ago,
        lambda d, _: d.one(c.Trim(closed_before=CLOCK.now() - 50_000_000, limit=10)),
        lambda d, t: d.engine.watch(t.id, 0, namespace="default"),
        seen_or_gone,
    ),
    "claim/session end": Race(_registered, poll, _end_session, not_lost),
    "complete/session end": Race(_registered_leased, succeed, _end_session, not_lost),
    "heartbeat/session end": Race(_registered_leased, beat, _end_session, not_lost),
    "release/claim": Race(leased, lambda d, t: d.complete(t, "released"), poll, released_then_claimed),
}


@pytest.mark.parametrize("name", RACES)
async def test_every_order_on_the_memory_store(name: str) -> None:
    tried = await interleave.every_order(name, RACES[name], CLOCK, MOST)
    assert tried > (0 if name == "retention/get" else 3)  # reads outside a batch are not held


@pytest.mark.parametrize("name", RACES)
async def test_drawn_orders_on_postgresql(name: str, migrated_database: str) -> None:
    await interleave.drawn_orders(name, RACES[name], CLOCK, migrated_database, DRAWN)
