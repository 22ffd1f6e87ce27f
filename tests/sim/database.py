"""One database for all servers: a real store, and between it and each server a connection that may break.

What a server asks for runs in a process of its own here, as it does in PostgreSQL: when the connection breaks the
statement under way still ends, and the transaction is rolled back some time later; a commit that was sent may happen or
not, now or in a while, whatever the server has heard. A server that dies leaves its transactions behind just so.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from perdure.store import memory
from perdure.store.base import CommitUnknown, Store, StoreFault
from perdure.store.clock import SlewedClock
from perdure.store.memory import MemoryStore
from perdure.store.memory_rows import Transaction
from perdure.store.sqlite import SqliteStore
from tests.sim.clocks import WallClock
from tests.sim.loop import NODE, Node, SimLoop
from tests.sim.tables import Observer, SqliteTables, diff_of

AWAY = "the database is away"


class Weather:
    """How bad the way to the database is."""

    def __init__(self) -> None:
        self.away: set[str] = set()  #: hosts that do not reach it; "*" is all
        self.faults = 0.0  #: probability that a statement fails
        self.unknown = 0.0  #: that the connection breaks at a commit
        self.slow = 0.0  #: that a statement takes long
        self.longest = 0.0  #: seconds it takes then, at most
        self.deaf = 0.0  #: probability that a hint is lost

    def heal(self) -> None:
        self.__init__()  # type: ignore[misc]


class Database:
    """The store and everybody's connections to it."""

    def __init__(self, loop: SimLoop, source: Random, kind: str, wall: WallClock, observer: Observer) -> None:
        self.loop = loop
        self.node = loop.node("db")
        self.kind = kind
        self.weather = Weather()
        self.observer = observer
        self.outcomes: dict[int, bool | None] = {}  #: of commits, by number; None: not known yet
        self.backends: list[Backend] = []
        self.listeners: list[tuple[Node, Callable[[bytes], None]]] = []
        self.committed_by: str = ""
        self.changes = 0  #: commits of anybody
        self.last_change: dict[str, int] = {}  #: the latest of each server
        self.source = source
        self.inner: Store
        if kind == "memory":
            self.inner = MemoryStore(clock=wall.microseconds, switch=self.switch)
        else:
            clock = SlewedClock(wall=wall.nanoseconds, monotonic=wall.monotonic_nanoseconds)
            self.inner = SqliteStore(":memory:", clock=clock, switch=self.switch)
        self.tables = None if kind == "memory" else SqliteTables(self.inner)

    def draw(self, probability: float) -> bool:
        return probability > 0 and self.source.random() < probability

    async def switch(self) -> None:
        """Between two statements, or two halves of one."""
        chance = self.source.random()
        if self.draw(self.weather.slow):
            await asyncio.sleep(self.source.random() * self.weather.longest)
        elif chance < 0.3:
            await asyncio.sleep(chance * 0.01)
        else:
            await asyncio.sleep(0)

    def is_away(self, node: Node) -> bool:
        away = self.weather.away
        return bool(away) and ("*" in away or node.name.partition("/")[0] in away)

    def break_all(self, host: str) -> None:
        """Connections end: of one host, or of all ("*")."""
        for backend in list(self.backends):
            if host in ("*", backend.client.name.partition("/")[0]):
                backend.lose()

    def died(self, node: Node) -> None:
        """A server is gone: what it had open ends some time later."""
        self.listeners = [(other, heard) for other, heard in self.listeners if other is not node]
        for backend in [b for b in self.backends if b.client is node]:
            delay = self.source.random() * self.source.choice((0.01, 0.01, 2.0))
            self.loop.call_later(delay, backend.lose, context=self.node.context)

    def note_commit(self, server: str) -> None:
        self.changes += 1
        self.last_change[server] = self.changes
        if self.tables is not None:
            changes = self.tables.changes()
            if changes:
                self.observer(changes, server)


class WatchedTransaction(Transaction):
    """Tells what it commits."""

    database: Database

    def commit(self) -> None:
        changes = diff_of(self._written, self.database.inner._tables)  # type: ignore[attr-defined]
        super().commit()
        if changes:
            self.database.observer(changes, NODE.get().name)


class _Undone(Exception):
    """Rolls back."""


