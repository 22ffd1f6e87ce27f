"""Waiters for what becomes of a task: one mechanism, by id.

A watch is answered with what is committed: a look into the store, or the closed task that a commit of this server
brings along. A hint of another server only makes it look. Looks of one loop turn share one read. A hint may be lost,
so every watched id is looked at again after a second at the latest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from perdure.core.errors import Unavailable
from perdure.core.model import Task
from perdure.core.run import Run
from perdure.core.states import is_closed
from perdure.store.base import Store, StoreFault

REPEAT = 1.0  #: seconds between looks without a hint


async def first(news: asyncio.Future[Task | None], wait: float) -> Task | None:
    """The closed task that the first news bring along; None when they do not, or none came within `wait` seconds or
    REPEAT."""
    try:
        async with asyncio.timeout(min(wait, REPEAT)):
            return await news
    except TimeoutError:
        return None


class Watches:
    """Watches of this server, by task id."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[bytes, set[asyncio.Future[Task | None]]] = {}
        self._runs: dict[bytes, Run] = {}  #: that closed while somebody waited, until nobody does
        self._reading: asyncio.Task[dict[bytes, Task]] | None = None
        self._readings: set[asyncio.Task[dict[bytes, Task]]] = set()
        self._wanted: set[bytes] = set()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __contains__(self, task_id: object) -> bool:
        return task_id in self._waiting

    async def watch(self, task_id: bytes, wait: float, *, namespace: str, whole: bool) -> Task | None:
        """The task once it has closed, or as it is after `wait` seconds; None at once when the namespace has no such
        task. Unless `whole`, payload and headers may be missing. Raises Unavailable when the database cannot be reached
        in that time."""
        loop = asyncio.get_running_loop()
        until = loop.time() + wait
        while True:
            with self.news(task_id) as news:
                try:
                    task = await self._read(task_id)
                    left = until - loop.time()
                    if task is None or task.namespace != namespace:
                        return None
                    if is_closed(task.state) or left <= 0:
                        return task
                    closed = await first(news, left)
                    if closed is not None and not whole:
                        return closed
                except StoreFault as fault:
                    left = until - loop.time()
                    if left <= 0:
                        raise Unavailable(f"the database does not answer: {fault}", retry_after=REPEAT) from fault
                    await asyncio.sleep(min(left, REPEAT / 4))

    @contextmanager
    def news(self, task_id: bytes) -> Iterator[asyncio.Future[Task | None]]:
        """Resolves when somebody says that the task has closed: with the task, but for payload and headers, when it was
        this server's commit."""
        news: asyncio.Future[Task | None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(task_id, set()).add(news)
        try:
            yield news
        finally:
            waiting = self._waiting[task_id]
            waiting.discard(news)
            if not waiting:
                del self._waiting[task_id]
                self._runs.pop(task_id, None)

    async def close(self) -> None:
        """No look goes on after the store is closed."""
        readings = list(self._readings)
        for reading in readings:
            reading.cancel()
        await asyncio.gather(*readings, return_exceptions=True)

    def closed(self, tasks: Iterable[Task], runs: Mapping[bytes, Run]) -> None:
        """A commit of this server closed these tasks; `runs` has the workflow columns of those that are runs."""
        for task in tasks:
            if task.id in self._waiting:
                if task.id in runs:
                    self._runs[task.id] = runs[task.id]
                self._tell(task.id, task)

    def run(self, task_id: bytes) -> Run | None:
        """Within `news`: the workflow columns of the run, when it was this server's commit that closed it. What only
        open runs have is as it was."""
        return self._runs.get(task_id)

    def notify(self, task_ids: Iterable[bytes]) -> None:
        """Another server says that these tasks have closed."""
        for task_id in task_ids:
            self._tell(task_id, None)

    def notify_all(self) -> None:
        self.notify(list(self._waiting))

    def _tell(self, task_id: bytes, task: Task | None) -> None:
        for changed in self._waiting.get(task_id, ()):
            if not changed.done():
                changed.set_result(task)

    async def _read(self, task_id: bytes) -> Task | None:
        self._wanted.add(task_id)
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_wanted())
            self._readings.add(self._reading)
            self._reading.add_done_callback(self._looked)
        return (await asyncio.shield(self._reading)).get(task_id)

    def _looked(self, reading: asyncio.Task[dict[bytes, Task]]) -> None:
        self._readings.discard(reading)
        if not reading.cancelled():
            reading.exception()  # those who asked may all be gone: then nobody is left to take its error

    async def _read_wanted(self) -> dict[bytes, Task]:
        """One read for all who asked in this loop turn."""
        self._reading, wanted = None, list(self._wanted)
        self._wanted = set()
        return await self._store.read(wanted)
