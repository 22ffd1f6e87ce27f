"""The part of the service that is about webhooks; Service inherits it."""

from __future__ import annotations

import base64
import secrets

import msgspec

from perdure.api.events import OLDEST, position
from perdure.api.part import Part
from perdure.api.reading import reading
from perdure.api.views import moment, moment_or_none
from perdure.core import event_messages as e
from perdure.core import limits, outbox, webhooks
from perdure.core.errors import InvalidArgument, NotFound, ResourceExhausted
from perdure.core.outbox import Cursor
from perdure.core.webhooks import DeadLetter, Webhook
from perdure.engine.endpoints import check_url
from perdure.engine.nats import SCHEME, check_nats, shown

MAX_WEBHOOKS = 100
"""Of a namespace."""
_event = msgspec.json.Decoder(e.Event).decode


class Webhooks(Part):
    """See client/events.py for the operations."""

    async def add_webhook(self, body: e.AddWebhook) -> e.WebhookView:
        engine = self._engine
        check = check_nats if str(body.url).startswith(SCHEME) else check_url
        url = check(body.url, private=engine.webhooks.private)
        types = outbox.check_filter(body.types)
        if body.cursor not in ("", OLDEST):
            outbox.parse(body.cursor)
        with reading():
            if len(await engine.store.webhooks(self._namespace)) >= MAX_WEBHOOKS:
                raise ResourceExhausted(f"the namespace has {MAX_WEBHOOKS} webhooks", limit=f"{MAX_WEBHOOKS}")
            await engine.outbox.record(self._namespace, True)
        begin = await position(engine, self._namespace, body.cursor)
        secret = webhooks.SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()
        hook = Webhook(
            f"wh_{secrets.token_hex(10)}", self._namespace, url, secret, ",".join(types), engine.now(), *begin
        )
        with reading():
            await engine.store.add_webhook(hook)
        made = view(hook)
        made.secret = secret
        return made

    async def webhooks(self, body: e.ListWebhooks) -> e.WebhookList:
        with reading():
            return e.WebhookList([view(hook) for hook in await self._engine.store.webhooks(self._namespace)])

    async def delete_webhook(self, body: e.DeleteWebhook) -> e.WebhookDeleted:
        with reading():
            if await self._engine.store.remove_webhook(self._namespace, limits.name(body.id, "id")):
                self._engine.webhooks.changed(body.id)
        return e.WebhookDeleted()

    async def disable_webhook(self, body: e.DisableWebhook) -> e.WebhookView:
        note = limits.text(body.note, "note", 500)
        hook = webhooks.disabled(await self._webhook(body.id), note, self._engine.now())
        hook.lease_owner = hook.lease_until = None
        return await self._changed(hook)

    async def replay_webhook(self, body: e.ReplayWebhook) -> e.WebhookView:
        if body.cursor and body.since is not None:
            raise InvalidArgument("cursor and since exclude each other", field="since", limit="one of cursor, since")
        hook = await self._webhook(body.id)
        cursor = body.cursor or hook.cursor.text
        if body.since is not None:
            cursor = await self._before(limits.microseconds(body.since, "since"))
        return await self._changed(webhooks.begun_again(hook, await position(self._engine, self._namespace, cursor)))

    async def _before(self, at: int) -> str:
        """The cursor from which on all is from this time or later."""
        with reading():
            found = await self._engine.store.last_event_before(self._namespace, at)
        return OLDEST if found is None else found.text

    async def ping_webhook(self, body: e.PingWebhook) -> e.PingReply:
        hook = await self._webhook(body.id)
        about = {"specversion": "1.0", "type": "ping", "source": f"/namespaces/{self._namespace}"}
        error = await self._parking.hold(self._engine.webhooks.ping(hook, msgspec.json.encode(about)))
        return e.PingReply(not error, error or "it was taken")

    async def webhook_dead_letters(self, body: e.ListDeadLetters) -> e.DeadLetters:
        limit = limits.integer(body.limit, "limit", 1, limits.MAX_PAGE)
        hook = await self._webhook(body.id)
        with reading():
            found = await self._engine.store.dead_letters(hook.id, limit)
        return e.DeadLetters([_letter(letter) for letter in found])

    async def _webhook(self, id: str) -> Webhook:
        limits.name(id, "id")
        with reading():
            for hook in await self._engine.store.webhooks(self._namespace):
                if hook.id == id:
                    return hook
        raise NotFound("there is no such webhook", field="id")

    async def _changed(self, hook: Webhook) -> e.WebhookView:
        with reading():
            if not await self._engine.store.put_webhook(hook, None):
                raise NotFound("there is no such webhook", field="id")
        self._engine.webhooks.changed(hook.id)
        return view(hook)


def view(hook: Webhook) -> e.WebhookView:
    """A webhook without its secret."""
    return e.WebhookView(
        hook.id,
        shown(hook.url),
        list(hook.filter),
        moment(hook.created_at),
        Cursor(hook.xid, hook.seq).text,
        disabled_at=moment_or_none(hook.disabled_at),
        note=hook.note,
        failures=hook.failures,
        failing_since=moment_or_none(hook.failing_since),
        retry_at=moment_or_none(hook.retry_at),
        last_error=hook.last_error,
        sent_at=moment_or_none(hook.sent_at),
    )


def _letter(letter: DeadLetter) -> e.DeadLetterView:
    return e.DeadLetterView(_event(letter.body), moment(letter.at), letter.tries, letter.error)
