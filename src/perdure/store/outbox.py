"""The verbs about events, streams and webhooks: parts of `base.Batch` and `base.Store`, and what they promise.

What a batch publishes is seen when it commits, with a cursor that is above those of all events that anybody could read
before. So a reader that goes on behind the last cursor that it saw misses nothing, however batches overlap.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from perdure.core.outbox import Cursor, Feed, OutboxEvent
from perdure.core.streams import Chunk, StreamEnd
from perdure.core.webhooks import DeadLetter, Webhook


class OutboxBatch(Protocol):
    """The part of a batch."""

    async def publish(self, events: Sequence[OutboxEvent]) -> None:
        """New events; the store gives them their cursors."""
        ...

    async def publish_closed(self, type: str, task_ids: Collection[bytes], namespaces: Collection[str]) -> None:
        """An event of this type for each of these tasks that is of one of these namespaces. The batch has closed them,
        perhaps without a look at their rows."""
        ...

    async def trim_events(self, before: int, limit: int) -> int:
        """Of the oldest `limit` events (of each namespace, or of all) delete those from before `before`, and note in
        the feeds up to where; how many."""
        ...

    async def stream_ends(self, task_ids: Sequence[bytes]) -> dict[bytes, StreamEnd]:
        """How far the streams of these tasks are, whose rows the batch has locked. Those that have none are absent."""
        ...

    async def add_chunks(self, ends: Sequence[StreamEnd], chunks: Sequence[Chunk]) -> None:
        """New chunks, and the new ends of their streams."""
        ...

    async def trim_streams(self, before: int, limit: int) -> int:
        """Of the `limit` streams that were written to longest ago, before `before`, delete those whose task is not
        open; how many."""
        ...


class OutboxStore(Protocol):
    """The part of a store. Each of these is a transaction of its own."""

    async def recording(self) -> set[str]:
        """Namespaces whose events are recorded."""
        ...

    async def record_events(self, namespace: str, on: bool) -> None:
        """Begin or end to record the events of a namespace. Servers find out in a second."""
        ...

    async def feed(self, namespace: str) -> Feed:
        """The feed of a namespace; an empty one where nothing was ever recorded."""
        ...

    async def events(self, namespace: str, after: Cursor, limit: int) -> list[OutboxEvent]:
        """The first `limit` events behind a cursor, in order."""
        ...

    async def last_event_before(self, namespace: str, at: int) -> Cursor | None:
        """The last event from before a time."""
        ...

    async def chunks(self, task_id: bytes, number: int, limit: int) -> list[Chunk]:
        """The first `limit` chunks of a stream from a number on, in order."""
        ...

    async def stream_end(self, task_id: bytes) -> StreamEnd | None:
        """How far a stream is; None where nothing was written."""
        ...

    async def webhooks(self, namespace: str | None) -> list[Webhook]:
        """Those of a namespace, or all, oldest first."""
        ...

    async def add_webhook(self, hook: Webhook) -> None: ...

    async def take_webhook(self, id: str, owner: int, until: int, now: int) -> Webhook | None:
        """Lease a webhook until a time, for a server; None when it is gone, or another one's lease is not over."""
        ...

    async def put_webhook(self, hook: Webhook, owner: int | None) -> bool:
        """Write all that may change about a webhook. With an owner nothing happens, and the answer is False, unless
        that one has its lease."""
        ...

    async def remove_webhook(self, namespace: str, id: str) -> bool:
        """Delete a webhook and its dead letters; False when there is none."""
        ...

    async def bury(self, letter: DeadLetter) -> None:
        """Keep a dead letter; the same one again changes nothing."""
        ...

    async def dead_letters(self, webhook_id: str, limit: int) -> list[DeadLetter]:
        """Those of a webhook, oldest event first."""
        ...
