"""What the code of a workflow asks for in a turn: commands with the meanings of Temporal's (RPLY-04), and steps.

Each command becomes exactly one event, in order, and so gets its event id: the first one after the turn's
WorkflowTaskCompleted, each other one the next (RejectUpdate alone becomes none). Whoever replays a history finds in it
the events of these commands and compares. `task_id` is the id, made by the worker, of the row that does the work:
cancels name it again.
"""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.core.model import Failure, Payloads, RetryPolicy


class _Command(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True, kw_only=True, tag_field="c", gc=False):
    """Base of all. Durations are seconds."""


class ScheduleActivity(_Command, tag="activity"):
    """Run a task elsewhere. `activity_id` is unique in the run."""

    task_id: bytes
    activity_id: str
    activity_type: str
    task_queue: str
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


class CancelActivity(_Command, tag="cancel_activity"):
    task_id: bytes
    scheduled_event_id: int


class StartGroup(_Command, tag="group"):
    """Run one task elsewhere, once for each of `inputs`, of which there is at least one. `group_id` is unique in the
    run; `window` calls are in flight at most, 0 is no bound."""

    task_id: bytes
    group_id: str
    activity_type: str
    task_queue: str
    inputs: list[Payloads]
    schedule_to_start: float | None = None
    start_to_close: float | None = None
    schedule_to_close: float | None = None
    heartbeat: float | None = None
    retry: RetryPolicy | None = None
    priority: int = 3
    weight: int = 1
    policy: str = "fail_fast"  #: or "collect"
    window: int = 0

    @property
    def count(self) -> int:
        return len(self.inputs)


class CancelGroup(_Command, tag="cancel_group"):
    task_id: bytes
    started_event_id: int


class StartTimer(_Command, tag="timer"):
    task_id: bytes
    timer_id: str
    start_to_fire: float


class CancelTimer(_Command, tag="cancel_timer"):
    task_id: bytes
    timer_id: str
    started_event_id: int


class StartStep(_Command, tag="step"):
    """Claim a step. It runs once this is committed (STEP-11)."""

    step_id: int
    name: str
    attempt: int = 1


class CompleteStep(_Command, tag="step_done"):
    """With `held` the code has not gone on from it: messages wait, which it is to see as well, so the turn ends."""

    step_id: int
    result: Payloads = ()
    held: bool = False


class FailStep(_Command, tag="step_failed"):
    """With `retry_in` another attempt follows."""

    step_id: int
    failure: Failure
    attempt: int = 1
    retry_in: float | None = None
    held: bool = False


VERSION_MARKER = "version"
"""Name of the markers of `ctx.version` and `ctx.patched`; their details have the payloads "id" and "version"."""


class RecordMarker(_Command, tag="marker"):
    marker_name: str
    details: dict[str, Payloads] = {}


class StartChildWorkflow(_Command, tag="child"):
    """`task_id` becomes its run id."""

    task_id: bytes
    workflow_type: str
    workflow_id: str
    task_queue: str
    input: Payloads = ()
    header: dict[str, str] = {}
    execution_timeout: float | None = None
    run_timeout: float | None = None
    retry: RetryPolicy | None = None
    cron: str = ""
    parent_close_policy: str = "terminate"  #: or "request_cancel", "abandon"
    id_reuse: str = "allow_duplicate"
    memo: dict[str, Payloads] = {}
    search_attributes: dict[str, Any] = {}


class SignalExternalWorkflow(_Command, tag="signal"):
    task_id: bytes
    workflow_id: str
    signal_name: str
    run_id: bytes = b""
    input: Payloads = ()
    header: dict[str, str] = {}


class CancelExternalWorkflow(_Command, tag="cancel_external"):
    """Also how children are canceled."""

    task_id: bytes
    workflow_id: str
    run_id: bytes = b""
    reason: str = ""


class UpsertSearchAttributes(_Command, tag="search_attributes"):
    search_attributes: dict[str, Any]


class ModifyProperties(_Command, tag="memo"):
    memo: dict[str, Payloads]


class AcceptUpdate(_Command, tag="accept"):
    """The validator let it pass. The request goes into the history, so that a replay finds it."""

    update_id: str
    task_id: bytes
    name: str
    input: Payloads = ()
    header: dict[str, str] = {}
    identity: str = ""
    sequencing_event_id: int = 0


class RejectUpdate(_Command, tag="reject"):
    update_id: str
    task_id: bytes
    failure: Failure


class CompleteUpdate(_Command, tag="answer"):
    update_id: str
    task_id: bytes
    accepted_event_id: int
    result: Payloads = ()
    failure: Failure | None = None


class CompleteWorkflow(_Command, tag="complete"):
    result: Payloads = ()


class FailWorkflow(_Command, tag="fail"):
    failure: Failure


class CancelWorkflow(_Command, tag="canceled"):
    details: Payloads = ()


class KeptSignal(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A signal that the code has not asked for yet."""

    name: str
    input: Payloads


class ContinueAsNew(_Command, tag="continue"):
    """Close this run and start the next one with fresh history, and with these signals before all that has come since.
    None keeps what this run has."""

    task_id: bytes  #: the id of the new run
    workflow_type: str = ""
    task_queue: str = ""
    input: Payloads = ()
    run_timeout: float | None = None
    memo: dict[str, Payloads] | None = None
    search_attributes: dict[str, Any] | None = None
    signals: tuple[KeptSignal, ...] = ()


TurnCommand = (
    ScheduleActivity
    | CancelActivity
    | StartGroup
    | CancelGroup
    | StartTimer
    | CancelTimer
    | StartStep
    | CompleteStep
    | FailStep
    | RecordMarker
    | StartChildWorkflow
    | SignalExternalWorkflow
    | CancelExternalWorkflow
    | UpsertSearchAttributes
    | ModifyProperties
    | AcceptUpdate
    | RejectUpdate
    | CompleteUpdate
    | CompleteWorkflow
    | FailWorkflow
    | CancelWorkflow
    | ContinueAsNew
)

CLOSING = (CompleteWorkflow, FailWorkflow, CancelWorkflow, ContinueAsNew)
"""Those that close the run; at most one of them, as the last command of a turn."""
