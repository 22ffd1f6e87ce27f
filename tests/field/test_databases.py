"""Field cases on how the databases are used: locks of others, deadlocks, slow stores, idle cost, clean-up, upgrades."""

from __future__ import annotations

import asyncio
import logging
import random
import sqlite3
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from perdure import AsyncPerdure, Context, task
from perdure.api.service import Caller, Service
from perdure.client.embedded import EmbeddedService
from perdure.core import commands as c
from perdure.core.errors import PerdureError
from perdure.core.model import RetryPolicy
from perdure.core.states import State
from perdure.database import migrate, opened
from perdure.engine.engine import Engine
from perdure.sdk.client import AsyncClient
from perdure.store.base import Store, StoreFault
from perdure.store.postgres import PostgresStore
from perdure.store.sqlite import SqliteStore
from perdure.worker.worker import Worker
from tests.engine.drive import Drive, enqueue
from tests.field.soundness import assert_sound


class Switch:
    """Awaited before every statement: counts them, and makes them slow."""

    def __init__(self, latency: float = 0.0) -> None:
        self.latency = latency
        self.statements = 0

    async def __call__(self) -> None:
        self.statements += 1
        if self.latency:
            await asyncio.sleep(self.latency)


@asynccontextmanager
async def engine_over(url: str, switch: Switch) -> AsyncIterator[Engine]:
    """An engine with all its services."""
    store: Store
    if url.startswith("sqlite"):
        store = SqliteStore(url.partition(":///")[2], switch=switch)
    else:
        store = PostgresStore(url, switch=switch)
    await store.open()
    engine = Engine(store)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()
        await store.close()


def embedded(engine: Engine) -> EmbeddedService:
    return EmbeddedService(Service(engine, Caller("default")))


# ------------------------------------------------------------------------------------------------------ slow, and idle
async def test_b024_a_slow_store_makes_no_success_a_failure(url: str) -> None:
    """Each statement takes 10 ms, six workers share short jobs with short leases, and the alarms look all the time."""

    @task(lease="2s")
    async def short(ctx: Context, seconds: float) -> int:
        await asyncio.sleep(seconds)
        return ctx.attempt

    async with engine_over(url, Switch(0.01)) as engine, AsyncExitStack() as stack:
        client = AsyncClient(embedded(engine))
        for _ in range(6):
            await stack.enter_async_context(Worker(embedded(engine), slots=10))
        chance = random.Random(24)
        jobs = await client.enqueue_many(short, [chance.uniform(0.005, 0.05) for _ in range(100)])
        assert {await job.result(30) for job in jobs} == {1}
        tasks = await assert_sound(engine.store)
        assert {(task.state, task.attempt, task.lost_deliveries) for task in tasks} == {(State.SUCCEEDED, 1, 0)}
        assert await engine.store.attempts([task.id for task in tasks]) == []


async def test_b056_idle_workers_cost_next_to_nothing(url: str) -> None:
    """Ten of them on one server: well under two statements a second each, and a job starts at once all the same."""

    @task
    async def now(ctx: Context, payload: Any) -> float:
        return time.time()

    switch = Switch()
    async with engine_over(url, switch) as engine, AsyncExitStack() as stack:
        for _ in range(10):
            await stack.enter_async_context(Worker(embedded(engine), slots=10))
        await asyncio.sleep(0.8)  # their polls back off
        before = switch.statements
        await asyncio.sleep(1)
        assert switch.statements - before < 2 * 10
        enqueued = time.time()
        assert await (await AsyncClient(embedded(engine)).enqueue(now)).result(10) - enqueued < 1


# ------------------------------------------------------------------------------------------------------ locks of others
HOLDER = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=10)
for seconds in map(float, sys.argv[2:]):
    connection.execute("begin immediate")
    print("locked", flush=True)
    time.sleep(seconds)
    connection.execute("rollback")
    time.sleep(0.3)
