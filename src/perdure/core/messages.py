"""What clients and workers ask a server and what it answers: the bodies of the wire protocol.

One vocabulary for all transports: MessagePack frames over the WebSocket, MessagePack or JSON over POST, and plain calls
when embedded. Ids are UUID text, leases opaque bytes (base64 in JSON), durations seconds or text (see durations.py),
times RFC 3339. Unknown fields are refused. Limits are in limits.py; which error a call raises is in client/base.py.
"""

from __future__ import annotations

from datetime import datetime

from perdure.core import doctor_messages as d
from perdure.core import event_messages as e
from perdure.core import failure_messages as f
from perdure.core import limit_messages as lm
from perdure.core import owners as o
from perdure.core import schedule_messages as s
from perdure.core import search_messages as sm
from perdure.core import signal_messages as g
from perdure.core import workflow_messages as w
from perdure.core.body import Body as Body  # part of this vocabulary
from perdure.core.durations import Duration
from perdure.core.errors import Problem
from perdure.core.model import (
    DEFAULT_RETRY,
    NO_TIMEOUTS,
    Failure,
    Payload,
    Payloads,
    Progress,
    RetryPolicy,
    Timeouts,
)
from perdure.core.timeout_options import TimeoutOptions as TimeoutOptions


# ---------------------------------------------------------------------------------------------------------- tasks
class Throttle(Body):
    """At most one task of this key in a period (0.001 s to 31 days)."""

    key: str
    period: Duration


TRACE_HEADERS = ("traceparent", "tracestate")
"""Headers that say of which trace a task is (W3C Trace Context). They are not part of what makes two tasks the same."""


class NewTask(Body):
    """One task to enqueue (TASK-05). `delay` and `run_at` exclude each other.

    `minted` is the id that the SDK made for the task (16 bytes, a UUIDv7) where no idempotency key is given: a request
    that is repeated names the same task, so it makes no second one (IDEM-05).

    `concurrency_key`, "name:value", counts against the limit of this name, `weight` is how many slots of every limit it
    takes while it runs, 1 to 1,000,000 (limit_rules.py).

    How often it is done: while a task of the same `singleton` is open, or one of the same `throttle` was made within
    the period, that one is the answer (`duplicate`). A task that has a `debounce`, and a delay, takes the place of the
    one before it that has not begun. These three and `idempotency_key` exclude each other.
    """

    type: str
    payload: tuple[Payload, ...] = ()
    queue: str = "default"
    app: str = "default"
    idempotency_key: str | None = None
    minted: bytes = b""
    delay: Duration | None = None
    run_at: datetime | None = None
    priority: int = 3
    fairness_key: str = ""
    concurrency_key: str = ""
    weight: int = 1
    singleton: str = ""
    throttle: Throttle | None = None
    debounce: str = ""
    retry: RetryPolicy | None = None
    timeouts: TimeoutOptions | None = None
    headers: dict[str, str] = {}


class Enqueue(Body):
    """1 to 1,000 tasks; each item is answered, and deduplicated, by itself (TASK-06, TASK-07). `wait` (seconds, at most
    25) holds the answer to a single task until that has closed."""

    tasks: list[NewTask]
    identity: str = ""
    wait: float = 0.0


class Enqueued(Body):
    """The outcome of one item: a task id (`duplicate` when an earlier request with the same key made it), or an
    error."""

    task_id: str = ""
    duplicate: bool = False
    error: Problem | None = None


class EnqueueReply(Body):
    tasks: list[Enqueued]
    closed: TaskView | None = None  #: the task as it closed within `wait`, without payload


class Get(Body):
    """A task by id; `wait` (seconds, at most 25) holds the answer until the task has closed (JOB-14)."""

    task_id: str
    wait: float = 0.0
    payload: bool = True  #: with payload; the result is always there


class Find(Body):
    """Tasks of a namespace, newest first. Filters are conjunctive; `query` (docs/search.md) is one more, and may say
    another order. `cursor` is the `next` of the page before."""

    state: str | None = None
    queue: str | None = None
    type: str | None = None
    since: datetime | None = None
    failure_group: str | None = None  #: dead letters of this group that nobody has retried
    limit: int = 50
    cursor: str | None = None
    query: str = ""


