"""Runs that begin again from an event of their past, on every store (RPLY-39)."""

from __future__ import annotations

import pytest

from perdure.core import commands as c
from perdure.core import turn_commands as t
from perdure.core.errors import InvalidArgument, LeaseLost, WorkflowAlreadyStarted
from perdure.core.model import Failure, RetryPolicy, pack
from perdure.core.states import State
from tests.clock import SteppedClock
from tests.engine.drive import Drive
from tests.engine.runs import DONE, MINT, Flows, activity, timer
from tests.engine.test_workflows import BEGUN, FIRST, SCHEDULED


@pytest.fixture
def flows(drive: Drive) -> Flows:
    return Flows(drive)


async def _reset(drive: Drive, flows: Flows, run_id: bytes, event_id: int) -> bytes:
    command = c.Reset(
        namespace="default", workflow_id="wf", run_id=run_id, event_id=event_id, history=await flows.history(run_id),
        task=await drive.read(run_id), run=await flows.run(run_id), new_run_id=MINT.task_id(drive.engine.now()),
        reason="a bug",
    )  # fmt: skip
    started: c.Started = await drive.one(command)
    return started.run_id


async def test_a_run_begins_again_from_an_event(drive: Drive, flows: Flows, clock: SteppedClock) -> None:
    """RPLY-39: what was under way is under way again, later signals count, the old run is terminated."""
    run_id = await flows.start()
    await (await flows.turn()).append(activity("a"), timer("t", 100.0))
    old_work = await drive.lease()
    await flows.signal("later")
    await (await flows.turn()).append(t.RecordMarker(marker_name="wrong"))
    new_id = await _reset(drive, flows, run_id, 6)
    assert await drive.state(run_id) == State.TERMINATED
    with pytest.raises(LeaseLost):
        await drive.elapse(clock, 1)
        await drive.complete(old_work, "succeeded", result=pack(()))
    turn = await flows.turn()
    assert turn.task.id == new_id
    assert turn.names == ["WorkflowExecutionSignaled", SCHEDULED, BEGUN]
    assert await flows.names(new_id) == [*FIRST, "ActivityTaskScheduled", "TimerStarted", "WorkflowTaskFailed"]
    await turn.append()
    work = await drive.lease()
    assert (work.parent_run_id, work.parent_event_id) == (new_id, 5)
    await drive.complete(work, "succeeded", result=pack(()))
    await drive.elapse(clock, 100)
    turn = await flows.turn()
    assert turn.names[:3] == ["ActivityTaskStarted", "ActivityTaskCompleted", "TimerFired"]
    await turn.append(DONE)
    run = await flows.run(new_id)
    assert (run.children, run.reset_run_id, run.reset_event_id) == (0, run_id, 6)


async def test_a_reset_keeps_what_was_asked_for_together(flows: Flows) -> None:
    """In the middle of the commands of one activation there is no way back to."""
    run_id = await flows.start()
    await (await flows.turn()).append(activity("a"), timer("t"), t.RecordMarker(marker_name="m"))
    new_id = await _reset(flows.drive, flows, run_id, 6)
    assert await flows.names(new_id) == [*FIRST, "WorkflowTaskFailed"]
    assert (await flows.run(new_id)).children == 0


async def test_a_closed_run_begins_again(drive: Drive, flows: Flows) -> None:
    run_id = await flows.start()
    turn = await flows.turn()
    await turn.append(t.StartStep(step_id=1, name="a"), final=False)
    await turn.append(t.CompleteStep(step_id=1), t.FailWorkflow(failure=Failure(message="no")))
    new_id = await _reset(drive, flows, run_id, 6)
    assert await flows.names(new_id) == [*FIRST, "StepStarted", "StepCompleted", "WorkflowTaskFailed"]
    with pytest.raises(WorkflowAlreadyStarted):
        await _reset(drive, flows, run_id, 4)
    assert (await (await flows.turn()).append(DONE)).state == State.SUCCEEDED


@pytest.mark.parametrize(("limit", "options"), [(30, {"run_timeout": 30.0}), (50, {"execution_timeout": 50.0})])
async def test_the_time_outs_of_a_run_hold_again(
    drive: Drive, flows: Flows, clock: SteppedClock, limit: int, options: dict[str, float]
) -> None:
    """Counted from the reset: the run may have been closed for days."""
    run_id = await flows.start(**options)
    await (await flows.turn()).append(DONE)
    clock.advance(3600)
    new_id = await _reset(drive, flows, run_id, 4)
    assert (await drive.read(new_id)).deadline == drive.engine.now() + limit * 1_000_000
    await drive.elapse(clock, limit + 1)
    assert await drive.state(new_id) == State.TIMED_OUT


async def test_the_time_outs_of_an_activity_hold_again(drive: Drive, flows: Flows, clock: SteppedClock) -> None:
    run_id = await flows.start()
    once = RetryPolicy(max_attempts=1)
    await (await flows.turn()).append(activity("a", schedule_to_close=20.0, schedule_to_start=10.0, retry=once))
    new_id = await _reset(drive, flows, run_id, 5)
    await (await flows.turn()).append()
    (child,), _ = await drive.engine.store.pending(new_id, 10)
    assert (child.expires_at, child.deadline) == (child.created_at + 10_000_000, child.created_at + 20_000_000)
    await drive.elapse(clock, 11)
    assert "ActivityTaskTimedOut" in (await flows.turn()).names


async def test_what_was_sent_to_others_is_not_sent_again(drive: Drive, flows: Flows, clock: SteppedClock) -> None:
    """While it is under way there is no way back behind it; later its answer is known in the new run too."""
    await flows.start("other")
    await (await flows.turn()).append(timer())
    run_id = await flows.start()
    sent = t.SignalExternalWorkflow(task_id=MINT.task_id(drive.engine.now()), workflow_id="other", signal_name="hi")
    await (await flows.turn()).append(sent)
    with pytest.raises(InvalidArgument):
        await _reset(drive, flows, run_id, 5)
    await drive.elapse(clock, 1)
    turns = {turn.run.workflow_id: turn for turn in await flows.turns()}
    await turns["wf"].append(timer())
    new_id = await _reset(drive, flows, run_id, 5)
    turn = await flows.turn()
    assert turn.task.id == new_id
    assert "ExternalWorkflowExecutionSignaled" in turn.names


async def test_a_run_that_outlived_its_key_begins_again(drive: Drive, flows: Flows, clock: SteppedClock) -> None:
    """A workflow id is remembered for a time from its start on; a run that was open longer is kept after that."""
    run_id = await flows.start()
    await (await flows.turn()).append(DONE)
    clock.advance(40 * 86_400)
    store = drive.engine.store
    async with store.batch() as rows:
        await rows.trim_keys(100, 1)
    name = ("default", "", "workflow", "wf")
    assert await store.find_key(name) is None
    new_id = await _reset(drive, flows, run_id, 4)
    key = await store.find_key(name)
    assert key is not None and key.task_id == new_id
    assert (await (await flows.turn()).append(DONE)).state == State.SUCCEEDED


async def test_a_history_that_is_too_old_is_read_again(drive: Drive, flows: Flows) -> None:
    run_id = await flows.start()
    await (await flows.turn()).append(timer())
    command = c.Reset(
        namespace="default", workflow_id="wf", run_id=run_id, event_id=1, history=(await flows.history(run_id))[:-1],
        task=await drive.read(run_id), run=await flows.run(run_id), new_run_id=MINT.task_id(drive.engine.now()),
    )  # fmt: skip
    assert await drive.one(command) == c.Stale()
    assert await drive.state(run_id) == State.WAITING
