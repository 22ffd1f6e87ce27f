"""Workflow runs and their histories as people read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from perdure.cli.show import LABEL, failure_text, moment, show_table, time, value_of, whole
from perdure.core.event_types import event_name
from perdure.core.events import Event
from perdure.core.history_json import to_json
from perdure.core.workflow_messages import PendingActivity, WorkflowView

_SAID_ELSEWHERE = {"namespace", "history_bytes", "root_workflow_id", "first_run_id", "state"}
_TELLING = (
    "name", "workflow_type", "activity_type", "timer_id", "signal_name", "marker_name", "workflow_id", "update_id",
    "step_id", "activity_id", "attempt", "scheduled_event_id", "started_event_id", "initiated_event_id",
    "start_to_fire", "retry_in", "input", "result", "details", "failure", "cause", "reason", "new_run_id",
)  # fmt: skip
"""Attributes of events that a line shows, in this order."""


def plain_run(view: WorkflowView) -> dict[str, Any]:
    """A run as JSON, with values where they are JSON themselves."""
    memo = {name: value_of(payloads) for name, payloads in view.memo.items()}
    return {**whole(view), "memo": memo, "result": value_of(view.result)}


def show_runs(views: Sequence[WorkflowView]) -> None:
    rows = [
        (
            view.workflow_id,
            view.run_id,
            "paused" if view.paused else "stuck" if view.stuck else view.status,
            time(view.started_at),
            view.type,
            view.queue,
        )
        for view in views
    ]
    show_table(("workflow id", "run id", "status", "started", "type", "queue"), rows)


def show_run(view: WorkflowView) -> None:
    """A line a field; those that say nothing are left out."""
    for name, value in _fields(view):
        first, *rest = value.splitlines() or [""]
        print(f"{name:<{LABEL}}{first}")
        for line in rest:
            print(" " * LABEL + line)


def _fields(view: WorkflowView) -> Iterator[tuple[str, str]]:
    for name, value in plain_run(view).items():
        match name:
            case "status":
                yield name, f"{value} (its turns fail)" if view.stuck else str(value)
            case "failure" if view.failure is not None:
                yield name, f"{failure_text(view.failure)}\n{view.failure.stack}"
            case "pending_activities":
                for activity in view.pending_activities:
                    yield f"  activity {activity.activity_id}", _activity(activity)
            case "pending_timers":
                for timer in view.pending_timers:
                    yield f"  timer {timer.timer_id}", f"fires at {time(timer.fires_at)}"
            case "pending_children":
                for child in view.pending_children:
                    yield f"  child {child.workflow_id}", f"{child.type}, run {child.run_id}"
            case "pending_groups":
                for group in view.pending_groups:
                    ended = f"{group.ended} of {group.count} calls have ended, {group.failed} without success"
                    yield f"  group {group.group_id}", f"{group.type}: {ended}; {group.in_flight} are queued or run"
            case "result" if view.result is not None:
                yield name, msgspec.json.encode(value).decode()
            case "resolution" if view.resolution is not None:
                noted = view.resolution
                yield name, f"{noted.note} ({noted.identity}, {time(noted.at)})"
            case "memo" | "search_attributes" if value:
                yield name.replace("_", " "), msgspec.json.encode(value).decode()
            case _ if isinstance(getattr(view, name), datetime):
                yield name.removesuffix("_at"), time(value)
            case _ if name not in _SAID_ELSEWHERE and value not in ("", 0, None, False, {}):
                yield name, str(value)


def _activity(activity: PendingActivity) -> str:
    again = "" if activity.next_attempt_at is None else f", next attempt at {time(activity.next_attempt_at)}"
    worker = f" on {activity.worker}" if activity.worker else ""
    why = "" if activity.failure is None else f"\n{failure_text(activity.failure)}"
    return f"{activity.type}: {activity.state}{worker}, attempt {activity.attempt}{again}{why}"


def show_events(events: Sequence[Event]) -> None:
    """A line an event: id, time, type, and what tells it from others of its type."""
    for event, shown in zip(events, to_json(events), strict=True):
        attributes = shown["attributes"]
        parts = (f"{name}={_brief(attributes[name])}" for name in _TELLING if name in attributes)
        print(f"{event.id:>5}  {time(moment(event.time))}  {event_name(event.type)}", *parts)


def _brief(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
