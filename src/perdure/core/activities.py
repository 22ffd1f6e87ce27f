"""The row of an activity that the code of a run asked for."""

from __future__ import annotations

from perdure.core import commands as c
from perdure.core import decide
from perdure.core.effects import Insert
from perdure.core.events import ActivityTaskScheduled
from perdure.core.lanes import lane
from perdure.core.model import DEFAULT_RETRY, SECOND, Task, Timeouts, pack
from perdure.core.rounds import Rounds
from perdure.core.states import Kind, State


def activity(
    event: ActivityTaskScheduled, parent: Task, run_id: bytes, event_id: int, now: int, rounds: Rounds
) -> Insert:
    """The row of an activity that is ready from now on."""
    limits = Timeouts(
        schedule_to_start=event.schedule_to_start,
        start_to_close=event.start_to_close,
        schedule_to_close=event.schedule_to_close,
        heartbeat=event.heartbeat,
    )
    draft = Task(
        event.task_id, parent.namespace, event.activity_type, State.ENQUEUED,
        lane(parent.namespace, event.task_queue), now, now, app=parent.app, kind=Kind.ACTIVITY,
        queue=event.task_queue, payload=pack(event.input), headers=pack(event.header) if event.header else None,
        idempotency_key=event.activity_id, retry_policy=None if event.retry is None else pack(event.retry),
        timeouts=None if limits == Timeouts() else pack(limits),
        max_attempts=(event.retry or DEFAULT_RETRY).max_attempts, priority=event.priority,
        fairness_key=parent.fairness_key, parent_run_id=run_id, parent_event_id=event_id,
        concurrency_key=event.concurrency_key or None, weight=event.weight,
    )  # fmt: skip
    enqueue = c.Enqueue(
        draft=draft,
        task_id=event.task_id,
        schedule_to_start=_micros(event.schedule_to_start),
        schedule_to_close=_micros(event.schedule_to_close),
    )
    return decide.enqueue(enqueue, now, rounds)


def _micros(duration: float | None) -> int | None:
    return None if duration is None else int(duration * SECOND)
