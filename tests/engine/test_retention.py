"""Closed jobs are deleted in time, however busy the server is: PERS-13, PERS-20."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from perdure.core import commands as c
from perdure.core.model import SECOND
from perdure.engine.gather import MAX_PASSED_OVER, MAX_ROWS, Gatherer
from perdure.engine.retention import BREATH, LIMIT, PATIENCE, PAUSE, Retention
from tests.clock import START, SteppedClock
from tests.engine.drive import Drive, enqueue

KEEP = 600.0


async def test_what_closed_longer_ago_than_it_is_kept_is_deleted(drive: Drive, clock: SteppedClock) -> None:
    """And nothing else: open jobs stay, whatever their age."""
    waiting = await drive.enqueue(queue="idle")
    retention = Retention(drive.engine.apply, drive.engine.now, KEEP)
    closed = []
    for _ in range(3):
        task = await drive.lease_new()
        await drive.succeed(task)
        closed.append(task.id)
        clock.advance(KEEP / 2)
    await retention.run_once()
    found = await drive.engine.store.read([waiting, *closed])
    assert set(found) == {waiting, *closed[1:]}


async def test_steps_come_faster_while_there_is_more_to_do() -> None:
    counts = [LIMIT] * (2 * PATIENCE) + [LIMIT - 1, LIMIT]

    async def apply(commands: Sequence[c.Command]) -> list[c.Outcome]:
        assert commands == [c.Trim(closed_before=START - int(KEEP * SECOND), limit=LIMIT)]
        return [c.Did(counts.pop(0))]

    retention = Retention(apply, lambda: START, KEEP)
    pauses = [await retention.run_once() for _ in list(counts)]
    assert pauses[0] == BREATH and pauses[PATIENCE] == BREATH / 2 and pauses[2 * PATIENCE - 1] == BREATH / 4
    assert pauses[-2:] == [PAUSE, BREATH]


async def test_a_full_server_deletes_as_many_jobs_as_it_closes() -> None:
    """A job takes three commands of some batch; so the batches that deletion waits for close fewer than it deletes."""
    gatherer = Gatherer()
    future: asyncio.Future[list[c.Outcome]] = asyncio.get_running_loop().create_future()
    gatherer.put([enqueue() for _ in range(20 * MAX_ROWS)], future)
    gatherer.put([c.Trim(closed_before=0, limit=LIMIT)], future)
    batches = 1
    while not any(isinstance(item.command, c.Trim) for item in gatherer.take()):
        batches += 1
    assert batches == MAX_PASSED_OVER + 1
    assert batches * MAX_ROWS / 3 < 1.5 * LIMIT
