"""Turns of workflow runs, and whatever reaches a run, meet on one run or one workflow id: every order on the memory
store, drawn orders on PostgreSQL, and both in one batch. What was acknowledged is in a history in the end (B092,
B093)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from perdure.core import commands as c
from perdure.core import turn_commands as t
from perdure.core.errors import LeaseLost, UnhandledMessages, WorkflowAlreadyStarted, WorkflowClosed
from perdure.core.events import WorkflowExecutionCancelRequested
from perdure.core.model import Failure
from perdure.core.run import UpdateRequest
from perdure.core.states import State, is_closed
from tests.clock import SteppedClock
from tests.engine import interleave, soundness
from tests.engine.drive import Drive
from tests.engine.interleave import Race
from tests.engine.runs import DONE, MINT, Flows, Turn, payload, start, timer

MOST = 60
"""Orders of one race that are tried on the memory store one after another; as many again are drawn."""
DRAWN = 4
"""Orders of one race that are tried on PostgreSQL."""

CLOCK = SteppedClock()


# ------------------------------------------------------------------------------------------------------------ setups
async def started(drive: Drive) -> bytes:
    return await Flows(drive).start()


async def in_turn(drive: Drive) -> Turn:
    await Flows(drive).start()
    return await Flows(drive).turn()


async def in_step(drive: Drive) -> Turn:
    """A turn whose first append is written."""
    turn = await in_turn(drive)
    await turn.append(t.StartStep(step_id=1, name="a"), final=False)
    return turn


async def with_signal(drive: Drive) -> Turn:
    """A turn that will not be able to close the run."""
    turn = await in_turn(drive)
    await Flows(drive).signal("early")
    return turn


async def signaled(drive: Drive) -> Turn:
    """A turn that sees the signal, whose answer was lost."""
    await Flows(drive).start()
    await signal(drive, None)
    return await Flows(drive).turn()


async def silent(drive: Drive) -> Turn:
    """A turn whose lease is over, the pulse being fresh."""
    await drive.elapse(CLOCK, 12)
    turn = await in_step(drive)
    for _ in range(4):
        CLOCK.advance(4)
        await drive.one(c.Ring(limit=0))
    return turn


async def to_reset(drive: Drive) -> tuple[Turn, c.Reset]:
    """A run in its second turn, and the command that resets it to the first."""
    flows = Flows(drive)
    run_id = await flows.start()
    await (await flows.turn()).append(timer())
    await flows.signal("early")
    turn = await flows.turn()
    command = c.Reset(
        namespace="default", workflow_id="wf", run_id=run_id, event_id=4, history=await flows.history(run_id),
        task=await drive.read(run_id), run=await flows.run(run_id), new_run_id=MINT.task_id(drive.engine.now()),
    )  # fmt: skip
    return turn, command


async def to_reset_closed(drive: Drive) -> tuple[Turn, c.Reset]:
    """The same of a run that has completed."""
    flows = Flows(drive)
    run_id = await flows.start()
    turn = await flows.turn()
    await turn.append(DONE)
    command = c.Reset(
        namespace="default", workflow_id="wf", run_id=run_id, event_id=4, history=await flows.history(run_id),
        task=await drive.read(run_id), run=await flows.run(run_id), new_run_id=b"",
    )  # fmt: skip
    return turn, command


async def with_update(drive: Drive) -> tuple[Turn, bytes]:
    """A turn that sees an update."""
    flows = Flows(drive)
    await flows.start()
    row: bytes = (await update(drive, None)).answer_id
    return await flows.turn(), row


# ------------------------------------------------------------------------------------------------------------- sides
def append(*commands: Any, final: bool = True) -> Callable[[Drive, Turn], Any]:
    return lambda drive, turn: drive.one(turn.command(*commands, final=final))


def again(*commands: Any) -> Callable[[Drive, Turn], Any]:
    """Continue as new, with an id of its own in every schedule."""

    def side(drive: Drive, turn: Turn) -> Any:
        new_id = MINT.task_id(drive.engine.now())
        return drive.one(turn.command(*commands, t.ContinueAsNew(task_id=new_id, input=payload("9"))))

    return side


def wait(drive: Drive, turn: Turn) -> Any:
    return drive.one(turn.command(timer()))


def signal(drive: Drive, made: Any) -> Any:
    return Flows(drive).signal("s", request_id="r")


def update(drive: Drive, made: Any) -> Any:
    row = MINT.task_id(drive.engine.now())
    return drive.one(
        c.Tell(
            namespace="default",
            workflow_id="wf",
            message=UpdateRequest(update_id="u", task_id=row, name="set", input=payload("6")),
        )
    )


def cancel(drive: Drive, made: Any) -> Any:
    request = WorkflowExecutionCancelRequested(cause="enough")
    return drive.one(c.Tell(namespace="default", workflow_id="wf", message=request, request_id="c"))


def terminate(drive: Drive, made: Any) -> Any:
    return drive.one(c.Terminate(namespace="default", workflow_id="wf", reason="stop"))


def terminate_this(drive: Drive, turn: Turn) -> Any:
    return drive.one(c.Terminate(namespace="default", workflow_id="wf", run_id=turn.task.id))


def turns(drive: Drive, made: Any) -> Any:
    return Flows(drive).turns()


def ring(drive: Drive, made: Any) -> Any:
    return drive.ring()


def begin(request: str, **options: Any) -> Callable[[Drive, Any], Any]:
    return lambda drive, made: drive.one(start(request=request, **options))


def reset(drive: Drive, made: tuple[Turn, c.Reset]) -> Any:
    return drive.one(replace(made[1]))


def reset_again(drive: Drive, made: tuple[Turn, c.Reset]) -> Any:
    return drive.one(replace(made[1], new_run_id=MINT.task_id(drive.engine.now())))


def reject(drive: Drive, made: tuple[Turn, bytes]) -> Any:
    refused = t.RejectUpdate(update_id="u", task_id=made[1], failure=Failure(message="no"))
    return drive.one(made[0].command(refused, t.StartStep(step_id=1, name="a"), final=False))


# ------------------------------------------------------------------------------------------------------------ checks
async def ends_well(drive: Drive, made: Any, left: Any, right: Any) -> None:
    """Whatever was answered; and a signal that was acknowledged was seen once, unless the run was terminated."""
    await soundness.check(drive)
    await soundness.finish(drive, CLOCK)


async def waits_and_sees(drive: Drive, turn: Turn, left: Any, right: Any) -> None:
    assert isinstance(left, c.Appended)
    assert soundness.told(right)
    await ends_well(drive, turn, left, right)
    assert await soundness.seen(drive) == ["s"]


async def closes_or_sees(drive: Drive, turn: Turn, left: Any, right: Any) -> None:
    """B093: closed and refused, or seen."""
    if isinstance(left, UnhandledMessages):
        assert soundness.told(right)
    else:
        assert left.state == State.SUCCEEDED
        assert isinstance(right, WorkflowClosed)
    await ends_well(drive, turn, left, right)
    assert await soundness.seen(drive) == ["s"] * soundness.told(right)


async def goes_along(drive: Drive, turn: Turn, left: Any, right: Any) -> None:
    """B093: continue-as-new loses no signal and knows no moment without a run."""
    assert isinstance(left, c.Appended) and left.state == State.CONTINUED_AS_NEW
    assert soundness.told(right), right
    await ends_well(drive, turn, left, right)
    assert await soundness.seen(drive) == ["s"]


async def heard_once(drive: Drive, turn: Turn, left: Any, right: Any) -> None:
    """SIG-03: a request id holds for all runs of a chain."""
    assert isinstance(left, c.Appended) and soundness.told(right)
    await ends_well(drive, turn, left, right)
    assert await soundness.seen(drive) == ["s"]


async def is_answered(drive: Drive, turn: Turn, left: Any, right: Any) -> None:
    """An update that was acknowledged reaches the code, or its row says that the run closed."""
    await ends_well(drive, turn, left, right)
    if isinstance(left, c.Appended) and left.state == State.SUCCEEDED:
        assert isinstance(right, WorkflowClosed)
    else:
        assert soundness.told(right), right
        row = await drive.read(right.answer_id)
        assert row.state == State.FAILED
        assert row.failure is not None and b"no" in row.failure and b"closed" not in row.failure


async def one_update(drive: Drive, turn: Turn, left: Any, right: Any) -> None:
    """SIG-12: one update, one answer."""
    assert left == right
    (seen,) = (await turn.append() and await Flows(drive).turn()).updates
    assert seen.task_id == left.answer_id
    CLOCK.advance(40)  # its turn is lost
    await ends_well(drive, turn, left, right)


async def one_signal(drive: Drive, turn: Any, left: Any, right: Any) -> None:
    """SIG-03."""
    assert left == right and soundness.told(left)
    await ends_well(drive, turn, left, right)
    assert await soundness.seen(drive) == ["s"]


async def terminated(drive: Drive, turn: Turn, left: Any, right: Any) -> None:
    """RPLY-40: whoever was first, the other hears of it."""
    assert isinstance(right, c.Changed)
    task = await drive.read(turn.task.id)
    assert is_closed(task.state)
    if isinstance(left, LeaseLost):
        assert task.state == State.TERMINATED
        assert len(await Flows(drive).history(task.id)) == 2
    else:
        assert isinstance(left, c.Appended)
        assert task.state in (State.TERMINATED, left.state)
        assert right.state == task.state
    await ends_well(drive, turn, left, right)


async def chain_ends(drive: Drive, turn: Turn, left: Any, right: Any) -> None:
    """By workflow id, the run that is open is meant."""
    assert isinstance(right, c.Changed) and right.state == State.TERMINATED
    assert all(is_closed(task.state) for task, _ in await soundness.chain(drive, "wf"))
    await ends_well(drive, turn, left, right)


async def reset_once(drive: Drive, made: Any, left: Any, right: Any) -> None:
    """One of two resets finds that the other one's run is open."""
    assert sorted(map(type, (left, right)), key=str) == [c.Started, WorkflowAlreadyStarted]
    await ends_well(drive, made, left, right)


