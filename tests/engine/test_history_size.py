"""How long a history may become (RPLY-26, RPLY-27), and how much of an inbox a turn is shown."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import pytest

from perdure.core import turn_commands as t
from perdure.core.errors import Conflict, UnhandledMessages
from perdure.core.events import WorkflowExecutionSignaled
from perdure.core.ids import text
from perdure.core.run import UpdateRequest
from perdure.core.states import State
from perdure.engine import inboxes
from perdure.engine.engine import Engine
from perdure.store.base import Store
from tests.engine.drive import Drive
from tests.engine.runs import DONE, MINT, Flows, Turn, start


@pytest.fixture
def flows(drive: Drive) -> Flows:
    return Flows(drive)


@pytest.fixture
async def bounded(store: Store) -> AsyncIterator[Flows]:
    """On a server that allows 100 events."""
    engine = Engine(store, max_history_events=100)
    await engine.start(services=False)
    yield Flows(Drive(engine))
    await engine.stop()


def markers(count: int) -> list[t.RecordMarker]:
    return [t.RecordMarker(marker_name="m")] * count


async def test_a_history_is_warned_of_once_and_has_a_bound(bounded: Flows, caplog: pytest.LogCaptureFixture) -> None:
    run_id = await bounded.start()
    turn = await bounded.turn()
    await turn.append(*markers(55), final=False)  # up to event 59
    assert caplog.records == []
    await turn.append(*markers(1), final=False)
    await turn.append(*markers(1), final=False)
    (told,) = caplog.records
    assert told.levelno == logging.WARNING
    assert told.getMessage() == (
        f"workflow 'wf', run {text(run_id)}: "
        "the history has 60 of at most 100 events: continue as new before it is full"
    )
    await turn.append(*markers(39), final=False)
    with pytest.raises(Conflict, match="more than 100 events: continue as new"):
        await turn.append(*markers(1))
    assert (await turn.append(t.ContinueAsNew(task_id=MINT.task_id(1_700_000_000_000_000)))).last == 101
    assert len(caplog.records) == 1


# inboxes -------------------------------------------------------------------------------------------------------------
@pytest.fixture
async def signaled(flows: Flows, monkeypatch: pytest.MonkeyPatch) -> Flows:
    """A run with 100 signals, of which a turn is shown about ten."""
    await flows.start()
    await flows.signal("0")
    (message,) = (await flows.drive.engine.store.pending((await flows.signal("1")).run_id, 1))[1]
    for n in range(2, 100):
        await flows.signal(str(n))
    monkeypatch.setattr(inboxes, "MOST_BYTES", len(message.body) * 10 - 5)
    monkeypatch.setattr(inboxes, "FEW", 3)
    return flows


def seen(turn: Turn) -> list[int]:
    return [int(e.attributes.signal_name) for e in turn.events if isinstance(e.attributes, WorkflowExecutionSignaled)]


async def test_a_large_inbox_is_shown_in_parts(signaled: Flows) -> None:
    shown: list[int] = []
    while len(shown) < 100:
        turn = await signaled.turn()
        part = seen(turn)
        assert 0 < len(part) <= 13
        shown += part
        await signaled.signal("999") if len(shown) == 10 else None
        await turn.append(*markers(1)[: len(shown) % 2], final=True)
    assert shown[:100] == list(range(100))
    turn = await signaled.turn()
    assert (await turn.append(DONE)).state == State.SUCCEEDED


async def test_a_run_does_not_close_over_what_it_was_not_shown(signaled: Flows) -> None:
    """B093: each turn that wants to close is shown more, and what was shown is written down."""
    shown: list[int] = []
    for _ in range(20):
        turn = await signaled.turn()
        shown += seen(turn)
        if len(shown) == 100:
            break
        with pytest.raises(UnhandledMessages):
            await turn.append(DONE)
    assert shown == list(range(100))
    assert (await turn.append(DONE)).state == State.SUCCEEDED
    names = await signaled.names(turn.task.id)
    assert names.count("WorkflowExecutionSignaled") == 100
    assert names.count("WorkflowTaskFailed") == names.count("WorkflowTaskStarted") - 1


async def test_continue_as_new_takes_all_along(signaled: Flows) -> None:
    """RPLY-25."""
    turn = await signaled.turn()
    shown = seen(turn)
    while len(shown) < 100:
        new_id = MINT.task_id(1_700_000_000_000_000)
        try:
            await turn.append(t.ContinueAsNew(task_id=new_id))
        except UnhandledMessages:
            assert len(shown) < 100
        turn = await signaled.turn()
        shown += seen(turn)
    assert shown == list(range(100))


async def test_a_put_off_close_with_updates_is_shown_everything(flows: Flows, monkeypatch: pytest.MonkeyPatch) -> None:
    """Updates become no events, so they cannot be written down: they stay in the inbox, and the rest is read, too."""
    update = UpdateRequest(update_id="u", task_id=MINT.task_id(1_700_000_000_000_000), name="add")
    await flows.drive.one(start(update=update))
    for n in range(50):
        await flows.signal(str(n))
    monkeypatch.setattr(inboxes, "MOST_BYTES", 200)
    monkeypatch.setattr(inboxes, "FEW", 3)
    turn = await flows.turn()
    assert len(turn.updates) == 1 and len(seen(turn)) < 10
    with pytest.raises(UnhandledMessages):
        await turn.append(DONE)
    turn = await flows.turn()
    assert len(turn.updates) == 1 and seen(turn) == list(range(50))
    await flows.signal("late")
    accepted = t.AcceptUpdate(update_id="u", task_id=update.task_id, name="add")
    await turn.append(accepted, final=False)
    with pytest.raises(UnhandledMessages):
        await turn.append(DONE)
    assert (await (await flows.turn()).append(DONE)).state == State.SUCCEEDED
