"""How values of core/model.py become rows, and rows become values.

Select lists follow the field order of the struct, so a row becomes a value without looking at names. Values are bound as
plain ints, because drivers treat subclasses (State, bool) by a much slower path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

from perdure.core.model import Attempt, Key, Task, WorkerSession
from perdure.core.states import Kind, State

Row = tuple[Any, ...]

_STATES = tuple(State(n) if n in set(State) else None for n in range(max(State) + 1))
_KINDS = tuple(Kind(n) if n in set(Kind) else None for n in range(max(Kind) + 1))

_LEASE = (
    "lease_number", "lease_bits", "session", "worker", "poll", "attempt_started_at", "heartbeat_at", "lease_until",
    "attempt_deadline", "heartbeat_deadline", "wake_at", "updated_at",
)  # fmt: skip
_CHANGE = (
    "place", "ready_at", *_LEASE, "priority", "attempt", "lost_deliveries", "started_at", "cancel_requested_at",
    "cancel_reason", "cancel_deadline", "progress", "checkpoint", "failure", "done_number", "done_bits", "done_state",
)  # fmt: skip
_CLOSE = (
    "updated_at", "attempt", "lost_deliveries", "started_at", "cancel_requested_at", "cancel_reason", "done_number",
    "done_bits", "done_state", "closed_at", "progress", "checkpoint", "failure", "result",
)  # fmt: skip
