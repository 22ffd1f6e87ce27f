"""Workflow runs through the engine, on every store: turns, inboxes, children, closes (RPLY, SIG, CHILD, CANC)."""

from __future__ import annotations

import pytest

from perdure.core import commands as c
from perdure.core import turn_commands as t
from perdure.core.errors import LeaseLost, NotFound, UnhandledMessages, WorkflowAlreadyStarted, WorkflowClosed
from perdure.core.events import WorkflowExecutionCancelRequested
from perdure.core.model import Failure, RetryPolicy, pack
from perdure.core.run import UpdateRequest
from perdure.core.states import State
from tests.clock import SteppedClock
from tests.engine.drive import Drive
from tests.engine.runs import DONE, MINT, Flows, activity, child, payload, start, timer

STARTED, SCHEDULED, BEGUN, COMPLETED = (
    "WorkflowExecutionStarted",
    "WorkflowTaskScheduled",
    "WorkflowTaskStarted",
    "WorkflowTaskCompleted",
)
FIRST = [STARTED, SCHEDULED, BEGUN, COMPLETED]


@pytest.fixture
def flows(drive: Drive) -> Flows:
    return Flows(drive)


async def test_a_run_of_one_turn(drive: Drive, flows: Flows) -> None:
    run_id = await flows.start()
    assert await flows.names(run_id) == [STARTED]  # RPLY-08
    turn = await flows.turn()
    assert turn.names == [SCHEDULED, BEGUN]
    assert await flows.names(run_id) == [STARTED]  # nothing is written for a turn that is handed out (RPLY-33)
    assert await turn.append(DONE) == c.Appended(run_id, State.SUCCEEDED, 5)
    assert await flows.names(run_id) == [*FIRST, "WorkflowExecutionCompleted"]
    closed = await drive.read(run_id)
    assert closed.state == State.SUCCEEDED
    assert closed.result == pack(payload("5"))
    assert (await flows.run(run_id)).event_count == 5


async def test_steps_are_claimed_and_ended_under_one_lease(flows: Flows) -> None:
    """STEP-11, STEP-13: claim, result and next claim; ids are what the worker expects."""
    run_id = await flows.start()
    turn = await flows.turn()
    assert (await turn.append(t.StartStep(step_id=1, name="a"), final=False)).last == 5
    assert (await turn.append(t.CompleteStep(step_id=1), t.StartStep(step_id=2, name="b"), final=False)).last == 7
    assert (await turn.append(t.CompleteStep(step_id=2), DONE)).last == 9
    assert await flows.names(run_id) == [
        *FIRST, "StepStarted", "StepCompleted", "StepStarted", "StepCompleted", "WorkflowExecutionCompleted",
    ]  # fmt: skip


async def test_a_repeated_append_is_answered_and_writes_nothing(flows: Flows) -> None:
    run_id = await flows.start()
    turn = await flows.turn()
    claim = turn.command(t.StartStep(step_id=1, name="a"), final=False)
    first = await flows.drive.one(claim)
    assert await flows.drive.one(claim) == first
    last = turn.command(t.CompleteStep(step_id=1), DONE, after=first.last)
    closed = await flows.drive.one(last)
    assert (await flows.drive.one(last)).state == closed.state
    assert len(await flows.history(run_id)) == closed.last


async def test_an_append_of_a_stale_lease_is_refused(drive: Drive, flows: Flows, clock: SteppedClock) -> None:
    """STEP-14: two runners, and the history does not fork."""
    run_id = await flows.start()
    old = await flows.turn()
    await old.append(t.StartStep(step_id=1, name="a"), final=False)
    await drive.elapse(clock, 40)
    new = await flows.turn()
    with pytest.raises(LeaseLost):
        await old.append(t.CompleteStep(step_id=1), DONE)
    assert new.after == 7
    await new.append(t.StartStep(step_id=1, name="a", attempt=2), final=False)
    await new.append(t.CompleteStep(step_id=1), DONE)
    assert (await flows.names(run_id))[4:] == [
        "StepStarted", SCHEDULED, BEGUN, COMPLETED, "StepStarted", "StepCompleted", "WorkflowExecutionCompleted",
    ]  # fmt: skip


