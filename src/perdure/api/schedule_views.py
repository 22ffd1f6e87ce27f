"""From the rows of schedules to what callers see. Nothing here decides anything."""

from __future__ import annotations

from typing import Any

from perdure.api.views import moment, moment_or_none
from perdure.core import messages as m
from perdure.core import schedule_messages as s
from perdure.core.calendar import Timing, clock, upcoming, zone
from perdure.core.ids import text
from perdure.core.model import SECOND, Task, Timeouts
from perdure.core.schedule import Definition, Firing, TaskAction, WorkflowAction, digest
from perdure.core.schedules import read

_CALENDAR = tuple(s.CalendarFields.__struct_fields__)


def schedule_view(row: Task, now: int, times: int = 0) -> s.ScheduleView:
    """A schedule for its owner, with so many of its next times."""
    schedule = read(row)
    definition, standing = schedule.definition, schedule.standing
    finished = standing.next is None and standing.buffered is None
    after = now if standing.next is None else max(now, standing.next - 1)
    count = times if standing.left is None else min(times, standing.left)
    return s.ScheduleView(
        **_said(definition, row.idempotency_key or "") | {"remaining": standing.left},
        namespace=row.namespace,
        version=digest(definition).hex(),
        state="paused" if standing.paused else "finished" if finished else "active",
        note=standing.note,
        identity=row.identity,
        created_at=moment(row.created_at),
        updated_at=moment(row.updated_at),
        next_times=[] if standing.paused or finished else planned(definition.timing, after, count),
        next_firing_at=moment_or_none(row.ready_at),
        buffered=moment_or_none(standing.buffered),
        running=[s.StartedView(text(ran.task_id), ran.workflow_id) for ran in standing.running],
        recent=[firing_view(firing) for firing in standing.recent],
        counts=standing.counts,
        backfilling=bool(standing.backfills),
    )


def options(definition: Definition, schedule_id: str) -> s.ScheduleOptions:
    """What its owner said."""
    return s.ScheduleOptions(**_said(definition, schedule_id))


def _said(definition: Definition, schedule_id: str) -> dict[str, Any]:
    return {
        **_timing(definition.timing),
        "schedule_id": schedule_id,
        "task": _task(definition.action) if isinstance(definition.action, TaskAction) else None,
        "workflow": _workflow(definition.action) if isinstance(definition.action, WorkflowAction) else None,
        "overlap_policy": definition.overlap,
        "misfire_policy": definition.misfire,
        "catch_up_window": _seconds(definition.window),
        "remaining": definition.remaining,
    }


def firing_view(firing: Firing) -> s.FiringView:
    return s.FiringView(
        scheduled_at=moment(firing.scheduled_at),
        at=moment(firing.at),
        outcome=firing.outcome,
        task_id=text(firing.task_id) if firing.task_id else "",
        workflow_id=firing.workflow_id,
    )


def planned(timing: Timing, after: int, count: int) -> list[s.PlannedTime]:
    """The next nominal times."""
    where = zone(timing.timezone)
    return [s.PlannedTime(moment(at), clock(at, where).isoformat()) for at in upcoming(timing, after, count)]


def _timing(timing: Timing) -> dict[str, Any]:
    """The fields of TimingOptions."""
    return {
        "cron": timing.cron or None,
        "calendar": s.CalendarFields(*timing.calendar.split()) if timing.calendar else None,
        "interval": timing.interval / SECOND if timing.interval else None,
        "phase": timing.phase / SECOND if timing.phase else None,
        "timezone": timing.timezone,
        "gap": timing.gap or None,
        "repeated": timing.repeated or None,
        "start_at": moment_or_none(timing.start_at),
        "end_at": moment_or_none(timing.end_at),
        "jitter": timing.jitter / SECOND if timing.jitter else None,
    }


def _seconds(length: int | None) -> float | None:
    return None if length is None else length / SECOND


def _task(action: TaskAction) -> s.TaskTemplate:
    return s.TaskTemplate(
        type=action.type,
        payload=action.payload,
        queue=action.queue,
        app=action.app,
        priority=action.priority,
        fairness_key=action.fairness_key,
        concurrency_key=action.concurrency_key,
        weight=action.weight,
        retry=action.retry,
        timeouts=None if action.timeouts is None else _timeouts(action.timeouts),
        headers=action.headers,
    )


def _timeouts(times: Timeouts) -> m.TimeoutOptions:
    return m.TimeoutOptions(**{name: getattr(times, name) for name in times.__struct_fields__})


def _workflow(action: WorkflowAction) -> s.WorkflowTemplate:
    return s.WorkflowTemplate(
        **{name: getattr(action, name) for name in s.WorkflowTemplate.__struct_fields__},
    )
