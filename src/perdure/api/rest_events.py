"""The REST interface to events, streams and webhooks. What grows is a page at a time, or, for a reader that accepts
text/event-stream, an answer that goes on (sse.py)."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Response, delete, get, post
from litestar.params import FromPath, FromQuery, QueryParameter
from litestar.response import Stream

from perdure.api import event_schema as es
from perdure.api import schema, sse
from perdure.api.request import AnyRequest, Serving, body_of, read, read_optional, wait_of
from perdure.core import event_messages as e
from perdure.core import messages as m
from perdure.core.errors import InvalidArgument

Cursor = Annotated[
    str, QueryParameter(name="cursor", description='The id of an event, or "oldest"; without it from now on.')
]
Types = Annotated[
    str, QueryParameter(name="types", description='With commas between them, such as "task.failed,workflow.*".')
]
Hold = Annotated[
    str, QueryParameter(name="wait", description="Hold the answer back until there is something: at most 25s.")
]
_PAGE = 100
_FEED = msgspec.json.Decoder(es.FeedRequest)
_WEBHOOK = msgspec.json.Decoder(es.WebhookRequest)
_DISABLE = msgspec.json.Decoder(es.DisableRequest)
_REPLAY = msgspec.json.Decoder(es.ReplayRequest)


# --------------------------------------------------------------------------------------------------------- events
@get("/v1/events", operation_id="listEvents")
async def list_events(
    request: AnyRequest,
    service: Serving,
    cursor: Cursor = "",
    types: Types = "",
    limit: FromQuery[int] = _PAGE,
    wait: Hold = "0",
) -> Response[es.EventList]:
    """What happened to jobs and workflow runs, in order, behind a cursor. With `Accept: text/event-stream` an answer
    that goes on; the header Last-Event-ID is the cursor then, if there is one. Events are kept for three days: an older
    cursor is 410, and `limit` of the problem is the oldest one there is."""
    named = tuple(part.strip() for part in types.split(",")) if types else ()

    async def page(cursor: str, wait: float) -> e.EventPage:
        service.check_key()
        return await service.events(e.ReadEvents(cursor, named, limit, wait))

    def frames(page: e.EventPage) -> tuple[list[bytes], str, bool]:
        return [sse.frame(one.id, one.type, es.event(one)) for one in page.events], page.cursor, False

    if sse.is_wanted(request):
        return await sse.Pages(page, frames).answer(sse.last_event_id(request) or cursor)  # type: ignore[return-value]
    return Response(es.events(await page(cursor, wait_of(wait))))


@post("/v1/events:record", status_code=200, operation_id="recordEvents")
async def record_events(request: AnyRequest, service: Serving) -> es.FeedDocument:
    """Begin, or with {"on": false} end, to record the events of the namespace. A webhook begins it too. Not to be
    ended while there are webhooks."""
    data = await read_optional(request, _FEED) or es.FeedRequest()
    view = await service.record_events(e.RecordEvents(data.on))
    return es.FeedDocument(view.recording, view.oldest, view.last)


# -------------------------------------------------------------------------------------------------------- streams
@get("/v1/tasks/{task_id:str}/stream", operation_id="getTaskStream")
async def get_stream(
    task_id: FromPath[str],
    request: AnyRequest,
    service: Serving,
    offset: FromQuery[int] = 0,
    limit: FromQuery[int] = _PAGE,
    wait: Hold = "0",
) -> Response[es.StreamDocument]:
    """What the handler of a task writes, from a chunk on, while it runs and after. `attempt` of a chunk is higher than
    that of the one before where another attempt began again. With `Accept: text/event-stream` an answer that goes on to
    the end of the task."""
    attempts: list[int] = []

    async def page(cursor: str, wait: float) -> e.StreamPage:
        service.check_key()
        return await service.stream(e.ReadStream(task_id, _offset(cursor), limit, wait))

    def frames(page: e.StreamPage) -> tuple[list[bytes], str, bool]:
        sent: list[bytes] = []
        for chunk in page.chunks:
            if attempts and attempts[-1] != chunk.attempt:
                sent.append(sse.frame(str(chunk.offset), "restarted", {"attempt": chunk.attempt}))
            attempts[:] = [chunk.attempt]
            sent.append(sse.frame(str(chunk.offset + 1), "chunk", es.chunk(chunk)))
        if page.closed:
            sent.append(sse.frame(str(page.next), "closed", {"next": page.next}))
        return sent, str(page.next), page.closed

    if sse.is_wanted(request):
        begin = sse.last_event_id(request) or str(offset)
        return await sse.Pages(page, frames).answer(begin)  # type: ignore[return-value]
    return Response(es.stream(await page(str(offset), wait_of(wait))))


def _offset(cursor: str) -> int:
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 12):
        raise InvalidArgument(f"offset is {cursor[:50]!r}", field="offset", limit="the number of a chunk", kind="str")
    return int(cursor)


@get("/v1/tasks/{task_id:str}/events", include_in_schema=False)
async def follow_task(task_id: FromPath[str], service: Serving) -> Stream:
    """The task as it is, and again whenever its state, attempt or progress is another one, until it has closed; as
    server-sent events only."""
    seen: list[tuple[Any, ...]] = []

    async def look(cursor: str, wait: float) -> m.TaskView:
        service.check_key()
        return await service.get(m.Get(task_id, wait=min(wait, 1.0), payload=False))

    def frames(view: m.TaskView) -> tuple[list[bytes], str, bool]:
        what = (view.state, view.job_state, view.attempt, view.progress)
        news = seen != [what]
        seen[:] = [what]
        over = view.closed_at is not None
        return [sse.frame("", "closed" if over else "task", schema.document(view))] if news else [], "", over

    return await sse.Pages(look, frames).answer("")


# ------------------------------------------------------------------------------------------------------- webhooks
@post("/v1/webhooks", status_code=201, operation_id="addWebhook")
async def add_webhook(request: AnyRequest, service: Serving) -> es.WebhookDocument:
    """Send events to a URL, each signed after the Standard Webhooks specification, one after the other. `secret` of
    the answer verifies the signatures; it is shown this once."""
    data = read(await body_of(request), _WEBHOOK)
    return es.webhook(await service.add_webhook(e.AddWebhook(data.url, data.types, data.cursor)))


@get("/v1/webhooks", operation_id="listWebhooks")
async def list_webhooks(service: Serving) -> es.WebhookDocuments:
    """The webhooks of the namespace, and how they fare."""
    found = await service.webhooks(e.ListWebhooks())
    return es.WebhookDocuments([es.webhook(view) for view in found.webhooks])


@delete("/v1/webhooks/{webhook_id:str}", status_code=200, operation_id="deleteWebhook")
async def delete_webhook(webhook_id: FromPath[str], service: Serving) -> dict[str, str]:
    """Send nothing there any more, and forget its dead letters. Harmless when repeated."""
    await service.delete_webhook(e.DeleteWebhook(webhook_id))
    return {}


@post("/v1/webhooks/{webhook_id:str}/disable", status_code=200, operation_id="disableWebhook")
async def disable_webhook(webhook_id: FromPath[str], request: AnyRequest, service: Serving) -> es.WebhookDocument:
    """Send nothing there until it is replayed. The body may be left out."""
    data = await read_optional(request, _DISABLE) or es.DisableRequest()
    return es.webhook(await service.disable_webhook(e.DisableWebhook(webhook_id, data.note)))


@post("/v1/webhooks/{webhook_id:str}/replay", status_code=200, operation_id="replayWebhook")
async def replay_webhook(webhook_id: FromPath[str], request: AnyRequest, service: Serving) -> es.WebhookDocument:
    """Enable it, and send from behind a cursor or from a time on; without a body go on where it stopped, at once."""
    data = await read_optional(request, _REPLAY) or es.ReplayRequest()
    return es.webhook(await service.replay_webhook(e.ReplayWebhook(webhook_id, data.cursor, data.since)))


@post("/v1/webhooks/{webhook_id:str}/ping", status_code=200, operation_id="pingWebhook")
async def ping_webhook(webhook_id: FromPath[str], service: Serving) -> es.PingDocument:
    """Send a "ping" there now, beside the events, and say what came of it."""
    reply = await service.ping_webhook(e.PingWebhook(webhook_id))
    return es.PingDocument(reply.ok, reply.detail)


@get("/v1/webhooks/{webhook_id:str}/dead-letters", operation_id="listWebhookDeadLetters")
async def list_dead_letters(
    webhook_id: FromPath[str], service: Serving, limit: FromQuery[int] = _PAGE
) -> es.DeadLetterList:
    """Events that the endpoint did not take within a day of tries, oldest first."""
    return es.letters(await service.webhook_dead_letters(e.ListDeadLetters(webhook_id, limit)))


HANDLERS = (
    list_events, record_events, get_stream, follow_task, add_webhook, list_webhooks, delete_webhook, disable_webhook,
    replay_webhook, ping_webhook, list_dead_letters,
)  # fmt: skip
QUERIES: dict[str, tuple[str, ...]] = {
    "list_events": ("cursor", "types", "limit", "wait"),
    "get_stream": ("offset", "limit", "wait"),
    "list_dead_letters": ("limit",),
}
"""What the query of a handler may hold."""
