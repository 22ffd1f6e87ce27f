"""Nothing starts of what is paused; what runs goes on, and nothing is lost or reordered by it."""

from __future__ import annotations

import pytest

from perdure.core import commands as c
from tests.engine.drive import Drive
from tests.engine.runs import DONE, Flows
from tests.flow.limited import complete, look, pause, poll_all, put


@pytest.mark.parametrize(
    ("scope", "name"), [("key", "customer"), ("namespace", ""), ("queue", "default"), ("type", "t")]
)
async def test_pause_and_resume(drive: Drive, scope: str, name: str) -> None:
    ids = [await drive.enqueue(concurrency_key="customer:1") for _ in range(4)]
    [running] = await drive.poll(1)
    limit = await pause(drive, scope, name, "the provider is down")
    assert limit is not None
    assert (limit.paused, limit.note) == (True, "the provider is down")
    assert await poll_all(drive) == []
    await complete(drive, running)
    ids.append(await drive.enqueue(concurrency_key="customer:1"))
    assert await poll_all(drive) == []
    assert (await drive.read(ids[1])).blocked_on is not None
    assert await pause(drive, scope, name, paused=False) is None, "it limited nothing else"
    await look(drive)
    assert [task.id for task in await poll_all(drive)] == ids[1:]


async def test_a_pause_keeps_the_limit_that_was_there(drive: Drive) -> None:
    await put(drive, "queue", "default", max_running=2)
    await pause(drive, "queue", "default")
    await put(drive, "queue", "default", max_running=3)
    for _ in range(5):
        await drive.enqueue()
    assert await poll_all(drive) == []
    limit = await pause(drive, "queue", "default", paused=False)
    assert limit is not None
    await look(drive)
    assert len(await poll_all(drive)) == 3


async def test_both_are_harmless_when_repeated(drive: Drive) -> None:
    assert await pause(drive, "queue", "default", paused=False) is None
    await pause(drive, "queue", "default", "first")
    again = await pause(drive, "queue", "default", "second")
    assert again is not None
    assert again.note == "second"


async def test_a_paused_queue_begins_no_turn_and_a_paused_run_stays_so(drive: Drive) -> None:
    """A run that is paused by itself is not started by the end of its queue's pause."""
    flows = Flows(drive)
    await pause(drive, "queue", "default")
    await flows.start("one")
    await flows.start("two")
    assert await flows.turns() == []
    await drive.one(c.Pause(namespace="default", workflow_id="two"))
    await pause(drive, "queue", "default", paused=False)
    await look(drive)
    [turn] = await flows.turns()
    await turn.append(DONE)
    assert await flows.turns() == []