class AttemptView(Body):
    attempt: int
    outcome: str
    worker: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    failure: Failure | None = None


class TaskView(Body):
    """A task as its owner sees it (TASK-08); `state` in A's words, `job_state` in C's (X-06)."""

    task_id: str
    namespace: str
    app: str
    type: str
    queue: str
    state: str
    job_state: str
    priority: int
    attempt: int  #: attempts begun, the running one included
    max_attempts: int
    created_at: datetime
    updated_at: datetime
    lost_deliveries: int = 0
    run_at: datetime | None = None
    started_at: datetime | None = None
    closed_at: datetime | None = None
    expires_at: datetime | None = None
    deadline: datetime | None = None
    timeouts: Timeouts = NO_TIMEOUTS  #: those that hold for it, wherever they were said, `lease` always (B048)
    retry: RetryPolicy = DEFAULT_RETRY  #: the same
    worker: str | None = None
    idempotency_key: str | None = None
    fairness_key: str = ""
    concurrency_key: str = ""
    weight: int = 1
    identity: str = ""
    retry_of: str | None = None
    retried_by: str | None = None  #: the task that repeats it; only where one task is asked for
    failure_group: str | None = None  #: of a dead letter: those that failed alike have the same
    progress: Progress | None = None
    failure: Failure | None = None
    attempts: list[AttemptView] = []
    waiting_for: str = ""  #: why an open task is not running, in words
    next_event_at: datetime | None = None  #: when something happens to it by itself
    cancel_requested_at: datetime | None = None
    cancel_reason: str | None = None
    payload: Payloads | None = None
    result: Payloads | None = None


class TaskPage(Body):
    tasks: list[TaskView]
    next: str | None = None


class Cancel(Body):
    """Canceling twice is harmless, canceling a closed task answers its state (CANC-12)."""

    task_id: str
    reason: str = ""


class CancelReply(Body):
    task_id: str
    state: str
    job_state: str


class Retry(Body):
    """Run a task again: a RETRY_WAIT one now, a closed one as a new task linked to it (RETRY-08), with another
    `payload` if one is given."""

    task_id: str
    payload: tuple[Payload, ...] | None = None


class RetryReply(Body):
    task_id: str  #: the task that runs now: the same one, or the new one
    state: str


# ---------------------------------------------------------------------------------------------------------- workers
class OpenSession(Body):
    """The first call of a worker on each connection. `incarnation` is a random number of the process, `epoch` counts
    its connections; an epoch that is not higher than the one known is refused with Conflict. Leases go on over
    epochs."""

    incarnation: int
    epoch: int
    identity: str
    queues: list[str]
    slots: int
    build: str = ""
    limits: list[lm.LimitSpec] = []  #: that its code declares, at most 1,000; what an operator has set stays


class SessionReply(Body):
    heartbeat: float  #: seconds between heartbeats
    lease: float  #: seconds that a lease lives without one
    namespace: str = ""  #: for which the worker works


class Poll(Body):
    """Ask for at most `capacity` tasks of `queues`, in that order (WORK-09). Answers when there is one, or empty after
    `wait` seconds (at most 25). `poll` numbers the polls of an incarnation: the same number again answers the leases
    that the first answer carried and that were not acknowledged."""

    incarnation: int
    poll: int
    queues: list[str]
    capacity: int
    wait: float = 25.0
    turns: bool = False  #: it runs workflows too, and remembers those that it has worked on


class Delivery(Body):
    """A leased task. `attempt` counts from 1. `deadline` ends the attempt."""

    task_id: str
    lease: bytes
    type: str
    queue: str
    attempt: int
    max_attempts: int
    payload: Payloads = ()
    headers: dict[str, str] = {}
    checkpoint: Payloads | None = None
    progress: Progress | None = None
    start_to_close: float | None = None
    lease_seconds: float = 30.0  #: beat at least every third of it
    retry: RetryPolicy | None = None
    turn: w.Turn | None = None  #: of a workflow run: its code is to go on


class PollReply(Body):
    tasks: list[Delivery]


class Beat(Body):
    """A sign of life for one lease; the first one acknowledges its receipt. Progress and checkpoint ride along."""

    lease: bytes
    progress: Progress | None = None
    checkpoint: Payloads | None = None


