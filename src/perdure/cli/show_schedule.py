"""Schedules as people read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from perdure.cli.show import LABEL, show_table, time, value_of, whole
from perdure.core.schedule_messages import FiringView, PlannedTime, ScheduleView

_SAID_ELSEWHERE = {"namespace", "timezone", "interval"}


def plain_schedule(view: ScheduleView) -> dict[str, Any]:
    """A schedule as JSON, with values where they are JSON themselves."""
    found = {**whole(view)}
    if view.task is not None:
        found["task"]["payload"] = value_of(view.task.payload)
    if view.workflow is not None:
        found["workflow"]["input"] = value_of(view.workflow.input)
        found["workflow"]["memo"] = {name: value_of(payloads) for name, payloads in view.workflow.memo.items()}
    return found


def show_schedules(views: Sequence[ScheduleView]) -> None:
    rows = [
        (
            view.schedule_id,
            view.state,
            "" if view.next_firing_at is None else time(view.next_firing_at),
            _when(view),
            _starts(view),
        )
        for view in views
    ]
    show_table(("schedule id", "state", "next firing", "when", "starts"), rows)


def show_schedule(view: ScheduleView) -> None:
    """A line a field; those that say nothing are left out."""
    for name, value in _fields(view):
        print(f"{name:<{LABEL}}{value}")


def show_times(times: Sequence[PlannedTime]) -> None:
    """A line a time: in UTC, and by the clock of the zone."""
    for one in times:
        print(time(one.at), one.local, sep="  ")


def _when(view: ScheduleView) -> str:
    if view.interval is not None:
        return f"every {view.interval} s"
    text = view.cron or "calendar"
    return f"{text} ({view.timezone})"


def _starts(view: ScheduleView) -> str:
    if view.workflow is not None:
        return f"workflow {view.workflow.type}"
    return f"task {view.task.type}" if view.task is not None else ""


def _fields(view: ScheduleView) -> Iterator[tuple[str, str]]:
    for name in view.__struct_fields__:
        value = getattr(view, name)
        match name:
            case "cron":
                yield "when", _when(view)
            case "task" | "workflow" if value is not None:
                body = value.payload if name == "task" else value.input
                yield name, f"{value.type} on queue {value.queue}"
                yield "payload", msgspec.json.encode(value_of(body)).decode()
            case "next_times":
                for one in view.next_times:
                    yield "  next", f"{time(one.at)}  {one.local}"
            case "recent":
                for firing in view.recent:
                    yield "  firing", _firing(firing)
            case "counts" if value:
                yield name, ", ".join(f"{outcome} {count}" for outcome, count in sorted(value.items()))
            case _ if isinstance(value, datetime):
                yield name.removesuffix("_at").replace("_", " "), time(value)
            case _ if name not in _SAID_ELSEWHERE and isinstance(value, (str, float, int)) and value not in ("", False):
                yield name.replace("_", " "), str(value)


def _firing(firing: FiringView) -> str:
    started = firing.workflow_id or firing.task_id
    return f"{time(firing.scheduled_at)}  {firing.outcome}" + (f"  {started}" if started else "")
