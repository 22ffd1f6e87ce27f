"""The life of jobs through the engine, on every store: what happens, and what is then true."""

from __future__ import annotations

import asyncio

import pytest

from perdure.core import commands as c
from perdure.core.errors import IdempotencyConflict, IllegalMove, LeaseLost, NotFound
from perdure.core.model import Failure, RetryPolicy, Timeouts, unpack
from perdure.core.states import State
from tests.clock import SteppedClock
from tests.engine.drive import LANE, Drive, enqueue


async def failure(drive: Drive, task_id: bytes) -> Failure:
    task = await drive.read(task_id)
    assert task.failure is not None
    found: Failure = unpack(task.failure, Failure)
    return found


async def test_a_job_runs_and_succeeds(drive: Drive) -> None:
    """TASK-01, TASK-04, TASK-17."""
    task_id = await drive.enqueue(payload=b"in")
    leased = await drive.lease()
    assert (leased.id, leased.payload, leased.attempt, leased.lease_number) == (task_id, b"in", 0, 1)
    assert await drive.succeed(leased) == State.SUCCEEDED
    done = await drive.read(task_id)
    assert (done.state, done.result, done.payload, done.attempt) == (State.SUCCEEDED, b"result", b"in", 1)
    assert await drive.poll() == []


async def test_a_completion_asked_again_gets_its_recorded_answer(drive: Drive) -> None:
    """DESIGN 3, answers survive; LEASE-05: another lease does not."""
    await drive.enqueue(retry=RetryPolicy(max_attempts=2, base=1, cap=1))
    first = await drive.lease()
    assert await drive.fail(first) == State.RETRY_WAIT
    assert await drive.fail(first) == State.RETRY_WAIT
    await drive.one(c.Retry(namespace="default", task_id=first.id))
    second = await drive.lease()
    with pytest.raises(LeaseLost):
        await drive.beat(first)
    with pytest.raises(LeaseLost):
        await drive.succeed(second.__class__(**{**_fields(second), "lease_bits": second.lease_bits ^ 1}))
    assert await drive.succeed(second) == State.SUCCEEDED
    assert await drive.succeed(second) == State.SUCCEEDED
    with pytest.raises(LeaseLost):
        await drive.fail(first)


def _fields(task: object) -> dict[str, object]:
    return {name: getattr(task, name) for name in task.__struct_fields__}  # type: ignore[attr-defined]


async def test_retries_back_off_then_exhaust(drive: Drive, clock: SteppedClock) -> None:
    """RETRY-01, RETRY-05, RETRY-06; B045: the last failure closes at once."""
    task_id = await drive.enqueue(retry=RetryPolicy(max_attempts=3, base=2, factor=3, cap=100))
    for bound in (2, 6):
        assert await drive.fail(await drive.lease()) == State.RETRY_WAIT
        waiting = await drive.read(task_id)
        assert waiting.ready_at is not None
        assert 0 <= waiting.ready_at - clock.now() <= bound * 1_000_000
        clock.advance(bound)
        await drive.ring()
        assert await drive.state(task_id) == State.ENQUEUED
    assert await drive.fail(await drive.lease(), "last") == State.FAILED
    assert (await failure(drive, task_id)).message == "last"
    attempts = await drive.engine.store.attempts([task_id])
    assert [(a.attempt, a.outcome) for a in attempts] == [(1, "failed"), (2, "failed")]


async def test_a_fatal_error_ends_it_at_once(drive: Drive) -> None:
    """RETRY-03."""
    task_id = await drive.enqueue()
    assert await drive.fail(await drive.lease(), retryable=False) == State.FAILED
    assert (await drive.read(task_id)).attempt == 1


async def test_a_delay_holds_a_job_back_and_no_longer(drive: Drive, clock: SteppedClock) -> None:
    """TASK-13, B002, B042."""
    task_id = await drive.enqueue(delay=60)
    assert await drive.poll() == []
    assert await drive.ring() == 0
    clock.advance(59.999)
    await drive.ring()
    assert await drive.poll() == []
    clock.advance(0.001)
    assert await drive.ring() == 1
    assert (await drive.lease()).id == task_id


