"""Runs that owe compensations: what is written as they close, who finds it, and what takes it away (SAGA-04, VIS-06,
OBS-22). On every store."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.core import commands as c
from perdure.core import turn_commands as t
from perdure.core.compensations import ATTRIBUTE, FAILED, NOTHING, PENDING, Owed
from perdure.core.model import Failure, RetryPolicy, pack, unpack
from perdure.core.states import Kind, State
from perdure.engine.doctor import Doctor
from perdure.store.base import Filter, Store
from tests.clock import SteppedClock
from tests.engine.drive import Drive
from tests.engine.runs import DONE, MINT, Flows, activity
from tests.store.rows import closed, insert, new_task, task_id

NO = t.FailWorkflow(failure=Failure(message="no"))


@pytest.fixture
def flows(drive: Drive) -> Flows:
    return Flows(drive)


def says(what: str) -> t.UpsertSearchAttributes:
    return t.UpsertSearchAttributes(search_attributes={ATTRIBUTE: what, "other": 1})


async def owed(store: Store) -> list[int]:
    return [what for *_, what in await store.owing(10)]


async def attributes(flows: Flows, run_id: bytes) -> dict[str, Any]:
    run = (await flows.drive.engine.store.run_rows([run_id]))[run_id]
    found: dict[str, Any] = unpack(run.search_attributes or b"\x80", dict[str, Any])
    return found


# --------------------------------------------------------------------------------------------------------------- store
async def close_run(store: Store, n: int, what: int | None = None, **fields: Any) -> None:
    given: dict[str, Any] = {"kind": Kind.WORKFLOW, **fields}
    await insert(store, new_task(n, **given))
    async with store.batch() as batch:
        await batch.lock([task_id(n)])
        await batch.close([closed(new_task(n, **given), State.FAILED)])
        if what is not None:
            await batch.mark_owing({task_id(n): what})


async def test_what_runs_owe_is_kept_until_it_is_resolved(store: Store) -> None:
    await close_run(store, 1, Owed.FAILED)
    await close_run(store, 2)
    await close_run(store, 3, Owed.NOT_RUN, namespace="other", type="trip")
    assert sorted(await store.owing(10)) == [
        ("default", "email", task_id(1), 2),
        ("other", "trip", task_id(3), 1),
    ]
    assert len(await store.owing(1)) == 1
    assert await store.resolve(task_id(1), b"done by hand")
    assert [row[0] for row in await store.owing(10)] == ["other"]


async def test_runs_that_owe_something_are_listed_newest_first(store: Store) -> None:
    for n in range(1, 5):
        await close_run(store, n, Owed.FAILED, queue="slow" if n == 3 else "fast")
    await close_run(store, 5)
    await close_run(store, 6, Owed.FAILED, namespace="other")

    async def found(**fields: Any) -> list[int]:
        given: dict[str, Any] = {"namespace": "default", "limit": 10, "owing": True, "kind": Kind.WORKFLOW}
        filter = Filter(**(given | fields))
        rows = await store.find(filter)
        assert all(row.payload is None and row.result is None for row in rows)
        return [int.from_bytes(row.id, "big") for row in rows]

    assert await found() == [4, 3, 2, 1]
    assert await found(limit=2) == [4, 3]
    assert await found(before=task_id(3)) == [2, 1]
    assert await found(queue="slow") == [3]
    assert await found(state=State.TERMINATED) == []
    assert await found(workflow_id="unknown") == []
    assert await found(owing=False) == [5, 4, 3, 2, 1]


# -------------------------------------------------------------------------------------------------------------- engine
async def test_SAGA_04_a_run_that_fails_with_failed_compensations_says_so(drive: Drive, flows: Flows) -> None:
    run_id = await flows.start()
    await (await flows.turn()).append(says(PENDING), activity())
    assert await owed(drive.engine.store) == []
    await drive.complete(await drive.lease(), "failed", failure=None)
    await flows.signal("go on")
    await (await flows.turn()).append(says(FAILED), NO)
    assert await owed(drive.engine.store) == [Owed.FAILED]
    assert (await attributes(flows, run_id))[ATTRIBUTE] == FAILED


async def test_SAGA_04_a_run_that_completes_in_spite_of_failed_compensations_says_so_too(
    drive: Drive, flows: Flows
) -> None:
    await flows.start()
    await (await flows.turn()).append(says(FAILED), DONE)
    assert await owed(drive.engine.store) == [Owed.FAILED]


@pytest.mark.parametrize("end", ["fails", "terminated", "times_out"])
async def test_compensations_that_never_ran_are_owed_whatever_ended_the_run(
    drive: Drive, flows: Flows, clock: SteppedClock, end: str
) -> None:
    run_id = await flows.start(run_timeout=30.0)
    turn = await flows.turn()
    await turn.append(says(PENDING), *([NO] if end == "fails" else []))
    if end == "terminated":
        await drive.one(c.Terminate(namespace="default", workflow_id="wf"))
    elif end == "times_out":
        await drive.elapse(clock, 31)
    assert (await drive.state(run_id)) in (State.FAILED, State.TERMINATED, State.TIMED_OUT)
    assert await owed(drive.engine.store) == [Owed.NOT_RUN]


async def test_a_run_that_completes_or_was_undone_owes_nothing(drive: Drive, flows: Flows) -> None:
    completes = await flows.start("completes")
    await (await flows.turn()).append(says(PENDING), DONE)
    undone = await flows.start("undone")
    await (await flows.turn()).append(says(PENDING), says(NOTHING), NO)
    assert await owed(drive.engine.store) == []
    assert await attributes(flows, completes) == {"other": 1}
    assert await attributes(flows, undone) == {ATTRIBUTE: NOTHING, "other": 1}


async def test_a_run_that_continues_as_new_takes_nothing_along(drive: Drive, flows: Flows) -> None:
    """What it has not undone is its own decision; what failed stays with the old run, where it is found."""
    for workflow_id, said, owes in (("a", PENDING, []), ("b", FAILED, [Owed.FAILED])):
        await flows.start(workflow_id)
        new_id = MINT.task_id(drive.engine.now())
        await (await flows.turn()).append(says(said), t.ContinueAsNew(task_id=new_id))
        assert await owed(drive.engine.store) == owes
        assert await attributes(flows, new_id) == {"other": 1}
        await (await flows.turn()).append(NO)
    assert await owed(drive.engine.store) == [Owed.FAILED]


async def test_a_retry_owes_nothing_of_the_attempt_before(drive: Drive, flows: Flows, clock: SteppedClock) -> None:
    """Whose compensations have still not run."""
    policy = RetryPolicy(max_attempts=2, base=1.0)
    await flows.start(draft={"retry_policy": pack(policy)}, retry=policy)
    await (await flows.turn()).append(says(PENDING), NO)
    assert await owed(drive.engine.store) == [Owed.NOT_RUN]
    await drive.elapse(clock, 60)
    await (await flows.turn()).append(NO)
    assert await owed(drive.engine.store) == [Owed.NOT_RUN]


@pytest.mark.parametrize(("event", "owes"), [(6, [Owed.NOT_RUN]), (3, [])])
async def test_a_reset_run_owes_what_it_did_at_that_time(
    drive: Drive, flows: Flows, event: int, owes: list[Owed]
) -> None:
    """The old run, which was terminated by the reset, owes nothing: the new one goes on with its past."""
    run_id = await flows.start()
    await (await flows.turn()).append(says(PENDING), t.RecordMarker(marker_name="m"))
    await flows.signal("go on")
    await (await flows.turn()).append(says(FAILED))
    command = c.Reset(
        namespace="default", workflow_id="wf", run_id=run_id, event_id=event, history=await flows.history(run_id),
        task=await drive.read(run_id), run=await flows.run(run_id), new_run_id=MINT.task_id(drive.engine.now()),
    )  # fmt: skip
    new_id = (await drive.one(command)).run_id
    assert await drive.state(run_id) == State.TERMINATED
    assert await owed(drive.engine.store) == []
    assert ATTRIBUTE not in await attributes(flows, run_id)
    assert (await attributes(flows, new_id)).get(ATTRIBUTE) == (PENDING if owes else None)
    await drive.one(c.Terminate(namespace="default", workflow_id="wf"))
    assert await owed(drive.engine.store) == owes


# -------------------------------------------------------------------------------------------------------------- doctor
async def test_OBS_22_the_checks_find_runs_that_owe_compensations(
    drive: Drive, flows: Flows, clock: SteppedClock
) -> None:
    store = drive.engine.store
    for workflow_id, said in (("a", FAILED), ("b", FAILED), ("c", PENDING)):
        await flows.start(workflow_id)
        await (await flows.turn()).append(says(said), NO)
    await flows.start("tries again")
    await (await flows.turn()).append(says(FAILED), t.StartTimer(task_id=task_id(9), timer_id="hour", start_to_fire=9))
    report = await Doctor(store, clock.now).examine()
    found = {(one.check, one.count) for one in report.findings if one.check.startswith("compensations")}
    assert found == {("compensations", 2), ("compensations", 1), ("compensations_failing", 1)}
    closed_ones = [one for one in report.findings if one.check == "compensations"]
    assert ["failed" in one.detail for one in closed_ones] == [True, False]
    assert "did not all run" in closed_ones[1].detail and len(closed_ones[0].examples) == 2
