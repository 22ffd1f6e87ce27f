"""A real server on the loopback interface over a real SQLite file, and every way to call it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure.api.server import App, Server
from perdure.api.service import Caller
from perdure.api.service import Service as ServerService
from perdure.client.base import Service
from perdure.client.embedded import EmbeddedService
from perdure.client.http import HttpService
from perdure.engine.engine import Engine
from perdure.store.sqlite import SqliteStore
from tests.api.calls import JsonService, new_rest
from tests.api.calls import Rest as RestClient


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(str(tmp_path / "jobs.db"))
    await store.migrate()
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def engine(store: SqliteStore) -> AsyncIterator[Engine]:
    engine = Engine(store)
    await engine.start()
    yield engine
    await engine.stop()


@pytest.fixture
async def server(engine: Engine) -> AsyncIterator[Server]:
    server = Server(App(engine), port=0)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def rest(server: Server) -> AsyncIterator[RestClient]:
    async with new_rest(server.url) as client:
        yield client


@pytest.fixture(params=["embedded", "websocket", "post", "json"])
async def service(request: pytest.FixtureRequest, engine: Engine, server: Server) -> AsyncIterator[Service]:
    """The same service by all transports."""
    service: Service
    match request.param:
        case "embedded":
            service = EmbeddedService(ServerService(engine, Caller("default")))
        case "json":
            service = JsonService(server.url)
        case transport:
            service = HttpService(server.url, transport="http" if transport == "post" else "websocket")
    yield service
    await service.close()
