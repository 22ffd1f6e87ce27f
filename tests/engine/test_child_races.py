"""Workflow runs and what they wait for (activities, timers, child runs, other runs) meet: every order on the memory
store, drawn orders on PostgreSQL, and both in one batch. What ended is told once, and what nobody needs goes away."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from perdure.core import commands as c
from perdure.core import turn_commands as t
from perdure.core.errors import WorkflowAlreadyStarted
from perdure.core.model import Failure, RetryPolicy, Task, pack
from perdure.core.states import State, is_closed
from tests.clock import SteppedClock
from tests.engine import interleave, soundness
from tests.engine.drive import Drive
from tests.engine.interleave import Race
from tests.engine.runs import DONE, MINT, Flows, Turn, activity, child, payload, start, timer

MOST = 60
"""Orders of one race that are tried on the memory store one after another; as many again are drawn."""
DRAWN = 4
"""Orders of one race that are tried on PostgreSQL."""

CLOCK = SteppedClock()
SLOW = RetryPolicy(base=3600, cap=3600)
Both = tuple[Turn, Task]
"""A turn in hand of the parent, and a leased child."""


# ------------------------------------------------------------------------------------------------------------ setups
async def at_work(drive: Drive) -> Both:
    """A turn in hand, and an activity of the run that a worker has."""
    flows = Flows(drive)
    await flows.start()
    await (await flows.turn()).append(activity("a", retry=SLOW))
    work = await drive.lease()
    await flows.signal("early")
    return await flows.turn(), work


async def queued(drive: Drive) -> Turn:
    """A turn in hand, and an activity of the run that nobody has."""
    flows = Flows(drive)
    await flows.start()
    await (await flows.turn()).append(activity("a"))
    await flows.signal("early")
    return await flows.turn()


async def two_at_work(drive: Drive) -> list[Task]:
    flows = Flows(drive)
    await flows.start()
    await (await flows.turn()).append(activity("a"), activity("b"))
    return await drive.poll(2)


async def timer_due(drive: Drive) -> tuple[Turn, bytes]:
    """A turn in hand, and a timer of the run whose time has come."""
    flows = Flows(drive)
    await flows.start()
    nap = timer("nap", 5.0)
    await (await flows.turn()).append(nap)
    await flows.signal("early")
    turn = await flows.turn()
    CLOCK.advance(5)
    return turn, nap.task_id


def family(policy: str) -> Callable[[Drive], Awaitable[tuple[Turn, Turn]]]:
    """Turns in hand of a parent and its child run."""

    async def setup(drive: Drive) -> tuple[Turn, Turn]:
        flows = Flows(drive)
        await flows.start()
        await (await flows.turn()).append(child(parent_close_policy=policy))
        turns = {turn.run.workflow_id: turn for turn in await flows.turns()}
        return turns["wf"], turns["child"]

    return setup


async def orphaned_work(drive: Drive) -> Both:
    """The run is terminated and its children are about to be swept up: an activity that a worker has."""
    turn, work = await at_work(drive)
    await drive.one(c.Terminate(namespace="default", workflow_id="wf"))
    return turn, work


async def orphaned_queue(drive: Drive) -> Turn:
    turn = await queued(drive)
    await drive.one(c.Terminate(namespace="default", workflow_id="wf"))
    return turn


async def orphaned_run(drive: Drive) -> bytes:
    """The child run has not begun."""
    flows = Flows(drive)
    await flows.start()
    wanted = child()
    await (await flows.turn()).append(wanted)
    await drive.one(c.Terminate(namespace="default", workflow_id="wf"))
    return wanted.task_id


async def orphaned_turn(drive: Drive) -> tuple[Turn, Turn]:
    """The child run has a turn in hand."""
    turns = await family("terminate")(drive)
    await drive.one(c.Terminate(namespace="default", workflow_id="wf"))
    return turns


def underway(*errands: Callable[[], t.TurnCommand]) -> Callable[[Drive], Awaitable[Turn]]:
    """A turn in hand of run "wf", and messages to it that are due, each from a run of its own."""

    async def setup(drive: Drive) -> Turn:
        flows = Flows(drive)
        await flows.start()
        turn = await flows.turn()
        for number, errand in enumerate(errands):
            await flows.start(f"sender{number}")
            await (await flows.turn()).append(errand(), timer())
        return turn

    return setup


async def child_to_cancel(drive: Drive) -> Turn:
    """A parent's turn in hand, its child that never began, and another run's cancel request to that."""
    flows = Flows(drive)
    await flows.start("sender")
    sender = await flows.turn()
    await flows.start()
    await (await flows.turn()).append(child())
    turns = {turn.run.workflow_id: turn for turn in await flows.turns()}
    await drive.complete(turns["child"].task, "released")
    await sender.append(t.CancelExternalWorkflow(task_id=_id(), workflow_id="child"), timer())
    return turns["wf"]


async def two_parents(drive: Drive) -> list[Turn]:
    flows = Flows(drive)
    await flows.start("wf")
    await flows.start("wf2")
    return await flows.turns()


async def in_turn(drive: Drive) -> Turn:
    await Flows(drive).start()
    return await Flows(drive).turn()


def _id() -> bytes:
    return MINT.task_id(1_700_000_000_000_000)


async def in_turn_beside_a_run(drive: Drive) -> Turn:
    await Flows(drive).start("other")
    other = await Flows(drive).turn()
    await other.append(timer("long", 10.0))
    return await in_turn(drive)


def a_signal_to(workflow_id: str) -> t.TurnCommand:
    return t.SignalExternalWorkflow(task_id=_id(), workflow_id=workflow_id, signal_name="bye")


def a_signal() -> t.TurnCommand:
    return t.SignalExternalWorkflow(task_id=_id(), workflow_id="wf", signal_name="hi", input=payload("7"))


def a_cancel() -> t.TurnCommand:
    return t.CancelExternalWorkflow(task_id=_id(), workflow_id="wf")


# ------------------------------------------------------------------------------------------------------------- sides
def parent(*commands: Any, final: bool = True) -> Callable[[Drive, Any], Any]:
    """The parent's turn appends; the turn is what the setup made, or the first of it."""
    return lambda drive, made: drive.one(_turn(made).command(*commands, final=final))


