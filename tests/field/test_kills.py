"""Field cases and failures in which processes of workers are killed: B084, B126, FAIL-22, FAIL-23."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from perdure import AsyncPerdure
from perdure.core.events import ActivityTaskScheduled, ActivityTaskStarted, StepCompleted, StepStarted
from tests.field.flows import found, one_store, shows, waits
from tests.worker.processes import WorkerProcess, lines, running_server

APP = Path(__file__).with_name("runs.py")


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other processes find `tests` too."""
    monkeypatch.setenv("PYTHONPATH", str(APP.parents[2]))


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


def kill(worker: WorkerProcess) -> None:
    """With its supervisor, which cannot tell of the death."""
    supervisor = psutil.Process(worker.pid)
    supervisor.suspend()
    for process in (*supervisor.children(recursive=True), supervisor):
        process.kill()


async def test_b084_steps_at_once_find_their_results_again(url: str, tmp_path: Path) -> None:
    """30 runs that gather three different steps, three times; two workers, of which one or the other is killed, five
    times. All finish, each result goes to its call, and only what was under way is done twice."""
    path = str(tmp_path / "out")
    source = random.Random(7)
    with running_server(url, tmp_path) as server:
        workers = [WorkerProcess(APP, server, "--slots", "6") for _ in range(2)]
        try:
            async with AsyncPerdure(server) as app:
                payloads = [{"path": path, "run": n} for n in range(30)]
                runs = [await app.start_workflow("field_gather", payload) for payload in payloads]
                for kills in range(1, 6):
                    await until(lambda: len(lines(Path(path))) >= 30 * kills)  # noqa: B023 - called here only
                    worker = source.choice(workers)
                    await until(worker.workers)
                    os.kill(worker.workers()[0], signal.SIGKILL)  # its supervisor starts another one
                for n, run in enumerate(runs):
                    expected = [[f"{n}.{k}.{letter}" for letter in "abc"] for k in range(3)]
                    assert await run.result(40) == expected
                    assert len(await found(run, StepCompleted)) == 9
                attempts = sum([len(await found(run, StepStarted)) for run in runs])
        finally:
            for worker in workers:
                worker.end()
    assert len(set(lines(Path(path)))) == 270
    assert 270 <= len(lines(Path(path))) <= attempts


@one_store
async def test_fail_22_a_worker_dies_before_it_has_answered(url: str, tmp_path: Path) -> None:
    """B§20-1: its turn has replayed 500 events and asked for a payment, of which nobody knows yet. Another worker
    replays all, asks again, and the payment is made once; within 12 s, though nobody tells of the death."""
    path = tmp_path / "out"
    with running_server(url, tmp_path) as server:
        killed = WorkerProcess(APP, server)
        other: WorkerProcess | None = None
        try:
            async with AsyncPerdure(server) as app:
                run = await app.start_workflow("field_long", {"path": str(path)})
                await waits(run)
                await run.signal("go")
                await shows(run, lambda view: view.state == "LEASED")
                await asyncio.sleep(0.3)
                kill(killed)
                begun = time.monotonic()
                path.with_name("out.go").touch()
                other = WorkerProcess(APP, server)
                assert await run.result(20) == "charged"
                assert time.monotonic() - begun < 12
                assert len((await run.history()).events) > 500
                assert len(await found(run, ActivityTaskScheduled)) == 1
        finally:
            killed.end()
            if other is not None:
                other.end()
    assert list(lines(path)) == ["charged"]


@one_store
async def test_fail_23_b126_an_activity_goes_on_where_its_worker_died(url: str, tmp_path: Path) -> None:
    """B§20-2: it has said that 400 of 1,000 records are done. Its second attempt begins there, a heartbeat's limit
    later, though its lease would have lasted a minute."""
    path = tmp_path / "out"
    with running_server(url, tmp_path) as server:
        killed = WorkerProcess(APP, server)
        other: WorkerProcess | None = None
        try:
            async with AsyncPerdure(server) as app:
                run = await app.start_workflow("field_export", {"path": str(path)})
                await until(path.with_name("out.400").exists)
                kill(killed)
                begun = time.monotonic()
                other = WorkerProcess(APP, server)
                assert await run.result(30) == 1000
                assert time.monotonic() - begun < 12
                [last] = await found(run, ActivityTaskStarted)
                assert last.attempt == 2
        finally:
            killed.end()
            if other is not None:
                other.end()
    assert list(lines(path)) == ["1 from 0", "2 from 400"]
