"""Two servers on one database, one of which dies, and processes that migrate it at once: FAIL-01, DEPLOY-02, B120."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import asyncpg
import psutil
import pytest

from perdure import AsyncPerdure
from perdure.store.statements import migrations
from tests.faults import application
from tests.faults.conftest import Figures
from tests.faults.deployment import (
    Deployment,
    Process,
    all_done,
    attempts,
    doubled,
    free_port,
    until,
    until_all_run,
)
from tests.faults.extent import extent
from tests.faults.load import load
from tests.faults.proxy import Proxy

MIGRATING = 3
LOCK = "select pg_advisory_lock(7237949270361)"
WAITING = "select count(*) from pg_locks where locktype = 'advisory' and not granted"


@pytest.mark.timeout(300)
async def test_the_other_server_goes_on(deployment: Deployment, figures: Figures) -> None:
    """A balancer stands before two servers; one after the other is killed under load and started again. No worker is
    lost, so no work is: whoever was connected to the dead one goes on with the other."""
    ports = [deployment.port, free_port()]
    deployment.start_server(ports[1])
    async with Proxy(ports[0]) as balancer:
        deployment.url = f"http://127.0.0.1:{balancer.port}"
        for _ in range(2):
            deployment.start_worker(slots=60)
        async with AsyncPerdure(deployment.url) as app:
            jobs = await app.enqueue_many(application.lasting, [6] * 20)
            await until_all_run(app, jobs)
            ends = asyncio.Event()
            loading = asyncio.create_task(load(app, ends))
            kills = int(extent(2, 16))
            for number in range(kills):
                await asyncio.sleep(1.0)
                balancer.upstream = ports[(number + 1) % 2]
                deployment.kill_server(ports[number % 2])
                await asyncio.sleep(0.5)
                await asyncio.to_thread(deployment.start_server, ports[number % 2])
            ends.set()
            jobs += await loading
            await all_done(jobs, 90)
            assert await doubled(deployment, app, jobs) == 0
            assert await attempts(app, jobs) == {1: len(jobs)}
            figures(jobs=len(jobs), kills=kills)
        deployment.stop()


@contextlib.asynccontextmanager
async def _all_at_the_lock(store: str, count: Callable[[], list[Process]]) -> AsyncIterator[None]:
    """Somebody holds the lock that a migration needs until all that `count` tells wait for it."""
    if store.startswith("sqlite"):
        path = store.removeprefix("sqlite:///")
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as holder:
            holder.execute("begin immediate")
            yield
            await until(lambda: all(_has_open(process.pid, path) for process in count()))
            holder.execute("rollback")
        return
    holding = await asyncpg.connect(store)
    try:
        await holding.fetch(LOCK)
        yield
        async with asyncio.timeout(60):
            while await holding.fetchval(WAITING) < len(count()):
                await asyncio.sleep(0.02)
    finally:
        await holding.close()


def _has_open(pid: int, path: str) -> bool:
    return any(file.path == path for file in psutil.Process(pid).open_files())


async def test_migrations_at_once_take_turns(store: str, tmp_path: Path) -> None:
    """Each migration is applied by exactly one of them, and all of them say that it is done."""
    deployed = Deployment(store, tmp_path)
    migrating: list[Process] = []
    async with _all_at_the_lock(store, lambda: migrating):
        for number in range(MIGRATING):
            migrating.append(deployed.spawn(f"migrate-{number}", "migrate", "--store", store, "--json"))
    assert [await asyncio.to_thread(process.wait, 60) for process in migrating] == [0] * MIGRATING, deployed.logs()
    applied = [json.loads(path.read_text())["applied"] for path in tmp_path.glob("migrate-*.log")]
    dialect = "sqlite" if store.startswith("sqlite") else "postgres"
    assert sorted(name for names in applied for name in names) == sorted(name for name, _ in migrations(dialect))
    try:
        deployed.start_server()
        deployed.start_worker()
        async with AsyncPerdure(deployed.url) as app:
            await all_done([await app.enqueue(application.quick)], 30)
    finally:
        deployed.stop()
