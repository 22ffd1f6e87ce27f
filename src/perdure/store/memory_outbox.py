"""Events, streams and webhooks in the reference store. Events get their numbers as their batch commits, which is the
order that all stores promise. Feeds and webhooks are written by nobody but single statements, so they need no locks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from copy import copy

from perdure.core import outbox
from perdure.core.outbox import START, Cursor, Feed, OutboxEvent
from perdure.core.streams import Chunk, StreamEnd
from perdure.core.webhooks import DeadLetter, Webhook
from perdure.store.memory_locks import LockingBatch
from perdure.store.memory_part import StorePart


class OutboxBatch(LockingBatch):
    """See store/outbox.py."""

    async def publish(self, events: Sequence[OutboxEvent]) -> None:
        await self._begin()
        self._publish(events)

    def _publish(self, events: Sequence[OutboxEvent]) -> None:
        kept = [copy(event) for event in events]
        self._transaction.at_commit(lambda: self._tables.outbox.add(kept))

    async def publish_closed(self, type: str, task_ids: Collection[bytes], namespaces: Collection[str]) -> None:
        await self._begin()
        closed = [task for task_id in task_ids if (task := self._closed(task_id)) is not None]
        events = [outbox.ended(task) for task in closed if task.namespace in namespaces]
        self._publish([event for event in events if event is not None and event.type == type])

    async def trim_events(self, before: int, limit: int) -> int:
        await self._begin()
        return self._tables.outbox.trim(before, limit)

    async def stream_ends(self, task_ids: Sequence[bytes]) -> dict[bytes, StreamEnd]:
        await self._begin()
        found = {task_id: self._transaction.get(self._tables.streams, task_id) for task_id in task_ids}
        return {task_id: copy(end) for task_id, end in found.items() if end is not None}

    async def add_chunks(self, ends: Sequence[StreamEnd], chunks: Sequence[Chunk]) -> None:
        await self._begin()
        for end in ends:
            await self._transaction.wait(self._tables.streams, end.task_id)
            self._transaction.put(self._tables.streams, end.task_id, copy(end))
        for chunk in chunks:
            await self._insert(self._tables.chunks, (chunk.task_id, chunk.number), copy(chunk))

    async def trim_streams(self, before: int, limit: int) -> int:
        await self._begin()
        streams = self._tables.streams
        old = self._found(streams, lambda end: end.touched_at < before, lambda end: end.touched_at)[:limit]
        gone = [task_id for task_id in old if self._open(task_id) is None and self._transaction.take(streams, task_id)]
        for task_id in gone:
            self._transaction.put(streams, task_id, None)
        for key in [key for key, _ in self._transaction.scan(self._tables.chunks) if key[0] in gone]:
            if self._transaction.take(self._tables.chunks, key):
                self._transaction.put(self._tables.chunks, key, None)
        return len(gone)


class OutboxStore(StorePart):
    """See store/outbox.py."""

    async def recording(self) -> set[str]:
        await self.pause()
        return {name for name, feed in self._tables.outbox.feeds.items() if feed.recording}

    async def record_events(self, namespace: str, on: bool) -> None:
        await self.pause()
        feeds = self._tables.outbox.feeds
        feeds[namespace] = Feed(on, feeds.get(namespace, Feed()).trimmed)

    async def feed(self, namespace: str) -> Feed:
        await self.pause()
        kept = self._tables.outbox
        feed = kept.feeds.get(namespace)
        if feed is None:
            return Feed()
        last = max((event.cursor for event in kept.events if event.namespace == namespace), default=START)
        return Feed(feed.recording, feed.trimmed, last)

    async def events(self, namespace: str, after: Cursor, limit: int) -> list[OutboxEvent]:
        await self.pause()
        found = [e for e in self._tables.outbox.events if e.namespace == namespace and e.cursor > after]
        return [copy(event) for event in found[:limit]]

    async def last_event_before(self, namespace: str, at: int) -> Cursor | None:
        await self.pause()
        found = [e.cursor for e in self._tables.outbox.events if e.namespace == namespace and e.at < at]
        return max(found, default=None)

    async def chunks(self, task_id: bytes, number: int, limit: int) -> list[Chunk]:
        await self.pause()
        rows = self._tables.chunks.rows
        found = sorted(key for key in rows if key[0] == task_id and key[1] >= number)
        return [copy(rows[key]) for key in found[:limit]]

    async def stream_end(self, task_id: bytes) -> StreamEnd | None:
        await self.pause()
        return copy(self._tables.streams.rows.get(task_id))

    async def webhooks(self, namespace: str | None) -> list[Webhook]:
        await self.pause()
        found = [h for h in self._tables.outbox.webhooks.values() if namespace is None or h.namespace == namespace]
        return [copy(hook) for hook in sorted(found, key=lambda hook: (hook.created_at, hook.id))]

    async def add_webhook(self, hook: Webhook) -> None:
        await self.pause()
        self._tables.outbox.webhooks[hook.id] = copy(hook)

    async def take_webhook(self, id: str, owner: int, until: int, now: int) -> Webhook | None:
        await self.pause()
        hook = self._tables.outbox.webhooks.get(id)
        if hook is None or (hook.lease_owner not in (None, owner) and (hook.lease_until or 0) >= now):
            return None
        hook.lease_owner, hook.lease_until = owner, until
        return copy(hook)

    async def put_webhook(self, hook: Webhook, owner: int | None) -> bool:
        await self.pause()
        held = self._tables.outbox.webhooks.get(hook.id)
        if held is None or owner not in (None, held.lease_owner):
            return False
        self._tables.outbox.webhooks[hook.id] = copy(hook)
        return True

    async def remove_webhook(self, namespace: str, id: str) -> bool:
        await self.pause()
        kept = self._tables.outbox
        if id not in kept.webhooks or kept.webhooks[id].namespace != namespace:
            return False
        del kept.webhooks[id]
        kept.letters = {key: letter for key, letter in kept.letters.items() if letter.webhook_id != id}
        return True

    async def bury(self, letter: DeadLetter) -> None:
        await self.pause()
        self._tables.outbox.letters.setdefault((letter.webhook_id, letter.xid, letter.seq), copy(letter))

    async def dead_letters(self, webhook_id: str, limit: int) -> list[DeadLetter]:
        await self.pause()
        found = [copy(letter) for _, letter in sorted(self._tables.outbox.letters.items())]
        return [letter for letter in found if letter.webhook_id == webhook_id][:limit]
