"""Which columns the verbs of the reference store write, and rows with some of them changed."""

from __future__ import annotations

from copy import copy
from typing import Any, TypeVar

from perdure.core.model import Task

R = TypeVar("R")

LEASE = (
    "state", "place", "ready_at", "lease_number", "lease_bits", "received", "session", "worker", "poll",
    "attempt_started_at", "heartbeat_at", "lease_until", "attempt_deadline", "heartbeat_deadline", "wake_at",
    "updated_at",
)  # fmt: skip
CHANGE = (
    *LEASE, "priority", "attempt", "lost_deliveries", "started_at", "cancel_requested_at", "cancel_reason",
    "cancel_deadline", "progress", "checkpoint", "failure", "done_number", "done_bits", "done_state",
    "blocked_on", "blocked_place",
)  # fmt: skip
CLOSE = (
    "state", "attempt", "lost_deliveries", "updated_at", "started_at", "cancel_requested_at", "cancel_reason",
    "progress", "checkpoint", "failure", "result", "closed_at", "done_number", "done_bits", "done_state",
)  # fmt: skip

OPEN_ONLY: dict[str, Any] = {
    "place": None, "ready_at": None, "attempt_deadline": None, "heartbeat_deadline": None, "lease_until": None,
    "cancel_deadline": None, "wake_at": None, "lease_bits": 0, "received": False, "session": None, "poll": None,
    "heartbeat_at": None, "rowid": 0, "blocked_on": None, "blocked_place": None,
}  # fmt: skip
"""Columns that closed rows do not have, and what they read as."""

OPEN_RUNS_ONLY: dict[str, Any] = {
    "inbox_count": 0, "inbox_taken": 0, "turn_inbox": 0, "turn_prepared_at": None, "turn_scheduled_at": 0,
    "turn_written": 0, "failures": 0, "sticky_session": None, "children": 0, "paused": False,
}  # fmt: skip
"""The same of workflow columns."""


def written(row: Task, value: Task, columns: tuple[str, ...]) -> Task:
    """`row` with `columns` of `value`."""
    row = copy(row)
    for column in columns:
        setattr(row, column, getattr(value, column))
    return row


def without(row: R, *columns: str) -> R:
    """`row` as a select shows it that leaves columns out."""
    row = copy(row)
    for column in columns:
        setattr(row, column, None)
    return row
