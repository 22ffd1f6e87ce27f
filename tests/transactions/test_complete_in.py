"""`ctx.complete_in`: a job's success in the application's own transaction, exactly once with its writes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import asyncpg
import psycopg
import pytest

from perdure import AsyncPerdure, Cancelled, Context, InvalidArgument, LeaseLost, PayloadTooLarge, Perdure, task
from perdure.core import decide
from perdure.core.commands import Complete
from perdure.core.ids import lease_token, text
from perdure.core.messages import Delivery
from perdure.core.model import Lease, Payloads, RetryPolicy, Task, unpack
from perdure.core.states import State
from perdure.sdk.converter import PLAIN
from perdure.store.postgres import PostgresStore
from tests.clock import SteppedClock
from tests.store.rows import changed, close, closed, insert_leased, plain, read, task_id
from tests.store.test_succeed import BEFORE, NEWS, done, leased
from tests.transactions.drivers import Driver

Query = Callable[..., list[tuple[Any, ...]]]


# ------------------------------------------------------------------------------------------------- the function alone
@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
async def store(url: str, clock: SteppedClock) -> AsyncIterator[PostgresStore]:
    made = PostgresStore(url, clock=clock.now)
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def connection(url: str, clock: SteppedClock) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """On the test's clock."""
    made = await asyncpg.connect(url)
    yield made
    await made.close()


async def complete(
    connection: asyncpg.Connection[asyncpg.Record], clock: SteppedClock, lease: Lease, **news: bytes
) -> None:
    await connection.fetch("select set_config('perdure.now', $1, false)", str(clock.now()))
    await connection.fetch(
        "select perdure.complete_v1($1, $2, $3, $4)",
        lease_token(lease), b"result", news.get("progress"), news.get("checkpoint"),
    )  # fmt: skip


@pytest.mark.parametrize("news", NEWS)
@pytest.mark.parametrize("before", BEFORE)
async def test_it_leaves_what_decide_succeed_says(
    store: PostgresStore, connection: Any, clock: SteppedClock, before: str, news: dict[str, bytes]
) -> None:
    """LEASE-05, TASK-03: the contract of the statement `succeed`, for the function."""
    task, twin = [await leased(store, n, **BEFORE[before]) for n in (1, 2)]
    clock.advance(2)
    async with store.batch() as batch:
        held = (await batch.lock([twin.id]))[twin.id]
        await batch.close([decide.succeed(held, done(twin, **news), batch.now).task])
    await complete(connection, clock, task.lease, **news)
    assert plain(await read(store, 1)) == changed(await read(store, 2), id=task.id)
    async with store.batch() as batch:
        assert await batch.lock([task.id]) == {}


@pytest.mark.parametrize(("number", "bits"), [(2, 77), (0, 77), (1, 78), (1, -77)])
async def test_a_stale_lease_closes_nothing(
    store: PostgresStore, connection: Any, clock: SteppedClock, number: int, bits: int
) -> None:
    task = await insert_leased(store, 1)
    with pytest.raises(asyncpg.PostgresError, match="leased again, to w1") as caught:
        await complete(connection, clock, Lease(task.id, number, bits))
    assert caught.value.sqlstate == "PD410"
    assert await read(store, 1) == task


@pytest.mark.parametrize("state", list(State))
async def test_why_it_is_lost_is_said_as_elsewhere(
    store: PostgresStore, connection: Any, clock: SteppedClock, state: State
) -> None:
    task = await insert_leased(store, 1)
    if state >= State.SUCCEEDED:
        await close(store, closed(task, state))
    else:
        async with store.batch() as batch:
            await batch.lock([task.id])
            await batch.change([changed(task, state=state, lease_number=2)])
    with pytest.raises(asyncpg.PostgresError) as caught:
        await complete(connection, clock, task.lease)
    assert caught.value.sqlstate == "PD410"
    assert str(caught.value) == decide.why_lost(await read(store, 1))


async def test_no_task_no_lease(store: PostgresStore, connection: Any, clock: SteppedClock) -> None:
    with pytest.raises(asyncpg.PostgresError, match="there is no such task any more"):
        await complete(connection, clock, Lease(task_id(9), 1, 1))


@pytest.mark.parametrize("arguments", ["null, 'x'", "'x', 'x'", "repeat('x', 28)::bytea, ''", "'x', null"])
async def test_bad_arguments(connection: Any, store: PostgresStore, arguments: str) -> None:
    with pytest.raises(asyncpg.PostgresError) as caught:
        await connection.fetch(f"select perdure.complete_v1({arguments})")
    assert caught.value.sqlstate == "PD400"


async def test_a_report_behind_it_gets_the_recorded_answer(
    store: PostgresStore, connection: Any, clock: SteppedClock
) -> None:
    """LEASE-05: by decide.complete, whatever is reported."""
    task = await insert_leased(store, 1)
    await complete(connection, clock, task.lease)
    after: Task = await read(store, 1)
    for outcome in ("succeeded", "failed", "released", "canceled"):
        assert decide.recorded(after, Complete(lease=task.lease, outcome=outcome)) is State.SUCCEEDED


