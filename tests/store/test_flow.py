"""What store/flow.py promises of every verb, held against all three stores."""

from __future__ import annotations

import pytest

from perdure.core.breaker import Circuit, Stage
from perdure.core.limit_rules import Limit, Running
from perdure.core.states import Kind, State
from perdure.store.base import Store
from tests.clock import START, SteppedClock
from tests.store.rows import changed, insert, insert_leased, leased, new_task, plain, read, task_id

QUEUE = Limit(
    "default", "queue", "mail", max_running=5, rate=10, per=1_000_000, burst=3, weight=None, paused=True, declared=True,
    note="why", updated_at=START,
)  # fmt: skip
BARE = Limit("other", "namespace", updated_at=START + 1)
TYPE = Limit(
    "other", "type", "t", updated_at=START, circuit=Circuit(
        3, 0.5, 60, 20, 30, 2, Stage.HALF_OPEN, START, 0, "why", 2, (7, -(2**63)), ((9, 4, 2),), ((task_id(1), 3),), 1
    )
)  # fmt: skip


async def put(store: Store, *limits: Limit) -> None:
    async with store.batch() as batch:
        for limit in limits:
            await batch.put_limit(limit)


async def test_limits_keep_every_column_and_are_listed_by_name(store: Store) -> None:
    assert (await store.limits(), await store.limits_version()) == ([], (0, 0))
    await put(store, BARE, TYPE, QUEUE)
    assert await store.limits() == [QUEUE, BARE, TYPE]
    assert await store.limits_version() == (3, START + 1)
    async with store.batch() as batch:
        found = await batch.hold_limits([BARE.id, TYPE.id, ("default", "queue", "gone")])
    assert found == {BARE.id: BARE, TYPE.id: TYPE}


async def test_a_limit_is_replaced_and_deleted(store: Store) -> None:
    await put(store, QUEUE)
    again = Limit("default", "queue", "mail", max_running=1, updated_at=START + 5)
    await put(store, again)
    assert await store.limits() == [again]
    async with store.batch() as batch:
        await batch.hold_limits([again.id])
        await batch.delete_limit(again.id)
    assert await store.limits() == []


async def test_a_held_limit_is_not_granted_twice(shared: Store) -> None:
    await put(shared, QUEUE, BARE)
    async with shared.batch() as first:
        assert set(await first.hold_limits([QUEUE.id])) == {QUEUE.id}
        async with shared.batch() as second:
            assert set(await second.hold_limits([QUEUE.id, BARE.id])) == {BARE.id}
    async with shared.batch() as third:
        assert set(await third.hold_limits([QUEUE.id])) == {QUEUE.id}


async def test_a_count_sees_what_the_holder_before_committed(shared: Store) -> None:
    """However long the batch that counts has lasted."""
    await put(shared, QUEUE)
    await insert(shared, new_task(1), new_task(2))
    async with shared.batch() as later:
        await later.lock([task_id(2)])
        async with shared.batch() as first:
            await first.hold_limits([QUEUE.id])
            held = await first.lock([task_id(1)])
            await first.change([leased(held[task_id(1)])])
        await later.hold_limits([QUEUE.id])
        assert [found.count for found in await later.running(["default"])] == [1]


async def test_running_work_is_counted_by_what_limits_ask_about(store: Store) -> None:
    """Attempts that somebody outside ends, too; not what waits, and nothing of other namespaces."""
    await insert(
        store,
        *(new_task(n, queue="mail", concurrency_key="customer:1", weight=2) for n in (1, 2, 3)),
        new_task(4),
        new_task(5, namespace="other"),
    )
    async with store.batch() as batch:
        held = await batch.lock([task_id(n) for n in (1, 2, 4, 5)])
        given = [leased(held[task_id(n)]) for n in (1, 2, 4, 5)]
        given[0] = changed(given[0], session=None)
        await batch.change(given)
        counted = sorted(await batch.running(["default"]), key=lambda found: found.queue)
    assert counted == [
        Running("default", "default", "email", None, 1, 1),
        Running("default", "mail", "email", "customer:1", 2, 2),
    ]
    assert sorted(await store.count_running("default"), key=lambda found: found.queue) == counted


async def test_blocked_tasks_come_back_whole_in_order(store: Store) -> None:
    """Priority, then the place that was kept, then the id; and only those that wait."""
    blocked = [
        new_task(1, place=None, blocked_on="a", blocked_place=7),
        new_task(2, place=None, blocked_on="a", blocked_place=5),
        new_task(3, place=None, blocked_on="a", blocked_place=9, priority=1),
        new_task(4, place=None, blocked_on="b", blocked_place=1, kind=Kind.ACTIVITY),
        new_task(5, place=5, blocked_on="a", blocked_place=1),
        new_task(6, place=None, blocked_on="a", blocked_place=1, state=State.RETRY_WAIT),
    ]
    await insert(store, *blocked)
    async with store.batch() as batch:
        found = await batch.blocked({"b": 5, "a": 2})
        assert [plain(task) for task in found] == [blocked[2], blocked[1], blocked[3]]
        await batch.change([changed(found[0], place=9, blocked_on=None, blocked_place=None)])
    assert (await read(store, 3)).blocked_on is None
    assert await store.blocked_subjects("", 10) == ["a", "b"]
    assert await store.blocked_subjects("a", 10) == ["b"]
    assert await store.blocked_subjects("", 1) == ["a"]
    assert await store.count_blocked(["a", "b", "c"], 3) == {"a": 3, "b": 1}


async def test_blocked_tasks_that_another_batch_holds_are_skipped(shared: Store) -> None:
    await insert(shared, *(new_task(n, place=None, blocked_on="a", blocked_place=n) for n in (1, 2)))
    async with shared.batch() as first:
        await first.lock([task_id(1)])
        async with shared.batch() as second:
            assert [task.id for task in await second.blocked({"a": 5})] == [task_id(2)]


async def test_buckets_are_put_read_and_trimmed(store: Store, clock: SteppedClock) -> None:
    async with store.batch() as batch:
        await batch.put_buckets({"a": START + 5, "b": START + 10_000_000})
    async with store.batch() as batch:
        await batch.put_buckets({"a": START + 6})
        assert await batch.buckets(["a", "b", "c"]) == {"a": START + 6, "b": START + 10_000_000}
    clock.advance(1)
    async with store.batch() as batch:
        await batch.lock([])
        assert await batch.trim_buckets(10) == 1
    async with store.batch() as batch:
        assert await batch.buckets(["a", "b"]) == {"b": START + 10_000_000}


async def test_what_limits_need_outlives_a_lease_and_a_close(store: Store) -> None:
    await insert_leased(store, 1)
    await insert(store, new_task(2, concurrency_key="customer:1", weight=4))
    assert plain(await read(store, 2)).weight == 4
    async with store.batch() as batch:
        held = (await batch.lock([task_id(2)]))[task_id(2)]
        await batch.close([changed(held, state=State.CANCELED, place=None, closed_at=START)])
    closed = await read(store, 2)
    assert (closed.concurrency_key, closed.weight, closed.blocked_on) == ("customer:1", 4, None)


@pytest.mark.parametrize("number", [1, 3, 700])
async def test_many_limits_are_held_in_one_verb(store: Store, number: int) -> None:
    limits = [Limit("default", "type", f"t{n:03}", max_running=n, updated_at=START) for n in range(number)]
    await put(store, *limits)
    async with store.batch() as batch:
        assert await batch.hold_limits([limit.id for limit in limits]) == {limit.id: limit for limit in limits}
