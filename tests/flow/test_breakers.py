"""Breakers in the engine, on every store: what crashes or fails too often rests, and all else goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from perdure.core import commands as c
from perdure.core.breaker import Circuit, Ending, Stage, Verdict
from perdure.core.errors import NotFound
from perdure.core.limit_rules import Limit
from perdure.core.model import SECOND, Failure, RetryPolicy, Task, Timeouts, pack
from perdure.core.outbox import START
from perdure.engine.batch import Batch
from perdure.store.base import Store
from tests.clock import SteppedClock
from tests.engine.drive import LANE, Drive, enqueue, running
from tests.flow.limited import complete, look, pause, poll_all, put
from tests.store.conftest import shared  # noqa: F401  # a fixture

NAME = ("default", "type", "t")


@pytest.fixture
async def shared_drive(shared: Store) -> AsyncIterator[Drive]:  # noqa: F811
    async with running(shared) as driving:
        yield driving


async def watch(drive: Drive, **settings: Any) -> Limit:
    """A breaker of type t that opens after three crashes in a row, for 30 s; times in seconds."""
    given: dict[str, Any] = {"crashes": 3, "failure_rate": None, "window": 60, "cool_down": 30} | settings
    for which in ("window", "cool_down"):
        given[which] = int(given[which] * SECOND)
    return await put(drive, "type", "t", circuit=Circuit(**({"min_attempts": 4, "probes": 1} | given)))


async def circuit_of(drive: Drive) -> Circuit:
    """As it is stored."""
    [limit] = [limit for limit in await drive.engine.store.limits() if limit.id == NAME]
    assert limit.circuit is not None
    return limit.circuit


async def crash(drive: Drive, task: Task) -> None:
    await complete(drive, task, "failed", failure=pack(Failure(message="", code="process_died")))


async def fail(drive: Drive, task: Task) -> None:
    await complete(drive, task, "failed", failure=pack(Failure(message="boom")))


async def trip(drive: Drive, **settings: Any) -> None:
    """Three attempts of type t crash; 30 s later they would start again."""
    await watch(drive, **settings)
    for _ in range(3):
        await drive.enqueue(retry=RetryPolicy(max_attempts=1))
    for task in await drive.poll(3):
        await crash(drive, task)
    assert (await circuit_of(drive)).stage is Stage.OPEN


async def test_crashes_in_a_row_stop_a_type_and_no_other(drive: Drive, clock: SteppedClock) -> None:
    """RETRY-09, RETRY-10: nothing of it starts, no attempt is spent, other types go on; then a probe decides."""
    await trip(drive)
    waiting = [await drive.enqueue() for _ in range(5)]
    other = await drive.enqueue("other")
    assert [task.id for task in await poll_all(drive)] == [other]
    row = await drive.read(waiting[0])
    assert (row.attempt, row.lease_number, row.place) == (0, 0, None)
    assert row.blocked_on == "\x1f".join(NAME)
    await look(drive, clock, 29)
    assert await poll_all(drive) == []
    await look(drive, clock, 1)
    assert [(await drive.read(task_id)).place is None for task_id in waiting] == [False, True, True, True, True]
    [probe] = await poll_all(drive)
    assert probe.id == waiting[0], "in their order"
    assert (await circuit_of(drive)).stage is Stage.HALF_OPEN
    await look(drive)
    assert await poll_all(drive) == [], "one probe at a time"
    await complete(drive, probe)
    assert (await circuit_of(drive)).stage is Stage.CLOSED
    await look(drive)
    assert [task.id for task in await poll_all(drive)] == waiting[1:]


async def test_a_probe_that_fails_opens_it_for_another_cool_down(drive: Drive, clock: SteppedClock) -> None:
    await trip(drive)
    for _ in range(3):
        await drive.enqueue()
    await poll_all(drive)
    for _ in range(2):
        await look(drive, clock, 30)
        [probe] = await poll_all(drive)
        await fail(drive, probe)
        assert (await circuit_of(drive)).reason == "a probe failed"
    await look(drive, clock, 29)
    assert await poll_all(drive) == []
    await look(drive, clock, 1)
    [probe] = await poll_all(drive)
    await complete(drive, probe)
    assert (await circuit_of(drive)).stage is Stage.CLOSED


async def test_all_of_several_probes_must_succeed(drive: Drive, clock: SteppedClock) -> None:
    await trip(drive, probes=3)
    for _ in range(9):
        await drive.enqueue()
    await poll_all(drive)
    await look(drive, clock, 30)
    first, second, third = await poll_all(drive)
    await complete(drive, first)
    await complete(drive, second)
    await look(drive)
    assert await poll_all(drive) == []
    await complete(drive, third)
    await look(drive)
    assert len(await poll_all(drive)) == 6


@pytest.mark.parametrize("end", ["cancel", "lost", "release"])
async def test_a_probe_without_a_verdict_makes_room_for_the_next(drive: Drive, clock: SteppedClock, end: str) -> None:
    """B018: no probe is remembered that could leak."""
    await trip(drive)
    await drive.enqueue(timeouts=Timeouts(lease=5))
    await drive.enqueue()
    await poll_all(drive)
    await look(drive, clock, 30)
    [probe] = await poll_all(drive)
    if end == "lost":
        await drive.elapse(clock, 12)  # before anybody acknowledged receipt
    elif end == "release":
        await complete(drive, probe, "released")
    else:
        await drive.beat(probe)
        await drive.cancel(probe.id)
        await complete(drive, probe, "canceled")
    await look(drive, clock, 1)
    [again] = await poll_all(drive)
    assert (await circuit_of(drive)).stage is Stage.HALF_OPEN
    await complete(drive, again)
    assert (await circuit_of(drive)).stage is Stage.CLOSED


async def test_a_worker_that_dies_counts_once_for_each_type_that_it_had_in_hand(
    drive: Drive, clock: SteppedClock
) -> None:
    """RETRY-14: the attempts are spent, all of them; the breaker counts deaths."""
    await watch(drive)
    for n in range(15):
        await drive.enqueue(retry=RetryPolicy(max_attempts=2, base=3600, cap=3600), timeouts=Timeouts(lease=5))
        if n % 5 < 4:
            continue
        worker = Drive(drive.engine, incarnation=n + 2)
        for task in await worker.poll(5):
            await worker.beat(task)
        await drive.elapse(clock, 6)
        assert (await circuit_of(drive)).in_a_row == (n // 5 + 1) % 3
    circuit = await circuit_of(drive)
    assert (circuit.stage, circuit.reason) == (Stage.OPEN, "3 crashes in a row")


async def test_too_large_a_part_of_failed_attempts_opens_it(drive: Drive) -> None:
    """FAIL-08: what fails together is not tried again together; those that run end as they do."""
    await watch(drive, crashes=None, failure_rate=0.5)
    for _ in range(9):
        await drive.enqueue()
    tasks = await drive.poll(8)
    for task in tasks[:2]:
        await complete(drive, task)
    await fail(drive, tasks[2])
    assert (await circuit_of(drive)).stage is Stage.CLOSED
    await fail(drive, tasks[3])
    circuit = await circuit_of(drive)
    assert (circuit.stage, circuit.reason) == (Stage.OPEN, "2 of 4 attempts failed within 60 s")
    assert await poll_all(drive) == []
    for task in tasks[4:]:
        await complete(drive, task)
    assert (await circuit_of(drive)) == circuit


async def test_the_batch_that_opens_it_hands_nothing_more_out(drive: Drive) -> None:
    """In one batch: the third crash, and a poll that could have got the next task."""
    await watch(drive)
    for _ in range(5):
        await drive.enqueue()
    tasks = await drive.poll(3)
    for task in tasks[:2]:
        await crash(drive, task)
    got, _ = await asyncio.gather(drive.poll(5), crash(drive, tasks[2]))
    assert got == []


async def test_another_server_hears_of_it_within_a_look(drive: Drive) -> None:
    """The state is in the database: it outlives servers, and is the same for all."""
    await watch(drive)
    async with running(drive.engine.store, seed=2, incarnation=2) as other:
        await trip(drive)
        await drive.enqueue()
        await look(other)
        assert await poll_all(other) == []
    async with running(drive.engine.store, seed=3, incarnation=3) as later:
        assert await poll_all(later) == []


async def test_two_servers_start_no_more_probes_than_one(drive: Drive, clock: SteppedClock) -> None:
    await trip(drive, probes=2)
    for _ in range(9):
        await drive.enqueue()
    await poll_all(drive)
    async with running(drive.engine.store, seed=2, incarnation=2) as other:
        clock.advance(30)
        started: list[Task] = []
        for _ in range(4):
            await asyncio.gather(look(drive), look(other))
            for got in await asyncio.gather(*(server.poll(5) for server in (drive, other, drive, other))):
                started += got
        assert len(started) == 2
        await complete(drive, started[0])
        await complete(other, started[1])
        await look(other)
        assert len(await poll_all(other)) == 7


async def test_what_another_server_has_done_is_learnt_from_the_row(drive: Drive) -> None:
    """A server that ends attempts holds the row anyway."""
    await watch(drive)
    for _ in range(4):
        await drive.enqueue()
    [task, *_] = await drive.poll(3)
    async with running(drive.engine.store, seed=2, incarnation=2) as other:
        await other.one(c.SwitchBreaker(name=NAME, open=True))
    await complete(drive, task)
    assert await poll_all(drive) == []


async def test_endings_whose_limit_another_batch_holds_are_counted_a_little_later(shared_drive: Drive) -> None:
    drive = shared_drive
    await watch(drive, crashes=1)
    await drive.enqueue()
    task = await drive.lease()
    async with drive.engine.store.batch() as batch:
        assert await batch.hold_limits([NAME])
        await crash(drive, task)
        assert (await drive.engine.store.limits())[0].circuit.stage is Stage.CLOSED  # type: ignore[union-attr]
    await drive.engine.apply([c.Pull(subjects=list(drive.engine.flow._due))])
    assert (await circuit_of(drive)).stage is Stage.OPEN


async def test_what_could_not_be_counted_goes_with_the_breaker(drive: Drive) -> None:
    """One that is set later has seen none of it."""
    limit = await watch(drive, crashes=1)
    known = drive.engine.flow.known
    known.leave({NAME: [Ending(Verdict.CRASHED, drive.engine.now())]})
    known.learn({NAME: limit})
    assert list(known.left) == [NAME]
    await put(drive, "type", "t", max_running=1)
    assert not known.left


async def test_somebody_opens_and_closes_it(drive: Drive, clock: SteppedClock) -> None:
    await watch(drive)
    job = await drive.enqueue()
    outcome: c.LimitIs = await drive.one(c.SwitchBreaker(name=NAME, open=True, note="the provider is down"))
    assert outcome.limit is not None
    assert outcome.limit.circuit is not None
    assert outcome.limit.circuit.reason == "by hand: the provider is down"
    assert await poll_all(drive) == []
    await drive.one(c.SwitchBreaker(name=NAME, open=False))
    await look(drive)
    assert [task.id for task in await poll_all(drive)] == [job]
    await drive.one(c.SwitchBreaker(name=NAME, open=True))
    await drive.enqueue()
    assert await poll_all(drive) == []
    await look(drive, clock, 31)
    assert len(await poll_all(drive)) == 1, "for a cool-down"
    for name in ("u", "t"):
        await put(drive, "type", name, max_running=1)
        with pytest.raises(NotFound):
            await drive.one(c.SwitchBreaker(name=("default", "type", name), open=True))


async def test_what_waits_for_a_cool_down_hears_of_a_close_at_once(drive: Drive) -> None:
    await trip(drive, cool_down=3600)
    job = await drive.enqueue()
    assert await poll_all(drive) == []
    await drive.engine.flow.run_once()
    await drive.one(c.SwitchBreaker(name=NAME, open=False))
    await drive.engine.flow.run_once()
    assert [task.id for task in await poll_all(drive)] == [job]


async def test_the_service_wakes_up_at_the_end_of_a_cool_down(drive: Drive) -> None:
    await trip(drive, cool_down=0.5)
    await drive.enqueue()
    assert await poll_all(drive) == []
    pauses = [await drive.engine.flow.run_once() for _ in range(3)]
    assert 0.1 < pauses[-1] <= 0.5


async def test_other_settings_do_not_change_the_state(drive: Drive, clock: SteppedClock) -> None:
    await trip(drive)
    before = await circuit_of(drive)
    await watch(drive, cool_down=60)
    after = await circuit_of(drive)
    assert (after.stage, after.since, after.reason) == (before.stage, before.since, before.reason)
    await drive.enqueue()
    await look(drive, clock, 59)
    assert await poll_all(drive) == []
    await look(drive, clock, 1)
    assert len(await poll_all(drive)) == 1


async def test_it_goes_together_with_other_limits_of_the_type(drive: Drive, clock: SteppedClock) -> None:
    await watch(drive)
    settings = (await circuit_of(drive)).settings
    await put(drive, "type", "t", max_running=2, circuit=Circuit(*settings))  # type: ignore[arg-type]
    for _ in range(6):
        await drive.enqueue(retry=RetryPolicy(max_attempts=1))
    for _ in range(2):
        first, second = await poll_all(drive)
        await crash(drive, first)
        await crash(drive, second)
        await look(drive)
    assert await poll_all(drive) == []
    await pause(drive, "type", "t")
    await look(drive, clock, 30)
    assert await poll_all(drive) == []
    kept = await pause(drive, "type", "t", paused=False)
    assert kept is not None
    assert kept.circuit is not None
    await look(drive)
    [probe] = await poll_all(drive)
    await complete(drive, probe)
    await look(drive)
    assert len(await poll_all(drive)) == 1


async def test_a_breaker_that_is_taken_away_lets_everything_start(drive: Drive) -> None:
    await trip(drive)
    await drive.enqueue()
    assert await poll_all(drive) == []
    await drive.one(c.DeleteLimit(name=NAME))
    await look(drive)
    assert len(await poll_all(drive)) == 1


async def test_many_tasks_of_an_open_type_hold_up_nobody(drive: Drive) -> None:
    """FAIL-08 [scaled]: they leave the lane, and are not walked over again."""
    await trip(drive)
    await drive.engine.apply([enqueue() for _ in range(3_000)])
    other = await drive.enqueue("other")
    polls = [await drive.poll(10) for _ in range(12)]
    assert [task.id for polled in polls for task in polled] == [other]
    again = await drive.enqueue("other")
    [task] = await drive.poll(10)
    assert task.id == again, "at the first try"


async def test_its_moves_are_events_and_warnings(
    drive: Drive, clock: SteppedClock, caplog: pytest.LogCaptureFixture
) -> None:
    """OBS-22: whoever follows the namespace is told, with the reason."""
    await drive.engine.outbox.record("default", True)
    with caplog.at_level(logging.WARNING, "perdure.engine"):
        await trip(drive)
        await drive.enqueue()
        await poll_all(drive)
        await look(drive, clock, 30)
        [probe] = await poll_all(drive)
        await complete(drive, probe)
    found = [event for event in await drive.engine.store.events("default", START, 100) if event.is_of_breaker]
    assert [(event.type, event.task_type, event.reason) for event in found] == [
        ("breaker.opened", "t", "3 crashes in a row"),
        ("breaker.half_opened", "t", "3 crashes in a row"),
        ("breaker.closed", "t", "a probe succeeded"),
    ]
    told = [record.getMessage() for record in caplog.records if "breaker" in record.getMessage()]
    assert told == [
        "the breaker of type 't' in namespace 'default' is OPEN: 3 crashes in a row",
        "the breaker of type 't' in namespace 'default' is HALF_OPEN: 3 crashes in a row",
        "the breaker of type 't' in namespace 'default' is CLOSED: a probe succeeded",
    ]


async def test_types_without_one_take_the_short_ways(drive: Drive) -> None:
    """A breaker that is closed costs claims nothing, and its leases say that their end has to be looked at."""
    await watch(drive)
    await drive.enqueue()
    await drive.enqueue("other")
    watched, free = await drive.poll(2)
    flow = drive.engine.flow
    assert (flow.is_limited(watched), flow.is_limited(free)) == (True, False)
    assert not flow.known.limits.touch(LANE)
    held: list[object] = []
    phases = Batch._run_phases

    async def spy(batch: Batch, rows: Any) -> None:
        await phases(batch, rows)
        held.append(batch.flow.held)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Batch, "_run_phases", spy)
        await drive.enqueue()
        await drive.poll(1)
    assert held
    assert not any(held)