async def test_an_undelivered_lease_spends_an_attempt_from_the_third_on(drive: Drive, clock: SteppedClock) -> None:
    """DESIGN 1; B027: claimed, never started."""
    task_id = await drive.enqueue(retry=RetryPolicy(base=3600, cap=3600))
    await drive.elapse(clock, 12)
    for _ in range(2):
        await drive.lease()
        await drive.elapse(clock, 10)
        task = await drive.read(task_id)
        assert (task.state, task.attempt) == (State.ENQUEUED, 0)
    await drive.lease()
    await drive.elapse(clock, 10)
    task = await drive.read(task_id)
    assert (task.state, task.attempt, task.lost_deliveries) == (State.RETRY_WAIT, 1, 3)
    outcomes = [a.outcome for a in await drive.engine.store.attempts([task_id])]
    assert outcomes == ["undelivered", "undelivered", "lost"]


async def test_a_lease_lives_as_long_as_its_heartbeats(drive: Drive, clock: SteppedClock) -> None:
    """LEASE-01, LEASE-02, B001, B008: liveness, never age, decides."""
    task_id = await drive.enqueue(retry=RetryPolicy(base=3600, cap=3600))
    leased = await drive.lease()
    await drive.ring()  # the first pulse holds expiry back once
    await drive.beat(leased)
    for _ in range(60):
        clock.advance(29)
        await drive.ring()
        assert await drive.beat(leased) is False
    assert (await drive.read(task_id)).lease_number == 1
    await drive.elapse(clock, 41)
    assert await drive.state(task_id) == State.RETRY_WAIT
    assert (await failure(drive, task_id)).code == "lease_lost"
    with pytest.raises(LeaseLost):
        await drive.succeed(leased)


async def test_a_late_heartbeat_is_accepted_until_the_expiry_was_processed(drive: Drive, clock: SteppedClock) -> None:
    """DESIGN 3: expiry is an event, not a time."""
    task_id = await drive.enqueue()
    leased = await drive.lease()
    clock.advance(1000)
    assert await drive.beat(leased) is False
    await drive.ring()
    assert await drive.state(task_id) == State.LEASED


async def test_after_an_outage_nobody_is_declared_dead_before_being_heard(drive: Drive, clock: SteppedClock) -> None:
    """DESIGN 3, holds after outages; B013, B052."""
    task_id = await drive.enqueue(retry=RetryPolicy(base=3600, cap=3600))
    leased = await drive.lease()
    await drive.beat(leased)
    await drive.ring()
    clock.advance(40)
    await drive.ring()
    assert await drive.state(task_id) == State.LEASED
    clock.advance(4)
    await drive.ring()
    assert await drive.state(task_id) == State.LEASED
    await drive.elapse(clock, 12)
    assert await drive.state(task_id) == State.RETRY_WAIT


async def test_schedule_to_start_expires_what_never_started(drive: Drive, clock: SteppedClock) -> None:
    """TMO-02, EX-28."""
    stale = await drive.enqueue(timeouts=Timeouts(schedule_to_start=60))
    started = await drive.enqueue(timeouts=Timeouts(schedule_to_start=60))
    tasks = {task.id: task for task in await drive.poll(2)}
    await drive.beat(tasks[started])
    await drive.complete(tasks[stale], "released")
    assert (await drive.read(stale)).started_at is not None  # its worker completed the lease, so it had started
    clock.advance(61)
    await drive.ring()
    never = await drive.enqueue(timeouts=Timeouts(schedule_to_start=60))
    clock.advance(60)
    await drive.ring()
    assert await drive.state(never) == State.EXPIRED


async def test_start_to_close_ends_an_attempt_whatever_the_heartbeats(drive: Drive, clock: SteppedClock) -> None:
    """TMO-01, TMO-03, LEASE-15, B023: the late completion is refused."""
    task_id = await drive.enqueue(
        timeouts=Timeouts(start_to_close=20), retry=RetryPolicy(max_attempts=2, base=1, cap=1)
    )
    leased = await drive.lease()
    await drive.beat(leased)
    clock.advance(20)
    await drive.ring()
    assert await drive.state(task_id) == State.RETRY_WAIT
    assert (await failure(drive, task_id)).code == "start_to_close_timeout"
    with pytest.raises(LeaseLost):
        await drive.succeed(leased)
    clock.advance(1)
    await drive.ring()
    await drive.beat(await drive.lease())
    clock.advance(20)
    await drive.ring()
    assert await drive.state(task_id) == State.FAILED


@pytest.mark.parametrize("limits", [Timeouts(heartbeat=5), Timeouts(start_to_close=5)])
async def test_a_time_out_of_an_undelivered_lease_spends_no_attempt(
    drive: Drive, clock: SteppedClock, limits: Timeouts
) -> None:
    """DESIGN 1: the answer of the poll was lost, so nothing ran."""
    task_id = await drive.enqueue(timeouts=limits, retry=RetryPolicy(max_attempts=1))
    await drive.lease()
    await drive.elapse(clock, 8)
    task = await drive.read(task_id)
    assert (task.state, task.attempt, task.lost_deliveries) == (State.ENQUEUED, 0, 1)


