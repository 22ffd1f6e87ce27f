"""What workflow code must not do is stopped before it happens, and only there."""

from __future__ import annotations

import asyncio
import importlib
import os
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from perdure.sdk.workflow import workflow
from perdure.sdk.workflow_context import WorkflowContext
from perdure.sdk.workflow_errors import ForbiddenError
from perdure.worker import guard
from tests.replay.server import Server

FORBIDDEN: dict[str, Callable[[], Any]] = {
    "socket": socket.socket,
    "name": lambda: socket.getaddrinfo("localhost", 80),
    "open": lambda: Path(__file__).read_text(),
    "list": lambda: os.listdir("."),  # noqa: PTH208
    "database": lambda: sqlite3.connect(":memory:"),
    "process": lambda: subprocess.run(["true"], check=True),
    "system": lambda: os.system("true"),
    "fork": lambda: os.fork(),
    "thread": lambda: threading.Thread(target=print).start(),
    "sleep": lambda: time.sleep(0),
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_RPLY_14_the_world_is_out_of_reach_of_workflow_code(what: str) -> None:
    @workflow
    async def flow(ctx: WorkflowContext) -> Any:
        await ctx.sleep(1)
        FORBIDDEN[what]()

    server = Server(flow).turn()
    with pytest.raises(ForbiddenError, match="must not use") as caught:
        server.fire().turn()
    assert "step" in str(caught.value) or "ctx.sleep" in str(caught.value)


async def test_to_thread_is_refused() -> None:
    @workflow
    async def flow(ctx: WorkflowContext) -> Any:
        await asyncio.to_thread(print)

    with pytest.raises(ForbiddenError, match="threads"):
        Server(flow).turn()


def test_imports_logs_and_time_zones_are_let_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "settings_of_a_test.txt").write_text("5")
    source = "from pathlib import Path\nVALUE = (Path(__file__).parent / 'settings_of_a_test.txt').read_text()\n"
    (tmp_path / "module_of_a_test.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    ZoneInfo.clear_cache()

    @workflow
    async def flow(ctx: WorkflowContext) -> Any:
        module = importlib.import_module("module_of_a_test")
        try:
            raise ValueError("shown with its source")
        except ValueError:
            ctx.logger.exception("it")
        return [module.VALUE, str(ctx.now().astimezone(ZoneInfo("Asia/Tokyo")).tzinfo)]

    server = Server(flow).turn()
    assert server.closed is not None and b"Asia/Tokyo" in server.closed.result[0].data  # type: ignore[union-attr]
    del sys.modules["module_of_a_test"]


def test_other_threads_and_times_are_free() -> None:
    with guard.watching():
        found: list[int] = []
        other = os.pipe()
        os.close(other[0])
        os.close(other[1])
        assert found == []
    for name in ("socket", "open", "list", "database", "thread", "sleep"):
        made = FORBIDDEN[name]()
        if hasattr(made, "close"):
            made.close()


def test_another_thread_may_do_what_it_wants_while_code_runs() -> None:
    go, done = threading.Event(), threading.Event()
    found: list[int] = []

    def outside() -> None:
        go.wait(10)
        found.append(len(Path(__file__).read_text()))
        done.set()

    thread = threading.Thread(target=outside)
    thread.start()
    with guard.watching():
        go.set()
        assert done.wait(10)
    thread.join()
    assert found
