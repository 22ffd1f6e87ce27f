"""Servers and workers as processes of their own, which really are killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

from perdure import AsyncJob, AsyncPerdure

APPLICATION = Path(__file__).with_name("application.py")
Process = subprocess.Popen[bytes]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Deployment:
    """Servers on a store and any number of workers. Everything started is killed at the end.

    Clients and workers go to `url`, which is that of the first server unless a test puts a proxy there."""

    def __init__(self, store: str, folder: Path) -> None:
        self.store = store
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.effects = folder / "effects"
        self.effects.touch()
        self.servers: dict[int, Process] = {}
        self.workers: list[Process] = []
        self._number = 0

    def spawn(self, name: str, *arguments: str) -> Process:
        """A `perdure` command; what it writes goes to NAME.log."""
        environment = os.environ | {"PERDURE_SERVER": self.url, "PERDURE_EFFECTS": str(self.effects)}
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "perdure", *arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True,
            )  # fmt: skip

    def migrate(self) -> None:
        assert self.spawn("migrate", "migrate", "--store", self.store).wait(60) == 0, "see migrate.log"

    # servers -------------------------------------------------------------------------------------------------------
    def start_server(self, port: int | None = None) -> Process:
        """The first one, or another one on a port of its own; returns when it listens."""
        port = self.port if port is None else port
        server = self.servers[port] = self.spawn(f"server-{port}", "server", "--store", self.store, "--port", str(port))
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
                return server
            assert server.poll() is None, self.logs()[-3000:]
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.02)

    def kill_server(self, port: int | None = None) -> None:
        server = self.servers.pop(self.port if port is None else port)
        server.kill()
        server.wait()

    # workers -------------------------------------------------------------------------------------------------------
    def start_worker(self, slots: int = 20) -> Process:
        self._number += 1
        worker = self.spawn(f"worker-{self._number}", "worker", str(APPLICATION), "--slots", str(slots))
        self.workers.append(worker)
        return worker

    def kill_group(self, worker: Process) -> None:
        """Supervisor and children at once: nobody is left to report the death."""
        for process in _family(worker):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        worker.wait()
        self.workers.remove(worker)

    def kill_child(self, worker: Process) -> bool:
        """Only the process that runs the handlers; False when there is none at the moment."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(worker.pid).children():
                child.kill()
                return True
        return False

    def freeze(self, worker: Process) -> None:
        """SIGSTOP to supervisor and children: nobody tells that they stand still."""
        for process in _family(worker):
            process.suspend()

    def thaw(self, worker: Process) -> None:
        for process in _family(worker):
            process.resume()

    def stop(self) -> None:
        for worker in list(self.workers):
            self.kill_group(worker)
        for port in list(self.servers):
            self.kill_server(port)

    # what happened -------------------------------------------------------------------------------------------------
    def executions(self) -> Counter[str]:
        """How often each task ran to its effect."""
        return Counter(self.effects.read_text(encoding="utf-8").split())

    def logs(self) -> str:
        return "".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("*.log")))


def _family(worker: Process) -> list[psutil.Process]:
    """The supervisor comes first and is stopped already: it must not report a child's death, or start another."""
    supervisor = psutil.Process(worker.pid)
    os.kill(worker.pid, signal.SIGSTOP)
    return [supervisor, *supervisor.children(recursive=True)]


async def until(reached: Callable[[], object], seconds: float = 60.0) -> None:
    """Look 50 times a second."""
    async with asyncio.timeout(seconds):
        while not reached():
            await asyncio.sleep(0.02)


async def until_all_run(app: AsyncPerdure, jobs: Iterable[AsyncJob], seconds: float = 60.0) -> None:
    """They are LEASED, and their workers have acknowledged that."""
    async with asyncio.timeout(seconds):
        for job in jobs:
            while (await app.get(job.id)).state != "LEASED":
                await asyncio.sleep(0.02)
    await asyncio.sleep(0.3)


async def all_done(jobs: Iterable[AsyncJob], seconds: float) -> None:
    """Every job SUCCEEDED within so many seconds; each was told so."""
    async with asyncio.timeout(seconds):
        for job in jobs:
            await job.result()


async def doubled(deployed: Deployment, app: AsyncPerdure, jobs: list[AsyncJob]) -> int:
    """The verdict on the effects: each job has its line, nobody else has one, and a job has no more lines beyond the
    first than it lost leases. How many such lines there are."""
    executions = deployed.executions()
    assert [job.id for job in jobs if job.id not in executions] == []
    assert set(executions) - {job.id for job in jobs} == set()
    beyond = 0
    for task_id in [task_id for task_id, count in executions.items() if count > 1]:
        view = await app.get(task_id)
        lost = sum(attempt.outcome in ("lost", "undelivered") for attempt in view.attempts)
        assert executions[task_id] - 1 <= lost, (executions[task_id], view)
        beyond += executions[task_id] - 1
    return beyond


async def attempts(app: AsyncPerdure, jobs: Iterable[AsyncJob]) -> Counter[int]:
    """How many jobs needed how many."""
    return Counter([(await app.get(job.id)).attempt for job in jobs])
