"""Attributes of the events of what a run waits for: activities, timers, steps, children and other workflows. Meanings
are in events.py."""

from __future__ import annotations

from typing import Any

from perdure.core.event_types import Attributes
from perdure.core.event_types import EventType as _T
from perdure.core.model import Failure, Payloads, RetryPolicy


# -------------------------------------------------------------------------------------------------- activities, timers
class ActivityTaskScheduled(Attributes, tag=10, frozen=True):
    event_type = _T.ACTIVITY_TASK_SCHEDULED
    activity_id: str
    activity_type: str
    task_queue: str
    task_id: bytes = b""  #: of the row that runs it
    input: Payloads = ()
    header: dict[str, str] = {}
    schedule_to_start: float | None = None
    start_to_close: float | None = None
    schedule_to_close: float | None = None
    heartbeat: float | None = None
    retry: RetryPolicy | None = None
    priority: int = 3
    concurrency_key: str = ""
    weight: int = 1
    completed_event_id: int = 0


class ActivityTaskStarted(Attributes, tag=11, frozen=True):
    """Written together with the event that closes it; attempts are rows of their own."""

    event_type = _T.ACTIVITY_TASK_STARTED
    scheduled_event_id: int
    identity: str = ""
    attempt: int = 1
    last_failure: Failure | None = None


class ActivityTaskCompleted(Attributes, tag=12, frozen=True):
    event_type = _T.ACTIVITY_TASK_COMPLETED
    scheduled_event_id: int
    started_event_id: int = 0
    result: Payloads = ()
    identity: str = ""


class ActivityTaskFailed(Attributes, tag=13, frozen=True):
    event_type = _T.ACTIVITY_TASK_FAILED
    scheduled_event_id: int
    failure: Failure
    started_event_id: int = 0
    identity: str = ""
    retry_state: str = ""


class ActivityTaskTimedOut(Attributes, tag=14, frozen=True):
    event_type = _T.ACTIVITY_TASK_TIMED_OUT
    scheduled_event_id: int
    failure: Failure
    started_event_id: int = 0
    retry_state: str = ""


class ActivityTaskCancelRequested(Attributes, tag=15, frozen=True):
    event_type = _T.ACTIVITY_TASK_CANCEL_REQUESTED
    scheduled_event_id: int
    completed_event_id: int = 0


class ActivityTaskCanceled(Attributes, tag=16, frozen=True):
    event_type = _T.ACTIVITY_TASK_CANCELED
    scheduled_event_id: int
    started_event_id: int = 0
    details: Payloads = ()
    identity: str = ""


class TimerStarted(Attributes, tag=17, frozen=True):
    event_type = _T.TIMER_STARTED
    timer_id: str
    start_to_fire: float  #: seconds
    task_id: bytes = b""  #: of its row
    completed_event_id: int = 0


class TimerFired(Attributes, tag=18, frozen=True):
    event_type = _T.TIMER_FIRED
    timer_id: str
    started_event_id: int


class TimerCanceled(Attributes, tag=19, frozen=True):
    event_type = _T.TIMER_CANCELED
    timer_id: str
    started_event_id: int
    completed_event_id: int = 0


# ------------------------------------------------------------------------------------------------------- steps
class StepStarted(Attributes, tag=1001, frozen=True):
    """The claim of a step, written before it runs (STEP-11). `attempt` above 1: it may have run before (STEP-12).
    `step_id` counts the steps of a run; the claims of later attempts name the same one."""

    event_type = _T.STEP_STARTED
    step_id: int
    name: str
    attempt: int = 1
    identity: str = ""
    completed_event_id: int = 0


class StepCompleted(Attributes, tag=1002, frozen=True):
    event_type = _T.STEP_COMPLETED
    step_id: int
    result: Payloads = ()
    held: bool = False  #: the code saw it with the next turn, and not at once


class StepFailed(Attributes, tag=1003, frozen=True):
    """An attempt failed. With `retry_in` another one follows after so many seconds, else the step has failed."""

    event_type = _T.STEP_FAILED
    step_id: int
    failure: Failure
    attempt: int = 1
    retry_in: float | None = None
    held: bool = False


