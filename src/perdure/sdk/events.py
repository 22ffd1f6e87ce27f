"""The client's half for events and streams. `AsyncEvents` is a part of AsyncClient, `Events` of Perdure."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime

from perdure.core.event_messages import (
    AddWebhook,
    DeadLetterView,
    DeleteWebhook,
    DisableWebhook,
    Event,
    EventPage,
    FeedView,
    ListDeadLetters,
    ListWebhooks,
    PingReply,
    PingWebhook,
    ReadEvents,
    ReadStream,
    RecordEvents,
    ReplayWebhook,
    StreamPage,
    WebhookView,
)
from perdure.sdk.handle import patiently
from perdure.sdk.part import AsyncPart, Part
from perdure.sdk.stream import Chunk, blocking, value_of

_PAGE = 500  #: events
_CHUNKS = 100  #: of which each may have 64 KiB


class AsyncEvents(AsyncPart):
    """A part of AsyncClient."""

    async def record_events(self, on: bool = True) -> FeedView:
        """Begin, or end, to record the events of the namespace: all servers do within a second or two. Raises Conflict
        when it is to end while there are webhooks."""
        return await (await self.service()).record_events(RecordEvents(on))

    async def events(self, cursor: str = "", types: Sequence[str] = ()) -> AsyncIterator[Event]:
        """What happens to jobs and workflow runs, in order, without end. Begins now, or behind a `cursor`: the `id` of
        an event that was read before, or "oldest". `types` filters, such as "task.failed" or "workflow.*".

        Whoever keeps the id of the last event that it has dealt with misses none and gets none twice. An outage of up
        to 30 s is waited out. Raises Conflict where events are not recorded, Gone for a cursor of more than three days
        ago (`limit` is the oldest one there is), Unavailable."""
        if not cursor:
            cursor = (await (await self.service()).events(ReadEvents())).cursor

        async def ask(wait: float) -> EventPage:
            return await (await self.service()).events(ReadEvents(cursor, tuple(types), _PAGE, wait))

        while True:
            page = await patiently(ask, lambda page: bool(page.events), None)
            for event in page.events:
                yield event
            cursor = page.cursor

    async def stream(self, task_id: str, offset: int = 0) -> AsyncIterator[Chunk]:
        """What a task's handler gives to `ctx.stream`, from a chunk on, as it comes, to the end of the task; see
        AsyncJob.stream."""
        attempt = 0

        async def ask(wait: float) -> StreamPage:
            return await (await self.service()).stream(ReadStream(task_id, offset, _CHUNKS, wait))

        while True:
            page = await patiently(ask, lambda page: bool(page.chunks) or page.closed, None)
            for chunk in page.chunks:
                restarted = attempt not in (0, chunk.attempt)
                attempt = chunk.attempt
                yield Chunk(chunk.offset, chunk.attempt, value_of(self.converter, chunk), restarted)
            if page.closed:
                return
            offset = page.next

    async def add_webhook(self, url: str, types: Sequence[str] = (), cursor: str = "") -> WebhookView:
        """Send events to a URL, from now on or from behind a cursor. `secret` of the answer verifies the signatures;
        it is shown this once."""
        return await (await self.service()).add_webhook(AddWebhook(url, tuple(types), cursor))

    async def webhooks(self) -> list[WebhookView]:
        """The webhooks of the namespace, oldest first."""
        return (await (await self.service()).webhooks(ListWebhooks())).webhooks

    async def delete_webhook(self, id: str) -> None:
        """Send nothing there any more, and forget its dead letters."""
        await (await self.service()).delete_webhook(DeleteWebhook(id))

    async def disable_webhook(self, id: str, note: str = "") -> WebhookView:
        """Send nothing there until `replay_webhook`."""
        return await (await self.service()).disable_webhook(DisableWebhook(id, note))

    async def replay_webhook(self, id: str, cursor: str = "", since: datetime | None = None) -> WebhookView:
        """Enable it, and send from behind a cursor or from a time on; with neither go on where it stopped, at once."""
        return await (await self.service()).replay_webhook(ReplayWebhook(id, cursor, since))

    async def ping_webhook(self, id: str) -> PingReply:
        """Send a "ping" there now, beside the events."""
        return await (await self.service()).ping_webhook(PingWebhook(id))

    async def webhook_dead_letters(self, id: str, limit: int = 100) -> list[DeadLetterView]:
        """Events that the endpoint did not take within a day of tries, oldest first."""
        return (await (await self.service()).webhook_dead_letters(ListDeadLetters(id, limit))).letters


class Events(Part):
    """What Perdure can do about events: the calls of AsyncEvents, each of which blocks."""

    _app: AsyncEvents

    def record_events(self, on: bool = True) -> FeedView:
        """See AsyncEvents.record_events."""
        return self._run(self._app.record_events(on))

    def events(self, cursor: str = "", types: Sequence[str] = ()) -> Iterator[Event]:
        """See AsyncEvents.events."""
        return blocking(self._app.events(cursor, types), self._run)

    def stream(self, task_id: str, offset: int = 0) -> Iterator[Chunk]:
        """See AsyncEvents.stream."""
        return blocking(self._app.stream(task_id, offset), self._run)

    def add_webhook(self, url: str, types: Sequence[str] = (), cursor: str = "") -> WebhookView:
        """See AsyncEvents.add_webhook."""
        return self._run(self._app.add_webhook(url, types, cursor))

    def webhooks(self) -> list[WebhookView]:
        """See AsyncEvents.webhooks."""
        return self._run(self._app.webhooks())

    def delete_webhook(self, id: str) -> None:
        """See AsyncEvents.delete_webhook."""
        self._run(self._app.delete_webhook(id))

    def replay_webhook(self, id: str, cursor: str = "", since: datetime | None = None) -> WebhookView:
        """See AsyncEvents.replay_webhook."""
        return self._run(self._app.replay_webhook(id, cursor, since))
