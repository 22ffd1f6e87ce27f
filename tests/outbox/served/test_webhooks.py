"""Webhooks against real endpoints: signed, in order, tried again, given up, sent again."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import web

from perdure.api.service import Caller
from perdure.api.service import Service as ServerService
from perdure.client.base import Service
from perdure.core import event_messages as e
from perdure.core import messages as m
from perdure.core import webhooks
from perdure.core.errors import Conflict, Gone, InvalidArgument, NotFound
from perdure.core.model import SECOND
from perdure.core.outbox import Cursor
from perdure.core.webhooks import Webhook
from perdure.engine.endpoints import check_url, is_public
from perdure.engine.engine import Engine
from perdure.engine.post import Sender
from perdure.store.sqlite import SqliteStore
from tests.api.calls import Rest, enqueue, poll, succeed

LONG = 30
"""Seconds that something which should come at once may take on a slow machine."""


class Endpoint:
    """Takes what `answer` lets it take."""

    def __init__(self) -> None:
        self.url = ""
        self.taken: asyncio.Queue[tuple[dict[str, str], bytes]] = asyncio.Queue()
        self.asked: asyncio.Queue[bytes] = asyncio.Queue()
        self.answer: Callable[[bytes], int] = lambda body: 204

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.read()
        status = self.answer(body)
        self.asked.put_nowait(body)
        if 200 <= status < 300:
            self.taken.put_nowait((dict(request.headers), body))
        return web.Response(status=status, text="no" if status >= 300 else None, headers={"Location": self.url})

    async def next(self) -> dict[str, Any]:
        async with asyncio.timeout(LONG):
            found: dict[str, Any] = json.loads((await self.taken.get())[1])
            return found


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    endpoint = Endpoint()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", endpoint.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    endpoint.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    yield endpoint
    await runner.cleanup()


@pytest.fixture
async def engine(store: SqliteStore) -> AsyncIterator[Engine]:
    """One that may send to the loopback interface."""
    engine = Engine(store, webhooks_to_private=True)
    await engine.start()
    yield engine
    await engine.stop()


@pytest.fixture
def local(engine: Engine) -> ServerService:
    return ServerService(engine, Caller("default"))


async def done(service: Service, number: int) -> str:
    (task_id,) = await enqueue(service)
    (delivery,) = await poll(service, number)
    await succeed(service, delivery)
    return task_id


async def test_events_are_sent_signed(local: ServerService, endpoint: Endpoint) -> None:
    """API-20, OBS-09, SEC-20: after the Standard Webhooks specification, with the event's id to tell repeats by."""
    hook = await local.add_webhook(e.AddWebhook(endpoint.url))
    task_id = await done(local, 1)
    async with asyncio.timeout(LONG):
        headers, body = await endpoint.taken.get()
    event = json.loads(body)
    assert (event["type"], event["subject"], event["specversion"]) == ("task.succeeded", task_id, "1.0")
    assert headers["webhook-id"] == event["id"]
    assert abs(int(headers["webhook-timestamp"]) - datetime.now(UTC).timestamp()) < LONG
    assert hook.secret is not None
    key = base64.b64decode(hook.secret.removeprefix("whsec_"))
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"


async def test_each_endpoint_gets_its_types_in_order(local: ServerService, endpoint: Endpoint) -> None:
    await local.add_webhook(e.AddWebhook(endpoint.url, ("task.canceled",)))
    expected = []
    for number in range(1, 6):
        await done(local, number)
        (canceled,) = await enqueue(local)
        await local.cancel(m.Cancel(canceled))
        expected.append(canceled)
    assert [(await endpoint.next())["subject"] for _ in expected] == expected


