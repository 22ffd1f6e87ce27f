"""The processes of an example: its web server, its worker."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

EXAMPLES = Path(__file__).parents[2] / "examples"


class Example:
    """An example in `folder`, with its data in `data`. Its processes die with it, and their output is in `data` too."""

    def __init__(self, folder: Path, data: Path) -> None:
        self._folder = folder
        self._data = data
        self._environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "DATA": str(data),
            "PERDURE_URL": f"sqlite:///{data}/jobs.db",
            "PYTHONPATH": str(folder),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
        }
        self._running: list[subprocess.Popen[bytes]] = []

    def run(self, *command: str) -> str:
        """The output of a command that must succeed."""
        done = subprocess.run(
            command, cwd=self._folder, env=self._environment, capture_output=True, text=True, timeout=100, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        log = (self._data / f"{len(self._running)}.log").open("wb")
        process = subprocess.Popen(command, cwd=self._folder, env=self._environment, stdout=log, stderr=log)
        log.close()
        self._running.append(process)
        return process

    def end(self) -> None:
        for process in self._running:
            process.send_signal(signal.SIGTERM)
        for process in self._running:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def output(self) -> str:
        return "\n".join(log.read_text(errors="replace") for log in sorted(self._data.glob("*.log")))


@contextmanager
def example(name: str, data: Path) -> Iterator[Example]:
    running = Example(EXAMPLES / name, data)
    try:
        yield running
    finally:
        running.end()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def client(port: int) -> httpx.Client:
    """For a server that is being started: connects are tried again."""
    transport = httpx.HTTPTransport(retries=8)
    return httpx.Client(base_url=f"http://127.0.0.1:{port}", transport=transport, timeout=20)
