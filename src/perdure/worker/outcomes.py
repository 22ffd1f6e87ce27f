"""Which event ends what, and how: event type to the field that names what began, and the outcome."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perdure.core import events as e
from perdure.core.events import Event
from perdure.core.model import Failure
from perdure.sdk.waiting import Outcome


def _completed(event: Event) -> Outcome:
    return Outcome(status="completed", result=event.attributes.result, event=event)  # type: ignore[union-attr]


def _failed(event: Event) -> Outcome:
    return Outcome(status="failed", failure=event.attributes.failure, event=event)  # type: ignore[union-attr]


def _timed_out(event: Event) -> Outcome:
    return Outcome(status="timed_out", failure=event.attributes.failure, event=event)  # type: ignore[union-attr]


def _done(event: Event) -> Outcome:
    return Outcome(status="completed", event=event)


def _because(status: str, code: str, message: str) -> Callable[[Event], Outcome]:
    failure = Failure(message=message, code=code, retryable=False)
    return lambda event: Outcome(status=status, failure=failure, event=event)


def _refused(message: str) -> Callable[[Event], Outcome]:
    """The event's cause is the failure's code."""

    def outcome(event: Event) -> Outcome:
        cause: str = event.attributes.cause  # type: ignore[union-attr]
        failure = Failure(message=message, code=cause, retryable=False)
        return Outcome(status="failed", failure=failure, event=event)

    return outcome


_TIMED_OUT = _because("timed_out", "timed_out", "its time is over")
_CANCELED = _because("canceled", "canceled", "it was canceled")
_TERMINATED = _because("terminated", "terminated", "it was terminated")
_NOBODY = _refused("no open run has this workflow id")

OUTCOMES: dict[type[Any], tuple[str, Callable[[Event], Outcome]]] = {
    e.ActivityTaskCompleted: ("scheduled_event_id", _completed),
    e.ActivityTaskFailed: ("scheduled_event_id", _failed),
    e.ActivityTaskTimedOut: ("scheduled_event_id", _timed_out),
    e.ActivityTaskCanceled: ("scheduled_event_id", _CANCELED),
    e.GroupCompleted: ("started_event_id", _done),
    e.GroupFailed: ("started_event_id", _failed),
    e.TimerFired: ("started_event_id", _done),
    e.StartChildWorkflowExecutionFailed: ("initiated_event_id", _refused("it could not be started")),
    e.ChildWorkflowExecutionCompleted: ("initiated_event_id", _completed),
    e.ChildWorkflowExecutionFailed: ("initiated_event_id", _failed),
    e.ChildWorkflowExecutionCanceled: ("initiated_event_id", _CANCELED),
    e.ChildWorkflowExecutionTimedOut: ("initiated_event_id", _TIMED_OUT),
    e.ChildWorkflowExecutionTerminated: ("initiated_event_id", _TERMINATED),
    e.SignalExternalWorkflowExecutionFailed: ("initiated_event_id", _NOBODY),
    e.ExternalWorkflowExecutionSignaled: ("initiated_event_id", _done),
    e.RequestCancelExternalWorkflowExecutionFailed: ("initiated_event_id", _NOBODY),
    e.ExternalWorkflowExecutionCancelRequested: ("initiated_event_id", _done),
}
