"""What is over leaves nothing to the garbage collector: to look for circles among what thousands of runs leave behind
took a fifth of a worker's time."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest

from perdure import AsyncPerdure, Context, WorkflowContext, task, workflow

RUNS = 20


async def circle_step(value: int) -> int:
    return value


def plain_circle_step(value: int) -> int:
    return value


@task
async def circle_job(ctx: Context, value: int) -> int:
    return value


@task
def plain_circle_job(ctx: Context, value: int) -> int:
    return value


@workflow
async def circle_steps(ctx: WorkflowContext, count: int) -> None:
    for value in range(count):
        await ctx.step("step", circle_step, value)


@workflow
def plain_circle_steps(ctx: WorkflowContext, count: int) -> None:
    for value in range(count):
        ctx.step("step", plain_circle_step, value)


@workflow
async def circle_activities(ctx: WorkflowContext, count: int) -> None:
    for value in range(count):
        await ctx.execute_activity(circle_job, value)


@pytest.mark.parametrize(
    "what", [circle_activities, circle_job, circle_steps, plain_circle_job, plain_circle_steps], ids=lambda it: it.name
)
async def test_what_is_over_is_gone_at_once(tmp_path: Path, what: Any) -> None:
    """Server, worker and client in one process: fewer objects than there were runs."""
    is_job = what in (circle_job, plain_circle_job)
    async with AsyncPerdure(f"sqlite:///{tmp_path / 'circles.db'}") as app, app.worker():

        async def execute(number: int) -> None:
            if is_job:
                await app.execute(what, number, timeout=60)
            else:
                await app.execute_workflow(what, 3, id=f"circle-{number}", timeout=60)

        await execute(-1)
        gc.collect()
        gc.disable()
        try:
            for number in range(RUNS):
                await execute(number)
            left = gc.collect()
        finally:
            gc.enable()
    assert left < RUNS


async def test_batches_of_a_full_worker_are_gone_at_once(tmp_path: Path) -> None:
    """B149: many jobs that nobody waits for, so that successes and claims are exchanged without a look at the rows."""
    async with AsyncPerdure(f"sqlite:///{tmp_path / 'circles.db'}") as app, app.worker(workflows=[], slots=20):

        async def drain(jobs: int) -> None:
            handles = await app.enqueue_many(circle_job, list(range(jobs)))
            await handles[-1].result(timeout=60)

        await drain(100)
        gc.collect()
        gc.disable()
        try:
            await drain(1_000)
            left = gc.collect()
        finally:
            gc.enable()
    assert left < 50, "a batch of these is 20 jobs"
