"""How values of core/model.py become rows of a database, and rows become values.

Select lists follow the field order of the structs, so a row becomes a value without a look at names. The columns of a
write are named here once, in the order in which its statement takes them. State, kind and received are bound as plain
ints and so come first: drivers bind subclasses of int by a much slower path.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from msgspec.structs import astuple

from perdure.core.breaker import Circuit
from perdure.core.limit_rules import Limit
from perdure.core.model import Task, pack, unpack
from perdure.core.run import Message, Page, Run
from perdure.core.states import Kind, State

Row = tuple[Any, ...]

_STATES = {int(state): state for state in State}
_KINDS = {int(kind): kind for kind in Kind}

LEASE = (
    "lease_number", "lease_bits", "session", "worker", "poll", "attempt_started_at", "heartbeat_at", "lease_until",
    "attempt_deadline", "heartbeat_deadline", "wake_at", "updated_at",
)  # fmt: skip
"""What a claim writes, besides state, received, and the nulls of place and ready_at."""

CHANGE = (
    *LEASE, "place", "ready_at", "priority", "attempt", "lost_deliveries", "started_at", "cancel_requested_at",
    "cancel_reason", "cancel_deadline", "progress", "checkpoint", "failure", "done_number", "done_bits", "done_state",
    "blocked_on", "blocked_place",
)  # fmt: skip
"""What a decision may change on an open task, besides state and received."""

CLOSE = (
    "updated_at", "attempt", "lost_deliveries", "started_at", "cancel_requested_at", "cancel_reason", "done_number",
    "done_bits", "done_state", "closed_at", "progress", "checkpoint", "failure", "result",
)  # fmt: skip
"""What is written as a task closes, besides the state."""

_APART = ("state", "kind", "received", "rowid", "result", "closed_at")
INSERT = tuple(field for field in Task.__struct_fields__ if field not in _APART)
"""What a new task writes, besides state, kind and received."""


def task(row: Iterable[Any]) -> Task:
    """The task of a row that was selected in field order."""
    found = Task(*row)
    found.state = _STATES[found.state]
    found.kind = _KINDS[found.kind]
    found.received = found.received == 1
    return found


def runs(found: Iterable[Iterable[Any]]) -> dict[bytes, Run]:
    """The runs of rows that were selected in field order, by id; tasks that are no runs have no workflow id."""
    by_id = {run.id: run for run in (Run(*row) for row in found) if run.workflow_id is not None}
    for run in by_id.values():
        run.paused = run.paused == 1
    return by_id


def messages(found: Iterable[Iterable[Any]]) -> dict[bytes, list[Message]]:
    """The messages of rows in order, by run."""
    inboxes: defaultdict[bytes, list[Message]] = defaultdict(list)
    for row in found:
        message = Message(*row)
        inboxes[message.run_id].append(message)
    return dict(inboxes)


def pages(found: Iterable[Iterable[Any]]) -> dict[bytes, list[Page]]:
    """The pages of rows in order, by run."""
    histories: defaultdict[bytes, list[Page]] = defaultdict(list)
    for row in found:
        page = Page(*row)
        histories[page.run_id].append(page)
    return dict(histories)


def limit(row: Iterable[Any]) -> Limit:
    """The limit of a row that was selected in field order."""
    *plain, circuit = row
    found = Limit(*plain)
    found.paused, found.declared = found.paused == 1, found.declared == 1
    found.circuit = None if circuit is None else unpack(circuit, Circuit)
    return found


def of_limit(limit: Limit) -> Row:
    """Its columns."""
    *plain, circuit = astuple(limit)
    return (*plain, None if circuit is None else pack(circuit))
