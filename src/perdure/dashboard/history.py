"""The events of a run, a window at a time: a history of any length costs a page what it shows (field case B155)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from perdure.core import workflow_messages as w
from perdure.core.errors import NotFound
from perdure.core.event_types import EventType, event_name
from perdure.core.events import Event
from perdure.core.history_json import to_json
from perdure.core.pages import unpack
from perdure.dashboard import values
from perdure.dashboard.visit import Download, Visit

EVENTS = 100
"""Of a page."""
READ = 1000
"""Events that are asked for at once."""
MAX_SEARCHED = 20_000
"""Events that one look for failures goes through."""
_BRIEF = 160  #: characters of an event in a list
_MAX_ATTRIBUTES = 4_000

FAILED = frozenset(kind for kind in EventType if kind.name.endswith(("_FAILED", "_TIMED_OUT")))
_TELLING = (
    "name", "workflow_type", "activity_type", "timer_id", "signal_name", "marker_name", "workflow_id", "update_id",
    "step_id", "activity_id", "group_id", "attempt", "scheduled_event_id", "started_event_id", "initiated_event_id",
    "start_to_fire", "retry_in", "count", "failed", "cause", "reason", "task_queue", "identity", "failure",
    "input", "result",
)  # fmt: skip
"""Attributes that tell an event from others of its type, the most telling first."""


class Line(NamedTuple):
    """An event in a list."""

    id: int
    time: int
    name: str
    brief: str
    attributes: values.Shown
    outcome: str


class Window(NamedTuple):
    """Events `first` to `last` of `total`; `failed`: only those that tell of a failure, and `before` is where to look
    on for older ones."""

    lines: list[Line]
    first: int
    last: int
    total: int
    failed: bool
    before: int | None = None

    @property
    def beginning(self) -> int:
        """The `to` of the first window."""
        return min(EVENTS, self.total)

    @property
    def earlier(self) -> int | None:
        """The `to` of the window before this one."""
        return self.first - 1 if self.first > 1 else None

    @property
    def later(self) -> int | None:
        return min(self.last + EVENTS, self.total) if self.last < self.total else None


async def window(visit: Visit, run: w.WorkflowView) -> Window:
    """The events up to `to` of the address, the last ones without it."""
    last = min(max(visit.number("to", run.history_length), 1), max(run.history_length, 1))
    if visit.get("only") == "failed":
        return await _failures(visit, run, last)
    first = max(1, last - EVENTS + 1)
    events = await read(visit, run, first - 1, last - first + 1)
    return Window(lines(events), first, last, run.history_length, failed=False)


async def _failures(visit: Visit, run: w.WorkflowView, last: int) -> Window:
    """The last events up to a number that tell of failures, read backwards."""
    found: list[Event] = []
    behind = last
    while behind > 0 and len(found) < EVENTS and last - behind < MAX_SEARCHED:
        after = max(0, behind - READ)
        events = await read(visit, run, after, behind - after)
        found = [event for event in events if event.type in FAILED] + found
        behind = after
    dropped = found[:-EVENTS]
    if dropped:
        behind = dropped[-1].id
    before = behind if behind > 0 else None
    return Window(lines(found[-EVENTS:]), behind + 1, last, run.history_length, failed=True, before=before)


async def event(visit: Visit) -> Download:
    """One event with all its attributes."""
    run = await visit.service.describe_workflow(w.DescribeWorkflow(visit.need("id"), visit.get("run")))
    number = visit.number("event", 0)
    found = await read(visit, run, max(number - 1, 0), 1)
    if not found or found[0].id != number:
        raise NotFound(f"the history has no event {number}", field="event")
    text = msgspec.json.format(msgspec.json.encode(to_json(found)[0]), indent=2).decode()
    return Download(f"{run.run_id}-{number}.json", text)


async def read(visit: Visit, run: w.WorkflowView, after: int, count: int) -> list[Event]:
    """So many events behind one; fewer where the history ends, or where a page of it is very large."""
    found: list[Event] = []
    while len(found) < count:
        behind = found[-1].id if found else after
        body = w.History(run.workflow_id, run.run_id, behind, min(READ, count - len(found)))
        reply = await visit.service.history(body)
        fresh = [event for page in reply.pages for event in unpack(page) if event.id > behind]
        found += fresh
        if not fresh or not reply.more:
            break
    return found[:count]


async def all_events(visit: Visit, run: w.WorkflowView, last: int) -> AsyncIterator[Sequence[Event]]:
    """The events up to a number, in pieces, so that others get their turn in between."""
    after = 0
    while after < last:
        events = await read(visit, run, after, min(READ, last - after))
        if not events:
            return
        yield events
        after = events[-1].id


def lines(events: Iterable[Event]) -> list[Line]:
    """Events for a list."""
    return [
        Line(
            event.id,
            event.time,
            event_name(event.type),
            brief(shown["attributes"]),
            values.plain(shown["attributes"], _MAX_ATTRIBUTES),
            outcome_of(event),
        )
        for event, shown in ((event, to_json([event])[0]) for event in events)
    ]


def outcome_of(event: Event) -> str:
    """How something ended with this event, as a word that pages have a colour for; empty for other events."""
    name = event.type.name
    if name == "WORKFLOW_TASK_COMPLETED":
        return ""  # every turn that went well has one
    for ending, outcome in _OUTCOMES.items():
        if name.endswith(ending):
            return outcome
    return ""


_OUTCOMES = {
    "_FAILED": "failed",
    "_TIMED_OUT": "timed_out",
    "_CANCELED": "canceled",
    "_TERMINATED": "terminated",
    "_COMPLETED": "completed",
    "_FIRED": "completed",
}


def brief(attributes: dict[str, Any]) -> str:
    """What tells an event from others of its type, in a line."""
    parts = [f"{name}={_short(attributes[name])}" for name in _TELLING if name in attributes]
    text = " ".join(parts)
    return text if len(text) <= _BRIEF else text[: _BRIEF - 1] + "…"


def _short(value: Any) -> str:
    if isinstance(value, dict) and "message" in value:
        value = value["message"]
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
