"""Handlers that leave their attempt to somebody else."""

from __future__ import annotations

import asyncio
import queue
from pathlib import Path

from perdure import AsyncPerdure, Context, WorkflowContext, task, workflow

tokens: queue.Queue[bytes] = queue.Queue()


@task(timeout="1h")
def ask_a_person(ctx: Context, question: str) -> str:
    tokens.put(ctx.task_token)
    ctx.complete_later()


@task(timeout="1h")
async def ask_a_machine(ctx: Context, question: str) -> str:
    tokens.put(ctx.task_token)
    ctx.complete_later()


@workflow
async def asks(ctx: WorkflowContext, question: str) -> str:
    answer: str = await ctx.execute_activity(ask_a_person, question, activity_id="q")
    return answer


async def test_the_token_ends_the_attempt(tmp_path: Path) -> None:
    async with AsyncPerdure(f"sqlite:///{tmp_path}/later.db") as app, app.worker(slots=1):
        for asked in (ask_a_person, ask_a_machine):
            job = await app.enqueue(asked, "may I?")
            token = await asyncio.to_thread(tokens.get, timeout=10)
            other = await app.enqueue(asked, "and this?")  # it holds no slot
            second = await asyncio.to_thread(tokens.get, timeout=10)
            await app.get_activity_handle(token=token).complete("yes")
            assert await job.result(timeout=10) == "yes"
            await app.get_activity_handle(token=second).complete("no")
            assert await other.result(timeout=10) == "no"


async def test_an_activity_is_ended_by_its_ids(tmp_path: Path) -> None:
    async with AsyncPerdure(f"sqlite:///{tmp_path}/later.db") as app, app.worker():
        run = await app.start_workflow(asks, "may I?", id="w")
        await asyncio.to_thread(tokens.get, timeout=10)
        await app.get_activity_handle(workflow_id="w", activity_id="q").complete("yes")
        assert await run.result(timeout=10) == "yes"
