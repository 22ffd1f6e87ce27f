"""Tables and transactions of the reference store: row locks and READ COMMITTED, as PostgreSQL has them.

A transaction keeps what it writes to itself and applies it in one step when it commits. It sees the newest committed
rows under its own writes, and it holds every row that it locked or wrote until it ends. Nothing here knows what a row
means.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from perdure.store.base import StoreFault

K = TypeVar("K")
R = TypeVar("R")


class Table(Generic[K, R]):
    """Committed rows by primary key, and the open transaction that holds each."""

    def __init__(self) -> None:
        self.rows: dict[K, R] = {}
        self.holders: dict[K, Transaction] = {}


class Transaction:
    """Locks and unseen writes of one batch. Rows must be locked before they are written; `end` is always called."""

    def __init__(self) -> None:
        self._written: dict[Table[Any, Any], dict[Any, Any]] = {}  # None: deleted
        self._held: list[tuple[Table[Any, Any], Any]] = []
        self._appended: list[Callable[[], None]] = []
        self._ended = asyncio.Event()
        self._waits_for: Transaction | None = None

    @property
    def holds_rows(self) -> bool:
        return bool(self._held)

    def holds(self, table: Table[K, Any], key: K) -> bool:
        return table.holders.get(key) is self

    # reading ---------------------------------------------------------------------------------------------------
    def get(self, table: Table[K, R], key: K) -> R | None:
        """The newest version of a row that this transaction may see."""
        written = self._written.get(table, {})
        return written[key] if key in written else table.rows.get(key)

    def scan(self, table: Table[K, R]) -> Iterator[tuple[K, R]]:
        """Every row that this transaction may see, in no order."""
        written = self._written.get(table, {})
        yield from ((key, row) for key, row in table.rows.items() if key not in written)
        yield from ((key, row) for key, row in written.items() if row is not None)

    # locking ---------------------------------------------------------------------------------------------------
    def take(self, table: Table[K, Any], key: K) -> bool:
        """Lock a row; False when another transaction holds it."""
        assert not self._ended.is_set(), "a row is locked after the end: a single batch has one statement that writes"
        holder = table.holders.setdefault(key, self)
        if holder is self:
            self._held.append((table, key))
        return holder is self

    async def wait(self, table: Table[K, Any], key: K) -> None:
        """Lock a row, after its holder has ended if need be."""
        await self.settle(table, key)
        self.take(table, key)

    async def settle(self, table: Table[K, Any], key: K) -> None:
        """Wait until no other transaction holds a row; StoreFault when that would be for ever."""
        while (holder := table.holders.get(key, self)) is not self:
            if holder._would_wait_for(self):
                raise StoreFault("deadlock: two transactions wait for each other")
            self._waits_for = holder
            try:
                await holder._ended.wait()
            finally:
                self._waits_for = None

    def _would_wait_for(self, other: Transaction) -> bool:
        behind: Transaction | None = self
        while behind is not None and behind is not other:
            behind = behind._waits_for
        return behind is other

    # writing ---------------------------------------------------------------------------------------------------
    def put(self, table: Table[K, R], key: K, row: R | None) -> None:
        """Write a row, or delete it (None)."""
        assert table.holders.get(key) is self, "a row is written that this batch did not lock"
        self._written.setdefault(table, {})[key] = row

    def at_commit(self, append: Callable[[], None]) -> None:
        """Rows that get their numbers in the order of the commits."""
        self._appended.append(append)

    def commit(self) -> None:
        """Let everybody see what was written, all at once."""
        for table, written in self._written.items():
            for key, row in written.items():
                if row is None:
                    table.rows.pop(key, None)
                else:
                    table.rows[key] = row
        self._written.clear()
        for append in self._appended:
            append()
        self._appended.clear()

    def end(self) -> None:
        """Forget what was not committed, and wake those who wait for the rows."""
        for table, key in self._held:
            table.holders.pop(key, None)
        self._held.clear()
        self._ended.set()
