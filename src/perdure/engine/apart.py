"""Enqueues whose key another transaction is about to take, each in a batch of its own beside the runners.

An application's transaction may hold a key for as long as it likes (migration 0002), and whoever inserts the same key
waits for its end. A batch must not: all that it carries would wait as well. So a batch that met such a key lets go of
all its keyed enqueues, and here they are tried one after another. One whose key is still held comes again behind the
others, after a pause, and is sent back to its caller in the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from typing import Any

from perdure.core.errors import Unavailable
from perdure.engine.gather import Item

PATIENCE = 2.0  #: seconds that an enqueue waits for its key
_PAUSE = 0.05  #: seconds after a try that met a held key


class Apart:
    """Those enqueues. `attempt` runs a batch of one, which may call `add`; `spawn` runs something that nobody waits
    for."""

    def __init__(
        self, attempt: Callable[[Item], Awaitable[None]], spawn: Callable[[Coroutine[Any, Any, None]], None]
    ) -> None:
        self._attempt = attempt
        self._spawn = spawn
        self._until: dict[Item, float] = {}  #: when each has waited long enough, in the order of their turns
        self._running = False

    def __iter__(self) -> Iterator[Item]:
        return iter(self._until)

    def add(self, items: Iterable[Item]) -> None:
        """A batch that held these met a held key."""
        until = asyncio.get_running_loop().time() + PATIENCE
        self._until.update(dict.fromkeys(items, until))
        if self._until and not self._running:
            self._running = True
            self._spawn(self._run())

    async def _run(self) -> None:
        try:
            while self._until:
                item = next(iter(self._until))
                until = self._until.pop(item)
                if not item.request.future.done():  # else its caller has given up
                    await self._attempt(item)
                if item in self._until:
                    await self._wait(item, until)
        finally:
            self._running = False

    async def _wait(self, item: Item, until: float) -> None:
        """Its key is still held."""
        if asyncio.get_running_loop().time() < until:
            self._until[item] = until
            await asyncio.sleep(_PAUSE)
        else:
            del self._until[item]
            item.answer(
                Unavailable("another transaction holds this key", field="idempotency_key", retry_after=PATIENCE)
            )
