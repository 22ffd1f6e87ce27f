"""Actions on many workflow runs (RETRY-08 for runs), on every store."""

from __future__ import annotations

from typing import Any

from perdure.core import bulk
from perdure.core.events import WorkflowExecutionCancelRequested
from perdure.core.runs import news_of
from perdure.core.states import State
from tests.clock import SteppedClock
from tests.engine.drive import Drive
from tests.engine.runs import DONE, Flows, timer
from tests.failures.test_bulk import NOTHING, action, begin, carry_out, end, small_steps  # noqa: F401
from tests.store.rows import insert, new_task

FIVE = [f"r{n}" for n in range(5)]


async def waiting(flows: Flows) -> list[bytes]:
    """Runs in several states: four wait for a timer, one has not begun."""
    ids = [await flows.start(name) for name in FIVE]
    for turn in await flows.turns(4):
        await turn.append(timer())
    return ids


async def requests(flows: Flows, run_id: bytes) -> list[WorkflowExecutionCancelRequested]:
    _, messages = await flows.drive.engine.store.pending(run_id, 10)
    found = [news for message in messages for news in news_of(message)]
    return [news for news in found if isinstance(news, WorkflowExecutionCancelRequested)]


async def test_open_runs_are_terminated_and_nothing_else(drive: Drive, clock: SteppedClock) -> None:
    flows = Flows(drive)
    ids = await waiting(flows)
    job = await drive.enqueue()
    done = await carry_out(drive, clock, action("terminate_runs", type="flow"))
    assert (done.done, done.failed, done.errors) == (5, 0, [])
    assert {(await drive.read(run_id)).state for run_id in ids} == {State.TERMINATED}
    assert (await drive.read(job)).state == State.ENQUEUED
    again = await carry_out(drive, clock, action("terminate_runs", type="flow"))
    assert (again.done, again.failed) == (0, 0)


async def test_the_code_of_open_runs_is_asked_once_to_end(drive: Drive, clock: SteppedClock) -> None:
    """The driver dies after it applied a step and before it wrote that down: who takes over repeats the step."""
    flows = Flows(drive)
    ids = await waiting(flows)
    what = action("cancel_runs", total=5)
    picked = await drive.engine.store.pick(what.selection, 20)
    what.step, what.cursor = picked.ids[-2:], picked.ids[-1]
    action_id = await begin(drive, what)
    await drive.engine._bulk._act(what, await drive.read(action_id))
    clock.advance(1)
    await drive.ring()
    done = bulk.action_of(await end(drive, action_id))
    assert (done.done, done.failed) == (2, 0)
    for run_id in what.step:
        asked = await requests(flows, run_id)
        assert [one.cause for one in asked] == ["why"]
    done = await carry_out(drive, clock, action("cancel_runs", type="flow"))
    assert (done.done, done.failed) == (len(ids), 0)


async def test_runs_that_closed_meanwhile_are_reported(drive: Drive, clock: SteppedClock) -> None:
    flows = Flows(drive)
    ids = await waiting(flows)
    await (await flows.turn()).append(DONE)
    for name in ("cancel_runs", "terminate_runs"):
        what = action(name, total=2)
        what.step, what.ended = [ids[-1], b"\1" * 16], True
        done = await carry_out(drive, clock, what)
        assert (done.done, done.failed) == (0, 2)
        assert {one.error.code for one in done.errors} <= {"workflow_closed", "conflict", "not_found"}


async def test_what_is_picked_are_open_runs_of_the_filter(drive: Drive, store: Any) -> None:
    flows = Flows(drive)
    ids = await waiting(flows)
    await insert(store, new_task(1))
    for filter, count in (({}, 5), ({"state": State.WAITING}, 4), ({"queue": "other"}, 0), ({"type": "flow"}, 5)):
        selection = bulk.selection("cancel_runs", "default", NOTHING | filter)
        assert len((await store.pick(selection, 100)).ids) == count
    assert sorted((await store.pick(bulk.selection("cancel_runs", "default", NOTHING), 100)).ids) == sorted(ids)
