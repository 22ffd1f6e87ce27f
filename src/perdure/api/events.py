"""The part of the service that is about events and streams; Service inherits it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from perdure.api.part import Part
from perdure.api.plan import Plan, as_error
from perdure.api.reading import reading
from perdure.core import commands as c
from perdure.core import event_messages as e
from perdure.core import ids, limits, outbox
from perdure.core.errors import Conflict, Gone, NotFound, PayloadTooLarge, PerdureError, Unauthenticated
from perdure.core.event_views import view
from perdure.core.outbox import START, Cursor
from perdure.core.streams import Chunk, ChunkKind
from perdure.engine.engine import Engine

WAITING = frozenset({"events", "stream"})
OLDEST = "oldest"
"""The cursor before all events that are kept."""
_MAX_OFFSET = 2**31 - 1
_PAGE_BYTES = 4 * 1024 * 1024  #: of a page of a stream
_CHUNK_BYTES = 50  #: of a chunk besides its data, for the bounds of a batch
_KINDS = {kind.name.lower(): kind for kind in ChunkKind}


class Events(Part):
    """See client/events.py for the operations."""

    def check_key(self) -> None:
        """For answers that go on: Unauthenticated once the API key of the caller has been revoked."""
        if not self._alive():
            raise Unauthenticated("the API key was revoked")

    async def events(self, body: e.ReadEvents) -> e.EventPage:
        limit = limits.integer(body.limit, "limit", 1, limits.MAX_PAGE)
        wait = limits.wait(body.wait)
        types = outbox.check_filter(body.types)
        after = await position(self._engine, self._namespace, body.cursor)
        return await self._parking.hold(page(self._engine, self._namespace, after, types, limit, wait))

    async def record_events(self, body: e.RecordEvents) -> e.FeedView:
        store, namespace = self._engine.store, self._namespace
        with reading():
            if not body.on and await store.webhooks(namespace):
                raise Conflict("the namespace has webhooks; delete them first", field="on")
            await self._engine.outbox.record(namespace, body.on)
            feed = await store.feed(namespace)
        return e.FeedView(feed.recording, feed.trimmed.text, feed.end.text)

    async def write_stream(self, body: e.WriteStream) -> e.WriteStreamReply:
        return await plan_write(body).carry_out(self._engine)  # type: ignore[return-value]

    async def stream(self, body: e.ReadStream) -> e.StreamPage:
        task_id = ids.parse(body.task_id)
        offset = limits.integer(body.offset, "offset", 0, _MAX_OFFSET)
        limit = limits.integer(body.limit, "limit", 1, limits.MAX_PAGE)
        wait = limits.wait(body.wait)
        with reading():
            end = await self._engine.store.stream_end(task_id)
            owner = end or (await self._engine.store.read([task_id])).get(task_id)
        if owner is None or owner.namespace != self._namespace:
            raise NotFound("there is no such task", field="task_id")
        with reading():
            read, closed = await self._parking.hold(self._engine.outbox.chunks(task_id, offset, limit, wait))
        chunks = _page(read)
        found = [
            e.StreamChunk(chunk.number, chunk.attempt, ChunkKind(chunk.kind).name.lower(), chunk.data)
            for chunk in chunks
        ]
        following = chunks[-1].number + 1 if chunks else offset
        return e.StreamPage(found, following, closed and len(chunks) == len(read) < limit)


def _page(chunks: list[Chunk]) -> list[Chunk]:
    """As many of them as an answer carries."""
    room = _PAGE_BYTES
    for count, chunk in enumerate(chunks):
        room -= len(chunk.data)
        if room < 0:
            return chunks[: count or 1]
    return chunks


def plan_write(body: e.WriteStream) -> Plan:
    """Chunks of several tasks, each answered by itself."""
    limits.integer(len(body.writes), "writes", 1, limits.MAX_BATCH)
    commands: list[c.Command] = []
    refused: dict[int, e.StreamWritten] = {}
    for index, item in enumerate(body.writes):
        try:
            commands.append(_command(item))
        except PerdureError as error:
            refused[index] = e.StreamWritten(error.problem())

    def finish(outcomes: Sequence[c.Outcome]) -> e.WriteStreamReply:
        items = [e.StreamWritten(None if isinstance(o, c.Accepted) else as_error(o).problem()) for o in outcomes]
        for index, item in refused.items():
            items.insert(index, item)
        return e.WriteStreamReply(items)

    return Plan(commands, finish)


def _command(item: e.StreamWrite) -> c.WriteStream:
    limits.integer(len(item.chunks), "chunks", 0, limits.MAX_BATCH)
    chunks: list[tuple[int, bytes]] = []
    for index, chunk in enumerate(item.chunks):
        limits.choice(chunk.kind, f"chunks[{index}].kind", _KINDS)
        if (size := len(chunk.data)) > limits.MAX_CHUNK:
            field = f"chunks[{index}].data"
            raise PayloadTooLarge(f"{field} has {size} bytes", field=field, limit=f"{limits.MAX_CHUNK} bytes")
        chunks.append((int(_KINDS[chunk.kind]), chunk.data))
    first = limits.integer(item.first, "first", 0, _MAX_OFFSET)
    size = sum(len(data) + _CHUNK_BYTES for _, data in chunks)
    return c.WriteStream(lease=ids.parse_lease(item.lease), first=first, chunks=chunks, size=size)


async def position(engine: Engine, namespace: str, cursor: str) -> Cursor:
    """Where a reader begins; Conflict where no events are recorded, Gone where some behind its cursor are no more."""
    with reading():
        feed = await engine.store.feed(namespace)
    if not feed.recording and feed.end == START:
        raise Conflict(
            "the events of this namespace are not recorded; `perdure events on`, or a webhook, begins it",
            field="namespace",
        )
    if not cursor:
        return feed.end
    if cursor == OLDEST:
        return feed.trimmed
    after = outbox.parse(cursor)
    if after < feed.trimmed:
        raise gone(feed.trimmed)
    return after


def gone(oldest: Cursor) -> Gone:
    """For a reader that stayed away for too long. `limit` is the oldest cursor there is."""
    days = "events are kept for three days"
    return Gone(f"events behind this cursor were deleted; {days}", field="cursor", limit=oldest.text)


async def page(
    engine: Engine, namespace: str, after: Cursor, types: tuple[str, ...], limit: int, wait: float
) -> e.EventPage:
    """The next events that pass, once there are any or the wait is over. That none were deleted unseen is asked after
    they were read."""
    loop = asyncio.get_running_loop()
    until = loop.time() + wait
    while True:
        with reading():
            found = await engine.outbox.events(namespace, after, limit, max(0.0, until - loop.time()))
            feed = await engine.store.feed(namespace)
        if after < feed.trimmed:
            raise gone(feed.trimmed)
        after = found[-1].cursor if found else after
        passing = [view(event) for event in found if outbox.wanted(event.type, types)]
        if passing or (len(found) < limit and loop.time() >= until):
            return e.EventPage(passing, after.text)
