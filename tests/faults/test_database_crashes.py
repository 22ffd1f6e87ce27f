"""PostgreSQL is stopped with `immediate`, as by a power cut, and started again: FAIL-04, B008, B013, B031, B034."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from perdure import AsyncJob, AsyncPerdure
from perdure.core.messages import TimeoutOptions
from tests.faults import application
from tests.faults.conftest import Figures
from tests.faults.deployment import Deployment, all_done, attempts, doubled, until, until_all_run
from tests.faults.extent import FULL, extent
from tests.faults.postgres import TcpPostgres

Crash = Callable[[], Awaitable[None]]
CRASHES = int(extent(2, 6))


async def _crash(postgres: TcpPostgres, source: Random) -> None:
    await asyncio.to_thread(postgres.crash)
    await asyncio.sleep(source.uniform(0.0, 1.0))
    await asyncio.to_thread(postgres.start)


async def _during_enqueues(app: AsyncPerdure, deployed: Deployment, crash: Crash, source: Random) -> list[AsyncJob]:
    """One by one, in bulk and with keys, from several callers who all wait the outage out."""
    ends = False

    async def caller(number: int) -> list[AsyncJob]:
        jobs: list[AsyncJob] = []
        while not ends:
            jobs.append(await app.enqueue(application.quick, number))
            jobs.append(await app.enqueue(application.quick, number, idempotency_key=f"{number} {len(jobs)}"))
            jobs += await app.enqueue_many(application.quick, [number] * 10)
            await asyncio.sleep(0.05)
        return jobs

    callers = [asyncio.create_task(caller(number)) for number in range(5)]
    for _ in range(CRASHES):
        await asyncio.sleep(source.uniform(0.3, 1.0))
        await crash()
    await asyncio.sleep(0.5)
    ends = True
    jobs = [job for jobs in await asyncio.gather(*callers) for job in jobs]
    deployed.start_worker(slots=50)
    return jobs


async def _during_claims(app: AsyncPerdure, deployed: Deployment, crash: Crash, source: Random) -> list[AsyncJob]:
    """A backlog of short jobs, taken by two workers."""
    jobs = await app.enqueue_many(application.quick, range(700 * CRASHES))
    for _ in range(2):
        deployed.start_worker(slots=20)
    for number in range(CRASHES):
        await until(lambda number=number: len(deployed.executions()) > 200 + 600 * number)  # type: ignore[misc]
        await crash()
    return jobs


async def _during_completions(app: AsyncPerdure, deployed: Deployment, crash: Crash, source: Random) -> list[AsyncJob]:
    """Many jobs that end at the same moment, several times over."""
    deployed.start_worker(slots=100)
    jobs: list[AsyncJob] = []
    for _ in range(CRASHES):
        done = len(jobs)
        jobs += await app.enqueue_many(application.slow, range(200))
        await until(lambda done=done: len(deployed.executions()) > done)  # type: ignore[misc]
        await asyncio.sleep(source.uniform(0.0, 0.01))
        await crash()
        await all_done(jobs, 60)
    return jobs


async def _during_alarms(app: AsyncPerdure, deployed: Deployment, crash: Crash, source: Random) -> list[AsyncJob]:
    """Delays that end before, during and after the crashes, and back-offs."""
    deployed.start_worker(slots=50)
    jobs = await app.enqueue_many(application.moody, range(100 * CRASHES))
    for _ in range(100 * CRASHES):
        jobs.append(await app.enqueue(application.quick, delay=source.uniform(0.1, 3.0 * CRASHES)))
    for _ in range(CRASHES):
        await asyncio.sleep(source.uniform(0.5, 1.5))
        await crash()
    return jobs


@pytest.mark.timeout(240)
@pytest.mark.parametrize("during", [_during_enqueues, _during_claims, _during_completions, _during_alarms])
async def test_a_crash_of_the_database_loses_and_doubles_nothing(
    deploy: Callable[[str], Deployment],
    postgres: TcpPostgres,
    figures: Figures,
    during: Callable[[AsyncPerdure, Deployment, Crash, Random], Awaitable[list[AsyncJob]]],
) -> None:
    deployed = deploy(postgres.url("jobs"))
    source = Random(3)
    async with AsyncPerdure(deployed.url) as app:
        jobs = await during(app, deployed, lambda: _crash(postgres, source), source)
        await all_done(jobs, 120)
        assert await doubled(deployed, app, jobs) == 0  # no worker was lost
        spent = await attempts(app, jobs)
        moody = 100 * CRASHES if during is _during_alarms else 0
        assert spent == {1: len(jobs) - moody, 3: moody} if moody else {1: len(jobs)}, spent
        figures(jobs=len(jobs), crashes=CRASHES)


@pytest.mark.timeout(240)
async def test_an_outage_longer_than_all_leases_takes_no_running_work_away(
    deploy: Callable[[str], Deployment], postgres: TcpPostgres, figures: Figures
) -> None:
    """Some jobs end while the database is down, some later. Another worker stands by who would take what is lost."""
    outage = extent(9, 40)
    deployed = deploy(postgres.url("jobs"))
    deployed.start_worker(slots=60)
    lease = TimeoutOptions() if FULL else TimeoutOptions(lease=3.0)
    async with AsyncPerdure(deployed.url) as app:
        begun = time.monotonic()
        jobs = await app.enqueue_many(application.lasting, [outage / 2 + 3] * 30 + [outage + 8] * 30, timeouts=lease)
        await until_all_run(app, jobs)
        deployed.start_worker(slots=60)
        async with asyncio.timeout(30):
            while len(await app.workers()) < 2:
                await asyncio.sleep(0.05)
        await asyncio.to_thread(postgres.crash)
        down = time.monotonic()
        assert down - begun < outage / 2 + 3, "the machine is too slow for this test"
        await asyncio.sleep(outage)
        await asyncio.to_thread(postgres.start)
        lasted = time.monotonic() - down
        await all_done(jobs, 120)
        assert await doubled(deployed, app, jobs) == 0
        assert await attempts(app, jobs) == {1: 60}
        more = await app.enqueue_many(application.quick, range(100))
        await all_done(more, 30)
        figures(jobs=len(jobs), outage_seconds=round(lasted, 1))
