"""What is in a row, for the rules and for those who read what broke."""

from __future__ import annotations

import json

import msgspec

from perdure.core.model import Payload, Progress, Task, Timeouts

NO_TIMEOUTS = Timeouts()
ASKING = "perdure:query"
"""The type of the jobs that ask workflows something."""


def short(task_id: bytes) -> str:
    return task_id.hex()[-8:]


def show(task: Task | None) -> str:
    if task is None:
        return "no row"
    parts = [f"{short(task.id)} {task.state.name} lease {task.lease_number} attempt {task.attempt}"]
    for name in ("received", "place", "ready_at", "wake_at", "lease_until", "expires_at", "attempt_deadline",
    "deadline",
                 "heartbeat_deadline", "cancel_deadline", "updated_at", "lost_deliveries", "worker"):  # fmt: skip
        if (value := getattr(task, name)) is not None:
            parts.append(f"{name}={value}")
    return " ".join(parts)


def limits_of(task: Task) -> Timeouts:
    return NO_TIMEOUTS if task.timeouts is None else msgspec.msgpack.decode(task.timeouts, type=Timeouts)


def lease_in(payloads: bytes | None) -> int | None:
    """The number of the lease under which a handler wrote this."""
    if payloads is None:
        return None
    values = msgspec.msgpack.decode(payloads, type=tuple[Payload, ...])
    if not values:
        return None
    value = json.loads(values[0].data)
    return value.get("lease") if isinstance(value, dict) else None


def done_in(task: Task) -> float:
    """How far a task is."""
    return -1.0 if task.progress is None else msgspec.msgpack.decode(task.progress, type=Progress).done
