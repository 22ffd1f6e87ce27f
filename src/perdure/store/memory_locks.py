"""What batches of the reference store stand on: the tables, and selects that lock what they find."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from copy import copy
from typing import Any, Protocol, TypeVar

from perdure.core.limit_rules import Limit, LimitName
from perdure.core.model import Attempt, Key, Pulse, Task, WorkerSession
from perdure.core.owners import QueueOwner
from perdure.core.run import Message, Page, Run
from perdure.core.streams import Chunk, StreamEnd
from perdure.store.base import DataFault, KeyName
from perdure.store.memory_events import Outbox
from perdure.store.memory_rows import Table, Transaction

K = TypeVar("K")
R = TypeVar("R")


class Tables:
    def __init__(self) -> None:
        self.tasks: Table[bytes, Task] = Table()
        self.closed: Table[bytes, Task] = Table()
        self.failures: Table[bytes, Any] = Table()  # columns of rows of closed: memory_failures.DeadLetter
        self.attempts: Table[tuple[bytes, int], Attempt] = Table()
        self.runs: Table[bytes, Run] = Table()  # columns of rows of tasks and closed
        self.history: Table[tuple[bytes, int], Page] = Table()
        self.inbox: Table[tuple[bytes, int], Message] = Table()
        self.keys: Table[KeyName, Key] = Table()
        self.limits: Table[LimitName, Limit] = Table()
        self.buckets: Table[str, int] = Table()
        self.sessions: Table[int, WorkerSession] = Table()
        self.attributes: Table[bytes, Any] = Table()  # of runs: search.Entry
        self.types: dict[tuple[str, str], str] = {}  # of search attributes
        self.owners: dict[tuple[str, str], QueueOwner] = {}  # by namespace and queue
        self.resolutions: dict[bytes, bytes] = {}  # a column of closed
        self.streams: Table[bytes, StreamEnd] = Table()
        self.chunks: Table[tuple[bytes, int], Chunk] = Table()
        self.outbox = Outbox()
        self.pulse: Table[None, Pulse] = Table()
        self.pulse.rows[None] = Pulse(alive_at=0, hold_until=0)


class Ground(Protocol):
    """What a batch asks of its store."""

    def now(self) -> int: ...

    def pause(self) -> Awaitable[None]: ...


class LockingBatch:
    """One transaction, and how its verbs read, lock and insert rows."""

    def __init__(self, store: Ground, tables: Tables, transaction: Transaction, single: bool) -> None:
        self._store = store
        self._tables = tables
        self._transaction = transaction
        self._single = single
        self._now: int | None = None

    @property
    def now(self) -> int:
        return self._store.now() if self._now is None else self._now

    async def _begin(self) -> None:
        if self._single and self._transaction.holds_rows:  # the one statement that writes committed itself
            self._transaction.commit()
            self._transaction.end()
        await self._store.pause()

    def _found(self, table: Table[K, R], where: Callable[[R], bool], order: Callable[[R], Any]) -> list[K]:
        """The first half of a select that locks: the keys of the rows that its condition finds in the snapshot."""
        found = ((key, row) for key, row in self._transaction.scan(table) if where(row))
        return [key for key, _ in sorted(found, key=lambda item: order(item[1]))]

    async def _lock(
        self,
        table: Table[K, R],
        snapshot: Iterable[K],
        where: Callable[[R], bool],
        *,
        limit: int | None = None,
        wait: bool = False,
    ) -> list[tuple[K, R]]:
        """The second half of a select that locks: `snapshot` are the keys that its condition found, in its order. A row
        for which the condition no longer holds stays locked, but is not returned and does not count."""
        await self._store.pause()
        granted: list[tuple[K, R]] = []
        for key in snapshot:
            if len(granted) == limit:
                break
            if wait:
                await self._transaction.wait(table, key)
            elif not self._transaction.take(table, key):
                continue
            row = self._transaction.get(table, key)
            if row is not None and where(row):
                granted.append((key, copy(row)))
        if self._now is None:
            self._now = self._store.now()
        return granted

    async def _insert(self, table: Table[K, R], key: K, row: R) -> None:
        """As a unique index does: wait for whoever is writing the same key, then refuse the second."""
        await self._transaction.wait(table, key)
        if self._transaction.get(table, key) is not None:
            raise DataFault("a row with this key exists")
        self._transaction.put(table, key, row)

    def _open(self, task_id: bytes) -> Task | None:
        return self._transaction.get(self._tables.tasks, task_id)

    def _closed(self, task_id: bytes) -> Task | None:
        return self._transaction.get(self._tables.closed, task_id)
