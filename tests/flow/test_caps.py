"""At most so many at once: of a namespace, a queue, a type and each value of a key (QUOTA-06, QUOTA-12, B018)."""

from __future__ import annotations

import asyncio

import pytest

from perdure.core import commands as c
from perdure.core.errors import NotFound
from perdure.core.model import RetryPolicy, Timeouts
from perdure.core.states import State
from tests.clock import SteppedClock
from tests.engine.drive import Drive, enqueue
from tests.flow.limited import complete, delete, look, occupied, poll_all, put


async def test_a_queue_runs_as_many_as_its_limit_and_the_end_of_one_starts_the_next(drive: Drive) -> None:
    """QUOTA-06, QUOTA-12: in order, and without anybody's help."""
    await put(drive, "queue", "default", max_running=2)
    ids = [await drive.enqueue() for _ in range(5)]
    first = await poll_all(drive)
    assert [task.id for task in first] == ids[:2]
    for ended, following in zip(first, ids[2:4], strict=True):
        await complete(drive, ended)
        assert [task.id for task in await drive.poll(10)] == [following]
    assert await drive.poll(10) == []


async def test_the_batch_that_frees_a_slot_hands_it_to_a_poll_that_waits(drive: Drive) -> None:
    await put(drive, "type", "t", max_running=1)
    ids = [await drive.enqueue() for _ in range(3)]
    [running] = await poll_all(drive)
    polling = asyncio.create_task(drive.poll(10, wait=20.0))
    await asyncio.sleep(0)
    await complete(drive, running)
    async with asyncio.timeout(10):
        assert [task.id for task in await polling] == [ids[1]]


@pytest.mark.parametrize(
    ("scope", "name", "fields"),
    [
        ("key", "customer", {"concurrency_key": "customer:1"}),
        ("namespace", "", {}),
        ("queue", "default", {}),
        ("type", "t", {}),
    ],
)
async def test_every_scope_counts_what_it_is_about(drive: Drive, scope: str, name: str, fields: dict[str, str]) -> None:
    await put(drive, scope, name, max_running=3)
    for _ in range(5):
        await drive.enqueue(**fields)
    assert len(await poll_all(drive)) == 3
    assert sum((await occupied(drive)).values()) == 3


async def test_each_value_of_a_key_has_the_limit_for_itself(drive: Drive) -> None:
    """And tasks without the key, or with another one, are not limited by it."""
    await put(drive, "key", "customer", max_running=1)
    for value in ("customer:1", "customer:1", "customer:2", "region:9", None):
        await drive.enqueue(concurrency_key=value)
    got = await poll_all(drive)
    assert sorted(str(task.concurrency_key) for task in got) == ["None", "customer:1", "customer:2", "region:9"]


async def test_ten_thousand_of_a_full_key_do_not_stop_the_next_key(drive: Drive) -> None:
    """B036, B056: what is refused leaves the lane, in bounded steps."""
    await put(drive, "key", "customer", max_running=1)
    noisy = [enqueue(concurrency_key="customer:noisy", payload=b"x") for _ in range(2_000)]
    await drive.engine.apply(noisy)
    other = await drive.enqueue(concurrency_key="customer:other")
    polling = asyncio.create_task(drive.poll(2, wait=20.0))
    got = await polling
    while other not in [task.id for task in got]:
        async with asyncio.timeout(20):
            got += await drive.poll(2, wait=20.0)
    assert len(got) == 2


async def test_heavier_tasks_take_more_slots_and_too_heavy_ones_take_all(drive: Drive) -> None:
    await put(drive, "queue", "default", max_running=4)
    heavy, light, huge = [await drive.enqueue(weight=weight) for weight in (3, 1, 99)]
    got = await poll_all(drive)
    assert [task.id for task in got] == [heavy, light]
    await complete(drive, got[0])
    assert await poll_all(drive) == []
    await complete(drive, got[1])
    assert [task.id for task in await poll_all(drive)] == [huge]


async def test_light_tasks_do_not_overtake_a_heavy_one_for_ever(drive: Drive) -> None:
    """B055: the slots that become free gather until the heavy one has enough."""
    await put(drive, "queue", "default", max_running=2)
    first = await drive.enqueue()
    [running] = await poll_all(drive)
    assert running.id == first
    heavy = await drive.enqueue(weight=2)
    await drive.enqueue()
    assert await poll_all(drive) == []
    await look(drive)
    await drive.enqueue()
    assert await poll_all(drive) == []
    await complete(drive, running)
    assert [task.id for task in await poll_all(drive)] == [heavy]


