"""What the protocol has for events, streams and webhooks: the calls, and the calls over one way to ask."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

from perdure.core import event_messages as e
from perdure.core.body import Body


class EventService(Protocol):
    """See the bodies in core/event_messages.py."""

    async def events(self, body: e.ReadEvents) -> e.EventPage:
        """Conflict where the events of the namespace are not recorded; Gone for a cursor that is too old: `limit` of
        the error is the oldest one there is."""
        ...

    async def record_events(self, body: e.RecordEvents) -> e.FeedView:
        """Conflict when it is to end while there are webhooks."""
        ...

    async def stream(self, body: e.ReadStream) -> e.StreamPage:
        """NotFound when there is no such task in the namespace."""
        ...

    async def write_stream(self, body: e.WriteStream) -> e.WriteStreamReply: ...

    async def add_webhook(self, body: e.AddWebhook) -> e.WebhookView: ...

    async def webhooks(self, body: e.ListWebhooks) -> e.WebhookList: ...

    async def delete_webhook(self, body: e.DeleteWebhook) -> e.WebhookDeleted: ...

    async def disable_webhook(self, body: e.DisableWebhook) -> e.WebhookView:
        """NotFound when there is no such webhook; so do the next calls."""
        ...

    async def replay_webhook(self, body: e.ReplayWebhook) -> e.WebhookView: ...

    async def ping_webhook(self, body: e.PingWebhook) -> e.PingReply: ...

    async def webhook_dead_letters(self, body: e.ListDeadLetters) -> e.DeadLetters: ...


class EventCalls(ABC):
    """A part of client/calls.py."""

    @abstractmethod
    async def _ask(self, op: str, body: Body) -> Any: ...

    async def events(self, body: e.ReadEvents) -> e.EventPage:
        reply: e.EventPage = await self._ask("events", body)
        return reply

    async def record_events(self, body: e.RecordEvents) -> e.FeedView:
        reply: e.FeedView = await self._ask("record_events", body)
        return reply

    async def stream(self, body: e.ReadStream) -> e.StreamPage:
        reply: e.StreamPage = await self._ask("stream", body)
        return reply

    async def write_stream(self, body: e.WriteStream) -> e.WriteStreamReply:
        reply: e.WriteStreamReply = await self._ask("write_stream", body)
        return reply

    async def add_webhook(self, body: e.AddWebhook) -> e.WebhookView:
        reply: e.WebhookView = await self._ask("add_webhook", body)
        return reply

    async def webhooks(self, body: e.ListWebhooks) -> e.WebhookList:
        reply: e.WebhookList = await self._ask("webhooks", body)
        return reply

    async def delete_webhook(self, body: e.DeleteWebhook) -> e.WebhookDeleted:
        reply: e.WebhookDeleted = await self._ask("delete_webhook", body)
        return reply

    async def disable_webhook(self, body: e.DisableWebhook) -> e.WebhookView:
        reply: e.WebhookView = await self._ask("disable_webhook", body)
        return reply

    async def replay_webhook(self, body: e.ReplayWebhook) -> e.WebhookView:
        reply: e.WebhookView = await self._ask("replay_webhook", body)
        return reply

    async def ping_webhook(self, body: e.PingWebhook) -> e.PingReply:
        reply: e.PingReply = await self._ask("ping_webhook", body)
        return reply

    async def webhook_dead_letters(self, body: e.ListDeadLetters) -> e.DeadLetters:
        reply: e.DeadLetters = await self._ask("webhook_dead_letters", body)
        return reply
