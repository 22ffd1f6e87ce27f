"""Group commit on the caller's side: one request in flight, and what comes meanwhile gathers behind it.

When idle an item leaves with the next turn of the loop; under load a request carries all that gathered while the one
before was answered, so batching never waits for its own sake.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Batcher(Generic[T]):
    """Feeds `send` with lists of at most `most` items and about `most_bytes`. `send` answers for its items: it retries,
    resolves or drops them, and does not raise. To be used on one event loop."""

    def __init__(
        self, send: Callable[[list[T]], Awaitable[None]], size: Callable[[T], int], *, most: int, most_bytes: int
    ) -> None:
        self._send = send
        self._size = size
        self._most = most
        self._most_bytes = most_bytes
        self._waiting: deque[T] = deque()
        self._sender: asyncio.Task[None] | None = None

    def add(self, item: T) -> None:
        self._waiting.append(item)
        if self._sender is None:
            self._sender = asyncio.get_running_loop().create_task(self._run())

    async def idle(self) -> None:
        """Returns once everything added has been answered for."""
        while self._sender is not None:
            await asyncio.wait([self._sender])

    async def cancel(self) -> None:
        """Give up what is in flight and what waits."""
        self._waiting.clear()
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.wait([self._sender])

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._send(self._take())
        finally:
            self._sender = None

    def _take(self) -> list[T]:
        taken = [self._waiting.popleft()]
        room = self._most_bytes - self._size(taken[0])
        while self._waiting and len(taken) < self._most:
            room -= self._size(self._waiting[0])
            if room < 0:
                break
            taken.append(self._waiting.popleft())
        return taken