async def same_answer(drive: Drive, made: Any, left: Any, right: Any) -> None:
    """An answer that was lost is given again, and nothing is written twice."""
    turn = made if isinstance(made, Turn) else made[0]
    if isinstance(left, UnhandledMessages):
        assert isinstance(right, UnhandledMessages)
    else:
        assert isinstance(left, c.Appended) and isinstance(right, c.Appended)
        assert left.state == right.state
        lasts = {left.last, right.last} - {0}
        assert lasts == {len(await Flows(drive).history(turn.task.id))}
    await ends_well(drive, turn, left, right)


async def one_turn(drive: Drive, run_id: bytes, left: Any, right: Any) -> None:
    """At most one turn is in hand."""
    got = [*left, *right]
    assert len(got) <= 1
    if got:
        assert (await drive.read(run_id)).lease == got[0].task.lease
        await got[0].append(timer())
    await ends_well(drive, run_id, left, right)


async def claimed_and_told(drive: Drive, run_id: bytes, left: Any, right: Any) -> None:
    """SIG-02: the turn saw the signal, or the next one does."""
    assert soundness.told(right)
    for turn in left:
        await turn.append(timer())
    await ends_well(drive, run_id, left, right)
    assert await soundness.seen(drive) == ["s"]


async def one_run(drive: Drive, made: Any, left: Any, right: Any) -> None:
    """RPLY-08."""
    assert sorted(map(type, (left, right)), key=str) == [c.Started, WorkflowAlreadyStarted]
    assert len(await soundness.chain(drive, "wf")) == 1
    await ends_well(drive, made, left, right)


