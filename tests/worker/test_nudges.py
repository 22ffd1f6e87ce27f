"""A cancel is heard when it happens, not with the next heartbeat (CANC-02)."""

from __future__ import annotations

import asyncio
import time

import pytest

from perdure import AsyncPerdure, Cancelled, Context, TaskCanceled, task
from perdure.core.errors import NotFound
from perdure.core.messages import Nudge, NudgeReply
from perdure.worker import heartbeat
from perdure.worker.worker import Worker
from tests.worker.fake import FakeService

PATIENCE = 6.0
"""Seconds: fewer than lie between two heartbeats."""


@task
async def until_canceled(ctx: Context, payload: None) -> None:
    await asyncio.Event().wait()


@task
def until_canceled_plain(ctx: Context, payload: None) -> None:
    while not ctx.cancelled():
        time.sleep(0.001)
    raise Cancelled


@pytest.mark.parametrize("name", ["until_canceled", "until_canceled_plain"])
async def test_a_nudge_brings_the_heartbeat(name: str) -> None:
    service = FakeService(heartbeat=10.0)
    async with Worker(service), asyncio.timeout(PATIENCE):
        lease, other = [await service.give(name) for _ in range(2)]
        for each in (lease, other):
            await service.beaten_for(each)  # the receipt
        service.actions[lease] = "cancel"
        service.nudges = ["task-1", "task-77"]
        assert (await service.reported(lease)).outcome == "canceled"
        service.actions[other] = "cancel"
        service.nudges = ["task-2"]
        await service.reported(other)


async def test_a_server_that_knows_no_nudges_is_asked_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old servers and faults: the heartbeats go on."""
    asked: list[Nudge] = []

    class Old(FakeService):
        async def nudge(self, body: Nudge) -> NudgeReply:
            asked.append(body)
            raise NotFound("there is no operation 'nudge'")

    monkeypatch.setattr(heartbeat, "NUDGE_RETRY_SECONDS", 600.0)
    service = Old(heartbeat=0.02)
    async with Worker(service), asyncio.timeout(20):
        lease = await service.give("until_canceled")
        await service.beaten_for(lease, 5)
        service.actions[lease] = "cancel"
        assert (await service.reported(lease)).outcome == "canceled"
    assert len(asked) == 1


async def test_from_the_owner_to_the_handler() -> None:
    """Through a whole server, whose heartbeats are ten seconds apart."""
    async with AsyncPerdure("sqlite:///:memory:") as app, app.worker(tasks=[until_canceled]), asyncio.timeout(PATIENCE):
        job = await app.enqueue(until_canceled)
        while (await job.status()).started_at is None:
            await asyncio.sleep(0.01)
        await job.cancel("enough")
        with pytest.raises(TaskCanceled, match="enough"):
            await job.result()
