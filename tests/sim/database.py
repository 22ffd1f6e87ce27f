"""One database for all servers: a real store, and between it and each server a connection that may break.

What a server asks for runs in a process of its own here, as it does in PostgreSQL: when the connection breaks the
statement under way still ends, and the transaction is rolled back some time later; a commit that was sent may happen or
not, now or in a while, whatever the server has heard. A server that dies leaves its transactions behind just so.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from random import Random
from typing import Any

from perdure.core.webhooks import Webhook
from perdure.store.base import CommitUnknown, DataFault, Store, StoreFault
from perdure.store.clock import SlewedClock
from perdure.store.memory import MemoryStore
from perdure.store.memory_rows import Transaction
from perdure.store.sqlite import SqliteStore
from tests.sim.clocks import WallClock
from tests.sim.loop import Node, SimLoop
from tests.sim.tables import Change, Observer, SqliteTables, diff_of

POISON = b"a value that the database refuses"
"""A task with this in its payload cannot be stored."""
_CLIENT: ContextVar[str] = ContextVar("client", default="")


class Weather:
    """How bad the way to the database is."""

    def __init__(self) -> None:
        self.away: set[str] = set()  #: hosts that do not reach it; "*" is all
        self.faults = 0.0  #: probability that a statement fails
        self.unknown = 0.0  #: that the connection breaks at a commit
        self.slow = 0.0  #: that a statement takes long
        self.longest = 0.0  #: seconds it takes then, at most
        self.deaf = 0.0  #: probability that a hint is lost
        self.stalled_until = 0.0  #: nothing moves before

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
        self.outcomes: dict[int, bool | None] = {}  #: of transactions, by number; None: not known yet
        self.backends: dict[Backend, None] = {}
        self.listeners: list[tuple[Node, Callable[[bytes], None]]] = []
        self.changes: dict[str, int] = {}  #: commits of each server process
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

    def soon(self, *most: float) -> float:
        """A time up to one of these."""
        return self.source.random() * most[int(self.source.random() * len(most))]

    async def switch(self) -> None:
        """Between two statements, or two halves of one."""
        if (left := self.weather.stalled_until - self.loop.now) > 0:
            await asyncio.sleep(left)
        chance = self.source.random()
        if self.draw(self.weather.slow):
            await asyncio.sleep(self.source.random() * self.weather.longest)
        elif chance < 0.3:
            await asyncio.sleep(chance * 0.01)
        elif chance < 0.33:
            await asyncio.sleep((chance - 0.3) * 0.7)
        else:
            await asyncio.sleep(0)

    def is_away(self, node: Node) -> bool:
        away = self.weather.away
        return bool(away) and ("*" in away or node.name.partition("/")[0] in away)

    def break_connections(self, host: str) -> None:
        """Of one host, or of all ("*")."""
        for backend in list(self.backends):
            if host in ("*", backend.client.name.partition("/")[0]):
                backend.lose()

    def died(self, node: Node) -> None:
        """A server is gone: what it had open ends some time later."""
        self.listeners = [(other, heard) for other, heard in self.listeners if other is not node]
        for backend in [b for b in self.backends if b.client is node]:
            self.loop.call_later(self.soon(0.01, 0.01, 2.0), backend.lose, context=self.node.context)

    def ended(self, server: str) -> None:
        """A transaction of this server was committed."""
        self.changes[server] = self.changes.get(server, 0) + 1
        if self.tables is not None:
            changes = self.tables.changes()
            if changes:
                self.observer(changes, server)

    def is_held(self, task_id: bytes) -> bool:
        """Whether some transaction holds a row."""
        return self.kind == "memory" and task_id in self.inner._tables.tasks.holders  # type: ignore[attr-defined]

    def webhook(self, id: str) -> Webhook:
        """Its row."""
        if self.tables is not None:
            return self.tables.webhook(id)
        hook: Webhook = self.inner._tables.outbox.webhooks[id]  # type: ignore[attr-defined]
        return hook

    def by_others(self, server: str) -> int:
        """Commits of all but this server."""
        return sum(self.changes.values()) - self.changes.get(server, 0)


class WatchedTransaction(Transaction):
    """Tells what it commits."""

    database: Database

    def commit(self) -> None:
        tables = self.database.inner._tables  # type: ignore[attr-defined]
        changes, published = diff_of(self._written, tables), len(tables.outbox.events)
        super().commit()
        changes += [Change("outbox", event.seq, None, event) for event in tables.outbox.events[published:]]
        if changes:
            self.database.observer(changes, _CLIENT.get())


READ = "read beside the batch"


class _Undone(Exception):
    """Rolls back."""


_COMMIT, _ROLL_BACK, _LOST = "commit", "roll back", "lost"


class Backend:
    """The database's end of one transaction, and the connection to it."""

    def __init__(self, database: Database, client: Node, *, single: bool) -> None:
        self.client = client
        self.broken = False  #: as the server sees it
        self.number = len(database.outcomes)
        self.ended = database.loop.create_future()
        self.ready = database.loop.create_future()
        self._database = database
        self._single = single
        self._letters: deque[Any] = deque()
        self._arrived = asyncio.Event()
        self._begun = False  #: a statement was carried out
        self._waiting: asyncio.Future[Any] | None = None  #: the server, for the answer to a statement or a commit
        self._committing = False
        database.outcomes[self.number] = None
        database.backends[self] = None
        database.node.spawn(self._serve())

    # ------------------------------------------------------------------------------------------------ the server's end
    def lose(self) -> None:
        """The connection breaks."""
        if self.broken:
            return
        self.broken = True
        self._post(_LOST)
        for future in (self._waiting, self.ready):
            if future is not None and not future.done():
                future.set_exception(self._loss())
                future.exception()

    def _loss(self) -> StoreFault:
        text = "the connection broke"
        unknown = self._committing or (self._single and self.ready.done())
        return CommitUnknown(text, xid=self.number) if unknown else StoreFault(text)

    async def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.broken:
            raise StoreFault("the connection is broken")
        database = self._database
        self._waiting = answer = database.loop.create_future()
        if database.draw(database.weather.faults):
            if database.draw(0.5):
                raise StoreFault(f"{name} failed")
            database.loop.call_later(database.soon(0.0, 0.01, 0.01), self.lose, context=database.node.context)
        self._post((name, args, kwargs, answer))
        return await answer

    async def commit(self) -> None:
        """Commit; for a single statement, wait until its commit is seen."""
        if self.broken and not self._single:
            raise StoreFault("the connection broke before the commit")
        database = self._database
        if self._single:
            if not self.broken:
                self._post(_COMMIT)
            await self.ended
            return
        self._committing = True
        self._waiting = answer = database.loop.create_future()
        if database.draw(database.weather.unknown):
            letter = _COMMIT if database.draw(0.6) else _LOST
            database.loop.call_later(database.soon(0.001, 3.0), self._post, letter, context=database.node.context)
            self.broken = True
            await asyncio.sleep(database.soon(0.001, 0.1))
            raise CommitUnknown("the connection broke at the commit", xid=self.number)
        self._post(_COMMIT)
        await answer

    async def roll_back(self) -> None:
        if not self.broken:
            self._post(_ROLL_BACK)
            await self.ended

    # -------------------------------------------------------------------------------------------------- the database's
    def _post(self, letter: Any) -> None:
        self._letters.append(letter)
        self._arrived.set()

    async def _serve(self) -> None:
        database = self._database
        _CLIENT.set(self.client.name)
        fault: StoreFault | None = None
        done = False
        try:
            async with database.inner.batch(single=self._single) as rows:
                if not self.ready.done():
                    self.ready.set_result(rows)
                await self._carry_out(rows)
            done = True
        except _Undone:
            fault = StoreFault("rolled back")
        except StoreFault as error:
            fault = error
        finally:
            database.outcomes[self.number] = done
            del database.backends[self]
        if done:
            database.ended(self.client.name)
        for future in (self.ready, self._waiting if self._committing else None):
            if future is not None and not future.done():
                if fault is None:
                    future.set_result(None)
                else:
                    future.set_exception(fault)
                    future.exception()
        self.ended.set_result(done)

    async def _carry_out(self, rows: Any) -> None:
        """Statements up to the commit; raises to roll back."""
        while True:
            while not self._letters:
                self._arrived.clear()
                await self._arrived.wait()
            letter = self._letters.popleft()
            if letter == _COMMIT or (letter == _LOST and self._single and self._begun):
                return
            if letter in (_ROLL_BACK, _LOST):
                raise _Undone
            name, args, kwargs, answer = letter
            try:
                if name == "insert" and any(POISON in (task.payload or b"") for task in args[0]):
                    raise DataFault("poison")
                result = await (args[0]() if name == READ else getattr(rows, name)(*args, **kwargs))
            except Exception as error:
                if not answer.done():
                    answer.set_exception(error)
                    answer.exception()
                raise _Undone from error
            self._begun = True
            if not answer.done():
                answer.set_result(result)