async def test_what_was_not_taken_comes_again(
    local: ServerService, endpoint: Endpoint, store: SqliteStore, engine: Engine
) -> None:
    """OBS-31: before the next one, which waits."""
    hook = await local.add_webhook(e.AddWebhook(endpoint.url))
    endpoint.answer = lambda body: 500
    ids = [await done(local, 1), await done(local, 2)]
    async with asyncio.timeout(LONG):
        await endpoint.asked.get()
        while not (view := (await local.webhooks(e.ListWebhooks())).webhooks[0]).failures:
            await asyncio.sleep(0.01)
    assert (view.last_error, view.cursor) == ("status 500: no", hook.cursor)
    assert view.retry_at is not None
    assert view.secret is None
    endpoint.answer = lambda body: 200
    await local.replay_webhook(e.ReplayWebhook(hook.id))
    assert [(await endpoint.next())["subject"] for _ in ids] == ids


async def test_what_was_given_up_is_a_dead_letter(
    local: ServerService, endpoint: Endpoint, store: SqliteStore, engine: Engine
) -> None:
    """OBS-31: after a day of tries, and the next event is sent."""
    hook = await local.add_webhook(e.AddWebhook(endpoint.url))
    await local.disable_webhook(e.DisableWebhook(hook.id))
    lost, kept = await done(local, 1), await done(local, 2)
    endpoint.answer = lambda body: 500 if lost.encode() in body else 200
    (row,) = await store.webhooks(None)
    day = 25 * 3600 * SECOND
    row.disabled_at, row.failures, row.failing_since = None, 30, engine.now() - day
    assert await store.put_webhook(row, None)
    async with asyncio.timeout(LONG):
        while not (letters := (await local.webhook_dead_letters(e.ListDeadLetters(hook.id))).letters):
            await asyncio.sleep(0.01)
    assert [(letter.event.subject, letter.tries, letter.error) for letter in letters] == [(lost, 31, "status 500: no")]
    (row,) = await store.webhooks(None)
    row.retry_at = None
    assert await store.put_webhook(row, None)
    assert (await endpoint.next())["subject"] == kept


async def test_replay(local: ServerService, endpoint: Endpoint) -> None:
    """From a cursor, from a time, or all there is."""
    hook = await local.add_webhook(e.AddWebhook(endpoint.url))
    ids = []
    for number in (1, 2, 3):
        ids.append(await done(local, number))
        assert (await endpoint.next())["subject"] == ids[-1]
    page = await local.events(e.ReadEvents("oldest"))
    for again, expected in (
        (e.ReplayWebhook(hook.id, "oldest"), ids),
        (e.ReplayWebhook(hook.id, page.events[1].id), ids[2:]),
        (e.ReplayWebhook(hook.id, since=page.events[1].time), ids[1:]),
    ):
        await local.replay_webhook(again)
        assert [(await endpoint.next())["subject"] for _ in expected] == expected


async def test_disable_and_delete(local: ServerService, endpoint: Endpoint) -> None:
    hook = await local.add_webhook(e.AddWebhook(endpoint.url))
    view = await local.disable_webhook(e.DisableWebhook(hook.id, "moving"))
    assert view.disabled_at is not None
    assert view.note == "moving"
    ids = [await done(local, 1)]
    with pytest.raises(Conflict):
        await local.record_events(e.RecordEvents(False))
    view = await local.replay_webhook(e.ReplayWebhook(hook.id))
    assert (view.disabled_at, view.note) == (None, "")
    assert (await endpoint.next())["subject"] == ids[0]
    await local.delete_webhook(e.DeleteWebhook(hook.id))
    await local.delete_webhook(e.DeleteWebhook(hook.id))
    assert (await local.webhooks(e.ListWebhooks())).webhooks == []
    with pytest.raises(NotFound):
        await local.ping_webhook(e.PingWebhook(hook.id))
    await local.record_events(e.RecordEvents(False))


