"""The network between server and PostgreSQL, and between worker and server: cut, slow, held up, and gone without a word
(FAIL-05, LEASE-06, B031, B033)."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from perdure import AsyncPerdure
from perdure.client.http import HttpService
from perdure.core import messages as m
from tests.faults import application
from tests.faults.conftest import Figures
from tests.faults.deployment import Deployment, all_done, attempts, doubled, until_all_run
from tests.faults.extent import FULL, extent
from tests.faults.load import load
from tests.faults.postgres import TcpPostgres
from tests.faults.proxy import Proxy

SECONDS = extent(4, 30)
RUNNING = 30
"""Jobs that run all the time, whatever the network does."""


@pytest.fixture
async def before_postgres(
    deploy: Callable[[str], Deployment], postgres: TcpPostgres
) -> AsyncIterator[tuple[Deployment, Proxy]]:
    """Only the server goes through the proxy."""
    async with Proxy(postgres.port) as proxy:
        deployed = await asyncio.to_thread(deploy, f"postgresql://postgres@127.0.0.1:{proxy.port}/jobs")
        yield deployed, proxy
        await asyncio.to_thread(deployed.stop)


@pytest.fixture
async def before_server(deploy: Callable[[str], Deployment], tmp_path: Path) -> AsyncIterator[tuple[Deployment, Proxy]]:
    """Workers and clients go through the proxy. The database plays no part in it: it is an SQLite file."""
    deployed = deploy(f"sqlite:///{tmp_path / 'tasks.db'}")
    async with Proxy(deployed.port) as proxy:
        deployed.url = f"http://127.0.0.1:{proxy.port}"
        yield deployed, proxy
        await asyncio.to_thread(deployed.stop)


async def _cut(proxy: Proxy, source: Random) -> None:
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        await asyncio.sleep(source.uniform(0.05, 0.8))
        proxy.cut()


async def _delayed(proxy: Proxy, source: Random) -> None:
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        proxy.delay = source.choice((0.0, 0.02, 0.1, 0.3))
        await asyncio.sleep(source.uniform(0.2, 1.0))
    proxy.delay = 0.0


async def _held_up(proxy: Proxy, source: Random) -> None:
    """Longer than a database may be silent before leases are held back."""
    for _ in range(int(extent(1, 3))):
        proxy.hold()
        await asyncio.sleep(extent(7, 12))
        proxy.flow()
        await asyncio.sleep(source.uniform(0.1, 1.0))


async def _swallowed(proxy: Proxy, source: Random) -> None:
    """Who has sent something finds out by the answer that does not come: the load, which sends all the time, soon."""
    await asyncio.sleep(source.uniform(0.2, 0.5))
    assert proxy.swallow() >= 2
    await asyncio.sleep(0.5)


Fault = Callable[[Proxy, Random], Awaitable[None]]


async def _survive(deployed: Deployment, proxy: Proxy, fault: Fault, figures: Figures, patience: float) -> None:
    """A load, and work that runs all the while. Nothing is lost, and what runs is not doubled, because no worker is
    lost. A job that was handed out at the moment when the network went, and whose receipt is not acknowledged within
    ten seconds, is handed out again: that spends no attempt."""
    for _ in range(int(extent(1, 2))):
        deployed.start_worker(slots=RUNNING)
    async with AsyncPerdure(deployed.url) as app:
        lasting = await app.enqueue_many(application.lasting, [SECONDS + 3] * RUNNING)
        await until_all_run(app, lasting)
        before = proxy.connections
        ends = asyncio.Event()
        loading = asyncio.create_task(load(app, ends))
        await fault(proxy, Random(5))
        begun = time.monotonic()
        ends.set()
        jobs = lasting + await loading
        await all_done(jobs, patience)
        recovered = time.monotonic() - begun
        beyond = await doubled(deployed, app, jobs)
        executions = deployed.executions()
        assert {executions[job.id] for job in lasting} == {1}
        assert await attempts(app, jobs) == {1: len(jobs)}
        figures(
            jobs=len(jobs),
            new_connections=proxy.connections - before,
            done_after=f"{recovered:.1f} s",
            doubled_lines=beyond,
        )


@pytest.mark.timeout(300)
@pytest.mark.parametrize("fault", [_cut, _delayed, _held_up, *([_swallowed] if FULL else [])])
async def test_between_server_and_postgres(
    before_postgres: tuple[Deployment, Proxy], fault: Fault, figures: Figures
) -> None:
    """Swallowed, a statement is given up after 60 s; then all goes on, and no worker has lost its work. That is what
    `make faults` waits for; `make test` holds the connections up instead."""
    await _survive(*before_postgres, fault, figures, 150)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("fault", [_cut, _delayed, _held_up, _swallowed])
async def test_between_worker_and_server(
    before_server: tuple[Deployment, Proxy], fault: Fault, figures: Figures
) -> None:
    """Swallowed, a request is given up 15 s after its answer was due."""
    await _survive(*before_server, fault, figures, 120)


@pytest.fixture
def many_files() -> Iterator[None]:
    """500 connections have 1,500 ends here."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class _Session:
    """A worker process as the server sees it, that holds one lease. It writes its line when it is done."""

    def __init__(self, url: str, number: int) -> None:
        self._service = HttpService(url, on_connect=self._greet)
        self._number = number
        self.epoch = 0
        self.lease = b""
        self.task_id = ""

    async def _greet(self) -> None:
        self.epoch += 1
        await self._service.open_session(
            m.OpenSession(self._number, self.epoch, f"session {self._number}", ["default"], 1)
        )

    async def take(self) -> None:
        [delivery] = (await self._service.poll(m.Poll(self._number, 1, ["default"], 1))).tasks
        self.lease, self.task_id = delivery.lease, delivery.task_id
        await self.beat()

    async def beat(self) -> None:
        assert (await self._service.heartbeat(m.Heartbeat(self._number, [m.Beat(self.lease)]))).actions == ["continue"]

    async def complete(self) -> str:
        [outcome] = (await self._service.complete(m.Complete([m.Completion(self.lease, "succeeded")]))).outcomes
        return outcome.state

    async def close(self) -> None:
        await self._service.close()