async def one_request(drive: Drive, made: Any, left: Any, right: Any) -> None:
    assert left.run_id == right.run_id
    assert len(await soundness.chain(drive, "wf")) == 1
    await ends_well(drive, made, left, right)


async def replaced(drive: Drive, turn: Turn, left: Any, right: Any) -> None:
    """SIG-06: the old run is closed, this way or that, and there is a new one."""
    assert isinstance(right, c.Started) and right.started
    old = await drive.read(turn.task.id)
    assert old.state == (State.TERMINATED if isinstance(left, LeaseLost) else left.state)
    assert await drive.state(right.run_id) == State.ENQUEUED
    await ends_well(drive, turn, left, right)


async def signaled_or_started(drive: Drive, turn: Turn, left: Any, right: Any) -> None:
    """SIG-06: signal-with-start is never without a run, and its signal is seen."""
    assert isinstance(right, c.Started)
    await ends_well(drive, turn, left, right)
    assert await soundness.seen(drive) == ["hi"]


async def asked_or_closed(drive: Drive, turn: Turn, left: Any, right: Any) -> None:
    """A cancel request does not keep a run from closing (CANC-08)."""
    assert isinstance(left, c.Appended)
    assert soundness.told(right) or isinstance(right, WorkflowClosed)
    await ends_well(drive, turn, left, right)


