"""The clock of PostgreSQL's machine is set, forward and back, by less and by more than a lease: B052, TIME-02."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from perdure import AsyncPerdure
from tests.faults import application
from tests.faults.conftest import Figures
from tests.faults.deployment import Deployment, all_done, attempts, doubled, until_all_run
from tests.faults.extent import FULL, extent
from tests.faults.postgres import TcpPostgres

LONG = [40, 300] if FULL else []
STEPS = {
    "forward": [4, *LONG, 3900],
    "back": [-3, *[-step for step in LONG], -3900],
    "to and fro": [60, -60, 0],
}
"""Seconds by which the clock is wrong, one after the other."""
PAUSE = extent(2, 12)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS.keys())
async def test_nobody_is_declared_dead_by_a_clock(
    steps: list[int], deploy: Callable[[str], Deployment], stepped_postgres: TcpPostgres, figures: Figures
) -> None:
    """Work goes on while the clock is set, all that runs keeps its lease, and what is enqueued afterwards is done at
    once."""
    deployed = deploy(stepped_postgres.url("jobs"))
    for _ in range(2):
        deployed.start_worker(slots=50)
    async with AsyncPerdure(deployed.url) as app:
        jobs = await app.enqueue_many(application.lasting, [PAUSE * len(steps) + 2] * 30)
        await until_all_run(app, jobs)
        latest = 0.0
        for step in steps:
            stepped_postgres.set_clock(step)
            end = time.monotonic() + PAUSE
            while time.monotonic() < end:
                begun = time.monotonic()
                some = await app.enqueue_many(application.quick, range(20))
                await all_done(some, 30)
                latest = max(latest, time.monotonic() - begun)
                jobs += some
                await asyncio.sleep(0.1)
        delayed = await app.enqueue_many(application.quick, range(20), delay=1.0)
        begun = time.monotonic()
        await all_done(delayed, 20)
        assert 0.9 < time.monotonic() - begun < 10
        jobs += delayed
        await all_done(jobs, 60)
        assert await doubled(deployed, app, jobs) == 0
        assert await attempts(app, jobs) == {1: len(jobs)}
        assert latest < 10
        figures(jobs=len(jobs), steps=len(steps), slowest_round=f"{latest:.2f} s")


@pytest.mark.timeout(300)
async def test_waits_that_had_begun_last_no_longer_than_the_clock_was_wrong(
    deploy: Callable[[str], Deployment], stepped_postgres: TcpPostgres, figures: Figures
) -> None:
    """A worker is killed, and the clock, which was fast, is put right at that moment: its jobs are done elsewhere. A
    row's time never goes back, so their back-offs, and delays that had begun, may last so much longer; and no more."""
    wrong = int(extent(10, 60))
    deployed = deploy(stepped_postgres.url("jobs"))
    stepped_postgres.set_clock(wrong)
    worker = deployed.start_worker(slots=50)
    async with AsyncPerdure(deployed.url) as app:
        jobs = await app.enqueue_many(application.slow, range(50))
        await until_all_run(app, jobs)
        jobs += await app.enqueue_many(application.quick, range(50), delay=1.0)
        deployed.kill_group(worker)
        stepped_postgres.set_clock(0)
        deployed.start_worker(slots=50)
        begun = time.monotonic()
        await all_done(jobs, wrong + 20)
        figures(jobs=50, done_after=f"{time.monotonic() - begun:.1f} s", wrong_by=f"{wrong} s")
        assert await doubled(deployed, app, jobs) == 0