def wait(drive: Drive, made: Any) -> Any:
    return drive.one(_turn(made).command(timer("later", 3.0)))


def _turn(made: Any) -> Turn:
    turn = made if isinstance(made, Turn) else made[0]
    assert isinstance(turn, Turn)
    return turn


def go_on(drive: Drive, made: Any) -> Any:
    return drive.one(_turn(made).command(t.ContinueAsNew(task_id=_id(), input=payload("9"))))


def parent_cancels_it(drive: Drive, made: Both) -> Any:
    asked = t.CancelActivity(task_id=made[1].id, scheduled_event_id=5)
    return drive.one(made[0].command(asked, timer("later", 3.0)))


def parent_cancels_timer(drive: Drive, made: tuple[Turn, bytes]) -> Any:
    asked = t.CancelTimer(task_id=made[1], timer_id="nap", started_event_id=5)
    return drive.one(made[0].command(asked, timer("later", 3.0)))


def done(drive: Drive, made: Both) -> Any:
    return drive.complete(made[1], "succeeded", result=pack(payload("7")))


def failed(drive: Drive, made: Both) -> Any:
    return drive.fail(made[1])


def child_appends(*commands: Any) -> Callable[[Drive, Any], Any]:
    return lambda drive, made: drive.one(made[1].command(*commands))


def child_goes_on(drive: Drive, made: Any) -> Any:
    return drive.one(made[1].command(t.ContinueAsNew(task_id=_id(), input=payload("9"))))


def terminate(drive: Drive, made: Any) -> Any:
    return drive.one(c.Terminate(namespace="default", workflow_id="wf"))