async def test_an_activity_runs_and_its_result_wakes_the_run(drive: Drive, flows: Flows) -> None:
    run_id = await flows.start()
    await (await flows.turn()).append(activity("a"))
    assert await drive.state(run_id) == State.WAITING
    assert await flows.turns() == []
    work = await drive.lease()
    assert (work.type, work.parent_run_id) == ("work", run_id)
    assert await drive.complete(work, "succeeded", result=pack(payload("7"))) == State.SUCCEEDED
    turn = await flows.turn()
    assert turn.names == ["ActivityTaskStarted", "ActivityTaskCompleted", SCHEDULED, BEGUN]
    assert turn.events[1].attributes.started_event_id == turn.events[0].id  # type: ignore[union-attr]
    assert turn.events[1].attributes.scheduled_event_id == 5  # type: ignore[union-attr]
    await turn.append(DONE)
    assert (await flows.run(run_id)).children == 0
    assert work.id not in await drive.engine.store.read([work.id])  # its parent's history tells


async def test_an_activity_is_retried_before_its_parent_hears(drive: Drive, flows: Flows, clock: SteppedClock) -> None:
    await flows.start()
    await (await flows.turn()).append(activity("a", retry=RetryPolicy(max_attempts=2)))
    assert await drive.fail(await drive.lease()) == State.RETRY_WAIT
    assert await flows.turns() == []
    await drive.elapse(clock, 2)
    assert await drive.fail(await drive.lease()) == State.FAILED
    turn = await flows.turn()
    assert turn.names[:2] == ["ActivityTaskStarted", "ActivityTaskFailed"]
    assert turn.events[0].attributes.attempt == 2  # type: ignore[union-attr]


async def test_a_timer_fires_once(drive: Drive, flows: Flows, clock: SteppedClock) -> None:
    run_id = await flows.start()
    await (await flows.turn()).append(timer("nap", 60.0))
    await drive.elapse(clock, 59)
    assert await flows.turns() == []
    await drive.elapse(clock, 2)
    turn = await flows.turn()
    assert turn.names == ["TimerFired", SCHEDULED, BEGUN]
    await turn.append(DONE)
    assert (await flows.run(run_id)).children == 0


async def test_a_canceled_timer_is_gone(drive: Drive, flows: Flows, clock: SteppedClock) -> None:
    run_id = await flows.start()
    turn = await flows.turn()
    kept, dropped = timer("kept"), timer("dropped")
    await turn.append(kept, dropped, t.CancelTimer(task_id=dropped.task_id, timer_id="dropped", started_event_id=6))
    assert (await flows.run(run_id)).children == 1
    await flows.signal("go")
    again = await flows.turn()
    await again.append(t.CancelTimer(task_id=kept.task_id, timer_id="kept", started_event_id=5))
    assert (await flows.run(run_id)).children == 0
    await drive.elapse(clock, 100)
    assert await flows.turns() == []


async def test_signals_wait_for_the_next_turn_in_order(flows: Flows) -> None:
    """SIG-02, SIG-04: while a turn is in hand they stay in the inbox."""
    run_id = await flows.start()
    await flows.signal("one")
    turn = await flows.turn()
    assert turn.names == ["WorkflowExecutionSignaled", SCHEDULED, BEGUN]
    await flows.signal("two")
    await flows.signal("three", run_id=run_id)
    assert (await turn.append()).state == State.ENQUEUED
    turn = await flows.turn()
    assert [e.attributes.signal_name for e in turn.events[:2]] == ["two", "three"]  # type: ignore[union-attr]
    await turn.append(DONE)
    with pytest.raises(WorkflowClosed):
        await flows.signal("late")  # SIG-14
    with pytest.raises(NotFound):
        await flows.signal("x", "nobody")


async def test_a_request_id_makes_one_signal(flows: Flows) -> None:
    """SIG-03."""
    await flows.start()
    told = await flows.signal("one", request_id="r1")
    assert await flows.signal("one", request_id="r1") == told
    turn = await flows.turn()
    assert turn.names.count("WorkflowExecutionSignaled") == 1


async def test_a_run_does_not_close_over_a_signal(flows: Flows) -> None:
    """A signal that arrives while the code decides to end is shown to it first (B092, B093)."""
    run_id = await flows.start()
    turn = await flows.turn()
    await flows.signal("wait")
    with pytest.raises(UnhandledMessages):
        await turn.append(DONE)
    assert await flows.names(run_id) == [STARTED]
    again = await flows.turn()
    assert again.names == ["WorkflowExecutionSignaled", SCHEDULED, BEGUN]
    assert (await again.append(DONE)).state == State.SUCCEEDED


