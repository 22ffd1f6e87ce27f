"""The stores under one contract: each test gets a fresh one of every kind, on a clock that only the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from perdure.store.base import Store
from perdure.store.postgres import PostgresStore
from tests.clock import SteppedClock

KINDS = ("memory", "sqlite", "postgres")
CONCURRENT = ("memory", "postgres")
"""Stores in which several batches may be open at once; SQLite admits one writer."""


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


def make_store(kind: str, clock: SteppedClock, tmp_path: Path, request: pytest.FixtureRequest) -> Store:
    """A store on a fresh database; not open yet. PostgreSQL's is up to date."""
    if kind == "memory":
        from perdure.store.memory import MemoryStore

        return MemoryStore(clock=clock.now)
    if kind == "sqlite":
        from perdure.store.sqlite import SqliteStore

        return SqliteStore(tmp_path / "tasks.db", clock=clock.now)
    return PostgresStore(request.getfixturevalue("migrated_database"), clock=clock.now)


@asynccontextmanager
async def opened(store: Store) -> AsyncIterator[Store]:
    if not isinstance(store, PostgresStore):
        await store.migrate()
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture(params=KINDS)
async def store(request: pytest.FixtureRequest, clock: SteppedClock, tmp_path: Path) -> AsyncIterator[Store]:
    async with opened(make_store(request.param, clock, tmp_path, request)) as ready:
        yield ready


@pytest.fixture(params=CONCURRENT)
async def shared(request: pytest.FixtureRequest, clock: SteppedClock, tmp_path: Path) -> AsyncIterator[Store]:
    """A store in which two batches may be open at once."""
    async with opened(make_store(request.param, clock, tmp_path, request)) as ready:
        yield ready


@pytest.fixture
async def every_store(
    request: pytest.FixtureRequest, clock: SteppedClock, tmp_path: Path
) -> AsyncIterator[dict[str, Store]]:
    """One of each kind, on the same clock."""
    async with AsyncExitStack() as stack:
        made = {kind: make_store(kind, clock, tmp_path, request) for kind in KINDS}
        yield {kind: await stack.enter_async_context(opened(store)) for kind, store in made.items()}
