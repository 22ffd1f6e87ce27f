"""The workflows that the benchmarks run: steps that leave a byte in the tally and return a number, as the peers' do."""

from __future__ import annotations

import os
from typing import Any

from perdure import Context, Perdure, WorkflowContext, task, workflow

app = Perdure(os.environ["PERDURE_URL"])

_tally = os.open(os.environ["TALLY"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


async def number(value: int) -> int:
    """A step of the async workflows."""
    os.write(_tally, b".")
    return value


def plain_number(value: int) -> int:
    """A step of the plain ones."""
    os.write(_tally, b".")
    return value


@task
async def dispatched(ctx: Context, value: int) -> int:
    """An activity."""
    os.write(_tally, b".")
    return value


@workflow
async def steps(ctx: WorkflowContext, count: int) -> int:
    """Sequential inline steps."""
    total = 0
    for value in range(count):
        total += await ctx.step("step", number, value)
    return total


@workflow
def plain_steps(ctx: WorkflowContext, count: int) -> int:
    """The same, written as a plain function."""
    total = 0
    for value in range(count):
        total += ctx.step("step", plain_number, value)
    return total


@workflow
async def activities(ctx: WorkflowContext, count: int) -> int:
    """Sequential dispatched activities."""
    total = 0
    for value in range(count):
        total += await ctx.execute_activity(dispatched, value)
    return total


@workflow
async def fan_out(ctx: WorkflowContext, how: dict[str, Any]) -> int:
    """Parallel steps or activities, all at once."""
    work = number if how["mode"] == "steps" else dispatched
    results = await ctx.parallel("fan", [(work, value) for value in range(how["n"])])
    return sum(results)