async def test_heartbeat_timeout(drive: Drive, clock: SteppedClock) -> None:
    """TMO-05: a fresher beat re-arms."""
    task_id = await drive.enqueue(timeouts=Timeouts(heartbeat=5))
    leased = await drive.lease()
    await drive.ring()
    for _ in range(4):
        clock.advance(4)
        await drive.beat(leased)
        await drive.ring()
    assert await drive.state(task_id) == State.LEASED
    clock.advance(3)
    await drive.ring()
    clock.advance(3)
    await drive.ring()
    assert (await failure(drive, task_id)).code == "heartbeat_timeout"


async def test_schedule_to_close_caps_the_whole_loop(drive: Drive, clock: SteppedClock) -> None:
    """TMO-04, X-34; B045: no sleep past the end."""
    task_id = await drive.enqueue(
        timeouts=Timeouts(schedule_to_close=10), retry=RetryPolicy(max_attempts=100, base=1000, cap=1000)
    )
    assert await drive.fail(await drive.lease(), retry_after=60_000_000) == State.FAILED
    closed = await failure(drive, task_id)
    assert closed.code == "schedule_to_close_timeout"
    assert closed.cause is not None
    assert closed.cause.message == "boom"
    waiting = await drive.enqueue(timeouts=Timeouts(schedule_to_close=10))
    clock.advance(10)
    await drive.ring()
    assert await drive.state(waiting) == State.EXPIRED


async def test_cancel_is_immediate_when_nobody_runs_it(drive: Drive) -> None:
    """CANC-01, CANC-12."""
    queued, delayed = await drive.enqueue(), await drive.enqueue(delay=60)
    for task_id in (queued, delayed):
        assert (await drive.cancel(task_id)).state == State.CANCELED
        assert (await drive.cancel(task_id)).state == State.CANCELED
    assert await drive.poll() == []


async def test_cancel_is_cooperative_then_forced(drive: Drive, clock: SteppedClock) -> None:
    """CANC-02, CANC-03."""
    task_id = await drive.enqueue()
    leased = await drive.lease()
    assert (await drive.cancel(task_id)).cancel_requested
    assert await drive.beat(leased) is True
    assert await drive.complete(leased, "canceled") == State.CANCELED
    other = await drive.enqueue()
    leased = await drive.lease()
    await drive.beat(leased)
    await drive.cancel(other)
    clock.advance(30)
    await drive.ring()
    assert await drive.state(other) == State.CANCELED
    with pytest.raises(LeaseLost):
        await drive.succeed(leased)


async def test_a_completion_before_the_worker_heard_of_the_cancel_wins(drive: Drive) -> None:
    """CANC-08."""
    task_id = await drive.enqueue()
    leased = await drive.lease()
    await drive.cancel(task_id)
    assert await drive.succeed(leased) == State.SUCCEEDED


async def test_cancel_of_another_namespace_is_not_found(drive: Drive) -> None:
    """SEC-01."""
    task_id = await drive.enqueue()
    with pytest.raises(NotFound):
        await drive.cancel(task_id, namespace="other")
    with pytest.raises(NotFound):
        await drive.cancel(b"\x01" * 16)


async def test_release_spends_no_attempt_and_goes_first(drive: Drive) -> None:
    """B030, B124, DESIGN 1."""
    first = await drive.enqueue()
    await drive.enqueue()
    leased = await drive.lease()
    assert leased.id == first
    assert await drive.complete(leased, "released", checkpoint=b"at 7") == State.ENQUEUED
    again = await drive.lease()
    assert (again.id, again.attempt, again.checkpoint) == (first, 0, b"at 7")


async def test_progress_and_checkpoint_reach_the_next_attempt(drive: Drive, clock: SteppedClock) -> None:
    """TASK-22, JOB-10."""
    await drive.enqueue(retry=RetryPolicy(base=1, cap=1))
    leased = await drive.lease()
    await drive.beat(leased, progress=b"p", checkpoint=b"c")
    await drive.beat(leased)
    await drive.fail(leased)
    clock.advance(1)
    await drive.ring()
    again = await drive.lease()
    assert (again.progress, again.checkpoint, again.attempt) == (b"p", b"c", 1)


