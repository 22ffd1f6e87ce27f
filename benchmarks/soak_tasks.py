"""What the workers of the soak run: handlers that take their time and note when they begin and end.

Each note is a line in the file named by NOTES: task id, attempt, "begin" or "end", seconds since the epoch.
"""

from __future__ import annotations

import os
import time

from perdure import Context, Perdure, RetryPolicy, task

app = Perdure(os.environ["PERDURE_URL"])

_notes = os.open(os.environ["NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def _note(ctx: Context, what: str) -> None:
    os.write(_notes, f"{ctx.task_id} {ctx.attempt} {what} {time.time()}\n".encode())


@task(retries=RetryPolicy(max_attempts=5, base=0.5, cap=1.0))
def last(ctx: Context, seconds: float) -> int:
    """A plain function that works for so long; its result is the attempt that got to the end."""
    _note(ctx, "begin")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.05)
    _note(ctx, "end")
    return ctx.attempt
