"""Processes that stand still and go on as if nothing had happened (SIGSTOP, SIGCONT): LEASE-05, FAIL-02, B003, B052."""

from __future__ import annotations

import asyncio
import signal

import pytest

from perdure import AsyncPerdure
from perdure.core.messages import TimeoutOptions
from tests.faults import application
from tests.faults.conftest import Figures
from tests.faults.deployment import Deployment, all_done, attempts, doubled, until, until_all_run
from tests.faults.extent import extent

LEASE = extent(3, 30)
JOBS = 40


@pytest.mark.timeout(240)
async def test_a_worker_frozen_past_its_lease_has_no_say_any_more(deployment: Deployment, figures: Figures) -> None:
    """Its jobs run elsewhere, whose results count; when it goes on it writes its lines too (at-least-once), is refused,
    and works on."""
    frozen = deployment.start_worker(slots=JOBS)
    async with AsyncPerdure(deployment.url) as app:
        jobs = await app.enqueue_many(application.lasting, [3] * JOBS, timeouts=TimeoutOptions(lease=LEASE))
        await until_all_run(app, jobs)
        deployment.freeze(frozen)
        deployment.start_worker(slots=JOBS)
        async with asyncio.timeout(LEASE + 60):
            results = [await job.result() for job in jobs]
        begun = sum(result == 2 for result in results)
        assert begun == JOBS, results  # none had ended before
        deployment.thaw(frozen)
        await until(lambda: deployment.executions().total() == 2 * JOBS)
        await asyncio.sleep(0.5)  # it reports
        assert [await job.result() for job in jobs] == results
        assert await attempts(app, jobs) == {2: JOBS}
        assert await doubled(deployment, app, jobs) == JOBS
        for worker in deployment.workers:
            if worker is not frozen:
                deployment.kill_group(worker)
        more = await app.enqueue_many(application.quick, range(JOBS))
        await all_done(more, 60)
        figures(jobs=len(jobs), doubled_lines=await doubled(deployment, app, jobs + more))


@pytest.mark.timeout(240)
async def test_a_server_frozen_past_all_leases_takes_nothing_away(deployment: Deployment, figures: Figures) -> None:
    """Nobody could be heard meanwhile, so nobody is declared dead afterwards (B008)."""
    deployment.start_worker(slots=JOBS)
    async with AsyncPerdure(deployment.url) as app:
        seconds = LEASE + extent(6, 12)
        jobs = await app.enqueue_many(application.lasting, [seconds] * JOBS, timeouts=TimeoutOptions(lease=LEASE))
        await until_all_run(app, jobs)
        server = deployment.servers[deployment.port]
        server.send_signal(signal.SIGSTOP)
        await asyncio.sleep(LEASE + extent(4, 8))
        server.send_signal(signal.SIGCONT)
        deployment.start_worker(slots=JOBS)  # it would take what is taken away
        await all_done(jobs, seconds + 60)
        assert await attempts(app, jobs) == {1: JOBS}
        assert await doubled(deployment, app, jobs) == 0
        figures(jobs=len(jobs), frozen_seconds=LEASE + extent(4, 8))
