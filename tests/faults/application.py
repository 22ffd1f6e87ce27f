"""The application of the fault tests: each execution of a job is a line in a file."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from perdure import Context, Perdure, RetryPolicy, task

EFFECTS = os.environ.get("PERDURE_EFFECTS", os.devnull)
PATIENT = RetryPolicy(max_attempts=100, base=0.2, cap=1.0)


def effect(ctx: Context) -> None:
    """One line, written whole: what a crash cannot undo."""
    with open(EFFECTS, "a", encoding="utf-8") as file:  # noqa: PTH123
        file.write(f"{ctx.task_id}\n")


@task(retries=PATIENT)
async def quick(ctx: Context, payload: Any) -> str:
    await asyncio.sleep(0.02)
    effect(ctx)
    return ctx.task_id


@task(retries=PATIENT)
def threaded(ctx: Context, payload: Any) -> str:
    time.sleep(0.02)
    effect(ctx)
    return ctx.task_id


@task(retries=PATIENT)
async def slow(ctx: Context, payload: Any) -> str:
    await asyncio.sleep(1.0)
    effect(ctx)
    return ctx.task_id


@task(retries=PATIENT)
async def lasting(ctx: Context, seconds: float) -> int:
    """Which attempt it was."""
    await asyncio.sleep(seconds)
    effect(ctx)
    return ctx.attempt


@task(retries=PATIENT)
async def moody(ctx: Context, payload: Any) -> str:
    """Fails twice, so that two alarms have to ring."""
    await asyncio.sleep(0.01)
    if ctx.attempt <= 2:
        raise ConnectionError("somebody else is away")
    effect(ctx)
    return ctx.task_id


@task
async def in_flight(ctx: Context, seconds: float) -> str:
    """With the settings of a task that sets nothing. The first attempt takes long enough for 500 to be in flight."""
    await asyncio.sleep(seconds if ctx.attempt == 1 else 1.0)
    effect(ctx)
    return ctx.task_id


app = Perdure(os.environ.get("PERDURE_SERVER", "http://127.0.0.1:7400"))
