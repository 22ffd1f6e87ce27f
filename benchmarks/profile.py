"""Where the time goes: a workload with py-spy attached to server, worker and client.

    python -m benchmarks.profile                          jobs, SQLite
    python -m benchmarks.profile enqueues --store postgresql
    python -m benchmarks.profile latency
    python -m benchmarks.profile steps                    workflows; also plain_steps, activities

Prints, for each process and phase, the functions in which it was most of the time by themselves, and with all that they
called, as microseconds an item. Waits for the disk count as time; the CPU time beside the total tells how much they
are. Threads that wait for work may show as select or as the run of the event loop. Needs py-spy.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks import flow_workloads, workloads
from benchmarks.databases import Database, SqliteFile, postgres
from benchmarks.deployment import FLOWS, Deployment, deployed
from benchmarks.flow_workloads import QUICK_FLOWS, FlowSizes
from benchmarks.peers import Peers
from benchmarks.processes import Processes, descendants, own_cpu_seconds, wait_until
from benchmarks.workloads import Sizes

PY_SPY = str(Path(sys.executable).with_name("py-spy"))
HERTZ = 400
SIZES = Sizes(jobs=20_000, enqueues=20_000, samples=1_000)
FLOW_SIZES = FlowSizes(runs=4_000)


class Recording:
    """The stacks of one process, as "outermost;...;innermost count" lines."""

    def __init__(self, title: str, items: int, cpu: float, lines: list[str]) -> None:
        self._title = title
        self._items = items
        self._cpu = cpu
        self._alone: Counter[str] = Counter()
        self._inclusive: Counter[str] = Counter()
        self._samples = 0
        for line in lines:
            stack, _, count = line.rpartition(" ")
            frames = stack.split(";")
            self._samples += int(count)
            self._alone[frames[-1]] += int(count)
            for frame in set(frames):
                self._inclusive[frame] += int(count)

    def show(self, most: int) -> None:
        if not self._samples:
            print(f"\n{self._title}: no samples")
            return
        cpu = self._cpu / self._items * 1e6
        print(f"\n{self._title}: {self._cost(self._samples):.1f} us an item, {cpu:.1f} us of it on the CPU")
        for what, counts in (("by itself", self._alone), ("with what it calls", self._inclusive)):
            print(f"  {what}")
            for frame, count in counts.most_common(most):
                print(f"    {self._cost(count):7.1f} us {count / self._samples:6.1%}  {frame}")

    def _cost(self, samples: int) -> float:
        return samples / HERTZ / self._items * 1e6


@contextmanager
def recorded(processes: Processes, pid: int, title: str, items: int, found: list[Recording]) -> Iterator[None]:
    """Sample a process while the context lasts; the recording is added to `found`."""
    out = processes.folder / f"{title.replace(' ', '-')}.stacks"
    command = (PY_SPY, "record", "--pid", str(pid), "--rate", str(HERTZ), "--format", "raw", "--function")
    spy = processes.start("py-spy", *command, "--duration", "unlimited", "--output", str(out))
    wait_until(lambda: spy.poll() is not None or "Sampling" in processes.log("py-spy"), timeout=20)
    begun = own_cpu_seconds(pid)
    try:
        yield
    finally:
        cpu = own_cpu_seconds(pid) - begun
        spy.send_signal(signal.SIGINT)
        spy.wait(30)
        if out.exists():
            found.append(Recording(title, items, cpu, out.read_text(encoding="utf-8").splitlines()))
        else:
            print(f"{title}: {processes.log('py-spy')}")


def jobs(deployment: Deployment, found: list[Recording]) -> None:
    """Bulk enqueue, then the drain."""
    count = SIZES.jobs
    with recorded(deployment.processes, deployment.server.pid, "server, bulk enqueue", count, found):
        workloads.enqueue_all(deployment, count, "noop")
    worker = deployment.worker()
    wait_until(lambda: deployment.executed() > 0, every=0.002)
    done = deployment.executed()
    with ExitStack() as stack:
        for title, pid in (("server", deployment.server.pid), ("worker", worker_process(worker.pid))):
            stack.enter_context(recorded(deployment.processes, pid, f"{title}, drain", count - done, found))
        workloads.drained(deployment, count)


def enqueues(deployment: Deployment, found: list[Recording]) -> None:
    """Single enqueues in both ways; the client is this process."""
    with ExitStack() as stack:
        for title, pid in (("server", deployment.server.pid), ("client", os.getpid())):
            stack.enter_context(
                recorded(deployment.processes, pid, f"{title}, enqueues by SDK then HTTP", 2 * SIZES.enqueues, found)
            )
        workloads.enqueues(deployment, SIZES)


def latency(deployment: Deployment, found: list[Recording]) -> None:
    """One job at a time, by the blocking client and then by the asyncio one."""
    worker = deployment.worker()
    with ExitStack() as stack:
        for title, pid in (("server", deployment.server.pid), ("worker", worker_process(worker.pid))):
            stack.enter_context(recorded(deployment.processes, pid, f"{title}, one by one", 2 * SIZES.samples, found))
        workloads.round_trips(deployment.url, SIZES.samples)


def flow(name: str) -> Callable[[Deployment, list[Recording]], None]:
    """Runs of a workflow; an item is a run."""

    def profile(deployment: Deployment, found: list[Recording]) -> None:
        worker = deployment.worker(FLOWS)
        flow_workloads.run_all(deployment.url, name, QUICK_FLOWS, "warm")
        with ExitStack() as stack:
            for title, pid in (("server", deployment.server.pid), ("worker", worker_process(worker.pid))):
                stack.enter_context(recorded(deployment.processes, pid, f"{title}, runs", FLOW_SIZES.runs, found))
            flow_workloads.run_all(deployment.url, name, FLOW_SIZES, "run")

    return profile


def worker_process(supervisor: int) -> int:
    """The pid of the process that runs the handlers, once there is one."""
    wait_until(lambda: len(descendants(supervisor)) > 1)
    return descendants(supervisor)[-1]


PROFILES: dict[str, Callable[[Deployment, list[Recording]], None]] = {
    "jobs": jobs,
    "enqueues": enqueues,
    "latency": latency,
    **{name: flow(name) for name in ("steps", "plain_steps", "activities")},
}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profile", description="Profiles server and worker.")
    parser.add_argument("workload", nargs="?", choices=PROFILES, default="jobs")
    parser.add_argument("--store", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--most", type=int, default=25, help="functions shown (25)")
    options = parser.parse_args(arguments)
    if not Path(PY_SPY).exists():
        parser.error("py-spy is not installed beside this Python: pip install py-spy")
    found: list[Recording] = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="perdure-profile-")))
        database: Database
        if options.store == "sqlite":
            database = SqliteFile.fresh(folder)
        else:
            database = stack.enter_context(postgres(Peers.installed())).database()
        processes = stack.enter_context(Processes(folder))
        PROFILES[options.workload](stack.enter_context(deployed(processes, database)), found)
    for recording in found:
        recording.show(options.most)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