async def test_what_a_step_has_done_is_kept_when_the_close_is_put_off(flows: Flows) -> None:
    """STEP-13: a committed step never runs again, nor one that ended just before a signal came."""
    run_id = await flows.start()
    turn = await flows.turn()
    await turn.append(t.StartStep(step_id=1, name="a"), final=False)
    await flows.signal("wait")
    with pytest.raises(UnhandledMessages):
        await turn.append(t.CompleteStep(step_id=1), t.RecordMarker(marker_name="m"), DONE)
    assert (await flows.names(run_id))[4:] == ["StepStarted", "StepCompleted", "WorkflowTaskFailed"]
    again = await flows.turn()
    assert again.names == ["WorkflowExecutionSignaled", SCHEDULED, BEGUN]
    assert (await again.append(DONE)).state == State.SUCCEEDED


async def test_continue_as_new_takes_the_inbox_along(flows: Flows) -> None:
    """RPLY-23, RPLY-25."""
    run_id = await flows.start()
    turn = await flows.turn()
    await flows.signal("kept")
    new_id = MINT.task_id(1_700_000_000_000_000)
    done = await turn.append(t.ContinueAsNew(task_id=new_id, input=payload("9")))
    assert done.state == State.CONTINUED_AS_NEW
    assert (await flows.names(run_id))[-1] == "WorkflowExecutionContinuedAsNew"
    told = await flows.signal("new")
    assert told.run_id == new_id
    turn = await flows.turn()
    assert turn.task.id == new_id
    assert [e.attributes.signal_name for e in turn.events[:2]] == ["kept", "new"]  # type: ignore[union-attr]
    first = (await flows.history(new_id))[0].attributes
    assert first.input == payload("9")  # type: ignore[union-attr]
    assert first.continued_run_id == run_id  # type: ignore[union-attr]
    assert first.first_run_id == run_id  # type: ignore[union-attr]


async def test_one_run_a_workflow_id(drive: Drive, flows: Flows) -> None:
    run_id = await flows.start(request="r")
    assert await flows.start(request="r") == run_id
    with pytest.raises(WorkflowAlreadyStarted):
        await flows.start(request="s")
    assert await drive.one(start(id_conflict="use_existing")) == c.Started(run_id, started=False)
    new = await drive.one(start(id_conflict="terminate_existing"))
    assert new.started
    assert await drive.state(run_id) == State.TERMINATED
    turn = await flows.turn()
    assert turn.task.id == new.run_id
    await turn.append(DONE)
    with pytest.raises(WorkflowAlreadyStarted):
        await flows.start(id_reuse="allow_duplicate_failed_only")
    with pytest.raises(WorkflowAlreadyStarted):
        await flows.start(id_reuse="reject_duplicate")
    assert await flows.start() not in (run_id, new.run_id)


async def test_signal_with_start_makes_one_run(drive: Drive, flows: Flows) -> None:
    """SIG-06: 20 at once."""
    from perdure.core.events import WorkflowExecutionSignaled

    signal = WorkflowExecutionSignaled(signal_name="hi")
    made = await drive.engine.apply(
        [start(signal=signal, id_conflict="use_existing", request=str(n)) for n in range(20)]
    )
    assert len({outcome.run_id for outcome in made if isinstance(outcome, c.Started)}) == 1
    turn = await flows.turn()
    assert turn.names.count("WorkflowExecutionSignaled") == 20


async def test_cancel_is_a_message_that_the_code_may_answer(drive: Drive, flows: Flows, clock: SteppedClock) -> None:
    """CANC-10, CANC-12."""
    run_id = await flows.start()
    await (await flows.turn()).append(timer())
    request = c.Tell(namespace="default", workflow_id="wf", message=WorkflowExecutionCancelRequested(cause="enough"))
    await drive.one(request)
    await drive.one(request)
    turn = await flows.turn()
    assert turn.names == ["WorkflowExecutionCancelRequested", SCHEDULED, BEGUN]
    assert (await turn.append(t.CancelWorkflow())).state == State.CANCELED
    await drive.elapse(clock, 1)
    assert await drive.engine.store.pending(run_id, 10) == ([], [])


async def test_cancel_before_the_first_turn_closes(drive: Drive, flows: Flows) -> None:
    """CANC-05."""
    run_id = await flows.start()
    await drive.cancel(run_id)
    assert await drive.state(run_id) == State.CANCELED
    assert await flows.names(run_id) == [STARTED, "WorkflowExecutionCanceled"]


