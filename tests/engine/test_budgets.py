"""Constant statements per batch, whatever the number of rows: the budgets of DESIGN section 3."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from perdure.core import commands as c
from perdure.core.model import Timeouts
from perdure.store.base import Store
from tests.clock import SteppedClock
from tests.engine.drive import Drive, enqueue, running

ROWS = 200
"""Within one chunk of SQLite's multi-row statements; larger batches take a statement more a chunk."""


class Counter:
    """A `switch` that counts statements."""

    def __init__(self) -> None:
        self.statements = 0

    async def __call__(self) -> None:
        self.statements += 1

    async def during(self, work: Awaitable[object]) -> int:
        before = self.statements
        await work
        return self.statements - before


@pytest.fixture
def counter() -> Counter:
    return Counter()


@pytest.fixture(params=["sqlite", "postgres"])
async def drive(
    request: pytest.FixtureRequest, clock: SteppedClock, counter: Counter, tmp_path: Path
) -> AsyncIterator[Drive]:
    store: Store
    if request.param == "sqlite":
        from perdure.store.sqlite import SqliteStore

        store = SqliteStore(tmp_path / "tasks.db", clock=clock.now, switch=counter)
        await store.migrate()
    else:
        from perdure.store.postgres import PostgresStore

        store = PostgresStore(request.getfixturevalue("migrated_database"), switch=counter)
    await store.open()
    async with running(store) as driving:
        await driving.enqueue()  # the lane is known from here on
        await driving.succeed(await driving.lease())
        await driving.poll(1)  # and no later poll may be one of before a connection broke
        yield driving
    await store.close()


def many(make: Callable[[int], c.Command]) -> list[c.Command]:
    return [make(n) for n in range(ROWS)]


def statements(drive: Drive, count: int) -> int:
    """`count` statements, and begin and commit where more than one is sent (SQLite, which has no round trips,
    always)."""
    return count + (2 if count > 1 or _is_sqlite(drive) else 0)


def _is_sqlite(drive: Drive) -> bool:
    return type(drive.engine.store).__name__ == "SqliteStore"


async def test_enqueue(drive: Drive, counter: Counter) -> None:
    """1; keyed 2; 1 more where a key was lost."""
    assert await counter.during(drive.engine.apply(many(lambda n: enqueue()))) == statements(drive, 1)
    keyed = many(lambda n: enqueue(key=f"k{n}"))
    assert await counter.during(drive.engine.apply(keyed)) == statements(drive, 2)
    some = [enqueue(key=f"k{n}") for n in range(50)] + [enqueue(key=f"x{n}") for n in range(50)]
    assert await counter.during(drive.engine.apply(some)) == statements(drive, 3)


async def test_claim_complete_heartbeat(drive: Drive, counter: Counter) -> None:
    """A claim of one poll of one lane is 1 with the successes that it comes with (SQLite 2 and 2), any other 2;
    heartbeats 1; successes by themselves 1 (SQLite, which cannot delete and insert in one statement, 2); another
    outcome 3: it is decided upon row by row."""
    await drive.engine.apply(many(lambda n: enqueue()))
    tasks = []

    async def claim() -> None:
        tasks.extend(await drive.engine.poll(drive.request(ROWS, 5)))

    once = 2 if _is_sqlite(drive) else 1
    assert await counter.during(claim()) == statements(drive, once)
    assert len(tasks) == ROWS
    beats: list[c.Command] = [c.Heartbeat(lease=t.lease) for t in tasks]
    assert await counter.during(drive.engine.apply(beats)) == statements(drive, 1)
    done: list[c.Command] = [c.Complete(lease=t.lease, outcome="succeeded", result=b"r") for t in tasks]
    assert await counter.during(drive.engine.apply(done[:50])) == statements(drive, once)
    await drive.engine.apply(many(lambda n: enqueue()))
    both = asyncio.gather(drive.engine.apply(done[50:100]), drive.engine.poll(drive.request(100, 5)))
    assert await counter.during(both) == statements(drive, 2 * once if _is_sqlite(drive) else 1)
    limited = many(lambda n: enqueue(queue="limited", timeouts=Timeouts(start_to_close=60)))
    await drive.engine.apply(limited)
    await drive.poll(1, "limited")  # from here on its lane is known to hold such tasks
    assert await counter.during(drive.engine.poll(drive.request(100, 5, "limited"))) == statements(drive, 2)
    failed: list[c.Command] = [c.Complete(lease=t.lease, outcome="failed", failure=b"\x80") for t in tasks[100:]]
    assert await counter.during(drive.engine.apply(failed)) == statements(drive, 3)


async def test_an_idle_batch_sends_nothing(drive: Drive, counter: Counter) -> None:
    """B056: nothing happens without a reason."""
    before = counter.statements
    for _ in range(100):
        await asyncio.sleep(0)
    assert counter.statements == before