# ------------------------------------------------------------------------------------- child and other workflows
class StartChildWorkflowExecutionInitiated(Attributes, tag=29, frozen=True):
    event_type = _T.START_CHILD_WORKFLOW_EXECUTION_INITIATED
    workflow_type: str
    workflow_id: str
    task_queue: str
    input: Payloads = ()
    header: dict[str, str] = {}
    execution_timeout: float | None = None
    run_timeout: float | None = None
    retry: RetryPolicy | None = None
    cron: str = ""
    parent_close_policy: str = "terminate"
    id_reuse: str = "allow_duplicate"
    memo: dict[str, Payloads] = {}
    search_attributes: dict[str, Any] = {}
    completed_event_id: int = 0


class StartChildWorkflowExecutionFailed(Attributes, tag=30, frozen=True):
    event_type = _T.START_CHILD_WORKFLOW_EXECUTION_FAILED
    workflow_id: str
    workflow_type: str
    initiated_event_id: int
    cause: str = "workflow_already_exists"


class ChildWorkflowExecutionStarted(Attributes, tag=31, frozen=True):
    event_type = _T.CHILD_WORKFLOW_EXECUTION_STARTED
    workflow_id: str
    run_id: bytes
    workflow_type: str
    initiated_event_id: int


class ChildWorkflowExecutionCompleted(Attributes, tag=32, frozen=True):
    event_type = _T.CHILD_WORKFLOW_EXECUTION_COMPLETED
    workflow_id: str
    run_id: bytes
    initiated_event_id: int
    result: Payloads = ()


class ChildWorkflowExecutionFailed(Attributes, tag=33, frozen=True):
    event_type = _T.CHILD_WORKFLOW_EXECUTION_FAILED
    workflow_id: str
    run_id: bytes
    initiated_event_id: int
    failure: Failure
    retry_state: str = ""


class ChildWorkflowExecutionCanceled(Attributes, tag=34, frozen=True):
    event_type = _T.CHILD_WORKFLOW_EXECUTION_CANCELED
    workflow_id: str
    run_id: bytes
    initiated_event_id: int
    details: Payloads = ()


class ChildWorkflowExecutionTimedOut(Attributes, tag=35, frozen=True):
    event_type = _T.CHILD_WORKFLOW_EXECUTION_TIMED_OUT
    workflow_id: str
    run_id: bytes
    initiated_event_id: int


class ChildWorkflowExecutionTerminated(Attributes, tag=36, frozen=True):
    event_type = _T.CHILD_WORKFLOW_EXECUTION_TERMINATED
    workflow_id: str
    run_id: bytes
    initiated_event_id: int


class SignalExternalWorkflowExecutionInitiated(Attributes, tag=37, frozen=True):
    event_type = _T.SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED
    workflow_id: str
    signal_name: str
    run_id: bytes = b""  #: empty: the current run
    input: Payloads = ()
    header: dict[str, str] = {}
    completed_event_id: int = 0


class SignalExternalWorkflowExecutionFailed(Attributes, tag=38, frozen=True):
    event_type = _T.SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_FAILED
    workflow_id: str
    initiated_event_id: int
    cause: str = "not_found"


class ExternalWorkflowExecutionSignaled(Attributes, tag=39, frozen=True):
    event_type = _T.EXTERNAL_WORKFLOW_EXECUTION_SIGNALED
    workflow_id: str
    initiated_event_id: int


class RequestCancelExternalWorkflowExecutionInitiated(Attributes, tag=22, frozen=True):
    event_type = _T.REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED
    workflow_id: str
    run_id: bytes = b""
    reason: str = ""
    completed_event_id: int = 0


class RequestCancelExternalWorkflowExecutionFailed(Attributes, tag=23, frozen=True):
    event_type = _T.REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION_FAILED
    workflow_id: str
    initiated_event_id: int
    cause: str = "not_found"


class ExternalWorkflowExecutionCancelRequested(Attributes, tag=24, frozen=True):
    event_type = _T.EXTERNAL_WORKFLOW_EXECUTION_CANCEL_REQUESTED
    workflow_id: str
    initiated_event_id: int
