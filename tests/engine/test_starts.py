"""Who gets a workflow id, and what a start that is repeated or comes late does (RPLY-08, SIG-06, IDEM-05)."""

from __future__ import annotations

import pytest

from perdure.core import commands as c
from perdure.core.events import WorkflowExecutionSignaled
from tests.engine.drive import Drive
from tests.engine.runs import DONE, Flows, child, start


@pytest.fixture
def flows(drive: Drive) -> Flows:
    return Flows(drive)


def signaling(request: str) -> c.Enqueue:
    return start(signal=WorkflowExecutionSignaled(signal_name="hi"), id_conflict="use_existing", request=request)


async def test_a_repeated_start_signals_an_open_run_once(drive: Drive, flows: Flows) -> None:
    """Its answer was lost, so the client sent it again (IDEM-05)."""
    run_id = await flows.start()
    first = await drive.one(signaling("r"))
    assert await drive.one(signaling("r")) == first == c.Started(run_id, started=False)
    await drive.one(signaling("s"))
    await drive.one(signaling(""))
    await drive.one(signaling(""))
    assert (await flows.turn()).names.count("WorkflowExecutionSignaled") == 4


async def test_a_start_and_a_signal_with_one_request_id_are_two_requests(drive: Drive, flows: Flows) -> None:
    await flows.start()
    await flows.signal("one", request_id="r")
    await drive.one(signaling("r"))
    assert (await flows.turn()).names.count("WorkflowExecutionSignaled") == 2


@pytest.mark.parametrize(
    ("id_reuse", "last", "begins"),
    [
        ("allow_duplicate", "done", True),
        ("allow_duplicate_failed_only", "done", False),
        ("allow_duplicate_failed_only", "terminated", True),
        ("reject_duplicate", "done", False),
        ("reject_duplicate", "terminated", False),
        ("reject_duplicate", None, True),
    ],
)
async def test_a_child_may_not_repeat_an_id_that_it_must_not(
    drive: Drive, flows: Flows, id_reuse: str, last: str | None, begins: bool
) -> None:
    """The same rule as for starts from outside."""
    if last is not None:
        await flows.start("child")
        if last == "done":
            await (await flows.turn()).append(DONE)
        else:
            await drive.one(c.Terminate(namespace="default", workflow_id="child"))
    await flows.start("wf")
    await (await flows.turn()).append(child("child", id_reuse=id_reuse))
    turns = {turn.run.workflow_id: turn for turn in await flows.turns()}
    assert ("child" in turns) == begins
    assert ("StartChildWorkflowExecutionFailed" in turns["wf"].names) != begins
