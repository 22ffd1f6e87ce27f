"""What the workers of the benchmarks run: handlers that do nothing but leave a trace.

Each execution appends one byte to the file named by TALLY: its size is the count, without a lock, and a killed process
loses nothing. The payload has been decoded when a handler gets it.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from perdure import Context, Perdure, task

app = Perdure(os.environ["PERDURE_URL"])

_tally = os.open(os.environ["TALLY"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@task
async def noop(ctx: Context, payload: Any) -> None:
    """The job of all workloads."""
    os.write(_tally, b".")


@task
def noop_in_thread(ctx: Context, payload: Any) -> None:
    """The same as a plain function, which runs in a thread."""
    os.write(_tally, b".")


@task
async def echo(ctx: Context, payload: Any) -> int:
    """A job whose owner waits for the result."""
    return 1


@task
async def trace(ctx: Context, mark: str) -> None:
    """Leaves its mark, a letter, and takes a moment."""
    os.write(_tally, mark.encode())
    await asyncio.sleep(0.01)


@task
async def nap(ctx: Context, seconds: float) -> None:
    """Holds its slot for so long."""
    os.write(_tally, b".")
    await asyncio.sleep(seconds)
