"""Actions on many jobs, on every store: RETRY-07, RETRY-08. The alarms of the stepped clock are rung by the tests; an
action then goes on by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from perdure.core import bulk, decide
from perdure.core import commands as c
from perdure.core.bulk import Action
from perdure.core.errors import InvalidArgument, LeaseLost, Unavailable
from perdure.core.model import RetryPolicy, Task, pack
from perdure.core.states import State, is_closed
from perdure.engine import bulk as driver
from perdure.store.base import Filter, StoreFault
from tests.clock import SteppedClock
from tests.engine.drive import Drive, running

ONCE = RetryPolicy(max_attempts=1)
NOTHING: dict[str, Any] = dict.fromkeys(("state", "queue", "type", "since", "group", "error"))
COUNT = 7


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """So that few jobs make many steps, windows and reads."""
    monkeypatch.setattr(bulk, "STEP", 2)
    monkeypatch.setattr(driver, "WINDOW", 3)
    monkeypatch.setattr(driver, "READ", 1)
    monkeypatch.setattr(driver, "BREATH", 0.0)
    monkeypatch.setattr(driver, "PAUSE", 0.01)
    yield


async def dead(drive: Drive, count: int = COUNT, **options: Any) -> list[bytes]:
    """Dead letters."""
    for _ in range(count):
        await drive.enqueue(retry=ONCE, **options)
    tasks = await drive.poll(count)
    for task in tasks:
        await drive.fail(task, "boom 1", failure_type="ValueError")
    return [task.id for task in tasks]


def action(name: str, total: int = 0, **filter: Any) -> Action:
    return Action(action=name, selection=bulk.selection(name, "default", NOTHING | filter), total=total, reason="why")


async def begin(drive: Drive, what: Action, request: str = "") -> bytes:
    command = bulk.draft(what, "me", request, b"digest")
    made: c.Enqueued = await drive.one(command)
    return made.task_id


async def end(drive: Drive, action_id: bytes) -> Task:
    """The action once it has ended."""
    async with asyncio.timeout(60):
        while not is_closed((task := await drive.read(action_id)).state):
            await asyncio.sleep(0.005)
    return task


async def carry_out(drive: Drive, clock: SteppedClock, what: Action) -> Action:
    action_id = await begin(drive, what)
    clock.advance(1)
    await drive.ring()
    task = await end(drive, action_id)
    assert task.state == State.SUCCEEDED
    return bulk.action_of(task)


async def open_jobs(drive: Drive) -> list[Task]:
    """Ready tasks, leased by this."""
    return await drive.poll(100)


async def test_dead_letters_are_retried_each_once_and_linked(drive: Drive, clock: SteppedClock) -> None:
    """RETRY-07, RETRY-08, X-51."""
    old = await dead(drive)
    others = await dead(drive, 2, queue="default", type_="other")
    done = await carry_out(drive, clock, action("retry", type="t"))
    assert (done.done, done.failed, done.errors, done.step) == (COUNT, 0, [], [])
    new = await open_jobs(drive)
    assert sorted(task.retry_of or b"" for task in new) == sorted(old)
    assert await drive.engine.store.retried_by(old) == {task.retry_of: task.id for task in new}
    assert {task.state for task in (await drive.engine.store.read(old)).values()} == {State.FAILED}, "none goes back"
    assert await drive.engine.store.retried_by(others) == {}
    again = await carry_out(drive, clock, action("retry", type="t"))
    assert (again.done, await open_jobs(drive)) == (0, [])


async def test_what_was_retried_by_hand_before_is_not_retried_again(drive: Drive, clock: SteppedClock) -> None:
    old = await dead(drive, 3)
    clock.advance(25 * 3600)
    closed = (await drive.engine.store.read(old[:1]))[old[0]]
    by_hand: c.Enqueued = await drive.one(decide.repeat(closed))
    done = await carry_out(drive, clock, action("retry"))
    assert done.done == 2
    assert by_hand.task_id in {task.id for task in await open_jobs(drive)}


async def test_expired_and_canceled_jobs_are_retried_when_asked_for(drive: Drive, clock: SteppedClock) -> None:
    ids = [await drive.enqueue() for _ in range(4)]
    for task_id in ids[:3]:
        await drive.cancel(task_id)
    done = await carry_out(drive, clock, action("retry", state=State.CANCELED))
    assert done.done == 3
    assert len(await open_jobs(drive)) == 4
    assert (await carry_out(drive, clock, action("retry", state=State.CANCELED))).done == 0


async def test_open_jobs_are_canceled(drive: Drive, clock: SteppedClock) -> None:
    ids = [await drive.enqueue() for _ in range(COUNT)]
    leased = await drive.lease()
    done = await carry_out(drive, clock, action("cancel"))
    assert (done.done, done.failed) == (COUNT, 0)
    assert await drive.beat(leased), "the one at work is asked to"
    states = [(await drive.read(i)).state for i in ids if i != leased.id]
    assert states == [State.CANCELED] * (COUNT - 1)
    assert (await drive.read(ids[-1])).cancel_reason == "why"


async def test_closed_jobs_are_deleted_and_nothing_else(drive: Drive, clock: SteppedClock) -> None:
    old, still = await dead(drive), await drive.enqueue()
    done = await carry_out(drive, clock, action("delete", state=State.FAILED))
    assert done.done == COUNT
    assert list(await drive.engine.store.read([*old, still])) == [still]
    assert await drive.engine.store.failure_groups("default", -(2**63), 10) == []


async def test_b162_no_jobs_at_all(drive: Drive, clock: SteppedClock) -> None:
    await dead(drive, 4)
    done = await carry_out(drive, clock, action("retry", type="none"))
    assert (done.done, done.failed, done.ended) == (0, 0, True)


async def test_one_job_that_cannot_be_retried_stops_no_other(drive: Drive, clock: SteppedClock) -> None:
    """RETRY-08: partial success is reported."""
    old = await dead(drive, 3)
    store = drive.engine.store
    found = await store.pick(action("retry").selection, 10)
    async with store.batch() as rows:
        await rows.delete_closed([found.ids[1]])
    what = action("retry", total=3)
    what.step = found.ids[:2]  # as a driver that died just after it had written the step down
    done = await carry_out(drive, clock, what)
    assert (done.done, done.failed) == (2, 1)
    [error] = done.errors
    assert (error.task_id, error.error.code) == (found.ids[1], "not_found")
    assert len(await open_jobs(drive)) == len(old) - 1


async def test_a_step_that_is_taken_twice_makes_nothing_twice(drive: Drive, clock: SteppedClock) -> None:
    """The driver dies after it applied a step and before it wrote that down: who takes over repeats the step."""
    old = await dead(drive)
    what = action("retry", total=COUNT)
    picked = await drive.engine.store.pick(what.selection, 10)
    what.step, what.cursor = picked.ids[:2], picked.ids[1]
    action_id = await begin(drive, what)
    for task_id in what.step:  # what the dead driver had done
        closed = (await drive.engine.store.read([task_id]))[task_id]
        await drive.one(decide.repeat(closed))
    clock.advance(1)
    await drive.ring()
    done = bulk.action_of(await end(drive, action_id))
    assert (done.done, done.failed) == (COUNT, 0)
    assert sorted(task.retry_of or b"" for task in await open_jobs(drive)) == sorted(old)


async def test_another_server_takes_over_and_the_first_one_stops(drive: Drive, clock: SteppedClock) -> None:
    old = await dead(drive)
    async with running(drive.engine.store, seed=2, incarnation=2) as other:
        action_id = await begin(drive, action("retry"))
        clock.advance(1)
        hung = asyncio.Event()
        drive.engine._bulk._step = lambda *_: hung.wait()  # type: ignore[method-assign]
        await drive.ring()
        number = (await drive.read(action_id)).lease_number
        clock.advance(bulk.HELD / 1_000_000 + 1)
        await other.ring()
        done = bulk.action_of(await end(other, action_id))
        assert done.done == COUNT
        note = c.NoteBulk(namespace="default", task_id=action_id, number=number, checkpoint=pack(done))
        assert (await drive.one(note)).state == State.SUCCEEDED, "nothing to do for what has ended"
    hung.set()
    assert sorted(task.retry_of or b"" for task in await open_jobs(drive)) == sorted(old)


async def test_only_the_driver_writes_down_how_far_it_is(drive: Drive, clock: SteppedClock) -> None:
    action_id = await begin(drive, action("retry"))
    note = c.NoteBulk(namespace="default", task_id=action_id, number=7, checkpoint=pack(action("retry")))
    with pytest.raises(LeaseLost):
        await drive.one(note)
    job = await drive.enqueue()
    with pytest.raises(LeaseLost):
        await drive.one(c.NoteBulk(namespace="default", task_id=job, number=0, checkpoint=b""))


async def test_a_canceled_action_does_no_more(drive: Drive, clock: SteppedClock) -> None:
    """What it has done stays done."""
    await dead(drive)
    go_on = asyncio.Event()
    steps = 0
    step = drive.engine._bulk._step

    async def counted(*given: Any) -> bool:
        nonlocal steps
        steps += 1
        if steps == 2:
            await go_on.wait()
        return await step(*given)

    drive.engine._bulk._step = counted  # type: ignore[method-assign, assignment]
    action_id = await begin(drive, action("retry"))
    clock.advance(1)
    await drive.ring()
    async with asyncio.timeout(30):
        while steps < 2:
            await asyncio.sleep(0.001)
    assert (await drive.cancel(action_id)).state == State.CANCELED
    go_on.set()
    await asyncio.sleep(0)
    task = await end(drive, action_id)
    assert task.state == State.CANCELED
    assert len(await open_jobs(drive)) <= 2


async def test_an_action_that_cannot_be_read_harms_nothing_else(
    drive: Drive, clock: SteppedClock, caplog: pytest.LogCaptureFixture
) -> None:
    command = bulk.draft(action("retry"), "", "", b"")
    command.draft.checkpoint = b"\xc1"
    broken: c.Enqueued = await drive.one(command)
    await dead(drive, 3)
    assert (await carry_out(drive, clock, action("retry"))).done == 3
    assert (await drive.read(broken.task_id)).state == State.WAITING
    assert "cannot go on" in caplog.text


async def test_an_outage_is_waited_out_and_the_step_taken_again(drive: Drive, clock: SteppedClock) -> None:
    await dead(drive)
    store, faults = drive.engine.store, iter([StoreFault("away"), Unavailable("full")])
    pick = store.pick

    async def picks(*given: Any) -> Any:
        for fault in faults:
            raise fault
        return await pick(*given)

    store.pick = picks  # type: ignore[method-assign, assignment]
    assert (await carry_out(drive, clock, action("retry"))).done == COUNT


async def test_the_same_request_answers_the_same_action(drive: Drive) -> None:
    first = await begin(drive, action("retry"), "k")
    assert await begin(drive, action("retry"), "k") == first
    assert await begin(drive, action("retry"), "k2") != first


async def test_an_action_is_no_task_of_a_worker(drive: Drive, clock: SteppedClock) -> None:
    action_id = await begin(drive, action("cancel"))
    assert await open_jobs(drive) == []
    assert await drive.engine.store.find(Filter(namespace="default", limit=10, kind=1)) == []
    [found] = await drive.engine.store.find(Filter(namespace="default", limit=10, kind=9))
    assert found.id == action_id


@pytest.mark.parametrize(
    ("name", "filter", "field"),
    [
        ("cancel", {"group": 1}, "filter.failure_group"),
        ("cancel", {"error": "E"}, "filter.error"),
        ("cancel", {"state": State.FAILED}, "filter.state"),
        ("retry", {"state": State.SUCCEEDED}, "filter.state"),
        ("retry", {"state": State.CANCELED, "error": "E"}, "filter.state"),
        ("delete", {"state": State.LEASED}, "filter.state"),
    ],
)
def test_a_filter_that_no_such_job_can_pass_is_refused(name: str, filter: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        action(name, **filter)
    assert refused.value.field == field
