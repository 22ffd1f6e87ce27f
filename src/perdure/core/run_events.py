"""Attributes of the events of a run itself: its life, its turns, messages and updates. Meanings are in events.py."""

from __future__ import annotations

from typing import Any

from perdure.core.event_types import Attributes
from perdure.core.event_types import EventType as _T
from perdure.core.model import Failure, Payloads, RetryPolicy


# ------------------------------------------------------------------------------------------------------- the run
class WorkflowExecutionStarted(Attributes, tag=1, frozen=True):
    """Always event 1. Durations are seconds."""

    event_type = _T.WORKFLOW_EXECUTION_STARTED
    workflow_type: str
    workflow_id: str
    task_queue: str
    input: Payloads = ()
    execution_timeout: float | None = None
    run_timeout: float | None = None
    turn_timeout: float | None = None
    retry: RetryPolicy | None = None
    attempt: int = 1
    cron: str = ""
    start_delay: float | None = None  #: seconds until its first turn
    first_run_id: bytes = b""
    original_run_id: bytes = b""
    continued_run_id: bytes = b""  #: the run that this one goes on from
    initiator: str = ""  #: why there was one before: "workflow" (continue-as-new), "retry", "cron"
    last_result: Payloads = ()  #: of the last run that completed (cron)
    last_failure: Failure | None = None  #: of the run before (retry, cron)
    parent_namespace: str = ""
    parent_workflow_id: str = ""
    parent_run_id: bytes = b""
    parent_event_id: int = 0  #: StartChildWorkflowExecutionInitiated in the parent
    root_workflow_id: str = ""
    root_run_id: bytes = b""
    identity: str = ""
    request_id: str = ""
    header: dict[str, str] = {}
    memo: dict[str, Payloads] = {}
    search_attributes: dict[str, Any] = {}


class WorkflowExecutionCompleted(Attributes, tag=2, frozen=True):
    event_type = _T.WORKFLOW_EXECUTION_COMPLETED
    result: Payloads = ()
    completed_event_id: int = 0
    new_run_id: bytes = b""  #: the next run of a cron workflow


class WorkflowExecutionFailed(Attributes, tag=3, frozen=True):
    event_type = _T.WORKFLOW_EXECUTION_FAILED
    failure: Failure
    retry_state: str = ""
    completed_event_id: int = 0
    new_run_id: bytes = b""


class WorkflowExecutionTimedOut(Attributes, tag=4, frozen=True):
    event_type = _T.WORKFLOW_EXECUTION_TIMED_OUT
    retry_state: str = ""
    new_run_id: bytes = b""


class WorkflowExecutionCancelRequested(Attributes, tag=20, frozen=True):
    event_type = _T.WORKFLOW_EXECUTION_CANCEL_REQUESTED
    cause: str = ""
    identity: str = ""
    request_id: str = ""
    external_workflow_id: str = ""
    external_run_id: bytes = b""
    external_initiated_event_id: int = 0


class WorkflowExecutionCanceled(Attributes, tag=21, frozen=True):
    event_type = _T.WORKFLOW_EXECUTION_CANCELED
    details: Payloads = ()
    completed_event_id: int = 0


class WorkflowExecutionTerminated(Attributes, tag=27, frozen=True):
    event_type = _T.WORKFLOW_EXECUTION_TERMINATED
    reason: str = ""
    details: Payloads = ()
    identity: str = ""


class WorkflowExecutionContinuedAsNew(Attributes, tag=28, frozen=True):
    event_type = _T.WORKFLOW_EXECUTION_CONTINUED_AS_NEW
    new_run_id: bytes
    workflow_type: str
    task_queue: str
    input: Payloads = ()
    run_timeout: float | None = None
    initiator: str = "workflow"
    completed_event_id: int = 0


class WorkflowExecutionSignaled(Attributes, tag=26, frozen=True):
    event_type = _T.WORKFLOW_EXECUTION_SIGNALED
    signal_name: str
    input: Payloads = ()
    identity: str = ""
    header: dict[str, str] = {}
    request_id: str = ""
    external_workflow_id: str = ""
    external_run_id: bytes = b""
    external_initiated_event_id: int = 0


class UpsertWorkflowSearchAttributes(Attributes, tag=40, frozen=True):
    event_type = _T.UPSERT_WORKFLOW_SEARCH_ATTRIBUTES
    search_attributes: dict[str, Any]
    completed_event_id: int = 0


class WorkflowPropertiesModified(Attributes, tag=46, frozen=True):
    event_type = _T.WORKFLOW_PROPERTIES_MODIFIED
    memo: dict[str, Payloads]
    completed_event_id: int = 0


class MarkerRecorded(Attributes, tag=25, frozen=True):
    """A value or a decision of the code: "version" (patches), "side_effect", and those of applications."""

    event_type = _T.MARKER_RECORDED
    marker_name: str
    details: dict[str, Payloads] = {}
    completed_event_id: int = 0


# ------------------------------------------------------------------------------------------------------- turns
class WorkflowTaskScheduled(Attributes, tag=5, frozen=True):
    event_type = _T.WORKFLOW_TASK_SCHEDULED
    task_queue: str
    start_to_close: float | None = None
    attempt: int = 1


class WorkflowTaskStarted(Attributes, tag=6, frozen=True):
    """Its time is what `workflow.now()` answers in this turn (RPLY-11)."""

    event_type = _T.WORKFLOW_TASK_STARTED
    scheduled_event_id: int
    identity: str = ""
    history_bytes: int = 0


class WorkflowTaskCompleted(Attributes, tag=7, frozen=True):
    event_type = _T.WORKFLOW_TASK_COMPLETED
    scheduled_event_id: int
    started_event_id: int
    identity: str = ""
    build: str = ""


class WorkflowTaskTimedOut(Attributes, tag=8, frozen=True):
    event_type = _T.WORKFLOW_TASK_TIMED_OUT
    scheduled_event_id: int
    started_event_id: int
    timeout_type: str = ""


class WorkflowTaskFailed(Attributes, tag=9, frozen=True):
    event_type = _T.WORKFLOW_TASK_FAILED
    scheduled_event_id: int
    started_event_id: int
    cause: str  #: the failure's code
    failure: Failure | None = None
    base_run_id: bytes = b""  #: of a reset: the run whose history this one begins with
    new_run_id: bytes = b""
    identity: str = ""


# ------------------------------------------------------------------------------------------------------- updates
class WorkflowExecutionUpdateAccepted(Attributes, tag=41, frozen=True):
    """`sequencing_event_id` is the WorkflowTaskStarted of the turn that saw it: its handler starts there on replay."""

    event_type = _T.WORKFLOW_EXECUTION_UPDATE_ACCEPTED
    update_id: str
    name: str
    task_id: bytes = b""  #: of the row that keeps the answer
    input: Payloads = ()
    header: dict[str, str] = {}
    identity: str = ""
    sequencing_event_id: int = 0


class WorkflowExecutionUpdateCompleted(Attributes, tag=43, frozen=True):
    event_type = _T.WORKFLOW_EXECUTION_UPDATE_COMPLETED
    update_id: str
    accepted_event_id: int
    result: Payloads = ()
    failure: Failure | None = None
