"""No run is held up by what happens to another one, and what a closed run leaves goes away in bounded steps."""

from __future__ import annotations

import asyncio

from perdure.core import commands as c
from perdure.core import turn_commands as t
from perdure.core.events import StartChildWorkflowExecutionInitiated, WorkflowExecutionCancelRequested
from perdure.core.model import Failure, RetryPolicy, pack
from perdure.core.run import Message
from perdure.core.states import Kind, State
from perdure.engine.errands import SWEPT
from perdure.store.memory import MemoryStore
from tests.clock import SteppedClock
from tests.engine import soundness
from tests.engine.drive import Drive, running
from tests.engine.runs import DONE, MINT, Flows, activity, child, payload, timer


async def test_a_parked_poll_gets_the_next_run_with_what_was_sent(drive: Drive) -> None:
    """RPLY-25: also where the batch that continues a run hands out the next one at once."""
    flows = Flows(drive)
    await flows.start()
    turn = await flows.turn()
    await flows.signal("kept")
    again = t.ContinueAsNew(task_id=MINT.task_id(drive.engine.now()), input=payload("9"))
    _, (following,) = await asyncio.gather(turn.append(again), flows.turns())
    assert following.names[0] == "WorkflowExecutionSignaled"
    await following.append(DONE)
    assert await soundness.seen(drive) == ["kept"]


async def test_ends_of_children_do_not_reach_the_next_run(drive: Drive) -> None:
    """RPLY-25: their events are not in its history. What others sent is in it."""
    flows = Flows(drive)
    await flows.start()
    await (await flows.turn()).append(activity("a"))
    work = await drive.lease()
    await flows.signal("one")
    turn = await flows.turn()
    await drive.complete(work, "succeeded", result=pack(payload("7")))
    await flows.signal("two")
    again = t.ContinueAsNew(task_id=MINT.task_id(drive.engine.now()), input=payload("9"))
    assert (await turn.append(again)).state == State.CONTINUED_AS_NEW
    following = await flows.turn()
    assert following.names == ["WorkflowExecutionSignaled", "WorkflowTaskScheduled", "WorkflowTaskStarted"]
    await soundness.check(drive)


async def test_a_cancel_request_does_not_wait_for_the_back_off_of_a_retry(drive: Drive) -> None:
    """CANC-10: the code ran before, so it is asked, and at once."""
    flows = Flows(drive)
    policy = RetryPolicy(max_attempts=2, base=3600)
    await flows.start(retry=policy, draft={"retry_policy": pack(policy)})
    turn = await flows.turn()
    request = c.Tell(namespace="default", workflow_id="wf", message=WorkflowExecutionCancelRequested(), request_id="c")
    failed = turn.command(t.FailWorkflow(failure=Failure(message="boom")))
    outcomes = await drive.engine.apply([failed, request])  # one batch
    assert [type(outcome) for outcome in outcomes] == [c.Appended, c.Told]
    following = await flows.turn()
    assert following.names[0] == "WorkflowExecutionCancelRequested"
    assert (await following.append(t.CancelWorkflow())).state == State.CANCELED


async def test_two_children_of_one_id_in_one_turn(drive: Drive) -> None:
    flows = Flows(drive)
    await flows.start()
    turn = await flows.turn()
    await turn.append(child(), child())
    events = await flows.history(turn.task.id)
    asked = [e.id for e in events if isinstance(e.attributes, StartChildWorkflowExecutionInitiated)]
    turns = {turn.run.workflow_id: turn for turn in await flows.turns()}
    assert len(await soundness.chain(drive, "child")) == 1
    told = {type(e.attributes).__name__: e.attributes for e in turns["wf"].events}
    assert told["ChildWorkflowExecutionStarted"].initiated_event_id == asked[0]  # type: ignore[union-attr]
    assert told["StartChildWorkflowExecutionFailed"].initiated_event_id == asked[1]  # type: ignore[union-attr]
    await soundness.check(drive)


