"""Workers as operators run them: real processes, real signals, a real server on a SQLite file."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from perdure import AsyncPerdure, TaskCanceled, TaskFailed
from tests.worker.processes import WorkerProcess, lines, running_server, running_server_process, running_worker

APP = Path(__file__).with_name("jobs.py")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("server")
    with running_server("sqlite:///jobs.db", folder) as url:
        yield url


@pytest.fixture
async def app(server: str, request: pytest.FixtureRequest) -> AsyncIterator[AsyncPerdure]:
    """A namespace of its own for each test."""
    async with AsyncPerdure(server, namespace=request.node.name[:200]) as app:
        yield app


@pytest.fixture
def start(app: AsyncPerdure) -> Iterator[Callable[..., WorkerProcess]]:
    """Start a worker of the test's namespace."""
    started: list[WorkerProcess] = []

    def start(*options: str) -> WorkerProcess:
        started.append(WorkerProcess(APP, app.url, "--namespace", app.namespace, *options))
        return started[-1]

    yield start
    for worker in started:
        worker.end()


async def until(condition: Callable[[], object]) -> None:
    """What other processes do can only be looked at."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


Start = Callable[..., WorkerProcess]


async def test_sigterm_lets_a_job_end(app: AsyncPerdure, start: Start, tmp_path: Path) -> None:
    """B124: default settings, SIGTERM in the middle."""
    path = tmp_path / "out"
    job = await app.enqueue("job_until", {"path": str(path)})
    worker = start()
    await until(lambda: lines(path))
    worker.signal()
    other = await app.enqueue("job_append", {"path": str(path), "line": "not by this worker"})
    (tmp_path / "out.go").touch()
    assert await job.result(30) == 1
    assert await asyncio.to_thread(worker.wait) == 0
    assert (await other.status()).state == "ENQUEUED"


async def test_interruption_by_deploys_spends_no_attempt(app: AsyncPerdure, start: Start, tmp_path: Path) -> None:
    """B030: a job that outlives the drain is handed back each time."""
    path = tmp_path / "out"
    job = await app.enqueue("job_until", {"path": str(path)})
    for deploy in range(3):
        worker = start("--drain", "0")
        await until(lambda deploy=deploy: len(lines(path)) > deploy)
        worker.signal()
        assert await asyncio.to_thread(worker.wait) == 0
    (tmp_path / "out.go").touch()
    start()
    assert await job.result(30) == 1
    assert set(lines(path)) == {"attempt 1"}


async def test_no_handler_that_returned_runs_again(app: AsyncPerdure, start: Start, tmp_path: Path) -> None:
    """B122: 500 jobs of 50 ms, SIGTERM at random times."""
    path = tmp_path / "out"
    payloads = [{"path": str(path), "line": n, "seconds": 0.05} for n in range(500)]
    jobs = await app.enqueue_many("job_append", payloads)
    chance = random.Random(122)
    done = 0
    while done < 500:
        worker = start("--slots", "20")
        goal = min(done + chance.randint(1, 200), 500)
        await until(lambda goal=goal: len(lines(path)) >= goal)
        worker.signal()
        assert await asyncio.to_thread(worker.wait) == 0
        done = len(lines(path))
        states = Counter(view.state for view in (await app.find(limit=1000)).tasks)
        assert states == Counter({state: n for state, n in (("SUCCEEDED", done), ("ENQUEUED", 500 - done)) if n})
    assert Counter(lines(path)) == Counter(str(n) for n in range(500))
    assert [await job.result(0) for job in jobs] == [job.id for job in jobs]


async def test_kill_9_of_a_worker_is_reported_and_its_jobs_run_again(
    app: AsyncPerdure, start: Start, tmp_path: Path
) -> None:
    """B027, LEASE-05: long before the lease of 30 s is over."""
    path = tmp_path / "out"
    jobs = [await app.enqueue("job_until", {"path": str(path)}) for _ in range(5)]
    worker = start()
    await until(lambda: len(lines(path)) == 5)
    (killed,) = worker.workers()
    loop = asyncio.get_running_loop()
    begin = loop.time()
    os.kill(killed, signal.SIGKILL)
    await until(lambda: len(lines(path)) == 10)
    assert loop.time() - begin < 10
    (tmp_path / "out.go").touch()
    for job in jobs:
        assert await job.result(30) in (1, 2)
    assert worker.workers() != [killed]
    worker.signal()
    assert await asyncio.to_thread(worker.wait) == 0


async def test_checkpoint_and_progress_survive_a_kill(app: AsyncPerdure, start: Start, tmp_path: Path) -> None:
    """TASK-22, JOB-10."""
    path = tmp_path / "out"
    job = await app.enqueue("job_resume", {"path": str(path)})
    worker = start()
    await until(lambda: lines(path))
    while (await job.status()).progress is None:
        await asyncio.sleep(0.05)
    os.kill(worker.workers()[0], signal.SIGKILL)
    assert await job.result(30) == [2, {"at": 3}]
    view = await job.status()
    assert view.progress is not None
    assert view.progress.done == 3


@pytest.mark.parametrize("name", ["job_wait", "job_wait_plain"])
async def test_cancel_reaches_a_running_handler(app: AsyncPerdure, start: Start, tmp_path: Path, name: str) -> None:
    """CANC-02, B121: with its next heartbeat."""
    path = tmp_path / "out"
    job = await app.enqueue(name, {"path": str(path)})
    start()
    await until(lambda: lines(path))
    assert (await job.cancel("enough")).job_state == "CANCELLING"
    with pytest.raises(TaskCanceled, match="enough"):
        await job.result(30)
    assert list(lines(path)) == ["started", "ended"]


async def test_unknown_handler_fails_at_once(app: AsyncPerdure, start: Start) -> None:
    """TASK-18."""
    job = await app.enqueue("nobody_knows_this")
    start()
    with pytest.raises(TaskFailed) as caught:
        await job.result(30)
    assert caught.value.failure.code == "unknown_handler"
    assert (await job.status()).attempt == 1


async def test_a_second_signal_exits_at_once(app: AsyncPerdure, start: Start, tmp_path: Path) -> None:
    """B123: with a stuck thread, and a documented status."""
    path = tmp_path / "out"
    await app.enqueue("job_stuck", {"path": str(path)})
    worker = start()
    await until(lambda: lines(path))
    (child,) = worker.workers()
    while worker.runs():  # two signals of a kind that arrive together are one
        worker.signal()
        await asyncio.sleep(0.05)
    assert worker.wait() == 128 + signal.SIGTERM
    await until(lambda: not alive(child))


async def test_a_stuck_thread_does_not_keep_the_worker(app: AsyncPerdure, start: Start, tmp_path: Path) -> None:
    """B123: exit within the grace and a few seconds; the job is handed back."""
    path = tmp_path / "out"
    job = await app.enqueue("job_stuck", {"path": str(path)})
    worker = start("--drain", "0.2")
    await until(lambda: lines(path))
    worker.signal()
    assert await asyncio.to_thread(worker.wait) == 0
    view = await job.status()
    assert (view.state, view.attempt) == ("ENQUEUED", 0)


@contextmanager
def silence() -> Iterator[tuple[str, threading.Event]]:
    """What accepts connections and never answers: its URL, and whether somebody has asked."""
    asked = threading.Event()
    kept: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with suppress(OSError):  # the listener was shut down
                while True:
                    kept.append(listener.accept()[0])
                    asked.set()

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection in kept:
                connection.close()


async def test_a_worker_whose_server_never_answers_leaves() -> None:
    """B123: with the default drain, for there is nothing to drain."""
    with silence() as (url, asked), running_worker(APP, url, "--supervised") as worker:
        assert await asyncio.to_thread(asked.wait, 60)
        begin = time.monotonic()
        worker.signal()
        assert await asyncio.to_thread(worker.wait) == 0
        assert time.monotonic() - begin < 5


@pytest.mark.parametrize("signals", [1, 2])
async def test_a_worker_whose_server_stopped_answering_leaves(tmp_path: Path, signals: int) -> None:
    """B123: poll, heartbeat and report are under way for ever, and a handler is stuck. Within 5 s after the drain, and
    at once with a second signal."""
    path = tmp_path / "out"
    with running_server_process("sqlite:///jobs.db", tmp_path) as (url, server):
        async with AsyncPerdure(url) as app:
            await app.enqueue("job_stuck", {"path": str(path)})
        with running_worker(APP, url, "--supervised", *(("--drain", "1") if signals == 1 else ())) as worker:
            await until(lambda: lines(path))
            os.kill(server, signal.SIGSTOP)
            begin = time.monotonic()
            worker.signal()
            while signals == 2 and worker.runs():  # two signals of a kind that arrive together are one
                await asyncio.sleep(0.05)
                worker.signal()
            assert await asyncio.to_thread(worker.wait) == (0 if signals == 1 else 128 + signal.SIGTERM)
            assert time.monotonic() - begin < 1 + 5


async def test_workers_drain_when_their_supervisor_was_killed(app: AsyncPerdure, start: Start, tmp_path: Path) -> None:
    path = tmp_path / "out"
    job = await app.enqueue("job_until", {"path": str(path)})
    worker = start()
    await until(lambda: lines(path))
    (child,) = worker.workers()
    worker.signal(signal.SIGKILL)
    (tmp_path / "out.go").touch()
    assert await job.result(30) == 1
    await until(lambda: not alive(child))


async def test_several_processes_share_the_work(app: AsyncPerdure, start: Start, tmp_path: Path) -> None:
    path = tmp_path / "out"
    worker = start("--processes", "2", "--slots", "1")
    jobs = [await app.enqueue("job_until", {"path": str(path)}) for _ in range(2)]
    await until(lambda: len(lines(path)) == 2)
    assert len(worker.workers()) == 2
    assert len({(await job.status()).worker for job in jobs}) == 2
    (tmp_path / "out.go").touch()
    for job in jobs:
        await job.result(30)


def test_a_module_that_cannot_be_loaded_is_not_tried_again(server: str, tmp_path: Path) -> None:
    with running_worker(tmp_path / "missing.py", server) as worker:
        assert worker.wait() == 2