async def test_keys_make_one_task(drive: Drive) -> None:
    """IDEM-01, IDEM-15, B040, B150: one job, one id; another body is refused."""
    outcomes = await drive.engine.apply([enqueue(key="k") for _ in range(20)])
    ids = {o.task_id for o in outcomes if isinstance(o, c.Enqueued)}
    assert len(ids) == 1
    assert [o.duplicate for o in outcomes if isinstance(o, c.Enqueued)] == [False] + [True] * 19
    with pytest.raises(IdempotencyConflict):
        await drive.enqueue(key="k", digest=b"other")
    (task,) = await drive.poll()
    await drive.succeed(task)
    assert await drive.enqueue(key="k") in ids
    assert await drive.poll() == []


async def test_a_key_is_free_after_its_life_once_its_task_has_closed(drive: Drive, clock: SteppedClock) -> None:
    """IDEM-02; DESIGN 3: never before the task has closed."""
    first = await drive.enqueue(key="k")
    clock.advance(25 * 3600)
    assert await drive.enqueue(key="k") == first
    await drive.succeed(await drive.lease())
    second = await drive.enqueue(key="k", digest=b"other")
    assert second != first


async def test_queue_order_and_priorities(drive: Drive) -> None:
    """B054: first in, first out; priority 1 first."""
    outcomes = await drive.engine.apply([enqueue() for _ in range(1000)])
    ids = [o.task_id for o in outcomes if isinstance(o, c.Enqueued)]
    urgent = await drive.enqueue(priority=1)
    got: list[bytes] = []
    while tasks := await drive.poll(300):
        got += [task.id for task in tasks]
    assert got == [urgent, *ids]


async def test_a_fairness_key_waits_only_for_rounds(drive: Drive) -> None:
    """B055, QUOTA-14."""
    await drive.engine.apply([enqueue("a", fairness_key="a") for _ in range(300)])
    await drive.poll(20)
    await drive.engine.apply([enqueue("b", fairness_key="b") for _ in range(10)])
    types = [task.type for task in await drive.poll(40)]
    assert types.count("b") == 10


async def test_queues_are_served_in_the_order_of_the_poll(drive: Drive) -> None:
    low, high = await drive.enqueue(queue="low"), await drive.enqueue(queue="high")
    assert [t.id for t in await drive.poll(1, "high", "low")] == [high]
    assert [t.id for t in await drive.poll(5, "high", "low")] == [low]


async def test_a_parked_poll_gets_a_new_job_in_its_own_batch(drive: Drive) -> None:
    """Sync match: born leased, in queue order, never more than asked for (CLUS-09, CLUS-19)."""
    parked = asyncio.create_task(drive.poll(2, wait=20))
    while not drive.engine.dispatch.waiting:
        await asyncio.sleep(0)
    outcomes = await drive.engine.apply([enqueue(), enqueue(), enqueue()])
    ids = [o.task_id for o in outcomes if isinstance(o, c.Enqueued)]
    tasks = await parked
    assert [t.id for t in tasks] == ids[:2]
    assert await drive.succeed(tasks[0]) == State.SUCCEEDED
    assert [t.id for t in await drive.poll(5)] == ids[2:]


async def test_a_repeated_poll_gets_its_unacknowledged_leases_again(drive: Drive) -> None:
    """DESIGN 3, answers survive; B027."""
    await drive.engine.apply([enqueue() for _ in range(3)])
    request = drive.request(2, poll=7)
    first = await drive.engine.poll(request)
    assert {t.lease for t in await drive.engine.poll(request)} == {t.lease for t in first}
    await drive.beat(first[0])
    assert [t.lease for t in await drive.engine.poll(request)] == [first[1].lease]


async def test_both_polls_that_a_broken_connection_took_with_it_get_their_leases_again(drive: Drive) -> None:
    """B027: in whatever order they come again; found by the simulation."""
    await drive.engine.apply([enqueue() for _ in range(2)])
    requests = [drive.request(1, poll=number) for number in (7, 8)]
    first = [await drive.engine.poll(request) for request in requests]
    drive.engine.dispatch.forget(drive.incarnation)  # it has connected again
    again = [await drive.engine.poll(request) for request in requests]
    assert [tasks[0].lease for tasks in again] == [tasks[0].lease for tasks in first]


async def test_a_poll_whose_worker_left_hands_its_tasks_back(drive: Drive) -> None:
    """CLUS-17: a task handed to a dead connection is not lost."""
    task_id = await drive.enqueue()
    polling = asyncio.create_task(drive.poll(1, wait=20))
    await asyncio.sleep(0)
    polling.cancel()
    await asyncio.gather(polling, return_exceptions=True)
    leased = await drive.poll(1, wait=5)
    assert [t.id for t in leased] == [task_id]


