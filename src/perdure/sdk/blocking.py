"""How code without an event loop waits for what runs on one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Call(Generic[T]):
    """A coroutine that runs on the event loop of another thread, waited for in this one. A bare lock, because the
    futures of asyncio.run_coroutine_threadsafe cost several times as much, and the caller waits for each of them."""

    __slots__ = ("_ended", "_error", "_loop", "_task", "_value", "_work")

    def __init__(self, work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> None:
        self._work = work
        self._loop = loop
        self._ended = threading.Lock()
        self._ended.acquire()
        self._task: asyncio.Task[None] | None = None
        self._value: T
        self._error: BaseException | None = None

    def start(self) -> None:
        """To be called on the loop."""
        self._task = self._loop.create_task(self._run())

    def outcome(self) -> T:
        """Blocks. When it is interrupted, the coroutine is canceled."""
        try:
            self._ended.acquire()
        except BaseException:
            self._loop.call_soon_threadsafe(self._cancel)
            raise
        if self._error is not None:
            raise self._error
        return self._value

    async def _run(self) -> None:
        try:
            self._value = await self._work
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self._error = error
        self._ended.release()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
