"""What goes on from one run of a chain to the next: cancel requests (CANC-10, CANC-12), and the workflow id."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from perdure.core import commands as c
from perdure.core import turn_commands as t
from perdure.core.effects import PassOn
from perdure.core.events import WorkflowExecutionCancelRequested, WorkflowExecutionFailed
from perdure.core.model import Failure, RetryPolicy, pack
from perdure.core.states import State
from perdure.core.turn_effects import key_of
from perdure.engine.ledger import Ledger, Overtaken
from perdure.store.base import Store
from tests.clock import SteppedClock
from tests.engine.drive import Drive, running
from tests.engine.faulty import FaultyStore
from tests.engine.runs import DONE, MINT, Flows, start

FAIL = t.FailWorkflow(failure=Failure(message="no"))
REQUESTED = "WorkflowExecutionCancelRequested"


@pytest.fixture
def flows(drive: Drive) -> Flows:
    return Flows(drive)


def cancel(reason: str = "enough") -> c.Tell:
    return c.Tell(namespace="default", workflow_id="wf", message=WorkflowExecutionCancelRequested(cause=reason))


def go_on() -> t.ContinueAsNew:
    return t.ContinueAsNew(task_id=MINT.task_id(1_700_000_000_000_000))


@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.parametrize("ending", [FAIL, DONE], ids=["fails", "completes"])
@pytest.mark.parametrize("repeats", ["cron", "retry"])
async def test_a_chain_that_was_to_be_canceled_ends(
    drive: Drive, flows: Flows, clock: SteppedClock, repeats: str, ending: t.TurnCommand, seen: bool
) -> None:
    """However this run ends: the next one would know nothing of the request."""
    retry = {"retry_policy": pack(RetryPolicy(max_attempts=9, base=0.001))}
    began = start(draft=retry if repeats == "retry" else None)
    assert began.start is not None
    began.start.run.cron = "* * * * *" if repeats == "cron" else None
    run_id = (await drive.one(began)).run_id
    await drive.elapse(clock, 61)
    turn = await flows.turn()
    if seen:
        await turn.append(t.StartTimer(task_id=MINT.task_id(1_700_000_000_000_000), timer_id="t", start_to_fire=60))
    await drive.one(cancel())
    if seen:
        turn = await flows.turn()
        assert REQUESTED in turn.names
    await turn.append(ending)
    assert await drive.state(run_id) == (State.FAILED if ending is FAIL else State.SUCCEEDED)
    last = (await flows.history(run_id))[-1].attributes
    assert last.new_run_id == b""  # type: ignore[union-attr]
    if repeats == "retry" and isinstance(last, WorkflowExecutionFailed):
        assert last.retry_state == "cancel_requested"
    assert await drive.one(start()) != c.Started(run_id)


@pytest.mark.parametrize("seen", [False, True])
async def test_a_run_that_continues_as_new_hands_a_cancel_request_on(drive: Drive, flows: Flows, seen: bool) -> None:
    """Also one that its code has seen, and did not end by: once to each run that follows."""
    run_id = await flows.start()
    turn = await flows.turn()
    if seen:
        await drive.one(cancel())
        await turn.append()
        turn = await flows.turn()
        assert turn.names.count(REQUESTED) == 1
        await turn.append(go_on())
    else:
        await drive.one(cancel())
        await turn.append(go_on())
    for _ in range(2):
        await drive.one(cancel("again"))  # harmless
        turn = await flows.turn()
        assert turn.task.id != run_id
        (asked,) = [e.attributes for e in turn.events if isinstance(e.attributes, WorkflowExecutionCancelRequested)]
        assert asked.cause == "enough"
        row = await drive.read(turn.task.id)
        assert (row.cancel_requested_at is not None, row.cancel_reason) == (True, "enough")
        await turn.append(go_on())
    turn = await flows.turn()
    assert (await turn.append(t.CancelWorkflow())).state == State.CANCELED


async def test_signals_and_a_cancel_request_go_along_together(drive: Drive, flows: Flows) -> None:
    await flows.start()
    turn = await flows.turn()
    await flows.signal("one")
    await drive.one(cancel())
    await flows.signal("two")
    await turn.append(go_on())
    names = (await flows.turn()).names
    assert names[:3] == ["WorkflowExecutionSignaled", REQUESTED, "WorkflowExecutionSignaled"]


async def test_a_key_that_went_to_another_run_only_repeats_the_batch(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """It was taken for an outage: logged, and followed by a back-off."""
    faulty = FaultyStore(store)
    async with running(faulty) as drive:  # type: ignore[arg-type]
        flows = Flows(drive)
        await flows.start()
        turn = await flows.turn()
        overtaken = [True]

        def overtake(verb: str, args: tuple[Any, ...]) -> None:
            if verb == "replace_key" and overtaken:
                overtaken.pop()
                raise Overtaken("by another batch")

        faulty.before = overtake
        assert (await turn.append(go_on())).state == State.CONTINUED_AS_NEW
        assert not overtaken and drive.engine.outage.seconds == 0
        assert caplog.records == []


async def test_a_batch_that_cannot_pass_a_key_on_writes_nothing(store: Store) -> None:
    async with running(store) as drive:
        run_id = await Flows(drive).start()
        holder = await store.find_key(key_of("default", "wf"))
        assert holder is not None
        ledger = Ledger()
        ledger.apply([PassOn(replace(holder, task_id=bytes(16)), replace(holder, task_id=b"x" * 16))])
        with pytest.raises(Overtaken):
            async with store.batch() as rows:
                await ledger.flush(rows)
        assert await store.find_key(holder.name) == holder
        assert holder.task_id == run_id
