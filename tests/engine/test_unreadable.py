"""Rows that this version cannot read, because another one or a fault wrote them, cost nobody else anything."""

from __future__ import annotations

import pytest

from perdure.core.run import Message, MessageKind
from perdure.core.states import State
from perdure.store.base import Store
from tests.engine.drive import Drive
from tests.engine.runs import Flows


async def test_a_run_whose_message_cannot_be_read_is_leased_to_nobody(
    drive: Drive, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    flows = Flows(drive)
    bad, good = await flows.start("bad"), await flows.start("good")
    run = await flows.run(bad)
    run.inbox_count = 1
    async with store.batch() as rows:
        await rows.lock([bad])
        await rows.put_runs([run])
        await rows.post([Message(bad, 1, MessageKind.EVENTS, 0, b"\xc1")])
    assert [turn.task.id for turn in await flows.turns()] == [good]
    assert "cannot be handled" in caplog.text
    task = await drive.read(bad)
    assert (task.state, task.session) == (State.ENQUEUED, None)
