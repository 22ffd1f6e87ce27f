"""Real servers and workers, as processes of the `perdure` command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

COMMAND = [sys.executable, "-m", "perdure"]
PATIENCE = 60.0


@contextmanager
def running_server(store: str, folder: Path, *options: str) -> Iterator[str]:
    """A server on a free port; its URL."""
    with running_server_process(store, folder, *options) as (url, _):
        yield url


@contextmanager
def running_server_process(store: str, folder: Path, *options: str) -> Iterator[tuple[str, int]]:
    """With its process id."""
    with subprocess.Popen(
        [*COMMAND, "server", "--store", store, "--port", "0", *options], cwd=folder, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert "perdure server on " in line, line
            yield line.split()[-1], process.pid
        finally:
            process.send_signal(signal.SIGCONT)  # a test may have stopped it
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(PATIENCE)
            finally:
                process.kill()


class WorkerProcess:
    """A supervisor and its workers."""

    def __init__(self, app: Path, server: str, *options: str) -> None:
        self._process = subprocess.Popen([*COMMAND, "worker", str(app), "--server", server, *options], cwd=app.parent)

    @property
    def pid(self) -> int:
        return self._process.pid

    def workers(self) -> list[int]:
        """Process ids of the workers that the supervisor runs now."""
        return [child.pid for child in psutil.Process(self.pid).children()]

    def signal(self, number: int = signal.SIGTERM) -> None:
        self._process.send_signal(number)

    def runs(self) -> bool:
        return self._process.poll() is None

    def wait(self) -> int:
        """Its exit status."""
        return self._process.wait(PATIENCE)

    def end(self) -> None:
        if self.runs():
            for pid in self.workers():
                os.kill(pid, signal.SIGKILL)
            self._process.kill()
        self._process.wait(PATIENCE)


@contextmanager
def running_worker(app: Path, server: str, *options: str) -> Iterator[WorkerProcess]:
    worker = WorkerProcess(app, server, *options)
    try:
        yield worker
    finally:
        worker.end()


def perdure(*arguments: str, folder: Path, server: str = "", stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    environment = {**os.environ, "PERDURE_SERVER": server} if server else dict(os.environ)
    return subprocess.run(
        [*COMMAND, *arguments], cwd=folder, env=environment, input=stdin, capture_output=True, text=True,
        timeout=PATIENCE, check=False,
    )  # fmt: skip


def lines(path: Path) -> Sequence[str]:
    return path.read_text().splitlines() if path.exists() else []
