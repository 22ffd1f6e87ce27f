"""What is measured of workflows: the workloads W2 to W6 of the peers' scripts, by the same definitions, with one server
and one worker process over HTTP, and W5 embedded too."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.deployment import FLOWS, Deployment
from benchmarks.processes import cpu_seconds, descendants, wait_until
from benchmarks.workloads import IN_FLIGHT, Numbers
from perdure import AsyncPerdure

_WARM_UP = 20


@dataclass(frozen=True)
class FlowSizes:
    """How much of each."""

    runs: int = 500
    steps: int = 5
    fan_out: int = 1_000
    long: int = 1_000
    samples: int = 200


QUICK_FLOWS = FlowSizes(runs=50, fan_out=100, long=100, samples=20)


def runs(deployment: Deployment, sizes: FlowSizes, flow: str) -> Numbers:
    """W2: runs of five sequential steps, 100 in flight, from the first start to the last result."""
    worker = deployment.worker(FLOWS)

    async def measure() -> Numbers:
        async with AsyncPerdure(deployment.url) as client:
            await _gathered(lambda number: _run(client, flow, 2, f"warm-{number}"), _WARM_UP)
            cpu, worker_cpu = deployment.cpu(), cpu_seconds(*descendants(worker.pid))
            begun = time.perf_counter()
            await _gathered(lambda number: _run(client, flow, sizes.steps, f"run-{number}"), sizes.runs)
            took = time.perf_counter() - begun
            used = {name: deployment.cpu()[name] - seconds for name, seconds in cpu.items()}
            used["worker"] = cpu_seconds(*descendants(worker.pid)) - worker_cpu
        return {
            "runs_per_s": sizes.runs / took,
            "steps_per_s": sizes.runs * sizes.steps / took,
            **{f"{name}_us_per_run": seconds / sizes.runs * 1e6 for name, seconds in used.items()},
        }

    numbers = asyncio.run(measure())
    return numbers | {"lost": sizes.runs + _WARM_UP - deployment.database.succeeded()}


def fan_out(deployment: Deployment, sizes: FlowSizes, mode: str) -> Numbers:
    """W3: one run of 1,000 parallel steps or activities."""
    deployment.worker(FLOWS)

    async def measure() -> Numbers:
        async with AsyncPerdure(deployment.url) as client:
            await _run(client, "steps", 2, "warm")
            begun = time.perf_counter()
            result = await client.execute_workflow("fan_out", {"n": sizes.fan_out, "mode": mode}, id="fan", timeout=120)
            took = time.perf_counter() - begun
        assert result == sizes.fan_out * (sizes.fan_out - 1) // 2
        return {"seconds": took, "per_s": sizes.fan_out / took}

    return asyncio.run(measure())


def flow_latency(deployment: Deployment, sizes: FlowSizes) -> Numbers:
    """W4: workflows of one step, one after another, from the start to the result in the client."""
    deployment.worker(FLOWS)

    async def measure() -> Numbers:
        seconds = []
        async with AsyncPerdure(deployment.url) as client:
            for number in range(_WARM_UP + sizes.samples):
                begun = time.perf_counter()
                await _run(client, "steps", 1, f"run-{number}")
                seconds.append(time.perf_counter() - begun)
        ordered = sorted(seconds[_WARM_UP:])
        return {f"p{percent}_ms": ordered[round(percent / 100 * (len(ordered) - 1))] * 1e3 for percent in (50, 95, 99)}

    return asyncio.run(measure())


def long_history(deployment: Deployment, sizes: FlowSizes) -> Numbers:
    """W5: one run of 1,000 sequential steps."""
    deployment.worker(FLOWS)

    async def measure() -> Numbers:
        async with AsyncPerdure(deployment.url) as client:
            await _run(client, "steps", 2, "warm")
            begun = time.perf_counter()
            await _run(client, "steps", sizes.long, "long")
            took = time.perf_counter() - begun
        return {"seconds": took, "steps_per_s": sizes.long / took}

    return asyncio.run(measure())


def flow_recovery(deployment: Deployment, sizes: FlowSizes) -> Numbers:
    """W6: SIGKILL to the whole worker when half of the steps have run; a new one is started at once."""
    worker = deployment.worker(FLOWS)
    half = sizes.runs * sizes.steps // 2

    async def measure() -> Numbers:
        async with AsyncPerdure(deployment.url) as client:
            await _run(client, "steps", 2, "warm")
            base = deployment.executed()
            family = descendants(worker.pid)
            everything = asyncio.create_task(
                _gathered(lambda number: _run(client, "steps", sizes.steps, f"run-{number}"), sizes.runs)
            )
            await asyncio.to_thread(wait_until, lambda: deployment.executed() - base >= half, every=0.001)
            killed = time.monotonic()
            for pid in family:
                os.kill(pid, signal.SIGKILL)
            deployment.worker(FLOWS)
            await everything
            return {
                "recovery_s": time.monotonic() - killed,
                "run_again": deployment.executed() - base - sizes.runs * sizes.steps,
            }

    numbers = asyncio.run(measure())
    return numbers | {"lost": sizes.runs + 1 - deployment.database.succeeded()}


def run_all(url: str, flow: str, sizes: FlowSizes, name: str) -> None:
    """Runs of a workflow, 100 in flight."""

    async def run() -> None:
        async with AsyncPerdure(url) as client:
            await _gathered(lambda number: _run(client, flow, sizes.steps, f"{name}-{number}"), sizes.runs)

    asyncio.run(run())


async def _run(client: AsyncPerdure, flow: str, steps: int, name: str) -> None:
    result: Any = await client.execute_workflow(flow, steps, id=name, timeout=120)
    assert result == steps * (steps - 1) // 2, result


async def _gathered(call: Callable[[int], Awaitable[None]], count: int) -> None:
    """All of them, 100 in flight."""
    left = iter(range(count))

    async def caller() -> None:
        for number in left:
            await call(number)

    await asyncio.gather(*(caller() for _ in range(min(IN_FLIGHT, count))))
