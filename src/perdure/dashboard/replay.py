"""A run as it was at an event of its history: what was under way, and what its code had been told."""

from __future__ import annotations

from typing import NamedTuple

from perdure.core import workflow_messages as w
from perdure.dashboard import history
from perdure.dashboard.history import Line, all_events, lines
from perdure.dashboard.spans import Span, Story
from perdure.dashboard.visit import Visit

AROUND = 5
"""Events that are shown before and after the one that is looked at."""
ENDED = 20
"""Spans that are shown of those that had ended, the last ones."""


class Moment(NamedTuple):
    """`ended` are the last ones of `ended_count`."""

    event: Line | None
    number: int
    total: int
    around: list[Line]
    open: list[Span]
    ended: list[Span]
    ended_count: int


async def at_event(visit: Visit, run: w.WorkflowView) -> Moment:
    """The run at the event of the address, the first one without it."""
    number = min(max(visit.number("event", 1), 1), max(run.history_length, 1))
    story = Story()
    async for events in all_events(visit, run, number):
        story.tell(events)
    first = max(1, number - AROUND)
    around = lines(await history.read(visit, run, first - 1, number + AROUND - first + 1))
    spans = list(story.spans.values())
    ended = sorted((span for span in spans if span.ended is not None), key=lambda span: span.ended or 0)
    shown = next((line for line in around if line.id == number), None)
    still = [span for span in spans if span.ended is None]
    return Moment(shown, number, run.history_length, around, still[:ENDED], ended[-ENDED:][::-1], len(ended))
