"""Field cases with real processes that are killed or starved."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from perdure import AsyncPerdure, TaskFailed
from perdure.database import opened
from tests.field import jobs
from tests.field.soundness import assert_sound
from tests.worker.processes import WorkerProcess, lines, running_server

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other processes find `tests` too."""
    monkeypatch.setenv("PYTHONPATH", str(HERE.parents[1]))


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def test_b003_code_that_starves_the_heartbeat_loses_its_lease_and_its_say(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The interpreter is held for three times the lease while another worker is idle: two starts, one accepted end, and
    the log says that the lease was lost and for how long nothing was heard."""
    path = tmp_path / "out"
    with running_server("sqlite:///jobs.db", tmp_path) as url:
        workers = [WorkerProcess(HERE / "jobs.py", url, "--slots", "5") for _ in range(2)]
        try:
            async with AsyncPerdure(url) as app:
                job = await app.enqueue(jobs.field_hog, {"path": str(path), "seconds": 3})
                assert await job.result(30) == 2
                assert "ended 1" not in lines(path)
                await until(lambda: "ended 1" in lines(path))
                for worker in workers:
                    worker.signal()
                    assert await asyncio.to_thread(worker.wait) == 0
                view = await job.status()
        finally:
            for worker in workers:
                worker.end()
    assert Counter(lines(path)) == Counter(["begun 1", "begun 2", "ended 2", "ended 1"])
    spent = [attempt for attempt in view.attempts if attempt.outcome != "undelivered"]  # to the one that was starved
    assert [(attempt.attempt, attempt.outcome) for attempt in spent] == [(1, "lost"), (2, "succeeded")]
    log = capfd.readouterr().err
    assert "the lease was lost" in log
    assert " s after its last heartbeat (without one it lives 1 s)" in log


async def test_b006_200_jobs_of_killed_workers_all_end(tmp_path: Path) -> None:
    """20 of them of a kind that no live worker knows any more: they say so and block nobody."""
    path = tmp_path / "out"
    payload = {"path": str(path)}
    with running_server("sqlite:///jobs.db", tmp_path) as url:
        async with AsyncPerdure(url) as app:
            old = WorkerProcess(HERE / "retired.py", url, "--slots", "250")
            new: WorkerProcess | None = None
            try:
                known = await app.enqueue_many("field_until", [payload] * 180)
                retired = await app.enqueue_many("field_retired", [payload] * 20)
                await until(lambda: len(lines(path)) == 200)
                await asyncio.sleep(0.2)  # receipts are acknowledged
                killed = time.monotonic()
                supervisor = psutil.Process(old.pid)
                supervisor.suspend()  # it must not tell of the death
                for process in (*supervisor.children(recursive=True), supervisor):
                    process.kill()
                path.with_name("out.go").touch()
                new = WorkerProcess(HERE / "jobs.py", url, "--slots", "250")
                assert [await job.result(30) for job in known] == [job.id for job in known]
                for job in retired:
                    with pytest.raises(TaskFailed, match="no task named 'field_retired'") as caught:
                        await job.result(30)
                    assert caught.value.failure.code == "unknown_handler"
                assert time.monotonic() - killed < 30
            finally:
                old.end()
                if new is not None:
                    new.end()
    assert Counter(lines(path)) == Counter([job.id for job in known] * 2 + [job.id for job in retired])
    async with opened(f"sqlite:///{tmp_path / 'jobs.db'}") as store:
        assert len(await assert_sound(store)) == 200


async def test_b120_another_node_takes_over_by_itself(url: str, tmp_path: Path) -> None:
    """Two nodes with server and worker inside, default settings but for a lease of two seconds; kill -9 of one."""
    path = tmp_path / "out"
    killed = await asyncio.create_subprocess_exec(
        sys.executable, str(HERE / "jobs.py"), url, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert killed.stdout is not None
        assert await killed.stdout.readline() == b"works\n"
        async with AsyncPerdure(url) as app:
            some = await app.enqueue_many(jobs.field_node, [{"path": str(path), "not": killed.pid}] * 8)
            await until(lambda: len(lines(path)) == 8)
            async with app.worker(slots=10):
                await asyncio.sleep(0.5)  # receipts are acknowledged, and the pulse is taken here too
                killed.send_signal(signal.SIGKILL)
                begin = time.monotonic()
                assert {await job.result(30) for job in some} == {f"{os.getpid()} in 2"}
                assert time.monotonic() - begin < 8
    finally:
        if killed.returncode is None:
            killed.kill()
        await killed.wait()
    assert len(lines(path)) == 16
    async with opened(url) as store:
        assert len(await assert_sound(store)) == 8