async def asked_along(drive: Drive, turn: Turn, left: Any, right: Any) -> None:
    """The run that follows hears of it."""
    assert left.state == State.CONTINUED_AS_NEW
    assert soundness.told(right), right
    await ends_well(drive, turn, left, right)
    names = [name for task, _ in await soundness.chain(drive, "wf") for name in await Flows(drive).names(task.id)]
    assert {"WorkflowExecutionCancelRequested", "WorkflowExecutionCanceled"} & set(names)


async def begun_again(drive: Drive, made: tuple[Turn, c.Reset], left: Any, right: Any) -> None:
    """RPLY-39: the run is reset, or was further than the reset knew."""
    old = await drive.read(made[0].task.id)
    if isinstance(right, c.Started):
        assert isinstance(left, LeaseLost) or soundness.told(left)
        assert old.state == State.TERMINATED
    else:
        assert right == c.Stale()
        assert isinstance(left, c.Appended)
        assert old.state == left.state
    await ends_well(drive, made, left, right)
    assert "early" in await soundness.seen(drive)
    if isinstance(left, c.Told):
        assert await soundness.seen(drive) == ["early", "s"]


async def lost_or_written(drive: Drive, turn: Turn, left: Any, right: Any) -> None:
    """STEP-14: an append that was accepted is in the history, one that was refused is not."""
    await drive.ring()
    names = await Flows(drive).names(turn.task.id)
    assert names.count("StepCompleted") == isinstance(left, c.Appended)
    assert isinstance(left, (c.Appended, LeaseLost))
    await ends_well(drive, turn, left, right)


async def paused_or_claimed(drive: Drive, run_id: bytes, left: Any, right: Any) -> None:
    """A run that is paused begins no turn; one that was begun goes on."""
    for turn in left:
        await turn.append(timer())
    assert await Flows(drive).turns() == []
    await drive.one(c.Pause(namespace="default", workflow_id="wf", paused=False))
    await ends_well(drive, run_id, left, right)


def pause(drive: Drive, made: Any) -> Any:
    return drive.one(c.Pause(namespace="default", workflow_id="wf"))


def _hello() -> Any:
    from perdure.core.events import WorkflowExecutionSignaled

    return WorkflowExecutionSignaled(signal_name="hi")


def _left(side: Callable[[Drive, Turn], Any]) -> Callable[[Drive, Any], Any]:
    return lambda drive, made: side(drive, made[0])


