"""Field cases on leases and on jobs that are handed out twice, lost or stuck: hours on the stepped clock."""

from __future__ import annotations

import logging

import pytest

from perdure.api.service import Caller, Service
from perdure.core import commands as c
from perdure.core import messages as m
from perdure.core.errors import LeaseLost
from perdure.core.ids import parse, text
from perdure.core.model import Failure, RetryPolicy, Timeouts, pack, unpack
from perdure.core.states import State
from tests.clock import SteppedClock
from tests.engine.drive import Drive, enqueue
from tests.field.soundness import assert_sound

SLOW = RetryPolicy(base=3600, cap=3600)
NOTHING = pack(())


def session(incarnation: int, identity: str = "w1") -> c.OpenSession:
    return c.OpenSession(
        namespace="default", incarnation=incarnation, epoch=1, identity=identity, queues="default", slots=50
    )


async def code(drive: Drive, task_id: bytes) -> str:
    found: Failure = unpack((await drive.read(task_id)).failure or b"", Failure)
    return found.code


async def test_b002_a_delayed_job_is_handed_out_once_and_not_before_it_is_due(
    drive: Drive, clock: SteppedClock
) -> None:
    """Delays twelve times as long as the lease; four workers poll all the time, one of them is new every ten
    seconds."""
    await drive.engine.apply([enqueue(delay=60, timeouts=Timeouts(lease=5)) for _ in range(50)])
    workers = [Drive(drive.engine, number) for number in range(1, 5)]
    for worker in workers:
        await drive.one(session(worker.incarnation))
    for second in range(60):
        for worker in workers:
            assert await worker.poll(20) == [], second
        if second % 10 == 9:
            await drive.one(c.CloseSession(incarnation=workers[0].incarnation))
            await drive.one(c.Reap(limit=100))
            workers[0] = Drive(drive.engine, 100 + second)
            await drive.one(session(workers[0].incarnation))
        clock.advance(1)
        await drive.ring()
    got = [task for worker in workers for task in await worker.poll(20)]
    assert len({task.id for task in got}) == len(got) == 50
    for _ in range(10):
        for task in got:
            assert await drive.beat(task) is False
        clock.advance(2)
        await drive.ring()
        assert [task for worker in workers for task in await worker.poll(20)] == []
    for task in got:
        await drive.succeed(task)
    assert {(task.state, task.attempt, task.lease_number) for task in await assert_sound(drive.engine.store)} == {
        (State.SUCCEEDED, 1, 1)
    }


async def test_b009_a_new_process_of_the_same_name_is_not_the_old_owner(drive: Drive, clock: SteppedClock) -> None:
    """Killed without a word, and another "w1" in its place at once, which lives and works on."""
    old, new = (Service(drive.engine, Caller("default")) for _ in range(2))
    await old.open_session(m.OpenSession(1, 1, "w1", ["default"], 10))
    orphan = await drive.enqueue(retry=SLOW, payload=NOTHING)
    [lost] = (await old.poll(m.Poll(1, 1, ["default"], 10, 0.0))).tasks
    await old.heartbeat(m.Heartbeat(1, [m.Beat(lost.lease)]))
    await new.open_session(m.OpenSession(2, 1, "w1", ["default"], 10))
    mine = await drive.enqueue(payload=NOTHING)
    [kept] = (await new.poll(m.Poll(2, 1, ["default"], 10, 0.0))).tasks
    assert parse(kept.task_id) == mine
    await drive.ring()
    for _ in range(11):
        assert (await new.heartbeat(m.Heartbeat(2, [m.Beat(kept.lease)]))).actions == ["continue"]
        clock.advance(3)
        await drive.ring()
    assert await drive.state(orphan) == State.RETRY_WAIT
    assert await code(drive, orphan) == "lease_lost"
    await drive.one(c.Retry(namespace="default", task_id=orphan))
    [again] = (await new.poll(m.Poll(2, 2, ["default"], 10, 0.0))).tasks
    assert (parse(again.task_id), again.attempt) == (orphan, 2)
    assert (await old.complete(m.Complete([m.Completion(lost.lease, "succeeded")]))).outcomes[0].error is not None
    for lease in (kept.lease, again.lease):
        assert (await new.complete(m.Complete([m.Completion(lease, "succeeded")]))).outcomes[0].state == "SUCCEEDED"
    await assert_sound(drive.engine.store)


@pytest.mark.parametrize("received", [True, False])
async def test_b022_an_operators_retry_starts_with_fresh_counters(
    drive: Drive, clock: SteppedClock, received: bool
) -> None:
    """After crashes have used up all attempts; also such before the first heartbeat. What was stays to be seen."""
    policy = RetryPolicy(max_attempts=3, base=0.001, cap=0.001)
    task_id = await drive.enqueue(retry=policy, payload=NOTHING)
    await drive.ring()
    while await drive.state(task_id) != State.FAILED:
        task = await drive.lease()
        if received:
            await drive.beat(task)
        await drive.elapse(clock, 48)
    assert await code(drive, task_id) == "lease_lost"
    service = Service(drive.engine, Caller("default"))
    again = await service.retry(m.Retry(text(task_id)))
    assert (await service.retry(m.Retry(text(task_id)))).task_id == again.task_id
    fresh = await service.get(m.Get(again.task_id))
    assert (fresh.state, fresh.attempt, fresh.lost_deliveries) == ("ENQUEUED", 0, 0)
    assert (fresh.failure, fresh.retry_of) == (None, text(task_id))
    task = await drive.lease()
    await drive.beat(task)
    await drive.elapse(clock, 48)  # one more crash does not end it
    assert await drive.state(parse(again.task_id)) in (State.RETRY_WAIT, State.ENQUEUED)
    assert await drive.succeed(await drive.lease()) == State.SUCCEEDED
    history = await service.get(m.Get(text(task_id)))
    lost = [attempt.outcome for attempt in history.attempts].count("lost")
    assert (history.state, history.attempt, lost) == ("FAILED", 3, 3)


