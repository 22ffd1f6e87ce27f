"""`app.enqueue_in`: a job that exists exactly if the application's transaction commits, on every driver."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from perdure import (
    AsyncPerdure,
    Conflict,
    IdempotencyConflict,
    InvalidArgument,
    PayloadTooLarge,
    Perdure,
    PermissionDenied,
    RetryPolicy,
)
from perdure.core.messages import TimeoutOptions
from tests.transactions.drivers import DRIVERS, Driver, Psycopg

Query = Callable[..., list[tuple[Any, ...]]]


def jobs(query: Query) -> int:
    count: int = query("select count(*) from perdure.tasks")[0][0]
    return count


def row(query: Query, task_id: str) -> dict[str, Any]:
    """An open task, by column."""
    found: dict[str, Any] = query("select to_jsonb(tasks) from perdure.tasks where id = %s", task_id)[0][0]
    return found


def test_a_commit_makes_both_and_no_less(driver: Driver, app: Perdure, query: Query) -> None:
    """TASK-04: nothing is there before the commit; then the application's row and the job."""
    driver.execute("insert into orders values (1)")
    job = driver.enqueue(app, "ship", {"order": 1})
    assert not job.duplicate
    assert jobs(query) == 0
    driver.commit()
    assert query("select id from orders") == [(1,)]
    view = app.get(job.id)
    assert (view.state, view.type, view.queue, view.priority) == ("ENQUEUED", "ship", "default", 3)
    assert uuid.UUID(job.id).version == 7


def test_a_rollback_leaves_nothing(driver: Driver, app: Perdure, query: Query) -> None:
    """TASK-01: what was rolled back was never enqueued, and its key is free."""
    driver.execute("insert into orders values (1)")
    driver.enqueue(app, "ship", idempotency_key="order 1")
    driver.rollback()
    assert (jobs(query), query("select count(*) from perdure.keys")) == (0, [(0,)])
    assert not app.enqueue("ship", "another", idempotency_key="order 1").duplicate


def test_a_savepoint_takes_its_jobs_with_it(driver: Driver, app: Perdure, query: Query) -> None:
    kept = driver.enqueue(app, "ship", 1)
    driver.execute("savepoint here")
    driver.enqueue(app, "ship", 2)
    driver.execute("rollback to savepoint here")
    driver.commit()
    assert query("select id::text from perdure.tasks") == [(kept.id,)]


def test_a_repeated_key_finds_the_first_job(driver: Driver, app: Perdure, query: Query) -> None:
    """IDEM-01, IDEM-03: within the transaction, after it, and over the API, whichever was first."""
    first = driver.enqueue(app, "ship", {"order": 1}, idempotency_key="order 1")
    again = driver.enqueue(app, "ship", {"order": 1}, idempotency_key="order 1")
    driver.commit()
    by_api = app.enqueue("ship", {"order": 1}, idempotency_key="order 1")
    other = app.enqueue("ship", {"order": 2}, idempotency_key="order 2")
    found = driver.enqueue(app, "ship", {"order": 2}, idempotency_key="order 2")
    assert [job.id for job in (again, by_api)] == [first.id] * 2
    assert [job.duplicate for job in (first, again, by_api)] == [False, True, True]
    assert (found.id, found.duplicate) == (other.id, True)
    driver.commit()
    assert jobs(query) == 2


def test_a_key_with_another_body_ends_the_transaction(driver: Driver, app: Perdure, query: Query) -> None:
    """IDEM-15: the error of the API, from a database that then refuses the commit; a savepoint confines it."""
    app.enqueue("ship", {"order": 1}, idempotency_key="order 1")
    driver.execute("insert into orders values (1)")
    driver.execute("savepoint here")
    with pytest.raises(IdempotencyConflict) as caught:
        driver.enqueue(app, "ship", {"order": 2}, idempotency_key="order 1")
    assert caught.value.field == "idempotency_key"
    driver.execute("rollback to savepoint here")
    driver.enqueue(app, "ship", {"order": 2}, idempotency_key="order 2")
    driver.commit()
    assert (jobs(query), query("select id from orders")) == (2, [(1,)])


BAD: dict[str, tuple[type[InvalidArgument], str, tuple[Any, ...], dict[str, Any]]] = {
    "type": (InvalidArgument, "type", ("",), {}),
    "queue with NUL": (InvalidArgument, "queue", ("t",), {"queue": "a\x00b"}),
    "queue with a surrogate": (InvalidArgument, "queue", ("t",), {"queue": "\ud800"}),
    "long queue": (InvalidArgument, "queue", ("t",), {"queue": "q" * 10_000}),
    "priority": (InvalidArgument, "priority", ("t",), {"priority": 9}),
    "delay": (InvalidArgument, "delay", ("t",), {"delay": -1}),
    "NaN": (InvalidArgument, "delay", ("t",), {"delay": float("nan")}),
    "naive run_at": (InvalidArgument, "run_at", ("t",), {"run_at": datetime(2030, 1, 1)}),
    "attempts": (InvalidArgument, "retry.max_attempts", ("t",), {"retry": RetryPolicy(max_attempts=0)}),
    "payload": (InvalidArgument, "payload", ("t", float("inf")), {}),
    "large payload": (PayloadTooLarge, "payload", ("t", "x" * 256 * 1024), {}),
    "key": (InvalidArgument, "idempotency_key", ("t",), {"idempotency_key": "a\nb"}),
}


