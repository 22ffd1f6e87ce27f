"""The list of tasks, and the page of one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from perdure.core import event_messages as e
from perdure.core import failure_messages as f
from perdure.core import messages as m
from perdure.core.errors import InvalidArgument
from perdure.dashboard import values
from perdure.dashboard.timeline import Bar, Timeline
from perdure.dashboard.visit import Download, Page, Visit

STATES = ("ENQUEUED", "LEASED", "RETRY_WAIT", "SUCCEEDED", "FAILED", "CANCELED", "EXPIRED")
ROWS = 50
"""Of a page of a list, and attempts of a page of them."""
CHUNKS = 100
"""Of what a task wrote to its stream, on a page."""
BULK = {"retry": ("FAILED", "CANCELED", "EXPIRED"), "cancel": ("ENQUEUED", "LEASED", "RETRY_WAIT")}
"""What can be done to all tasks of a list, and in which states they have to be."""


async def listing(visit: Visit) -> Page:
    """Tasks that pass the filters in the address, newest first."""
    found = await visit.service.find(
        m.Find(
            state=visit.get("state"),
            queue=visit.get("queue"),
            type=visit.get("type"),
            failure_group=visit.get("failure_group"),
            limit=ROWS,
            cursor=visit.get("cursor"),
            query=visit.get("query") or "",
        )
    )
    state = visit.get("state")
    actions = [action for action, states in BULK.items() if state in states]
    return Page("tasks.html", "Tasks", {"found": found, "states": STATES, "actions": actions})


async def task(visit: Visit) -> Page:
    """One task: where it stands, its attempts, what went in and what came out."""
    view = await visit.service.get(m.Get(visit.need("id")))
    attempts = _attempts(view, visit.number("attempts", 1))
    closed = view.closed_at is not None
    can = {
        "cancel": not closed and view.cancel_requested_at is None,
        "retry": view.state in ("RETRY_WAIT", *BULK["retry"]) and view.retried_by is None,
    }
    said = await visit.service.stream(e.ReadStream(view.task_id, visit.number("chunks", 0), CHUNKS))
    data = {"task": view, "attempts": attempts, "timeline": _timeline(attempts.shown), "can": can, "said": _said(said)}
    return Page("task.html", f"{view.type} {view.task_id}", data)


async def value(visit: Visit) -> Download:
    """The payload or the result of a task, whole."""
    view = await visit.service.get(m.Get(visit.need("id")))
    part = visit.need("part")
    if part not in ("payload", "result"):
        raise InvalidArgument(f"part is {part[:50]!r}", field="part", limit="payload, result", kind="str")
    return Download(f"{view.task_id}-{part}.json", values.whole(getattr(view, part)))


class Attempts(NamedTuple):
    """A page of the attempts of a task, newest first. Pages count from 1, the newest."""

    shown: list[m.AttemptView]
    page: int
    pages: int
    total: int


def _attempts(view: m.TaskView, page: int) -> Attempts:
    newest = view.attempts[::-1]
    pages = max(1, -(-len(newest) // ROWS))
    page = min(max(page, 1), pages)
    return Attempts(newest[(page - 1) * ROWS : page * ROWS], page, pages, len(newest))


def _timeline(attempts: list[m.AttemptView]) -> Timeline | None:
    """Of what is shown, oldest first; None where nothing has begun."""
    bars = [
        Bar(f"{one.attempt}", one.worker or "", one.started_at, one.finished_at, one.outcome, f"#attempt-{number}")
        for number, one in enumerate(attempts)
        if one.started_at is not None
    ]
    return Timeline.of(bars[::-1], datetime.now(UTC))


class Said(NamedTuple):
    """What a task wrote to its stream: lines of (offset, attempt, text), and where the next page begins."""

    lines: list[tuple[int, int, values.Shown]]
    next: int | None


def _said(page: e.StreamPage) -> Said:
    lines = [(chunk.offset, chunk.attempt, values.cut(_text(chunk))) for chunk in page.chunks]
    return Said(lines, page.next if len(lines) == CHUNKS else None)


def _text(chunk: e.StreamChunk) -> str:
    """A chunk of bytes, and one that only the SDK reads, is told by its size."""
    if chunk.kind in ("text", "json"):
        return chunk.data.decode("utf-8", "replace")
    return f"{len(chunk.data)} bytes"


def bulk_filter(fields: dict[str, str]) -> f.BulkFilter:
    """What a list of tasks is filtered by, for an action on all of them."""
    return f.BulkFilter(
        state=fields.get("state"),
        queue=fields.get("queue"),
        type=fields.get("type"),
        failure_group=fields.get("failure_group"),
        query=fields.get("query", ""),
    )
