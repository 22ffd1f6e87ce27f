"""What the REST interface takes and shows of workflows. Values are plain JSON here, as in schema.py."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

import msgspec

from perdure.api.schema import JobProgress, RetryRequest, failure_document, json_payload, value
from perdure.core import history_json
from perdure.core import workflow_messages as w
from perdure.core.durations import Duration
from perdure.core.errors import InvalidArgument
from perdure.core.events import Event

_NULL = msgspec.Raw(b"null")


class SignalPart(msgspec.Struct, forbid_unknown_fields=True):
    """A signal that goes with a start: to the open run, or to the new one from its beginning."""

    name: str
    input: Any = None
    headers: dict[str, str] = {}


class UpdatePart(msgspec.Struct, forbid_unknown_fields=True):
    """An update that goes with a start, in one transaction: to the open run, or to the new one. Its answer is that of
    an update with the same `update_id`, which the answer to the start names."""

    name: str
    input: Any = None
    headers: dict[str, str] = {}
    update_id: str | None = None


class WorkflowRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A run to start. `workflow_type` and `type` are the same field; without `workflow_id` it gets a random one. Of one
    id at most one run is open: `id_conflict` says what happens while it is ("fail", "use_existing",
    "terminate_existing"), `id_reuse` once it has closed ("allow_duplicate", "allow_duplicate_failed_only",
    "reject_duplicate"). `request_id`, or the header Idempotency-Key, makes a repeated request one. Durations are
    seconds or text such as "90s"; `input` has 256 KiB of JSON at most."""

    workflow_type: str | None = None
    type: str | None = None
    workflow_id: str | None = None
    input: Any = None
    queue: str = "default"
    request_id: str | None = None
    id_reuse: str = "allow_duplicate"
    id_conflict: str = "fail"
    start_delay: Duration | None = None
    execution_timeout: Duration | None = None
    run_timeout: Duration | None = None
    retry: RetryRequest | None = None
    cron: str = ""
    priority: int = 3
    fairness_key: str = ""
    headers: dict[str, str] = {}
    memo: dict[str, Any] = {}
    search_attributes: dict[str, Any] = {}
    signal: SignalPart | None = None
    update: UpdatePart | None = None


class InputOnly(msgspec.Struct):
    """The same body once more, for the input as it was written."""

    input: msgspec.Raw = _NULL


class InputsOnly(msgspec.Struct):
    input: msgspec.Raw = _NULL
    signal: InputOnly | None = None
    update: InputOnly | None = None
    memo: dict[str, msgspec.Raw] = {}


class SignalRequest(msgspec.Struct, forbid_unknown_fields=True):
    """`request_id`, or the header Idempotency-Key, makes a repeated request one signal. Without `run_id` the current
    run is meant."""

    name: str
    input: Any = None
    headers: dict[str, str] = {}
    run_id: str | None = None
    request_id: str | None = None