def ring(drive: Drive, made: Any) -> Any:
    return drive.ring()


def poll(drive: Drive, made: Any) -> Any:
    return drive.poll()


def turns(drive: Drive, made: Any) -> Any:
    return Flows(drive).turns()


def begins_child(number: int) -> Callable[[Drive, Any], Any]:
    def side(drive: Drive, made: Any) -> Any:
        turn = made if isinstance(made, Turn) else made[number]
        return drive.one(turn.command(child()))

    return side


# ------------------------------------------------------------------------------------------------------------ checks
async def ends_well(drive: Drive, made: Any, left: Any, right: Any) -> None:
    await soundness.check(drive)
    await soundness.finish(drive, CLOCK)


async def names(drive: Drive, workflow_id: str = "wf") -> list[str]:
    """Of the events of all runs of a workflow id."""
    return [n for task, _ in await soundness.chain(drive, workflow_id) for n in await Flows(drive).names(task.id)]


async def told_once(drive: Drive, made: Any, left: Any, right: Any) -> None:
    """STEP-20: the result is in the history, once."""
    assert left == State.SUCCEEDED
    assert isinstance(right, c.Appended), right
    await ends_well(drive, made, left, right)
    assert (await names(drive)).count("ActivityTaskCompleted") == 1


async def told_or_late(drive: Drive, made: Any, left: Any, right: Any) -> None:
    """A run that is about to close need not hear of it."""
    assert left == State.SUCCEEDED
    await ends_well(drive, made, left, right)
    assert (await names(drive)).count("ActivityTaskCompleted") <= 1


async def both_told(drive: Drive, made: list[Task], left: Any, right: Any) -> None:
    assert left == right == State.SUCCEEDED
    await ends_well(drive, made, left, right)
    assert (await names(drive)).count("ActivityTaskCompleted") == 2


async def ended_or_canceled(drive: Drive, made: Both, left: Any, right: Any) -> None:
    """CANC-08: one ending, that which came first."""
    assert isinstance(right, c.Appended)
    assert left == State.SUCCEEDED
    await ends_well(drive, made, left, right)
    found = await names(drive)
    assert found.count("ActivityTaskCompleted") == 1
    assert found.count("ActivityTaskCanceled") == 0


async def fired_or_canceled(drive: Drive, made: Any, left: Any, right: Any) -> None:
    assert isinstance(right, c.Appended)
    await ends_well(drive, made, left, right)
    found = await names(drive)
    assert found.count("TimerCanceled") == 1
    assert found.count("TimerFired") <= 2  # the other one is "later"


async def gone(drive: Drive, made: Any, left: Any, right: Any) -> None:
    """CHILD-02: nothing of a closed run stays, whatever it was doing when the sweep came by (B099)."""
    await soundness.check(drive)
    for _ in range(4):
        CLOCK.advance(0.5)
        await drive.ring()
    for task, _ in await soundness.chain(drive, "wf"):
        assert is_closed(task.state)
        assert await drive.engine.store.pending(task.id, 10) == ([], [])
    assert all(is_closed(task.state) for task, _ in await soundness.chain(drive, "child"))
    await ends_well(drive, made, left, right)


async def let_be(drive: Drive, made: Any, left: Any, right: Any) -> None:
    """CHILD-02: abandoned, or asked: not closed by force."""
    await soundness.check(drive)
    for _ in range(4):
        CLOCK.advance(0.5)
        await drive.ring()
    assert isinstance(left, c.Appended), left
    await ends_well(drive, made, left, right)
    assert State.TERMINATED not in [task.state for task, _ in await soundness.chain(drive, "child")]


async def asked(drive: Drive, made: Any, left: Any, right: Any) -> None:
    await let_be(drive, made, left, right)
    if left.state == State.WAITING:
        assert "WorkflowExecutionCancelRequested" in await names(drive, "child")