async def test_terminate(drive: Drive, flows: Flows, clock: SteppedClock) -> None:
    """RPLY-40; the worker that had the turn cannot write any more."""
    run_id = await flows.start()
    turn = await flows.turn()
    await turn.append(activity(), timer(), t.StartStep(step_id=1, name="s"), final=False)
    work = await drive.lease()
    done = await drive.one(c.Terminate(namespace="default", workflow_id="wf", reason="stop"))
    assert done.state == State.TERMINATED
    with pytest.raises(LeaseLost):
        await turn.append(DONE)
    await drive.elapse(clock, 1)
    assert await drive.engine.store.pending(run_id, 10) == ([], [])
    with pytest.raises(LeaseLost):
        await drive.complete(work, "succeeded", result=pack(payload("7")))
    assert (await flows.names(run_id))[-1] == "WorkflowExecutionTerminated"


@pytest.mark.parametrize(
    ("ending", "event"),
    [
        (DONE, "ChildWorkflowExecutionCompleted"),
        (t.FailWorkflow(failure=Failure(message="no")), "ChildWorkflowExecutionFailed"),
        (t.CancelWorkflow(), "ChildWorkflowExecutionCanceled"),
    ],
    ids=["completed", "failed", "canceled"],
)
async def test_a_child_tells_its_parent(flows: Flows, ending: t.TurnCommand, event: str) -> None:
    """CHILD-01, CHILD-03."""
    run_id = await flows.start()
    assert (await (await flows.turn()).append(child())).state == State.ENQUEUED
    for turn in await flows.turns():
        if turn.task.id == run_id:
            assert turn.names == ["ChildWorkflowExecutionStarted", SCHEDULED, BEGUN]
            await turn.append()
        else:
            await turn.append(ending)
    parent = await flows.turn()
    assert parent.names == [event, SCHEDULED, BEGUN]
    await parent.append(DONE)
    assert (await flows.run(run_id)).children == 0


async def test_a_child_id_that_is_taken(flows: Flows) -> None:
    await flows.start("child")
    await flows.start("wf")
    turns = {turn.run.workflow_id: turn for turn in await flows.turns()}
    await turns["wf"].append(child("child"))
    parent = await flows.turn()
    assert parent.names == ["StartChildWorkflowExecutionFailed", SCHEDULED, BEGUN]


@pytest.mark.parametrize(
    ("policy", "state"),
    [("terminate", State.TERMINATED), ("request_cancel", State.ENQUEUED), ("abandon", State.WAITING)],
)
async def test_what_becomes_of_children(
    drive: Drive, flows: Flows, clock: SteppedClock, policy: str, state: State
) -> None:
    """CHILD-02, CHILD-06 (B099)."""
    await flows.start()
    wanted = child(parent_close_policy=policy)
    await (await flows.turn()).append(wanted)
    for turn in await flows.turns():
        await turn.append(*([] if turn.run.workflow_id == "wf" else [timer()]))
    await drive.one(c.Terminate(namespace="default", workflow_id="wf"))
    await drive.elapse(clock, 1)
    assert await drive.state(wanted.task_id) == state


async def test_signal_and_cancel_between_runs(drive: Drive, flows: Flows) -> None:
    """SIG-01."""
    await flows.start("a")
    await flows.start("b")
    turns = {turn.run.workflow_id: turn for turn in await flows.turns()}
    await turns["b"].append(timer())
    ids = [MINT.task_id(1_700_000_000_000_000) for _ in range(3)]
    await turns["a"].append(
        t.SignalExternalWorkflow(task_id=ids[0], workflow_id="b", signal_name="hi", input=payload("7")),
        t.SignalExternalWorkflow(task_id=ids[1], workflow_id="nobody", signal_name="hi"),
        t.CancelExternalWorkflow(task_id=ids[2], workflow_id="b"),
    )
    await drive.ring()
    turns = {turn.run.workflow_id: turn for turn in await flows.turns()}
    assert sorted(turns["b"].names[:2]) == ["WorkflowExecutionCancelRequested", "WorkflowExecutionSignaled"]
    assert sorted(turns["a"].names[:3]) == [
        "ExternalWorkflowExecutionCancelRequested",
        "ExternalWorkflowExecutionSignaled",
        "SignalExternalWorkflowExecutionFailed",
    ]


