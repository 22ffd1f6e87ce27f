"""What the REST interface takes and shows. Payloads are plain JSON values here; elsewhere they are opaque bytes."""

from __future__ import annotations

import base64
import re
from datetime import datetime
from typing import Any

import msgspec

from perdure.core import messages as m
from perdure.core.durations import Duration
from perdure.core.errors import InvalidArgument, Problem
from perdure.core.model import Failure, Payload, Payloads, RetryPolicy
from perdure.core.states import State

JSON_PLAIN = {"encoding": "json/plain"}
MAX_DEPTH = 500
"""Levels of nesting of a payload: what Python workers read, whatever they are doing."""

_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


class RetryRequest(RetryPolicy, forbid_unknown_fields=True, frozen=True):
    """A RetryPolicy whose fields are surely spelled right; a stored one may hold fields of a newer version."""


class TaskRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A task to enqueue. `task_type` and `type` are the same field; so are `idempotency_key` and the header
    Idempotency-Key. Durations (`delay`, `timeouts`) are seconds or text such as "90s", "1h30m", "PT5M"; `delay` and
    `run_at` (with its offset) exclude each other. Names have 1 to 255 bytes of printable text; `payload` has 256 KiB of
    JSON at most, `headers` 16 KiB; `priority` goes from 1, first, to 5."""

    task_type: str | None = None
    type: str | None = None
    payload: Any = None
    queue: str = "default"
    app: str = "default"
    delay: Duration | None = None
    run_at: datetime | None = None
    idempotency_key: str | None = None
    priority: int = 3
    fairness_key: str = ""
    concurrency_key: str = ""
    weight: int = 1
    singleton: str = ""
    throttle: m.Throttle | None = None
    debounce: str = ""
    retry: RetryRequest | None = None
    timeouts: m.TimeoutOptions | None = None
    headers: dict[str, str] = {}


class BatchRequest(msgspec.Struct, forbid_unknown_fields=True):
    """1 to 1,000 tasks; each is answered by itself."""

    tasks: list[TaskRequest]


class PayloadOnly(msgspec.Struct):
    """The same body once more, for the payload as it was written: reading it as numbers would round some of them."""

    payload: msgspec.Raw = msgspec.Raw(b"null")


class PayloadsOnly(msgspec.Struct):
    tasks: list[PayloadOnly]


class CancelRequest(msgspec.Struct, forbid_unknown_fields=True):
    reason: str = ""


class JobError(msgspec.Struct):
    """Why a job failed (JOB-05); `code` is stable."""

    code: str
    message: str
    retryable: bool


class JobProgress(msgspec.Struct):
    done: float = 0
    total: float | None = None
    message: str = ""


class JobLinks(msgspec.Struct):
    """Paths on this server. Cancel by a POST."""

    cancel: str


class TaskLinks(JobLinks):
    """Paths on this server. Cancel and retry by a POST."""

    retry: str
    job: str
    itself: str = msgspec.field(name="self")


class Job(msgspec.Struct, kw_only=True):
    """The job resource (JOB-02): one view for everything that runs."""

    id: str
    state: str
    progress: JobProgress
    created_at: datetime
    updated_at: datetime
    result_url: str | None = None
    error: JobError | None = None
    links: JobLinks


class AcceptedTask(Job, kw_only=True):
    """The answer to an enqueue: the job, and its id by the name that tasks use. `duplicate`: an earlier request with
    the same key had made it, and this is that one as it is now."""

    task_id: str
    duplicate: bool = False


class BatchOutcome(msgspec.Struct, omit_defaults=True):
    task_id: str | None = None
    duplicate: bool = False
    error: Problem | None = None


class BatchReply(msgspec.Struct):
    tasks: list[BatchOutcome]


class TaskTimeouts(msgspec.Struct):
    """In seconds; null is no limit. `schedule_to_start`: until the first start; `start_to_close`: one attempt;
    `schedule_to_close`: all of it; `heartbeat`: a silence of the worker; `lease`: how soon a worker that vanished is
    noticed."""

    schedule_to_start: float | None
    start_to_close: float | None
    schedule_to_close: float | None
    heartbeat: float | None
    lease: float


class TaskRetry(msgspec.Struct):
    """Waits between attempts, in seconds: the n-th is random, up to min(cap, base * factor ** (n - 1)), or the n-th of
    `delays`. After a failure of one of `fatal_types` no attempt follows."""

    max_attempts: int
    base: float
    factor: float
    cap: float
    fatal_types: list[str]
    delays: list[float]


class TaskDocument(msgspec.Struct, kw_only=True):
    """A task with all that its owner may know. `timeouts` and `retry` are what holds for it, defaults included. `state`
    and `job_state` are two views of one state; `attempts` has the running one and the one that ended the task too;
    `waiting_for` says in words why an open task does not run, and `next_event_at` when something happens to it by
    itself. `payload` and `result` are JSON values, or {"encoding", "data" (base64)} where the stored encoding is not
    JSON; lists leave both, and the attempts, out."""

    task_id: str
    namespace: str
    app: str
    type: str
    queue: str
    state: str
    job_state: str
    priority: int
    attempt: int
    max_attempts: int
    lost_deliveries: int
    created_at: datetime
    updated_at: datetime
    run_at: datetime | None
    started_at: datetime | None
    closed_at: datetime | None
    expires_at: datetime | None
    deadline: datetime | None
    timeouts: TaskTimeouts
    retry: TaskRetry
    worker: str | None
    idempotency_key: str | None
    fairness_key: str
    concurrency_key: str
    weight: int
    identity: str
    retry_of: str | None
    retried_by: str | None  #: the task that repeats it; only where one task is asked for
    failure_group: str | None
    progress: JobProgress | None
    error: JobError | None  #: why it failed, in short
    failure: dict[str, Any] | None  #: the same with type, stack and causes; of an open task the last attempt's
    attempts: list[dict[str, Any]]
    waiting_for: str
    next_event_at: datetime | None
    cancel_requested_at: datetime | None
    cancel_reason: str | None
    links: TaskLinks
    payload: Any = None
    result: Any = None


class TaskList(msgspec.Struct):
    """A page; `next` is the `cursor` of the following one, null on the last."""

    tasks: list[TaskDocument]
    next: str | None


class QueueDocument(msgspec.Struct):
    """What a queue holds, about. Each count stops at 10,000; those that did are named in `at_least`. A queue of nothing
    but delayed tasks that are due after 10,000 others may be missing."""

    name: str
    ready: int  #: wait for a free worker
    running: int  #: leased to workers
    delayed: int  #: wait for their start time
    retrying: int  #: wait out their back-off
    oldest_ready_seconds: float | None  #: of the first ones in each priority, how long the oldest waits
    workers: int  #: registered worker processes that poll it
    at_least: list[str]
    owner: str  #: who looks after it and its dead letters
    alert_depth: int | None  #: more ready tasks than this are too many


class QueueList(msgspec.Struct):
    """By name."""

    queues: list[QueueDocument]


class RunningTaskDocument(msgspec.Struct):
    """A task that a worker holds: a job, an activity, or a turn of a workflow; the last two have the run. `heard_at`:
    the last sign of life for it."""

    task_id: str
    kind: str
    type: str
    queue: str
    attempt: int
    started_at: datetime | None
    heard_at: datetime | None
    workflow_id: str
    run_id: str


class WorkerDocument(msgspec.Struct):
    """A registered worker process. `seen_at`: when it last connected."""

    identity: str
    queues: list[str]
    slots: int
    build: str
    started_at: datetime
    seen_at: datetime
    ending: bool  #: it is gone and its leases are being ended
    running: list[RunningTaskDocument]  #: as many as were asked for
    more_running: bool  #: than these


class WorkerList(msgspec.Struct):
    """Oldest first."""

    workers: list[WorkerDocument]


class Health(msgspec.Struct):
    status: str


def new_task(request: TaskRequest, written: PayloadOnly, header_key: str | None = None) -> m.NewTask:
    """The body of the wire protocol for a REST request."""
    type_ = request.type if request.task_type is None else request.task_type
    if type_ is None or (request.type is not None and request.type != type_):
        raise InvalidArgument("give task_type (or type), once", field="task_type", kind="null")
    key = request.idempotency_key
    if key is not None and header_key is not None and key != header_key:
        raise InvalidArgument("the header Idempotency-Key says something else", field="idempotency_key", kind="str")
    return m.NewTask(
        type=type_,
        payload=json_payload(written.payload, "payload"),
        queue=request.queue,
        app=request.app,
        idempotency_key=header_key if key is None else key,
        delay=request.delay,
        run_at=request.run_at,
        priority=request.priority,
        fairness_key=request.fairness_key,
        concurrency_key=request.concurrency_key,
        weight=request.weight,
        singleton=request.singleton,
        throttle=request.throttle,
        debounce=request.debounce,
        retry=request.retry,
        timeouts=request.timeouts,
        headers=request.headers,
    )


def json_payload(written: msgspec.Raw, field: str) -> Payloads:
    """A value of a request as it was written, but for white space, which makes no other body of it."""
    data = msgspec.json.format(bytes(written), indent=-1)
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH and (depth := _depth(data)) > MAX_DEPTH:
        raise InvalidArgument(f"{field} is nested {depth} levels deep", field=field, limit=f"{MAX_DEPTH} levels")
    return (Payload(JSON_PLAIN, data),)


def _depth(data: bytes) -> int:
    """Levels of nesting of JSON."""
    level = deepest = 0
    for token in _BRACKETS.finditer(data):
        if token[0] in b"[{":
            level += 1
            deepest = max(deepest, level)
        elif token[0] in b"]}":
            level -= 1
    return deepest


def job(view: m.TaskView, result_url: str | None = None) -> Job:
    """`result_url` is shown once the job SUCCEEDED."""
    return Job(**_job(view), result_url=result_url if view.job_state == "SUCCEEDED" else None)


def accepted(view: m.TaskView, duplicate: bool) -> AcceptedTask:
    return AcceptedTask(task_id=view.task_id, duplicate=duplicate, **_job(view))


def queues(reply: m.QueuesReply) -> QueueList:
    return QueueList([QueueDocument(**_fields(queue)) for queue in reply.queues])


def workers(reply: m.WorkersReply) -> WorkerList:
    return msgspec.convert(reply, WorkerList, from_attributes=True)


def _fields(view: msgspec.Struct) -> dict[str, Any]:
    return {name: getattr(view, name) for name in view.__struct_fields__}


def _job(view: m.TaskView) -> dict[str, Any]:
    return {
        "id": view.task_id,
        "state": view.job_state,
        "progress": _progress(view) or JobProgress(),
        "created_at": view.created_at,
        "updated_at": view.updated_at,
        "error": _job_error(view),
        "links": JobLinks(cancel=f"/v1/jobs/{view.task_id}/cancel"),
    }


def _job_error(view: m.TaskView) -> JobError | None:
    """A failed job may be run again by its owner unless it said that this is of no use."""
    if view.job_state != "FAILED":
        return None
    if view.failure is not None:
        return JobError(view.failure.code, view.failure.message, view.failure.retryable)
    return JobError(view.state.lower(), f"the task {State[view.state].name}", True)


def _progress(view: m.TaskView) -> JobProgress | None:
    found = view.progress
    return None if found is None else JobProgress(found.done, found.total, found.message)


def document(view: m.TaskView) -> TaskDocument:
    fields = {name: getattr(view, name) for name in _SAME}
    return TaskDocument(
        **fields,
        timeouts=TaskTimeouts(**_fields(view.timeouts)),
        retry=TaskRetry(**_fields(view.retry)),
        progress=_progress(view),
        error=_job_error(view),
        failure=failure_document(view.failure),
        attempts=[
            {**msgspec.structs.asdict(attempt), "failure": failure_document(attempt.failure)}
            for attempt in view.attempts
        ],
        links=_links(view.task_id),
        payload=None if view.payload is None else value(view.payload),
        result=None if view.result is None else value(view.result),
    )


def _links(task_id: str) -> TaskLinks:
    path = f"/v1/tasks/{task_id}"
    return TaskLinks(cancel=f"{path}/cancel", retry=f"{path}/retry", job=f"/v1/jobs/{task_id}", itself=path)


_SHAPED = {"timeouts", "retry", "progress", "error", "failure", "attempts", "links", "payload", "result"}
_SAME = tuple(name for name in TaskDocument.__struct_fields__ if name not in _SHAPED)


def failure_document(failure: Failure | None) -> dict[str, Any] | None:
    """With details as values."""
    if failure is None:
        return None
    shown = msgspec.structs.asdict(failure)
    shown["details"] = value(failure.details)
    shown["cause"] = failure_document(failure.cause)
    return shown


def value(payloads: Payloads) -> Any:
    """One payload as its value, none as null, several as a list."""
    values = [_one(payload) for payload in payloads]
    return values[0] if len(values) == 1 else values or None


def _one(payload: Payload) -> Any:
    encoding = payload.metadata.get("encoding", "")
    if encoding == "json/plain":
        try:
            msgspec.json.decode(payload.data, type=msgspec.Raw)
            return msgspec.Raw(payload.data)
        except (msgspec.DecodeError, RecursionError):
            encoding = "json/broken"
    return {"encoding": encoding, "data": base64.b64encode(payload.data).decode()}