async def test_an_outage_breaks_connections_and_ends_nobody(drive: Drive, clock: SteppedClock) -> None:
    """B008: a worker cannot come back before the database does; one that is known to be gone ends at once."""
    session = {"namespace": "default", "identity": "w", "queues": "default", "slots": 5}
    tasks = []
    for incarnation in (1, 2, 3):
        drive.incarnation = incarnation
        await drive.one(c.OpenSession(incarnation=incarnation, epoch=1, **session))
        tasks.append(await drive.lease_new())
        await drive.beat(tasks[-1])
    await drive.elapse(clock, 4)
    await drive.one(c.CloseSession(incarnation=1, epoch=1))  # noted as the outage begins
    clock.advance(60)
    await drive.one(c.CloseSession(incarnation=2, epoch=1))  # noted as soon as it is over
    await drive.one(c.CloseSession(incarnation=3))
    await drive.ring()
    await drive.one(c.Reap(limit=100))
    assert [await drive.state(task.id) for task in tasks] == [State.LEASED, State.LEASED, State.RETRY_WAIT]
    await drive.one(c.OpenSession(incarnation=1, epoch=2, **session))
    await drive.beat(tasks[0])
    await drive.elapse(clock, 16)
    await drive.one(c.Reap(limit=100))
    assert [await drive.state(task.id) for task in tasks[:2]] == [State.LEASED, State.RETRY_WAIT]


async def test_the_end_of_a_session_ends_its_leases(drive: Drive, clock: SteppedClock) -> None:
    """DESIGN 3, early ends; B009: a new incarnation is not the old owner."""
    await drive.engine.apply([enqueue() for _ in range(5)])
    session = {"namespace": "default", "identity": "w1", "queues": "default", "slots": 5}
    await drive.one(c.OpenSession(incarnation=1, epoch=1, **session))
    tasks = await drive.poll(5)
    for task in tasks[:2]:
        await drive.beat(task)
    await drive.one(c.OpenSession(incarnation=1, epoch=2, **session))
    await drive.one(c.CloseSession(incarnation=1, epoch=1))
    await drive.one(c.Reap(limit=100))
    assert await drive.state(tasks[0].id) == State.LEASED  # a newer connection took over
    await drive.one(c.CloseSession(incarnation=1))
    assert (await drive.one(c.Reap(limit=3))).count == 3
    clock.advance(2)
    assert (await drive.one(c.Reap(limit=100))).count == 2
    states = [await drive.state(task.id) for task in tasks]
    assert states == [State.RETRY_WAIT] * 2 + [State.ENQUEUED] * 3
    await drive.one(c.Reap(limit=100))
    assert await drive.engine.store.sessions("default") == []


async def test_retention_deletes_only_what_is_closed_and_old(drive: Drive, clock: SteppedClock) -> None:
    """PERS-13, PERS-20."""
    old, live = await drive.enqueue(key="old"), await drive.enqueue(key="live")
    tasks = {t.id: t for t in await drive.poll()}
    await drive.succeed(tasks[old])
    clock.advance(1000)
    new = await drive.enqueue()
    await drive.succeed(await drive.lease())
    await drive.one(c.Trim(closed_before=clock.now() - 500_000_000, limit=100))
    found = await drive.engine.store.read([old, live, new])
    assert set(found) == {live, new}


async def test_retry_cuts_a_back_off_short_and_nothing_else(drive: Drive) -> None:
    """RETRY-08."""
    task_id = await drive.enqueue(retry=RetryPolicy(base=3600, cap=3600))
    with pytest.raises(IllegalMove):
        await drive.one(c.Retry(namespace="default", task_id=task_id))
    await drive.fail(await drive.lease())
    await drive.one(c.Retry(namespace="default", task_id=task_id))
    assert (await drive.lease()).attempt == 1


async def test_a_watch_answers_when_the_task_closes(drive: Drive) -> None:
    """JOB-14, B116."""
    assert await drive.engine.watch(b"\x01" * 16, 20, namespace="default") is None
    task_id = await drive.enqueue()
    open_ = await drive.engine.watch(task_id, 0, namespace="default")
    assert open_ is not None
    assert open_.state == State.ENQUEUED
    watching = asyncio.create_task(drive.engine.watch(task_id, 20, namespace="default"))
    await drive.succeed(await drive.lease())
    done = await asyncio.wait_for(watching, 5)
    assert done is not None
    assert done.state == State.SUCCEEDED
    assert done.lane == LANE
