"""Constant statements per batch of workflow commands, for one run and for fifty (DESIGN section 3)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from perdure.core import commands as c
from perdure.core import turn_commands as t
from perdure.core.events import WorkflowExecutionSignaled
from perdure.core.model import pack
from tests.engine.drive import Drive
from tests.engine.runs import DONE, Flows, Turn, activity, payload, start, timer
from tests.engine.test_budgets import Counter, _is_sqlite, counter, drive  # noqa: F401  # the fixtures


def signal(workflow_id: str, request_id: str = "") -> c.Tell:
    message = WorkflowExecutionSignaled(signal_name="s")
    return c.Tell(namespace="default", workflow_id=workflow_id, message=message, request_id=request_id)


def children() -> list[t.TurnCommand]:
    return [activity(), timer("due", 0.0)]


@pytest.mark.parametrize("runs", [1, 50])
async def test_a_run_from_its_start_to_its_end(drive: Drive, counter: Counter, runs: int) -> None:  # noqa: F811
    """SQLite deletes a row in three statements and closes one in two."""
    flows = Flows(drive)
    ids = [f"wf-{n}" for n in range(runs)]
    deleted, closed = (3, 2) if _is_sqlite(drive) else (1, 1)

    async def sent(work: Awaitable[list[Any]]) -> tuple[int, list[Any]]:
        """Statements without begin and commit, and the outcomes."""
        before = counter.statements
        outcomes = await work
        assert len(outcomes) in (1, runs)
        return counter.statements - before - 2, outcomes

    async def append(turns: list[Turn], make: Callable[[], list[t.TurnCommand]], *, final: bool = True) -> int:
        count, outcomes = await sent(drive.engine.apply([turn.command(*make(), final=final) for turn in turns]))
        for turn, done in zip(turns, outcomes, strict=True):
            turn.after = done.last
        return count

    await flows.start("first")  # the lanes are known from here on
    await (await flows.turn()).append(DONE)
    assert (await sent(drive.engine.apply([start(i) for i in ids])))[0] == 4  # key; row, its columns, event 1
    count, turns = await sent(flows.turns(runs))
    assert count == 4  # claim, columns; columns, lease
    assert (
        await append(turns, lambda: [t.StartStep(step_id=1, name="a")], final=False) == 4
    )  # lock, columns; both, events
    assert await append(turns, lambda: [t.CompleteStep(step_id=1), *children()]) == 6  # and rows of the run, new ones
    ends: list[c.Command] = [
        c.Complete(lease=task.lease, outcome="succeeded", result=pack(payload("7"))) for task in await drive.poll(runs)
    ]
    assert (await sent(drive.engine.apply(ends)))[0] == 6 + deleted  # lock twice, columns; columns, run, message
    assert (await sent(drive.engine.apply([signal(i) for i in ids])))[0] == 5  # key, lock, columns; columns, message
    assert (await sent(drive.engine.apply([signal(i, "r") for i in ids])))[0] == 6  # and the request id
    rang, _ = await sent(drive.engine.apply([c.Ring(limit=100)]))
    assert rang == 7 + deleted  # pulse twice, due, lock, columns; columns, message
    count, turns = await sent(flows.turns(runs))
    assert count == 5  # and inboxes
    assert all("TimerFired" in turn.names and "ActivityTaskCompleted" in turn.names for turn in turns)
    assert await append(turns, lambda: [DONE]) == 6 + closed  # lock, columns, inboxes; columns, events, inboxes
