"""The application of the processes that these tests kill and freeze. Each effect is a line in the file that the payload
names."""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import time
from pathlib import Path
from typing import Any

from perdure import AsyncPerdure, Context, RetryPolicy, task
from tests.worker.jobs import write

AGAIN = RetryPolicy(max_attempts=5, base=0.1)


@task(lease="1s", retries=AGAIN)
def field_hog(ctx: Context, payload: dict[str, Any]) -> int:
    """In its first attempt C code that never lets go of the interpreter: no other thread of the process runs."""
    write(payload["path"], f"begun {ctx.attempt}")
    if ctx.attempt == 1:
        time.sleep(0.3)  # its receipt is acknowledged
        ctypes.PyDLL(None).sleep(payload["seconds"])
    write(payload["path"], f"ended {ctx.attempt}")
    return ctx.attempt


@task(retries=AGAIN)
async def field_until(ctx: Context, payload: dict[str, Any]) -> str:
    """Ends when the file `path`.go exists."""
    write(payload["path"], ctx.task_id)
    go = Path(payload["path"] + ".go")
    while not go.exists():
        await asyncio.sleep(0.02)
    return ctx.task_id


@task(lease="2s", retries=AGAIN)
async def field_node(ctx: Context, payload: dict[str, Any]) -> str:
    """Which process ran it; a node that is to be killed never gets to its end."""
    write(payload["path"], f"{os.getpid()} in {ctx.attempt}")
    while payload["not"] == os.getpid() or payload["not"] is None:
        await asyncio.sleep(0.1)
    return f"{os.getpid()} in {ctx.attempt}"


async def node(url: str) -> None:
    """An application with server and worker in one process, as one machine of several on a database."""
    async with AsyncPerdure(url) as app, app.worker(slots=10):
        print("works", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(node(sys.argv[1]))
