"""Two batches at once: what one may see and touch of the other's rows. The same on PostgreSQL and on its model."""

from __future__ import annotations

import pytest

from perdure.core.commands import Heartbeat
from perdure.core.model import Pulse
from perdure.core.states import State
from perdure.store.base import Demand, Store
from tests.clock import START
from tests.store.rows import (
    blocked,
    changed,
    close,
    closed,
    insert,
    insert_leased,
    leased,
    new_key,
    new_session,
    new_task,
    read,
    task_id,
)


async def test_what_is_not_committed_is_not_seen(shared: Store) -> None:
    await insert(shared, new_task(1), new_task(2))
    async with shared.batch() as one:
        await one.lock([task_id(1), task_id(2)])
        await one.change([new_task(1, priority=1)])
        await one.close([closed(new_task(2))])
        await one.insert([new_task(3)])
        async with shared.batch() as two:
            seen = await two.trace([task_id(n) for n in (1, 2, 3)])
            assert {key: (task.state, task.priority) for key, task in seen.items()} == {
                task_id(1): (State.ENQUEUED, 3),
                task_id(2): (State.ENQUEUED, 3),
            }
        assert set(await shared.read([task_id(2), task_id(3)])) == {task_id(2)}
    assert (await read(shared, 2)).state == State.SUCCEEDED


async def test_each_verb_sees_what_was_committed_before_it(shared: Store) -> None:
    """READ COMMITTED: a batch is no snapshot."""
    await insert(shared, new_task(1))
    async with shared.batch() as one:
        assert (await one.trace([task_id(1)]))[task_id(1)].priority == 3
        async with shared.batch() as two:
            await two.lock([task_id(1)])
            await two.change([new_task(1, priority=1)])
        assert (await one.lock([task_id(1)]))[task_id(1)].priority == 1


async def test_lock_skips_what_is_held_and_trace_tells(shared: Store) -> None:
    await insert(shared, new_task(1), new_task(2))
    async with shared.batch() as one, shared.batch() as two:
        await one.lock([task_id(1)])
        assert set(await two.lock([task_id(1), task_id(2)])) == {task_id(2)}
        assert set(await two.trace([task_id(1)])) == {task_id(1)}


async def test_locks_end_with_their_batch(shared: Store) -> None:
    await insert(shared, new_task(1))
    async with shared.batch() as one:
        async with shared.batch() as two:
            await two.lock([task_id(1)])
        assert set(await one.lock([task_id(1)])) == {task_id(1)}


async def test_claims_share_a_lane(shared: Store) -> None:
    """WORK-09, LEASE-08: two servers never hand out the same task, and a limit counts what was granted."""
    await insert(shared, *(new_task(n) for n in range(1, 9)))
    async with shared.batch() as one, shared.batch() as two:
        mine = (await one.claim([Demand("lane-1", 4)]))["lane-1"]
        theirs = (await two.claim([Demand("lane-1", 3)]))["lane-1"]
        assert [task.id for task in mine] == [task_id(n) for n in (1, 2, 3, 4)]
        assert [task.id for task in theirs] == [task_id(n) for n in (5, 6, 7)]
        await one.lease([leased(task) for task in mine])
        assert [task.id for task in (await two.claim([Demand("lane-1", 9)]))["lane-1"]] == [
            task_id(n) for n in (5, 6, 7, 8)
        ]


async def test_due_leased_by_and_beat_skip_what_is_held(shared: Store) -> None:
    first = await insert_leased(shared, 1, number=1)
    second = await insert_leased(shared, 2, number=1)
    async with shared.batch() as one:
        await one.lock([first.id, second.id])
        await one.change([changed(second, wake_at=START), changed(first, wake_at=START)])
    async with shared.batch() as one, shared.batch() as two:
        await one.lock([first.id])
        assert [task.id for task in await two.due(10)] == [second.id]
        assert [task.id for task in await two.leased_by(7, 10)] == [second.id]
        beats = [Heartbeat(lease=first.lease), Heartbeat(lease=second.lease)]
        assert await two.beat(beats) == {second.id: False}
    assert [(await read(shared, n)).received for n in (1, 2)] == [False, True]


