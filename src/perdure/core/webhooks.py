"""Where events are sent, and the rules of sending them again.

One endpoint gets its events one after the other: the next one leaves once the last was taken, or given up after a day
of tries. What was given up lies with the dead letters of the endpoint. An endpoint that took nothing for as long as
events are kept is disabled, with a note, because the next thing to happen would be a gap in silence.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from copy import copy

import msgspec

from perdure.core.model import SECOND
from perdure.core.outbox import Cursor

TRY_SECONDS = 24 * 3600  #: from the first try of an event to the last one
DISABLE_SECONDS = 3 * 24 * 3600  #: without one event that was taken
_BASE_SECONDS = 5.0
_LONGEST_SECONDS = 3600.0


class Webhook(msgspec.Struct, gc=False):
    """A row. Field names are column names, in the order in which stores select them; times are microseconds."""

    id: str
    namespace: str
    url: str
    secret: str
    types: str  #: a filter: types with commas between them; nothing: all
    created_at: int
    xid: int  #: behind the last event that was taken, given up or not wanted
    seq: int
    disabled_at: int | None = None
    note: str = ""
    failures: int = 0  #: tries of the next event that failed
    failing_since: int | None = None  #: the first of them
    retry_at: int | None = None
    last_error: str = ""
    sent_at: int | None = None  #: when an event was last taken
    lease_owner: int | None = None  #: the server that sends
    lease_until: int | None = None

    @property
    def cursor(self) -> Cursor:
        return Cursor(self.xid, self.seq)

    @property
    def filter(self) -> tuple[str, ...]:
        return tuple(self.types.split(",")) if self.types else ()


class DeadLetter(msgspec.Struct, gc=False):
    """An event that an endpoint did not take in a day. Field names are column names."""

    webhook_id: str
    xid: int
    seq: int
    at: int  #: when it was given up
    tries: int
    error: str
    body: bytes  #: as it was sent


SECRET_PREFIX = "whsec_"


def sign(secret: str, id: str, at: int, body: bytes) -> str:
    """The signature of a message, as the Standard Webhooks specification has it: HMAC-SHA256 of its id, the second that
    it is sent in, and its body."""
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    digest = hmac.new(key, f"{id}.{at}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def taken(hook: Webhook, cursor: Cursor, now: int) -> Webhook:
    """The endpoint took the event of this cursor."""
    return _changed(
        hook, xid=cursor.xid, seq=cursor.seq, failures=0, failing_since=None, retry_at=None, last_error="", sent_at=now
    )


def passed(hook: Webhook, cursor: Cursor) -> Webhook:
    """All events up to this cursor concern others."""
    return _changed(hook, xid=cursor.xid, seq=cursor.seq)


def failed(
    hook: Webhook, cursor: Cursor, body: bytes, error: str, now: int, fraction: float
) -> tuple[Webhook, DeadLetter | None]:
    """The endpoint did not take the event of this cursor, of which `error` says why. `fraction` is random, from 0 to
    1. With a dead letter the event is given up."""
    since = now if hook.failing_since is None else hook.failing_since
    tries = hook.failures + 1
    wait = min(_LONGEST_SECONDS, _BASE_SECONDS * 2 ** min(tries - 1, 20)) * (0.5 + fraction / 2)
    retry_at = now + int(wait * SECOND)
    after = _changed(hook, failures=tries, failing_since=since, retry_at=retry_at, last_error=error[:500])
    if now - since >= TRY_SECONDS * SECOND:
        letter = DeadLetter(hook.id, cursor.xid, cursor.seq, now, tries, error[:500], body)
        after.xid, after.seq = cursor.xid, cursor.seq
        after.failures, after.failing_since = 0, None
        quiet_since = max(hook.created_at, hook.sent_at or 0)
        if now - quiet_since >= DISABLE_SECONDS * SECOND:
            return disabled(after, "it took no event for three days", now), letter
        return after, letter
    return after, None


def disabled(hook: Webhook, note: str, now: int) -> Webhook:
    """Nothing is sent any more, until it is enabled again."""
    return _changed(hook, disabled_at=now, note=note, retry_at=None)


def begun_again(hook: Webhook, cursor: Cursor) -> Webhook:
    """Enabled, and sent from behind `cursor` on; whoever sends just now has lost its lease."""
    return _changed(
        hook, xid=cursor.xid, seq=cursor.seq, disabled_at=None, note="", failures=0, failing_since=None, retry_at=None,
        last_error="", lease_owner=None, lease_until=None,
    )  # fmt: skip


def _changed(hook: Webhook, **fields: object) -> Webhook:
    after = copy(hook)
    for name, value in fields.items():
        setattr(after, name, value)
    return after
