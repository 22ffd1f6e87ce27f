"""A child run takes its turns without the row of its parent: a thousand children must not wait for each other (the
parent is locked by whatever may close the child, and by nothing else)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from perdure.core import commands as c
from perdure.core.effects import Delete
from perdure.core.events import WorkflowExecutionCancelRequested, WorkflowExecutionSignaled
from perdure.core.ids import Mint
from perdure.core.model import Task
from perdure.core.rounds import Rounds
from perdure.core.states import State
from perdure.engine.ledger import Ledger
from perdure.engine.relatives import Relatives
from perdure.store.base import Store
from tests.engine.drive import Drive, running
from tests.engine.runs import DONE, Flows, Turn, child, start, timer
from tests.store.conftest import clock, shared  # noqa: F401  # their fixtures

SIGNAL = WorkflowExecutionSignaled(signal_name="hi")
LEAVES_OPEN: dict[str, Callable[[Turn], c.Command]] = {
    "waits": lambda turn: turn.command(timer()),
    "begins a step": lambda turn: turn.command(final=False),
    "hands its turn back": lambda turn: c.Complete(lease=turn.task.lease, outcome="released"),
    "is signaled": lambda turn: c.Tell(namespace="default", workflow_id="child", message=SIGNAL),
    "is started again": lambda turn: start("child", id_conflict="use_existing", signal=SIGNAL),
    "is paused": lambda turn: c.Pause(namespace="default", workflow_id="child"),
}
MAY_CLOSE: dict[str, Callable[[Turn], c.Command]] = {
    "completes": lambda turn: turn.command(DONE),
    "is asked to cancel": lambda turn: c.Tell(
        namespace="default", workflow_id="child", message=WorkflowExecutionCancelRequested()
    ),
    "is terminated": lambda turn: c.Terminate(namespace="default", workflow_id="child"),
    "is replaced": lambda turn: start("child", id_conflict="terminate_existing"),
}


@pytest.fixture
async def drive(shared: Store) -> AsyncIterator[Drive]:  # noqa: F811
    async with running(shared) as driving:
        yield driving


async def family(drive: Drive) -> tuple[bytes, Turn]:
    """The id of a parent that waits, and the turn in hand of its child."""
    flows = Flows(drive)
    parent = await flows.start()
    await (await flows.turn()).append(child())
    turns = {turn.run.workflow_id: turn for turn in await flows.turns()}
    await turns["wf"].append(timer())
    return parent, turns["child"]


async def answered(drive: Drive, parent: bytes, command: c.Command, within: float = 5.0) -> bool:
    """Whether the command is answered while somebody holds the parent's row; it is in any case later."""
    async with drive.engine.store.batch() as rows:
        assert parent in await rows.lock([parent])
        outcome: asyncio.Future[Any] = asyncio.ensure_future(drive.one(command))
        done, _ = await asyncio.wait([outcome], timeout=within)
    await outcome
    return bool(done)


@pytest.mark.parametrize("name", LEAVES_OPEN)
async def test_what_leaves_a_child_open_does_not_wait_for_its_parent(drive: Drive, name: str) -> None:
    parent, turn = await family(drive)
    assert await answered(drive, parent, LEAVES_OPEN[name](turn))


@pytest.mark.parametrize("name", MAY_CLOSE)
async def test_what_may_close_a_child_does(drive: Drive, name: str) -> None:
    parent, turn = await family(drive)
    assert not await answered(drive, parent, MAY_CLOSE[name](turn), within=0.3)


async def test_a_row_does_not_close_behind_the_back_of_its_parent() -> None:
    """A parent that was forgotten would never hear of it; so that is an error, and the batch writes nothing."""
    mint = Mint()
    task = Task(mint.task_id(1), "default", "t", State.SUCCEEDED, "lane", 1, 1, parent_run_id=mint.task_id(1))
    relatives = Relatives(Ledger(), mint, Rounds())
    with pytest.raises(AssertionError):
        relatives.apply([Delete(task)], 1)
