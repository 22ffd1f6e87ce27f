"""What holds of workflow runs at any moment, whatever met whatever: asked of a store after every order of a race."""

from __future__ import annotations

from contextlib import suppress

from perdure.core import commands as c
from perdure.core import turn_commands as t
from perdure.core.errors import UnhandledMessages
from perdure.core.events import WorkflowExecutionSignaled
from perdure.core.model import Failure, Task
from perdure.core.run import Run
from perdure.core.states import Kind, State, is_closed
from perdure.core.turn_effects import key_of
from perdure.store.base import Filter
from tests.clock import SteppedClock
from tests.engine.drive import Drive
from tests.engine.runs import DONE, Flows

_ALL = 10_000


async def _tasks(drive: Drive) -> list[Task]:
    return await drive.engine.store.find(Filter(namespace="default", limit=_ALL))


async def check(drive: Drive) -> None:
    """Histories have no gaps, inboxes neither; counts are right; a workflow id has one open run and knows it; nobody
    waits while a message is there."""
    flows = Flows(drive)
    store = drive.engine.store
    tasks = [task for task in await _tasks(drive) if task.kind == Kind.WORKFLOW]
    runs = await store.run_rows([task.id for task in tasks])
    by_id: dict[str, list[Task]] = {}
    for task in tasks:
        run = runs[task.id]
        by_id.setdefault(run.workflow_id, []).append(task)
        assert len(await flows.history(task.id)) == run.event_count
        children, inbox = await store.pending(task.id, _ALL)
        if is_closed(task.state):
            assert inbox == [], "a closed run has messages"
            continue
        assert run.children == len(children), f"{run.children} children are counted, {len(children)} are there"
        assert [m.seq for m in inbox] == list(range(run.inbox_taken + 1, run.inbox_count + 1))
        if task.state == State.WAITING:
            assert inbox == [], "a run waits though a message is there"
        if task.state == State.ENQUEUED:
            assert run.paused or task.place is not None or task.ready_at is not None
    for workflow_id, same in by_id.items():
        open_ones = [task.id for task in same if not is_closed(task.state)]
        assert len(open_ones) <= 1, "two runs of one workflow id are open"
        holder = await store.find_key(key_of("default", workflow_id))
        assert holder is not None
        last = [task.id for task in same if task.state != State.CONTINUED_AS_NEW]
        assert holder.task_id in (open_ones or last), "the workflow id does not know its run"


async def finish(drive: Drive, clock: SteppedClock, *, rounds: int = 25) -> None:
    """Everything comes to its end: activities succeed, updates are refused, turns complete their runs, and nothing
    is left; a worker that went away with a lease is waited for."""
    flows = Flows(drive)
    for _ in range(rounds):
        await drive.ring()
        for work in await drive.poll():
            await drive.complete(work, "succeeded", result=b"\x90")
        for turn in await flows.turns():
            refuse = [
                t.RejectUpdate(update_id=u.update_id, task_id=u.task_id, failure=Failure(message="no"))
                for u in turn.updates
            ]
            with suppress(UnhandledMessages):  # the next turn sees more
                await turn.append(*refuse, DONE)
        left = [task for task in await _tasks(drive) if not is_closed(task.state)]
        if not left:
            break
        clock.advance(4)
    else:
        raise AssertionError(f"these never end: {[(Kind(t.kind).name, State(t.state).name) for t in left]}")
    await check(drive)


async def chain(drive: Drive, workflow_id: str) -> list[tuple[Task, Run]]:
    """All runs of a workflow id."""
    tasks = [task for task in await _tasks(drive) if task.kind == Kind.WORKFLOW]
    runs = await drive.engine.store.run_rows([task.id for task in tasks])
    return [(task, runs[task.id]) for task in tasks if runs[task.id].workflow_id == workflow_id]


async def seen(drive: Drive, workflow_id: str = "wf") -> list[str]:
    """Names of the signals in the histories of the runs of a workflow id, but those that were reset."""
    runs = [run for _, run in await chain(drive, workflow_id)]
    reset = {run.reset_run_id for run in runs}
    names: list[str] = []
    for run in runs:
        events = await Flows(drive).history(run.id) if run.id not in reset else []
        names += [e.attributes.signal_name for e in events if isinstance(e.attributes, WorkflowExecutionSignaled)]
    return sorted(names)


def told(outcome: object) -> bool:
    """Whether a message was acknowledged."""
    assert isinstance(outcome, (c.Told, Exception)), outcome
    return isinstance(outcome, c.Told)
