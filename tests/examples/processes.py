"""A server, and workers of all workflow examples, which can be killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

EXAMPLES = Path(__file__).parents[2] / "examples" / "workflows"
_PERDURE = [sys.executable, "-m", "perdure"]


def environment(folder: Path) -> dict[str, str]:
    """Of a process that leaves its effects in `folder`."""
    return {
        **os.environ,
        "EFFECTS": str(folder / "effects.txt"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
    }


class Processes:
    """All that was started here; whatever they print is in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []
        self._logs: list[Path] = []

    def server(self) -> str:
        """The URL of a new one."""
        self._start("server", "--store", f"sqlite:///{self._folder}/workflows.db", "--port", "0")
        log = self._logs[-1]
        until(lambda: "perdure server on" in log.read_text(), "the server starts", 30)
        found = re.search(r"perdure server on (\S+)", log.read_text())
        assert found is not None
        return found[1]

    def worker(self, url: str) -> subprocess.Popen[bytes]:
        return self._start("worker", str(EXAMPLES / "worker.py"), "--server", url)

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """At once, and the processes that it supervises."""
        everything = [process.pid, *(child.pid for child in psutil.Process(process.pid).children())]
        for pid in everything:
            os.kill(pid, signal.SIGKILL)
        process.wait()
        self._running.remove(process)

    def kill_all(self) -> None:
        for process in list(self._running):
            self.kill(process)

    def output(self) -> str:
        return "\n".join(log.read_text(errors="replace") for log in self._logs)

    def _start(self, *command: str) -> subprocess.Popen[bytes]:
        self._logs.append(self._folder / f"{len(self._logs)}.log")
        with self._logs[-1].open("wb") as out:
            process = subprocess.Popen(
                [*_PERDURE, *command],
                cwd=self._folder, env=environment(self._folder), stdout=out, stderr=out,
            )  # fmt: skip
        self._running.append(process)
        return process


def until(holds: Callable[[], bool], what: str, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not after {seconds} s: {what}"
        time.sleep(0.005)