async def test_webhooks_of_another_namespace(local: ServerService, engine: Engine, endpoint: Endpoint) -> None:
    """SEC-19: not seen, not touched, and nothing of theirs is sent there."""
    hook = await local.add_webhook(e.AddWebhook(endpoint.url))
    other = ServerService(engine, Caller("other"))
    assert (await other.webhooks(e.ListWebhooks())).webhooks == []
    for call in (
        other.disable_webhook(e.DisableWebhook(hook.id)),
        other.replay_webhook(e.ReplayWebhook(hook.id)),
        other.ping_webhook(e.PingWebhook(hook.id)),
        other.webhook_dead_letters(e.ListDeadLetters(hook.id)),
    ):
        with pytest.raises(NotFound):
            await call
    await other.delete_webhook(e.DeleteWebhook(hook.id))
    await other.record_events(e.RecordEvents())
    (theirs,) = await enqueue(other)
    await other.cancel(m.Cancel(theirs))
    ours = await done(local, 1)
    assert (await endpoint.next())["subject"] == ours


async def test_ping(local: ServerService, endpoint: Endpoint) -> None:
    hook = await local.add_webhook(e.AddWebhook(endpoint.url))
    reply = await local.ping_webhook(e.PingWebhook(hook.id))
    assert reply.ok
    assert (await endpoint.next())["type"] == "ping"
    endpoint.answer = lambda body: 404
    reply = await local.ping_webhook(e.PingWebhook(hook.id))
    assert (reply.ok, reply.detail) == (False, "status 404: no")


async def test_redirects_are_not_followed(local: ServerService, endpoint: Endpoint) -> None:
    """SEC-20: an endpoint cannot send this server elsewhere."""
    hook = await local.add_webhook(e.AddWebhook(endpoint.url))
    endpoint.answer = lambda body: 307
    assert (await local.ping_webhook(e.PingWebhook(hook.id))).detail == "status 307: no"
    assert endpoint.asked.qsize() == 1


async def test_one_of_two_servers_sends(
    local: ServerService, endpoint: Endpoint, store: SqliteStore, engine: Engine
) -> None:
    """OBS-31: the lease of the endpoint keeps the other one out, and a server that stops hands it over at once."""
    hook = await local.add_webhook(e.AddWebhook(endpoint.url))
    first = await done(local, 1)
    assert (await endpoint.next())["subject"] == first
    async with asyncio.timeout(LONG):
        while (await local.webhooks(e.ListWebhooks())).webhooks[0].sent_at is None:
            await asyncio.sleep(0.01)
    second = Engine(store, webhooks_to_private=True)
    await second.start()
    try:
        held = await store.take_webhook(hook.id, 1, 1, second.now())
        assert held is None
        await engine.stop()
        other = await done(ServerService(second, Caller("default")), 2)
        assert (await endpoint.next())["subject"] == other
    finally:
        await second.stop()


async def test_an_endpoint_whose_events_were_deleted_is_disabled(
    local: ServerService, endpoint: Endpoint, store: SqliteStore, engine: Engine
) -> None:
    """Never a gap in silence."""
    hook = await local.add_webhook(e.AddWebhook(endpoint.url))
    await local.disable_webhook(e.DisableWebhook(hook.id))
    await done(local, 1)
    async with store.batch() as batch:
        await batch.trim_events(engine.now() + 1, 10)
    with pytest.raises(Gone):
        await local.replay_webhook(e.ReplayWebhook(hook.id))
    await local.replay_webhook(e.ReplayWebhook(hook.id, "oldest"))
    task_id = await done(local, 2)
    assert (await endpoint.next())["subject"] == task_id


async def test_rest(local: ServerService, endpoint: Endpoint, rest: Rest) -> None:
    made = await rest("POST", "/v1/webhooks", {"url": endpoint.url, "types": ["task.*"]})
    assert made.status == 201
    path = f"/v1/webhooks/{made.body['id']}"
    assert made.body["secret"].startswith("whsec_")
    (listed,) = (await rest("GET", "/v1/webhooks")).body["webhooks"]
    assert listed == made.body | {"secret": None}
    assert (await rest("POST", f"{path}/ping")).body == {"ok": True, "detail": "it was taken"}
    assert (await rest("POST", f"{path}/disable", {"note": "x"})).body["note"] == "x"
    assert (await rest("POST", f"{path}/replay", {"cursor": "oldest"})).body["disabled_at"] is None
    assert (await rest("GET", f"{path}/dead-letters")).body == {"letters": []}
    assert (await rest("DELETE", path)).status == 200
    assert (await rest("POST", f"{path}/ping")).status == 404