@pytest.mark.timeout(180)
async def test_500_sessions_that_break_at_once_keep_their_work(
    before_server: tuple[Deployment, Proxy], many_files: None, figures: Figures
) -> None:
    """That is the network, not 500 deaths: although none is back within the grace of a second, no lease ends."""
    deployed, proxy = before_server
    sessions = [_Session(deployed.url, number + 1) for number in range(500)]
    async with AsyncPerdure(f"http://127.0.0.1:{deployed.port}") as app:
        try:
            jobs = await app.enqueue_many(application.quick, range(500))
            for start in range(0, 500, 50):
                await asyncio.gather(*(session.take() for session in sessions[start : start + 50]))
            proxy.off()
            await asyncio.sleep(3)
            await proxy.on()
            begun = time.monotonic()
            await asyncio.gather(*(session.beat() for session in sessions))
            back = time.monotonic() - begun
            assert {session.epoch for session in sessions} == {2}
            assert await asyncio.gather(*(session.complete() for session in sessions)) == ["SUCCEEDED"] * 500
            assert {session.task_id for session in sessions} == {job.id for job in jobs}
            views = [await app.get(job.id) for job in jobs]
            assert {(view.state, view.attempt) for view in views} == {("SUCCEEDED", 1)}
            assert {attempt.outcome for view in views for attempt in view.attempts} == {"succeeded"}
            figures(sessions=500, back_after=f"{back:.1f} s")
        finally:
            await asyncio.gather(*(session.close() for session in sessions))


@pytest.mark.timeout(120)
async def test_the_few_that_break_alone_are_believed_dead(before_server: tuple[Deployment, Proxy]) -> None:
    """The other half of the rule: three of 20 sessions break, and their jobs are given to others after a second."""
    deployed, _ = before_server
    sessions = [_Session(deployed.url, number + 1) for number in range(20)]
    direct = f"http://127.0.0.1:{deployed.port}"
    async with AsyncPerdure(direct) as app, contextlib.AsyncExitStack() as stack:
        for session in sessions:
            stack.push_async_callback(session.close)
        jobs = await app.enqueue_many(application.slow, range(20))
        await asyncio.gather(*(session.take() for session in sessions))
        broke = time.monotonic()
        for session in sessions[:3]:
            await session.close()
        deployed.url = direct
        deployed.start_worker()
        gone = {session.task_id for session in sessions[:3]}
        await all_done([job for job in jobs if job.id in gone], 25)  # a lease would last 30 s
        assert time.monotonic() - broke < 25
        assert await attempts(app, jobs) == {1: 17, 2: 3}
        assert set(deployed.executions()) == gone
