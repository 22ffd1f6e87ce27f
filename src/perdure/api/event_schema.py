"""What the REST interface takes and shows of events, streams and webhooks."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Any

import msgspec

from perdure.core import event_messages as e


class EventDataDocument(msgspec.Struct):
    """What an event is about: the state after it, and of a failure its code and type."""

    task_id: str
    type: str
    app: str
    queue: str
    state: str
    attempt: int
    workflow_id: str | None
    failure_code: str | None
    failure_type: str | None
    reason: str | None


class EventDocument(msgspec.Struct):
    """A CloudEvents 1.0 document. `id` is also the cursor behind it."""

    specversion: str
    id: str
    type: str
    source: str
    subject: str
    time: datetime
    data: EventDataDocument


class EventList(msgspec.Struct):
    """`cursor` is where the next page begins, also when this one is empty."""

    events: list[EventDocument]
    cursor: str


class FeedRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Whether the events of the namespace are recorded."""

    on: bool = True


class FeedDocument(msgspec.Struct):
    """`oldest` is the cursor before the oldest event that is kept, `last` the one behind the last."""

    recording: bool
    oldest: str
    last: str


class ChunkDocument(msgspec.Struct):
    """`data` is text, a JSON value, or base64 of bytes, as `kind` says."""

    offset: int
    attempt: int
    kind: str
    data: Any


class StreamDocument(msgspec.Struct):
    """`closed`: the task has closed, and nothing comes behind these."""

    chunks: list[ChunkDocument]
    next: int
    closed: bool


class WebhookRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Where to send events: those of `types` (all without), from now on or from behind `cursor`."""

    url: str
    types: tuple[str, ...] = ()
    cursor: str = ""


class DisableRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Why, for people."""

    note: str = ""


class ReplayRequest(msgspec.Struct, forbid_unknown_fields=True):
    """From behind a cursor (or "oldest"), or from a time on; with neither where it stopped."""

    cursor: str = ""
    since: datetime | None = None


class WebhookDocument(msgspec.Struct):
    """`secret` is there in the answer that made it, and never again."""

    id: str
    url: str
    types: list[str]
    created_at: datetime
    cursor: str
    secret: str | None
    disabled_at: datetime | None
    note: str
    failures: int
    failing_since: datetime | None
    retry_at: datetime | None
    last_error: str
    sent_at: datetime | None


class WebhookDocuments(msgspec.Struct):
    """Oldest first."""

    webhooks: list[WebhookDocument]


class PingDocument(msgspec.Struct):
    """Whether the endpoint took it, and what it answered if not."""

    ok: bool
    detail: str


class DeadLetterDocument(msgspec.Struct):
    event: EventDocument
    given_up_at: datetime
    tries: int
    error: str


class DeadLetterList(msgspec.Struct):
    """Oldest event first."""

    letters: list[DeadLetterDocument]


def event(found: e.Event) -> EventDocument:
    data = found.data
    about = EventDataDocument(*(getattr(data, name) for name in EventDataDocument.__struct_fields__))
    return EventDocument("1.0", found.id, found.type, found.source, found.subject, found.time, about)


def events(page: e.EventPage) -> EventList:
    return EventList([event(one) for one in page.events], page.cursor)


def chunk(found: e.StreamChunk) -> ChunkDocument:
    """Text that is cut in the middle of a character is shown with replacements."""
    match found.kind:
        case "text":
            data: Any = found.data.decode("utf-8", "replace")
        case "json":
            data = msgspec.Raw(found.data)
        case _:
            data = base64.b64encode(found.data).decode()
    return ChunkDocument(found.offset, found.attempt, found.kind, data)


def stream(page: e.StreamPage) -> StreamDocument:
    return StreamDocument([chunk(one) for one in page.chunks], page.next, page.closed)


def webhook(view: e.WebhookView) -> WebhookDocument:
    return WebhookDocument(*(getattr(view, name) for name in WebhookDocument.__struct_fields__))


def letters(found: e.DeadLetters) -> DeadLetterList:
    return DeadLetterList(
        [DeadLetterDocument(event(one.event), one.given_up_at, one.tries, one.error) for one in found.letters]
    )
