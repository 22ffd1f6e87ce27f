"""What needs real minutes, in real time, on both stores at once; stops by itself after about a quarter of an hour.

    python -m benchmarks.soak              everything
    python -m benchmarks.soak idle delay   some cases only

Each case prints a line with what it saw; the last line counts them, and the exit status is 0 if all passed. The cases
are light, so other work may go on beside them; a busy machine may fail those that measure CPU time.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import secrets
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path

from benchmarks.databases import Database, OwnPostgres, SqliteFile, postgres
from benchmarks.growth import REQUEST, Hands
from benchmarks.processes import (
    PERDURE,
    Processes,
    cpu_seconds,
    descendants,
    free_port,
    resident_bytes,
    wait_for_port,
    wait_until,
)
from perdure import Perdure
from perdure.api.service import Caller, Service
from perdure.core.messages import TaskView
from perdure.database import migrate, opened
from perdure.engine.engine import Engine

TASKS = Path(__file__).with_name("soak_tasks.py")
IDLE_CPU = {"worker": 0.01, "server": 0.03}  #: cores that an idle process may use
IDLE_GROWTH = 1.03
LOAD = 1_000  #: jobs a second beside retention
KEEP_SECONDS = 30.0
STORES = ("sqlite", "postgresql")


class Failed(Exception):
    """A case saw what must not be."""


def expect(what: object, said: str) -> None:
    if not what:
        raise Failed(said)


class Site:
    """A server on a fresh database, workers, and a client. The server can be stopped and started again."""

    def __init__(self, processes: Processes, database: Database, restart_database: Callable[[], None]) -> None:
        self.database = database
        self.restart_database = restart_database
        self._processes = processes
        self._notes = processes.folder / f"notes-{secrets.token_hex(4)}"
        self._notes.touch()
        self._port = free_port()
        asyncio.run(migrate(database.url))
        self.start_server()
        self.client = Perdure(f"http://127.0.0.1:{self._port}")

    def start_server(self) -> None:
        port = str(self._port)
        self.server = self._processes.start("server", PERDURE, "server", "--store", self.database.url, "--port", port)
        wait_for_port(self._port, self.server)

    def stop_server(self) -> None:
        self._processes.stop(self.server)

    def worker(self) -> int:
        """The pid of a new supervisor, whose worker process runs."""
        command = (PERDURE, "worker", str(TASKS), "--slots", "20")
        process = self._processes.start("worker", *command, PERDURE_URL=self.client.url, NOTES=str(self._notes))
        known = {worker.identity for worker in self.client.workers()}
        wait_until(lambda: {worker.identity for worker in self.client.workers()} - known != set())
        return process.pid

    def notes(self, task_id: str) -> list[tuple[int, str, float]]:
        """(Attempt, "begin" or "end", when) of a task."""
        lines = [line.split() for line in self._notes.read_text(encoding="utf-8").splitlines()]
        return [(int(attempt), what, float(when)) for found, attempt, what, when in lines if found == task_id]

    def begun(self, task_id: str) -> None:
        wait_until(lambda: bool(self.notes(task_id)))

    def closed(self, task_id: str, timeout: float) -> TaskView:
        wait_until(lambda: self.client.get(task_id).closed_at is not None, timeout, every=0.1)
        return self.client.get(task_id)


def frozen(site: Site) -> str:
    """B052: a process that is stopped for twice its lease loses the job, learns of it, and works on."""
    first = site.worker()
    job = site.client.enqueue("last", 20.0)
    site.begun(job.id)
    time.sleep(2)  # the receipt is acknowledged, so the lost lease counts as an attempt
    family = descendants(first)
    for pid in family:
        os.kill(pid, signal.SIGSTOP)
    stopped = time.monotonic()
    try:
        second = site.worker()
        view = site.closed(job.id, 90)
        ended = time.monotonic() - stopped
        time.sleep(max(0.0, 60 - ended))
    finally:
        for pid in family:
            os.kill(pid, signal.SIGCONT)
    expect(view.state == "SUCCEEDED" and view.attempt == 2, f"{view.state} after {view.attempt} attempts")
    wait_until(lambda: (1, "end") in [note[:2] for note in site.notes(job.id)], 40)
    time.sleep(3)  # its completion is refused
    expect(job.result(timeout=5) == 2, "the result is not that of the attempt that held the lease")
    os.kill(second, signal.SIGTERM)
    wait_until(lambda: not _runs(second), 40)
    expect(site.client.execute("last", 0.1, timeout=20) == 1, "the process that was stopped does not work on")
    return f"run again and done {ended:.0f} s after the stop; the stopped process went on to the next job"


def idle(site: Site) -> str:
    """A worker and a server that have nothing to do for 5 minutes."""
    worker = site.worker()
    site.client.execute("last", 0.1, timeout=20)
    time.sleep(20)
    roots = {"worker": descendants(worker), "server": [site.server.pid]}

    def look() -> dict[str, tuple[float, int]]:
        return {name: (cpu_seconds(*pids), sum(map(resident_bytes, pids))) for name, pids in roots.items()}

    begun, before = time.monotonic(), look()
    time.sleep(300)
    seconds, after = time.monotonic() - begun, look()
    said = []
    for name in roots:
        cores = (after[name][0] - before[name][0]) / seconds
        growth = after[name][1] / before[name][1]
        said.append(f"{name} {cores:.2%} of a core, memory {before[name][1] / 1e6:.1f} MB x {growth:.3f}")
        expect(cores <= IDLE_CPU[name] and growth <= IDLE_GROWTH, said[-1])
    begun = time.monotonic()
    site.client.execute("last", 0.0, timeout=20)
    expect(time.monotonic() - begun < 1.0, "the first job afterwards took more than a second")
    return "; ".join(said)


def long(site: Site) -> str:
    """B033, B122: a job of 3 minutes goes on while its server and then the database are restarted."""
    site.worker()
    job = site.client.enqueue("last", 180.0)
    site.begun(job.id)
    begun = time.monotonic()
    time.sleep(40)
    site.stop_server()
    time.sleep(5)
    site.start_server()
    time.sleep(45)
    site.restart_database()
    view = site.closed(job.id, 120)
    took = time.monotonic() - begun
    notes = [note[:2] for note in site.notes(job.id)]
    expect(view.state == "SUCCEEDED" and view.attempt == 1, f"{view.state} after {view.attempt} attempts")
    expect(notes == [(1, "begin"), (1, "end")], f"its handler was run so: {notes}")
    expect(took < 190, f"it took {took:.0f} s")
    return f"one attempt, done after {took:.1f} s"


def delay(site: Site) -> str:
    """B002: jobs that are delayed by 90 s begin within the second."""
    site.worker()
    jobs = [site.client.enqueue("last", 0.0, delay="90s") for _ in range(20)]
    views = [site.closed(job.id, 120) for job in jobs]
    waited = [(view.started_at - view.created_at).total_seconds() for view in views if view.started_at]
    expect(len(waited) == len(jobs) and min(waited) >= 90.0, f"one began after {min(waited):.3f} s")
    expect(max(waited) < 91.0, f"one began after {max(waited):.3f} s")
    return f"{len(jobs)} jobs began after {min(waited):.3f} to {max(waited):.3f} s"


def retention(site: Site) -> str:
    """Jobs come, are done, and are deleted after 30 s, at 1,000 a second for 150 s."""
    return asyncio.run(_retention(site.database))


async def _retention(database: Database) -> str:
    async with opened(database.url) as store:
        engine = Engine(store, retention=KEEP_SECONDS)
        await engine.start()
        hands = Hands(Service(engine, Caller("default")), queue="passing")
        await hands.open()
        begun = time.monotonic()
        done, closed, costs = 0, [], []
        while (passed := time.monotonic() - begun) < 150:
            if done < passed * LOAD:
                costs.append(sum((await hands.round(REQUEST)).values()))
                done += REQUEST
            else:
                await asyncio.sleep(0.01)
            if passed > 75 and done % (5 * LOAD) == 0:
                closed.append(await asyncio.to_thread(database.succeeded))
        await asyncio.sleep(KEEP_SECONDS + 35)
        left = await asyncio.to_thread(database.succeeded)
        await engine.stop()
    costs.sort()
    said = (
        f"{done:,} jobs; at most {max(closed):,} of them there, {left:,} at the end; "
        f"{costs[len(costs) // 2]:.0f} us a job, {costs[len(costs) * 99 // 100]:.0f} at the 99th percentile"
    )
    expect(done >= 0.95 * 150 * LOAD, f"the load was not reached: {said}")
    expect(max(closed) <= (KEEP_SECONDS + 35) * LOAD, said)
    expect(left <= REQUEST, said)
    return said


def _runs(pid: int) -> bool:
    with suppress(OSError):
        return "Z" not in Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()[0]
    return False


CASES: dict[str, Callable[[Site], str]] = {
    "frozen": frozen,
    "delay": delay,
    "retention": retention,
    "long": long,
    "idle": idle,
}


def hold_lock(path: str, seconds: float = 10.0) -> None:
    """What a restart is to a database that is a file: nobody can write to it for a while."""
    with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as connection:
        connection.execute("begin immediate")
        time.sleep(seconds)
        connection.execute("rollback")


class Run:
    """The cases on one store, one after the other. What a case has started ends with it, or with `running`."""

    def __init__(self, store: str, folder: Path, server: OwnPostgres, names: list[str]) -> None:
        self.running = ExitStack()
        self.passed = 0
        self._store = store
        self._folder = folder
        self._server = server
        self._names = names
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        for name in self._names:
            begun = time.monotonic()
            try:
                with self.running:
                    said = CASES[name](self._site())
                verdict = "passed"
                self.passed += 1
            except Exception as error:  # noqa: BLE001 - whatever it is, the case failed and the next one is run
                verdict, said = "FAILED", f"{type(error).__name__}: {error}"
            print(f"{verdict}  {name}, {self._store}, {time.monotonic() - begun:.0f} s: {said}", flush=True)

    def _site(self) -> Site:
        folder = Path(tempfile.mkdtemp(dir=self._folder, prefix=self._store))
        database: Database
        if self._store == "sqlite":
            database = SqliteFile.fresh(folder)
            restart = partial(hold_lock, database.url.removeprefix("sqlite:///"))
        else:
            database = self._server.database()
            restart = partial(self._server.restart, 5.0)
        self.running.callback(database.close)
        found = Site(self.running.enter_context(Processes(folder)), database, restart)
        self.running.callback(found.client.close)
        return found


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description="Field cases in real time.")
    parser.add_argument("cases", nargs="*", choices=[[], *CASES], help="all by default")
    chosen = parser.parse_args(arguments).cases or list(CASES)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    logging.getLogger("perdure").addHandler(logging.NullHandler())  # clients tell of the servers that are stopped
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="perdure-soak-")))
        server = stack.enter_context(postgres(None))
        assert isinstance(server, OwnPostgres)
        runs = [Run(store, folder, server, chosen) for store in STORES]
        for run in runs:
            stack.enter_context(run.running)  # ends what runs when this is interrupted
            run.thread.start()
        for run in runs:
            run.thread.join()
    passed = sum(run.passed for run in runs)
    number = len(chosen) * len(STORES)
    print(f"soak: {passed} of {number} passed")
    return 0 if passed == number else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