class Backend:
    """The database's end of one transaction."""

    def __init__(self, database: Database, client: Node, *, single: bool) -> None:
        self.client = client
        self.lost = False
        self.number = len(database.outcomes)
        self._database = database
        self._single = single
        self._calls: deque[tuple[str, tuple[Any, ...], dict[str, Any], asyncio.Future[Any]]] = deque()
        self._called = asyncio.Event()
        self._begun = False  #: a single statement was carried out
        self._commit: asyncio.Future[Any] | None = None
        self._pending: asyncio.Future[Any] | None = None
        self.ready: asyncio.Future[Any] = database.loop.create_future()
        database.outcomes[self.number] = None
        database.backends.append(self)
        database.node.spawn(self._serve())

    def lose(self) -> None:
        """The connection is broken: the server hears of it now, this end when it looks."""
        self.lost = True
        self._called.set()
        for future in (self._pending, self._commit, self.ready):
            if future is not None and not future.done():
                future.set_exception(StoreFault("the connection broke"))
                future.exception()

    async def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        future = self._database.loop.create_future()
        if self.lost:
            raise StoreFault("the connection is broken")
        self._pending = future
        self._calls.append((name, args, kwargs, future))
        self._called.set()
        return await future

    async def commit(self) -> None:
        if self.lost:
            raise StoreFault("the connection is broken")
        self._commit = self._database.loop.create_future()
        self._called.set()
        await self._commit

    def give_up(self) -> None:
        """Roll back, as asked."""
        if not self.lost:
            self.lost = True
            self._called.set()

    # ------------------------------------------------------------------------------------------- in the database
    async def _serve(self) -> None:
        database = self._database
        done = False
        error: BaseException | None = None
        try:
            async with database.inner.batch(single=self._single) as rows:
                if not self.ready.done():
                    self.ready.set_result(rows)
                await self._carry_out(rows)
                done = True
        except _Undone:
            done = False
        except StoreFault as fault:
            done, error = False, fault
        finally:
            database.outcomes[self.number] = done
            database.backends.remove(self)
        if done:
            database.note_commit(self.client.name)
        for future in (self._commit, self.ready):
            if future is not None and not future.done():
                if done:
                    future.set_result(None)
                else:
                    future.set_exception(error or StoreFault("rolled back"))

    async def _carry_out(self, rows: Any) -> None:
        """Statements until the commit; raises to roll back."""
        while True:
            while not self._calls:
                if self._commit is not None and not (self._commit.done() and not self.late_commit):
                    return
                if self.lost:
                    if self._single and self._begun:
                        return
                    raise _Undone
                self._called.clear()
                await self._called.wait()
            name, args, kwargs, future = self._calls.popleft()
            try:
                result = await getattr(rows, name)(*args, **kwargs)
            except StoreFault as fault:
                if not future.done():
                    future.set_exception(fault)
                    future.exception()
                raise _Undone from fault
            self._begun = True
            if not future.done():
                future.set_result(result)

    late_commit = False
    """The commit was sent before the connection broke, and arrives nevertheless."""


class SimStore:
    """A server's way to the database; see store.base.Store."""

    def __init__(self, database: Database, node: Node) -> None:
        self._database = database
        self._node = node
        self._seen = 0
        self.batches_in_flight = database.inner.batches_in_flight
        self.dead_entries = database.inner.dead_entries
        self.now = database.inner.now

    def __getattr__(self, name: str) -> Any:
        async def read(*args: Any, **kwargs: Any) -> Any:
            return await self._ask(lambda: getattr(self._database.inner, name)(*args, **kwargs))

        return read

    async def open(self) -> None:
        await self._reach()

    async def close(self) -> None:
        """Others use it still."""

    async def _reach(self) -> None:
        database = self._database
        if database.is_away(self._node):
            await asyncio.sleep(database.source.random() * database.source.choice((0.01, 0.01, 2.0)))
            raise StoreFault(AWAY)

    async def _ask(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """A read: it runs in the database, and its answer may not come."""
        database = self._database
        await self._reach()
        answer = database.loop.create_future()

        async def run() -> None:
            try:
                result = await work()
            except Exception as error:  # noqa: BLE001 - the server gets it
                if not answer.done():
                    answer.set_exception(error)
                    answer.exception()
            else:
                if not answer.done():
                    answer.set_result(result)

        database.node.spawn(run())
        result = await answer
        if database.is_away(self._node) or database.draw(database.weather.faults):
            raise StoreFault("the connection broke")
        return result

    @asynccontextmanager
    async def batch(self, *, single: bool = False) -> AsyncIterator[Any]:
        await self._reach()
        database = self._database
        backend = Backend(database, self._node, single=single)
        rows = await backend.ready
        proxy = _Proxy(database, backend, rows, single)
        try:
            yield proxy
        except BaseException as error:
            backend.give_up()
            if single and proxy.called and isinstance(error, StoreFault) and backend.broke:
                raise CommitUnknown(str(error), xid=backend.number) from error
            raise
        await self._commit(backend)

    async def _commit(self, backend: Backend) -> None:
        database = self._database
        if database.draw(database.weather.unknown):
            backend.late_commit = database.draw(0.6)
            delay = database.source.random() * database.source.choice((0.001, 3.0))
            ...

    async def committed(self, unknown: CommitUnknown) -> bool:
        await self._reach()
        await asyncio.sleep(0)
        assert unknown.xid is not None
        outcome = self._database.outcomes[unknown.xid]
        if outcome is None:
            raise StoreFault("it is not known yet")
        return outcome
