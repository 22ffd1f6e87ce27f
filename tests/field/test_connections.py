"""Field cases on lost connections, databases that restart, and networks that go away for a while."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from perdure import AsyncPerdure, Context, RetryPolicy, task
from perdure.api import rest
from perdure.api.server import App, Server
from perdure.client.http import HttpService
from perdure.core import messages as m
from perdure.core.errors import OutcomeUnknown
from perdure.database import migrate, opened
from perdure.engine import outage
from perdure.engine.engine import Engine
from perdure.sdk import client
from tests.api.calls import new_rest
from tests.conftest import PostgresServer
from tests.field.proxy import own_server, switched
from tests.field.soundness import assert_sound


@asynccontextmanager
async def serving(url: str) -> AsyncIterator[Server]:
    """A server over a database."""
    async with opened(url) as store:
        engine = Engine(store)
        await engine.start()
        server = Server(App(engine), port=0)
        await server.start()
        try:
            yield server
        finally:
            await asyncio.gather(server.stop(), engine.stop())


async def health(server: Server) -> int:
    async with new_rest(server.url) as ask:
        return (await ask("GET", "/healthz")).status


async def test_b031_b033_workers_come_back_after_breaks_and_an_outage(
    postgres_server: PostgresServer, postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All database connections are ended three times in a row, then the network is gone for a while, longer than
    callers are kept waiting. Three workers on a server claim again by themselves within five seconds; health tells;
    nothing is lost and nothing doubled; an alarm that came due meanwhile rings (B034, for jobs)."""
    monkeypatch.setattr(outage, "PATIENCE", 0.7)
    monkeypatch.setattr(rest, "_UNHEALTHY", 0.7)
    ran: Counter[int] = Counter()

    @task
    async def count(ctx: Context, payload: int) -> int:
        ran[payload] += 1
        await asyncio.sleep(0.02)
        return payload

    await migrate(postgres_database)
    async with AsyncExitStack() as stack:
        switch = await stack.enter_async_context(switched(postgres_server))
        server = await stack.enter_async_context(serving(switch.url(postgres_database)))
        app = await stack.enter_async_context(AsyncPerdure(server.url))
        for _ in range(3):
            await stack.enter_async_context(app.worker(slots=5, drain_seconds=1))
        jobs = await app.enqueue_many(count, range(300))
        delayed = await app.enqueue(count, 1000, delay=2)
        for _ in range(3):
            await asyncio.sleep(0.3)
            postgres_server.run(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                f" where datname = '{postgres_database.partition('?')[0].rpartition('/')[2]}'"
            )
        jobs += await app.enqueue_many(count, range(300, 310))
        begin = time.monotonic()
        assert await jobs[-1].result(20) == 309
        assert time.monotonic() - begin < 5
        assert await health(server) == 200
        jobs += await app.enqueue_many(count, range(310, 500))
        switch.off()
        waiting = asyncio.create_task(app.enqueue(count, 500))
        await asyncio.sleep(2.5)
        assert await health(server) == 503
        assert not waiting.done()  # the client waits an outage of 30 s out
        await switch.on()
        begin = time.monotonic()
        jobs.append(await waiting)
        assert await jobs[-1].result(20) == 500
        assert time.monotonic() - begin < 5
        assert await health(server) == 200
        assert [await job.result(20) for job in jobs] == list(range(501))
        assert await delayed.result(5) == 1000
        spent = Counter([(await job.status()).attempt for job in jobs])
    assert sum(ran.values()) == 502 + sum((attempt - 1) * number for attempt, number in spent.items())
    assert set(ran) == {*range(501), 1000}
    assert spent[1] > 480  # a batch may have been cut off between its commit and its answer
    async with opened(postgres_database) as store:
        assert len(await assert_sound(store)) == 502


async def test_b013_recovery_goes_on_after_a_crash_of_the_database() -> None:
    """A worker takes 250 jobs and is gone without a word; PostgreSQL crashes while they are recovered and is away for
    a while. All end by themselves."""
    ran: Counter[int] = Counter()

    @task(lease="1s", retries=RetryPolicy(max_attempts=5, base=0.1))
    async def count(ctx: Context, payload: int) -> int:
        ran[payload] += 1
        return payload

    with own_server() as postgres:
        postgres.run("create database jobs")
        url = postgres.url("jobs")
        await migrate(url)
        async with serving(url) as server, AsyncPerdure(server.url) as app:
            jobs = await app.enqueue_many(count, range(250))
            gone = HttpService(server.url, transport="http")  # no connection whose end would tell of its death
            taken = (await gone.poll(m.Poll(1, 1, ["default"], 250))).tasks
            await gone.heartbeat(m.Heartbeat(1, [m.Beat(delivery.lease) for delivery in taken]))
            await gone.close()
            assert len(taken) == 250
            await asyncio.sleep(1.1)  # their leases are over: recovery begins
            await asyncio.to_thread(postgres.crash)
            await asyncio.sleep(1)
            await asyncio.to_thread(postgres.start)
            async with app.worker():
                begin = time.monotonic()
                assert [await job.result(40) for job in jobs] == list(range(250))
                assert time.monotonic() - begin < 31
            views: list[Any] = [await job.status() for job in jobs[:20]]
        assert {"lost"} <= {attempt.outcome for view in views for attempt in view.attempts}
        async with opened(url) as store:
            assert len(await assert_sound(store)) == 250
    assert set(ran.values()) == {1}


async def test_b033_items_that_the_server_could_not_take_are_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long outage, or the stop of a server, is the answer to some items of a request: only those are repeated, each
    caller hears of its own, and what never gets through is an error of its own caller alone."""
    monkeypatch.setattr(client, "_RETRY_SECONDS", (0.0, 0.0))
    requests: list[list[m.NewTask]] = []
    left = 3

    class Struggling:
        async def enqueue(self, body: m.Enqueue) -> m.EnqueueReply:
            nonlocal left
            left -= 1
            requests.append(body.tasks)
            away = OutcomeUnknown("away").problem() if left > 0 else None
            return m.EnqueueReply([m.Enqueued(i.type, error=away if i.type != "b" else None) for i in body.tasks])

    service: Any = Struggling()
    jobs = await asyncio.gather(*(client.AsyncClient(service).enqueue(name) for name in "a"))
    assert [job.id for job in jobs] == ["a"]
    assert len({item.minted for [item] in requests}) == 1
    requests.clear()
    left = 3
    several = client.AsyncClient(service)
    assert [job.id for job in await asyncio.gather(*map(several.enqueue, "abc"))] == ["a", "b", "c"]
    assert [item.type for item in requests[0]] == ["a", "b", "c"]
    assert {item.type for items in requests[1:] for item in items} == {"a", "c"}
    assert len({item.minted for items in requests for item in items}) == 3
    monkeypatch.setattr(client, "OUTAGE_SECONDS", 0.0)
    left = 100
    outcomes = await asyncio.gather(*map(several.enqueue, "abc"), return_exceptions=True)
    assert [type(outcome).__name__ for outcome in outcomes] == ["OutcomeUnknown", "AsyncJob", "OutcomeUnknown"]
