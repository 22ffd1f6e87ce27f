"""How soon a commit is noticed: a parked worker starts the job, and whoever waits for its result hears of its end."""

from __future__ import annotations

import asyncio
import statistics
import time
from queue import SimpleQueue
from typing import Any

import asyncpg
import pytest

from perdure import AsyncPerdure, Context, task
from perdure.engine import hints
from perdure.store.postgres import PostgresStore

SOON = 0.1
"""Seconds. A look without a notification comes after 0.125 on average; a notification takes 0.01 if all is quiet."""
TRIES = 15

started: SimpleQueue[float] = SimpleQueue()


async def next_start() -> float:
    """When the next job started."""
    return await asyncio.to_thread(started.get, timeout=5)


@task(name="notices_start")
async def start(ctx: Context, payload: dict[str, Any] | None) -> None:
    started.put(time.monotonic())


async def delays(app: AsyncPerdure, url: str, *, pause: float = 0.12, open_for: float = 0.0) -> list[float]:
    """Seconds from each commit to the start of its job."""
    connection = await asyncpg.connect(url)
    found = []
    try:
        for _ in range(TRIES):
            await asyncio.sleep(pause)
            transaction = connection.transaction()
            await transaction.start()
            await app.enqueue_in(connection, start)
            await asyncio.sleep(open_for)
            committed = time.monotonic()
            await transaction.commit()
            found.append(await next_start() - committed)
    finally:
        await connection.close()
    return found


async def test_a_parked_worker_starts_at_once(url: str) -> None:
    """B056, PERS-11: by the notification that comes with the commit."""
    async with AsyncPerdure(url) as app, app.worker(tasks=[start]):
        await delays(app, url)
        assert statistics.median(await delays(app, url)) < SOON


async def test_a_slow_transaction_is_noticed_as_soon(url: str) -> None:
    """The alarm has been due for a while when the commit comes."""
    async with AsyncPerdure(url) as app, app.worker(tasks=[start]):
        assert statistics.median(await delays(app, url, open_for=0.4)) < SOON


async def test_a_worker_of_another_server_starts_at_once(url: str) -> None:
    """Whichever server rings the alarm: the one whose worker is parked hears of it."""
    async with AsyncPerdure(url) as one, AsyncPerdure(url) as two, one.worker(tasks=[start]):
        await two.enqueue("elsewhere", queue="elsewhere")
        await asyncio.sleep(1.2)  # they have heard of each other
        assert statistics.median(await delays(two, url)) < 2 * SOON


async def test_a_lost_notification_costs_a_look(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """PERS-11: losing it only costs latency: the alarms are looked at four times a second."""
    monkeypatch.setattr(hints.Hints, "_heard", lambda self, data: None)
    async with AsyncPerdure(url) as app, app.worker(tasks=[start]):
        await app.enqueue(start)
        await next_start()
        found = await delays(app, url, pause=0.03)
    assert max(found) < 0.25 + 4 * SOON
    assert statistics.median(found) > 0.02, "then nothing was lost"


async def test_a_waiter_hears_of_a_commit(url: str) -> None:
    """JOB-14: not after the second that a watch looks by itself."""

    @task(name="notices_complete")
    async def complete(ctx: Context, payload: None) -> float:
        connection = await asyncpg.connect(url)
        transaction = connection.transaction()
        await transaction.start()
        await ctx.complete_in(connection, time.monotonic())
        await transaction.commit()
        await asyncio.sleep(0.3)  # the report comes later
        await connection.close()
        return 0.0

    found = []
    async with AsyncPerdure(url) as app, app.worker(tasks=[complete]):
        for _ in range(7):
            job = await app.enqueue(complete)
            ended = await job.result(timeout=10)
            found.append(time.monotonic() - ended)
    assert statistics.median(found) < SOON


async def test_a_notification_is_no_server(url: str) -> None:
    """Other servers cost something (hints, rounds): an application that enqueues is none."""
    async with AsyncPerdure(url) as app, app.worker(tasks=[start]):
        await delays(app, url, pause=0.0)
        engine = (await app.service())._service._engine  # type: ignore[attr-defined]
        assert not engine._hints.others


async def test_a_store_that_stops_while_it_begins_to_listen_leaks_no_connection(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop could not be closed then, for it waited for that connection for ever."""
    seen: list[asyncpg.Connection[asyncpg.Record]] = []
    asked = asyncio.Event()

    async def never(self: asyncpg.Connection[asyncpg.Record], *_: object) -> None:
        seen.append(self)
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncpg.Connection, "add_listener", never)
    store = PostgresStore(url)
    await store.open()
    listening = asyncio.create_task(store.listen(lambda _hint: None))
    await asked.wait()
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    await store.close()
    assert seen[0].is_closed()
