"""Appends of steps that take the short way (engine/advances.py), and what becomes of those that it does not take."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure.core import commands as c
from perdure.core import turn_commands as t
from perdure.core.errors import LeaseLost
from perdure.core.events import StepCompleted, StepStarted
from perdure.core.states import State
from tests.engine.drive import Drive
from tests.engine.runs import DONE, Flows, Turn, payload
from tests.engine.test_budgets import Counter, _is_sqlite, counter, drive  # noqa: F401  # the fixtures

CLAIM = t.StartStep(step_id=1, name="a")
END = t.CompleteStep(step_id=1, result=payload("7"))


def steps(turn: Turn, *commands: t.TurnCommand, **fields: Any) -> c.Append:
    """What a worker sends behind the first append of a turn."""
    append = turn.command(*commands, final=False, **fields)
    append.completed_event_id = turn.events[-1].id + 1
    append.identity = turn.task.worker or ""
    return append


async def begun(flows: Flows, workflow_id: str = "wf") -> Turn:
    """A turn that has claimed a step."""
    await flows.start(workflow_id)
    turn = await flows.turn()
    await turn.append(CLAIM, final=False)
    return turn


async def test_the_history_is_that_of_the_long_way(drive: Drive) -> None:  # noqa: F811
    """STEP-11, RPLY-04: the same events, whichever way they are written."""
    flows = Flows(drive)
    histories = []
    for short in (True, False):
        turn = await begun(flows, f"wf-{short:d}")
        append = steps(turn, END, t.StartStep(step_id=2, name="b"))
        append.completed_event_id *= short
        done: c.Appended = await drive.one(append)
        assert done == c.Appended(turn.run.id, State.LEASED, turn.after + 2)
        turn.after = done.last
        await turn.append(t.CompleteStep(step_id=2), DONE)
        histories.append([(event.id, event.attributes) for event in await flows.history(turn.run.id)][1:])
    assert histories[0] == histories[1]


@pytest.mark.parametrize("rows", [1, 50])
async def test_its_budget(drive: Drive, counter: Counter, rows: int) -> None:  # noqa: F811
    """1 statement (SQLite 2), without begin and commit (SQLite always)."""
    flows = Flows(drive)
    for n in range(rows):
        await flows.start(f"wf-{n}")
    turns = await flows.turns(rows)
    await drive.engine.apply([turn.command(CLAIM, final=False) for turn in turns])
    for turn in turns:
        turn.after += 2
    before = counter.statements
    outcomes = await drive.engine.apply([steps(turn, END) for turn in turns])
    assert counter.statements - before == (4 if _is_sqlite(drive) else 1)
    assert [outcome.state for outcome in outcomes if isinstance(outcome, c.Appended)] == [State.LEASED] * rows


async def test_the_same_one_again_has_the_same_answer(drive: Drive) -> None:  # noqa: F811
    """LEASE-05: also when both are in one batch."""
    flows = Flows(drive)
    turn = await begun(flows)
    append = steps(turn, END)
    first, second = await drive.engine.apply([append, steps(turn, END)])
    assert first == second == await drive.one(steps(turn, END))
    assert [type(event.attributes) for event in await flows.history(turn.run.id)].count(StepCompleted) == 1


async def test_two_of_one_run_in_one_batch(drive: Drive) -> None:  # noqa: F811
    """The second one goes on from the first."""
    flows = Flows(drive)
    turn = await begun(flows)
    after = turn.after
    first, second = await asyncio.gather(
        drive.one(steps(turn, END)), drive.one(steps(turn, t.StartStep(step_id=2, name="b"), after=after + 1))
    )
    assert (first.last, second.last) == (after + 1, after + 2)
    assert isinstance((await flows.history(turn.run.id))[-1].attributes, StepStarted)


async def test_a_lost_lease_is_told(drive: Drive) -> None:  # noqa: F811
    """LEASE-05: somebody has closed the run."""
    flows = Flows(drive)
    turn = await begun(flows)
    await drive.one(c.Terminate(namespace="default", workflow_id="wf"))
    for _ in range(2):
        with pytest.raises(LeaseLost):
            await drive.one(steps(turn, END))
    assert (await flows.names(turn.run.id))[-2:] == ["StepStarted", "WorkflowExecutionTerminated"]


async def test_messages_that_came_are_told(drive: Drive) -> None:  # noqa: F811
    """SIG-02: the answer says that the turn should end soon."""
    flows = Flows(drive)
    turn = await begun(flows)
    done: c.Appended = await drive.one(steps(turn, END))
    assert not done.waiting
    turn.after = done.last
    await flows.signal("s")
    done = await drive.one(steps(turn, t.StartStep(step_id=2, name="b")))
    assert done.waiting


async def test_a_bad_one_beside_others(drive: Drive) -> None:  # noqa: F811
    """Each is answered by itself."""
    flows = Flows(drive)
    good, bad = [await begun(flows, name) for name in ("good", "bad")]
    outcomes = await drive.engine.apply([steps(bad, END, after=bad.after + 7), steps(good, END)])
    assert isinstance(outcomes[0], LeaseLost)
    assert outcomes[1] == c.Appended(good.run.id, State.LEASED, good.after + 1)
