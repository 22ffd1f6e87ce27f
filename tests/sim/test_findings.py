"""What the simulation has found so far, each as small as it could be made. A seed runs something else once the code
has changed; so each finding is a test here, and a mutant that brings it back (mutants.py) and must be found again."""

from __future__ import annotations

import asyncio
import gc
import time
from typing import Any

import pytest

from perdure.core import commands as c
from perdure.core import ids
from perdure.core import turn_commands as t
from perdure.core.commands import Complete
from perdure.core.errors import LeaseLost
from perdure.core.messages import Delivery
from perdure.core.states import State
from perdure.sdk.definition import Workflow
from perdure.sdk.history import WorkflowHistory
from perdure.store.base import Demand, Order, StoreFault
from perdure.store.memory import MemoryStore
from perdure.worker.replay import Replayer
from perdure.worker.suspension import Suspension
from tests.clock import SteppedClock
from tests.engine.drive import LANE, running
from tests.engine.runs import DONE, MINT, Flows, timer


@pytest.fixture
async def untaken() -> list[str]:
    """Messages of errors that nobody took, in the loop of this test."""
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(str(context["message"])))
    return told


async def test_a_look_that_nobody_waits_for_any_more_may_fail(untaken: list[str]) -> None:
    """The server's log had a traceback, "Task exception was never retrieved"."""
    async with running(MemoryStore(clock=SteppedClock().now)) as drive:
        failing = asyncio.Event()

        async def read(task_ids: Any) -> Any:
            await failing.wait()
            raise StoreFault("away")

        drive.engine.store.read = read  # type: ignore[method-assign]
        watching = asyncio.create_task(drive.engine.watch(bytes(16), 5.0, namespace="default"))
        await asyncio.sleep(0.01)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        failing.set()
        await asyncio.sleep(0.01)
    gc.collect()
    assert untaken == []


async def test_a_release_that_nobody_waits_for_may_be_refused(untaken: list[str]) -> None:
    """A server that stops hands back what it leased to a poll that is gone."""
    async with running(MemoryStore(clock=SteppedClock().now)) as drive:
        task = await drive.lease_new()
        drive.engine._stopping = True
        drive.engine._take_back([task])
        await asyncio.sleep(0.01)
        drive.engine._stopping = False
    gc.collect()
    assert untaken == []


def test_what_was_asked_for_after_a_suspension_is_not_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """B122; it was handed back, asked for and handed back, a hundred times in the second after it."""
    now = 1_000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    suspension = Suspension(1.0)
    delivery = Delivery("", b"", "t", "default", 1, 1)
    asked_before, now = now, now + 20.0
    assert suspension.look() > 10
    assert suspension.outlasted(delivery, asked_before)
    assert not suspension.outlasted(delivery, now + 0.001)


async def test_the_memory_store_exchanges_in_one_statement() -> None:
    """In a batch of a single statement it was two, and the second came after the end."""
    store = MemoryStore(clock=SteppedClock().now)
    async with running(store) as drive:
        task = await drive.lease_new()
        new = await drive.enqueue()
        done = [Complete(lease=task.lease, outcome="succeeded", result=b"")]
        async with store.batch(single=True) as rows:
            order = Order(Demand(LANE, 1), session=1, worker="w", poll=1, bits=[1])
            succeeded, claimed, timed = await rows.exchange(done, order)
        assert (succeeded, [row.id for row in claimed], timed) == ({task.id}, [new], False)


async def test_a_message_that_came_during_a_turn_is_not_older_than_what_that_turn_wrote() -> None:
    """The times of a history went back."""
    clock = SteppedClock()
    async with running(MemoryStore(clock=clock.now)) as drive:
        flows = Flows(drive)
        run_id = await flows.start()
        turn = await flows.turn()
        await flows.signal("early")
        clock.advance(1.0)
        await turn.append(timer())
        await (await flows.turn()).append()
        times = [event.time for event in await flows.history(run_id)]
        assert times == sorted(times)


async def test_the_times_of_a_history_do_not_go_back_with_the_clock() -> None:
    """Nor between two appends of one turn."""
    clock = SteppedClock()
    async with running(MemoryStore(clock=clock.now)) as drive:
        flows = Flows(drive)
        run_id = await flows.start()
        turn = await flows.turn()
        await turn.append(t.StartStep(step_id=1, name="a"), final=False)
        clock.advance(-1.0)
        await turn.append(t.CompleteStep(step_id=1))
        times = [event.time for event in await flows.history(run_id)]
        assert times == sorted(times)


