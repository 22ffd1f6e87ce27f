"""What handlers do to their process, and worse: with real workers, which live."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure import AsyncPerdure, TaskFailed
from tests.worker.processes import WorkerProcess, lines
from tests.worker.test_processes import alive, app, server, start, until  # noqa: F401  # fixtures

Start = Callable[..., WorkerProcess]


@pytest.mark.parametrize("name", ["job_forks", "job_forks_plain"])
async def test_a_handler_that_forks(
    app: AsyncPerdure,  # noqa: F811
    start: Start,  # noqa: F811
    tmp_path: Path,
    name: str,
) -> None:
    """The copy ends where it would become a second worker; the first one has all its connections."""
    path = str(tmp_path / "out")
    worker = start()
    jobs = [await app.enqueue(name, path) for _ in range(5)]
    for job in jobs:
        assert await job.result(30) == "original"
        assert (await job.status()).attempt == 1
    assert len(worker.workers()) == 1
    await until(lambda: not any(alive(int(pid)) for pid in lines(tmp_path / "out")))
    worker.signal()
    assert await asyncio.to_thread(worker.wait) == 0


async def test_a_handler_with_processes_of_its_own(app: AsyncPerdure, start: Start) -> None:  # noqa: F811
    start()
    job = await app.enqueue("job_uses_processes", [-1, 2, -3])
    assert await job.result(30) == [1, 2, 3]


async def test_a_handler_that_closes_its_output(app: AsyncPerdure, start: Start) -> None:  # noqa: F811
    """Also for what is logged afterwards."""
    worker = start()
    await until(worker.workers)
    (pid,) = worker.workers()
    assert await (await app.enqueue("job_closes_output")).result(30) == "done"
    with pytest.raises(TaskFailed):  # which is logged
        await (await app.enqueue("nobody_knows_this")).result(30)
    assert await (await app.enqueue("job_pid")).result(30) == pid
    worker.signal()
    assert await asyncio.to_thread(worker.wait) == 0


async def test_what_is_printed_after_that(app: AsyncPerdure, start: Start) -> None:  # noqa: F811
    """Nobody else's connection gets it: the descriptors of standard output are taken by others by then."""
    start("--slots", "1")
    await (await app.enqueue("job_closes_output")).result(30)
    assert await (await app.enqueue("job_prints")).result(30) == "printed"
    assert await (await app.enqueue("job_pid")).result(30)


@pytest.mark.parametrize("status", [0, 1, 2])
async def test_a_handler_that_ends_the_process(
    app: AsyncPerdure,  # noqa: F811
    start: Start,  # noqa: F811
    tmp_path: Path,
    status: int,
) -> None:
    """That is an attempt, however soon it was (no "undelivered" lease), and its job runs again: whatever the status,
    also that of a worker that could not start. What it had started is ended, or it would run beside its second
    attempt."""
    path = tmp_path / "out"
    start()
    job = await app.enqueue("job_exits", {"path": str(path), "status": status})
    assert await job.result(60) == "survived"
    (beside,) = lines(path)
    assert not alive(int(beside))
    first = (await job.status()).attempts[0]
    assert (first.attempt, first.outcome) == (1, "lost")


@pytest.mark.parametrize("name", ["job_becomes_another_program", "job_closes_descriptors"])
async def test_a_process_that_is_no_worker_any_more(app: AsyncPerdure, start: Start, name: str) -> None:  # noqa: F811
    """Though it may live: it is ended, its attempt is over, and another process takes its place."""
    worker = start()
    (before,) = [await (await app.enqueue("job_pid")).result(30)]
    job = await app.enqueue(name)
    assert await job.result(30) == "survived"
    assert [attempt.outcome for attempt in (await job.status()).attempts] == ["lost", "succeeded"]
    assert not alive(before)
    assert len(worker.workers()) == 1
    worker.signal()
    assert await asyncio.to_thread(worker.wait) == 0


async def test_a_handler_that_changes_what_signals_do(app: AsyncPerdure, start: Start, tmp_path: Path) -> None:  # noqa: F811
    """A deploy reaches the worker all the same: its handlers end, and it leaves."""
    worker = start()
    pid = await (await app.enqueue("job_ignores_signals")).result(30)
    path = str(tmp_path / "out")
    in_process = await app.enqueue("job_append_in_process", {"path": path, "line": 1})
    assert await in_process.result(30) == in_process.id
    job = await app.enqueue("job_append", {"path": path, "line": 2, "seconds": 1})
    while (await job.status()).started_at is None:  # the worker has it, and said so
        await asyncio.sleep(0.01)
    worker.signal()
    assert await asyncio.to_thread(worker.wait) == 0
    assert await job.result(1) == job.id
    assert (await job.status()).attempt == 1
    assert not alive(pid)


async def test_a_thread_that_a_handler_left_does_not_keep_the_worker(
    app: AsyncPerdure,  # noqa: F811
    start: Start,  # noqa: F811
    tmp_path: Path,
) -> None:
    """B123: threads of the event loop's executor are waited for by Python itself, for ever."""
    path = tmp_path / "out"
    job = await app.enqueue("job_leaves_a_thread", str(path))
    worker = start("--drain", "0.1")
    await until(lambda: lines(path))
    loop = asyncio.get_running_loop()
    begin = loop.time()
    worker.signal()
    assert await asyncio.to_thread(worker.wait) == 0
    assert loop.time() - begin < 10
    assert (await job.status()).state == "ENQUEUED"


async def test_a_worker_that_is_killed_leaves_no_process_behind(
    app: AsyncPerdure,  # noqa: F811
    start: Start,  # noqa: F811
    tmp_path: Path,
) -> None:
    """LEASE-05: processes of handlers end with the worker that they belong to."""
    worker = start()
    path = tmp_path / "out"
    job = await app.enqueue("job_append_in_process", {"path": str(path), "line": 1})
    assert await job.result(30) == job.id
    (pid,) = worker.workers()
    children = descendants(pid)
    assert children
    os.kill(pid, signal.SIGKILL)
    await until(lambda: not any(map(alive, children)))


def descendants(pid: int) -> list[int]:
    import psutil

    return [child.pid for child in psutil.Process(pid).children(recursive=True)]
