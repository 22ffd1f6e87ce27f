"""Processes that end with the run: each in a group of its own, ended by its own id and those of its children."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

PERDURE = str(Path(sys.executable).with_name("perdure"))
_TICKS = os.sysconf("SC_CLK_TCK")


class Processes:
    """All that a run has started. Leaving the context ends the youngest first, whatever happened before."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process in reversed(self._started):
            self.stop(process)

    def start(self, name: str, *command: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start a command; what it writes goes to NAME.log in the run's folder."""
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | environment,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def stop(self, process: subprocess.Popen[bytes], timeout: float = 10.0) -> None:
        """Ask a process to end; kill what is left of it and of its children."""
        if process.poll() is None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout)
        kill(process)

    def log(self, name: str) -> str:
        """The end of what a process wrote."""
        return (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")[-4000:]


def kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to a process, its group and its descendants in other groups: no handler, no clean-up, no goodbye."""
    family = descendants(process.pid) if process.poll() is None else []
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for pid in family:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def descendants(*roots: int) -> list[int]:
    """The processes themselves and all below them, parents first."""
    children: dict[int, list[int]] = {}
    for pid, parent, _ in _table():
        children.setdefault(parent, []).append(pid)
    found = list(roots)
    for pid in found:
        found.extend(children.get(pid, ()))
    return found


def cpu_seconds(*roots: int) -> float:
    """CPU time that processes and their descendants have used, with the children that they have reaped."""
    family = set(descendants(*roots))
    return sum(ticks for pid, _, ticks in _table() if pid in family) / _TICKS


def own_cpu_seconds(pid: int) -> float:
    """The same for one process alone."""
    return sum(ticks for found, _, ticks in _table() if found == pid) / _TICKS


def resident_bytes(pid: int) -> int:
    """Physical memory that a process holds, the parts of files that it shares with others included."""
    pages = (Path("/proc") / str(pid) / "statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def wait_for_port(port: int, process: subprocess.Popen[bytes], timeout: float = 30.0) -> None:
    def listening() -> bool:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args!r} ended with status {process.returncode}")
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.5):
            return True
        return False

    wait_until(listening, timeout)


def wait_until(reached: Callable[[], bool], timeout: float = 120.0, every: float = 0.02) -> float:
    """Look every so many seconds; the time when it was so. TimeoutError when it never was."""
    end = time.monotonic() + timeout
    while not reached():
        if time.monotonic() > end:
            raise TimeoutError(f"not reached within {timeout:.0f} s")
        time.sleep(every)
    return time.monotonic()


def _table() -> Iterable[tuple[int, int, int]]:
    """(pid, parent, CPU ticks) of all processes."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):
            fields = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(") ")[2].split()
            yield int(entry.name), int(fields[1]), sum(map(int, fields[11:15]))
