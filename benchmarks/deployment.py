"""Perdure as people run it: a server and workers as processes of their own, on a fresh database."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.databases import Database
from benchmarks.processes import PERDURE, Processes, cpu_seconds, free_port, wait_for_port

SLOTS = 100
TASKS = Path(__file__).with_name("tasks.py")
FLOWS = Path(__file__).with_name("flows.py")


class Deployment:
    """One server; workers come and go."""

    def __init__(self, processes: Processes, database: Database) -> None:
        self.database = database
        self.processes = processes
        self.tally = processes.folder / "tally"
        self.tally.unlink(missing_ok=True)
        self.tally.touch()
        subprocess.run([PERDURE, "migrate", "--store", database.url], check=True, stdout=subprocess.DEVNULL)
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.server = processes.start("server", PERDURE, "server", "--store", database.url, "--port", str(port))
        wait_for_port(port, self.server)

    def worker(self, application: Path = TASKS, slots: int = SLOTS) -> subprocess.Popen[bytes]:
        """A supervisor with one worker process of 100 slots."""
        command = (PERDURE, "worker", str(application), "--slots", str(slots))
        return self.processes.start("worker", *command, PERDURE_URL=self.url, TALLY=str(self.tally))

    def executed(self) -> int:
        """Handler runs so far, repeated ones included."""
        return self.tally.stat().st_size

    def traces(self) -> bytes:
        """What the handlers wrote, in order."""
        return self.tally.read_bytes()

    def cpu(self) -> dict[str, float]:
        """CPU seconds so far of the server and, where there is one, of the database server."""
        used = {"server": cpu_seconds(self.server.pid)}
        if self.database.pids:
            used["database"] = cpu_seconds(*self.database.pids)
        return used


@contextmanager
def deployed(processes: Processes, database: Database) -> Iterator[Deployment]:
    """A deployment that is gone at the end of the context, its database too."""
    try:
        with Processes(processes.folder) as own:
            yield Deployment(own, database)
    finally:
        database.close()
