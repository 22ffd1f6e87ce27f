"""The spans of a run as a drawing: as bars over time, or as boxes below what they came after."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from perdure.core import workflow_messages as w
from perdure.dashboard.history import all_events
from perdure.dashboard.render import at
from perdure.dashboard.request import link
from perdure.dashboard.spans import Span, Story
from perdure.dashboard.timeline import Bar, Timeline
from perdure.dashboard.visit import Visit

SPANS = 100
"""Of a drawing; the others are on pages before it."""
_ACROSS = 5  #: boxes beside each other
_BOX, _HIGH = 220, 46
_GAP, _DOWN = 24, 44
_MAX_LINES = 500  #: between boxes; more would be a black area


class Part(NamedTuple):
    """A page of the spans of a run, in the order in which they began; pages count from 1, the oldest."""

    spans: list[Span]
    page: int
    pages: int
    total: int


class Box(NamedTuple):
    span: Span
    x: int
    y: int


class Line(NamedTuple):
    """From the lower edge of a box to the upper edge of another."""

    x1: int
    y1: int
    x2: int
    y2: int


class Graph(NamedTuple):
    part: Part
    boxes: list[Box]
    lines: list[Line]
    width: int
    height: int


class Times(NamedTuple):
    part: Part
    drawing: Timeline | None


async def timeline(visit: Visit, run: w.WorkflowView) -> Times:
    """A page of the spans of a run as bars."""
    part = await _part(visit, run)
    bars = [
        Bar(
            span.name,
            _detail(span),
            at(span.started_at),
            None if span.ended_at is None else at(span.ended_at),
            span.outcome,
            link("workflow", id=run.workflow_id, run=run.run_id, view="replay", event=span.ended or span.begun),
        )
        for span in part.spans
    ]
    return Times(part, Timeline.of(bars, run.closed_at or datetime.now(UTC)))


def _detail(span: Span) -> str:
    again = f"attempt {span.attempt}" if span.attempt > 1 else ""
    where = f"on {span.worker}" if span.worker else ""
    return ", ".join(filter(None, (span.kind, again, where)))


async def drawn(visit: Visit, run: w.WorkflowView) -> Graph:
    """A page of the spans of a run as boxes."""
    return _graph(await _part(visit, run))


async def _part(visit: Visit, run: w.WorkflowView) -> Part:
    story = Story()
    async for events in all_events(visit, run, run.history_length):
        story.tell(events)
    spans = list(story.spans.values())
    pages = max(1, -(-len(spans) // SPANS))
    page = min(max(visit.number("part", pages), 1), pages)
    return Part(spans[(page - 1) * SPANS : page * SPANS], page, pages, len(spans))


def _graph(part: Part) -> Graph:
    levels: dict[int, int] = {}
    rows: list[list[Span]] = []
    for span in part.spans:
        above = [levels[begun] for begun in span.after if begun in levels]
        level = max(above) + 1 if above else 0
        levels[span.begun] = level
        rows.extend([] for _ in range(level + 1 - len(rows)))
        rows[level].append(span)
    places: dict[int, Box] = {}
    y, widest = 10, 1
    for row in rows:
        for number, span in enumerate(row):
            column, line = number % _ACROSS, number // _ACROSS
            places[span.begun] = Box(span, 10 + column * (_BOX + _GAP), y + line * (_HIGH + _GAP // 2))
        widest = max(widest, min(len(row), _ACROSS))
        y += -(-len(row) // _ACROSS) * (_HIGH + _GAP // 2) + _DOWN
    lines = [
        Line(places[begun].x + _BOX // 2, places[begun].y + _HIGH, box.x + _BOX // 2, box.y)
        for box in places.values()
        for begun in box.span.after
        if begun in places
    ]
    return Graph(part, list(places.values()), lines[:_MAX_LINES], widest * (_BOX + _GAP) + 20, y)
