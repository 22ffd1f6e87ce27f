"""`Perdure(url)`: the composition root, where clients, workers, servers and stores meet.

    sqlite:///jobs.db          a file, relative to the working directory (four slashes: absolute); the server runs in this process
    sqlite:///:memory:         the same, gone with the process
    postgresql://host/db       a database; the server runs in this process, beside others on the same database
    http://127.0.0.1:7400      a server somewhere else (`perdure server`)

Whatever the URL, it is the same code: in this process the calls go straight to the service that a server would put behind
its sockets. `AsyncPerdure` is the whole; `Perdure` runs one on an event loop in a thread and waits for it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from types import TracebackType
from typing import Any, TypeVar, Unpack

import uvloop

from perdure.api.service import Caller
from perdure.api.service import Service as ServerService
from perdure.client.base import Service
from perdure.client.embedded import EmbeddedService
from perdure.client.http import HttpService
from perdure.core.errors import InvalidArgument
from perdure.core.messages import CancelReply, TaskPage, TaskView
from perdure.engine.engine import Engine
from perdure.sdk.client import AsyncClient, TaskFilter, TaskOptions
from perdure.sdk.handle import Job
from perdure.sdk.task import Task
from perdure.store.base import Store
from perdure.worker.worker import DRAIN_SECONDS, Worker

T = TypeVar("T")


def open_store(url: str) -> Store:
    """The store that a URL names, not connected yet. Drivers are loaded only where they are used."""
    scheme, _, rest = url.partition(":///")
    if scheme == "sqlite" and rest:
        from perdure.store.sqlite import SqliteStore

        return SqliteStore(rest)
    if url.startswith(("postgresql://", "postgres://")):
        from perdure.store.postgres import PostgresStore

        return PostgresStore(url)
    raise InvalidArgument(
        f"no store has the URL {url.partition('@')[2] or url!r}", field="url", limit="sqlite:///FILE, postgresql://..."
    )


@asynccontextmanager
async def running_engine(url: str) -> AsyncIterator[Engine]:
    """An engine over a store. A SQLite file is made and brought up to date; a PostgreSQL database needs `perdure migrate`,
    because other servers may be using it."""
    store = open_store(url)
    if url.startswith("sqlite:"):
        await store.migrate()
    await store.open()
    try:
        engine = Engine(store)
        await engine.start()
        try:
            yield engine
        finally:
            await engine.stop()
    finally:
        await store.close()