@pytest.mark.parametrize("bad", BAD)
def test_bad_input_is_refused_as_by_the_api_and_ends_nothing(app: Perdure, url: str, query: Query, bad: str) -> None:
    """The same error with the same words, and before the database is asked: the transaction goes on."""
    kind, field, arguments, options = BAD[bad]
    driver = Psycopg(url)
    driver.enqueue(app, "ship")
    with pytest.raises(kind) as caught:
        driver.enqueue(app, *arguments, **options)
    with pytest.raises(kind) as by_api:
        app.enqueue(*arguments, **options)
    assert str(caught.value) == str(by_api.value)
    assert (caught.value.field, caught.value.limit) == (field, by_api.value.limit)
    driver.commit()
    driver.close()
    assert jobs(query) == 1


OPTIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "delay": {"delay": "1h"},
    "run_at": {"run_at": datetime(2040, 1, 1, tzinfo=UTC)},
    "past": {"run_at": datetime(2001, 1, 1, tzinfo=UTC)},
    "place": {"queue": "mail", "priority": 1, "fairness_key": "customer 7"},
    "text": {"headers": {"user": "Ωmega"}, "queue": "файл"},
    "retry": {"retry": RetryPolicy(max_attempts=9, base=0.5, fatal_types=("A",))},
    "timeouts": {"timeouts": TimeoutOptions(schedule_to_start=60, start_to_close=5, schedule_to_close="2h", lease=3)},
}


@pytest.mark.parametrize("options", OPTIONS)
def test_the_job_is_as_the_api_makes_it(driver: Driver, app: Perdure, query: Query, options: str) -> None:
    """TASK-05, TASK-13: every column but ids, times and the place, which a server gives."""
    payload = {"text": "Ωmega", "list": [1, 2.5, None, True]}
    by_sql = driver.enqueue(app, "ship", payload, **OPTIONS[options])
    driver.commit()
    ours = row(query, by_sql.id)  # before a server runs, which gives it a place
    by_api = app.enqueue("ship", payload, **OPTIONS[options])
    theirs = row(query, by_api.id)
    differ = {key for key in ours if ours[key] != theirs[key]}
    assert differ <= {"id", "created_at", "updated_at", "ready_at", "wake_at", "place", "expires_at", "deadline"}
    for column in ("expires_at", "deadline"):
        after = [found[column] and found[column] - found["created_at"] for found in (ours, theirs)]
        assert after[0] == after[1]
    asked = OPTIONS[options].get("run_at")
    start = ours["created_at"] + (3600_000_000 if options == "delay" else 0)
    if asked is not None:
        start = max(start, int(asked.timestamp() * 1_000_000))
    assert ours["ready_at"] == ours["wake_at"] == start
    assert ours["place"] is None


def test_it_runs_and_its_result_is_seen(app: Perdure, url: str) -> None:
    """A job of an un-keyed, a keyed and a delayed call, through a worker; the handle is that of an enqueue."""
    from tests.transactions.jobs import double

    driver = Psycopg(url)
    made = [
        driver.enqueue(app, double, 1),
        driver.enqueue(app, double, 2, idempotency_key="k"),
        driver.enqueue(app, double, 3, delay=timedelta(seconds=0.3)),
    ]
    driver.commit()
    driver.close()
    with app.worker(tasks=[double]):
        assert [job.result(timeout=20) for job in made] == [2, 4, 6]


def test_what_cannot_be_a_connection_is_named() -> None:
    with pytest.raises(TypeError, match=r"sqlite3\.Connection is no connection to PostgreSQL"):
        import sqlite3

        Perdure("sqlite:///:memory:").enqueue_in(sqlite3.connect(":memory:"), "t")


@pytest.mark.parametrize("name", ["asyncpg", "psycopg async", "sqlalchemy async session"])
def test_blocking_code_cannot_use_an_async_connection(url: str, app: Perdure, name: str) -> None:
    driver = DRIVERS[name](url)
    with pytest.raises(TypeError, match="is for async code: use AsyncPerdure"):
        app.enqueue_in(driver.connection, "t")
    driver.close()


async def test_async_code_cannot_use_a_blocking_connection(url: str) -> None:
    with psycopg.connect(url) as connection:
        async with AsyncPerdure(url) as app:
            with pytest.raises(TypeError, match="blocks the event loop"):
                await app.enqueue_in(connection, "t")


def test_a_database_without_the_schema_is_told(postgres_database: str, driver_without_schema: Driver) -> None:
    with pytest.raises(Conflict, match="perdure migrate"):
        driver_without_schema.enqueue(Perdure(postgres_database), "t")


@pytest.fixture(params=DRIVERS)
def driver_without_schema(request: pytest.FixtureRequest, postgres_database: str) -> Any:
    made = DRIVERS[request.param](postgres_database)
    yield made
    made.close()


def test_a_role_without_rights_is_told(driver: Driver, app: Perdure, query: Query) -> None:
    query("create role stranger_" + driver.__class__.__name__.lower())
    driver.execute("set local role stranger_" + driver.__class__.__name__.lower())
    with pytest.raises(PermissionDenied, match="permission denied"):
        driver.enqueue(app, "t")
    driver.rollback()
