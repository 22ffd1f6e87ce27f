"""The application that the process tests run. Each effect is a line in the file that the payload names."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from perdure import Context, RetryPolicy, task


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
async def job_pid(ctx: Context, payload: Any) -> int:
    return os.getpid()


@task
def job_nothing(ctx: Context, payload: Any) -> None: ...


@task
def job_forks_plain(ctx: Context, path: str) -> str:
    """The copy returns too."""
    if os.fork() == 0:
        write(path, os.getpid())
        return "copy"
    os.wait()
    return "original"


@task
async def job_forks(ctx: Context, path: str) -> str:
    """The copy gives control to the event loop, which it shares with nobody but whose connections it shares."""
    if os.fork() == 0:
        write(path, os.getpid())
        await asyncio.sleep(0)
        return "copy"
    await asyncio.to_thread(os.wait)
    return "original"


@task
async def job_uses_processes(ctx: Context, numbers: list[int]) -> list[int]:
    """By forks, which is the default on Linux before Python 3.14."""
    with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
        loop = asyncio.get_running_loop()
        return await asyncio.gather(*(loop.run_in_executor(pool, abs, number) for number in numbers))


@task
def job_closes_output(ctx: Context, payload: Any) -> str:
    sys.stdout.close()
    sys.stderr.close()
    os.close(1)
    os.close(2)
    return "done"


@task
def job_grows(ctx: Context, megabytes: int) -> None:
    kept.append(os.urandom(1 << 20) * megabytes)


kept: list[bytes] = []


@task
def job_prints(ctx: Context, payload: Any) -> str:
    taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(3)]  # so nothing can be written to 1 and 2
    print("to standard output", flush=True)
    print("to standard error", file=sys.stderr, flush=True)
    for descriptor in taken:
        os.close(descriptor)
    return "printed"


@task
def job_exits(ctx: Context, payload: dict[str, Any]) -> str:
    """Ends its process in the first attempt, and leaves another one behind."""
    if ctx.attempt == 1:
        beside = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        write(payload["path"], beside.pid)
        os._exit(payload["status"])
    return "survived"


@task
async def job_becomes_another_program(ctx: Context, payload: Any) -> str:
    """Its process in the first attempt: without our sockets, and with the same process id."""
    if ctx.attempt == 1:
        os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)"])
    return "survived"


@task
def job_closes_descriptors(ctx: Context, payload: Any) -> str:
    """All of its process in the first attempt: those of the event loop and of every connection."""
    if ctx.attempt == 1:
        os.closerange(3, 1000)
    return "survived"


@task
async def job_ignores_signals(ctx: Context, payload: Any) -> int:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_IGN)
    return os.getpid()


@task
async def job_leaves_a_thread(ctx: Context, path: str) -> None:
    """Its thread is none of the worker's, and never ends."""
    write(path, "started")
    await asyncio.to_thread(threading.Event().wait)


@task
async def job_blocks_the_loop(ctx: Context, path: str) -> None:
    write(path, "started")
    while not Path(path + ".go").exists():
        time.sleep(0.01)


@task(process=True)
def job_append_in_process(ctx: Context, payload: dict[str, Any]) -> str:
    write(payload["path"], payload["line"])
    return ctx.task_id


@task(lease="1s", retries=RetryPolicy(max_attempts=5, base=0.1))
async def job_short_lease(ctx: Context, payload: dict[str, Any]) -> int:
    """Much longer than its lease."""
    write(payload["path"], f"begun {payload['line']} in {ctx.attempt}")
    try:
        await asyncio.sleep(payload["seconds"])
    finally:
        write(payload["path"], f"ended {payload['line']} in {ctx.attempt}")
    return ctx.attempt


@task(lease="1s", retries=RetryPolicy(max_attempts=5, base=0.1))
def job_short_lease_plain(ctx: Context, payload: dict[str, Any]) -> int:
    write(payload["path"], f"begun {payload['line']} in {ctx.attempt}")
    end = time.monotonic() + payload["seconds"]
    while time.monotonic() < end and not ctx.cancelled():
        time.sleep(0.01)
    write(payload["path"], f"ended {payload['line']} in {ctx.attempt}")
    ctx.raise_if_cancelled()
    return ctx.attempt


def span(weight: int, payload: dict[str, Any]) -> None:
    write(payload["path"], f"+{weight} {payload['line']}")
    time.sleep(payload["seconds"])
    write(payload["path"], f"-{weight} {payload['line']}")


@task
def job_span(ctx: Context, payload: dict[str, Any]) -> None:
    span(1, payload)


@task(weight=3)
def job_span_heavy(ctx: Context, payload: dict[str, Any]) -> None:
    span(3, payload)


@task(weight=3)
def job_append_heavy(ctx: Context, payload: dict[str, Any]) -> str:
    time.sleep(payload.get("seconds", 0))
    write(payload["path"], payload["line"])
    return ctx.task_id


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
