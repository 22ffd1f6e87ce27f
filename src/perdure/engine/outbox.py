"""The outbox of an engine: which namespaces have their events recorded, what a batch publishes, and who reads it.

Where nobody asked for events nothing is written and nothing is read but, once a second, that nobody did. A reader takes
pages from the store, when something is told of and once a second, so a slow one is behind and holds up nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Set
from typing import TypeVar

from perdure.core import commands as c
from perdure.core import outbox
from perdure.core.limit_rules import Limit
from perdure.core.model import SECOND
from perdure.core.outbox import Cursor, OutboxEvent
from perdure.core.streams import Chunk
from perdure.engine.alarms import Apply
from perdure.engine.ledger import Ledger
from perdure.engine.news import News
from perdure.store.base import Batch as Rows
from perdure.store.base import Store

T = TypeVar("T")

RETENTION_SECONDS = 3 * 24 * 3600.0
"""How long an event is kept."""
LOOK = 1.0  #: seconds between looks without news
_LOOK_AGAIN = 0.05
"""Seconds until the next look after news that showed nothing: a transaction that runs may still hide it."""
_SPACING = 0.01
"""Seconds between news and the look: what comes in the same moment is read together, however many commits it takes."""
_TRIM_SECONDS = 30.0
_TRIM_LIMIT = 1_000  #: rows a step


def _events_of(ledger: Ledger, namespaces: frozenset[str]) -> list[OutboxEvent]:
    """What a batch has to publish: of each task that it makes, ends or puts off, in these namespaces."""
    runs = ledger.runs
    found: list[OutboxEvent | None] = []
    for task in ledger.made:
        if task.namespace in namespaces and task.id in runs:
            found.append(outbox.started(task, runs[task.id].workflow_id))
    for task in ledger.put_off:
        if task.namespace in namespaces:
            found.append(outbox.put_off(task))
    for task in ledger.closed:
        if task.namespace in namespaces:
            found.append(outbox.ended(task, runs[task.id].workflow_id if task.id in runs else ""))
    return [event for event in found if event is not None]


async def publish(
    rows: Rows, ledger: Ledger, succeeded: Set[bytes], moved: Iterable[Limit], namespaces: frozenset[str]
) -> set[str]:
    """Write the events of a batch in its transaction, and say which of these namespaces may have some. Of which the
    jobs are that succeeded without a look at their rows, only the store knows. `moved` are limits with breakers that
    opened or closed."""
    published: set[str] = set()
    if succeeded:
        await rows.publish_closed(outbox.SUCCEEDED, succeeded, namespaces)
        published.update(namespaces)
    events = _events_of(ledger, namespaces)
    events += [outbox.moved(limit) for limit in moved if limit.namespace in namespaces]
    if events:
        await rows.publish(events)
        published.update(event.namespace for event in events)
    return published


class Outbox:
    """The service; `namespaces` are those whose events are recorded."""

    name = "outbox"

    def __init__(self, store: Store, apply: Apply, now: Callable[[], int], keep: float) -> None:
        self._store = store
        self._apply = apply
        self._now = now
        self._keep = int(keep * SECOND)  #: of streams; that of tasks
        self._trim_at = 0.0
        self._known = False
        self.namespaces: frozenset[str] = frozenset()
        self.news = News()

    async def recorded(self) -> frozenset[str]:
        """Namespaces whose events are recorded. No batch runs before they are known, or a server that starts would
        leave a gap."""
        if not self._known:
            await self._learn()
        return self.namespaces

    async def _learn(self) -> None:
        self.namespaces = frozenset(await self._store.recording())
        self._known = True

    async def run_once(self) -> float:
        await self._learn()
        now = asyncio.get_running_loop().time()
        if now >= self._trim_at:
            events_before = self._now() - int(RETENTION_SECONDS * SECOND)
            trim = c.TrimOutbox(events_before=events_before, streams_before=self._now() - self._keep, limit=_TRIM_LIMIT)
            (outcome,) = await self._apply([trim])
            if not isinstance(outcome, c.Did) or outcome.count < _TRIM_LIMIT:
                self._trim_at = now + _TRIM_SECONDS
        return LOOK

    async def record(self, namespace: str, on: bool) -> None:
        """Begin or end to record the events of a namespace: here at once, elsewhere within a second."""
        await self._store.record_events(namespace, on)
        self.namespaces = self.namespaces | {namespace} if on else self.namespaces - {namespace}

    def heard(self, task_ids: Iterable[bytes]) -> None:
        """Another server says that these have closed, or that their streams have grown."""
        if self.news:
            self.news.tell([*task_ids, *self.namespaces])

    async def events(self, namespace: str, after: Cursor, limit: int, wait: float) -> list[OutboxEvent]:
        """The next events behind a cursor; none after `wait` seconds."""

        async def look() -> list[OutboxEvent]:
            return await self._store.events(namespace, after, limit)

        return await self._look(namespace, look, bool, wait)

    async def chunks(self, task_id: bytes, number: int, limit: int, wait: float) -> tuple[list[Chunk], bool]:
        """The next chunks of a task's stream, and whether the task is not open (any more)."""

        async def look() -> tuple[list[Chunk], bool]:
            found = await self._store.chunks(task_id, number, limit)
            if found:
                return found, False
            task = (await self._store.read([task_id])).get(task_id)
            if task is not None and task.closed_at is None:
                return [], False
            return await self._store.chunks(task_id, number, limit), True  # what came before the end

        return await self._look(task_id, look, lambda found: bool(found[0]) or found[1], wait)

    async def _look(self, key: object, look: Callable[[], Awaitable[T]], done: Callable[[T], bool], wait: float) -> T:
        """What a look shows, once it is `done` or `wait` seconds are over."""
        loop = asyncio.get_running_loop()
        until = loop.time() + wait
        pause = LOOK
        while True:
            with self.news.expect(key) as news:
                found = await look()
                left = until - loop.time()
                if done(found) or left <= 0:
                    return found
                try:
                    async with asyncio.timeout(min(pause, left)):
                        await news.wait()
                        await asyncio.sleep(_SPACING)
                    pause = _LOOK_AGAIN
                except TimeoutError:
                    pause = min(pause * 2, LOOK)
