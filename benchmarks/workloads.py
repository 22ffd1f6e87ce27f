"""What is measured. Each workload gets a deployment on a fresh database and answers named numbers.

Rates are per second, times in the unit that the name ends with. Definitions are those of the peers' scripts: a drain
lasts from the first execution to the moment the store shows no open task, the start of the worker's process excluded;
end to end is N jobs over enqueue plus drain. As there, a fifth of the jobs (1,000 at most) are enqueued singly, one
after another, by the client that then enqueues the others in bulk: what is measured is the rate of those.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import aiohttp

from benchmarks.deployment import Deployment
from benchmarks.payload import PAYLOAD
from benchmarks.peers import LOOK
from benchmarks.processes import cpu_seconds, descendants, wait_until
from perdure import AsyncPerdure, Perdure

Numbers = dict[str, float]

IN_FLIGHT = 100
_WARM_UP = 20
SINGLY = 1_000
"""Jobs that are enqueued one after another before the others, at most."""


@dataclass(frozen=True)
class Sizes:
    """How much of each."""

    jobs: int = 5_000
    enqueues: int = 10_000
    samples: int = 200


QUICK = Sizes(jobs=1_000, enqueues=500, samples=20)


def jobs(deployment: Deployment, sizes: Sizes, task: str = "noop") -> Numbers:
    """Bulk enqueue while no worker runs, then one worker of 100 slots until all jobs are closed."""
    enqueue_rate = enqueue_all(deployment, sizes.jobs, task)
    begun = time.monotonic()
    worker = deployment.worker()
    first = wait_until(lambda: deployment.executed() > 0, every=LOOK)
    cpu, worker_cpu = deployment.cpu(), cpu_seconds(worker.pid)
    last = drained(deployment, sizes.jobs)
    return {
        "jobs_per_s": sizes.jobs / (sizes.jobs / enqueue_rate + last - first),
        "bulk_enqueue_per_s": enqueue_rate,
        "drain_per_s": sizes.jobs / (last - first),
        "worker_boot_s": first - begun,
        **_cpu_of_each(cpu, deployment.cpu(), sizes.jobs, "us_per_job"),
        "worker_us_per_job": (cpu_seconds(worker.pid) - worker_cpu) / sizes.jobs * 1e6,
        "executed": deployment.executed(),
        "lost": sizes.jobs - deployment.database.succeeded(),
    }


def enqueues(deployment: Deployment, sizes: Sizes) -> Numbers:
    """Single durable enqueues, 100 in flight, over the SDK's default transport without coalescing, and over plain HTTP;
    each call returns when its job is committed."""
    begun = deployment.cpu()
    rate = asyncio.run(_enqueues_by_sdk(deployment.url, sizes.enqueues))
    between = deployment.cpu()
    plain_rate = asyncio.run(_enqueues_by_http(deployment.url, sizes.enqueues))
    return {
        "enqueues_per_s": rate,
        "http_enqueues_per_s": plain_rate,
        **_cpu_of_each(begun, between, sizes.enqueues, "us_per_enqueue"),
        **_cpu_of_each(between, deployment.cpu(), sizes.enqueues, "us_per_http_enqueue"),
        "lost": 2 * (sizes.enqueues + _WARM_UP) - deployment.database.open_tasks(),
    }


def latency(deployment: Deployment, sizes: Sizes) -> Numbers:
    """One job at a time on an idle system, from the call that enqueues it to the result in the client: by the blocking
    client in one call and in two, and by the asyncio one."""
    deployment.worker()
    return round_trips(deployment.url, sizes.samples)


def round_trips(url: str, samples: int) -> Numbers:
    """Latencies where a worker runs already."""
    with Perdure(url) as client:
        one_call = _round_trips(lambda: client.execute("echo", PAYLOAD, timeout=30), samples)
        two_calls = _round_trips(lambda: client.enqueue("echo", PAYLOAD).result(timeout=30), samples)
    awaited = asyncio.run(_awaited_round_trips(url, samples))
    return _percentiles(one_call, "") | _percentiles(two_calls, "two_calls_") | _percentiles(awaited, "asyncio_")


def recovery(deployment: Deployment, sizes: Sizes, whole: bool) -> Numbers:
    """SIGKILL to the worker when half of the jobs have run. `whole`: supervisor and all, and a new worker is started at
    once; else only the process that runs handlers, which its supervisor replaces."""
    enqueue_all(deployment, sizes.jobs, "noop")
    worker = deployment.worker()
    wait_until(lambda: deployment.executed() > 0, every=LOOK)
    family = descendants(worker.pid)
    wait_until(lambda: deployment.executed() >= sizes.jobs // 2, every=0.001)
    killed = time.monotonic()
    for pid in family if whole else family[1:]:
        os.kill(pid, signal.SIGKILL)
    executed = deployment.executed()
    if whole:
        deployment.worker()
    last = drained(deployment, sizes.jobs)
    return {
        "recovery_s": last - killed,
        "executed_at_kill": executed,
        "lost": sizes.jobs - deployment.database.succeeded(),
        "run_again": deployment.executed() - sizes.jobs,
    }


def _cpu_of_each(begun: Numbers, ended: Numbers, count: int, unit: str) -> Numbers:
    return {f"{process}_{unit}": (ended[process] - begun[process]) / count * 1e6 for process in begun}


def enqueue_all(deployment: Deployment, count: int, task: str) -> float:
    """The rate of enqueue_many, behind single enqueues."""
    singly = min(SINGLY, count // 5)

    async def enqueue() -> float:
        async with AsyncPerdure(deployment.url) as client:
            for _ in range(singly):
                await client.enqueue(task, PAYLOAD)
            begun = time.perf_counter()
            await client.enqueue_many(task, [PAYLOAD] * (count - singly))
            return (count - singly) / (time.perf_counter() - begun)

    return asyncio.run(enqueue())


def drained(deployment: Deployment, count: int) -> float:
    wait_until(lambda: deployment.executed() >= count, every=LOOK)
    return wait_until(lambda: deployment.database.open_tasks() == 0, every=LOOK)


async def _enqueues_by_sdk(url: str, count: int) -> float:
    async with AsyncPerdure(url, coalesce=False) as client:
        return await _rate(lambda: client.enqueue("noop", PAYLOAD), count)


async def _enqueues_by_http(url: str, count: int) -> float:
    body = json.dumps({"type": "noop", "payload": PAYLOAD}).encode()
    headers = {"Content-Type": "application/json"}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=IN_FLIGHT)) as session:

        async def post() -> None:
            async with session.post(f"{url}/v1/tasks", data=body, headers=headers) as response:
                response.raise_for_status()
                await response.read()

        return await _rate(post, count)


async def _rate(call: Callable[[], Awaitable[object]], count: int) -> float:
    """Calls per second with 100 of them in flight."""
    for _ in range(_WARM_UP):
        await call()
    left = iter(range(count))

    async def caller() -> None:
        for _ in left:
            await call()

    begun = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(IN_FLIGHT)))
    return count / (time.perf_counter() - begun)


def _round_trips(call: Callable[[], object], samples: int) -> list[float]:
    seconds = []
    for _ in range(_WARM_UP + samples):
        begun = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begun)
    return seconds[_WARM_UP:]


async def _awaited_round_trips(url: str, samples: int) -> list[float]:
    seconds = []
    async with AsyncPerdure(url) as client:
        for _ in range(_WARM_UP + samples):
            begun = time.perf_counter()
            await client.execute("echo", PAYLOAD, timeout=30)
            seconds.append(time.perf_counter() - begun)
    return seconds[_WARM_UP:]


def _percentiles(seconds: list[float], prefix: str) -> Numbers:
    ordered = sorted(seconds)
    return {
        f"{prefix}p{percent}_ms": ordered[round(percent / 100 * (len(ordered) - 1))] * 1e3 for percent in (50, 95, 99)
    }