async def test_many_children_are_swept_around_those_that_are_held_or_go_on() -> None:
    """CHILD-02, B099: none is passed over, whatever its neighbours do."""
    clock = SteppedClock()
    store = MemoryStore(clock=clock.now)
    async with running(store) as drive:
        flows = Flows(drive)
        run_id = await flows.start()
        abandoned = [child(f"child-{n}", parent_close_policy="abandon") for n in range(SWEPT + 10)]
        await (await flows.turn()).append(*abandoned, *(timer(str(n)) for n in range(SWEPT + 10)))
        await drive.one(c.Terminate(namespace="default", workflow_id="wf"))
        children, _ = await store.pending(run_id, 1000)
        held = [task.id for task in children if task.kind == Kind.TIMER][:3]
        async with store.batch() as rows:
            await rows.lock(held)
            for _ in range(12):
                clock.advance(1)
                await drive.ring()
        for _ in range(12):
            clock.advance(1)
            await drive.ring()
        left, _ = await store.pending(run_id, 1000)
        assert {task.id for task in left} == {wanted.task_id for wanted in abandoned}


async def test_a_parent_that_is_held_delays_its_children_alone() -> None:
    store = MemoryStore(clock=SteppedClock().now)
    async with running(store) as drive:
        flows = Flows(drive)
        run_ids = {name: await flows.start(name) for name in ("held", "free")}
        for turn in await flows.turns():
            await turn.append(activity())
        works = {work.parent_run_id: work for work in await drive.poll()}
        async with store.batch() as rows:
            await rows.lock([run_ids["held"]])
            late = asyncio.create_task(drive.complete(works[run_ids["held"]], "succeeded", result=b"\x90"))
            async with asyncio.timeout(2):
                assert await drive.complete(works[run_ids["free"]], "succeeded", result=b"\x90") == State.SUCCEEDED
                await flows.signal("s", "free")
            assert not late.done()
        async with asyncio.timeout(5):
            assert await late == State.SUCCEEDED
        assert len(await flows.turns()) == 2


async def test_a_message_that_cannot_be_read_stops_no_alarms() -> None:
    clock = SteppedClock()
    store = MemoryStore(clock=clock.now)
    async with running(store) as drive:
        flows = Flows(drive)
        await flows.start("wf")
        errands = [
            t.SignalExternalWorkflow(task_id=MINT.task_id(drive.engine.now()), workflow_id="wf", signal_name=str(n))
            for n in range(2)
        ]
        turn = await flows.turn()
        await turn.append(*errands, timer("t", 1.0))
        store._tables.tasks.rows[errands[0].task_id].checkpoint = b"\xc1"
        clock.advance(1)
        await drive.ring()
        names = (await flows.turn()).names
        assert names.count("WorkflowExecutionSignaled") == 1
        assert "TimerFired" in names


async def test_an_inbox_that_cannot_be_read_holds_up_its_run_alone() -> None:
    store = MemoryStore(clock=SteppedClock().now)
    async with running(store) as drive:
        flows = Flows(drive)
        bad, _ = await flows.start("bad"), await flows.start("good")
        await flows.signal("s", "bad")
        message = store._tables.inbox.rows[(bad, 1)]
        store._tables.inbox.rows[(bad, 1)] = Message(bad, 1, message.kind, message.at, b"\xc1")
        assert [turn.run.workflow_id for turn in await flows.turns()] == ["good"]
        assert await drive.state(bad) == State.ENQUEUED


async def test_a_reset_of_a_forgotten_workflow_id_gives_it_a_run_again(drive: Drive, clock: SteppedClock) -> None:
    """Its key is gone with the time that it is kept: the new run has it."""
    flows = Flows(drive)
    run_id = await flows.start()
    await (await flows.turn()).append(DONE)
    command = c.Reset(
        namespace="default", workflow_id="wf", run_id=run_id, event_id=4, history=await flows.history(run_id),
        task=await drive.read(run_id), run=await flows.run(run_id), new_run_id=MINT.task_id(drive.engine.now()),
    )  # fmt: skip
    async with drive.engine.store.batch() as rows:
        key = await drive.engine.store.find_key(("default", "", "workflow", "wf"))
        assert key is not None
        await rows.replace_key(key, type(key)(*key.name, key.task_id, b"", 0))
    await drive.one(c.Trim(closed_before=0, limit=10))
    assert await drive.engine.store.find_key(("default", "", "workflow", "wf")) is None
    async with asyncio.timeout(2):
        assert await drive.one(command) == c.Started(command.new_run_id)
    key = await drive.engine.store.find_key(("default", "", "workflow", "wf"))
    assert key is not None
    assert key.task_id == command.new_run_id