# addresses -----------------------------------------------------------------------------------------------------------
INSIDE = (
    "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0", "100.64.0.1", "224.0.0.1",
    "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "ff02::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1",
    "2002:7f00:1::", "240.0.0.1", "255.255.255.255",
)  # fmt: skip


@pytest.mark.parametrize("address", sorted(INSIDE))
def test_addresses_inside_are_refused(address: str) -> None:
    """SEC-20: loopback, private, link-local and the like, also as they are carried in IPv6."""
    assert not is_public(address)


@pytest.mark.parametrize("address", ["2606:4700::1111", "64:ff9b::101:101", "8.8.8.8"])
def test_addresses_of_the_internet_pass(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "url",
    [
        "", "ftp://shop.example/", "http://", "http://10.0.0.1/", "http://[::1]/", "http://localhost/",
        "http://user:word@shop.example/", "https://shop.example:99999/", "https://shop.example/ x", "shop.example",
        "https://" + "x" * 2_000,
    ],
    ids=str,
)  # fmt: skip
async def test_bad_urls_are_refused(url: str, store: SqliteStore) -> None:
    """SEC-20: before anything is written."""
    with pytest.raises(InvalidArgument) as caught:
        check_url(url, private=False)
    assert caught.value.field == "url"
    service = ServerService(Engine(store), Caller("default"))
    with pytest.raises(InvalidArgument):
        await service.add_webhook(e.AddWebhook(url))
    assert await store.webhooks(None) == []
    assert await store.recording() == set()


async def test_a_name_that_leads_inside_is_not_connected_to(endpoint: Endpoint) -> None:
    """SEC-20: what was checked is what is connected to."""
    sender = Sender(private=False)
    url = endpoint.url.replace("127.0.0.1", "localhost.localdomain")
    error = await sender.send(url, "whsec_AAAA", "1", b"{}", 1)
    await sender.close()
    assert error
    assert endpoint.asked.empty()


# rules ---------------------------------------------------------------------------------------------------------------
def new_hook() -> Webhook:
    return Webhook("wh", "default", "https://x.example", "whsec_", "", 0, 0, 0)


def test_tries_go_on_for_a_day_and_then_the_next_event_is_sent() -> None:
    """OBS-31: waits double up to an hour; what was given up is a dead letter, and the next one has a day of its own."""
    hook, now, tries = new_hook(), 0, 0
    waits = []
    while True:
        hook, letter = webhooks.failed(hook, Cursor(0, 1), b"body", "status 500", now, 1.0)
        tries += 1
        assert hook.retry_at is not None
        if letter is not None:
            break
        waits.append((hook.retry_at - now) / SECOND)
        now = hook.retry_at
    assert waits[:4] == [5, 10, 20, 40]
    assert max(waits) == 3600
    assert 24 * 3600 <= now / SECOND < 25 * 3600
    assert (letter.tries, letter.error, letter.body, letter.seq) == (tries, "status 500", b"body", 1)
    assert (hook.cursor, hook.failures, hook.failing_since, hook.disabled_at) == (Cursor(0, 1), 0, None, None)


def test_an_endpoint_that_took_nothing_for_three_days_is_disabled() -> None:
    hook, now, letters = new_hook(), 0, 0
    while hook.disabled_at is None:
        hook, letter = webhooks.failed(hook, Cursor(0, letters + 1), b"", "no", now, 1.0)
        letters += letter is not None
        now = hook.retry_at or now
    assert letters == 3
    assert hook.note
    assert webhooks.begun_again(hook, Cursor(0, 2)).disabled_at is None


def test_a_day_counts_from_the_first_try_of_each_event() -> None:
    hook, _ = webhooks.failed(new_hook(), Cursor(0, 1), b"", "no", 5, 0.0)
    hook = webhooks.taken(hook, Cursor(0, 1), 6)
    assert (hook.failures, hook.failing_since, hook.retry_at, hook.sent_at) == (0, None, None, 6)
