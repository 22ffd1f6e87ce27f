"""Waiters for what becomes of a task: one mechanism, by id.

A watch is answered from the store, never from a hint: a hint (or a commit of this server) only makes it look. Looks of
one loop turn share one read. A hint may be lost, so every watched id is looked at again after a second at the latest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from perdure.core.model import Task
from perdure.core.states import is_closed
from perdure.store.base import Store, StoreFault

REPEAT = 1.0  #: seconds between looks without a hint


class Watches:
    """Watches of this server, by task id."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[bytes, set[asyncio.Future[None]]] = {}
        self._reading: asyncio.Task[dict[bytes, Task]] | None = None
        self._wanted: set[bytes] = set()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    async def watch(self, task_id: bytes, wait: float) -> Task | None:
        """The task once it has closed, or as it is after `wait` seconds; None when there is none."""
        loop = asyncio.get_running_loop()
        until = loop.time() + wait
        while True:
            changed = loop.create_future()
            self._waiting.setdefault(task_id, set()).add(changed)
            try:
                task = await self._read(task_id)
                left = until - loop.time()
                if task is None or is_closed(task.state) or left <= 0:
                    return task
                await asyncio.wait((changed,), timeout=min(left, REPEAT))
            finally:
                waiting = self._waiting[task_id]
                waiting.discard(changed)
                if not waiting:
                    del self._waiting[task_id]

    def notify(self, task_ids: Iterable[bytes]) -> None:
        """These tasks may have closed."""
        for task_id in task_ids:
            for changed in self._waiting.get(task_id, ()):
                if not changed.done():
                    changed.set_result(None)

    def notify_all(self) -> None:
        self.notify(list(self._waiting))

    async def _read(self, task_id: bytes) -> Task | None:
        self._wanted.add(task_id)
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_wanted())
        return (await asyncio.shield(self._reading)).get(task_id)

    async def _read_wanted(self) -> dict[bytes, Task]:
        """One read for all who asked in this loop turn; they ask again while the database is away."""
        self._reading, wanted = None, list(self._wanted)
        self._wanted = set()
        pause = 0.05
        while True:
            try:
                return await self._store.read(wanted)
            except StoreFault:
                await asyncio.sleep(pause)
                pause = min(pause * 2, REPEAT)
