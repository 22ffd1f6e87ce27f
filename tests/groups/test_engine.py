"""Groups through the engine, on every store: STEP-18 to STEP-28."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.core import commands as c
from perdure.core import groups, pages
from perdure.core import turn_commands as t
from perdure.core.events import GroupCompleted, GroupFailed, GroupStarted
from perdure.core.group_events import CallResult
from perdure.core.model import RetryPolicy, Task, Timeouts, pack
from perdure.core.states import Kind, State, is_closed
from tests.clock import SteppedClock
from tests.engine.drive import Drive
from tests.engine.runs import DONE, MINT, Flows, Turn, payload

ONCE = RetryPolicy(max_attempts=1)


@pytest.fixture
def flows(drive: Drive) -> Flows:
    return Flows(drive)


def group(count: int, **more: Any) -> t.StartGroup:
    inputs = [payload(str(index)) for index in range(count)]
    fields: dict[str, Any] = {"group_id": "g#1", "policy": "collect", "retry": ONCE} | more
    return t.StartGroup(
        task_id=MINT.task_id(1_700_000_000_000_000), activity_type="work", task_queue="default", inputs=inputs, **fields
    )  # fmt: skip


async def calls(drive: Drive, run_id: bytes) -> list[Task]:
    found, _ = await drive.engine.store.pending(run_id, 100_000)
    return found


async def begin(flows: Flows, command: t.StartGroup) -> tuple[bytes, Turn]:
    run_id = await flows.start()
    turn = await flows.turn()
    await turn.append(command)
    return run_id, turn


async def ring_until_quiet(drive: Drive) -> None:
    while await drive.ring():
        pass


async def row_of(drive: Drive, command: t.StartGroup) -> groups.Group:
    return groups.group_of(await drive.read(command.task_id))


async def results(drive: Drive, command: t.StartGroup) -> list[CallResult]:
    found = await drive.engine.store.histories({command.task_id: command.count}, 1_000)
    return [result for page in found.get(command.task_id, ()) for result in pages.unpack_results(page.data)]


async def work(drive: Drive, most: int = 1_000) -> int:
    """Do what is ready, each with its index as its result."""
    tasks = await drive.poll(most)
    outcomes = await drive.engine.apply(
        [c.Complete(lease=task.lease, outcome="succeeded", result=task.payload) for task in tasks]
    )
    assert all(isinstance(outcome, c.Changed) for outcome in outcomes)
    return len(tasks)


async def finish(drive: Drive) -> int:
    """Ring and work until nothing is left; how many calls ran."""
    count = 0
    while True:
        rang, did = await drive.ring(), await work(drive)
        count += did
        if not rang and not did:
            return count


async def test_a_group_from_start_to_result(drive: Drive, flows: Flows) -> None:
    """STEP-18, STEP-20, STEP-21, STEP-28."""
    command = group(450)
    run_id, _ = await begin(flows, command)
    [row] = await calls(drive, run_id)
    assert row.kind == Kind.GROUP
    assert await drive.ring() == 1
    assert len(await calls(drive, command.task_id)) == 200  # bounded steps
    await ring_until_quiet(drive)
    assert len(await calls(drive, command.task_id)) == 450
    assert await finish(drive) == 450
    assert await calls(drive, command.task_id) == []
    found = await results(drive, command)
    assert sorted(one.index for one in found) == list(range(450))
    assert all(one.result == payload(str(one.index)) for one in found)
    turn = await flows.turn()
    assert turn.names == ["GroupCompleted", "WorkflowTaskScheduled", "WorkflowTaskStarted"]
    await turn.append(DONE)
    assert (await flows.run(run_id)).event_count == 10  # however many calls
    assert await flows.turns() == []


async def test_a_window_bounds_what_is_in_flight(drive: Drive, flows: Flows) -> None:
    command = group(50, window=7)
    await begin(flows, command)
    ran = 0
    while ran < 50:
        await ring_until_quiet(drive)
        in_flight = await calls(drive, command.task_id)
        assert 0 < len(in_flight) <= 7
        ran += await work(drive, 3)
    await ring_until_quiet(drive)
    [turn] = await flows.turns()
    assert isinstance(turn.events[0].attributes, GroupCompleted)


async def test_collect_has_errors_in_their_places(drive: Drive, flows: Flows, clock: SteppedClock) -> None:
    """STEP-26: a failure, a time-out and a success."""
    command = group(3, start_to_close=5.0)
    await begin(flows, command)
    await ring_until_quiet(drive)
    first, second, third = await drive.poll()
    await drive.complete(first, "succeeded", result=first.payload)
    await drive.fail(second)
    await drive.beat(third)
    clock.advance(6)
    await ring_until_quiet(drive)
    found = {one.index: one for one in await results(drive, command)}
    assert {index: one.status for index, one in found.items()} == {0: "completed", 1: "failed", 2: "timed_out"}
    assert found[1].failure is not None
    assert found[1].failure.message == "boom"
    assert found[1].retry_state == "maximum_attempts_reached"
    [turn] = await flows.turns()
    assert turn.events[0].attributes == GroupCompleted(started_event_id=5, failed=2)


async def test_a_call_is_tried_again_before_it_counts(drive: Drive, flows: Flows, clock: SteppedClock) -> None:
    command = group(1, retry=RetryPolicy(max_attempts=2, delays=(1.0,)))
    await begin(flows, command)
    await ring_until_quiet(drive)
    assert await drive.fail(await drive.lease()) == State.RETRY_WAIT
    assert (await row_of(drive, command)).done == 0
    clock.advance(2)
    await ring_until_quiet(drive)
    assert await work(drive) == 1
    await ring_until_quiet(drive)
    assert (await row_of(drive, command)).told


async def test_fail_fast_tells_first_and_cancels_in_the_background(
    drive: Drive, flows: Flows, clock: SteppedClock
) -> None:
    """STEP-25, STEP-27: the run hears of the first failure; queued calls go, those that run are asked to end."""
    command = group(450, policy="fail_fast")
    await begin(flows, command)
    await ring_until_quiet(drive)
    failing, running = await drive.poll(2)
    await drive.beat(running)
    await drive.fail(failing)
    await drive.ring()  # tells
    [turn] = await flows.turns()
    told = turn.events[0].attributes
    assert isinstance(told, GroupFailed)
    assert (told.index, told.failure.message) == (0, "boom")
    for _ in range(10):
        clock.advance(0.02)
        await drive.ring()
    left = await calls(drive, command.task_id)
    assert [task.id for task in left] == [running.id]
    assert left[0].cancel_requested_at is not None
    assert await drive.beat(running)  # it hears of it
    await drive.complete(running, "canceled")
    assert await calls(drive, command.task_id) == []
    assert await results(drive, command) == []
    await ring_until_quiet(drive)
    assert len(await calls(drive, turn.task.id)) == 1  # the row of the group stays at rest
    assert (await drive.read(command.task_id)).wake_at is None


async def test_calls_that_were_not_inserted_never_are_after_a_failure(
    drive: Drive, flows: Flows, clock: SteppedClock
) -> None:
    command = group(100, policy="fail_fast", window=2)
    await begin(flows, command)
    await ring_until_quiet(drive)
    first, _ = await drive.poll(2)
    await drive.fail(first)
    for _ in range(10):
        clock.advance(0.02)
        await drive.ring()
    assert (await row_of(drive, command)).inserted == 2


@pytest.mark.parametrize("how", ["cancel", "same append"])
async def test_the_code_cancels_it(drive: Drive, flows: Flows, clock: SteppedClock, how: str) -> None:
    command = group(250)
    run_id = await flows.start()
    turn = await flows.turn()
    stop = t.CancelGroup(task_id=command.task_id, started_event_id=5)
    if how == "same append":
        await turn.append(command, stop)
        assert await calls(drive, run_id) == []
        assert command.task_id not in await drive.engine.store.read([command.task_id])
        return
    await turn.append(command)
    await ring_until_quiet(drive)
    await flows.signal("go")
    turn = await flows.turn()
    await turn.append(stop)
    for _ in range(10):
        clock.advance(0.02)
        await drive.ring()
    assert await calls(drive, command.task_id) == []
    assert await flows.turns() == []  # it hears nothing


@pytest.mark.parametrize("how", ["complete", "terminate", "time out"])
async def test_what_closes_the_run_sweeps_its_groups(drive: Drive, flows: Flows, clock: SteppedClock, how: str) -> None:
    """CHILD-02: calls that are queued, and those that run, go with the run."""
    command = group(250)
    run_id = await flows.start(run_timeout=60.0)
    turn = await flows.turn()
    await turn.append(command)
    await ring_until_quiet(drive)
    running = await drive.lease()
    await drive.beat(running)
    if how == "complete":
        await flows.signal("go")
        turn = await flows.turn()
        await turn.append(DONE)
    elif how == "terminate":
        await drive.one(c.Terminate(namespace="default", workflow_id="wf"))
    else:
        await drive.elapse(clock, 64)
    assert is_closed((await drive.read(run_id)).state)
    for _ in range(15):
        clock.advance(0.03)
        await drive.ring()
    assert await calls(drive, command.task_id) == []
    assert await calls(drive, run_id) == []
    assert is_closed((await drive.read(command.task_id)).state)
    with pytest.raises(Exception, match="no such task any more"):
        await drive.succeed(running)


async def test_a_finished_group_stays_as_long_as_its_run(drive: Drive, flows: Flows, clock: SteppedClock) -> None:
    """Its results are for replays; retention takes them with its row."""
    command = group(3)
    run_id, _ = await begin(flows, command)
    await finish(drive)
    turn = await flows.turn()
    await turn.append()
    clock.advance(60 * 86_400)
    await drive.one(c.Trim(closed_before=clock.now(), limit=100))
    assert len(await results(drive, command)) == 3
    await drive.one(c.Terminate(namespace="default", workflow_id="wf"))
    for _ in range(5):
        clock.advance(0.03)
        await drive.ring()
    assert is_closed((await drive.read(command.task_id)).state)
    clock.advance(60)
    await drive.one(c.Trim(closed_before=clock.now(), limit=100))
    assert await drive.engine.store.read([command.task_id, run_id]) == {}
    assert await drive.engine.store.histories({command.task_id: 0}, 10) == {}


async def test_nobody_cancels_a_group_or_a_call_by_its_id(drive: Drive, flows: Flows) -> None:
    command = group(3)
    await begin(flows, command)
    await drive.ring()
    for task_id in (command.task_id, (await calls(drive, command.task_id))[0].id):
        with pytest.raises(Exception, match="no such task"):
            await drive.cancel(task_id)


async def test_calls_that_time_out_before_their_start_end_the_group(
    drive: Drive, flows: Flows, clock: SteppedClock
) -> None:
    """B126: a call that never runs does not keep the run waiting."""
    command = group(3, schedule_to_start=10.0)
    await begin(flows, command)
    await drive.ring()
    clock.advance(11)
    await ring_until_quiet(drive)
    [turn] = await flows.turns()
    assert turn.events[0].attributes == GroupCompleted(started_event_id=5, failed=3)


async def test_a_reset_before_the_end_runs_it_again_and_one_after_keeps_it(
    drive: Drive, flows: Flows, clock: SteppedClock
) -> None:
    """RPLY-39."""
    command = group(3)
    run_id, _ = await begin(flows, command)
    await finish(drive)
    turn = await flows.turn()
    await turn.append(t.RecordMarker(marker_name="after"))

    async def reset(event_id: int, run_id: bytes) -> bytes:
        store = drive.engine.store
        task, run = (await store.read([run_id]))[run_id], (await store.run_rows([run_id]))[run_id]
        new = MINT.task_id(clock.now())
        await drive.one(
            c.Reset(
                namespace="default", workflow_id="wf", run_id=run_id, event_id=event_id,
                history=await flows.history(run_id), task=task, run=run, new_run_id=new,
            )
        )  # fmt: skip
        return new

    kept = await reset(9, run_id)
    [row] = await calls(drive, kept)
    assert row.kind == Kind.GROUP
    assert row.id != command.task_id
    assert row.wake_at is None
    again = t.StartGroup(**{name: getattr(command, name) for name in command.__struct_fields__} | {"task_id": row.id})
    assert sorted(one.index for one in await results(drive, again)) == [0, 1, 2]
    started = (await flows.history(kept))[4].attributes
    assert isinstance(started, GroupStarted)
    assert started.task_id == row.id
    anew = await reset(5, kept)
    [row] = await calls(drive, anew)
    assert await finish(drive) >= 3
    assert groups.group_of(await drive.read(row.id)).told
    names = [turn.names for turn in await flows.turns()]
    assert ["GroupCompleted", "WorkflowTaskScheduled", "WorkflowTaskStarted"] in names


async def test_two_groups_and_many_ends_in_one_batch(drive: Drive, flows: Flows) -> None:
    """Ends of both groups, and the alarms of both, in the same batch."""
    first, second = group(30), group(20, group_id="g#2")
    run_id = await flows.start()
    turn = await flows.turn()
    await turn.append(first, second)
    await ring_until_quiet(drive)
    tasks = await drive.poll(100)
    done = [c.Complete(lease=task.lease, outcome="succeeded", result=task.payload) for task in tasks]
    await drive.engine.apply([*done[:25], c.Ring(limit=100), *done[25:]])
    await ring_until_quiet(drive)
    [turn] = await flows.turns()
    assert turn.names[:2] == ["GroupCompleted", "GroupCompleted"]
    assert (len(await results(drive, first)), len(await results(drive, second))) == (30, 20)
    assert run_id == turn.task.id


async def test_calls_have_the_options_of_the_group(drive: Drive, flows: Flows) -> None:
    command = group(2, heartbeat=9.0, start_to_close=8.0, priority=2, retry=RetryPolicy(max_attempts=7))
    await begin(flows, command)
    await drive.ring()
    tasks = await drive.poll()
    assert [task.idempotency_key for task in tasks] == ["g#1[0]", "g#1[1]"]
    assert {task.timeouts for task in tasks} == {pack(Timeouts(heartbeat=9.0, start_to_close=8.0))}
    assert {(task.priority, task.max_attempts, task.type) for task in tasks} == {(2, 7, "work")}
