"""A real server with the dashboard, over a real SQLite file, and a reader of its pages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure import AsyncPerdure
from perdure.api.server import App, Server
from perdure.dashboard.site import invite
from perdure.engine.engine import Engine
from perdure.store.sqlite import SqliteStore
from tests.dashboard.reader import Reader, reader


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    store = SqliteStore(str(tmp_path / "jobs.db"))
    await store.migrate()
    await store.open()
    engine = Engine(store)
    await engine.start()
    yield engine
    await engine.stop()
    await store.close()


@pytest.fixture
async def server(engine: Engine) -> AsyncIterator[Server]:
    server = Server(App(engine, invite()), port=0)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def app(server: Server) -> AsyncIterator[AsyncPerdure]:
    async with AsyncPerdure(server.url) as app:
        yield app


@pytest.fixture
async def pages(server: Server) -> AsyncIterator[Reader]:
    async with reader(server.url) as found:
        yield found