async def test_every_end_of_a_lease_gives_its_slot_back(drive: Drive, clock: SteppedClock) -> None:
    """B018: nothing is remembered that could leak."""
    await put(drive, "queue", "default", max_running=1)
    for _ in range(7):
        await drive.enqueue(retry=RetryPolicy(max_attempts=1), timeouts=Timeouts(lease=5))
    [task] = await poll_all(drive)
    await drive.fail(task)
    await look(drive)
    [task] = await poll_all(drive)
    await drive.beat(task)
    await drive.elapse(clock, 6)  # its worker vanished
    assert await drive.state(task.id) == State.FAILED
    [task] = await poll_all(drive)
    assert await complete(drive, task, "released") == State.ENQUEUED
    [again] = await poll_all(drive)
    assert again.id == task.id
    await drive.beat(again)
    await drive.cancel(again.id)
    assert await complete(drive, again, "canceled") == State.CANCELED
    [task] = await poll_all(drive)
    await drive.beat(task)
    await drive.one(c.OpenSession(namespace="default", incarnation=1, epoch=1, identity="w", queues="default", slots=1))
    await drive.one(c.CloseSession(incarnation=1))
    await drive.one(c.Reap(limit=10))
    assert await drive.state(task.id) == State.FAILED
    [task] = await poll_all(drive)
    assert await complete(drive, task, "deferred") == State.LEASED
    assert await poll_all(drive) == []
    assert await complete(drive, task) == State.SUCCEEDED
    [task] = await poll_all(drive)


async def test_a_limit_that_is_made_while_tasks_run_counts_them(drive: Drive) -> None:
    """QUOTA-06, QUOTA-13: nothing new until enough have ended, and nothing is killed."""
    for _ in range(6):
        await drive.enqueue()
    running = await drive.poll(3)
    await put(drive, "queue", "default", max_running=2)
    assert await poll_all(drive) == []
    for task in running[:2]:
        await complete(drive, task)
    await look(drive)
    assert len(await poll_all(drive)) == 1


async def test_a_raised_or_deleted_limit_takes_hold_at_once(drive: Drive) -> None:
    await put(drive, "queue", "default", max_running=1)
    for _ in range(10):
        await drive.enqueue()
    assert len(await poll_all(drive)) == 1
    await put(drive, "queue", "default", max_running=4)
    await look(drive)
    assert len(await poll_all(drive)) == 3
    await delete(drive, "queue", "default")
    await look(drive)
    assert len(await poll_all(drive)) == 6
    with pytest.raises(NotFound):
        await delete(drive, "queue", "default")


async def test_a_wide_limit_is_not_held_up_by_tasks_that_a_narrow_one_refuses(drive: Drive) -> None:
    """Of two limits, a task is blocked on the narrower one."""
    await put(drive, "namespace", max_running=3)
    await put(drive, "key", "customer", max_running=1)
    for value in ("customer:1", "customer:1", "customer:1", "customer:2", "customer:3", "customer:4"):
        await drive.enqueue(concurrency_key=value)
    got = await poll_all(drive)
    assert [task.concurrency_key for task in got] == ["customer:1", "customer:2", "customer:3"]
    await complete(drive, got[1])
    assert [task.concurrency_key for task in await poll_all(drive)] == ["customer:4"]


async def test_a_blocked_task_can_be_canceled_and_expires(drive: Drive, clock: SteppedClock) -> None:
    await put(drive, "queue", "default", max_running=1)
    await drive.enqueue()
    canceled, expiring = await drive.enqueue(), await drive.enqueue(timeouts=Timeouts(schedule_to_start=5))
    last = await drive.enqueue()
    [running] = await poll_all(drive)
    assert (await drive.read(canceled)).blocked_on is not None
    await drive.cancel(canceled)
    await drive.elapse(clock, 6)
    assert [await drive.state(i) for i in (canceled, expiring)] == [State.CANCELED, State.EXPIRED]
    await complete(drive, running)
    assert [task.id for task in await poll_all(drive)] == [last]


async def test_what_a_task_carries_for_limits_outlives_it(drive: Drive) -> None:
    """A repeat of a closed task counts as that did."""
    task_id = await drive.enqueue(concurrency_key="customer:1", weight=3)
    await drive.succeed(await drive.lease())
    closed = await drive.read(task_id)
    assert (closed.concurrency_key, closed.weight, closed.blocked_on) == ("customer:1", 3, None)
