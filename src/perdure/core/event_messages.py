"""The bodies of the wire protocol about events, streams and webhooks. See messages.py."""

from __future__ import annotations

from datetime import datetime

from perdure.core.body import Body
from perdure.core.errors import Problem


# --------------------------------------------------------------------------------------------------------- events
class ReadEvents(Body):
    """The events of a namespace behind a cursor, in order. `cursor` is the id of an event, or the `cursor` of the page
    before, or "oldest"; nothing: only what happens from now on. `types` filters (all of a noun: "task.*"). `wait`
    (seconds, at most 25) holds the answer until there is an event that passes."""

    cursor: str = ""
    types: tuple[str, ...] = ()
    limit: int = 100
    wait: float = 0.0


class EventData(Body):
    """What an event is about. `state` is the state after it, `attempt` counts the attempts that were spent. Of the
    breaker of a task type there is `type`, `state` and `reason`."""

    task_id: str  #: of a workflow its run id; "" where it is about no task
    type: str  #: name of the task or workflow
    app: str
    queue: str
    state: str
    attempt: int
    workflow_id: str | None = None
    failure_code: str | None = None
    failure_type: str | None = None
    reason: str | None = None  #: why a breaker opened or closed


class Event(Body):
    """Something that happened: a CloudEvents 1.0 document. `id` is also the cursor behind it."""

    specversion: str  #: 1.0
    id: str
    type: str
    source: str  #: /namespaces/NAMESPACE
    subject: str  #: the task id; of a breaker the type
    time: datetime
    data: EventData


class EventPage(Body):
    events: list[Event]
    cursor: str  #: where the next page begins, also when this one is empty


class RecordEvents(Body):
    """Begin or end to record the events of a namespace. Not to be ended while it has webhooks."""

    on: bool = True


class FeedView(Body):
    recording: bool
    oldest: str  #: the cursor before the oldest event that is kept
    last: str  #: the cursor behind the last one


# -------------------------------------------------------------------------------------------------------- streams
class StreamItem(Body):
    """A chunk of a stream: `kind` is "bytes", "text" (UTF-8), "json", or "payload" for the MessagePack of a payload
    that only the SDK can read. At most 64 KiB."""

    kind: str
    data: bytes


class StreamWrite(Body):
    """At most 1,000 chunks of one lease, of which `first` is the number of the first one, counted from 0 in each lease.
    Sent again they are not added again."""

    lease: bytes
    first: int
    chunks: list[StreamItem]


class WriteStream(Body):
    """What handlers wrote; each item is answered by itself."""

    writes: list[StreamWrite]


class StreamWritten(Body):
    """None, or why nothing was written: LeaseLost, or ResourceExhausted when the task has 16 MiB."""

    error: Problem | None = None


class WriteStreamReply(Body):
    outcomes: list[StreamWritten]


class ReadStream(Body):
    """The chunks of a task's stream from a number on, 4 MiB a page at most. `wait` (seconds, at most 25) holds the
    answer until there is one, or the task has closed."""

    task_id: str
    offset: int = 0
    limit: int = 100
    wait: float = 0.0


class StreamChunk(Body):
    """`offset` counts over all attempts. A higher `attempt` than that of the chunk before: it began again."""

    offset: int
    attempt: int
    kind: str
    data: bytes


class StreamPage(Body):
    chunks: list[StreamChunk]
    next: int  #: the offset behind these
    closed: bool = False  #: nothing comes any more


# ------------------------------------------------------------------------------------------------------- webhooks
class AddWebhook(Body):
    """Send the events of the namespace to `url` (https, or http), from now on or from behind `cursor`. Begins to record
    them."""

    url: str
    types: tuple[str, ...] = ()
    cursor: str = ""


class WebhookView(Body):
    """`secret` is shown in the answer to the request that made it, and never again."""

    id: str
    url: str
    types: list[str]
    created_at: datetime
    cursor: str  #: behind the last event that was taken or given up
    secret: str | None = None
    disabled_at: datetime | None = None
    note: str = ""  #: why it is disabled
    failures: int = 0  #: tries of the next event that failed
    failing_since: datetime | None = None
    retry_at: datetime | None = None
    last_error: str = ""
    sent_at: datetime | None = None  #: when an event was last taken


class ListWebhooks(Body):
    """The webhooks of a namespace."""


class WebhookList(Body):
    webhooks: list[WebhookView]  #: oldest first


class DeleteWebhook(Body):
    """With its dead letters. Harmless when repeated."""

    id: str


class WebhookDeleted(Body):
    """It is gone."""


class DisableWebhook(Body):
    """Send nothing until `replay`."""

    id: str
    note: str = ""


class ReplayWebhook(Body):
    """Enable it, and send from behind a cursor (or "oldest"), or from a time on; with neither go on where it stopped,
    at once."""

    id: str
    cursor: str = ""
    since: datetime | None = None


class PingWebhook(Body):
    """Send a "ping" now, once, beside the events."""

    id: str


class PingReply(Body):
    ok: bool
    detail: str  #: what the endpoint answered, or why it could not be asked


class ListDeadLetters(Body):
    id: str
    limit: int = 100


class DeadLetterView(Body):
    event: Event
    given_up_at: datetime
    tries: int
    error: str


class DeadLetters(Body):
    letters: list[DeadLetterView]  #: oldest event first
