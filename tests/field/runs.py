"""The workflows of the processes that these tests kill. Each effect is a line in the file that the payload names."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from typing import Any

from perdure import Context, RetryPolicy, task, workflow
from tests.worker.jobs import write

AGAIN = RetryPolicy(max_attempts=10, base=0.05)


async def late(path: str, label: str) -> str:
    """Takes a random time."""
    await asyncio.sleep(random.random() * 0.05)
    write(path, label)
    return label


@workflow
async def field_gather(ctx: Any, payload: dict[str, Any]) -> list[list[str]]:
    """Three different steps at once, three times."""
    rounds = []
    for n in range(3):
        labels = [f"{payload['run']}.{n}.{letter}" for letter in "abc"]
        rounds.append(await asyncio.gather(*(ctx.step(label[-1], late, payload["path"], label) for label in labels)))
    return rounds


async def nothing() -> None: ...


@workflow
async def field_long(ctx: Any, payload: dict[str, Any]) -> str:
    """A history of more than 500 events; then a turn whose code asks for a payment, and does not come to its end before
    the file `path`.go exists."""
    for _ in range(250):
        await ctx.step("step", nothing)
    await ctx.wait_for_signal("go")
    charge = ctx.start_activity(field_charge, payload)
    while not os.path.exists(payload["path"] + ".go"):  # noqa: PTH110 - asks no more of the guard than this
        pass
    return await charge


@task
def field_charge(ctx: Context, payload: dict[str, Any]) -> str:
    write(payload["path"], "charged")
    return "charged"


@workflow
async def field_export(ctx: Any, payload: dict[str, Any]) -> int:
    return await ctx.execute_activity(field_batch, payload, start_to_close="60s", heartbeat="1s", retries=AGAIN)


@task(lease="60s")
async def field_batch(ctx: Context, payload: dict[str, Any]) -> int:
    """Of 1,000 records it says after each hundred how far it has come; its first attempt never gets beyond 400."""
    done: int = ctx.last_checkpoint or 0
    write(payload["path"], f"{ctx.attempt} from {done}")
    while done < 1000:
        done += 100
        ctx.checkpoint(done)
        await asyncio.sleep(0.02)
        if done == 400 and ctx.attempt == 1:
            await asyncio.sleep(0.5)  # it is on its way with a heartbeat
            Path(payload["path"] + ".400").touch()
            await asyncio.Event().wait()
    return done