async def test_b026_heartbeats_that_arrive_late_but_in_time_are_enough(drive: Drive, clock: SteppedClock) -> None:
    """At 0.8 to 0.99 of the limit for ten minutes. Then silence; a completion after that is refused."""
    task_id = await drive.enqueue(timeouts=Timeouts(heartbeat=10, lease=10), retry=SLOW)
    task = await drive.lease()
    await drive.ring()
    await drive.beat(task)
    passed = 0.0
    for pause in (8.0, 9.9, 9.0) * 23:
        for _ in range(3):
            clock.advance(pause / 3)
            await drive.ring()
        assert await drive.beat(task) is False
        passed += pause
    assert passed > 600
    assert (await drive.read(task_id)).lease_number == 1
    await drive.elapse(clock, 12)
    assert await drive.state(task_id) == State.RETRY_WAIT
    assert await code(drive, task_id) == "heartbeat_timeout"
    with pytest.raises(LeaseLost):
        await drive.succeed(task)


async def test_b111_what_was_canceled_in_its_back_off_never_runs_again(
    drive: Drive, clock: SteppedClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A thousand at once, each with its answer, and a quiet log."""
    await drive.engine.apply([enqueue(retry=RetryPolicy(max_attempts=50, delays=(5,))) for _ in range(1000)])
    failed: list[c.Command] = []
    while tasks := await drive.poll(300):
        failed += [c.Complete(lease=task.lease, outcome="failed", failure=b"\x81\xa7message\xa1x") for task in tasks]
    await drive.engine.apply(failed)
    tasks = await assert_sound(drive.engine.store)
    assert {task.state for task in tasks} == {State.RETRY_WAIT}
    cancels: list[c.Command] = [c.Cancel(namespace="default", task_id=task.id) for task in tasks]
    outcomes = await drive.engine.apply(cancels)
    assert {outcome.state for outcome in outcomes if isinstance(outcome, c.Changed)} == {State.CANCELED}
    assert len(outcomes) == 1000
    for _ in range(10):
        clock.advance(4)
        assert await drive.ring() == 0
        assert await drive.poll(100) == []
    assert {(task.state, task.attempt) for task in await assert_sound(drive.engine.store)} == {(State.CANCELED, 1)}
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_b113_no_retry_is_late_whatever_becomes_of_the_workers(drive: Drive, clock: SteppedClock) -> None:
    """Retries two seconds apart, a worker that is replaced every five: at no time is one overdue."""
    policy = RetryPolicy(max_attempts=100, delays=(2,))
    await drive.engine.apply([enqueue(retry=policy) for _ in range(300)])
    worker, failed = Drive(drive.engine, 1), 0
    await drive.one(session(1))
    for second in range(1, 91):
        leased = await worker.poll(300)
        done: list[c.Command] = []
        for number, task in enumerate(leased, second):
            if task.attempt < 4 and number % 4:
                done.append(c.Complete(lease=task.lease, outcome="failed", failure=b"\x81\xa7message\xa1x"))
            elif number % 3:  # the others are lost with their worker
                done.append(c.Complete(lease=task.lease, outcome="succeeded"))
        failed += len(await drive.engine.apply(done)) if done else 0
        if second % 5 == 0:
            await drive.one(c.CloseSession(incarnation=worker.incarnation))
            while (await drive.one(c.Reap(limit=100))).count:
                pass
            worker = Drive(drive.engine, second)
            await drive.one(session(second))
        clock.advance(1)
        while await drive.ring():
            pass
        tasks = await assert_sound(drive.engine.store)
        for task in tasks:
            assert task.ready_at is None or task.ready_at > clock.now(), task
            assert task.wake_at is None or task.wake_at > clock.now(), task
    assert {task.state for task in tasks} == {State.SUCCEEDED}
    assert failed > 600


async def test_b158_what_waits_long_is_late_and_not_failed(drive: Drive, clock: SteppedClock) -> None:
    """One worker that takes one at a time, and a backlog of an hour."""
    service = Service(drive.engine, Caller("default"))
    await drive.one(session(1))
    outcomes = await drive.engine.apply([enqueue(payload=NOTHING) for _ in range(20)])
    ids = [outcome.task_id for outcome in outcomes if isinstance(outcome, c.Enqueued)]
    for number, task_id in enumerate(ids):
        running = await drive.lease()
        assert running.id == task_id
        for _ in range(9):
            await drive.beat(running)
            clock.advance(20)
            await drive.ring()
        last = await service.get(m.Get(text(ids[-1])))
        if number < 19:
            assert (last.state, last.job_state, last.attempt, last.failure) == ("ENQUEUED", "QUEUED", 0, None)
            assert last.waiting_for == "a free worker on queue 'default'"
            (queue,) = (await service.queues(m.ListQueues())).queues
            assert (queue.ready, queue.running, queue.retrying) == (19 - number, 1, 0)
            assert (queue.oldest_ready_seconds or 0) >= 180 * number
        await drive.succeed(running)
    assert {(task.state, task.attempt) for task in await assert_sound(drive.engine.store)} == {(State.SUCCEEDED, 1)}
