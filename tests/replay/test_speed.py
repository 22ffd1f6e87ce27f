"""Replaying 10,000 events takes under a second, whatever they are; and a warm turn does not get slower."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from perdure.core import turn_commands as c
from perdure.sdk.definition import Workflow
from perdure.sdk.workflow_context import WorkflowContext
from tests.replay.server import Server


def work(value: int) -> Any: ...


async def activities(ctx: WorkflowContext) -> None:
    for number in range(1_700):
        await ctx.execute_activity("work", number)


async def steps(ctx: WorkflowContext) -> None:
    for number in range(5_000):
        await ctx.step("work", work, number)


async def fans(ctx: WorkflowContext) -> None:
    for _ in range(4):
        await asyncio.gather(*(ctx.execute_activity("work", number) for number in range(1_000)))


async def sleeps(ctx: WorkflowContext) -> None:
    for _ in range(2_000):
        await asyncio.sleep(60)


def complete(server: Server) -> None:
    while server.closed is None:
        if server.running:
            server.step(next(iter(server.running)), "x")
            continue
        for event_id, command in list(server.open.items()):
            (server.fire if isinstance(command, c.StartTimer) else server.complete)(event_id)
        server.turn()


@pytest.mark.parametrize("code", [activities, steps, fans, sleeps])
def test_10_000_events_are_replayed_in_a_second(code: Callable[..., Any]) -> None:
    """RPLY-47."""
    server = Server(Workflow(code, "flow")).turn()
    complete(server)
    assert server.history.last >= 10_000
    began = time.perf_counter()
    server.cold()
    assert time.perf_counter() - began < 1