# -------------------------------------------------------------------------------------------- a context, every driver
async def leased_at(url: str, n: int) -> tuple[Context, Task]:
    store = PostgresStore(url)
    await store.open()
    task = await insert_leased(store, n)
    await store.close()
    delivery = Delivery(text(task.id), lease_token(task.lease), task.type, task.queue, 1, 5)
    return Context(delivery, lambda: None), task


def state_of(query: Query, task: Task) -> State:
    sql = "select state from perdure.tasks where id = %s union all select state from perdure.closed_tasks where id = %s"
    return State(query(sql, text(task.id), text(task.id))[0][0])


def test_commit_is_both(driver: Driver, url: str, query: Query) -> None:
    """TASK-25: the effect and the end of the job in one transaction, with progress and checkpoint."""
    ctx, task = asyncio.run(leased_at(url, 1))
    ctx.checkpoint({"at": 3})
    ctx.progress(3, 3)
    driver.execute("insert into orders values (1)")
    driver.complete(ctx, {"sent": True})
    assert state_of(query, task) is State.LEASED
    driver.commit()
    assert (state_of(query, task), query("select id from orders")) == (State.SUCCEEDED, [(1,)])
    result, checkpoint = query("select result, checkpoint from perdure.closed_tasks")[0]
    assert PLAIN.from_payloads(unpack(result, Payloads), "result") == {"sent": True}
    assert PLAIN.from_payloads(unpack(checkpoint, Payloads), "checkpoint") == {"at": 3}


def test_rollback_is_neither(driver: Driver, url: str, query: Query) -> None:
    ctx, task = asyncio.run(leased_at(url, 1))
    driver.execute("insert into orders values (1)")
    driver.complete(ctx, None)
    driver.rollback()
    assert (state_of(query, task), query("select id from orders")) == (State.LEASED, [])
    driver.begin()
    driver.complete(ctx, "again")
    driver.commit()
    assert state_of(query, task) is State.SUCCEEDED


def test_a_lost_lease_makes_the_transaction_useless(driver: Driver, url: str, query: Query) -> None:
    """TASK-24: LeaseLost, and what the application wrote cannot be committed any more."""
    ctx, _ = asyncio.run(leased_at(url, 1))
    query("update perdure.tasks set lease_number = 2")
    driver.execute("insert into orders values (1)")
    with pytest.raises(LeaseLost, match="leased again"):
        driver.complete(ctx, None)
    driver.commit()
    assert query("select id from orders") == []
    assert ctx.stop == "lost"
    with pytest.raises(Cancelled):
        driver.complete(ctx, None)


def test_twice_is_once(driver: Driver, url: str, query: Query) -> None:
    """A second transaction of the same attempt, as after a commit whose answer was lost, writes nothing."""
    ctx, _ = asyncio.run(leased_at(url, 1))
    driver.execute("insert into orders values (1)")
    driver.complete(ctx, None)
    driver.commit()
    driver.begin()
    driver.execute("insert into orders values (2)")
    with pytest.raises(LeaseLost, match="the task is SUCCEEDED"):
        driver.complete(ctx, None)
    driver.rollback()
    assert query("select id from orders") == [(1,)]


def test_bad_results_are_refused_before_the_database_is_asked(driver: Driver, url: str, query: Query) -> None:
    ctx, task = asyncio.run(leased_at(url, 1))
    driver.execute("insert into orders values (1)")
    for bad, error in ((object(), InvalidArgument), (float("nan"), InvalidArgument), ("x" * 2**18, PayloadTooLarge)):
        with pytest.raises(error) as caught:
            driver.complete(ctx, bad)
        assert caught.value.field == "result"
    assert not ctx.handed_over
    driver.commit()
    assert (state_of(query, task), query("select id from orders")) == (State.LEASED, [(1,)])


def test_no_other_database(url: str) -> None:
    ctx, _ = asyncio.run(leased_at(url, 1))
    with pytest.raises(TypeError, match="no connection to PostgreSQL"):
        ctx.complete_in(object())


# -------------------------------------------------------------------------------------------------------- in a worker
AGAIN = RetryPolicy(max_attempts=3, base=0.01, cap=0.01)


@task(retries=AGAIN)
async def tx_async(ctx: Context, payload: dict[str, Any]) -> str:
    connection = await asyncpg.connect(payload["url"])
    try:
        async with connection.transaction():
            await connection.execute("insert into orders values ($1)", payload["order"])
            await ctx.complete_in(connection, "from the transaction")
        await asyncio.sleep(payload.get("after", 0))
    finally:
        await connection.close()
    return "not this"


@task(retries=AGAIN)
def tx_plain(ctx: Context, payload: dict[str, Any]) -> str:
    with psycopg.connect(payload["url"]) as connection:
        connection.execute("insert into orders values (%s)", (payload["order"],))
        ctx.complete_in(connection, "from the transaction")
    return "not this"


