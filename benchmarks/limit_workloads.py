"""What is measured of fairness, limits and schedules, with one server and worker processes over HTTP."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from statistics import mean

from benchmarks.deployment import Deployment
from benchmarks.processes import descendants, wait_until
from benchmarks.workloads import Numbers
from perdure import AsyncPerdure

CAP = 50
BATCH = 1_000
_NAP = 0.1  #: seconds
_LOOK = 0.02  #: seconds between two looks at a limit
_FEW_SLOTS = 4
_AT_ONCE = 50  #: requests in flight while they are made


@dataclass(frozen=True)
class LimitSizes:
    """How much of each."""

    waiting: int = 100_000
    capped: int = 10_000
    schedules: int = 10_000


QUICK_LIMITS = LimitSizes(waiting=500, capped=600, schedules=20)


def fairness(deployment: Deployment, sizes: LimitSizes) -> Numbers:
    """How many tasks of a key that has very many waiting start before ten of another key have all started."""

    async def measure() -> Numbers:
        async with AsyncPerdure(deployment.url) as client:
            await _enqueue(client, "trace", "n", sizes.waiting, fairness_key="noisy")
            deployment.worker(slots=_FEW_SLOTS)
            await _until(lambda: deployment.executed() >= 50)
            await _enqueue(client, "trace", "q", 10, fairness_key="quiet")
            before = deployment.executed()
            await _until(lambda: deployment.traces().count(b"q") == 10)
        traces = deployment.traces()
        return {"noisy_before_ten": traces[before : traces.rindex(b"q")].count(b"n")}

    return asyncio.run(measure())


def cap(deployment: Deployment, sizes: LimitSizes) -> Numbers:
    """Slots taken of a limit of 50 as the database has them, while tasks wait for it. There are two workers with 100
    slots each; one is killed, and a new one started, at a third and at two thirds."""

    async def measure() -> Numbers:
        samples: list[int] = []
        async with AsyncPerdure(deployment.url) as client:
            await client.set_limit("type", "nap", max_running=CAP)
            naps = [_NAP * (0.5 + number % 11 / 10) for number in range(sizes.capped)]  # they do not end together
            for start in range(0, sizes.capped, BATCH):
                await client.enqueue_many("nap", naps[start : start + BATCH])
            workers = [deployment.worker(), deployment.worker()]
            await _until(lambda: deployment.executed() >= 3 * CAP)
            begun, kills = time.perf_counter(), 0
            while True:
                [limit] = await client.limits()
                if limit.blocked < CAP:
                    break
                samples.append(limit.running)
                if kills < 2 and deployment.executed() >= sizes.capped * (kills + 1) // 3:
                    kills += 1
                    for pid in descendants(workers.pop(0).pid):
                        os.kill(pid, signal.SIGKILL)
                    workers.append(deployment.worker())
                await asyncio.sleep(_LOOK)
            took, ran = time.perf_counter() - begun, deployment.executed() - 3 * CAP
            await _until(lambda: deployment.database.succeeded() == sizes.capped)
        return {
            "most": max(samples),
            "mean": mean(samples),
            "per_s": ran / took,
            "run_again": deployment.executed() - sizes.capped,
        }

    return asyncio.run(measure())


def refused_head(deployment: Deployment, sizes: LimitSizes) -> Numbers:
    """How long the tasks of one key wait behind very many of another key that its limit does not let start."""

    async def measure() -> Numbers:
        async with AsyncPerdure(deployment.url) as client:
            await client.set_limit("key", "customer", max_running=1)
            await _enqueue(client, "nap", 5.0, sizes.capped, concurrency_key="customer:1")
            deployment.worker()
            await _until(lambda: deployment.executed() >= 1)
            waits: list[float] = []
            for number in range(20):
                begun = time.perf_counter()
                await client.execute("trace", "q", concurrency_key=f"customer:{number + 2}", timeout=60)
                waits.append(time.perf_counter() - begun)
        ordered = sorted(waits)
        return {"p50_ms": ordered[len(ordered) // 2] * 1e3, "max_ms": ordered[-1] * 1e3}

    return asyncio.run(measure())


def schedules(deployment: Deployment, sizes: LimitSizes) -> Numbers:
    """Very many schedules for one instant: how long after it the last of their tasks has run."""

    async def measure() -> Numbers:
        async with AsyncPerdure(deployment.url) as client:
            begun = time.perf_counter()
            due = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=10 + sizes.schedules // 50)
            cron = f"{due.second} {due.minute} {due.hour} * * *"
            left = iter(range(sizes.schedules))

            async def make() -> None:
                for number in left:
                    await client.put_schedule(f"s{number}", task="noop", cron=cron)

            await asyncio.gather(*(make() for _ in range(_AT_ONCE)))
            made = time.perf_counter() - begun
            assert datetime.now(UTC) < due, "it took too long to make them"
            deployment.worker()
            await _until(lambda: deployment.database.succeeded() == sizes.schedules, seconds=400)
            took = (datetime.now(UTC) - due).total_seconds()
        return {"made_per_s": sizes.schedules / made, "seconds_after": took}

    return asyncio.run(measure())


async def _enqueue(client: AsyncPerdure, task: str, payload: object, count: int, **options: str) -> None:
    for start in range(0, count, BATCH):
        await client.enqueue_many(task, [payload] * min(BATCH, count - start), **options)  # type: ignore[arg-type]


async def _until(holds: Callable[[], bool], seconds: float = 120) -> None:
    await asyncio.to_thread(wait_until, holds, seconds)


Workload = Callable[[Deployment, LimitSizes], Numbers]
WORKLOADS: dict[str, Workload] = {
    "fairness": fairness,
    "cap": cap,
    "refused head": refused_head,
    "schedules": schedules,
}