class QueryRequest(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    input: Any = None
    run_id: str | None = None
    wait: Duration = 10.0


class UpdateRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The same `update_id` is the same update, however often it is sent; without one it is a new one. The answer is
    held back for `wait`, until the update is completed or, if `stage` says so, accepted."""

    name: str
    input: Any = None
    headers: dict[str, str] = {}
    run_id: str | None = None
    update_id: str | None = None
    wait: Duration = 25.0
    stage: str = "completed"


class EndRequest(msgspec.Struct, forbid_unknown_fields=True):
    """`reason` is for people."""

    reason: str = ""
    run_id: str | None = None


class PauseRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Without `run_id` the current run is meant."""

    run_id: str | None = None


class ResetRequest(msgspec.Struct, forbid_unknown_fields=True):
    """From where the run begins again: behind the event `event_id`, or before the last step of the name `step`. Give
    one of them. `reason` is for people. `request_id`, or the header Idempotency-Key, makes a repeated request one
    reset."""

    event_id: int | None = None
    step: str | None = None
    reason: str = ""
    run_id: str | None = None
    request_id: str | None = None


class ResolveRequest(msgspec.Struct, forbid_unknown_fields=True):
    """`note` says what people have done about the run."""

    note: str
    run_id: str | None = None


class ActivityRequest(msgspec.Struct, forbid_unknown_fields=True):
    """How an activity ended: with a `result`, or with an `error` in words; then it is tried again as its policy
    says, unless `retryable` is false."""

    result: Any = None
    error: str | None = None
    retryable: bool = True
    run_id: str | None = None


class ResultOnly(msgspec.Struct):
    result: msgspec.Raw = _NULL


# ----------------------------------------------------------------------------------------------------------- answers
class WorkflowLinks(msgspec.Struct):
    """Paths on this server. Those that do something are for a POST."""

    result: str
    history: str
    signal: str
    query: str
    update: str
    cancel: str
    terminate: str
    pause: str
    resume: str
    reset: str
    resolve: str
    itself: str = msgspec.field(name="self")


class StartedWorkflow(msgspec.Struct):
    """`started`: this request started it; else a run of this id was open. `update_id` is that of the update which went
    with the start."""

    workflow_id: str
    run_id: str
    started: bool
    links: WorkflowLinks
    update_id: str | None = None


class RunDocument(msgspec.Struct):
    """The run that a request was about, and its state where that is known."""

    workflow_id: str
    run_id: str
    state: str


class QueryDocument(msgspec.Struct):
    result: Any


class UpdateDocument(msgspec.Struct):
    """`stage` is "admitted", "accepted" or "completed"; then there is a result, or a failure (of code "update_rejected"
    when it was refused)."""

    workflow_id: str
    run_id: str
    update_id: str
    stage: str
    result: Any
    failure: dict[str, Any] | None


class ActivityDocument(msgspec.Struct):
    """An activity that is not over."""

    activity_id: str
    type: str
    state: str
    attempt: int
    scheduled_event_id: int
    queue: str
    worker: str | None
    next_attempt_at: datetime | None
    progress: JobProgress | None
    failure: dict[str, Any] | None


class TimerDocument(msgspec.Struct):
    timer_id: str
    started_event_id: int
    fires_at: datetime


class ChildDocument(msgspec.Struct):
    workflow_id: str
    run_id: str
    type: str
    initiated_event_id: int


class GroupDocument(msgspec.Struct):
    """Calls of one task that the code waits for together: of `count` calls `ended` have ended, `failed` of these
    without success, and `in_flight` are queued or run."""

    group_id: str
    type: str
    queue: str
    started_event_id: int
    count: int
    ended: int
    failed: int
    in_flight: int


class ResolutionDocument(msgspec.Struct):
    """What people have done about a closed run."""

    note: str
    identity: str
    at: datetime


class WorkflowDocument(msgspec.Struct, kw_only=True):
    """A run. `status` is RUNNING, COMPLETED, FAILED, CANCELLED, TERMINATED, TIMED_OUT or CONTINUED_AS_NEW, `state` the
    finer state of its task; `waiting_for` says in words what an open run waits for. `stuck`: its turns fail, and
    `failure` says why. `history_warning` is empty, or says that the history comes near its bound. Lists leave out what
    is pending. `requires_intervention`: it has closed, some of its compensations failed or did not run, and there is no
    `resolution`; lists show that of such runs only."""

    workflow_id: str
    run_id: str
    type: str
    queue: str
    namespace: str
    status: str
    state: str
    started_at: datetime
    updated_at: datetime
    closed_at: datetime | None
    run_deadline: datetime | None
    history_length: int
    history_bytes: int
    attempt: int
    cron: str
    first_run_id: str
    previous_run_id: str
    next_run_id: str
    parent_workflow_id: str
    parent_run_id: str
    root_workflow_id: str
    waiting_for: str
    next_event_at: datetime | None
    stuck: bool
    failed_turns: int
    worker: str | None
    paused: bool
    cancel_requested_at: datetime | None
    search_attributes: dict[str, Any]
    pending_signals: int
    history_warning: str
    memo: dict[str, Any]
    pending_activities: list[ActivityDocument]
    pending_timers: list[TimerDocument]
    pending_children: list[ChildDocument]
    pending_groups: list[GroupDocument]
    failure: dict[str, Any] | None
    resolution: ResolutionDocument | None
    requires_intervention: bool
    result: Any
    links: WorkflowLinks


class WorkflowList(msgspec.Struct):
    """A page; `next` is the `cursor` of the following one, null on the last."""

    workflows: list[WorkflowDocument]
    next: str | None


class HistoryDocument(msgspec.Struct):
    """Events of a run: id, time, type and attributes. A payload is its JSON value, or {"metadata", "data" (base64)}.
    `next` is the `cursor` for what follows; of an open run it may be asked with `wait` for what will happen. `closed`:
    the run has closed."""

    workflow_id: str
    run_id: str
    events: list[dict[str, Any]]
    closed: bool
    next: str | None


# ------------------------------------------------------------------------------------------------------- conversions
def new_workflow(request: WorkflowRequest, written: InputsOnly, workflow_id: str, key: str | None) -> w.StartWorkflow:
    """The body of the wire protocol for a REST request."""
    type_ = request.type if request.workflow_type is None else request.workflow_type
    if type_ is None or (request.type is not None and request.type != type_):
        raise InvalidArgument("give workflow_type (or type), once", field="workflow_type", kind="null")
    signal = None
    if request.signal is not None and written.signal is not None:
        signal = w.Signal(
            request.signal.name, json_payload(written.signal.input, "signal.input"), request.signal.headers
        )
    update = None
    if request.update is not None and written.update is not None:
        update = w.Update(
            str(uuid.uuid4()) if request.update.update_id is None else request.update.update_id,
            request.update.name,
            json_payload(written.update.input, "update.input"),
            request.update.headers,
        )
    return w.StartWorkflow(
        type=type_,
        workflow_id=workflow_id,
        input=json_payload(written.input, "input"),
        queue=request.queue,
        request_id=request_id(request.request_id, key),
        id_reuse=request.id_reuse,
        id_conflict=request.id_conflict,
        start_delay=request.start_delay,
        execution_timeout=request.execution_timeout,
        run_timeout=request.run_timeout,
        retry=request.retry,
        cron=request.cron,
        priority=request.priority,
        fairness_key=request.fairness_key,
        headers=request.headers,
        memo={name: json_payload(raw, f"memo.{name}") for name, raw in written.memo.items()},
        search_attributes=request.search_attributes,
        signal=signal,
        update=update,
    )


def request_id(given: str | None, key: str | None) -> str:
    """From the body or from the header Idempotency-Key, which must not say two things."""
    if given is not None and key is not None and given != key:
        raise InvalidArgument("the header Idempotency-Key says something else", field="request_id", kind="str")
    return given or key or ""


def reset(request: ResetRequest, workflow_id: str, key: str | None) -> w.ResetWorkflow:
    return w.ResetWorkflow(
        workflow_id,
        request.run_id,
        request.event_id,
        request.step,
        request.reason,
        request_id(request.request_id, key),
    )


def started(reply: w.StartReply, links: WorkflowLinks, update: w.Update | None = None) -> StartedWorkflow:
    update_id = None if update is None else update.update_id
    return StartedWorkflow(reply.workflow_id, reply.run_id, reply.started, links, update_id)


def run(reply: w.RunReply) -> RunDocument:
    return RunDocument(reply.workflow_id, reply.run_id, reply.state)


def update(reply: w.UpdateReply) -> UpdateDocument:
    return UpdateDocument(
        reply.workflow_id,
        reply.run_id,
        reply.update_id,
        reply.stage,
        value(reply.result),
        failure_document(reply.failure),
    )


def document(view: w.WorkflowView, links: WorkflowLinks) -> WorkflowDocument:
    same = {name: getattr(view, name) for name in _SAME}
    found = view.resolution
    return WorkflowDocument(
        **same,
        memo={name: value(payloads) for name, payloads in view.memo.items()},
        pending_activities=[_activity(item) for item in view.pending_activities],
        pending_timers=[
            TimerDocument(item.timer_id, item.started_event_id, item.fires_at) for item in view.pending_timers
        ],
        pending_children=[
            ChildDocument(item.workflow_id, item.run_id, item.type, item.initiated_event_id)
            for item in view.pending_children
        ],
        pending_groups=[
            GroupDocument(**{name: getattr(item, name) for name in GroupDocument.__struct_fields__})
            for item in view.pending_groups
        ],
        failure=failure_document(view.failure),
        resolution=None if found is None else ResolutionDocument(found.note, found.identity, found.at),
        result=None if view.result is None else value(view.result),
        links=links,
    )


_SHAPED = {
    "memo", "pending_activities", "pending_timers", "pending_children", "pending_groups", "failure", "resolution",
    "result", "links",
}  # fmt: skip
_SAME = tuple(name for name in WorkflowDocument.__struct_fields__ if name not in _SHAPED)


def _activity(item: w.PendingActivity) -> ActivityDocument:
    found = item.progress
    return ActivityDocument(
        activity_id=item.activity_id,
        type=item.type,
        state=item.state,
        attempt=item.attempt,
        scheduled_event_id=item.scheduled_event_id,
        queue=item.queue,
        worker=item.worker,
        next_attempt_at=item.next_attempt_at,
        progress=None if found is None else JobProgress(found.done, found.total, found.message),
        failure=failure_document(item.failure),
    )


def history(workflow_id: str, run_id: str, events: list[Event], closed: bool, following: str | None) -> HistoryDocument:
    return HistoryDocument(workflow_id, run_id, history_json.to_json(events), closed, following)