"""


async def test_b138_another_process_that_holds_the_file_fails_no_job(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Write locks of up to 2.5 s, longer than a statement waits; enqueues, claims and ends go on after them."""
    path = tmp_path / "jobs.db"

    @task
    async def short(ctx: Context, payload: int) -> int:
        await asyncio.sleep(0.01)
        return ctx.attempt

    async with AsyncPerdure(f"sqlite:///{path}") as app, app.worker(slots=20):
        jobs = await app.enqueue_many(short, range(100))
        holder = await asyncio.create_subprocess_exec(
            sys.executable, "-c", HOLDER, str(path), "0.2", "2.5", "0.1", stdout=asyncio.subprocess.PIPE
        )
        assert holder.stdout is not None
        while await holder.stdout.readline():  # at each lock, and at the end
            jobs += await asyncio.gather(*(app.enqueue(short, 1) for _ in range(25)))
        assert await holder.wait() == 0
        assert len(jobs) == 175
        assert {await job.result(20) for job in jobs} == {1}
    assert "database is locked" not in caplog.text
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_b140_b152_no_deadlock_and_no_noise_among_many_servers(
    postgres_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Three servers on one database insert the same keys in different orders, claim against each other, end jobs and
    prune, all at once. PostgreSQL counts no deadlock, and lost races are no warnings."""
    await migrate(postgres_database)
    until = time.monotonic() + 3
    claimed: set[tuple[bytes, int]] = set()

    async def insert(drive: Drive, chance: random.Random) -> None:
        while time.monotonic() < until:
            keys = [f"k{chance.randrange(3000)}" for _ in range(60)]
            outcomes = await drive.engine.apply([enqueue(key=key, digest=b"d") for key in keys])
            assert not [outcome for outcome in outcomes if isinstance(outcome, PerdureError)]
            await drive.engine.apply([enqueue(retry=RetryPolicy(base=0.001, cap=0.01)) for _ in range(60)])

    async def work(drive: Drive) -> None:
        while time.monotonic() < until:
            tasks = await drive.poll(50, wait=0.2)
            assert claimed.isdisjoint((task.id, task.lease_number) for task in tasks)
            claimed.update((task.id, task.lease_number) for task in tasks)
            done: list[c.Command] = [
                c.Complete(lease=task.lease, outcome="failed", failure=b"\x81\xa7message\xa1x")
                if number % 7 == 0
                else c.Complete(lease=task.lease, outcome="succeeded")
                for number, task in enumerate(tasks)
            ]
            random.shuffle(done)
            if done:
                await drive.engine.apply(done)

    async def prune(drive: Drive) -> None:
        while time.monotonic() < until:
            await drive.engine.apply([c.Trim(closed_before=drive.engine.now(), limit=200)])
            await asyncio.sleep(0.02)

    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(engine_over(postgres_database, Switch())) for _ in range(3)]
        workers = [[Drive(engine, 10 * n + i) for i in range(2)] for n, engine in enumerate(engines)]
        loads = [
            load
            for n, (engine, drives) in enumerate(zip(engines, workers, strict=True))
            for load in (insert(Drive(engine, 1), random.Random(n)), prune(Drive(engine, 2)), *map(work, drives))
        ]
        await asyncio.gather(*loads)
    connection = await asyncpg.connect(postgres_database)
    deadlocks = await connection.fetchval("select deadlocks from pg_stat_database where datname = current_database()")
    await connection.close()
    assert deadlocks == 0
    assert len(claimed) > 1000
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_b148_fifty_handlers_share_a_handful_of_connections(postgres_database: str) -> None:
    """All of them enqueue, and wait for what they enqueued, at the same time. No number has to fit another one."""
    await migrate(postgres_database)
    inside, everybody = 0, asyncio.Event()

    @task(queue="inner")
    async def inner(ctx: Context, payload: int) -> int:
        return payload

    @task
    async def outer(ctx: Context, payload: int) -> int:
        nonlocal inside
        inside += 1
        if inside == 50:
            everybody.set()
        await everybody.wait()
        return int(await (await app.enqueue(inner, payload)).result(20))

    connection = await asyncpg.connect(postgres_database)
    query = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    async with (
        AsyncPerdure(postgres_database) as app,
        app.worker(slots=50, queues=["default"]),
        app.worker(slots=5, queues=["inner"]),
    ):
        jobs = await app.enqueue_many(outer, range(50))
        assert [await job.result(30) for job in jobs] == list(range(50))
        assert await connection.fetchval(query) <= 8
    await connection.close()


# ------------------------------------------------------------------------------------------------------------- clean-up
async def test_b145_clean_up_goes_in_small_steps_beside_the_work(drive: Drive, clock: Any) -> None:
    """Thousands of old jobs, their keys and attempts; no step is larger than its limit, new work is served between
    them, and what is young or open stays. At a million: `make bench`."""
    for _ in range(4):
        await drive.engine.apply([enqueue(key=f"k{_}-{n}") for n in range(500)])
    while tasks := await drive.poll(300):
        await drive.engine.apply([c.Complete(lease=task.lease, outcome="succeeded") for task in tasks])
    clock.advance(30 * 86_400)
    young = await drive.enqueue()
    await drive.succeed(await drive.lease())
    waiting = await drive.enqueue(key="waits", delay=3600)
    before, steps = clock.now() - 3600 * 1_000_000, 0
    while did := (await drive.one(c.Trim(closed_before=before, limit=200))).count:
        assert did <= 200
        steps += 1
        await drive.enqueue()
        assert await drive.succeed(await drive.lease()) == State.SUCCEEDED
    assert steps >= 10
    left = {task.id for task in await assert_sound(drive.engine.store)}
    assert len(left) == 2 + steps
    assert {young, waiting} <= left
    assert await drive.enqueue(key="k0-0", digest=b"another body")  # its key went with it


async def test_b145_the_file_can_be_compacted_while_it_is_open(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    async with AsyncPerdure(f"sqlite:///{path}") as app:
        jobs = await app.enqueue_many("t", ["x" * 10_000] * 500)
        await asyncio.gather(*(job.cancel() for job in jobs))
        service: Any = await app.service()
        engine: Engine = service._service._engine
        while (await engine.apply([c.Trim(closed_before=engine.now(), limit=500)])) != [c.Did(0)]:
            pass
        before = path.stat().st_size
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("vacuum")
        connection.execute("pragma wal_checkpoint(truncate)")
        connection.close()
        assert path.stat().st_size < before / 4
        assert (await (await app.enqueue("t")).status()).state == "ENQUEUED"


# ------------------------------------------------------------------------------------------------------------- upgrades
async def test_b146_migrating_again_waits_for_no_row_and_stops_nobody(postgres_database: str) -> None:
    """Rows are locked by a batch that is under way; it goes on, and so does everybody else."""
    await migrate(postgres_database)
    async with engine_over(postgres_database, Switch()) as engine:
        drive = Drive(engine)
        held = await drive.enqueue()
        async with engine.store.batch() as rows:
            assert held in await rows.lock([held])
            async with asyncio.timeout(5):
                assert await migrate(postgres_database) == []
                assert await drive.enqueue()


async def test_b147_a_migration_that_was_killed_is_run_again(postgres_database: str) -> None:
    """Its connection is ended in the middle: nothing of it is left, and the next run does it all."""
    blocker = await asyncpg.connect(postgres_database)
    transaction = blocker.transaction()
    await transaction.start()
    await blocker.execute("create schema perdure")  # the migration wants to make it too, and waits
    migrating = asyncio.create_task(PostgresStore(postgres_database).migrate())
    other = await asyncpg.connect(postgres_database)
    waiting = "select pid from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    async with asyncio.timeout(20):
        while (pid := await other.fetchval(waiting)) is None:
            await asyncio.sleep(0.01)
    await other.execute("select pg_terminate_backend($1)", pid)
    with pytest.raises(StoreFault):
        await migrating
    await transaction.rollback()
    assert await other.fetchval("select count(*) from pg_namespace where nspname = 'perdure'") == 0
    await blocker.close()
    await other.close()
    done = await asyncio.gather(*(migrate(postgres_database) for _ in range(2)))
    assert sorted(map(len, done))[0] == 0
    async with opened(postgres_database) as store:
        assert await store.next_alarm() is None
