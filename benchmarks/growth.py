"""What a full queue costs: memory of an idle server, and the price of enqueue, claim and complete beside a short queue.

A million jobs wait in one database and a thousand in another. They are worked on in turn, a round on the short queue
and one on the long queue, by the calls that workers and clients make, without a network between; a pair is the mean of
some rounds on each. As many jobs are enqueued as are done, so both keep their length. Memory is that of `perdure
server` as a process of its own, before and after the same traffic; retention.py leaves a million closed jobs behind.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import count
from statistics import fmean

from benchmarks.databases import Database, PostgresDatabase
from benchmarks.deployment import Deployment
from benchmarks.payload import PAYLOAD
from benchmarks.processes import Processes, resident_bytes, wait_until
from perdure import AsyncPerdure
from perdure.client.base import Service
from perdure.core import messages as m
from perdure.core.model import Payload
from perdure.sdk.mint import mint_ids

Numbers = dict[str, float]

OPERATIONS = ("enqueue", "claim", "complete")
REQUEST = 100  #: jobs of a request
MEGABYTE = 1_000_000
_FULL, _MIDDLE = 2, 12
"""Looks at a passing store, one each 5 minutes: from the third on retention deletes. The most of those up to minute 60
is compared with the most of the later ones, because tables shrink and swell with each round of autovacuum."""
_PAYLOAD = (Payload({"encoding": "json/plain"}, json.dumps(PAYLOAD).encode()),)


@dataclass(frozen=True)
class GrowthSizes:
    """How much of each. `few` and `many` jobs wait; a round does `jobs` of them, a pair is so many rounds on each
    queue; `traffic` is what a server does before its memory is read, when it has been idle for `quiet` seconds;
    `passing` jobs come, are done and are deleted."""

    few: int = 1_000
    many: int = 1_000_000
    jobs: int = 1_000
    pairs: int = 9
    rounds: int = 5
    snapshot_rounds: int = 20
    traffic: int = 5_000
    quiet: float = 3.0
    passing: int = 1_000_000


QUICK_GROWTH = GrowthSizes(
    few=100, many=1_000, jobs=100, pairs=3, rounds=1, snapshot_rounds=1, traffic=200, quiet=0.1, passing=10_000
)


class Hands:
    """What clients and a worker do to one queue, a step at a time; each step answers how many seconds it took."""

    def __init__(self, service: Service, queue: str = "default") -> None:
        self._service = service
        self._queue = queue
        self._incarnation = secrets.randbits(48)
        self._polls = count(1)
        self._leases: list[bytes] = []

    async def open(self) -> None:
        await self._service.open_session(m.OpenSession(self._incarnation, 1, "growth", [self._queue], 10 * REQUEST))

    async def enqueue(self, jobs: int) -> float:
        """Under ids of their own, as the SDK does it."""
        requests = [
            m.Enqueue([m.NewTask("noop", _PAYLOAD, self._queue, minted=minted) for minted in mint_ids(REQUEST)])
            for _ in range(jobs // REQUEST)
        ]
        begun = time.perf_counter()
        for request in requests:
            await self._service.enqueue(request)
        return time.perf_counter() - begun

    async def claim(self, jobs: int) -> float:
        """Lease the oldest ones; they are kept for `complete`."""
        taken = 0.0
        while len(self._leases) < jobs:
            begun = time.perf_counter()
            poll = m.Poll(self._incarnation, next(self._polls), [self._queue], REQUEST, wait=1.0)
            reply = await self._service.poll(poll)
            taken += time.perf_counter() - begun
            self._leases += [delivery.lease for delivery in reply.tasks]
        return taken

    async def complete(self) -> float:
        """All that were claimed succeed."""
        leases, self._leases = self._leases, []
        requests = [
            m.Complete([m.Completion(lease, "succeeded") for lease in leases[start : start + REQUEST]])
            for start in range(0, len(leases), REQUEST)
        ]
        begun = time.perf_counter()
        replies = [await self._service.complete(request) for request in requests]
        taken = time.perf_counter() - begun
        if errors := [done.error for reply in replies for done in reply.outcomes if done.error]:
            raise RuntimeError(f"{len(errors)} completions failed: {errors[0]}")
        return taken

    async def round(self, jobs: int) -> Numbers:
        """Microseconds a job of each operation."""
        seconds = (await self.enqueue(jobs), await self.claim(jobs), await self.complete())
        return {f"{name}_us": taken / jobs * 1e6 for name, taken in zip(OPERATIONS, seconds, strict=True)}


class Growth:
    """The growth of one store, in order. The databases are gone at the end."""

    def __init__(self, store: str, processes: Processes, fresh: Callable[[], Database], sizes: GrowthSizes) -> None:
        self._store = store
        self._processes = processes
        self._fresh = fresh
        self._sizes = sizes

    def runs(self) -> Iterator[tuple[str, list[Numbers]]]:
        """(Name of a run, its numbers in each pair)."""
        short, long = self._fresh(), self._fresh()
        try:
            yield f"{self._store} short queue, server", [self._server(short, self._sizes.few)]
            yield f"{self._store} long queue, server", [self._server(long, self._sizes.many)]
            for database in (short, long):
                database.settle()
            shorts, longs = asyncio.run(self._pairs(short, long, self._sizes.rounds))
            yield f"{self._store} short queue", shorts
            yield f"{self._store} long queue", longs
            if isinstance(long, PostgresDatabase):
                with long.old_snapshot():
                    shorts, longs = asyncio.run(self._pairs(short, long, self._sizes.snapshot_rounds))
                yield f"{self._store} short queue again", shorts
                yield f"{self._store} long queue, old snapshot", longs
        finally:
            short.close()
            long.close()
        yield f"{self._store} passing jobs", [self._passing()]

    def _server(self, database: Database, waiting: int) -> Numbers:
        """Megabytes of a server: fresh, after it took in all that waits, and of one that finds it there."""
        with Processes(self._processes.folder) as own:
            deployment = Deployment(own, database)
            fresh = self._memory(deployment)
            asyncio.run(self._fill(deployment, waiting))
            filled = self._memory(deployment)
        with Processes(self._processes.folder) as own:
            deployment = Deployment(own, database)
            found = self._memory(deployment)
            worker = deployment.worker()
            asyncio.run(self._fill(deployment, self._sizes.traffic))
            wait_until(lambda: deployment.executed() >= self._sizes.traffic)
            own.stop(worker)
            asyncio.run(self._fill(deployment, max(0, waiting - database.open_tasks())))
            return {
                "fresh_mb": fresh,
                "filled_mb": filled,
                "found_mb": found,
                "busy_mb": self._memory(deployment),
            }

    def _memory(self, deployment: Deployment) -> float:
        time.sleep(self._sizes.quiet)
        return resident_bytes(deployment.server.pid) / MEGABYTE

    async def _fill(self, deployment: Deployment, jobs: int) -> None:
        async with AsyncPerdure(deployment.url) as client:
            while jobs > 0:
                part = min(jobs, 10_000)
                await client.enqueue_many("noop", [PAYLOAD] * part)
                jobs -= part

    async def _pairs(self, short: Database, long: Database, rounds: int) -> tuple[list[Numbers], list[Numbers]]:
        """The first round is not counted: connections and plans are made in it."""
        found: tuple[list[Numbers], list[Numbers]] = ([], [])
        async with AsyncExitStack() as stack:
            hands = []
            for database in (short, long):
                app = await stack.enter_async_context(AsyncPerdure(database.url))
                hands.append(Hands(await app.service()))
                await hands[-1].open()
                await hands[-1].round(self._sizes.jobs)
            for _ in range(self._sizes.pairs):
                pair = [[await one.round(self._sizes.jobs) for one in hands] for _ in range(rounds)]
                for numbers, measured in zip(found, zip(*pair, strict=True), strict=True):
                    numbers.append({name: fmean(each[name] for each in measured) for name in measured[0]})
        return found

    def _passing(self) -> Numbers:
        """The most that was there early and late on the stepped clock."""
        database = self._fresh()
        if isinstance(database, PostgresDatabase):
            database.vacuum_often()
        name = f"{self._store}-retention-{secrets.token_hex(4)}"
        samples: list[Numbers] = []
        begun = time.monotonic()
        try:
            command = (sys.executable, "-m", "benchmarks.retention", database.url, str(self._sizes.passing))
            process = self._processes.start(name, *command)
            while process.poll() is None:
                if len(self._processes.log(name).splitlines()) > len(samples):
                    samples.append(_sample(process.pid, database))
                time.sleep(0.01)
            if process.returncode:
                raise RuntimeError(f"the retention run failed\n{self._processes.log(name)}")
            early, late = _most(samples[_FULL:_MIDDLE]), _most(samples[_MIDDLE:])
            closed = max(early["closed"], late["closed"])
            return {
                "jobs_per_s": self._sizes.passing / (time.monotonic() - begun),
                "early_mb": early["rss_mb"],
                "late_mb": late["rss_mb"],
                "early_store_mb": early["store_mb"],
                "late_store_mb": late["store_mb"],
                "most_closed": closed,
                "most_closed_of_10_minutes": closed / (self._sizes.passing / 10),
            }
        finally:
            database.close()


def _sample(pid: int, database: Database) -> Numbers:
    return {
        "rss_mb": resident_bytes(pid) / MEGABYTE,
        "store_mb": database.size() / MEGABYTE,
        "closed": database.succeeded(),
    }


def _most(samples: list[Numbers]) -> Numbers:
    return {name: max(sample[name] for sample in samples) for name in samples[0]}
