"""From what callers send about schedules to commands: every check, and the form that is stored."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from perdure.api.drafts import at, micros
from perdure.core import commands as c
from perdure.core import limits
from perdure.core import schedule_messages as s
from perdure.core.calendar import GAPS, REPEATED, Timing, check_zone, next_after
from perdure.core.cron import check_cron
from perdure.core.durations import Duration, seconds
from perdure.core.errors import InvalidArgument, PerdureError
from perdure.core.ids import Mint, slot_of
from perdure.core.limits import MAX_PRIORITY
from perdure.core.model import SECOND, pack
from perdure.core.schedule import MAX_ID, MISFIRE, OVERLAP, Action, Definition, TaskAction, WorkflowAction, digest

MAX_REQUEST_ID = 64  #: bytes of the request id of a trigger
MAX_TIMES = 1_000  #: of a preview
MAX_REMAINING = 1_000_000_000
MAX_JITTER = 86_400.0  #: seconds
_FROM = ("cron", "calendar", "interval")
_CALENDAR = ("second", "minute", "hour", "day_of_month", "month", "day_of_week")

_KEPT = (bytes, datetime)


def put(body: s.PutSchedule, namespace: str, identity: str, mint: Mint, now: int) -> c.PutSchedule:
    given = body.schedule
    name = schedule_id(given.schedule_id)
    definition = Definition(
        timing=timing(given),
        action=_action(given, name, identity),
        overlap=limits.choice(given.overlap_policy, "overlap_policy", OVERLAP),
        misfire=limits.choice(given.misfire_policy, "misfire_policy", MISFIRE),
        window=None if given.catch_up_window is None else micros(given.catch_up_window, "catch_up_window"),
        remaining=_remaining(given.remaining),
    )
    stored = pack(definition)
    return c.PutSchedule(
        namespace=namespace,
        schedule_id=name,
        definition=definition,
        digest=digest(definition),
        paused=body.paused,
        note=limits.text(body.note, "note"),
        identity=identity,
        replace=body.replace,
        task_id=mint.task_id(now, slot_of(namespace, "schedule", name)),
        size=len(stored),
    )


def changed(current: s.ScheduleOptions, changes: dict[str, Any]) -> s.ScheduleOptions:
    """A schedule after a merge patch (RFC 7396). A timing of another sort takes the place of the one that was."""
    if "schedule_id" in changes:
        raise InvalidArgument("the id of a schedule does not change", field="schedule_id", limit="none")
    if chosen := [field for field in _FROM if changes.get(field) is not None]:
        changes = {field: None for field in _FROM if field != chosen[0]} | changes
    known = msgspec.to_builtins(current, builtin_types=_KEPT)
    try:
        return msgspec.convert(_merged(known, changes), s.ScheduleOptions, builtin_types=_KEPT)
    except msgspec.ValidationError as fault:
        raise InvalidArgument(str(fault), field="changes", limit="fields of a schedule") from None


def _merged(known: object, changes: object) -> object:
    if not isinstance(changes, dict):
        return changes
    left = {**known} if isinstance(known, dict) else {}
    for name, change in changes.items():
        if change is None:
            left.pop(name, None)
        else:
            left[name] = _merged(left.get(name), change)
    return left


def schedule_id(value: str) -> str:
    return limits.name(value, "schedule_id", most=MAX_ID)


def pause(body: s.PauseSchedule, namespace: str) -> c.PauseSchedule:
    note = limits.text(body.note, "note")
    return c.PauseSchedule(
        namespace=namespace, schedule_id=schedule_id(body.schedule_id), paused=body.paused, note=note
    )


def trigger(body: s.TriggerSchedule, namespace: str) -> c.TriggerSchedule:
    request_id = limits.name(body.request_id, "request_id", empty=True, most=MAX_REQUEST_ID)
    return c.TriggerSchedule(namespace=namespace, schedule_id=schedule_id(body.schedule_id), request_id=request_id)


def backfill(body: s.BackfillSchedule, namespace: str, now: int) -> c.BackfillSchedule:
    start_at, end_at = _moment(body.start_at, "start_at"), _moment(body.end_at, "end_at")
    if not start_at <= end_at <= now:
        raise InvalidArgument("end_at is not between start_at and now", field="end_at", limit="start_at to now")
    return c.BackfillSchedule(
        namespace=namespace, schedule_id=schedule_id(body.schedule_id), start_at=start_at, end_at=end_at
    )


def timing(given: s.TimingOptions) -> Timing:
    """InvalidArgument also for one that has no time at all."""
    chosen = [field for field in _FROM if getattr(given, field) is not None]
    if len(chosen) != 1:
        names = " and ".join(chosen) or "nothing"
        raise InvalidArgument(f"{names} is given", field=(chosen or ["cron"])[-1], limit=f"one of {', '.join(_FROM)}")
    local = given.interval is None
    for field in ("gap", "repeated") if not local else ("phase",):
        if getattr(given, field) is not None:
            which = "an interval" if not local else "a clock"
            raise InvalidArgument(f"{field} does not go with {which}", field=field, limit="none")
    found = Timing(
        cron="" if given.cron is None else check_cron(given.cron, "cron"),
        calendar="" if given.calendar is None else _calendar(given.calendar),
        interval=0 if given.interval is None else _length(given.interval, "interval", least=1.0),
        phase=0 if given.phase is None else micros(given.phase, "phase"),
        timezone=check_zone(given.timezone, "timezone"),
        gap="" if given.gap is None else limits.choice(given.gap, "gap", GAPS),
        repeated="" if given.repeated is None else limits.choice(given.repeated, "repeated", REPEATED),
        start_at=None if given.start_at is None else _moment(given.start_at, "start_at"),
        end_at=None if given.end_at is None else _moment(given.end_at, "end_at"),
        jitter=0 if given.jitter is None else _length(given.jitter, "jitter", most=MAX_JITTER),
    )
    if next_after(found, 0) is None:
        raise InvalidArgument("it never fires", field="end_at", limit="a time between start_at and end_at")
    return found


def _length(value: Duration, field: str, *, least: float = 0.0, most: float | None = None) -> int:
    bounds = {"least": least} if most is None else {"least": least, "most": most}
    return int(seconds(value, field, **bounds) * SECOND)


def _moment(value: datetime, field: str) -> int:
    return limits.microseconds(value, field)


def _calendar(given: s.CalendarFields) -> str:
    """As an expression of six fields. Each is checked by itself, so that the one at fault is named."""
    fields = {name: getattr(given, name) for name in _CALENDAR}
    for index, (name, value) in enumerate(fields.items()):
        if not isinstance(value, str) or len(value.split()) != 1 or value.startswith("@"):
            limit = "one field of a cron expression"
            raise InvalidArgument(f"calendar.{name} is {value!r}"[:100], field=f"calendar.{name}", limit=limit)
        alone = ["*"] * len(_CALENDAR)
        alone[index] = value
        check_cron(" ".join(alone), f"calendar.{name}")
    return check_cron(" ".join(value for value in fields.values()), "calendar", all_fields=True)


def _remaining(value: int | None) -> int | None:
    return None if value is None else limits.integer(value, "remaining", 1, MAX_REMAINING)


def _action(given: s.ScheduleOptions, name: str, identity: str) -> Action:
    if (given.task is None) == (given.workflow is None):
        raise InvalidArgument("give a task or a workflow", field="task", limit="one of task, workflow")
    try:
        return _task(given.task, identity) if given.task is not None else _workflow(given.workflow, name, identity)
    except PerdureError as error:
        raise at(error, "workflow" if given.task is None else "task") from None


def _task(given: s.TaskTemplate, identity: str) -> TaskAction:
    return TaskAction(
        type=limits.name(given.type, "type"),
        payload=limits.payload(given.payload, "payload"),
        queue=limits.name(given.queue, "queue"),
        app=limits.name(given.app, "app"),
        priority=limits.integer(given.priority, "priority", 1, MAX_PRIORITY),
        fairness_key=limits.name(given.fairness_key, "fairness_key", empty=True),
        concurrency_key=limits.concurrency_key(given.concurrency_key) if given.concurrency_key else "",
        weight=limits.integer(given.weight, "weight", 1, limits.MAX_SLOTS),
        retry=None if given.retry is None else limits.retry_policy(given.retry),
        timeouts=None if given.timeouts is None else limits.timeouts(given.timeouts),
        headers=limits.headers(given.headers, "headers"),
        identity=identity,
    )


def _workflow(given: s.WorkflowTemplate | None, name: str, identity: str) -> WorkflowAction:
    assert given is not None
    return WorkflowAction(
        type=limits.name(given.type, "type"),
        workflow_id=limits.name(given.workflow_id or name, "workflow_id", most=MAX_ID),
        input=limits.payload(given.input, "input"),
        queue=limits.name(given.queue, "queue"),
        execution_timeout=_timeout(given.execution_timeout, "execution_timeout"),
        run_timeout=_timeout(given.run_timeout, "run_timeout"),
        retry=None if given.retry is None else limits.retry_policy(given.retry),
        priority=limits.integer(given.priority, "priority", 1, MAX_PRIORITY),
        fairness_key=limits.name(given.fairness_key, "fairness_key", empty=True),
        headers=limits.headers(given.headers, "headers"),
        memo=limits.memo(given.memo),
        search_attributes=limits.search_attributes(given.search_attributes),
        identity=identity,
    )


def _timeout(value: Duration | None, field: str) -> float | None:
    return None if value is None else seconds(value, field, least=0.001)
