"""The vocabulary of all layers: payloads, failures, policies, and a task as it is stored.

Times are integer microseconds since the epoch, durations in policies are seconds. Ids are 16 bytes inside the server
and their UUID text on the wire. Everything a task's owner wrote (payload, result, checkpoint, progress, headers) is
opaque to the server: a list of (metadata, bytes).
"""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.core.states import Kind, State

SECOND = 1_000_000
"""Microseconds in a second."""

LEASE_SECONDS = 30
"""Life of a lease without a heartbeat (LEASE-01)."""
HEARTBEAT_SECONDS = 10
"""Interval of heartbeats: a third of the lease (LEASE-02, X-10)."""
DELIVERY_SECONDS = 10
"""Life of a lease whose receipt was not acknowledged yet."""
CANCEL_GRACE_SECONDS = 30
"""How long a worker may take to end a task that is to be canceled (CANC-03)."""
SPREAD = 0.1
"""Largest part of a fixed delay that is added to it at random (RETRY-04)."""
LOST_DELIVERIES_FREE = 2
"""Leases in a row that may end without receipt before such an end spends an attempt."""


class Payload(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One value: `metadata` names its encoding ({"encoding": "json/plain"} by default), `data` is the value."""

    metadata: dict[str, str]
    data: bytes


Payloads = tuple[Payload, ...]


class Failure(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Why something failed, recursively; the field meanings are those of Temporal's failure message.

    `code` is stable and for programs: "handler_error", "fatal", "start_to_close_timeout", "lease_lost" and so on.
    """

    message: str
    code: str = "handler_error"
    type: str = ""
    source: str = "perdure-python"
    stack: str = ""
    retryable: bool = True
    details: Payloads = ()
    cause: Failure | None = None


class RetryPolicy(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """When a failed attempt is followed by another one (RETRY-01): the n-th wait is a random time between 0 and
    min(cap, base * factor ** (n - 1)) seconds. Full jitter is always on (RETRY-04).

    `max_attempts` 1 to 10,000; `base` 0.001 to 86,400; `factor` 1 to 100; `cap` from `base` to 31 days;
    `fatal_types` are failure types (exception class names) that end the task at once.

    `delays`, at most 100 of 0.001 s to 31 days, is a fixed table instead: the n-th wait is the n-th of them, the last
    one repeats. Each is made longer by a random part of at most a tenth, so that what failed together does not come
    back together.
    """

    max_attempts: int = 5
    base: float = 1.0
    factor: float = 2.0
    cap: float = 3600.0
    fatal_types: tuple[str, ...] = ()
    delays: tuple[float, ...] = ()

    def wait(self, spent: int, fraction: float) -> float:
        """Seconds to wait after `spent` attempts, given a random `fraction` from 0 to 1. The exponent is bounded, so
        that attempt 10,000 overflows nothing (field case B046)."""
        if self.delays:
            return self.delays[min(spent, len(self.delays)) - 1] * (1 + SPREAD * fraction)
        bound: float = min(self.cap, self.base * self.factor ** min(spent - 1, 64))
        return bound * fraction


class Timeouts(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """All in seconds, None is no limit, kept by the server (TMO-01).

    schedule_to_start: a task that waited longer before its first start EXPIRES instead of running late;
    start_to_close: one attempt; schedule_to_close: all attempts and waits together;
    heartbeat: longest silence of a worker while an attempt runs;
    lease: life of a lease without heartbeats, 30 by default.
    """

    schedule_to_start: float | None = None
    start_to_close: float | None = None
    schedule_to_close: float | None = None
    heartbeat: float | None = None
    lease: float | None = None


DEFAULT_RETRY = RetryPolicy()
NO_TIMEOUTS = Timeouts()


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a task is; `done` never goes back over its attempts (JOB-10)."""

    done: float
    total: float | None = None
    message: str = ""


class Lease(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Ownership of one task by one worker, compared whole on every write of that worker (LEASE-01, LEASE-05)."""

    task_id: bytes
    number: int
    bits: int
    job: bool = True  #: of a standalone job without limits, whose success needs no look at anything else


class Task(msgspec.Struct, gc=False):
    """A task, open or closed; field names and their order are those of the columns that stores select. Nobody changes
    a Task in place but `core/decide.py`, on a copy of its own."""

    id: bytes
    namespace: str
    type: str
    state: State
    lane: str
    created_at: int
    updated_at: int
    app: str = "default"
    kind: Kind = Kind.JOB
    queue: str = "default"
    rowid: int = 0  #: SQLite's row number; 0 elsewhere
    # what its owner gave
    payload: bytes | None = None  #: MessagePack of Payloads
    headers: bytes | None = None
    idempotency_key: str | None = None
    retry_policy: bytes | None = None  #: MessagePack of RetryPolicy; None is the default policy
    timeouts: bytes | None = None  #: MessagePack of Timeouts; None is no limits
    max_attempts: int = 5
    identity: str = ""
    retry_of: bytes | None = None  #: the closed task that this one repeats
    # its place in the queue
    priority: int = 3  #: 1 first, 5 last
    fairness_key: str = ""
    place: int | None = None  #: virtual-time round in its lane; None: not ready
    # its deadlines; wake_at is a lower bound of them all and the only indexed one
    run_at: int | None = None  #: not before, as asked
    ready_at: int | None = None  #: end of a delay or back-off
    expires_at: int | None = None  #: schedule-to-start
    attempt_deadline: int | None = None  #: start-to-close
    deadline: int | None = None  #: schedule-to-close
    heartbeat_deadline: int | None = None
    lease_length: int = 30 * SECOND  #: life of an acknowledged lease
    lease_until: int | None = None
    cancel_deadline: int | None = None  #: end of the grace
    wake_at: int | None = None
    # its runs
    attempt: int = 0  #: attempts spent
    lost_deliveries: int = 0  #: leases in a row that ended without receipt
    lease_number: int = 0
    lease_bits: int = 0
    received: bool = False
    session: int | None = None  #: incarnation of the worker that holds the lease
    worker: str | None = None
    poll: int | None = None  #: the poll that got the lease
    started_at: int | None = None  #: first start
    attempt_started_at: int | None = None
    heartbeat_at: int | None = None
    cancel_requested_at: int | None = None
    cancel_reason: str | None = None
    progress: bytes | None = None
    checkpoint: bytes | None = None
    failure: bytes | None = None  #: of the last failed attempt, or the final one
    # the answer to the last completion, for a worker that asks again
    done_number: int = 0
    done_bits: int = 0
    done_state: int = 0
    # its parent, if it is an activity, a timer or another child of a workflow run
    parent_run_id: bytes | None = None
    parent_event_id: int | None = None  #: the event that began it there
    # once closed
    result: bytes | None = None
    closed_at: int | None = None
    # limits; see limit_rules.py
    concurrency_key: str | None = None  #: "name:value": it counts against the limit of this name
    weight: int = 1  #: slots that it takes while it runs
    blocked_on: str | None = None  #: the subject of the limit that refused it; it has no place then
    blocked_place: int | None = None  #: the place that it gets back

    @property
    def lease(self) -> Lease:
        return Lease(self.id, self.lease_number, self.lease_bits, self.kind == Kind.JOB)


class Attempt(msgspec.Struct, gc=False):
    """An attempt (or an undelivered or released lease) that did not end its task. Field names are column names."""

    task_id: bytes
    lease_number: int
    attempt: int
    outcome: str  #: failed, lost, timed_out, released, undelivered
    worker: str | None
    started_at: int
    finished_at: int
    failure: bytes | None = None


class Key(msgspec.Struct, gc=False):
    """A reserved key: (namespace, app, kind, key) -> task. Field names are column names (IDEM-01, X-17)."""

    namespace: str
    app: str
    kind: str  #: "task" (idempotency), "retry" (request of an operator)
    key: str
    task_id: bytes
    digest: bytes
    expires_at: int

    @property
    def name(self) -> tuple[str, str, str, str]:
        return (self.namespace, self.app, self.kind, self.key)


class WorkerSession(msgspec.Struct, gc=False):
    """A worker process as registered: `incarnation` is new with each process, `epoch` with each connection."""

    incarnation: int
    epoch: int
    namespace: str
    identity: str
    queues: str
    slots: int
    build: str
    started_at: int
    seen_at: int
    ends_at: int | None = None  #: set: its leases are being ended


class Pulse(msgspec.Struct):
    """When servers last knew the database to be reachable, and until when no lease may expire."""

    alive_at: int
    hold_until: int


_packb = msgspec.msgpack.Encoder().encode
_decoders: dict[Any, msgspec.msgpack.Decoder[Any]] = {}


def pack(value: object) -> bytes:
    """MessagePack of a value of this module, for a column."""
    return _packb(value)


def unpack(data: bytes, kind: Any) -> Any:
    """The value of type `kind` that `pack` wrote."""
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.msgpack.Decoder(kind)
    return decoder.decode(data)
