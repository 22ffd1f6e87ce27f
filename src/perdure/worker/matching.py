"""Which event a command of the code becomes, and how the two are recognized as the same (RPLY-03).

The kind must be the same, and so must what names the thing: an activity's type and id, a timer's id, a step's name and
number. The rest (time-outs, input) may change with the code; the history has the last word on it.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from perdure.core import events as e
from perdure.core import turn_commands as c
from perdure.core.events import Event, event_name
from perdure.core.turn_commands import TurnCommand
from perdure.sdk.workflow_errors import NonDeterminismError

IDENTITIES: dict[type[Any], tuple[type[Any], tuple[str, ...]]] = {
    c.ScheduleActivity: (e.ActivityTaskScheduled, ("activity_type", "activity_id")),
    c.CancelActivity: (e.ActivityTaskCancelRequested, ("scheduled_event_id",)),
    c.StartGroup: (e.GroupStarted, ("group_id", "activity_type", "count")),
    c.CancelGroup: (e.GroupCancelRequested, ("started_event_id",)),
    c.StartTimer: (e.TimerStarted, ("timer_id",)),
    c.CancelTimer: (e.TimerCanceled, ("timer_id", "started_event_id")),
    c.StartStep: (e.StepStarted, ("name", "step_id")),
    c.RecordMarker: (e.MarkerRecorded, ("marker_name",)),
    c.StartChildWorkflow: (e.StartChildWorkflowExecutionInitiated, ("workflow_type", "workflow_id")),
    c.SignalExternalWorkflow: (e.SignalExternalWorkflowExecutionInitiated, ("workflow_id", "signal_name")),
    c.CancelExternalWorkflow: (e.RequestCancelExternalWorkflowExecutionInitiated, ("workflow_id",)),
    c.UpsertSearchAttributes: (e.UpsertWorkflowSearchAttributes, ()),
    c.ModifyProperties: (e.WorkflowPropertiesModified, ()),
    c.AcceptUpdate: (e.WorkflowExecutionUpdateAccepted, ("name", "update_id")),
    c.CompleteUpdate: (e.WorkflowExecutionUpdateCompleted, ("update_id",)),
    c.CompleteWorkflow: (e.WorkflowExecutionCompleted, ()),
    c.FailWorkflow: (e.WorkflowExecutionFailed, ()),
    c.CancelWorkflow: (e.WorkflowExecutionCanceled, ()),
    c.ContinueAsNew: (e.WorkflowExecutionContinuedAsNew, ()),
}
"""Event and identity of each command that the code issues."""

COMMAND_EVENTS = frozenset(event for event, _ in IDENTITIES.values())

_EVENT_IDENTITIES = dict(IDENTITIES.values())
_OURS = str(Path(__file__).parent.parent)
_ASYNCIO = str(Path(asyncio.__file__).parent)


def matches(command: TurnCommand, attributes: Any) -> bool:
    kind, identity = IDENTITIES[type(command)]
    if type(attributes) is not kind:
        return False
    return all(getattr(command, field) == getattr(attributes, field) for field in identity)


def unexpected(command: TurnCommand, event: Event | None, next_id: int) -> NonDeterminismError:
    """The code issues `command` where the history has `event` (None: nothing more)."""
    file, line = place()
    kind, identity = IDENTITIES[type(command)]
    found = _describe(kind, command, identity)
    if event is None:
        return NonDeterminismError(next_id, "nothing more before the next turn", found, file, line)
    return NonDeterminismError(event.id, describe(event), found, file, line)


def missing(event: Event) -> NonDeterminismError:
    """The history has a command event, and the code waits without having issued it."""
    return NonDeterminismError(event.id, describe(event), "that the code waits for something else, or has ended")


def describe(event: Event) -> str:
    """An event in words: ActivityTaskScheduled (activity_type 'charge', activity_id '1')."""
    return _describe(type(event.attributes), event.attributes, _EVENT_IDENTITIES.get(type(event.attributes), ()))


def _describe(kind: type[Any], holder: object, identity: tuple[str, ...]) -> str:
    named = ", ".join(f"{field} {getattr(holder, field)!r}" for field in identity)
    return event_name(kind.event_type) + (f" ({named})" if named else "")


def place() -> tuple[str, int]:
    """The innermost line of the application's code that is running now."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((_OURS, _ASYNCIO, "<")):
            return file, frame.f_lineno
        frame = frame.f_back
    return "", 0