STEP_DONE = t.CompleteStep(step_id=1)

RACES = {
    "wait/signal": Race(in_turn, wait, signal, waits_and_sees),
    "step/signal": Race(in_turn, append(t.StartStep(step_id=1, name="a"), final=False), signal, waits_and_sees),
    "complete/signal": Race(in_turn, append(DONE), signal, closes_or_sees),
    "complete in a second append/signal": Race(in_step, append(STEP_DONE, DONE), signal, closes_or_sees),
    "continue/signal": Race(in_turn, again(), signal, goes_along),
    "continue in a second append/signal": Race(in_step, again(STEP_DONE), signal, goes_along),
    "continue/repeated signal": Race(signaled, again(), signal, heard_once),
    "continue/cancel": Race(in_turn, again(), cancel, asked_along),
    "wait/update": Race(in_turn, wait, update, is_answered),
    "complete/update": Race(in_turn, append(DONE), update, is_answered),
    "continue/update": Race(in_turn, again(), update, is_answered),
    "update/same update": Race(in_turn, update, update, one_update),
    "signal/same signal": Race(in_turn, signal, signal, one_signal),
    "wait/terminate": Race(in_turn, wait, terminate, terminated),
    "complete/terminate": Race(in_turn, append(DONE), terminate, terminated),
    "complete/terminate this": Race(in_turn, append(DONE), terminate_this, terminated),
    "continue/terminate": Race(in_turn, again(), terminate, chain_ends),
    "complete/cancel": Race(in_turn, append(DONE), cancel, asked_or_closed),
    "first turn/cancel": Race(started, turns, cancel, lambda d, m, left, right: _after_claim(d, m, left, right)),
    "step/same step": Race(
        in_turn,
        append(t.StartStep(step_id=1, name="a"), final=False),
        append(t.StartStep(step_id=1, name="a"), final=False),
        same_answer,
    ),
    "complete/same complete": Race(in_turn, append(DONE), append(DONE), same_answer),
    "put off/same": Race(with_signal, append(DONE), append(DONE), same_answer),
    "claim/claim": Race(started, turns, turns, one_turn),
    "claim/signal": Race(started, turns, signal, claimed_and_told),
    "claim/pause": Race(started, turns, pause, paused_or_claimed),
    "start/start": Race(lambda d: asyncio.sleep(0), begin("a"), begin("b"), one_run),
    "start/same start": Race(lambda d: asyncio.sleep(0), begin("a"), begin("a"), one_request),
    "complete/start instead": Race(in_turn, append(DONE), begin("b", id_conflict="terminate_existing"), replaced),
    "complete/signal with start": Race(
        in_turn, append(DONE), begin("b", id_conflict="use_existing", signal=_hello()), signaled_or_started
    ),
    "continue/signal with start": Race(
        in_turn, again(), begin("b", id_conflict="use_existing", signal=_hello()), signaled_or_started
    ),
    "wait/reset": Race(to_reset, _left(wait), reset, begun_again),
    "complete/reset": Race(to_reset, _left(append(DONE)), reset, begun_again),
    "signal/reset": Race(to_reset, signal, reset, begun_again),
    "reset/reset": Race(to_reset_closed, reset_again, reset_again, reset_once),
    "reject/same reject": Race(with_update, reject, reject, same_answer),
    "step/lease expiry": Race(silent, append(STEP_DONE, final=False), ring, lost_or_written),
    "complete/lease expiry": Race(silent, append(STEP_DONE, DONE), ring, lost_or_written),
}


async def _after_claim(drive: Drive, run_id: bytes, left: Any, right: Any) -> None:
    """CANC-05: the run never began, or its code hears of it."""
    assert soundness.told(right)
    for turn in left:
        await turn.append(timer())
    if not left:
        assert await drive.state(run_id) == State.CANCELED
    await ends_well(drive, run_id, left, right)


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