class Heartbeat(Body):
    """All leases that an incarnation holds; only those named are extended (LEASE-07)."""

    incarnation: int
    beats: list[Beat]


class HeartbeatReply(Body):
    """An action a beat: "continue", "cancel" (end it soon) or "lost" (stop at once, commit nothing)."""

    actions: list[str]


class Completion(Body):
    """How an attempt ended: outcome "succeeded" (result), "failed" (failure, perhaps retry_after in seconds),
    "canceled" (only after a cancel was asked for), "released" (handed back; spends no attempt) or "deferred" (the lease
    has no end any more: somebody else will complete it)."""

    lease: bytes
    outcome: str
    result: Payloads = ()
    failure: Failure | None = None
    retry_after: float | None = None
    checkpoint: Payloads | None = None
    progress: Progress | None = None


class Complete(Body):
    completions: list[Completion]


class Completed(Body):
    """`state` is the state after the completion, also when it was recorded earlier; or the error, mostly LeaseLost."""

    state: str = ""
    error: Problem | None = None


class CompleteReply(Body):
    outcomes: list[Completed]


class Nudge(Body):
    """Held until some leases of an incarnation should be beaten at once, because their tasks are to be canceled, or
    turns should end soon, because messages have come; empty after `wait` seconds (at most 25). A hint that may come for
    nothing or not at all: the heartbeat tells."""

    incarnation: int
    wait: float = 25.0


class NudgeReply(Body):
    task_ids: list[str]


class CloseSession(Body):
    """A worker process is gone: "goodbye" after a drain, or "died", reported by its supervisor. Its leases end at
    once."""

    incarnation: int
    reason: str = "goodbye"


class Done(Body):
    """Nothing to say but that it is committed."""


# ----------------------------------------------------------------------------------------------- queues and workers
class ListQueues(Body):
    """The queues of a namespace that hold open tasks, that its workers poll, or that somebody looks after."""


class QueueView(Body):
    """What a queue holds, about: each count stops at 10,000, and those that did are named in `at_least`. A queue of
    nothing but delayed tasks that are due after 10,000 others may be missing."""

    name: str
    ready: int = 0  #: wait for a free worker
    running: int = 0  #: leased to workers
    delayed: int = 0  #: wait for their start time
    retrying: int = 0  #: wait out their back-off
    oldest_ready_seconds: float | None = None  #: of the first ones in each priority, how long the oldest waits
    workers: int = 0  #: registered worker processes that poll it
    at_least: list[str] = []  #: names of the counts above that are lower bounds
    owner: str = ""  #: who looks after it and its dead letters
    alert_depth: int | None = None  #: more ready tasks than this are too many


class QueuesReply(Body):
    queues: list[QueueView]  #: by name


class ListWorkers(Body):
    """The registered worker processes of a namespace, each with so many (0 to 100) of the tasks that it holds."""

    running: int = 0


class RunningTask(Body):
    """A task that a worker holds. `kind` is "job", "activity" or "workflow" (a turn of a run); `run_id` is the run of
    the last two. `heard_at` is the last sign of life for it; none: it has not been received yet."""

    task_id: str
    kind: str
    type: str
    queue: str
    attempt: int
    started_at: datetime | None = None
    heard_at: datetime | None = None
    workflow_id: str = ""
    run_id: str = ""


class WorkerView(Body):
    """A worker process. `seen_at` is when it last connected; `ending`: it is gone and its leases are being ended."""

    identity: str
    queues: list[str]
    slots: int
    build: str
    started_at: datetime
    seen_at: datetime
    ending: bool
    running: list[RunningTask] = []
    more_running: bool = False  #: than these


class WorkersReply(Body):
    workers: list[WorkerView]  #: oldest first


REFUSAL_HEADER = "perdure-refusal"
"""Why a WebSocket was refused, percent-encoded: clients do not show the body of that answer."""

