"""Who gets a workflow id, and what a start that is repeated or comes late does (RPLY-08, SIG-06, IDEM-05)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from perdure.core import commands as c
from perdure.core import turn_commands as t
from perdure.core.errors import WorkflowAlreadyStarted, WorkflowClosed
from perdure.core.events import WorkflowExecutionCancelRequested, WorkflowExecutionSignaled
from perdure.core.run import UpdateRequest
from perdure.core.states import State
from perdure.engine.reservations import update_key
from perdure.store.base import Store
from tests.engine.drive import Drive, running
from tests.engine.faulty import FaultyStore
from tests.engine.runs import DONE, MINT, Flows, child, start


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


# many at once --------------------------------------------------------------------------------------------------------
async def test_many_starts_of_one_id_are_one_batch(flows: Flows, store: Store) -> None:
    """The first one makes the run; the others are answered as their policy says, and their signals arrive in order."""
    faulty = FaultyStore(store)
    async with running(faulty) as drive:  # type: ignore[arg-type]
        signals = [WorkflowExecutionSignaled(signal_name=str(n)) for n in range(100)]
        wanted = [start(signal=signal, id_conflict="use_existing", request=signal.signal_name) for signal in signals]
        wanted += [start(id_conflict="use_existing"), start(request="0"), start()]
        *made, attached, repeated, refused = await drive.engine.apply(wanted)
        run_id = made[0].run_id  # type: ignore[union-attr]
        assert made == [c.Started(run_id), *[c.Started(run_id, started=False)] * 99]
        assert (attached, repeated) == (c.Started(run_id, started=False), c.Started(run_id))
        assert isinstance(refused, WorkflowAlreadyStarted)
        assert faulty.verbs.count("insert") == 1, "one batch"
        again = await drive.engine.apply(wanted[:100])
        assert again == made, "their request ids are known"
        (turn,) = await Flows(drive).turns()
        seen = [e.attributes.signal_name for e in turn.events if isinstance(e.attributes, WorkflowExecutionSignaled)]
        assert seen == [str(n) for n in range(100)]


async def test_one_of_many_starts_follows_a_closed_run(drive: Drive, flows: Flows) -> None:
    """Where the first may not have the id, a later one of the same batch may."""
    old = await flows.start()
    await (await flows.turn()).append(DONE)
    first, second, third = await drive.engine.apply([start(id_reuse="reject_duplicate"), start(request="r"), start()])
    assert isinstance(first, WorkflowAlreadyStarted) and isinstance(third, WorkflowAlreadyStarted)
    assert isinstance(second, c.Started) and second.started and second.run_id != old
    assert await drive.one(start(request="r")) == second


async def test_a_start_that_replaces_one_of_its_own_batch(drive: Drive, flows: Flows) -> None:
    first, second = await drive.engine.apply([start(request="a"), start(request="b", id_conflict="terminate_existing")])
    assert isinstance(first, c.Started) and isinstance(second, c.Started)
    assert await drive.state(first.run_id) == State.TERMINATED
    assert await drive.state(second.run_id) == State.ENQUEUED


# with an update ------------------------------------------------------------------------------------------------------
def updating(update_id: str = "u", *, request: str = "", **options: Any) -> c.Enqueue:
    update = UpdateRequest(update_id=update_id, task_id=MINT.task_id(1_700_000_000_000_000), name="add")
    return start(update=update, request=request, **{"id_conflict": "use_existing"} | options)


def update(update_id: str = "u", run_id: bytes | None = None) -> c.Tell:
    message = UpdateRequest(update_id=update_id, task_id=MINT.task_id(1_700_000_000_000_000), name="add")
    return c.Tell(namespace="default", workflow_id="wf", run_id=run_id, message=message)


async def test_a_start_brings_an_update_along(drive: Drive, flows: Flows) -> None:
    """Both in one transaction: to a new run, to one of the same batch, and to an open one; each update once."""
    first, second = updating("1", request="a"), updating("2", request="b")
    made = await drive.engine.apply([first, second])
    run_id = made[0].run_id  # type: ignore[union-attr]
    assert made == [c.Started(run_id), c.Started(run_id, started=False)]
    assert await drive.one(updating("3")) == c.Started(run_id, started=False)
    for update_id in ("1", "2", "3"):  # sent again: by the same way, and by the other one
        assert (await drive.one(updating(update_id))).run_id == run_id
        assert (await drive.one(update(update_id))).run_id == run_id
    turn = await flows.turn()
    assert [seen.update_id for seen in turn.updates] == ["1", "2", "3"]
    assert (await flows.run(run_id)).children == 3
    told = await drive.one(update("1"))
    assert (await drive.state(told.answer_id)) == State.WAITING


async def test_a_start_with_an_update_may_replace_the_open_run(drive: Drive, flows: Flows) -> None:
    old = await flows.start()
    new = await drive.one(updating(id_conflict="terminate_existing"))
    assert new.started and new.run_id != old
    assert (await drive.one(update())).run_id == new.run_id
    assert [seen.update_id for seen in (await flows.turn()).updates] == ["u"]


async def test_a_start_that_is_refused_brings_nothing(drive: Drive, flows: Flows) -> None:
    run_id = await flows.start()
    with pytest.raises(WorkflowAlreadyStarted):
        await drive.one(updating(id_conflict="fail"))
    assert (await flows.run(run_id)).inbox_count == 0


# asked again ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("addressed", ["by id", "by run id"])
async def test_an_update_that_meets_the_end_of_its_run_is_refused_each_time(
    drive: Drive, flows: Flows, addressed: str
) -> None:
    """Its run closes in the same batch: it left its key behind, and a repeat waited for a row that never was."""
    run_id = await flows.start()
    turn = await flows.turn()
    asked = update(run_id=run_id if addressed == "by run id" else None)
    _, *told = await drive.engine.apply([turn.command(DONE), asked, asked])
    told += await drive.engine.apply([asked])
    assert [type(outcome) for outcome in told] == [WorkflowClosed] * 3
    assert await drive.engine.store.find_key(update_key("default", run_id, "u")) is None


@pytest.mark.parametrize("message", ["signal", "cancel", "update"])
async def test_what_was_answered_is_answered_alike_once_the_chain_has_closed(
    drive: Drive, flows: Flows, message: str
) -> None:
    """SIG-03: the answer was lost, and so was the race of the second try against the end."""
    run_id = await flows.start()
    turn = await flows.turn()
    asked: c.Tell = {
        "signal": c.Tell(
            namespace="default", workflow_id="wf", request_id="r", message=WorkflowExecutionSignaled(signal_name="s")
        ),
        "cancel": c.Tell(
            namespace="default", workflow_id="wf", request_id="r", message=WorkflowExecutionCancelRequested()
        ),
        "update": update(),
    }[message]
    told = await drive.one(asked)
    await turn.append()
    new_id = MINT.task_id(1_700_000_000_000_000)
    await (await flows.turn()).append(t.ContinueAsNew(task_id=new_id))
    first = run_id if message == "update" else None
    assert await drive.one(replace(asked, run_id=first)) == told
    await drive.one(c.Terminate(namespace="default", workflow_id="wf"))
    assert await drive.one(replace(asked, run_id=first)) == told
    assert await drive.one(replace(asked, run_id=run_id)) == told
    with pytest.raises(WorkflowClosed):
        await flows.signal("other", request_id="s")
