"""Sends events to webhooks: one sender an endpoint, over all servers, by a lease on its row.

A sender goes through the outbox from the endpoint's cursor, and moves that on in the database before it sends the next
event. So events arrive in order, and once more only where a server died between an answer and its commit. Whoever
changes the row meanwhile, to send something again or nothing any more, takes the lease away with it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from perdure.core import outbox, webhooks
from perdure.core.event_views import document
from perdure.core.model import SECOND
from perdure.core.outbox import OutboxEvent
from perdure.core.webhooks import Webhook
from perdure.engine.nats import SCHEME, NatsSender
from perdure.engine.outbox import LOOK, Outbox
from perdure.store.base import Store, StoreFault

if TYPE_CHECKING:
    from perdure.engine.post import Sender

log = logging.getLogger("perdure.webhooks")

LEASE_SECONDS = 30
_IDLE_SECONDS = 10.0
"""How long a sender waits for events before it renews its lease."""
_STOP_SECONDS = 2.0
_PAGE = 200
_MOST = 500  #: endpoints that one server sends to at once


class Webhooks:
    """The service. `private`: endpoints may be inside, too."""

    name = "webhooks"

    def __init__(self, store: Store, outbox: Outbox, now: Callable[[], int], *, private: bool) -> None:
        self.private = private
        self.sender: Sender | None = None  #: from the first message on
        self._nats = NatsSender()
        self._store = store
        self._outbox = outbox
        self._now = now
        self._owner = secrets.randbits(62) + 1
        self._held: dict[str, Webhook] = {}  #: those leased, as they were last written
        self._sending: dict[str, asyncio.Task[None]] = {}

    async def run_once(self) -> float:
        """Begin to send where nobody does."""
        if await self._outbox.recorded():
            now = self._now()
            for hook in await self._store.webhooks(None):
                if hook.id not in self._sending and len(self._sending) < _MOST and self._is_due(hook, now):
                    self._sending[hook.id] = asyncio.create_task(self._send_all(hook.id, now))
        return LOOK

    def _is_due(self, hook: Webhook, now: int) -> bool:
        held = hook.lease_owner not in (None, self._owner) and (hook.lease_until or 0) >= now
        return hook.disabled_at is None and (hook.retry_at or 0) <= now and not held

    async def stop(self) -> None:
        """Send nothing more, and let others send at once."""
        sending = list(self._sending.values())
        for task in sending:
            task.cancel()
        await asyncio.gather(*sending, return_exceptions=True)
        with suppress(StoreFault, TimeoutError):  # the leases end by themselves
            async with asyncio.timeout(_STOP_SECONDS):
                for hook in list(self._held.values()):
                    await self._release(hook)
        if self.sender is not None:
            await self.sender.close()
        await self._nats.close()

    def changed(self, id: str) -> None:
        """Somebody changed it: whoever sends here just now begins anew."""
        if (sending := self._sending.get(id)) is not None:
            sending.cancel()

    async def ping(self, hook: Webhook, body: bytes) -> str:
        """Send a message beside the events; nothing when it was taken, else what went wrong."""
        return await self._post(hook, "ping", f"ping-{secrets.token_hex(8)}", body)

    async def _post(self, hook: Webhook, type: str, id: str, body: bytes) -> str:
        """Nothing when the endpoint took it, else what went wrong. Ids of two databases may be the same, and both may
        publish to one stream: there it is told apart by the endpoint, too."""
        if hook.url.startswith(SCHEME):
            return await self._nats.send(hook.url, type, f"{hook.id}/{id}", body)
        if self.sender is None:
            from perdure.engine.post import Sender  # an HTTP client takes 0.2 s to load, and few servers send

            self.sender = Sender(private=self.private)
        return await self.sender.send(hook.url, hook.secret, id, body, self._now() // SECOND)

    async def _send_all(self, id: str, now: int) -> None:
        try:
            hook = await self._store.take_webhook(id, self._owner, now + LEASE_SECONDS * SECOND, now)
            while hook is not None:
                self._held[id] = hook
                hook = await self._send_page(hook)
        except StoreFault as fault:
            log.info("webhook %s waits for the database: %s", id, fault)
        except Exception:
            log.exception("webhook %s is not sent to; it is tried again in a second", id)
        finally:
            del self._sending[id]

    async def _send_page(self, hook: Webhook) -> Webhook | None:
        """The next events, or a while of waiting for some; None when this sender is done for now."""
        events = await self._outbox.events(hook.namespace, hook.cursor, _PAGE, _IDLE_SECONDS)
        feed = await self._store.feed(hook.namespace)
        if hook.cursor < feed.trimmed:
            note = "events were deleted before they could be sent"
            await self._release(webhooks.disabled(hook, note, self._now()))
            return None
        for event in events:
            if not outbox.wanted(event.type, hook.filter):
                hook = webhooks.passed(hook, event.cursor)
                continue
            after = await self._send(hook, event)
            if after is None:
                return None
            hook = after
        return hook if await self._put(hook) else None

    async def _send(self, hook: Webhook, event: OutboxEvent) -> Webhook | None:
        """The endpoint after it took the event; None when it did not, or the lease is gone."""
        body = document(event)
        error = await self._post(hook, event.type, event.cursor.text, body)
        now = self._now()
        if not error:
            after = webhooks.taken(hook, event.cursor, now)
            return after if await self._put(after) else None
        after, letter = webhooks.failed(hook, event.cursor, body, error, now, random.random())
        if letter is not None:
            await self._store.bury(letter)
        log.info("webhook %s did not take event %s: %s", hook.id, event.cursor.text, error)
        await self._release(after)
        return None

    async def _put(self, hook: Webhook) -> bool:
        """Write it and renew the lease; False when that is gone."""
        hook.lease_owner = self._owner
        hook.lease_until = self._now() + LEASE_SECONDS * SECOND
        if await self._store.put_webhook(hook, self._owner):
            self._held[hook.id] = hook
            return True
        self._held.pop(hook.id, None)
        return False

    async def _release(self, hook: Webhook) -> None:
        hook.lease_owner = hook.lease_until = None
        await self._store.put_webhook(hook, self._owner)
        self._held.pop(hook.id, None)
