"""What a history consists of: events with the names, numbers and field meanings of Temporal's public API (RPLY-05,
RPLY-06, DESIGN section 12), and those of steps, whose numbers start at 1,001.

Only `core/` makes events. Ids count from 1 in each run and have no gaps; times are microseconds and never go back.
Event ids in attributes point backwards to the event that began something. Payloads are opaque. An event that a command
of the workflow's code caused names, in `completed_event_id`, the WorkflowTaskCompleted of its turn.
"""

from __future__ import annotations

import msgspec

from perdure.core.child_events import (
    ActivityTaskCanceled,
    ActivityTaskCancelRequested,
    ActivityTaskCompleted,
    ActivityTaskFailed,
    ActivityTaskScheduled,
    ActivityTaskStarted,
    ActivityTaskTimedOut,
    ChildWorkflowExecutionCanceled,
    ChildWorkflowExecutionCompleted,
    ChildWorkflowExecutionFailed,
    ChildWorkflowExecutionStarted,
    ChildWorkflowExecutionTerminated,
    ChildWorkflowExecutionTimedOut,
    ExternalWorkflowExecutionCancelRequested,
    ExternalWorkflowExecutionSignaled,
    RequestCancelExternalWorkflowExecutionFailed,
    RequestCancelExternalWorkflowExecutionInitiated,
    SignalExternalWorkflowExecutionFailed,
    SignalExternalWorkflowExecutionInitiated,
    StartChildWorkflowExecutionFailed,
    StartChildWorkflowExecutionInitiated,
    StepCompleted,
    StepFailed,
    StepStarted,
    TimerCanceled,
    TimerFired,
    TimerStarted,
)
from perdure.core.event_types import Attributes, EventType, event_name
from perdure.core.group_events import GroupCancelRequested, GroupCompleted, GroupFailed, GroupStarted
from perdure.core.run_events import (
    MarkerRecorded,
    UpsertWorkflowSearchAttributes,
    WorkflowExecutionCanceled,
    WorkflowExecutionCancelRequested,
    WorkflowExecutionCompleted,
    WorkflowExecutionContinuedAsNew,
    WorkflowExecutionFailed,
    WorkflowExecutionSignaled,
    WorkflowExecutionStarted,
    WorkflowExecutionTerminated,
    WorkflowExecutionTimedOut,
    WorkflowExecutionUpdateAccepted,
    WorkflowExecutionUpdateCompleted,
    WorkflowPropertiesModified,
    WorkflowTaskCompleted,
    WorkflowTaskFailed,
    WorkflowTaskScheduled,
    WorkflowTaskStarted,
    WorkflowTaskTimedOut,
)

__all__ = [
    "ActivityTaskCancelRequested",
    "ActivityTaskCanceled",
    "ActivityTaskCompleted",
    "ActivityTaskFailed",
    "ActivityTaskScheduled",
    "ActivityTaskStarted",
    "ActivityTaskTimedOut",
    "AnyAttributes",
    "Attributes",
    "ChildWorkflowExecutionCanceled",
    "ChildWorkflowExecutionCompleted",
    "ChildWorkflowExecutionFailed",
    "ChildWorkflowExecutionStarted",
    "ChildWorkflowExecutionTerminated",
    "ChildWorkflowExecutionTimedOut",
    "Event",
    "EventType",
    "ExternalWorkflowExecutionCancelRequested",
    "ExternalWorkflowExecutionSignaled",
    "GroupCancelRequested",
    "GroupCompleted",
    "GroupFailed",
    "GroupStarted",
    "MarkerRecorded",
    "RequestCancelExternalWorkflowExecutionFailed",
    "RequestCancelExternalWorkflowExecutionInitiated",
    "SignalExternalWorkflowExecutionFailed",
    "SignalExternalWorkflowExecutionInitiated",
    "StartChildWorkflowExecutionFailed",
    "StartChildWorkflowExecutionInitiated",
    "StepCompleted",
    "StepFailed",
    "StepStarted",
    "TimerCanceled",
    "TimerFired",
    "TimerStarted",
    "UpsertWorkflowSearchAttributes",
    "WorkflowExecutionCancelRequested",
    "WorkflowExecutionCanceled",
    "WorkflowExecutionCompleted",
    "WorkflowExecutionContinuedAsNew",
    "WorkflowExecutionFailed",
    "WorkflowExecutionSignaled",
    "WorkflowExecutionStarted",
    "WorkflowExecutionTerminated",
    "WorkflowExecutionTimedOut",
    "WorkflowExecutionUpdateAccepted",
    "WorkflowExecutionUpdateCompleted",
    "WorkflowPropertiesModified",
    "WorkflowTaskCompleted",
    "WorkflowTaskFailed",
    "WorkflowTaskScheduled",
    "WorkflowTaskStarted",
    "WorkflowTaskTimedOut",
    "event_name",
    "pack_events",
    "unpack_events",
]

AnyAttributes = (
    WorkflowExecutionStarted
    | WorkflowExecutionCompleted
    | WorkflowExecutionFailed
    | WorkflowExecutionTimedOut
    | WorkflowTaskScheduled
    | WorkflowTaskStarted
    | WorkflowTaskCompleted
    | WorkflowTaskTimedOut
    | WorkflowTaskFailed
    | ActivityTaskScheduled
    | ActivityTaskStarted
    | ActivityTaskCompleted
    | ActivityTaskFailed
    | ActivityTaskTimedOut
    | ActivityTaskCancelRequested
    | ActivityTaskCanceled
    | TimerStarted
    | TimerFired
    | TimerCanceled
    | WorkflowExecutionCancelRequested
    | WorkflowExecutionCanceled
    | RequestCancelExternalWorkflowExecutionInitiated
    | RequestCancelExternalWorkflowExecutionFailed
    | ExternalWorkflowExecutionCancelRequested
    | MarkerRecorded
    | WorkflowExecutionSignaled
    | WorkflowExecutionTerminated
    | WorkflowExecutionContinuedAsNew
    | StartChildWorkflowExecutionInitiated
    | StartChildWorkflowExecutionFailed
    | ChildWorkflowExecutionStarted
    | ChildWorkflowExecutionCompleted
    | ChildWorkflowExecutionFailed
    | ChildWorkflowExecutionCanceled
    | ChildWorkflowExecutionTimedOut
    | ChildWorkflowExecutionTerminated
    | SignalExternalWorkflowExecutionInitiated
    | SignalExternalWorkflowExecutionFailed
    | ExternalWorkflowExecutionSignaled
    | UpsertWorkflowSearchAttributes
    | WorkflowExecutionUpdateAccepted
    | WorkflowExecutionUpdateCompleted
    | WorkflowPropertiesModified
    | StepStarted
    | StepCompleted
    | StepFailed
    | GroupStarted
    | GroupCompleted
    | GroupFailed
    | GroupCancelRequested
)


class Event(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One event. `type` is that of its attributes."""

    id: int
    time: int  #: microseconds
    attributes: AnyAttributes

    @property
    def type(self) -> EventType:
        return self.attributes.event_type


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Event]).decode


def pack_events(events: list[Event]) -> bytes:
    """MessagePack of consecutive events: what a row of the history holds, and a page of it on the wire."""
    return _encode(events)


def unpack_events(page: bytes) -> list[Event]:
    """The events that `pack_events` wrote."""
    return _decode(page)
