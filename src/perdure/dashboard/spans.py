"""What the code of a run began and how it ended, told from its events: activities, steps, timers, children and so on.

A span comes `after` those whose ends its code was shown last before it began it. Things that were begun together have
the same ones, so a history becomes a graph although nobody drew one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

import msgspec

from perdure.core.event_types import EventType as T
from perdure.core.events import Event, StepFailed, StepStarted
from perdure.core.model import Payloads

_BEGINS: dict[T, tuple[str, str]] = {
    T.ACTIVITY_TASK_SCHEDULED: ("activity", "activity_type"),
    T.TIMER_STARTED: ("timer", "timer_id"),
    T.START_CHILD_WORKFLOW_EXECUTION_INITIATED: ("child", "workflow_type"),
    T.GROUP_STARTED: ("group", "activity_type"),
    T.WORKFLOW_EXECUTION_UPDATE_ACCEPTED: ("update", "name"),
    T.SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED: ("message", "signal_name"),
    T.REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED: ("message", "workflow_id"),
}
"""Events that begin something: what it is, and the attribute that names it."""

_SCHEDULED, _STARTED, _INITIATED = "scheduled_event_id", "started_event_id", "initiated_event_id"
_ENDS: dict[T, tuple[str, str]] = {
    T.ACTIVITY_TASK_COMPLETED: (_SCHEDULED, "completed"),
    T.ACTIVITY_TASK_FAILED: (_SCHEDULED, "failed"),
    T.ACTIVITY_TASK_TIMED_OUT: (_SCHEDULED, "timed_out"),
    T.ACTIVITY_TASK_CANCELED: (_SCHEDULED, "canceled"),
    T.TIMER_FIRED: (_STARTED, "completed"),
    T.TIMER_CANCELED: (_STARTED, "canceled"),
    T.START_CHILD_WORKFLOW_EXECUTION_FAILED: (_INITIATED, "failed"),
    T.CHILD_WORKFLOW_EXECUTION_COMPLETED: (_INITIATED, "completed"),
    T.CHILD_WORKFLOW_EXECUTION_FAILED: (_INITIATED, "failed"),
    T.CHILD_WORKFLOW_EXECUTION_CANCELED: (_INITIATED, "canceled"),
    T.CHILD_WORKFLOW_EXECUTION_TIMED_OUT: (_INITIATED, "timed_out"),
    T.CHILD_WORKFLOW_EXECUTION_TERMINATED: (_INITIATED, "terminated"),
    T.GROUP_COMPLETED: (_STARTED, "completed"),
    T.GROUP_FAILED: (_STARTED, "failed"),
    T.GROUP_CANCEL_REQUESTED: (_STARTED, "canceled"),
    T.WORKFLOW_EXECUTION_UPDATE_COMPLETED: ("accepted_event_id", "completed"),
    T.EXTERNAL_WORKFLOW_EXECUTION_SIGNALED: (_INITIATED, "completed"),
    T.SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_FAILED: (_INITIATED, "failed"),
    T.EXTERNAL_WORKFLOW_EXECUTION_CANCEL_REQUESTED: (_INITIATED, "completed"),
    T.REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION_FAILED: (_INITIATED, "failed"),
}
"""Events that end something: the attribute that names the event that began it, and how it ended."""


class Span(msgspec.Struct, gc=False):
    """Something that code began. `begun` and `ended` are events, times are microseconds; `after` are the `begun` of
    others."""

    kind: str
    name: str
    begun: int
    started_at: int
    after: tuple[int, ...] = ()
    ended: int | None = None
    ended_at: int | None = None
    outcome: str = "running"
    attempt: int = 1
    worker: str = ""
    why: str = ""  #: the message of its failure
    result: Payloads | None = None
    child: tuple[str, str] | None = None  #: workflow id and run id


class Story:
    """The spans of the events that it was told, in order."""

    def __init__(self) -> None:
        self.spans: dict[int, Span] = {}  #: by `begun`, in this order
        self._steps: dict[int, int] = {}  #: step id -> begun
        self._ended: list[int] = []  #: whose ends the code has not acted upon yet
        self._causes: tuple[int, ...] = ()

    def tell(self, events: Iterable[Event]) -> None:
        """The next events."""
        for event in events:
            self._take(event)

    def _take(self, event: Event) -> None:
        attributes: Any = event.attributes
        if (begins := _BEGINS.get(event.type)) is not None:
            kind, name = begins
            self._begin(Span(kind, getattr(attributes, name), event.id, event.time))
        elif (ends := _ENDS.get(event.type)) is not None:
            field, outcome = ends
            failure = getattr(attributes, "failure", None)
            self._end(event, getattr(attributes, field), "failed" if failure else outcome, failure)
        else:
            self._take_other(event, attributes)

    def _take_other(self, event: Event, attributes: Any) -> None:
        match event.type:
            case T.STEP_STARTED:
                self._step(event, attributes)
            case T.STEP_COMPLETED:
                self._end(event, self._steps.get(attributes.step_id, 0), "completed", None)
            case T.STEP_FAILED:
                self._step_failed(event, attributes)
            case T.ACTIVITY_TASK_STARTED if attributes.scheduled_event_id in self.spans:
                span = self.spans[attributes.scheduled_event_id]
                span.worker, span.attempt = attributes.identity, attributes.attempt
            case T.CHILD_WORKFLOW_EXECUTION_STARTED if attributes.initiated_event_id in self.spans:
                run_id = str(UUID(bytes=attributes.run_id))
                self.spans[attributes.initiated_event_id].child = (attributes.workflow_id, run_id)
            case T.WORKFLOW_EXECUTION_SIGNALED:
                self.spans[event.id] = Span("signal", attributes.signal_name, event.id, event.time)
                self._end(event, event.id, "completed", None)

    def _begin(self, span: Span) -> None:
        if self._ended:
            self._causes, self._ended = tuple(self._ended), []
        span.after = self._causes
        self.spans[span.begun] = span

    def _end(self, event: Event, begun: int, outcome: str, failure: Any) -> None:
        span = self.spans.get(begun)
        if span is None:
            return
        span.ended, span.ended_at, span.outcome = event.id, event.time, outcome
        span.why = "" if failure is None else failure.message
        span.result = getattr(event.attributes, "result", None)
        self._ended.append(begun)

    def _step(self, event: Event, attributes: StepStarted) -> None:
        begun = self._steps.get(attributes.step_id)
        if begun is None:
            self._steps[attributes.step_id] = event.id
            self._begin(Span("step", attributes.name, event.id, event.time))
            begun = event.id
        span = self.spans[begun]
        span.attempt, span.worker = attributes.attempt, attributes.identity

    def _step_failed(self, event: Event, attributes: StepFailed) -> None:
        begun = self._steps.get(attributes.step_id, 0)
        if attributes.retry_in is None:
            self._end(event, begun, "failed", attributes.failure)
        elif begun in self.spans:
            self.spans[begun].why = attributes.failure.message
