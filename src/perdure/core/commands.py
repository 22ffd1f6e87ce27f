"""Everything anyone may ask of the engine, as a closed union. A command is validated and names its namespace; what it
answers is in `Outcome`. Commands are made by api/service.py and by the engine's own services."""

from __future__ import annotations

import msgspec

from perdure.core.errors import PerdureError
from perdure.core.model import Lease, Task
from perdure.core.states import State


class Enqueue(msgspec.Struct, kw_only=True, gc=False):
    """Make a task from `draft`; with a key, only if the key is free."""

    draft: Task  #: everything but id, times and place; `ready_at` holds a delay until `delay` has been added
    delay: int = 0  #: microseconds
    schedule_to_start: int | None = None
    schedule_to_close: int | None = None
    key: str | None = None
    key_kind: str = "task"
    key_life: int = 0  #: microseconds
    digest: bytes = b""
    size: int = 0  #: bytes, for the bounds of a batch
    task_id: bytes | None = None  #: minted at the first try and kept over the next ones
    minted: bool = False  #: by the caller, who may send it again: it may be there already
    place: int | None = None  #: given when a batch first takes it: batches in flight keep the order of arrival


class Cancel(msgspec.Struct, kw_only=True, gc=False):
    namespace: str
    task_id: bytes
    reason: str = ""


class Retry(msgspec.Struct, kw_only=True, gc=False):
    """Cut the back-off of an open task short. A closed one is repeated by an Enqueue (`decide.repeat`)."""

    namespace: str
    task_id: bytes


class Heartbeat(msgspec.Struct, kw_only=True, gc=False):
    """A sign of life; the first one acknowledges receipt. None leaves progress or checkpoint as it is."""

    lease: Lease
    progress: bytes | None = None
    checkpoint: bytes | None = None
    size: int = 0


class Complete(msgspec.Struct, kw_only=True, gc=False):
    """How an attempt ended. `outcome` is one of the OUTCOMES."""

    lease: Lease
    outcome: str
    result: bytes | None = None
    failure: bytes | None = None
    failure_type: str = ""
    retryable: bool = True
    retry_after: int | None = None  #: microseconds
    progress: bytes | None = None
    checkpoint: bytes | None = None
    size: int = 0


OUTCOMES = ("succeeded", "failed", "canceled", "released")


class OpenSession(msgspec.Struct, kw_only=True, gc=False):
    namespace: str
    incarnation: int
    epoch: int
    identity: str
    queues: str
    slots: int
    build: str = ""


class CloseSession(msgspec.Struct, kw_only=True, gc=False):
    """End the leases of an incarnation; with an epoch, only if no newer connection of it is known."""

    incarnation: int
    epoch: int | None = None


class Ring(msgspec.Struct, kw_only=True, gc=False):
    """Take the pulse, then ring at most `limit` due alarms, of those that go off after `after`."""

    limit: int
    after: int = 0


class Reap(msgspec.Struct, kw_only=True, gc=False):
    """End at most `limit` leases of worker processes that are gone."""

    limit: int


class Trim(msgspec.Struct, kw_only=True, gc=False):
    """Delete at most `limit` tasks that closed before `closed_before`, and at most `limit` expired keys."""

    closed_before: int
    limit: int


Chore = Ring | Reap | Trim
Command = Enqueue | Cancel | Retry | Heartbeat | Complete | OpenSession | CloseSession | Chore


class Enqueued(msgspec.Struct, frozen=True, gc=False):
    task_id: bytes
    duplicate: bool
    created_at: int = 0  #: 0 where an earlier try or request made it


class Changed(msgspec.Struct, frozen=True, gc=False):
    """The task that a command changed, and its state after it."""

    task_id: bytes
    state: State
    cancel_requested: bool = False


class Alive(msgspec.Struct, frozen=True, gc=False):
    """The answer to a heartbeat: go on, or end it soon."""

    cancel: bool


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """Committed, nothing to say."""


class Did(msgspec.Struct, frozen=True, gc=False):
    """How many rows a chore changed: as many as its limit means that there may be more."""

    count: int


Outcome = Enqueued | Changed | Alive | Accepted | Did | PerdureError
