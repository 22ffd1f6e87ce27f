"""A real server on an event loop of its own, for tests that generate requests and therefore block."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from perdure.api.keys import hash_key, new_key
from perdure.api.server import App, Server
from perdure.engine.engine import Engine
from perdure.store.base import Store
from perdure.store.memory import MemoryStore
from perdure.store.postgres import PostgresStore
from perdure.store.sqlite import SqliteStore
from tests.conftest import PostgresServer

T = TypeVar("T")
Clock = Callable[[], int]
_numbers = itertools.count(1)


class Running:
    """A server over a store. With a `clock` nothing happens by itself: whoever holds the clock rings the alarms."""

    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop, *, services: bool) -> None:
        self.store = store
        self.engine = Engine(store)
        self.key = ""
        self._services = services
        self._loop = loop
        self._server = Server(App(self.engine), port=0)

    @property
    def url(self) -> str:
        return self._server.url

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """The outcome of `work` on the server's loop."""
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result(60)

    async def start(self, *, locked: bool) -> None:
        await self.store.migrate()
        await self.store.open()
        if locked:
            self.key = new_key()
            await self.store.add_api_key(hash_key(self.key), "default", "fuzz")
        await self.engine.start(services=self._services)
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop()
        await self.engine.stop()
        await self.store.close()


@contextmanager
def running(
    kind: str, folder: Path, postgres: Callable[[], PostgresServer], *, locked: bool = False, clock: Clock | None = None
) -> Iterator[Running]:
    """A server over a fresh database of this kind; `locked` wants an API key, which is its `key` then."""
    database = f"fuzz_{os.getpid()}_{next(_numbers)}"
    store: Store
    match kind:
        case "memory":
            store = MemoryStore(clock=clock) if clock is not None else MemoryStore()
        case "sqlite":
            store = SqliteStore(folder / "jobs.db", clock=clock)
        case _:
            postgres().run(f"create database {database}")
            store = PostgresStore(postgres().url(database), clock=clock)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="fuzzed server")
    thread.start()
    server = Running(store, loop, services=clock is None)
    try:
        server.call(server.start(locked=locked))
        try:
            yield server
        finally:
            server.call(server.stop())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        if kind == "postgres":
            postgres().run(f"drop database {database} with (force)")