OPS: dict[str, tuple[type[Body], type[Body]]] = {
    "enqueue": (Enqueue, EnqueueReply),
    "get": (Get, TaskView),
    "find": (Find, TaskPage),
    "cancel": (Cancel, CancelReply),
    "retry": (Retry, RetryReply),
    "open_session": (OpenSession, SessionReply),
    "poll": (Poll, PollReply),
    "heartbeat": (Heartbeat, HeartbeatReply),
    "complete": (Complete, CompleteReply),
    "nudge": (Nudge, NudgeReply),
    "close_session": (CloseSession, Done),
    "queues": (ListQueues, QueuesReply),
    "workers": (ListWorkers, WorkersReply),
    "limits": (lm.ListLimits, lm.LimitsReply),
    "set_limit": (lm.SetLimit, lm.LimitReply),
    "count": (sm.Count, sm.CountReply),
    "count_workflows": (sm.CountWorkflows, sm.CountReply),
    "search_attributes": (sm.ListSearchAttributes, sm.SearchAttributes),
    "add_search_attribute": (sm.AddSearchAttribute, sm.SearchAttribute),
    "remove_search_attribute": (sm.RemoveSearchAttribute, Done),
    "set_queue_owner": (o.SetQueueOwner, o.OwnerReply),
    "delete_queue_owner": (o.DeleteQueueOwner, o.OwnerReply),
    "pause_limit": (lm.PauseLimit, lm.LimitReply),
    "delete_limit": (lm.DeleteLimit, lm.LimitReply),
    "switch_breaker": (lm.SwitchBreaker, lm.LimitReply),
    "start_workflow": (w.StartWorkflow, w.StartReply),
    "signal_workflow": (w.SignalWorkflow, w.RunReply),
    "update_workflow": (w.UpdateWorkflow, w.UpdateReply),
    "query_workflow": (w.QueryWorkflow, w.QueryReply),
    "cancel_workflow": (w.CancelWorkflow, w.RunReply),
    "terminate_workflow": (w.TerminateWorkflow, w.RunReply),
    "pause_workflow": (w.PauseWorkflow, w.RunReply),
    "reset_workflow": (w.ResetWorkflow, w.StartReply),
    "resolve_workflow": (w.ResolveWorkflow, w.RunReply),
    "describe_workflow": (w.DescribeWorkflow, w.WorkflowView),
    "result_workflow": (w.ResultWorkflow, w.WorkflowView),
    "find_workflows": (w.FindWorkflows, w.WorkflowPage),
    "history": (w.History, w.HistoryReply),
    "group_results": (w.GroupResults, w.GroupResultsReply),
    "complete_activity": (w.CompleteActivity, w.RunReply),
    "put_schedule": (s.PutSchedule, s.PutReply),
    "update_schedule": (s.UpdateSchedule, s.PutReply),
    "get_schedule": (s.GetSchedule, s.ScheduleView),
    "find_schedules": (s.FindSchedules, s.SchedulePage),
    "delete_schedule": (s.DeleteSchedule, s.ScheduleReply),
    "pause_schedule": (s.PauseSchedule, s.ScheduleReply),
    "trigger_schedule": (s.TriggerSchedule, s.TriggerReply),
    "backfill_schedule": (s.BackfillSchedule, s.ScheduleReply),
    "preview_times": (s.PreviewTimes, s.PreviewReply),
    "append": (w.Appends, w.AppendReply),
    "failures": (f.ListFailures, f.FailurePage),
    "start_bulk": (f.StartBulk, f.BulkView),
    "get_bulk": (f.GetBulk, f.BulkView),
    "find_bulk": (f.FindBulk, f.BulkPage),
    "doctor": (d.Doctor, d.DoctorReply),
    "golden_signals": (g.GoldenSignals, g.GoldenSignalsReply),
    "events": (e.ReadEvents, e.EventPage),
    "record_events": (e.RecordEvents, e.FeedView),
    "stream": (e.ReadStream, e.StreamPage),
    "write_stream": (e.WriteStream, e.WriteStreamReply),
    "add_webhook": (e.AddWebhook, e.WebhookView),
    "webhooks": (e.ListWebhooks, e.WebhookList),
    "delete_webhook": (e.DeleteWebhook, e.WebhookDeleted),
    "disable_webhook": (e.DisableWebhook, e.WebhookView),
    "replay_webhook": (e.ReplayWebhook, e.WebhookView),
    "ping_webhook": (e.PingWebhook, e.PingReply),
    "webhook_dead_letters": (e.ListDeadLetters, e.DeadLetters),
}
"""Every operation of the protocol: its name, the body it takes and the body it answers."""