class _Sorted(set[bytes]):
    """A set with the same order in every process."""

    def __iter__(self) -> Iterator[bytes]:
        return iter(sorted(super().__iter__()))


def _ordered(result: Any) -> Any:
    """What a verb returned, without sets whose order differs from process to process."""
    if type(result) is set:
        return _Sorted(result)
    return tuple(map(_ordered, result)) if type(result) is tuple else result


_BATCH: ContextVar[Backend | None] = ContextVar("batch", default=None)
"""The one that this task of a server has open."""


class _Rows:
    """A batch as the server has it."""

    def __init__(self, backend: Backend, rows: Any) -> None:
        self._backend = backend
        self._rows = rows

    @property
    def now(self) -> int:
        now: int = self._rows.now
        return now

    def __getattr__(self, name: str) -> Any:
        async def verb(*args: Any, **kwargs: Any) -> Any:
            return _ordered(await self._backend.call(name, args, kwargs))

        return verb


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
            await asyncio.sleep(database.soon(0.01, 0.01, 2.0))
            raise StoreFault("the database is away")

    async def _ask(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """A read: it runs in the database, and its answer may not come."""
        database = self._database
        await self._reach()
        if database.kind == "sqlite" and (backend := _BATCH.get()) is not None:
            return await backend.call(READ, (work,), {})  # in memory there is no other reader
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
        backend = Backend(self._database, self._node, single=single)
        rows = await backend.ready
        _BATCH.set(backend)
        try:
            yield _Rows(backend, rows)
        except Exception:
            await backend.roll_back()
            raise
        except BaseException:  # canceled: the connection is closed
            backend.lose()
            raise
        finally:
            _BATCH.set(None)
        await backend.commit()

    async def committed(self, unknown: CommitUnknown) -> bool:
        await self._reach()
        await asyncio.sleep(0)
        assert unknown.xid is not None
        outcome = self._database.outcomes[unknown.xid]
        if outcome is None:
            raise StoreFault("it is not known yet")
        return outcome

    # ----------------------------------------------------------------------------------------------------------- hints
    async def changed(self) -> bool:
        """Looks for a while, because a look costs more here than waiting does."""
        if self._database.kind == "memory" or len(self._database.changes) < 2:
            await asyncio.sleep(0.5)
            return False
        for _ in range(5):
            others = self._database.by_others(self._node.name)
            if others != self._seen:
                self._seen = others
                return True
            await asyncio.sleep(0.05)
        return False

    async def announce(self, hint: bytes) -> None:
        await self._reach()
        database = self._database
        if database.kind != "memory":
            return
        for node, heard in database.listeners:
            if not database.draw(database.weather.deaf):
                database.loop.call_later(database.soon(0.002, 0.002, 0.1), heard, hint, context=node.context)

    async def listen(self, heard: Callable[[bytes], None]) -> None:
        await self._reach()
        self._database.listeners.append((self._node, heard))
