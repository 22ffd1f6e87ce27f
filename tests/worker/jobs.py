"""The application that the process tests run. Each effect is a line in the file that the payload names."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from perdure import Context, task


def write(path: str, line: object) -> None:
    """One write of one line: atomic enough for many processes."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)


@task
async def job_append(ctx: Context, payload: dict[str, Any]) -> str:
    await asyncio.sleep(payload.get("seconds", 0))
    write(payload["path"], payload["line"])
    return ctx.task_id


@task(lease="3s")
async def job_wait(ctx: Context, payload: dict[str, Any]) -> None:
    write(payload["path"], "started")
    try:
        await asyncio.Event().wait()
    finally:
        write(payload["path"], "ended")


@task(lease="3s")
def job_wait_plain(ctx: Context, payload: dict[str, Any]) -> None:
    write(payload["path"], "started")
    while not ctx.cancelled():
        time.sleep(0.01)
    write(payload["path"], "ended")
    ctx.raise_if_cancelled()


@task
def job_stuck(ctx: Context, payload: dict[str, Any]) -> None:
    write(payload["path"], "started")
    while True:
        time.sleep(0.1)


@task
async def job_until(ctx: Context, payload: dict[str, Any]) -> int:
    """Ends when the file `path`.go exists; the number of the attempt."""
    write(payload["path"], f"attempt {ctx.attempt}")
    go = Path(payload["path"] + ".go")
    while not await asyncio.to_thread(go.exists):
        await asyncio.sleep(0.01)
    return ctx.attempt


@task
def job_resume(ctx: Context, payload: dict[str, Any]) -> list[Any]:
    """Checkpoints, then waits to be killed; the next attempt says where it went on."""
    if ctx.attempt == 1:
        ctx.progress(3, 10)
        ctx.checkpoint({"at": 3})
        write(payload["path"], "checkpointed")
        while not ctx.cancelled():
            time.sleep(0.01)
        ctx.raise_if_cancelled()
    return [ctx.attempt, ctx.last_checkpoint]
