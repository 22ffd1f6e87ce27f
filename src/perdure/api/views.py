"""From rows to what callers see. Nothing here decides anything."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from perdure.core import messages as m
from perdure.core.describe import Standing, attempts_begun, last_outcome, waiting_for
from perdure.core.durations import MAX_SECONDS
from perdure.core.failures import fingerprint, group_text, is_dead
from perdure.core.ids import lease_token, text
from perdure.core.model import (
    LEASE_SECONDS,
    SECOND,
    Attempt,
    Failure,
    Payloads,
    Progress,
    RetryPolicy,
    Task,
    Timeouts,
    unpack,
)
from perdure.core.policy import retry_policy, timeouts
from perdure.core.states import is_closed, job_state

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment(micros: int) -> datetime:
    """Exact to the microsecond, which a float of seconds would not be."""
    return _EPOCH + timedelta(microseconds=micros)


def moment_or_none(micros: int | None) -> datetime | None:
    return None if micros is None else moment(micros)


def value(data: bytes | None, kind: Any) -> Any:
    """What a column holds."""
    return None if data is None else unpack(data, kind)


def task_view(
    task: Task,
    attempts: Sequence[m.AttemptView] = (),
    *,
    pollers: int | None = None,
    standing: Standing | None = None,
    payload: bool = False,
    result: bool = False,
) -> m.TaskView:
    """A task for its owner; with its payload, or its result, only if asked for. `pollers`: how many worker processes
    poll its queue, if that is known; `standing`: how the limit stands that it is blocked on."""
    closed = is_closed(task.state)
    return m.TaskView(
        task_id=text(task.id),
        namespace=task.namespace,
        app=task.app,
        type=task.type,
        queue=task.queue,
        state=task.state.name,
        job_state=job_state(task.state, task.cancel_requested_at is not None),
        priority=task.priority,
        attempt=attempts_begun(task),
        max_attempts=task.max_attempts,
        created_at=moment(task.created_at),
        updated_at=moment(task.updated_at),
        lost_deliveries=task.lost_deliveries,
        run_at=moment_or_none(task.run_at or task.ready_at),
        started_at=moment_or_none(task.started_at),
        closed_at=moment_or_none(task.closed_at),
        expires_at=moment_or_none(task.expires_at),
        deadline=moment_or_none(task.deadline),
        timeouts=msgspec.structs.replace(timeouts(task), lease=task.lease_length / SECOND),
        retry=retry_policy(task),
        worker=task.worker,
        idempotency_key=task.idempotency_key,
        fairness_key=task.fairness_key,
        concurrency_key=task.concurrency_key or "",
        weight=task.weight,
        identity=task.identity,
        retry_of=None if task.retry_of is None else text(task.retry_of),
        failure_group=group_text(fingerprint(task).group) if is_dead(task) else None,
        progress=value(task.progress, Progress),
        failure=value(task.failure, Failure),
        attempts=list(attempts),
        waiting_for=waiting_for(task, pollers, standing),
        next_event_at=None if closed else moment_or_none(task.wake_at),
        cancel_requested_at=moment_or_none(task.cancel_requested_at),
        cancel_reason=task.cancel_reason,
        payload=value(task.payload, Payloads) if payload else None,
        result=value(task.result, Payloads) if result else None,
    )


_FREE = ("released", "undelivered")
"""Outcomes of leases that spent no attempt."""


def attempt_views(task: Task, recorded: Sequence[Attempt]) -> list[m.AttemptView]:
    """All attempts of a task: the recorded ones and, told from the task itself, the one that runs or that ended it
    (TASK-15)."""
    views = [attempt_view(attempt) for attempt in recorded]
    if task.lease_number and all(attempt.lease_number != task.lease_number for attempt in recorded):
        views.append(
            m.AttemptView(
                attempt=1 + sum(attempt.outcome not in _FREE for attempt in recorded),
                outcome=last_outcome(task),
                worker=task.worker,
                started_at=moment_or_none(task.attempt_started_at),
                finished_at=moment_or_none(task.closed_at),
                failure=value(task.failure, Failure) if task.closed_at is not None else None,
            )
        )
    return views


def attempt_view(attempt: Attempt) -> m.AttemptView:
    return m.AttemptView(
        attempt=attempt.attempt,
        outcome=attempt.outcome,
        worker=attempt.worker,
        started_at=moment(attempt.started_at),
        finished_at=moment(attempt.finished_at),
        failure=value(attempt.failure, Failure),
    )


def delivery(task: Task, *, limited: bool = False) -> m.Delivery:
    """A leased task for the worker that got it. `limited`: its end makes room for another one, so it must not go the
    short way."""
    lease = task.lease
    if limited:
        lease = msgspec.structs.replace(lease, job=False)
    sent = m.Delivery(
        task_id=text(task.id),
        lease=lease_token(lease),
        type=task.type,
        queue=task.queue,
        attempt=attempts_begun(task),
        max_attempts=task.max_attempts,
        payload=() if task.payload is None else unpack(task.payload, Payloads),
        lease_seconds=LEASE_SECONDS,
    )
    if task.headers is not None:
        sent.headers = unpack(task.headers, dict[str, str])
    if task.checkpoint is not None:
        sent.checkpoint = unpack(task.checkpoint, Payloads)
    if task.progress is not None:
        sent.progress = unpack(task.progress, Progress)
    if task.timeouts is not None:
        limits = unpack(task.timeouts, Timeouts)
        sent.start_to_close = limits.start_to_close
        sent.lease_seconds = min(task.lease_length / SECOND, limits.heartbeat or MAX_SECONDS)
    if task.retry_policy is not None:
        sent.retry = unpack(task.retry_policy, RetryPolicy)
    return sent
