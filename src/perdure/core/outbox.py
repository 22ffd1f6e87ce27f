"""What the world outside may hear: events of jobs, workflow runs and breakers, and the cursors of those who read them.

An event is written by the transaction that makes it true (OBS-01), so there is none without a change and no change
without its event. Its cursor is its id: (xid, seq), of which a reader that comes back with it misses nothing and gets
nothing twice. On PostgreSQL xid is the transaction and seq a counter, on one writer's stores xid is 0.

Events say what happened to whom, never what was sent or returned: no payload, no result, no message of a failure. The
beginnings of jobs are none, because they would cost as much again as the ends; those of runs are.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import NamedTuple

import msgspec

from perdure.core.breaker import Stage
from perdure.core.errors import InvalidArgument
from perdure.core.limit_rules import Limit
from perdure.core.model import Failure, Task, unpack
from perdure.core.states import Kind, State

_NOUNS = {Kind.JOB: "task", Kind.WORKFLOW: "workflow"}
"""Who has events: what is addressed from outside. Children of a run are told of by its history."""

SUCCEEDED = "task.succeeded"
RETRY_SCHEDULED = "task.retry_scheduled"
WORKFLOW_STARTED = "workflow.started"
BREAKER_CLOSED, BREAKER_HALF_OPENED, BREAKER_OPENED = "breaker.closed", "breaker.half_opened", "breaker.opened"
TYPES = (
    BREAKER_CLOSED, BREAKER_HALF_OPENED, BREAKER_OPENED,
    "task.canceled", "task.expired", "task.failed", RETRY_SCHEDULED, SUCCEEDED,
    "workflow.canceled", "workflow.continued_as_new", "workflow.failed", WORKFLOW_STARTED, "workflow.succeeded",
    "workflow.terminated", "workflow.timed_out",
)  # fmt: skip
"""All types of events. A subscription may also name all of a noun: "task.*"."""

_FAILING = (State.FAILED, State.EXPIRED, State.TIMED_OUT, State.RETRY_WAIT)
"""What the failure of a row is the reason of."""
_STATES_AFTER = {
    "retry_scheduled": "RETRY_WAIT", "started": "ENQUEUED", "opened": "OPEN", "half_opened": "HALF_OPEN",
}  # fmt: skip
"""Of types whose last word is not the state."""
_OF_STAGE = {
    Stage.CLOSED: BREAKER_CLOSED, Stage.OPEN: BREAKER_OPENED, Stage.HALF_OPEN: BREAKER_HALF_OPENED,
}  # fmt: skip
NO_TASK = bytes(16)
"""Where an event is about no task."""
_CURSOR = re.compile(r"([0-9a-f]{1,15})-([0-9a-f]{1,15})")


class Cursor(NamedTuple):
    """A position in a feed: behind the event of this id."""

    xid: int
    seq: int

    @property
    def text(self) -> str:
        return f"{self.xid:x}-{self.seq:x}"


START = Cursor(0, 0)
"""Before all events."""


def parse(text: str, field: str = "cursor") -> Cursor:
    """The cursor of a text that `Cursor.text` made; InvalidArgument when it is none."""
    match = _CURSOR.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise InvalidArgument(f"{field} is {text!r}"[:100], field=field, limit="the id of an event", kind="str")
    return Cursor(int(match[1], 16), int(match[2], 16))


class OutboxEvent(msgspec.Struct, gc=False):
    """A row of the outbox. Field names are column names, in the order in which stores select them."""

    namespace: str
    type: str
    at: int  #: microseconds; of one task it never goes back
    task_id: bytes  #: of a run its run id; NO_TASK of a breaker
    task_type: str  #: that of the breaker
    app: str
    queue: str
    attempt: int  #: attempts spent
    workflow_id: str = ""
    failure_code: str = ""
    failure_type: str = ""
    reason: str = ""  #: of what no task did
    xid: int = 0  #: given by the store, as is seq
    seq: int = 0

    @property
    def cursor(self) -> Cursor:
        return Cursor(self.xid, self.seq)

    @property
    def is_of_breaker(self) -> bool:
        """Whether it is about a task type, and no task."""
        return self.type.startswith("breaker.")


class Feed(msgspec.Struct, frozen=True):
    """The events of a namespace: whether new ones are recorded, up to where old ones were deleted, and the last one."""

    recording: bool = False
    trimmed: Cursor = START
    last: Cursor = START

    @property
    def end(self) -> Cursor:
        """Behind all there is."""
        return max(self.trimmed, self.last)


def ended(task: Task, workflow_id: str = "") -> OutboxEvent | None:
    """The event of a task that closes; None for a kind that has none."""
    return _event(task, task.state.name.lower(), workflow_id)


def started(task: Task, workflow_id: str) -> OutboxEvent | None:
    """The event of a new task; None for all but workflow runs."""
    return _event(task, "started", workflow_id) if task.kind is Kind.WORKFLOW else None


def put_off(task: Task) -> OutboxEvent | None:
    """The event of a task whose attempt has just ended; None unless it is a job that waits for another one."""
    return _event(task, "retry_scheduled", "") if task.kind is Kind.JOB and task.state == State.RETRY_WAIT else None


def moved(limit: Limit) -> OutboxEvent:
    """The event of a breaker that has changed its state."""
    circuit = limit.circuit
    assert circuit is not None
    return OutboxEvent(
        limit.namespace, _OF_STAGE[circuit.stage], circuit.since, NO_TASK, limit.name, "", "", 0, reason=circuit.reason
    )


def _event(task: Task, what: str, workflow_id: str) -> OutboxEvent | None:
    noun = _NOUNS.get(task.kind)
    if noun is None:
        return None
    event = OutboxEvent(
        task.namespace, f"{noun}.{what}", task.updated_at, task.id, task.type, task.app, task.queue, task.attempt,
        workflow_id,
    )  # fmt: skip
    if task.failure is not None and task.state in _FAILING:
        with suppress(msgspec.DecodeError):  # another version wrote it: the event is told without
            failure: Failure = unpack(task.failure, Failure)
            event.failure_code, event.failure_type = failure.code, failure.type
    return event


def state_after(type_: str) -> str:
    """The state that an event of this type leaves a task, or a breaker, in."""
    what = type_.partition(".")[2]
    return _STATES_AFTER.get(what, what.upper())


def wanted(type_: str, filter: tuple[str, ...]) -> bool:
    """Whether a filter lets a type pass. No filter lets all pass."""
    return not filter or type_ in filter or f"{type_.partition('.')[0]}.*" in filter


def check_filter(types: tuple[str, ...], field: str = "types") -> tuple[str, ...]:
    """Types, or all of a noun, in order and once each; InvalidArgument names the first that is none."""
    known = (*TYPES, "breaker.*", *(f"{noun}.*" for noun in _NOUNS.values()))
    for type_ in types:
        if type_ not in known:
            raise InvalidArgument(f"{field} names {type_!r}"[:100], field=field, limit=", ".join(known), kind="str")
    return tuple(sorted(set(types)))