async def test_an_update_is_answered(drive: Drive, flows: Flows) -> None:
    """SIG-11, SIG-12: nothing is written on arrival or rejection."""
    run_id = await flows.start()
    await (await flows.turn()).append(timer())
    row = MINT.task_id(1_700_000_000_000_000)
    tell = c.Tell(
        namespace="default",
        workflow_id="wf",
        message=UpdateRequest(update_id="u1", task_id=row, name="set", input=payload("6")),
    )
    assert await drive.one(tell) == c.Told(run_id, row)
    assert await drive.one(tell) == c.Told(run_id, row)
    before = len(await flows.history(run_id))
    turn = await flows.turn()
    assert [update.update_id for update in turn.updates] == ["u1"]
    assert turn.names == [SCHEDULED, BEGUN]
    assert len(await flows.history(run_id)) == before
    started = turn.events[-1].id
    await turn.append(
        t.AcceptUpdate(update_id="u1", task_id=row, name="set", input=payload("6"), sequencing_event_id=started),
        t.CompleteUpdate(update_id="u1", task_id=row, accepted_event_id=started + 2, result=payload("8")),
    )
    answer = await drive.read(row)
    assert answer.state == State.SUCCEEDED
    assert answer.result == pack(payload("8"))
    assert (await flows.names(run_id))[-2:] == [
        "WorkflowExecutionUpdateAccepted",
        "WorkflowExecutionUpdateCompleted",
    ]


async def test_a_rejected_update_leaves_no_event(drive: Drive, flows: Flows) -> None:
    run_id = await flows.start()
    row = MINT.task_id(1_700_000_000_000_000)
    update = UpdateRequest(update_id="u1", task_id=row, name="set")
    await drive.one(c.Tell(namespace="default", workflow_id="wf", message=update))
    turn = await flows.turn()
    failure = Failure(message="no", code="update_rejected")
    await turn.append(t.RejectUpdate(update_id="u1", task_id=row, failure=failure))
    assert await drive.state(row) == State.FAILED
    assert await flows.names(run_id) == FIRST


async def test_updates_of_a_closed_run_are_answered(drive: Drive, flows: Flows) -> None:
    """B089, B090."""
    await flows.start()
    await (await flows.turn()).append(timer())
    row = MINT.task_id(1_700_000_000_000_000)
    update = UpdateRequest(update_id="u1", task_id=row, name="set")
    await drive.one(c.Tell(namespace="default", workflow_id="wf", message=update))
    await drive.one(c.Terminate(namespace="default", workflow_id="wf"))
    await drive.ring()
    assert await drive.state(row) == State.FAILED


async def test_a_failed_turn_keeps_the_run_open(drive: Drive, flows: Flows, clock: SteppedClock) -> None:
    """RPLY-10, B§20-4: one event, then back-off up to a minute."""
    run_id = await flows.start()
    failure = pack(Failure(message="expected a, found b", code="non_determinism"))
    for wait in (1, 2, 4, 8):
        turn = await flows.turn()
        assert await drive.complete(turn.task, "failed", failure=failure) == State.RETRY_WAIT
        assert await flows.turns() == []
        await drive.elapse(clock, wait + 0.1)
    assert await flows.names(run_id) == [STARTED, SCHEDULED, BEGUN, "WorkflowTaskFailed"]
    turn = await flows.turn()
    assert turn.names == [SCHEDULED, BEGUN]
    assert (await turn.append(DONE)).state == State.SUCCEEDED
    assert (await flows.run(run_id)).failures == 0


async def test_a_released_turn_is_due_at_once(drive: Drive, flows: Flows) -> None:
    await flows.start()
    turn = await flows.turn()
    assert await drive.complete(turn.task, "released") == State.ENQUEUED
    assert (await flows.turn()).names == turn.names


async def test_a_paused_run_begins_no_turn(drive: Drive, flows: Flows, clock: SteppedClock) -> None:
    run_id = await flows.start()

    async def pause(paused: bool) -> None:
        await drive.one(c.Pause(namespace="default", workflow_id="wf", paused=paused))

    await pause(True)
    assert await flows.turns() == []
    await pause(False)
    turn = await flows.turn()
    await pause(True)
    await pause(True)
    await flows.signal("one")
    assert (await turn.append()).state == State.ENQUEUED
    assert await flows.turns() == []
    await pause(False)
    turn = await flows.turn()
    await drive.complete(turn.task, "failed", failure=pack(Failure(message="no")))
    await pause(True)
    await drive.elapse(clock, 5)
    assert await flows.turns() == []
    await pause(False)
    await (await flows.turn()).append(DONE)
    assert await drive.state(run_id) == State.SUCCEEDED


