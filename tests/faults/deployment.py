"""A server and workers as processes of their own, which really are killed."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil

APPLICATION = Path(__file__).with_name("application.py")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Deployment:
    """One server on a store and any number of workers. Everything started is killed at the end."""

    def __init__(self, store: str, folder: Path) -> None:
        self.store = store
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.effects = folder / "effects"
        self.effects.touch()
        self.server: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []

    def _spawn(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        environment = os.environ | {"PERDURE_SERVER": self.url, "PERDURE_EFFECTS": str(self.effects)}
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "perdure", *arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True,
            )  # fmt: skip

    def migrate(self) -> None:
        assert self._spawn("migrate", "migrate", "--store", self.store).wait(30) == 0, "see migrate.log"

    def start_server(self) -> None:
        self.server = self._spawn("server", "server", "--store", self.store, "--port", str(self.port))
        deadline = time.monotonic() + 20
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 0.2):
                return
            assert self.server.poll() is None, (self.folder / "server.log").read_text()
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.02)

    def start_worker(self, slots: int = 20) -> subprocess.Popen[bytes]:
        worker = self._spawn(f"worker-{len(self.workers)}", "worker", str(APPLICATION), "--slots", str(slots))
        self.workers.append(worker)
        return worker

    def kill_server(self) -> None:
        assert self.server is not None
        self.server.kill()
        self.server.wait()

    def kill_group(self, worker: subprocess.Popen[bytes]) -> None:
        """Supervisor and children at once: nobody is left to report the death."""
        supervisor = psutil.Process(worker.pid)
        supervisor.suspend()  # it must not report a child's death before it dies itself
        for process in (*supervisor.children(recursive=True), supervisor):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        worker.wait()
        self.workers.remove(worker)

    def kill_child(self, worker: subprocess.Popen[bytes]) -> bool:
        """Only the process that runs the handlers; False when there is none at the moment."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(worker.pid).children():
                child.kill()
                return True
        return False

    def stop(self) -> None:
        for worker in list(self.workers):
            self.kill_group(worker)
        if self.server is not None and self.server.poll() is None:
            self.kill_server()

    def executions(self) -> Counter[str]:
        """How often each task ran to its effect."""
        return Counter(self.effects.read_text(encoding="utf-8").split())