async def child_told_once(drive: Drive, made: Any, left: Any, right: Any) -> None:
    """CHILD-03."""
    await ends_well(drive, made, left, right)
    assert (await names(drive)).count("ChildWorkflowExecutionCompleted") == 1


async def arrives(drive: Drive, made: Turn, left: Any, right: Any) -> None:
    """SIG-01, B093: continue-as-new does not hide a run from other runs."""
    await ends_well(drive, made, left, right)
    assert await soundness.seen(drive) == ["hi"]
    assert "ExternalWorkflowExecutionSignaled" in await names(drive, "sender0")


async def both_arrive(drive: Drive, made: Turn, left: Any, right: Any) -> None:
    await ends_well(drive, made, left, right)
    assert (await names(drive)).count("WorkflowExecutionSignaled") == 2


async def arrives_or_not(drive: Drive, made: Turn, left: Any, right: Any) -> None:
    """Both ends tell the same story."""
    await ends_well(drive, made, left, right)
    sender = await names(drive, "sender0")
    assert ("SignalExternalWorkflowExecutionFailed" in sender) != ("ExternalWorkflowExecutionSignaled" in sender)
    if not isinstance(left, c.Changed):
        assert ("ExternalWorkflowExecutionSignaled" in sender) == (await soundness.seen(drive) == ["hi"])


async def sent_before_the_end(drive: Drive, made: Turn, left: Any, right: Any) -> None:
    """What was sent arrives, though its sender closes."""
    await ends_well(drive, made, left, right)
    assert await soundness.seen(drive) == ["hi"]


async def sent_to_other(drive: Drive, made: Turn, left: Any, right: Any) -> None:
    await ends_well(drive, made, left, right)
    assert await soundness.seen(drive, "other") == ["bye"]


async def cancel_arrives(drive: Drive, made: Turn, left: Any, right: Any) -> None:
    await ends_well(drive, made, left, right)
    assert "WorkflowExecutionCancelRequested" in await names(drive)


async def parent_hears(drive: Drive, made: Turn, left: Any, right: Any) -> None:
    """CHILD-03: also of a child that somebody else canceled before it began."""
    for _ in range(3):
        CLOCK.advance(0.5)
        await drive.ring()
    await ends_well(drive, made, left, right)
    assert "ChildWorkflowExecutionCanceled" in await names(drive)


async def one_child(drive: Drive, made: Any, left: Any, right: Any) -> None:
    """One run a workflow id; whoever came second is told."""
    assert isinstance(left, c.Appended)
    await ends_well(drive, made, left, right)
    assert len(await soundness.chain(drive, "child")) == 1
    failed = [*await names(drive, "wf"), *await names(drive, "wf2")].count("StartChildWorkflowExecutionFailed")
    if isinstance(right, c.Started):
        assert failed == 1
    else:
        assert failed == isinstance(right, c.Appended)
        assert isinstance(right, (c.Appended, WorkflowAlreadyStarted))


FAIL = t.FailWorkflow(failure=Failure(message="boom"))

