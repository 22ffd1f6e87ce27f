"""Actions on many jobs: retry, cancel, delete (RETRY-07, RETRY-08); and on many workflow runs: cancel, terminate.

An action is a row that waits, with an alarm. Whoever rings the alarm drives the action from there on: the lease number
of the row names it, and it holds the row for 30 seconds, which every step extends. A step is written down before it is
taken, with the jobs that it is about. So whoever takes over repeats the last step, which does nothing twice (a retry is
keyed by the closed id, the cancel of a run by that of the action, the others are the same when repeated), and the
counts stay right.
"""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.core import commands, decide
from perdure.core.effects import Change, Close, Delete
from perdure.core.errors import InvalidArgument, LeaseLost, Problem
from perdure.core.lanes import lane
from perdure.core.model import SECOND, Task, pack, unpack
from perdure.core.policy import wake_at
from perdure.core.query import And, Column, Compare, Node, Present, both
from perdure.core.search import Search
from perdure.core.states import CLOSED_FROM, Cause, Kind, State, is_closed

HELD = 30 * SECOND
"""Microseconds that a driver may take for a step until another one takes over."""
STEP = 200
"""Jobs of a step."""
MAX_ERRORS = 20
"""Errors that an action keeps."""
_KEY_LIFE = 24 * 3600 * SECOND

STATES: dict[str, tuple[State, ...]] = {
    "retry": (State.FAILED, State.CANCELED, State.EXPIRED),
    "cancel": (State.ENQUEUED, State.LEASED, State.RETRY_WAIT),
    "delete": (State.SUCCEEDED, State.FAILED, State.CANCELED, State.EXPIRED),
    "cancel_runs": (State.ENQUEUED, State.LEASED, State.RETRY_WAIT, State.WAITING),
    "terminate_runs": (State.ENQUEUED, State.LEASED, State.RETRY_WAIT, State.WAITING),
}
"""States of what each action can do something about."""
OF_RUNS = ("cancel_runs", "terminate_runs")
"""Actions on workflow runs."""


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of a namespace (open tasks may also be of another `kind`) that pass all that is given. `among`: "open",
    "closed", or "dead" (dead letters that nobody has retried). `fresh`: of closed ones those that nobody has
    retried."""

    namespace: str
    among: str
    state: int | None = None
    queue: str | None = None
    type: str | None = None
    since: int | None = None  #: created_at at or after
    group: int | None = None
    error: str | None = None
    fresh: bool = False
    kind: int = Kind.JOB
    query: str = ""
    where: Node | None = None  #: what the query means

    @property
    def search(self) -> Search:
        """The search for those that pass, a query among what is given."""
        among: dict[str, Node] = {
            "open": Compare(Column("state"), "<", int(CLOSED_FROM)),
            "closed": Compare(Column("state"), ">=", int(CLOSED_FROM)),
            "dead": And((Present(Column("error")), Compare(Column("retried"), "=", False))),
        }
        given = {"state": self.state, "queue": self.queue, "type": self.type, "group": self.group, "error": self.error}
        where = both(
            self.where,
            among[self.among],
            Compare(Column("retried"), "=", False) if self.fresh else None,
            None if self.since is None else Compare(Column("created_at"), ">=", self.since),
            *(Compare(Column(name), "=", value) for name, value in given.items() if value is not None),
        )
        return Search(namespace=self.namespace, kind=self.kind, where=where)


class BulkFailure(msgspec.Struct, array_like=True):
    """Why a job was left as it is."""

    task_id: bytes
    error: Problem


class Action(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What an action is and how far it is; what its row carries. `step` are the jobs of the step in hand, `cursor` is
    where the next one begins, `ended` that there is none."""

    action: str
    selection: Selection
    total: int
    at_least: bool = False
    reason: str = ""
    done: int = 0
    failed: int = 0
    errors: list[BulkFailure] = []
    step: list[bytes] = []
    cursor: bytes | None = None
    ended: bool = False


def selection(action: str, namespace: str, filter: dict[str, Any]) -> Selection:
    """Where the jobs are that an action is about; `filter` are fields of a Selection. InvalidArgument for what no such
    job can have."""
    state = filter["state"]
    about_failures = filter["group"] is not None or filter["error"] is not None
    allowed = STATES[action]
    if state is not None and state not in allowed:
        limit = ", ".join(one.name for one in allowed)
        raise InvalidArgument(
            f"nothing that is {State(state).name} can be the object of a {action}",
            field="filter.state", limit=limit, kind="str",
        )  # fmt: skip
    if action not in ("retry", "delete"):
        if about_failures:
            field = "filter.error" if filter["group"] is None else "filter.failure_group"
            raise InvalidArgument("only closed jobs are in groups of failures", field=field, limit="retry, delete")
        kind = Kind.WORKFLOW if action in OF_RUNS else Kind.JOB
        return Selection(namespace=namespace, among="open", kind=kind, **filter)
    if about_failures and state not in (None, State.FAILED):
        raise InvalidArgument("only FAILED jobs are in groups of failures", field="filter.state", limit="FAILED")
    if about_failures or (action == "retry" and state in (None, State.FAILED)):
        return Selection(namespace=namespace, among="dead", **filter)
    return Selection(namespace=namespace, among="closed", fresh=action == "retry", **filter)


def draft(action: Action, identity: str, request_id: str, digest: bytes) -> commands.Enqueue:
    """The command that begins an action. It is never in its lane: its alarm is due at once."""
    namespace = action.selection.namespace
    task = Task(
        b"", namespace, f"bulk_{action.action}", State.WAITING, lane(namespace, "default"), 0, 0,
        kind=Kind.BULK, max_attempts=1, identity=identity, checkpoint=pack(action),
    )  # fmt: skip
    return commands.Enqueue(
        draft=task, delay=1, key=request_id or None, key_kind="bulk", key_life=_KEY_LIFE, digest=digest
    )


def action_of(task: Task) -> Action:
    """What a row of kind BULK carries."""
    found: Action = unpack(task.checkpoint or b"", Action)
    return found


def begin(task: Task, now: int) -> Change:
    """The alarm rang: whoever rang it drives the action from here on."""
    task, now = decide.own(task, now)
    task.lease_number += 1
    task.started_at = task.started_at or now
    task.ready_at = now + HELD
    task.wake_at = wake_at(task)
    return Change(task)


def note(task: Task, command: commands.NoteBulk, now: int) -> list[Change | Close | Delete]:
    """How far it is. LeaseLost when somebody else drives it by now; nothing to do for one that was canceled."""
    if is_closed(task.state):
        return []
    if task.kind != Kind.BULK or task.lease_number != command.number:
        raise LeaseLost("another server drives this action by now")
    task, now = decide.own(task, now)
    task.checkpoint = command.checkpoint
    if command.over:
        return [decide.close(task, Cause.ANSWER, now)]
    task.ready_at = now + HELD
    task.wake_at = wake_at(task)
    return [Change(task)]


def copied(action: Action) -> Action:
    """A copy that can be changed."""
    return msgspec.structs.replace(action, errors=list(action.errors))


def add_error(action: Action, task_id: bytes, error: Problem) -> None:
    """A job was left as it is."""
    action.failed += 1
    if len(action.errors) < MAX_ERRORS:
        action.errors.append(BulkFailure(task_id, error))
