"""How long the death of a worker delays its jobs, with default settings: LEASE-06, FAIL-01, B006."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest

from perdure import AsyncPerdure
from tests.faults import application
from tests.faults.conftest import Figures
from tests.faults.deployment import Deployment, all_done, attempts, doubled, until
from tests.faults.extent import extent

JOBS = 500
MOST = extent(15.0, 5.0)
"""Seconds from the kill to the end of all jobs. 5 is the promise, which `make faults` holds; in `make test` the jobs
take longer, and other tests run beside this one."""


async def _lose(deployment: Deployment, workers: int, figures: Figures) -> None:
    """One of so many workers is killed while all 500 jobs are in flight."""
    for _ in range(workers):
        deployment.start_worker(slots=JOBS // workers)
    async with AsyncPerdure(deployment.url) as app:
        async with asyncio.timeout(60):
            while len(await app.workers()) < workers:
                await asyncio.sleep(0.05)
        jobs = await app.enqueue_many(application.in_flight, [extent(6, 3)] * JOBS)
        async with asyncio.timeout(30):
            while len((await app.find(state="LEASED", limit=1000)).tasks) < JOBS:
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.3)  # receipts are acknowledged
        assert not deployment.executions(), "the machine is too slow for this test"
        killed = time.monotonic()
        deployment.kill_group(deployment.workers[0])
        if workers == 1:
            deployment.start_worker(slots=JOBS)
        await until(lambda: len(deployment.executions()) == JOBS)
        await all_done(jobs, 60)
        took = time.monotonic() - killed
        lost = JOBS // workers
        assert await attempts(app, jobs) == Counter({2: lost}) + Counter({1: JOBS - lost})
        assert await doubled(deployment, app, jobs) == 0
        figures(jobs=JOBS, workers=workers, done_after=f"{took:.2f} s")
        assert took < MOST


@pytest.mark.timeout(180)
async def test_500_jobs_in_flight_over_five_workers_of_which_one_is_killed(
    deployment: Deployment, figures: Figures
) -> None:
    await _lose(deployment, 5, figures)


@pytest.mark.timeout(180)
async def test_500_jobs_of_one_worker_that_is_killed_with_all_of_them(deployment: Deployment, figures: Figures) -> None:
    """A new worker is started at once."""
    await _lose(deployment, 1, figures)