@pytest.mark.parametrize("failing", [False, True], ids=["appends", "fails"])
async def test_what_follows_a_turn_is_later_than_the_messages_that_it_was_shown(failing: bool) -> None:
    """They had come before the clock was put back, and the row did not know of their time once the turn was over."""
    clock = SteppedClock()
    async with running(MemoryStore(clock=clock.now)) as drive:
        flows = Flows(drive)
        run_id = await flows.start()
        clock.advance(20.0)
        await flows.signal("early")
        clock.advance(-20.0)
        turn = await flows.turn()
        if failing:
            await drive.one(Complete(lease=turn.task.lease, outcome="failed"))
        else:
            await turn.append(timer())
        await drive.one(c.Terminate(namespace="default", workflow_id="wf"))
        times = [event.time for event in await flows.history(run_id)]
        assert times == sorted(times)


async def test_a_reset_to_the_end_of_a_closed_run_does_not_keep_that_end() -> None:
    """The new run was open, and its history had the event that closed the old one."""
    async with running(MemoryStore(clock=SteppedClock().now)) as drive:
        flows = Flows(drive)
        run_id = await flows.start()
        await (await flows.turn()).append(DONE)
        history = await flows.history(run_id)
        command = c.Reset(
            namespace="default", workflow_id="wf", run_id=run_id, event_id=len(history), history=history,
            task=await drive.read(run_id), run=await flows.run(run_id), new_run_id=MINT.task_id(drive.engine.now()),
        )  # fmt: skip
        started: c.Started = await drive.one(command)
        assert "WorkflowExecutionCompleted" not in await flows.names(started.run_id)
        await (await flows.turn()).append(DONE)
        assert await drive.state(started.run_id) == State.SUCCEEDED


async def test_a_reset_after_the_clock_was_put_back_is_not_before_what_it_keeps() -> None:
    """The new run's row was older than the last event, and so was the event by which it closed."""
    clock = SteppedClock()
    async with running(MemoryStore(clock=clock.now)) as drive:
        flows = Flows(drive)
        run_id = await flows.start()
        await (await flows.turn()).append(timer())
        history = await flows.history(run_id)
        clock.advance(-20.0)
        command = c.Reset(
            namespace="default", workflow_id="wf", run_id=run_id, event_id=len(history), history=history,
            task=await drive.read(run_id), run=await flows.run(run_id), new_run_id=MINT.task_id(drive.engine.now()),
        )  # fmt: skip
        started: c.Started = await drive.one(command)
        await drive.one(c.Terminate(namespace="default", workflow_id="wf"))
        times = [event.time for event in await flows.history(started.run_id)]
        assert times == sorted(times)


async def test_a_reset_run_that_closed_before_its_first_turn_fits_any_code() -> None:
    """The replayer ran plain code of it, and told that the run has not begun."""

    def flow(ctx: Any, given: Any) -> None:
        raise AssertionError("no turn of this run was kept")

    async with running(MemoryStore(clock=SteppedClock().now)) as drive:
        flows = Flows(drive)
        run_id = await flows.start()
        await (await flows.turn()).append(timer())
        history = await flows.history(run_id)
        command = c.Reset(
            namespace="default", workflow_id="wf", run_id=run_id, event_id=4, history=history,
            task=await drive.read(run_id), run=await flows.run(run_id), new_run_id=MINT.task_id(drive.engine.now()),
        )  # fmt: skip
        started: c.Started = await drive.one(command)
        await drive.one(c.Terminate(namespace="default", workflow_id="wf"))
        told = WorkflowHistory("wf", ids.text(started.run_id), await flows.history(started.run_id))
    Replayer({"flow": Workflow(flow, "flow", "default", None, None, None)}).replay(told).check()


async def test_a_turn_that_ends_early_because_of_a_late_hint_is_followed_by_another() -> None:
    """The hint was about messages that the turn had seen: the run waited for nothing, for ever."""
    async with running(MemoryStore(clock=SteppedClock().now)) as drive:
        flows = Flows(drive)
        run_id = await flows.start()
        turn = await flows.turn()
        await turn.append(t.StartStep(step_id=1, name="a"), final=False)
        await turn.append(t.CompleteStep(step_id=1, held=True))
        assert await drive.state(run_id) == State.ENQUEUED


@pytest.mark.parametrize("outcome", ["failed", "released"])
async def test_an_append_that_comes_after_its_turn_was_handed_back_is_not_called_stored(outcome: str) -> None:
    """The lease had ended by a word of its worker, which was taken for this very append."""
    async with running(MemoryStore(clock=SteppedClock().now)) as drive:
        flows = Flows(drive)
        run_id = await flows.start()
        turn = await flows.turn()
        await turn.append(t.StartStep(step_id=1, name="a"), final=False)
        await drive.one(Complete(lease=turn.task.lease, outcome=outcome))
        before = await flows.history(run_id)
        with pytest.raises(LeaseLost):
            await turn.append(t.CompleteStep(step_id=1), timer())
        assert await flows.history(run_id) == before
