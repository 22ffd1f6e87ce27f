"""Several processes on one SQLite file, without a server: web applications and workers that really are killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from random import Random

import pytest

from perdure import AsyncPerdure, task
from tests.faults import one_file
from tests.faults.deployment import Deployment
from tests.faults.extent import extent

APPLICATION = Path(one_file.__file__)
SECONDS = extent(10, 60)


class OneFile(Deployment):
    """All processes open the file themselves."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"sqlite:///{folder / 'jobs.db'}", folder)
        self.url = self.store
        self.acknowledged = folder / "acknowledged"
        self.acknowledged.touch()
        self.webs: list[subprocess.Popen[bytes]] = []

    def start_worker(self, slots: int = 20) -> subprocess.Popen[bytes]:
        worker = self.spawn("worker", "worker", str(APPLICATION), "--slots", str(slots))
        self.workers.append(worker)
        return worker

    def start_web(self, seconds: float) -> None:
        self._number += 1
        environment = os.environ | {"PERDURE_SERVER": self.url, "PERDURE_EFFECTS": str(self.effects)}
        arguments = [f"web {self._number}", str(self.acknowledged), str(seconds)]
        with (self.folder / "web.log").open("ab") as log:
            web = subprocess.Popen(
                [sys.executable, str(APPLICATION), *arguments], stdout=log, stderr=log, env=environment
            )
        self.webs.append(web)

    def kill_web(self, web: subprocess.Popen[bytes]) -> None:
        web.kill()
        web.wait()
        self.webs.remove(web)

    def stop(self) -> None:
        super().stop()
        for web in list(self.webs):
            self.kill_web(web)


@pytest.fixture
def deployed(tmp_path: Path) -> Iterator[OneFile]:
    made = OneFile(tmp_path)
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
async def app(deployed: OneFile) -> AsyncIterator[AsyncPerdure]:
    """A web application in this process."""
    async with AsyncPerdure(deployed.url) as made:
        yield made


async def _all_run(deployed: OneFile, app: AsyncPerdure, seconds: float) -> None:
    """Every acknowledged job has run and is SUCCEEDED."""
    ids = deployed.acknowledged.read_text().split()
    async with asyncio.timeout(seconds):
        for task_id in ids:
            await app.job(task_id).result()
    assert set(ids) <= set(deployed.executions())


@pytest.mark.timeout(300)
async def test_nothing_is_lost_whatever_is_killed(deployed: OneFile) -> None:
    """B139: three web applications and two workers with children of their own, kill -9 of any of them under load; all
    acknowledged jobs run, nobody is told of a lock, and the file is whole."""
    until = time.monotonic() + SECONDS
    for _ in range(3):
        deployed.start_web(SECONDS)
    for _ in range(2):
        deployed.start_worker()
    source = Random(11)
    kills = 0
    while time.monotonic() < until:
        await asyncio.sleep(source.uniform(0.3, 1.0))
        left = max(1.0, until - time.monotonic())
        match source.choice(("web", "group", "child")):
            case "web":
                deployed.kill_web(source.choice(deployed.webs))
                deployed.start_web(left)
            case "group":
                deployed.kill_group(source.choice(deployed.workers))
                deployed.start_worker()
            case _:
                deployed.kill_child(source.choice(deployed.workers))
        kills += 1
    for web in list(deployed.webs):
        assert await asyncio.to_thread(web.wait, 90) == 0, deployed.logs()[-3000:]
    assert kills > 3
    async with AsyncPerdure(deployed.url) as app:
        await _all_run(deployed, app, 90)
        assert (await app.find(state="FAILED")).tasks == []
    assert len(deployed.acknowledged.read_text().split()) > 100
    assert "locked" not in deployed.logs()
    with contextlib.closing(sqlite3.connect(deployed.folder / "jobs.db")) as connection:
        assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]


async def test_each_notices_the_other_within_a_tenth_of_a_second(deployed: OneFile, app: AsyncPerdure) -> None:
    """The worker the job, and the web application its end."""
    deployed.start_worker()
    await (await app.enqueue(one_file.job, 0)).result(timeout=30)
    begins, ends = [], []
    for number in range(20):
        await asyncio.sleep(0.07)
        enqueued = time.time()
        started = await (await app.enqueue(one_file.job, number)).result(timeout=10)
        begins.append(started - enqueued)
        ends.append(time.time() - started)
    assert statistics.median(begins) < 0.1
    assert statistics.median(ends) < 0.1
    assert max(begins + ends) < 1.0


@pytest.mark.timeout(120)
async def test_a_lock_of_seconds_reaches_no_user(deployed: OneFile, app: AsyncPerdure) -> None:
    """B138: somebody (a backup, a shell) holds the write lock for 3 s, again and again; 200 jobs. What is new, and a
    worker that starts meanwhile, waits."""
    await app.enqueue(one_file.job, -1)
    path = deployed.folder / "jobs.db"
    hog = subprocess.Popen(
        [sys.executable, "-c",
         "import sqlite3, sys, time\n"
         "c = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)\n"
         "for _ in range(3):\n"
         "    c.execute('begin immediate'); print('held', flush=True); time.sleep(3)\n"
         "    c.execute('rollback'); time.sleep(0.4)\n", str(path)],
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert hog.stdout is not None
    assert await asyncio.to_thread(hog.stdout.readline) == b"held\n"
    deployed.start_worker()
    jobs = []
    for number in range(200):
        jobs.append(await app.enqueue(one_file.job, number))
        await app.get(jobs[-1].id)  # readers never wait for a writer
    async with asyncio.timeout(60):
        for job in jobs:
            await job.result()
    assert await asyncio.to_thread(hog.wait) == 0
    hog.stdout.close()
    assert [await app.get(job.id) for job in jobs if (await app.get(job.id)).state != "SUCCEEDED"] == []
    assert "is locked" not in deployed.logs()


async def test_a_process_that_was_away_passes_nobody(deployed: OneFile) -> None:
    """B055: places are given out of each process's memory; one that enqueues seldom must not come before all that the
    others have waiting."""

    @task(name="one_file_turn")
    async def turn(ctx: object, payload: str) -> None:
        order.append(payload)

    order: list[str] = []
    async with AsyncPerdure(deployed.url) as busy, AsyncPerdure(deployed.url) as seldom:
        async with busy.worker(tasks=[turn], slots=1):
            await (await seldom.enqueue(turn, "seldom")).result(timeout=10)
            for job in await busy.enqueue_many(turn, ["early"] * 60):
                await job.result(timeout=20)
        order.clear()
        await busy.enqueue_many(turn, ["busy"] * 40)
        await asyncio.sleep(1.1)  # places are asked for again after a second
        late = await seldom.enqueue_many(turn, ["seldom"] * 40)
        async with busy.worker(tasks=[turn], slots=1):
            await late[-1].result(timeout=30)
            while len(order) < 80:
                await asyncio.sleep(0.02)
    assert order[:40].count("busy") >= 15, order


async def test_a_worker_that_is_killed_costs_its_lease_at_most(deployed: OneFile, app: AsyncPerdure) -> None:
    """LEASE-06, B006: without a server nobody sees a connection break; with all of a worker gone its lease runs out."""
    await app.enqueue_many(one_file.job, range(300))
    worker = deployed.start_worker(slots=50)
    while len(deployed.executions()) < 30:
        await asyncio.sleep(0.01)
    deployed.kill_group(worker)
    deployed.start_worker()
    async with asyncio.timeout(30):
        while (await app.find(state="SUCCEEDED", limit=1000)).tasks[-1:] == [] or len(deployed.executions()) < 300:
            await asyncio.sleep(0.1)
