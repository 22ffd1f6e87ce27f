"""Events, streams and webhooks in an SQLite file: parts of its batch and of its store."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from operator import attrgetter

from msgspec.structs import astuple

from perdure.core.outbox import Cursor, Feed, OutboxEvent
from perdure.core.streams import Chunk, StreamEnd
from perdure.core.webhooks import DeadLetter, Webhook
from perdure.store import sqlite_rows
from perdure.store.rows import Row
from perdure.store.sqlite_part import BatchPart, StorePart
from perdure.store.sqlite_rows import Write
from perdure.store.statements import expand, statements

SQL = statements("sqlite")
_NOTE_TRIMMED, _TRIM_EVENTS = SQL["trim_events"].split(";")
_TRIM_CHUNKS, _TRIM_STREAMS = SQL["trim_streams"].split(";")
_REMOVE_WEBHOOK, _REMOVE_LETTERS = SQL["remove_webhook"].split(";")
_publish = attrgetter(*OutboxEvent.__struct_fields__[:-2])
_put_webhook = attrgetter(
    "xid", "seq", "disabled_at", "note", "failures", "failing_since", "retry_at", "last_error", "sent_at",
    "lease_owner", "lease_until",
)  # fmt: skip


class OutboxBatch(BatchPart):
    """See store/outbox.py."""

    async def publish(self, events: Sequence[OutboxEvent]) -> None:
        await self._write_all(_writes(SQL["publish"], [_publish(event) for event in events]))

    async def publish_closed(self, type: str, task_ids: Collection[bytes], namespaces: Collection[str]) -> None:
        names = json.dumps(sorted(namespaces))
        ids = list(task_ids)
        for start, end in sqlite_rows.bounds(len(ids)):
            part = ids[start:end]
            await self._write(expand(SQL["publish_closed"], len(part)), [type, names, *part])

    async def trim_events(self, before: int, limit: int) -> int:
        await self._write(_NOTE_TRIMMED, (before, limit))
        return await self._write(_TRIM_EVENTS, (before, limit))

    async def stream_ends(self, task_ids: Sequence[bytes]) -> dict[bytes, StreamEnd]:
        ends: dict[bytes, StreamEnd] = {}
        for start, end in sqlite_rows.bounds(len(task_ids)):
            part = task_ids[start:end]
            found = await self._rows(expand(SQL["stream_ends"], len(part)), part)
            ends.update((row[0], StreamEnd(*row)) for row in found)
        return ends

    async def add_chunks(self, ends: Sequence[StreamEnd], chunks: Sequence[Chunk]) -> None:
        await self._write_all(_writes(SQL["put_streams"], [astuple(end) for end in ends]))
        await self._write_all(_writes(SQL["add_chunks"], [astuple(chunk) for chunk in chunks]))

    async def trim_streams(self, before: int, limit: int) -> int:
        await self._write(_TRIM_CHUNKS, (before, limit))
        return await self._write(_TRIM_STREAMS, (before, limit))


class OutboxStore(StorePart):
    """See store/outbox.py."""

    async def recording(self) -> set[str]:
        return {name for (name,) in await self._rows(SQL["recording"])}

    async def record_events(self, namespace: str, on: bool) -> None:
        await self._alone(SQL["record_events"], (namespace, int(on)))

    async def feed(self, namespace: str) -> Feed:
        found = await self._rows(SQL["feed"], (namespace,))
        if not found:
            return Feed()
        recording, *positions = found[0]
        return Feed(bool(recording), Cursor(*positions[:2]), Cursor(*positions[2:]))

    async def events(self, namespace: str, after: Cursor, limit: int) -> list[OutboxEvent]:
        return [OutboxEvent(*row) for row in await self._rows(SQL["events"], (namespace, *after, limit))]

    async def last_event_before(self, namespace: str, at: int) -> Cursor | None:
        found = await self._rows(SQL["last_event_before"], (namespace, at))
        return Cursor(*found[0]) if found else None

    async def chunks(self, task_id: bytes, number: int, limit: int) -> list[Chunk]:
        return [Chunk(*row) for row in await self._rows(SQL["chunks"], (task_id, number, limit))]

    async def stream_end(self, task_id: bytes) -> StreamEnd | None:
        found = await self._rows(expand(SQL["stream_ends"], 1), (task_id,))
        return StreamEnd(*found[0]) if found else None

    async def webhooks(self, namespace: str | None) -> list[Webhook]:
        return [Webhook(*row) for row in await self._rows(SQL["webhooks"], (namespace,))]

    async def add_webhook(self, hook: Webhook) -> None:
        await self._alone(SQL["add_webhook"], astuple(hook))

    async def take_webhook(self, id: str, owner: int, until: int, now: int) -> Webhook | None:
        found = await self._alone_rows(SQL["take_webhook"], (id, owner, until, now))
        return Webhook(*found[0]) if found else None

    async def put_webhook(self, hook: Webhook, owner: int | None) -> bool:
        return await self._alone(SQL["put_webhook"], (hook.id, owner, *_put_webhook(hook))) > 0

    async def remove_webhook(self, namespace: str, id: str) -> bool:
        if not await self._alone(_REMOVE_WEBHOOK, (namespace, id)):
            return False
        await self._alone(_REMOVE_LETTERS, (id,))
        return True

    async def bury(self, letter: DeadLetter) -> None:
        await self._alone(SQL["bury"], astuple(letter))

    async def dead_letters(self, webhook_id: str, limit: int) -> list[DeadLetter]:
        return [DeadLetter(*row) for row in await self._rows(SQL["dead_letters"], (webhook_id, limit))]


def _writes(sql: str, given: Sequence[Row]) -> Iterable[Write]:
    for start, end in sqlite_rows.bounds(len(given)):
        part = given[start:end]
        yield Write(expand(sql, len(part)), list(chain.from_iterable(part)), len(part))
