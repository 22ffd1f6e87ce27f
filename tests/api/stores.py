"""The two databases, for test files whose cases must hold on both."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from perdure.store.base import Store
from perdure.store.postgres import PostgresStore
from perdure.store.sqlite import SqliteStore

STORES = ("sqlite", "postgres")


@asynccontextmanager
async def opened(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[Store]:
    """A store of the kind that the fixture's parameter names, on a fresh database."""
    store: Store
    if request.param == "sqlite":
        store = SqliteStore(folder / "jobs.db")
        await store.migrate()
    else:
        store = PostgresStore(request.getfixturevalue("migrated_database"))
    await store.open()
    try:
        yield store
    finally:
        await store.close()