@task(retries=AGAIN)
def tx_forgets(ctx: Context, payload: dict[str, Any]) -> int:
    """Returns without a commit the first time."""
    with psycopg.connect(payload["url"]) as connection:
        connection.execute("insert into orders values (%s)", (ctx.attempt,))
        ctx.complete_in(connection, ctx.attempt)
        if ctx.attempt == 1:
            connection.rollback()
    return -1


@task(retries=AGAIN)
def tx_raises(ctx: Context, payload: dict[str, Any]) -> str:
    """Raises after its commit: the job is over nevertheless."""
    with psycopg.connect(payload["url"]) as connection:
        ctx.complete_in(connection, "committed")
    raise RuntimeError("too late")


@task(retries=AGAIN)
async def tx_unawaited(ctx: Context, payload: dict[str, Any]) -> int:
    """Forgets the await the first time."""
    connection = await asyncpg.connect(payload["url"])
    async with connection.transaction():
        call = ctx.complete_in(connection, ctx.attempt)
        if ctx.attempt == 1:
            call.close()  # what a coroutine that nobody awaits comes to
        else:
            await call
    await connection.close()
    return -1


def test_workers_record_what_the_transaction_says(
    app: Perdure, url: str, query: Query, caplog: pytest.LogCaptureFixture
) -> None:
    """Async and plain; one attempt, one row, the result of the transaction, and no line about a failure."""
    with app.worker(), caplog.at_level(logging.WARNING, "perdure"):
        jobs = [app.enqueue(which, {"url": url, "order": n}) for n, which in enumerate((tx_async, tx_plain))]
        assert [job.result(timeout=20) for job in jobs] == ["from the transaction"] * 2
        assert [job.status().attempt for job in jobs] == [1, 1]
    assert query("select id from orders order by id") == [(0,), (1,)]
    assert [record.message for record in caplog.records if record.name.startswith("perdure")] == []


@pytest.mark.parametrize("handler", [tx_forgets, tx_unawaited])
def test_a_return_without_a_commit_is_a_failed_attempt(app: Perdure, url: str, query: Query, handler: Any) -> None:
    """It never counts as a success, because the application's writes are gone."""
    with app.worker():
        job = app.enqueue(handler, {"url": url})
        assert job.result(timeout=20) == 2
        first = job.status().attempts[0]
    assert first.failure is not None
    assert (first.outcome, first.failure.code) == ("failed", "not_committed")
    assert query("select id from orders") == ([(2,)] if handler is tx_forgets else [])


def test_what_happens_after_the_commit_changes_nothing(app: Perdure, url: str) -> None:
    with app.worker():
        job = app.enqueue(tx_raises, {"url": url})
        assert job.result(timeout=20) == "committed"
        time.sleep(0.3)  # longer than the back-off
        assert (job.status().attempt, job.status().state) == (1, "SUCCEEDED")


async def test_a_handler_may_go_on_after_its_commit(url: str, query: Query) -> None:
    """Heartbeats hear that there is no lease any more; that is no reason to interrupt what is left to do."""
    ended = asyncio.Event()

    @task(name="tx_goes_on", lease="1s")
    async def goes_on(ctx: Context, payload: None) -> int:
        connection = await asyncpg.connect(url)
        async with connection.transaction():
            await ctx.complete_in(connection, 1)
        await asyncio.sleep(1.2)
        await connection.close()
        ended.set()
        return 2

    async with AsyncPerdure(url) as app, app.worker(tasks=[goes_on]):
        job = await app.enqueue(goes_on)
        assert await job.result(timeout=10) == 1
        await asyncio.wait_for(ended.wait(), 10)
        assert (await job.status()).attempt == 1


async def test_an_open_transaction_keeps_nobody_elses_report(url: str) -> None:
    """B148: a handler that returns while its transaction is open waits alone; the others' jobs end meanwhile."""
    connection = await asyncpg.connect(url)
    transaction = connection.transaction()

    @task(name="tx_leaks", retries=AGAIN)
    async def leaks(ctx: Context, payload: None) -> str:
        await transaction.start()
        await ctx.complete_in(connection, "late")
        return "not this"

    @task(name="tx_other")
    async def other(ctx: Context, payload: None) -> str:
        return "done"

    async with AsyncPerdure(url) as app, app.worker(tasks=[leaks, other]):
        late = await app.enqueue(leaks)
        while not connection.is_in_transaction():
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        for _ in range(3):
            assert await (await app.enqueue(other)).result(timeout=5) == "done"
        await transaction.commit()
        assert await late.result(timeout=10) == "late"
        assert (await late.status()).attempt == 1
    await connection.close()


async def test_the_transaction_must_not_idle(url: str, connection: Any) -> None:
    """The task's row is locked: a client that went to sleep with it is thrown out after 30 s."""
    async with connection.transaction():
        store = PostgresStore(url)
        await store.open()
        task = await insert_leased(store, 1)
        await store.close()
        await connection.fetch("select perdure.complete_v1($1, $2)", lease_token(task.lease), b"result")
        assert await connection.fetchval("show idle_in_transaction_session_timeout") == "30s"
    assert await connection.fetchval("show idle_in_transaction_session_timeout") == "0"
