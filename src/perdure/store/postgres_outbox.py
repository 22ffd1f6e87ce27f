"""Events, streams and webhooks on PostgreSQL: parts of its batch and of its store."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import attrgetter

from msgspec.structs import astuple

from perdure.core.outbox import Cursor, Feed, OutboxEvent
from perdure.core.streams import Chunk, StreamEnd
from perdure.core.webhooks import DeadLetter, Webhook
from perdure.store import postgres_rows
from perdure.store.postgres_part import BatchPart, StorePart

_PUBLISHED = OutboxEvent.__struct_fields__[:-2]
_publish = attrgetter(*_PUBLISHED)
_put_webhook = attrgetter(
    "xid", "seq", "disabled_at", "note", "failures", "failing_since", "retry_at", "last_error", "sent_at",
    "lease_owner", "lease_until",
)  # fmt: skip


class OutboxBatch(BatchPart):
    """See store/outbox.py. The default of the column is what gives an event its transaction."""

    async def publish(self, events: Sequence[OutboxEvent]) -> None:
        if events:
            await self._copy("outbox", _PUBLISHED, map(_publish, events))

    async def publish_closed(self, type: str, task_ids: Collection[bytes], namespaces: Collection[str]) -> None:
        if task_ids:
            await self._write("publish_closed", type, list(namespaces), list(task_ids))

    async def trim_events(self, before: int, limit: int) -> int:
        return int((await self._fetch("trim_events", before, limit))[0][0])

    async def stream_ends(self, task_ids: Sequence[bytes]) -> dict[bytes, StreamEnd]:
        return {row[0]: StreamEnd(*row) for row in await self._fetch("stream_ends", task_ids)}

    async def add_chunks(self, ends: Sequence[StreamEnd], chunks: Sequence[Chunk]) -> None:
        if ends:
            await self._write("put_streams", *postgres_rows.columns(ends, astuple))
        if chunks:
            await self._copy("stream_chunks", Chunk.__struct_fields__, map(astuple, chunks))

    async def trim_streams(self, before: int, limit: int) -> int:
        return int((await self._fetch("trim_streams", before, limit))[0][0])


class OutboxStore(StorePart):
    """See store/outbox.py."""

    async def recording(self) -> set[str]:
        return {name for (name,) in await self._short("recording")}

    async def record_events(self, namespace: str, on: bool) -> None:
        await self._short("record_events", namespace, on)

    async def feed(self, namespace: str) -> Feed:
        found = await self._read("feed", namespace)
        if not found:
            return Feed()
        recording, *positions = found[0]
        return Feed(recording, Cursor(*positions[:2]), Cursor(*positions[2:]))

    async def events(self, namespace: str, after: Cursor, limit: int) -> list[OutboxEvent]:
        return [OutboxEvent(*row) for row in await self._read("events", namespace, *after, limit)]

    async def last_event_before(self, namespace: str, at: int) -> Cursor | None:
        found = await self._read("last_event_before", namespace, at)
        return Cursor(*found[0]) if found else None

    async def chunks(self, task_id: bytes, number: int, limit: int) -> list[Chunk]:
        return [Chunk(*row) for row in await self._read("chunks", task_id, number, limit)]

    async def stream_end(self, task_id: bytes) -> StreamEnd | None:
        found = await self._read("stream_ends", [task_id])
        return StreamEnd(*found[0]) if found else None

    async def webhooks(self, namespace: str | None) -> list[Webhook]:
        return [Webhook(*row) for row in await self._short("webhooks", namespace)]

    async def add_webhook(self, hook: Webhook) -> None:
        await self._short("add_webhook", *astuple(hook))

    async def take_webhook(self, id: str, owner: int, until: int, now: int) -> Webhook | None:
        found = await self._short("take_webhook", id, owner, until, now)
        return Webhook(*found[0]) if found else None

    async def put_webhook(self, hook: Webhook, owner: int | None) -> bool:
        return bool(await self._short("put_webhook", hook.id, owner, *_put_webhook(hook)))

    async def remove_webhook(self, namespace: str, id: str) -> bool:
        return bool(await self._short("remove_webhook", namespace, id))

    async def bury(self, letter: DeadLetter) -> None:
        await self._short("bury", *astuple(letter))

    async def dead_letters(self, webhook_id: str, limit: int) -> list[DeadLetter]:
        return [DeadLetter(*row) for row in await self._short("dead_letters", webhook_id, limit)]
