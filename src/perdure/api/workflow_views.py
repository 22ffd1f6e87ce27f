"""From the rows of workflow runs to what callers see. Nothing here decides anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.api.views import moment, moment_or_none, value
from perdure.core import workflow_messages as w
from perdure.core.compensations import owed
from perdure.core.describe import attempts_begun, is_stuck, run_waits_for
from perdure.core.groups import group_of
from perdure.core.history_size import MAX_EVENTS, warning
from perdure.core.ids import text
from perdure.core.model import Failure, Payloads, Progress, Task
from perdure.core.run import Message, Resolution, Run
from perdure.core.states import Kind, State, is_closed

RUNNING = "RUNNING"
STATUSES = {
    State.SUCCEEDED: "COMPLETED",
    State.FAILED: "FAILED",
    State.CANCELED: "CANCELLED",
    State.TERMINATED: "TERMINATED",
    State.TIMED_OUT: "TIMED_OUT",
    State.CONTINUED_AS_NEW: "CONTINUED_AS_NEW",
}
"""The words for closed runs (RPLY-07, X-07); an open one is RUNNING."""


def run_view(
    task: Task,
    run: Run,
    *,
    children: Sequence[Task] = (),
    child_runs: Mapping[bytes, Run] | None = None,
    messages: Sequence[Message] = (),
    pollers: int | None = None,
    next_run: bytes | None = None,
    resolution: Resolution | None = None,
    max_events: int = MAX_EVENTS,
) -> w.WorkflowView:
    """A run for its owner. What it waits for, and the run that follows it, only if they are given. `max_events` bounds
    its history."""
    closed, stuck = is_closed(task.state), is_stuck(task, run)
    return w.WorkflowView(
        workflow_id=run.workflow_id,
        run_id=text(task.id),
        type=task.type,
        queue=task.queue,
        namespace=task.namespace,
        status=STATUSES[task.state] if closed else RUNNING,
        state=task.state.name,
        started_at=moment(task.created_at),
        updated_at=moment(task.updated_at),
        history_length=run.event_count,
        history_bytes=run.history_bytes,
        closed_at=moment_or_none(task.closed_at),
        run_deadline=moment_or_none(task.deadline),
        attempt=run.chain_attempt,
        cron=run.cron or "",
        first_run_id=text(run.first_run_id),
        previous_run_id=_text(run.previous_run_id),
        next_run_id=_text(next_run),
        parent_workflow_id=run.parent_workflow_id or "",
        parent_run_id=_text(task.parent_run_id),
        root_workflow_id=run.root_workflow_id,
        result=value(task.result, Payloads),
        failure=value(task.failure, Failure) if closed or stuck else None,
        waiting_for=run_waits_for(task, run, children, pollers),
        next_event_at=None if closed else moment_or_none(_next(task, children)),
        stuck=stuck,
        failed_turns=0 if closed else run.failures,
        worker=task.worker if task.state == State.LEASED else None,
        paused=run.paused and not closed,
        cancel_requested_at=moment_or_none(task.cancel_requested_at),
        memo=value(run.memo, dict[str, Payloads]) or {},
        search_attributes=value(run.search_attributes, dict[str, Any]) or {},
        pending_activities=[_activity(child) for child in children if child.kind == Kind.ACTIVITY],
        pending_timers=[_timer(child) for child in children if child.kind == Kind.TIMER],
        pending_children=[
            _child(child, (child_runs or {}).get(child.id)) for child in children if child.kind == Kind.WORKFLOW
        ],
        pending_groups=[_group(child) for child in children if child.kind == Kind.GROUP and not group_of(child).told],
        pending_signals=len(messages),
        history_warning="" if closed else warning(run.event_count, max_events),
        resolution=None if resolution is None else _resolution(resolution),
        requires_intervention=closed and resolution is None and owed(run) is not None,
    )


def _resolution(found: Resolution) -> w.ResolutionView:
    return w.ResolutionView(found.note, found.identity, moment(found.at))


def _text(id: bytes | None) -> str:
    return "" if id is None else text(id)


def _next(task: Task, children: Sequence[Task]) -> int | None:
    """When something happens to the run by itself: by an alarm of its own or of one of its children."""
    return min((alarm for alarm in (task.wake_at, *(child.wake_at for child in children)) if alarm), default=None)


def _activity(child: Task) -> w.PendingActivity:
    return w.PendingActivity(
        activity_id=child.idempotency_key or "",
        type=child.type,
        state=child.state.name,
        attempt=attempts_begun(child),
        scheduled_event_id=child.parent_event_id or 0,
        queue=child.queue,
        worker=child.worker if child.state == State.LEASED else None,
        next_attempt_at=moment_or_none(child.ready_at) if child.state == State.RETRY_WAIT else None,
        progress=value(child.progress, Progress),
        failure=value(child.failure, Failure),
    )


def _timer(child: Task) -> w.PendingTimer:
    return w.PendingTimer(
        timer_id=child.idempotency_key or "",
        started_event_id=child.parent_event_id or 0,
        fires_at=moment(child.ready_at or child.updated_at),
    )


def _group(child: Task) -> w.PendingGroup:
    group = group_of(child)
    return w.PendingGroup(
        group_id=child.idempotency_key or "",
        type=child.type,
        queue=child.queue,
        started_event_id=child.parent_event_id or 0,
        count=group.count,
        ended=group.done,
        failed=group.failed,
        in_flight=group.inserted - group.done,
    )


def _child(child: Task, run: Run | None) -> w.PendingChild:
    return w.PendingChild(
        workflow_id="" if run is None else run.workflow_id,
        run_id=text(child.id),
        type=child.type,
        initiated_event_id=child.parent_event_id or 0,
    )
