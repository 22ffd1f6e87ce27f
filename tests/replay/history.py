"""Histories written by hand: events get their ids and times here."""

from __future__ import annotations

from typing import Any

from perdure.core import events as e
from perdure.core.events import Event
from perdure.core.model import SECOND, Payloads
from perdure.sdk.converter import to_payloads

START = 1_700_000_000 * SECOND
RUN_ID = bytes(range(16))


def started(payload: object = None, type: str = "flow", **more: Any) -> e.WorkflowExecutionStarted:
    return e.WorkflowExecutionStarted(
        workflow_type=type,
        workflow_id="w1",
        task_queue="default",
        input=values(payload),
        first_run_id=RUN_ID,
        original_run_id=RUN_ID,
        **more,
    )


def values(value: object) -> Payloads:
    return to_payloads(value, "value")


class History:
    """`add` events one after another, `turn` for those that frame a turn; a second passes with each turn."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.now = START

    @property
    def last(self) -> int:
        return len(self.events)

    def add(self, *attributes: e.AnyAttributes) -> History:
        for one in attributes:
            self.events.append(Event(self.last + 1, self.now, one))
        return self

    def prepare(self, *incoming: e.AnyAttributes) -> History:
        """What comes in, and the beginning of the turn that sees it."""
        self.now += SECOND
        self.add(*incoming, e.WorkflowTaskScheduled(task_queue="default"))
        return self.add(e.WorkflowTaskStarted(scheduled_event_id=self.last))

    def turn(self, *incoming: e.AnyAttributes) -> History:
        """The same, and that it was completed; the events of its commands are to be added."""
        self.prepare(*incoming)
        return self.add(e.WorkflowTaskCompleted(scheduled_event_id=self.last - 1, started_event_id=self.last))

    def failed_turn(self, *incoming: e.AnyAttributes) -> History:
        self.prepare(*incoming)
        return self.add(
            e.WorkflowTaskFailed(scheduled_event_id=self.last - 1, started_event_id=self.last, cause="turn_failed")
        )