async def test_lock_that_waits_gets_the_row_as_its_holder_left_it(shared: Store) -> None:
    await insert(shared, new_task(1), new_task(2))
    async with shared.batch() as two:
        async with shared.batch() as one:
            await one.lock([task_id(1), task_id(2)])
            waiting = await blocked(two.lock([task_id(1), task_id(2)], wait=True))
            await one.change([new_task(1, priority=1)])
            await one.close([closed(new_task(2))])
        held = await waiting
        assert {key: task.priority for key, task in held.items()} == {task_id(1): 1}


async def test_lock_that_waits_gets_the_old_row_after_a_rollback(shared: Store) -> None:
    await insert(shared, new_task(1))
    async with shared.batch() as two:
        with pytest.raises(ZeroDivisionError):
            async with shared.batch() as one:
                await one.lock([task_id(1)])
                await one.change([new_task(1, priority=1)])
                waiting = await blocked(two.lock([task_id(1)], wait=True))
                raise ZeroDivisionError
        assert (await waiting)[task_id(1)].priority == 3


@pytest.mark.parametrize("commits", [True, False])
async def test_a_key_that_is_being_taken_is_waited_for(shared: Store, commits: bool) -> None:
    """B040, IDEM-01: the loser of the race learns of it and sees the winner; after a rollback it wins."""
    mine, theirs = new_key("k", 1), new_key("k", 2)
    async with shared.batch() as two:
        try:
            async with shared.batch() as one:
                assert await one.reserve_keys([mine]) == {mine.name}
                waiting = await blocked(two.reserve_keys([theirs]))
                if not commits:
                    raise ZeroDivisionError
        except ZeroDivisionError:
            assert not commits
        assert await waiting == (set() if commits else {theirs.name})
        assert await two.read_keys([theirs.name]) == {mine.name: mine if commits else theirs}


async def test_a_lost_key_does_not_hold_others_up(shared: Store) -> None:
    key = new_key("k", 1)
    async with shared.batch() as batch:
        await batch.reserve_keys([key])
    async with shared.batch() as one, shared.batch() as two:
        assert await one.reserve_keys([new_key("k", 2)]) == set()
        assert await two.reserve_keys([new_key("k", 3)]) == set()


async def test_only_one_replaces_a_key(shared: Store) -> None:
    key = new_key("k", 1)
    async with shared.batch() as batch:
        await batch.reserve_keys([key])
    async with shared.batch() as two:
        async with shared.batch() as one:
            assert await one.replace_key(key, new_key("k", 2))
            waiting = await blocked(two.replace_key(key, new_key("k", 3)))
        assert not await waiting
        assert (await two.read_keys([key.name]))[key.name].task_id == task_id(2)


async def test_lock_session_waits(shared: Store) -> None:
    async with shared.batch() as batch:
        await batch.put_session(new_session(1))
    async with shared.batch() as two:
        async with shared.batch() as one:
            await one.lock_session(1)
            waiting = await blocked(two.lock_session(1))
            await one.put_session(new_session(1, epoch=2))
        assert await waiting == new_session(1, epoch=2)


async def test_ending_sessions_and_pulse_skip_what_is_held(shared: Store) -> None:
    async with shared.batch() as batch:
        await batch.put_session(new_session(1, ends_at=START))
        await batch.put_session(new_session(2, ends_at=START))
    async with shared.batch() as one, shared.batch() as two:
        await one.lock_session(1)
        assert [session.incarnation for session in await two.ending_sessions(10)] == [2]
        assert await one.lock_pulse() == Pulse(0, 0)
        assert await two.lock_pulse() is None
        await one.put_pulse(Pulse(START, START))
        assert await two.pulse() == Pulse(0, 0)


async def test_a_closed_row_is_seen_once(shared: Store) -> None:
    """A task that moves between the tables is never in both or in neither."""
    await insert(shared, new_task(1))
    await close(shared, closed(new_task(1)))
    async with shared.batch() as batch:
        assert await batch.lock([task_id(1)]) == {}
        assert len(await batch.trace([task_id(1)])) == 1
