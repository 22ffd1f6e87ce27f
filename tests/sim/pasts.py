"""What a history must be, event by event: written once more, from what events mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perdure.core import events as e
from perdure.core.events import Event
from perdure.core.model import Payloads
from perdure.sdk.converter import from_payloads

Fail = Callable[[str, str], None]

CLOSING = (
    e.WorkflowExecutionCompleted, e.WorkflowExecutionFailed, e.WorkflowExecutionTimedOut, e.WorkflowExecutionCanceled,
    e.WorkflowExecutionTerminated, e.WorkflowExecutionContinuedAsNew,
)  # fmt: skip
BY_CODE = (e.WorkflowExecutionCompleted, e.WorkflowExecutionFailed, e.WorkflowExecutionContinuedAsNew)
"""How only the code of a run closes it."""
BEGIN: dict[type, str] = {
    e.ActivityTaskScheduled: "activity", e.TimerStarted: "timer", e.StartChildWorkflowExecutionInitiated: "child",
    e.SignalExternalWorkflowExecutionInitiated: "message",
    e.RequestCancelExternalWorkflowExecutionInitiated: "message", e.GroupStarted: "group",
}  # fmt: skip
END: dict[type, tuple[str, str]] = {
    **dict.fromkeys(
        (e.ActivityTaskCompleted, e.ActivityTaskFailed, e.ActivityTaskTimedOut, e.ActivityTaskCanceled),
        ("activity", "scheduled_event_id"),
    ),
    e.TimerFired: ("timer", "started_event_id"),
    **dict.fromkeys((e.GroupCompleted, e.GroupFailed), ("group", "started_event_id")),
    **dict.fromkeys(
        (
            e.ChildWorkflowExecutionCompleted, e.ChildWorkflowExecutionFailed, e.ChildWorkflowExecutionCanceled,
            e.ChildWorkflowExecutionTimedOut, e.ChildWorkflowExecutionTerminated, e.StartChildWorkflowExecutionFailed,
        ),
        ("child", "initiated_event_id"),
    ),
    **dict.fromkeys(
        (
            e.SignalExternalWorkflowExecutionFailed, e.ExternalWorkflowExecutionSignaled,
            e.RequestCancelExternalWorkflowExecutionFailed, e.ExternalWorkflowExecutionCancelRequested,
        ),
        ("message", "initiated_event_id"),
    ),
}  # fmt: skip
"""The last events of what was begun: which kind, and the field that names the event that began it."""


def value_of(payloads: Payloads) -> Any:
    return from_payloads(payloads, "value")


def ended_by(attributes: Any) -> int | None:
    """The event that began what ends so."""
    end = END.get(type(attributes))
    return None if end is None else getattr(attributes, end[1])


class Past:
    """The history of one run. `open` is what it has begun and not ended, by event id."""

    def __init__(self, fail: Fail) -> None:
        self._fail = fail
        self.events: list[Event] = []
        self.open: dict[int, str] = {}
        self.began: dict[int, str] = {}
        self.canceled: set[int] = set()  #: timers and groups
        self.ended: set[int] = set()
        self.steps: dict[int, int] = {}  #: the last attempt that was claimed
        self.failed_steps: dict[int, int] = {}  #: the last attempt that failed and is followed by another
        self.done_steps: set[int] = set()
        self.signals: list[str] = []
        self.waited: list[str] = []
        self.updates: dict[int, bool] = {}  #: accepted -> answered
        self.closed: Any = None  #: attributes of the last event

    def grow(self, first: int, events: list[Event]) -> None:
        """One more page."""
        last = len(self.events)
        if first != last + 1 or [event.id for event in events] != [*range(first, first + len(events))]:
            self._fail("history", f"events {[event.id for event in events]} follow event {last}")
        for event in events:
            if self.closed is not None:
                self._fail("history", f"{_shown(event)} follows {type(self.closed).__name__}")
            if self.events and event.time < self.events[-1].time:
                self._fail("history", f"the time of {_shown(event)} is before that of event {event.id - 1}")
            self._frame(event)
            self._see(event)
            self.events.append(event)

    def _frame(self, event: Event) -> None:
        """A turn is scheduled, started, and completed or failed, in this order."""
        before = type(self.events[-1].attributes) if self.events else None
        wanted = {e.WorkflowTaskStarted: e.WorkflowTaskScheduled, e.WorkflowTaskCompleted: e.WorkflowTaskStarted}
        kind = type(event.attributes)
        if (kind is e.WorkflowExecutionStarted) != (event.id == 1):
            self._fail("history", f"{_shown(event)} is event {event.id}")
        if kind in wanted and before is not wanted[kind]:
            self._fail("history", f"{_shown(event)} follows {before}")
        if before is e.WorkflowTaskScheduled and kind is not e.WorkflowTaskStarted:
            self._fail("history", f"{_shown(event)} follows {before}")
        for name in ("completed_event_id", "scheduled_event_id", "started_event_id"):
            self._names(event, name)

    def _names(self, event: Event, name: str) -> None:
        number = getattr(event.attributes, name, None)
        if not number:
            return
        kinds: tuple[type, ...] = ()
        if name == "completed_event_id":
            kinds = (e.WorkflowTaskCompleted,)
        elif type(event.attributes) in (e.WorkflowTaskCompleted, e.WorkflowTaskFailed):
            kinds = (e.WorkflowTaskScheduled if name == "scheduled_event_id" else e.WorkflowTaskStarted,)
        if kinds and not (number <= len(self.events) and isinstance(self.events[number - 1].attributes, kinds)):
            self._fail("history", f"{name} of {_shown(event)} is {number}")

    def _see(self, event: Event) -> None:
        attributes: Any = event.attributes
        kind = type(attributes)
        if kind in BEGIN:
            self.open[event.id] = self.began[event.id] = BEGIN[kind]
        elif kind in END:
            self._end(event, END[kind][0], ended_by(attributes) or 0)
        elif kind in (e.TimerCanceled, e.GroupCancelRequested):
            self.open.pop(attributes.started_event_id, None)
            self.canceled.add(attributes.started_event_id)
        elif kind is e.StepStarted:
            if attributes.step_id in self.done_steps:
                self._fail("steps", f"{_shown(event)} of a step that has ended")
            if attributes.attempt != self.steps.get(attributes.step_id, 0) + 1:
                self._fail("steps", f"{_shown(event)}: the attempt before was {self.steps.get(attributes.step_id)}")
            self.steps[attributes.step_id] = attributes.attempt
        elif kind is e.StepFailed and attributes.retry_in is not None:
            if self.failed_steps.get(attributes.step_id, 0) >= self.steps.get(attributes.step_id, 0):
                self._fail("steps", f"{_shown(event)} is the second end of attempt {attributes.attempt}")
            self.failed_steps[attributes.step_id] = attributes.attempt
        elif kind is e.StepCompleted or kind is e.StepFailed:
            if attributes.step_id in self.done_steps or attributes.step_id not in self.steps:
                self._fail("steps", f"{_shown(event)} of a step that does not run")
            self.done_steps.add(attributes.step_id)
        elif kind is e.WorkflowExecutionSignaled:
            (self.signals if attributes.signal_name == "s" else self.waited).append(value_of(attributes.input))
        elif kind is e.WorkflowExecutionUpdateAccepted:
            self.updates[event.id] = False
        elif kind is e.WorkflowExecutionUpdateCompleted:
            if self.updates.get(attributes.accepted_event_id, True):
                self._fail("updates", f"{_shown(event)} answers what does not wait for an answer")
            self.updates[attributes.accepted_event_id] = True
        elif kind in CLOSING:
            self.closed = attributes

    def _end(self, event: Event, kind: str, began: int) -> None:
        if self.began.get(began) != kind:
            self._fail("children", f"{_shown(event)} ends event {began}, which began {self.began.get(began)}")
        if began in self.ended:
            self._fail("children", f"{_shown(event)} is the second end of event {began}")
        self.ended.add(began)
        self.open.pop(began, None)

    @property
    def has_begun(self) -> bool:
        """Whether the code ran, and what it did was kept."""
        kinds = [type(event.attributes) for event in self.events]
        return any(
            kind is e.WorkflowTaskCompleted and kinds[index : index + 1] != [e.WorkflowTaskFailed]
            for index, kind in enumerate(kinds, 1)
        )

    @property
    def input(self) -> dict[str, Any]:
        begun: Any = self.events[0].attributes
        found: dict[str, Any] = value_of(begun.input)
        return found


def _shown(event: Event) -> str:
    return f"event {event.id} {event.attributes!r}"[:300]