RACES: dict[str, Race] = {
    "activity/wait": Race(at_work, done, wait, told_once),
    "activity/step": Race(at_work, done, parent(t.StartStep(step_id=1, name="s"), final=False), told_once),
    "activity/complete": Race(at_work, done, parent(DONE), told_or_late),
    "activity/continue": Race(at_work, done, go_on, told_or_late),
    "activity/terminate": Race(at_work, done, terminate, told_or_late),
    "activity/its cancel": Race(at_work, done, parent_cancels_it, ended_or_canceled),
    "activity/activity": Race(
        two_at_work,
        lambda d, made: d.complete(made[0], "succeeded", result=b"\x90"),
        lambda d, made: d.complete(made[1], "succeeded", result=b"\x90"),
        both_told,
    ),
    "timer/its cancel": Race(timer_due, ring, parent_cancels_timer, fired_or_canceled),
    "timer/complete": Race(timer_due, ring, parent(DONE), ends_well),
    "timer/timer": Race(timer_due, ring, ring, ends_well),
    "child completes/wait": Race(family("terminate"), child_appends(DONE), wait, child_told_once),
    "child completes/complete": Race(family("terminate"), child_appends(DONE), parent(DONE), gone),
    "child completes/terminate": Race(family("terminate"), child_appends(DONE), terminate, gone),
    "child waits/complete": Race(family("terminate"), child_appends(timer()), parent(DONE), gone),
    "child continues/complete": Race(family("terminate"), child_goes_on, parent(DONE), gone),
    "child completes/abandon": Race(family("abandon"), child_appends(DONE), parent(DONE), let_be),
    "child waits/abandon": Race(family("abandon"), child_appends(timer()), parent(DONE), let_be),
    "child completes/ask": Race(family("request_cancel"), child_appends(DONE), parent(DONE), asked),
    "child waits/ask": Race(family("request_cancel"), child_appends(timer()), parent(DONE), asked),
    "child continues/ask": Race(family("request_cancel"), child_goes_on, parent(DONE), let_be),
    "sweep/activity completes": Race(orphaned_work, done, ring, gone),
    "sweep/activity fails": Race(orphaned_work, failed, ring, gone),
    "sweep/heartbeat": Race(orphaned_work, lambda d, made: d.beat(made[1]), ring, gone),
    "sweep/activity is claimed": Race(orphaned_queue, poll, ring, gone),
    "sweep/turn is claimed": Race(orphaned_run, turns, ring, gone),
    "sweep/child waits": Race(orphaned_turn, child_appends(timer()), ring, gone),
    "sweep/child continues": Race(orphaned_turn, child_goes_on, ring, gone),
    "sweep/child begins a child": Race(orphaned_turn, lambda d, m: d.one(m[1].command(child("grand"))), ring, gone),
    "sweep/sweep": Race(orphaned_work, ring, ring, gone),
    "wait/message": Race(underway(a_signal), wait, ring, arrives),
    "complete/message": Race(underway(a_signal), parent(DONE), ring, arrives_or_not),
    "continue/message": Race(underway(a_signal), go_on, ring, arrives),
    "terminate/message": Race(underway(a_signal), terminate, ring, arrives_or_not),
    "message/message": Race(underway(a_signal, a_signal), ring, ring, both_arrive),
    "sender completes/message": Race(in_turn_beside_a_run, parent(a_signal_to("other"), DONE), ring, sent_to_other),
    "continue/cancel message": Race(underway(a_cancel), go_on, ring, ends_well),
    "wait/cancel message": Race(underway(a_cancel), wait, ring, cancel_arrives),
    "sender terminates/message": Race(
        underway(a_signal),
        lambda d, made: d.one(c.Terminate(namespace="default", workflow_id="sender0")),
        ring,
        sent_before_the_end,
    ),
    "wait/child is canceled by another": Race(child_to_cancel, wait, ring, parent_hears),
    "claim of child/child is canceled by another": Race(child_to_cancel, turns, ring, ends_well),
    "child start/start": Race(in_turn, begins_child(0), lambda d, made: d.one(start("child")), one_child),
    "child start/child start": Race(two_parents, begins_child(0), begins_child(1), one_child),
}


@pytest.mark.parametrize("name", RACES)
async def test_every_order_on_the_memory_store(name: str) -> None:
    assert await interleave.every_order(name, RACES[name], CLOCK, MOST) > 3


@pytest.mark.parametrize("name", RACES)
async def test_drawn_orders_on_postgresql(name: str, migrated_database: str) -> None:
    await interleave.drawn_orders(name, RACES[name], CLOCK, migrated_database, DRAWN)


@pytest.mark.parametrize("swapped", [False, True], ids=["", "swapped"])
@pytest.mark.parametrize("name", RACES)
async def test_in_one_batch(name: str, swapped: bool) -> None:
    await interleave.in_one_batch(RACES[name], CLOCK, swapped=swapped)
