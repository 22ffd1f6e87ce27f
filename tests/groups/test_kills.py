"""Groups whose workers and servers are killed, and how much memory a large one takes: STEP-20, STEP-21, B126, B149."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from perdure import AsyncPerdure
from perdure.core.events import GroupCompleted, GroupStarted
from tests.worker.processes import WorkerProcess, lines, running_server, running_server_process, running_worker

APP = Path(__file__).with_name("application.py")
MOST_GROWTH = 24 * 1024 * 1024
"""Bytes that a server may take more for 10,000 calls than for 1,000: less than their inputs and results, as objects,
would take twice."""


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other processes find `tests` too."""
    monkeypatch.setenv("PYTHONPATH", str(APP.parents[2]))


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def kill_one(workers: list[WorkerProcess], source: random.Random) -> None:
    """Its supervisor starts another one, after a pause that grows."""
    pids: list[int] = []
    while not pids:
        await asyncio.sleep(0.01)
        pids = [pid for worker in workers for pid in worker.workers()]
    with suppress(ProcessLookupError):  # killed before, and not yet seen to be gone
        os.kill(source.choice(pids), signal.SIGKILL)


@pytest.mark.parametrize("style", ["", "_async"])
async def test_b126_every_call_is_joined_whoever_dies(url: str, tmp_path: Path, style: str) -> None:
    """800 calls, at most 60 in flight; of two workers one or the other is killed, six times. The run is resumed once,
    with each result in its place."""
    path = tmp_path / "out"
    source = random.Random(3)
    with running_server(url, tmp_path) as server:
        workers = [WorkerProcess(APP, server, "--slots", "20") for _ in range(2)]
        try:
            async with AsyncPerdure(server) as app:
                payload = {"path": str(path), "count": 800, "window": 60}
                run = await app.start_workflow(f"groups_noted{style}", payload)
                for kills in range(1, 7):
                    await until(lambda: len(lines(path)) >= 100 * kills)  # noqa: B023 - called here only
                    await kill_one(workers, source)
                assert await run.result(60) == [800, True]
                history = await run.history()
        finally:
            for worker in workers:
                worker.end()
    kinds = [type(event.attributes) for event in history.events]
    assert (kinds.count(GroupStarted), kinds.count(GroupCompleted)) == (1, 1)
    assert set(lines(path)) == {str(n) for n in range(800)}


async def test_b126_a_server_that_is_killed(url: str, tmp_path: Path) -> None:
    """FAIL-22: while calls are inserted and while they end; another server goes on with what is committed."""
    path = tmp_path / "out"
    payload = {"path": str(path), "count": 2000, "window": 500}
    for share in (0.1, 0.5):
        with running_server_process(url, tmp_path) as (server, pid), running_worker(APP, server, "--slots", "20"):
            async with AsyncPerdure(server) as app:
                await app.start_workflow("groups_noted", payload, id="w", id_conflict="use_existing")
                await until(lambda: len(lines(path)) >= 2000 * share)  # noqa: B023 - called here only
                os.kill(pid, signal.SIGKILL)
    with running_server(url, tmp_path) as server, running_worker(APP, server, "--slots", "20"):
        async with AsyncPerdure(server) as app:
            run = app.get_workflow_handle("w")
            assert await run.result(60) == [2000, True]
            history = await run.history()
    kinds = [type(event.attributes) for event in history.events]
    assert (kinds.count(GroupStarted), kinds.count(GroupCompleted)) == (1, 1)


async def test_b149_the_memory_of_a_server_does_not_grow_with_the_group(url: str, tmp_path: Path) -> None:
    """STEP-21: 10,000 calls, after 1,000."""
    with running_server_process(url, tmp_path) as (server, pid), running_worker(APP, server, "--slots", "100"):
        process = psutil.Process(pid)
        async with AsyncPerdure(server) as app:
            most: dict[int, int] = {}
            for count in (1_000, 10_000):
                run = await app.start_workflow("groups_noted", {"path": "", "count": count, "window": None})
                waiting = asyncio.ensure_future(run.result(120))
                while not waiting.done():
                    most[count] = max(most.get(count, 0), process.memory_info().rss)
                    await asyncio.sleep(0.05)
                assert await waiting == [count, True]
                assert len((await run.history()).events) < 20
    assert most[10_000] - most[1_000] < MOST_GROWTH
