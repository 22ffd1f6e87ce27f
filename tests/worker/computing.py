"""Handlers that run in processes of their own. Each does what its name says; `path` is a file for its effects."""

from __future__ import annotations

import ctypes
import itertools
import logging
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from perdure import Context, FatalError, task
from tests.worker.jobs import write

log = logging.getLogger("application")


@task(process=True)
def pc_echo(ctx: Context, payload: Any) -> Any:
    return payload


@task(process=True)
def pc_pid(ctx: Context, payload: Any) -> list[Any]:
    log.info("this is %s in attempt %d", ctx.type, ctx.attempt)
    return [os.getpid(), ctx.attempt, ctx.last_checkpoint, dict(ctx.headers)]


@task(process=True)
def pc_raises(ctx: Context, payload: Any) -> None:
    raise FatalError(f"no {payload}")


@task(process=True)
def pc_returns_what_no_json_is(ctx: Context, payload: Any) -> Any:
    return object()


@task(process=True)
def pc_reports(ctx: Context, path: str) -> None:
    """Progress and a checkpoint, then waits for the file `path`.go."""
    ctx.progress(3, 10, "half way")
    ctx.checkpoint({"at": 3})
    write(path, os.getpid())
    while not Path(path + ".go").exists():
        time.sleep(0.01)


@task(process=True)
def pc_cooperates(ctx: Context, path: str) -> None:
    write(path, os.getpid())
    while not ctx.cancelled():
        pass
    write(path, ctx.stop)
    ctx.raise_if_cancelled()


@task(process=True)
def pc_computes(ctx: Context, path: str) -> None:
    """Python code that looks at nothing, but cleans up."""
    write(path, os.getpid())
    try:
        while True:
            sum(range(1000))
    finally:
        write(path, "cleaned up")


@task(process=True)
def pc_is_in_c(ctx: Context, path: str) -> None:
    """C code that holds the interpreter, with a process of its own beside it."""
    beside = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    write(path, os.getpid())
    write(path, beside.pid)
    sum(itertools.repeat(1))


@task(process=True)
def pc_ignores_everything(ctx: Context, path: str) -> None:
    write(path, os.getpid())
    while True:
        try:
            time.sleep(60)
        except BaseException as error:  # noqa: BLE001 - the worst that a handler can do
            write(path, type(error).__name__)


@task(process=True)
def pc_dies(ctx: Context, how: str) -> str:
    match how:
        case "segfault":
            ctypes.string_at(0)
        case "exit":
            os._exit(3)
        case "killed":
            os.kill(os.getpid(), 9)
        case "pipe":
            os.closerange(3, 256)
        case "sys.exit":
            sys.exit(4)
        case "exec":
            os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)"])
    return "unharmed"


@task(process=True)
def pc_forks(ctx: Context, path: str) -> str:
    if os.fork() == 0:
        write(path, os.getpid())
        return "copy"
    os.wait()
    return "original"


@task(process=True)
def pc_closes_output(ctx: Context, payload: Any) -> str:
    sys.stdout.close()
    sys.stderr.close()
    os.close(1)
    os.close(2)
    return "done"


@task(process=True)
def pc_grows(ctx: Context, megabytes: int) -> int:
    global kept
    kept = bytearray(os.urandom(1 << 20) * megabytes)
    return os.getpid()


kept: bytearray
