"""Requests that wait, so that a shutdown can end them before it waits for the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from perdure.core.errors import Unavailable

T = TypeVar("T")


class Parking:
    """Waiting requests of a server, or of an embedded caller. After `end` every wait raises Unavailable."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._ended = False

    async def hold(self, waiting: Awaitable[T]) -> T:
        """Await `waiting` in the current task; Unavailable when `end` is called first."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if self._ended:
                task.cancel()
            return await waiting
        except asyncio.CancelledError:
            # Ours only if `end` asked for it and nobody else did too: then the request is answered, not torn down.
            if self._ended and task.uncancel() == 0:
                raise Unavailable("the server is shutting down", retry_after=1.0) from None
            raise
        finally:
            self._tasks.discard(task)

    def end(self) -> None:
        """End every wait, and those to come."""
        if not self._ended:
            self._ended = True
            for task in self._tasks:
                task.cancel()