async def test_a_failing_run_is_retried_under_its_id(drive: Drive, flows: Flows, clock: SteppedClock) -> None:
    policy = RetryPolicy(max_attempts=2)
    run_id = await flows.start(retry=policy, draft={"retry_policy": pack(policy)})
    boom = t.FailWorkflow(failure=Failure(message="boom"))
    assert (await (await flows.turn()).append(boom)).state == State.FAILED
    await drive.elapse(clock, 2)
    turn = await flows.turn()
    assert turn.task.id != run_id
    assert turn.run.chain_attempt == 2
    assert (await turn.append(boom)).state == State.FAILED
    await drive.elapse(clock, 10)
    assert await flows.turns() == []


async def test_the_run_time_out_closes(drive: Drive, flows: Flows, clock: SteppedClock) -> None:
    run_id = await flows.start(run_timeout=30.0)
    await (await flows.turn()).append(timer("long", 1000.0))
    await drive.elapse(clock, 31)
    assert await drive.state(run_id) == State.TIMED_OUT
    assert (await flows.names(run_id))[-1] == "WorkflowExecutionTimedOut"


async def test_a_thousand_activities(drive: Drive, flows: Flows) -> None:
    """STEP-20: all ends are told, the run goes on to its end once."""
    run_id = await flows.start()
    await (await flows.turn()).append(*(activity(str(n)) for n in range(1000)))
    done = 0
    while work := await drive.poll(400):
        outcomes = await drive.engine.apply(
            [c.Complete(lease=task.lease, outcome="succeeded", result=b"\x90") for task in work]
        )
        assert all(isinstance(outcome, c.Changed) for outcome in outcomes)
        done += len(work)
    assert done == 1000
    told = 0
    while told < 1000:
        turn = await flows.turn()
        told += turn.names.count("ActivityTaskCompleted")
        await turn.append(*([DONE] if told == 1000 else []))
    assert (await flows.run(run_id)).children == 0
    assert await drive.state(run_id) == State.SUCCEEDED


async def test_a_cron_workflow_begins_again_and_again(drive: Drive, flows: Flows, clock: SteppedClock) -> None:
    """B§4, CRON: it begins at the times of the expression, and the last result goes along."""
    command = start(cron="*/5 * * * *", run_timeout=100.0)
    assert command.start is not None
    command.start.run.cron = "*/5 * * * *"
    run_id = (await drive.one(command)).run_id
    assert await flows.turns() == []
    await drive.elapse(clock, 300)
    turn = await flows.turn()
    assert turn.task.id == run_id
    assert (await turn.append(DONE)).state == State.SUCCEEDED
    closed = (await flows.history(run_id))[-1].attributes
    assert await flows.turns() == []
    await drive.elapse(clock, 300)
    turn = await flows.turn()
    assert turn.task.id == closed.new_run_id  # type: ignore[union-attr]
    begun = (await flows.history(turn.task.id))[0].attributes
    assert (begun.initiator, begun.last_result) == ("cron", payload("5"))  # type: ignore[union-attr]
    await turn.append(t.FailWorkflow(failure=Failure(message="boom")))
    await drive.elapse(clock, 300)
    turn = await flows.turn()
    begun = (await flows.history(turn.task.id))[0].attributes
    assert begun.last_result == payload("5")  # type: ignore[union-attr]
    assert begun.last_failure.message == "boom"  # type: ignore[union-attr]
    await drive.one(c.Terminate(namespace="default", workflow_id="wf"))
    await drive.elapse(clock, 600)
    assert await flows.turns() == []


async def test_a_worker_hears_that_messages_wait(flows: Flows) -> None:
    """CANC-06: a chain of steps ends its turn when something has come that the code must see."""
    await flows.start()
    turn = await flows.turn()
    assert not (await turn.append(t.StartStep(step_id=1, name="a"), final=False)).waiting
    await flows.signal("stop")
    assert (await turn.append(t.CompleteStep(step_id=1), t.StartStep(step_id=2, name="b"), final=False)).waiting
    assert (await turn.append(t.CompleteStep(step_id=2, held=True))).state == State.ENQUEUED
    assert (await flows.turn()).names == ["WorkflowExecutionSignaled", SCHEDULED, BEGUN]
