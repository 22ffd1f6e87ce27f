"""Runs every workload on every store, the peers in between, and writes RESULTS.md.

    python -m benchmarks                 5 pairs: each run of Perdure stands beside one of the peer, in turn
    python -m benchmarks --pairs 1       fewer of them
    python -m benchmarks jobs latency    some workloads only; shows the table and leaves RESULTS.md alone
    python -m benchmarks limits          fairness, caps and schedules; once
    python -m benchmarks growth          what a million waiting and a million closed jobs cost; once, beside itself
    python -m benchmarks --quick         small sizes, no peers: checks the benchmarks themselves

The exit status is 0 when all runs ended and no job was lost, whether or not a bar was reached.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks import flow_workloads, limit_workloads, report, workloads
from benchmarks.databases import Database, Postgres, SqliteFile, postgres
from benchmarks.deployment import Deployment, deployed
from benchmarks.flow_workloads import QUICK_FLOWS, FlowSizes
from benchmarks.growth import QUICK_GROWTH, Growth, GrowthSizes
from benchmarks.limit_workloads import QUICK_LIMITS, LimitSizes, Workload
from benchmarks.peers import Peers
from benchmarks.processes import Processes
from benchmarks.workloads import QUICK, Numbers, Sizes

RESULTS = Path(__file__).with_name("RESULTS.md")
COMPARED = ("jobs", "enqueues", "latency", "recovery", "flows")
WORKLOADS = (*COMPARED, "limits", "growth")

Step = tuple[str, Callable[[], Numbers]]


class Bench:
    """All runs of one pair, in order."""

    def __init__(self, processes: Processes, server: Postgres, peers: Peers | None, sizes: Sizes) -> None:
        self._processes = processes
        self._stores: dict[str, Callable[[], Database]] = {
            "sqlite": lambda: SqliteFile.fresh(processes.folder),
            "postgresql": server.database,
        }
        self._peers = peers
        self._sizes = sizes
        self._flow_sizes = QUICK_FLOWS if sizes is QUICK else FlowSizes()

    def steps(self, chosen: list[str]) -> Iterator[Step]:
        for name in chosen:
            yield from getattr(self, f"_{name}")()

    def _jobs(self) -> Iterator[Step]:
        if self._peers:
            yield "pgqueuer jobs", partial(self._peers.pgqueuer_jobs, self._sizes.jobs)
        yield from self._on_both("jobs", workloads.jobs)
        yield "embedded jobs", self._embedded
        in_threads = partial(workloads.jobs, task="noop_in_thread")
        yield "sqlite jobs in threads", partial(self._deployed, "sqlite", in_threads)

    def _enqueues(self) -> Iterator[Step]:
        if self._peers:
            yield "celery enqueues", partial(self._peers.celery_enqueues, 1_000)
            yield "pgqueuer enqueues", partial(self._peers.pgqueuer_enqueues, 5_000, workloads.IN_FLIGHT)
        yield from self._on_both("enqueues", workloads.enqueues)

    def _latency(self) -> Iterator[Step]:
        if self._peers:
            yield "celery latency", partial(self._peers.celery_latency, self._sizes.samples)
        yield from self._on_both("latency", workloads.latency)

    def _recovery(self) -> Iterator[Step]:
        yield from self._on_both("recovery", partial(workloads.recovery, whole=True))
        yield from self._on_both("restart", partial(workloads.recovery, whole=False))

    def _flows(self) -> Iterator[Step]:
        if self._peers:
            for workload in ("W2", "W4", "W5", "W6"):
                yield f"restate {workload}", partial(self._peers.restate, workload)
            for mode in ("steps", "children"):
                yield f"restate W3 {mode}", partial(self._peers.restate_fan_out, mode)
            yield "temporal W2", partial(self._peers.temporal, "W2", "--workflows", "100")
        for flow in ("steps", "plain_steps", "activities"):
            yield from self._flows_on_both(flow.replace("_", " "), partial(flow_workloads.runs, flow=flow))
        for mode in ("steps", "activities"):
            yield from self._flows_on_both(f"fan of {mode}", partial(flow_workloads.fan_out, mode=mode))
        yield from self._flows_on_both("flow latency", flow_workloads.flow_latency)
        yield from self._flows_on_both("long history", flow_workloads.long_history)
        yield from self._flows_on_both("flow recovery", flow_workloads.flow_recovery)

    def limits(self) -> Iterator[Step]:
        """By themselves: there is no peer to compare them with."""
        sizes = QUICK_LIMITS if self._sizes is QUICK else LimitSizes()

        def measured(store: str, workload: Workload) -> Numbers:
            with deployed(self._processes, self._stores[store]()) as deployment:
                return workload(deployment, sizes)

        for name, workload in limit_workloads.WORKLOADS.items():
            for store in self._stores:
                yield f"{store} {name}", partial(measured, store, workload)

    def _flows_on_both(self, name: str, workload: Callable[[Deployment, FlowSizes], Numbers]) -> Iterator[Step]:
        def measured(store: str) -> Numbers:
            with deployed(self._processes, self._stores[store]()) as deployment:
                return workload(deployment, self._flow_sizes)

        for store in self._stores:
            yield f"{store} {name}", partial(measured, store)

    def _on_both(self, name: str, workload: Callable[[Deployment, Sizes], Numbers]) -> Iterator[Step]:
        for store in self._stores:
            yield f"{store} {name}", partial(self._deployed, store, workload)

    def _deployed(self, store: str, workload: Callable[[Deployment, Sizes], Numbers]) -> Numbers:
        with deployed(self._processes, self._stores[store]()) as deployment:
            return workload(deployment, self._sizes)

    def _embedded(self) -> Numbers:
        database = SqliteFile.fresh(self._processes.folder)
        tally = self._processes.folder / "embedded-tally"
        tally.write_bytes(b"")
        process = self._processes.start(
            "embedded",
            *(sys.executable, "-m", "benchmarks.embedded", str(self._sizes.jobs)),
            PERDURE_URL=database.url,
            TALLY=str(tally),
        )
        if process.wait(120):
            raise RuntimeError(f"the embedded run failed\n{self._processes.log('embedded')}")
        numbers: Numbers = json.loads(self._processes.log("embedded").splitlines()[-1])
        database.close()
        return numbers


def _growth(processes: Processes, sizes: GrowthSizes) -> Iterator[tuple[str, list[Numbers]]]:
    """On a PostgreSQL server of its own, whose settings it changes."""
    yield from Growth("sqlite", processes, lambda: SqliteFile.fresh(processes.folder), sizes).runs()
    with postgres(None) as server:
        yield from Growth("postgresql", processes, server.database, sizes).runs()


def _version(server: Postgres) -> str:
    database = server.database()
    try:
        return database.version()
    finally:
        database.close()


def _show(name: str, numbers: Numbers) -> None:
    print(name, json.dumps({key: round(value, 3) for key, value in numbers.items()}), flush=True)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measures Perdure, beside peers.")
    parser.add_argument("workloads", nargs="*", choices=[[], *WORKLOADS], help="all by default")
    parser.add_argument("--pairs", type=int, default=5, help="how often everything is run (5)")
    parser.add_argument("--quick", action="store_true", help="a smoke test: small and once, without peers")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything started is stopped
    peers = None if options.quick else Peers.installed()
    sizes = QUICK if options.quick else Sizes()
    runs: dict[str, list[Numbers]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="perdure-bench-")))
        server = stack.enter_context(postgres(peers))
        version = _version(server)
        processes = stack.enter_context(Processes(folder))
        bench = Bench(processes, server, peers, sizes)
        chosen = options.workloads or list(WORKLOADS)
        for _ in range(1 if options.quick else options.pairs):
            for name, step in bench.steps([name for name in COMPARED if name in chosen]):
                numbers = step()
                runs.setdefault(name, []).append(numbers)
                _show(name, numbers)
        for name, step in bench.limits() if "limits" in chosen else ():
            runs[name] = [step()]
            _show(name, runs[name][0])
        if "growth" in chosen:
            for name, pairs in _growth(processes, QUICK_GROWTH if options.quick else GrowthSizes()):
                runs[name] = pairs
                for numbers in pairs:
                    _show(name, numbers)
    print(f"\n{report.comparison_table(runs)}")
    if not options.quick and not options.workloads:
        versions = {version, *(peers.versions if peers else ())}
        RESULTS.write_text(report.page(runs, sizes, versions), encoding="utf-8")
    lost = sum(numbers.get("lost", 0) for pairs in runs.values() for numbers in pairs)
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
