"""Leases of real workers under long handlers, suspensions, floods of what is not due, and mass cancels."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from perdure import AsyncPerdure, Task
from tests.worker import jobs
from tests.worker.processes import WorkerProcess, lines
from tests.worker.test_processes import app, server, start, until  # noqa: F401  # fixtures

Start = Callable[..., WorkerProcess]

SHORT = [jobs.job_short_lease, jobs.job_short_lease_plain]  # not names: options count where they are known


@pytest.mark.parametrize("task", SHORT, ids=lambda task: task.name)
async def test_a_handler_longer_than_its_lease_runs_once(
    app: AsyncPerdure,  # noqa: F811
    start: Start,  # noqa: F811
    tmp_path: Path,
    task: Task[..., Any],
) -> None:
    """B001, B008: four times its lease, which is extended meanwhile; other workers are idle beside it."""
    path = tmp_path / "out"
    for _ in range(3):
        start("--slots", "10")
    jobs = [await app.enqueue(task, {"path": str(path), "line": n, "seconds": 4}) for n in range(20)]
    assert {await job.result(60) for job in jobs} == {1}
    assert sorted(lines(path)) == sorted(f"{what} {n} in 1" for n in range(20) for what in ("begun", "ended"))
    assert {(await job.status()).lost_deliveries for job in jobs} == {0}


@pytest.mark.parametrize("task", SHORT, ids=lambda task: task.name)
@pytest.mark.parametrize("workers", [1, 2])
async def test_a_suspended_worker_learns_that_it_lost_its_lease(
    app: AsyncPerdure,  # noqa: F811
    start: Start,  # noqa: F811
    tmp_path: Path,
    task: Task[..., Any],
    workers: int,
) -> None:
    """B052: laptop sleep. One result, and in one worker no attempt begins before the older one has ended."""
    path = tmp_path / "out"
    first = start("--slots", "5")
    job = await app.enqueue(task, {"path": str(path), "line": "it", "seconds": 8})
    await until(lambda: lines(path))
    (pid,) = first.workers()
    await asyncio.sleep(1)  # its receipt is acknowledged
    os.kill(pid, signal.SIGSTOP)
    if workers == 2:
        start("--slots", "5")
        await until(lambda: "begun it in 2" in lines(path))
        await asyncio.sleep(1)
    else:
        async with asyncio.timeout(60):
            while "lost" not in [attempt.outcome for attempt in (await job.status()).attempts]:
                await asyncio.sleep(0.1)
        await asyncio.sleep(2)
    os.kill(pid, signal.SIGCONT)
    result = await job.result(60)
    said = list(lines(path))
    assert said.count(f"begun it in {result}") == 1
    assert result >= 2
    await until(lambda: "ended it in 1" in lines(path))
    if workers == 1:
        assert said.index("ended it in 1") < said.index("begun it in 2")


async def test_what_is_not_due_stays_with_the_server(
    app: AsyncPerdure,  # noqa: F811
    start: Start,  # noqa: F811
    tmp_path: Path,
) -> None:
    """B036: 5,000 jobs that are due in an hour cost a worker no memory, and no other worker its share."""
    path = tmp_path / "out"
    payloads = [{"path": str(path), "line": n} for n in range(100)]
    worker = start()
    assert await (await app.enqueue("job_pid")).result(30)
    (pid,) = worker.workers()
    before = psutil.Process(pid).memory_info().rss
    await app.enqueue_many("job_append", ({"path": str(path), "line": "early"} for _ in range(5000)), delay="1h")
    jobs = await app.enqueue_many("job_append", payloads)
    for job in jobs:
        await job.result(30)
    assert Counter(lines(path)) == Counter(str(n) for n in range(100))
    assert psutil.Process(pid).memory_info().rss - before < 10 << 20


async def test_mass_cancel(
    app: AsyncPerdure,  # noqa: F811
    start: Start,  # noqa: F811
    tmp_path: Path,
) -> None:
    """B125: 500 cancels at once of running, queued, delayed and finished jobs, some twice. Each has a definite answer,
    and the worker goes on."""
    path = tmp_path / "out"
    worker = start("--slots", "100")
    done = await app.enqueue_many("job_append", [{"path": str(path), "line": "done"} for _ in range(100)])
    for job in done:
        await job.result(30)
    payload = {"path": str(path)}
    running = await app.enqueue_many("job_wait", [payload] * 100)
    await until(lambda: lines(path).count("started") == 100)
    queued = await app.enqueue_many("job_wait", [payload] * 100)
    delayed = await app.enqueue_many("job_wait", [payload] * 100, delay="1h")
    some = [*running, *queued, *delayed, *done, *running[:50], *queued[:50]]
    answers = await asyncio.gather(*(job.cancel("all of them") for job in some))
    states = Counter(answer.job_state for answer in answers[300:400])
    assert states == {"SUCCEEDED": 100}
    assert {answer.job_state for answer in answers[100:300]} == {"CANCELLED"}
    async with asyncio.timeout(30):
        for job in [*running, *queued, *delayed]:
            while (await job.status()).state != "CANCELED":
                await asyncio.sleep(0.05)
    assert await (await app.enqueue("job_pid")).result(10) in worker.workers()
    assert lines(path).count("ended") == 100


async def test_the_memory_of_a_worker_is_flat(
    app: AsyncPerdure,  # noqa: F811
    start: Start,  # noqa: F811
) -> None:
    """B149: of 20,000 jobs, in the event loop and in threads, nothing stays."""
    worker = start()

    async def run(count: int) -> int:
        for name in ("job_pid", "job_nothing"):
            jobs = await app.enqueue_many(name, range(count))
            await jobs[-1].result(60)
        (pid,) = worker.workers()
        rss: int = psutil.Process(pid).memory_info().rss
        return rss

    before = await run(2000)
    assert await run(10_000) < before * 1.1
