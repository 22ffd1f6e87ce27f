"""An application of two processes on one SQLite file: a web application that enqueues and waits (run as a script), and
`perdure worker one_file.py`. Each execution, and each acknowledged enqueue, is a line in a file."""

from __future__ import annotations

import os
import sys
import time

from perdure import Context, Perdure, RetryPolicy, task

EFFECTS = os.environ.get("PERDURE_EFFECTS", os.devnull)
PATIENT = RetryPolicy(max_attempts=100, base=0.1, cap=0.5)


def write(path: str, line: str) -> None:
    """One line, written whole: what a crash cannot undo."""
    with open(path, "a", encoding="utf-8") as file:  # noqa: PTH123
        file.write(f"{line}\n")


@task(name="one_file_job", retries=PATIENT, lease="2s")
async def job(ctx: Context, payload: int) -> float:
    """When it started."""
    now = time.time()
    write(EFFECTS, ctx.task_id)
    return now


@task(name="one_file_nested", retries=PATIENT, lease="2s")
def nested(ctx: Context, payload: int) -> str:
    """Enqueues from the worker's process too."""
    write(EFFECTS, ctx.task_id)
    return app.enqueue(job, payload, idempotency_key=ctx.idempotency_key("job")).id


app = Perdure(os.environ.get("PERDURE_SERVER", "sqlite:///:memory:"))


def web(name: str, acknowledged: str, seconds: float) -> None:
    """Enqueue one by one and in bulk, and wait for every tenth."""
    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end:
        number += 1
        made = [app.enqueue(job, number, idempotency_key=f"{name} {number}"), *app.enqueue_many(job, range(5))]
        for one in made:
            write(acknowledged, one.id)
        if number % 10 == 0:
            made[0].result(timeout=60)
            write(acknowledged, app.enqueue(nested, number).id)


if __name__ == "__main__":
    web(sys.argv[1], sys.argv[2], float(sys.argv[3]))
    app.close()
