"""What the engine does when the database fails: DESIGN section 3, Failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from perdure.core import commands as c
from perdure.core.errors import Internal, InvalidArgument, LeaseLost, OutcomeUnknown, Unavailable
from perdure.core.states import State
from perdure.engine import outage
from perdure.store.base import DataFault, Store, StoreFault
from tests.engine.drive import Drive, enqueue, running
from tests.engine.faulty import FaultyStore


@pytest.fixture
def faulty(store: Store) -> FaultyStore:
    return FaultyStore(store)


@pytest.fixture
async def drive(faulty: FaultyStore) -> AsyncIterator[Drive]:
    async with running(faulty) as driving:  # type: ignore[arg-type]
        yield driving


async def test_a_refused_value_costs_only_its_own_command(drive: Drive, faulty: FaultyStore) -> None:
    """Classes 22 and 23 bisect the batch."""

    def refuse(verb: str, args: tuple[Any, ...]) -> None:
        if verb == "insert" and any(task.payload == b"bad" for task in args[0]):
            raise DataFault("value out of range")

    faulty.before = refuse
    outcomes = await drive.engine.apply([enqueue(payload=b"bad" if n == 13 else b"good") for n in range(40)])
    assert isinstance(outcomes[13], InvalidArgument)
    ids = [o.task_id for o in outcomes if isinstance(o, c.Enqueued)]
    assert len(ids) == 39
    assert [t.id for t in await drive.poll(100)] == ids


async def test_a_bug_costs_its_command_not_the_server(drive: Drive, faulty: FaultyStore) -> None:
    def crash(verb: str, args: tuple[Any, ...]) -> None:
        if verb == "insert" and any(task.payload == b"bad" for task in args[0]):
            raise ZeroDivisionError("bug")

    faulty.before = crash
    outcomes = await drive.engine.apply([enqueue(payload=b"bad"), enqueue()])
    assert isinstance(outcomes[0], Internal)
    assert isinstance(outcomes[1], c.Enqueued)
    assert len(await drive.poll(5)) == 1


@pytest.mark.parametrize("verb", ["reserve_keys", "insert"])
async def test_an_outage_parks_the_batch_and_keeps_its_ids(drive: Drive, faulty: FaultyStore, verb: str) -> None:
    """Ids minted for a request stay the same over its tries; nothing is doubled (IDEM-07)."""
    faults = 2

    def fail(name: str, args: tuple[Any, ...]) -> None:
        nonlocal faults
        if name == verb and faults:
            faults -= 1
            raise StoreFault("connection refused")

    faulty.before = fail
    command = enqueue(key="k")
    outcome = await drive.one(command)
    assert (outcome.task_id, outcome.duplicate) == (command.task_id, False)
    assert len(await drive.poll(5)) == 1


@pytest.mark.parametrize("outcome", ["unknown-kept", "unknown-lost"])
async def test_a_commit_of_unknown_outcome_is_looked_up(drive: Drive, faulty: FaultyStore, outcome: str) -> None:
    """FAIL-05: answered once it is known, done once."""
    await drive.succeed(await drive.lease_new())
    faulty.commits = [outcome]
    command = enqueue(key="k")
    made = await drive.one(command)
    assert (made.task_id, made.duplicate) == (command.task_id, False)
    assert faulty.asked == 2
    tasks = await drive.poll(5)
    assert [t.id for t in tasks] == [command.task_id]
    faulty.commits, faulty.asked = [outcome], 0
    assert await drive.succeed(tasks[0]) == State.SUCCEEDED
    assert (await drive.read(tasks[0].id)).attempt == 1


@pytest.mark.parametrize("outcome", ["unknown-kept", "unknown-lost"])
async def test_a_claim_of_unknown_outcome_leases_once(drive: Drive, faulty: FaultyStore, outcome: str) -> None:
    await drive.enqueue()
    faulty.commits = [outcome]
    (task,) = await drive.poll(5, wait=10)
    stored = await drive.read(task.id)
    assert stored.lease == task.lease
    assert stored.lease_number == 1
    assert await drive.succeed(task) == State.SUCCEEDED


async def test_a_heartbeat_of_unknown_outcome_may_be_repeated(drive: Drive, faulty: FaultyStore) -> None:
    await drive.enqueue()
    task = await drive.lease()
    faulty.commits = ["unknown-lost"]
    assert await drive.beat(task) is False
    await drive.succeed(task)
    with pytest.raises(LeaseLost):
        await drive.beat(task)


async def test_stopping_answers_everyone(drive: Drive, faulty: FaultyStore) -> None:
    """Nobody waits for ever, also while the database is away (B123)."""
    parked = asyncio.create_task(drive.poll(1, wait=20))
    while not drive.engine.dispatch.waiting:
        await asyncio.sleep(0)

    def away(verb: str, args: tuple[Any, ...]) -> None:
        raise StoreFault("away")

    faulty.before = away
    waiting = asyncio.create_task(drive.engine.apply([enqueue()]))
    await asyncio.sleep(0)
    await asyncio.wait_for(drive.engine.stop(), 10)
    assert await parked == []
    (outcome,) = await waiting
    assert isinstance(outcome, Unavailable)
    with pytest.raises(Unavailable):
        await drive.engine.apply([enqueue()])


async def test_full_queues_refuse_new_work_but_never_a_heartbeat(drive: Drive, faulty: FaultyStore) -> None:
    """DESIGN 3: 503 and Retry-After."""
    await drive.enqueue()
    task = await drive.lease()
    with pytest.raises(Unavailable) as refused:
        await asyncio.gather(*(drive.engine.apply([enqueue() for _ in range(1000)]) for _ in range(40)))
    assert refused.value.retry_after == 1.0
    assert await drive.beat(task) is False
    await asyncio.gather(*(t for t in asyncio.all_tasks() if t.get_coro().__name__ == "apply"), return_exceptions=True)  # type: ignore[union-attr]


async def test_polls_time_out_while_the_database_is_away(drive: Drive, faulty: FaultyStore) -> None:
    """A parked request is answered in time (JOB-14), and served once the database is back."""

    def away(verb: str, args: tuple[Any, ...]) -> None:
        raise StoreFault("away")

    faulty.before = away
    async with asyncio.timeout(5):
        assert await drive.poll(1, wait=0.1) == []
    waiting = asyncio.create_task(drive.poll(1, wait=20))
    enqueued = asyncio.create_task(drive.enqueue())
    await asyncio.sleep(0.05)
    faulty.before = lambda verb, args: None
    async with asyncio.timeout(10):
        assert [t.id for t in await waiting] == [await enqueued]


async def test_bulk_work_is_not_starved_by_full_batches(drive: Drive) -> None:
    """B145: retention goes on under load."""
    busy = True

    async def load() -> None:
        while busy:
            await drive.engine.apply([enqueue()])

    loads = [asyncio.create_task(load()) for _ in range(3)]
    async with asyncio.timeout(10):
        assert await drive.one(c.Trim(closed_before=1, limit=10)) == c.Did(0)
    busy = False
    await asyncio.gather(*loads)


async def test_a_long_outage_sends_callers_back(
    drive: Drive, faulty: FaultyStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """DESIGN 3: 503 and Retry-After, nothing written; one line when it begins and one when it is over (B152)."""
    monkeypatch.setattr(outage, "PATIENCE", 0.3)
    monkeypatch.setattr(outage, "_BRIEF", 0.0)

    def away(verb: str, args: tuple[Any, ...]) -> None:
        raise StoreFault("connection refused")

    faulty.before = away
    async with asyncio.timeout(10):
        (outcome,) = await drive.engine.apply([enqueue(key="k")])
    assert isinstance(outcome, Unavailable)
    assert not isinstance(outcome, OutcomeUnknown)
    assert outcome.retry_after == 5.0
    assert drive.engine.outage.long
    faulty.before = lambda verb, args: None
    await drive.enqueue(key="k")
    assert drive.engine.outage.seconds == 0
    assert len(await drive.poll(5)) == 1
    assert [record.message.split(";")[0] for record in caplog.records][:1] == ["the database is away for 0 s"]
    assert caplog.records[-1].message.startswith("the database is back after")
    assert len(caplog.records) == 2


async def test_a_commit_that_cannot_be_looked_up_is_said_to_be_unknown(
    drive: Drive, faulty: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outage, "PATIENCE", 0.2)
    await drive.succeed(await drive.lease_new())

    async def committed(unknown: Any) -> bool:
        raise StoreFault("away")

    faulty.commits = ["unknown-kept"]
    faulty.committed = committed  # type: ignore[method-assign]
    async with asyncio.timeout(10):
        (outcome,) = await drive.engine.apply([enqueue()])
    assert isinstance(outcome, OutcomeUnknown)


async def test_stopping_does_not_wait_for_a_database_that_never_answers(
    drive: Drive, faulty: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B123: grace and five seconds; whoever waits hears that the outcome is unknown, never a 500."""
    monkeypatch.setattr("perdure.engine.engine._STOP_SECONDS", 0.1)
    batch = faulty.batch

    @asynccontextmanager
    async def black_hole(*, single: bool = False) -> AsyncIterator[Any]:
        async with batch(single=single) as rows:
            await asyncio.Event().wait()
            yield rows

    faulty.batch = black_hole  # type: ignore[method-assign]
    waiting = asyncio.create_task(drive.engine.apply([enqueue()]))
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await drive.engine.stop()
        (outcome,) = await waiting
    assert isinstance(outcome, OutcomeUnknown)
