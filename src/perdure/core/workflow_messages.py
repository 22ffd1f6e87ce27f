"""What clients and workers ask about workflows, and the answers: the second half of the wire protocol (messages.py).

A run is addressed by its workflow id, and its run id where one certain run is meant; without a run id the current one
is, that is the open one, or the last (SIG-05). Run ids are task ids: UUID text.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from perdure.core.body import Body
from perdure.core.durations import Duration
from perdure.core.errors import Problem
from perdure.core.model import Failure, Payload, Payloads, Progress, RetryPolicy
from perdure.core.run import UpdateRequest
from perdure.core.turn_commands import TurnCommand


class Signal(Body):
    name: str
    input: tuple[Payload, ...] = ()
    headers: dict[str, str] = {}


class Update(Body):
    """An update that a start brings. UpdateWorkflow with the same id and the run id of the reply has its answer."""

    update_id: str
    name: str
    input: tuple[Payload, ...] = ()
    headers: dict[str, str] = {}


class StartWorkflow(Body):
    """Start a run (STEP-01, RPLY-08). `id_conflict` says what to do while a run of this id is open: "fail",
    "use_existing" or "terminate_existing"; `id_reuse` once the last one has closed: "allow_duplicate",
    "allow_duplicate_failed_only" or "reject_duplicate". `request_id` makes a repeated call one call; the SDK mints it.
    With `signal` the signal is in the inbox from the start, or goes to the open run (SIG-06). An `update`, instead of a
    signal, does the same: the start and the update are one transaction."""

    type: str
    workflow_id: str
    input: tuple[Payload, ...] = ()
    queue: str = "default"
    request_id: str = ""
    id_reuse: str = "allow_duplicate"
    id_conflict: str = "fail"
    start_delay: Duration | None = None
    execution_timeout: Duration | None = None  #: over all runs of the chain: retries, cron, continue-as-new
    run_timeout: Duration | None = None
    retry: RetryPolicy | None = None  #: None: a run that fails is not repeated
    cron: str = ""
    priority: int = 3
    fairness_key: str = ""
    headers: dict[str, str] = {}
    memo: dict[str, Payloads] = {}
    search_attributes: dict[str, Any] = {}
    signal: Signal | None = None
    update: Update | None = None
    identity: str = ""
    wait: float = 0.0  #: hold the answer until the run has closed, so many seconds at most


class StartReply(Body):
    workflow_id: str
    run_id: str
    started: bool = True  #: False: a run that was open already
    closed: WorkflowView | None = None  #: the run as it closed within `wait`


class SignalWorkflow(Body):
    """Committed is what is answered; the code sees it with its next turn (SIG-01 to SIG-04). A `request_id` makes a
    repeated call one signal."""

    workflow_id: str
    signal: Signal
    run_id: str | None = None
    request_id: str = ""
    identity: str = ""


class RunReply(Body):
    workflow_id: str
    run_id: str
    state: str = ""


class UpdateWorkflow(Body):
    """Ask the code to change something and to answer (SIG-11, SIG-12). The same `update_id` is the same update. `wait`
    holds the answer for so many seconds; after that the caller asks again with the same id."""

    workflow_id: str
    update_id: str
    name: str
    input: tuple[Payload, ...] = ()
    run_id: str | None = None
    headers: dict[str, str] = {}
    identity: str = ""
    wait: float = 25.0
    stage: str = "completed"  #: or "accepted"


class UpdateReply(Body):
    """`stage` reached: "admitted" (nobody has looked at it yet), "accepted" or "completed"; then with a result or a
    failure. A rejected one is completed with a failure of code "update_rejected"."""

    workflow_id: str
    run_id: str
    update_id: str
    stage: str
    result: Payloads = ()
    failure: Failure | None = None


class QueryWorkflow(Body):
    """Ask the code something that changes nothing, of an open or closed run (SIG-08 to SIG-10)."""

    workflow_id: str
    name: str
    input: tuple[Payload, ...] = ()
    run_id: str | None = None
    wait: float = 10.0  #: seconds; NoWorker when none answered by then


class QueryReply(Body):
    """What the code answered, or why it could not: its handler failed, or there is none of this name."""

    result: Payloads = ()
    failure: Failure | None = None


QUERY = "perdure:query"
"""The type of the job that asks a worker a query. Its one payload is the MessagePack of a QueryWorkflow with the run
id; it completes with the answer, or fails with why there is none."""


class CancelWorkflow(Body):
    """Ask the code to end; it may clean up (CANC-10). Repeating it changes nothing."""

    workflow_id: str
    run_id: str | None = None
    reason: str = ""
    request_id: str = ""
    identity: str = ""


class TerminateWorkflow(Body):
    """Close the run at once; its code does not hear of it (RPLY-40)."""

    workflow_id: str
    run_id: str | None = None
    reason: str = ""
    identity: str = ""


class PauseWorkflow(Body):
    """Begin no turn of the open run any more, or (`paused` False) begin them again. Its activities and timers go on;
    what they bring waits. A run that follows this one is paused too. Repeating it changes nothing."""

    workflow_id: str
    run_id: str | None = None
    paused: bool = True


class ResetWorkflow(Body):
    """Begin a run, open or closed, again from an event of its history (RPLY-39): a new run of the workflow id, which
    begins with all that the old one did up to there. The old one is terminated if it is open. Give either `event_id`,
    or `step`: the name of a step, which then runs again, and what follows it; of several steps of a name the last one
    is meant. Where code asked for several things at once, all of them are kept or none. A `request_id` makes a repeated
    call one reset. NotFound, InvalidArgument for an event that nothing can begin again from, WorkflowAlreadyStarted
    when another run of this workflow id is open."""

    workflow_id: str
    run_id: str | None = None
    event_id: int | None = None
    step: str | None = None
    reason: str = ""
    request_id: str = ""
    identity: str = ""


class ResolveWorkflow(Body):
    """Note what people have done about a closed run, such as one whose compensations failed (SAGA-05). A later note
    takes the place of an earlier one. NotFound; IllegalMove while the run is open."""

    workflow_id: str
    note: str
    run_id: str | None = None
    identity: str = ""


class CompleteActivity(Body):
    """End an activity that runs, by its id instead of its lease: outcome "succeeded", "failed" or "canceled", as in
    messages.Completion. NotFound when the run waits for none of this id, IllegalMove when it does not run."""

    workflow_id: str
    activity_id: str
    outcome: str = "succeeded"
    run_id: str | None = None
    result: tuple[Payload, ...] = ()
    failure: Failure | None = None


class DescribeWorkflow(Body):
    workflow_id: str
    run_id: str | None = None


class ResultWorkflow(Body):
    """The run once it has closed, with its result; `wait` seconds at most. `follow` goes on with the next run where one
    continues as new, is retried or repeated by cron."""

    workflow_id: str
    run_id: str | None = None
    wait: float = 25.0
    follow: bool = True


class PendingActivity(Body):
    activity_id: str
    type: str
    state: str
    attempt: int
    scheduled_event_id: int
    queue: str = ""
    worker: str | None = None
    next_attempt_at: datetime | None = None
    progress: Progress | None = None
    failure: Failure | None = None


class PendingTimer(Body):
    timer_id: str
    started_event_id: int
    fires_at: datetime


class PendingGroup(Body):
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


class PendingChild(Body):
    workflow_id: str
    run_id: str
    type: str
    initiated_event_id: int


class ResolutionView(Body):
    note: str
    identity: str
    at: datetime


class WorkflowView(Body):
    """A run as its owner sees it (RPLY-41). `status` in B's words (RUNNING, COMPLETED, ...), `state` in A's."""

    workflow_id: str
    run_id: str
    type: str
    queue: str
    namespace: str
    status: str
    state: str
    started_at: datetime
    updated_at: datetime
    history_length: int
    history_bytes: int = 0
    closed_at: datetime | None = None
    run_deadline: datetime | None = None
    attempt: int = 1  #: of the chain (workflow retry)
    cron: str = ""
    first_run_id: str = ""
    previous_run_id: str = ""
    next_run_id: str = ""
    parent_workflow_id: str = ""
    parent_run_id: str = ""
    root_workflow_id: str = ""
    result: Payloads | None = None
    failure: Failure | None = None  #: of the run, or of its last turn while it is stuck
    waiting_for: str = ""
    next_event_at: datetime | None = None
    stuck: bool = False  #: its turns fail
    failed_turns: int = 0  #: in a row
    worker: str | None = None
    paused: bool = False
    cancel_requested_at: datetime | None = None
    memo: dict[str, Payloads] = {}
    search_attributes: dict[str, Any] = {}
    pending_activities: list[PendingActivity] = []
    pending_timers: list[PendingTimer] = []
    pending_children: list[PendingChild] = []
    pending_groups: list[PendingGroup] = []
    pending_signals: int = 0  #: messages in the inbox
    history_warning: str = ""  #: the history of an open run comes near its bound
    resolution: ResolutionView | None = None  #: of a closed run: what people have done about it
    requires_intervention: bool = False  #: a closed run whose compensations failed or did not run, and no resolution


class FindWorkflows(Body):
    """Runs of a namespace, newest first; as messages.Find. `open` leaves out closed ones. `lacks_version` (with `type`)
    asks for open runs whose history has no marker of `ctx.patched` or `ctx.version` with this id (RPLY-20), those
    included whose code has not come there yet. It reads histories, so one answer looks at so many runs only, and a page
    may be short, or empty, although more follow: `next` tells."""

    status: str | None = None
    type: str | None = None
    workflow_id: str | None = None
    queue: str | None = None
    since: datetime | None = None
    limit: int = 50
    cursor: str | None = None
    lacks_version: str | None = None
    open: bool = False
    query: str = ""  #: one more filter (docs/search.md), which may say another order; not with lacks_version
    requires_intervention: bool = False  #: closed runs whose compensations failed or did not run, without a resolution


class WorkflowPage(Body):
    workflows: list[WorkflowView]
    next: str | None = None


class History(Body):
    """Events of a run from behind `after` on, at most about `limit` of them. With `wait` (seconds) held until there is
    one."""

    workflow_id: str
    run_id: str | None = None
    after: int = 0
    limit: int = 1000
    wait: float = 0.0


class HistoryReply(Body):
    """Pages as they are stored: core.pages.unpack. `more`: ask again from behind the last event."""

    run_id: str
    pages: list[bytes]
    more: bool = False
    closed: bool = False


class GroupResults(Body):
    """Results of a group of calls, in the order in which they arrived, from behind the first `after` of them on.
    `group_id` is the `task_id` of its GroupStarted event."""

    group_id: str
    after: int = 0


class GroupResultsReply(Body):
    """Pages as they are stored: core.pages.unpack_results. `more`: ask again with as many more as they hold."""

    pages: list[bytes]
    more: bool = False


# ------------------------------------------------------------------------------------------------------- workers
class Turn(Body):
    """What the code of a run is to see next. The pages hold the events from `first` up to the WorkflowTaskStarted of
    this turn; the last page is not in the history yet. `first` above 1: the rest is in the worker's memory, or to be
    asked for with History."""

    workflow_id: str
    run_id: str
    first: int
    pages: list[bytes]
    started_event_id: int  #: the last event in `pages`
    updates: list[UpdateRequest] = []
    more: bool = False  #: events before the last page are missing, because the history is long: ask for them


class Append(Body):
    """What the code asked for (turn_commands.py). `after` is the id of the last event that the worker knows; `final`
    ends the turn; with `sticky` the worker has the run in memory after it. Behind the first append of a turn
    `completed_event_id` is the id of the turn's WorkflowTaskCompleted; the server is faster where it is told."""

    lease: bytes
    after: int
    commands: list[TurnCommand]
    final: bool = True
    sticky: bool = True
    completed_event_id: int = 0


class Appends(Body):
    appends: list[Append]


class Appended(Body):
    """`last` is the id of the last event now in the history; or the error: LeaseLost, or code "unhandled_messages" for
    a run that cannot close yet."""

    state: str = ""
    last: int = 0
    waiting: bool = False  #: messages have come that this turn does not see: it should end soon
    error: Problem | None = None


class AppendReply(Body):
    outcomes: list[Appended]
