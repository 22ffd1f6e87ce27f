"""A chain of steps is one turn, but not one that nobody can stop (CANC-04, CANC-06, SIG-02)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure import AsyncPerdure, TaskCanceled, WorkflowContext, workflow
from perdure.testing import Replayer

ran: list[str] = []


async def short(name: str) -> None:
    await asyncio.sleep(0.1)
    ran.append(name)


@workflow
async def chain_of_async_steps(ctx: WorkflowContext, name: str) -> list[str]:
    seen: list[str] = []
    ctx.on_signal("say", seen.append)
    for _ in range(30):
        await ctx.step("short", short, name)
        if seen:
            break
    return seen


@workflow
def chain_of_plain_steps(ctx: WorkflowContext, name: str) -> list[str]:
    seen: list[str] = []
    ctx.on_signal("say", seen.append)
    for _ in range(30):
        ctx.step("short", short, name)
        if seen:
            break
    return seen


@pytest.mark.parametrize("flow", [chain_of_async_steps, chain_of_plain_steps], ids=["async", "plain"])
@pytest.mark.parametrize("store", ["sqlite"])
async def test_a_cancel_and_a_signal_come_between_two_steps(flow: object, store: str, tmp_path: Path) -> None:
    ran.clear()
    async with AsyncPerdure(f"sqlite:///{tmp_path}/chain.db") as app, app.worker():
        run = await app.start_workflow(flow, "canceled", id="c")  # type: ignore[arg-type]
        other = await app.start_workflow(flow, "signaled", id="s")  # type: ignore[arg-type]
        while ran.count("canceled") < 2 or ran.count("signaled") < 2:
            await asyncio.sleep(0.01)
        await run.cancel()
        await other.signal("say", "hello")
        with pytest.raises(TaskCanceled):
            await run.result(timeout=10)
        assert await other.result(timeout=10) == ["hello"]
        for one in (run, other):
            history = await one.history()
            assert any(getattr(event.attributes, "held", False) for event in history.events)
            Replayer().replay(history).check()
    assert ran.count("canceled") <= 5
    assert ran.count("signaled") <= 5


@workflow
async def takes_two_and_continues(ctx: WorkflowContext, taken: list[str]) -> list[str]:
    for _ in range(2):
        taken.append(await ctx.wait_for_signal("item"))
    if len(taken) < 6:
        ctx.continue_as_new(taken)
    return taken


async def test_signals_that_the_code_has_not_asked_for_go_along(tmp_path: Path) -> None:
    """B093: six signals before the worker is there, taken by two at a time over three runs, in order."""
    async with AsyncPerdure(f"sqlite:///{tmp_path}/kept.db") as app:
        run = await app.start_workflow(takes_two_and_continues, [], id="k")
        for number in range(6):
            await run.signal("item", str(number))
        async with app.worker():
            assert await run.result(timeout=10) == ["0", "1", "2", "3", "4", "5"]
