"""The disk of an SQLite file is full for a while: B008, FAIL-04."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import aiohttp
import pytest

from perdure import AsyncJob, AsyncPerdure
from perdure.core.messages import TimeoutOptions
from tests.faults import application
from tests.faults.conftest import Figures
from tests.faults.deployment import Deployment, all_done, attempts, doubled, until_all_run
from tests.faults.extent import FULL, extent

LEASE = extent(3, 30)
FULL_SECONDS = extent(6, 40)
PAYLOAD = "x" * 10_000


class Disk(Protocol):
    """Room that a test may take away and give back."""

    folder: Path
    complaint: str  #: of SQLite

    def fill(self, server: subprocess.Popen[bytes]) -> None: ...

    def free(self, server: subprocess.Popen[bytes]) -> None: ...


class Quota:
    """The server may make no file larger than its largest is: the kernel refuses the write with EFBIG. Works for every
    user."""

    complaint = "disk I/O error"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self, server: subprocess.Popen[bytes]) -> None:
        largest = max(path.stat().st_size for path in self.folder.glob("tasks.db*"))
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (largest, resource.RLIM_INFINITY))

    def free(self, server: subprocess.Popen[bytes]) -> None:
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


class SmallDisk:
    """A file system of its own, which gets full in truth: the kernel refuses the write with ENOSPC. Only root may mount
    one."""

    complaint = "database or disk is full"

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "disk"
        self.folder.mkdir()
        self._ballast = self.folder / "ballast"
        command = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(self.folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"root may not mount a file system here (CAP_SYS_ADMIN is needed): {done.stderr}"

    def fill(self, server: subprocess.Popen[bytes]) -> None:
        with self._ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(65536))

    def free(self, server: subprocess.Popen[bytes]) -> None:
        self._ballast.unlink()

    def close(self) -> None:
        subprocess.run(["umount", str(self.folder)], check=True)


@pytest.fixture(params=["quota", *(["small_disk"] if os.geteuid() == 0 else [])])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    if request.param == "quota":
        yield Quota(tmp_path)
        return
    small = SmallDisk(tmp_path)
    try:
        yield small
    finally:
        small.close()


async def _health(url: str) -> int:
    async with aiohttp.ClientSession() as session, session.get(f"{url}/healthz") as answer:
        return answer.status


@pytest.mark.timeout(240)
async def test_a_full_disk_is_waited_out(
    disk: Disk, deploy: Callable[[str], Deployment], tmp_path: Path, figures: Figures
) -> None:
    """Whoever enqueues waits or is told; nothing acknowledged is lost, no running work is taken away, the file is
    whole, and all goes on by itself when there is room."""
    deployed = deploy(f"sqlite:///{disk.folder / 'tasks.db'}")
    server = deployed.servers[deployed.port]
    try:
        deployed.start_worker(slots=60)
        async with AsyncPerdure(deployed.url) as app:
            lease = TimeoutOptions(lease=LEASE)
            running = await app.enqueue_many(application.lasting, [FULL_SECONDS + 3] * 30, timeouts=lease)
            await until_all_run(app, running)
            jobs = await app.enqueue_many(application.quick, [PAYLOAD] * 100)
            disk.fill(server)
            callers = [asyncio.create_task(_enqueue_all(app)) for _ in range(10)]
            await asyncio.sleep(FULL_SECONDS)
            stuck = sum(not caller.done() or caller.exception() is not None for caller in callers)
            assert stuck > 0, "the disk was not full"
            disk.free(server)
            assert disk.complaint in deployed.logs()
            answers = await asyncio.gather(*callers, return_exceptions=True)
            refused = [answer for answer in answers if isinstance(answer, BaseException)]
            assert FULL or not refused, refused  # callers wait for 30 s
            for answer in answers:
                jobs += [] if isinstance(answer, BaseException) else answer
            await all_done([*running, *jobs], 90)
            assert await attempts(app, running) == {1: 30}
            await _all_closed(app)
            known = {job.id for job in jobs + running}
            ghosts = [app.job(task_id) for task_id in set(deployed.executions()) - known]
            assert len(ghosts) <= 200 * len(refused)  # who was refused has to ask again
            assert await doubled(deployed, app, running + jobs + ghosts) == 0
            assert await _health(deployed.url) == 200
            figures(jobs=len(jobs) + 30, stuck=stuck, refused=len(refused), full_seconds=FULL_SECONDS)
    finally:
        deployed.stop()
    with contextlib.closing(sqlite3.connect(disk.folder / "tasks.db")) as connection:
        assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]


async def _all_closed(app: AsyncPerdure) -> None:
    """Also what nobody knows of."""
    async with asyncio.timeout(60):
        for state in ("ENQUEUED", "RETRY_WAIT", "LEASED"):
            while (await app.find(state=state, limit=1)).tasks:
                await asyncio.sleep(0.1)


async def _enqueue_all(app: AsyncPerdure) -> list[AsyncJob]:
    """2 MB; ten callers need more than the free pages of a database file and its log."""
    return await app.enqueue_many(application.quick, [PAYLOAD] * 200)
