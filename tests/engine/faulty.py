"""A store that fails on demand, around a real one: before a verb, or at the commit with either outcome."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from perdure.store.base import Batch, CommitUnknown, Store, StoreFault


class _Rolled(Exception):
    """Makes the inner batch roll back."""


class FaultyBatch:
    """Counts verbs and lets `before` raise before any of them."""

    def __init__(self, batch: Batch, before: Callable[[str, tuple[Any, ...]], None], verbs: list[str]) -> None:
        self._batch = batch
        self._before = before
        self._verbs = verbs

    @property
    def now(self) -> int:
        return self._batch.now

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._batch, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            self._verbs.append(name)
            self._before(name, args)
            return await verb(*args, **kwargs)

        return call


class FaultyStore:
    """`before(verb, args)` may raise; `commits` are outcomes of the next commits: "ok", "unknown-kept",
    "unknown-lost"."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.before: Callable[[str, tuple[Any, ...]], None] = lambda verb, args: None
        self.commits: list[str] = []
        self.verbs: list[str] = []
        self.asked = 0
        self._kept = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @asynccontextmanager
    async def batch(self, *, single: bool = False) -> AsyncIterator[Any]:
        outcome = self.commits.pop(0) if self.commits else "ok"
        try:
            async with self._store.batch(single=single) as inner:
                yield FaultyBatch(inner, self.before, self.verbs)
                if outcome == "unknown-lost":
                    raise _Rolled
        except _Rolled:
            self._kept = False
            raise CommitUnknown("the connection broke while committing") from None
        if outcome == "unknown-kept":
            self._kept = True
            raise CommitUnknown("the connection broke while committing")

    async def committed(self, unknown: CommitUnknown) -> bool:
        self.asked += 1
        if self.asked == 1:
            raise StoreFault("still away")
        return self._kept
