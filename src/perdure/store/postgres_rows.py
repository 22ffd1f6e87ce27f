"""How values become the arrays of a write.

Rows that one batch writes are alike in most columns: the same worker and poll, the same times, the same counts. What is
alike travels once a class of equal rows, and every row names its class: an array of ids, of leases and of classes
instead of one a column. Encoding an element costs the client 0.1 to 0.25 microseconds and the server as much again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

from perdure.core.model import Attempt, Key, Task, WorkerSession
from perdure.core.run import Run
from perdure.store import rows

Array = tuple[Any, ...]
Getter = Callable[[Any], tuple[Any, ...]]

_LEASE: Getter = attrgetter("id", "lease_number", "lease_bits")
_LEASE_ALIKE: Getter = attrgetter(
    "state", "received", "session", "worker", "poll", "attempt_started_at", "heartbeat_at", "lease_until",
    "attempt_deadline", "heartbeat_deadline", "wake_at", "updated_at",
)  # fmt: skip

_CLOSE_OWN: Getter = attrgetter("id", "lease_number", "lease_bits", "done_bits", "result")
_CLOSE_ALIKE: Getter = attrgetter(
    "state", "updated_at", "attempt", "lost_deliveries", "started_at", "cancel_requested_at", "cancel_reason",
    "done_number", "done_state", "closed_at", "progress", "checkpoint", "failure",
)  # fmt: skip

_CHANGE: Getter = attrgetter("id", "state", "received", *rows.CHANGE)
_RECORD: Getter = attrgetter(*Attempt.__struct_fields__)

_RUN_OWN: Getter = attrgetter(
    "id", "workflow_id", "first_run_id", "original_run_id", "root_workflow_id", "root_run_id", "event_count",
    "history_bytes", "turn_prepared_at", "turn_scheduled_at",
)  # fmt: skip
_RUN_ALIKE: Getter = attrgetter(
    "previous_run_id", "reset_run_id", "reset_event_id", "parent_namespace", "parent_workflow_id",
    "parent_close_policy", "chain_attempt", "chain_deadline", "cron", "branch", "inbox_count", "inbox_taken",
    "turn_inbox", "turn_written", "turn_timeout", "failures", "sticky_session", "children", "build",
    "versioning_behavior", "paused", "memo", "search_attributes",
)  # fmt: skip

_KEY_OWN: Getter = attrgetter("key", "task_id", "digest", "expires_at")
_KEY_ALIKE: Getter = attrgetter("namespace", "app", "kind")
_KEY_ORDER: Getter = attrgetter("key", "namespace", "app", "kind")

session: Getter = attrgetter(*WorkerSession.__struct_fields__)
"""The columns of a worker process."""

_SELDOM = (
    "attempt_deadline", "heartbeat_deadline", "lease_until", "cancel_deadline", "session", "poll", "started_at",
    "attempt_started_at", "heartbeat_at", "cancel_requested_at", "worker", "cancel_reason", "failure",
    "parent_run_id", "parent_event_id", "concurrency_key", "blocked_on", "blocked_place", "weight",
)  # fmt: skip
_seldom: Getter = attrgetter(*_SELDOM)
_NOTHING = (*(None,) * (len(_SELDOM) - 1), 1)
_WHOLE = ("state", "kind", "received", *rows.INSERT)
_NEW = tuple(column for column in _WHOLE if column not in _SELDOM)
_whole: Getter = attrgetter(*_WHOLE)
_new: Getter = attrgetter(*_NEW)


def columns(values: Iterable[Any], row: Getter) -> list[Array]:
    """An array a column of `values` turned into rows."""
    return list(zip(*map(row, values), strict=True))


def _classes(values: Iterable[Any], own: Getter, alike: Getter) -> list[Array]:
    """An array a column of `own`, one of the numbers of classes (from 1), and one a column of `alike`, which has an
    element a class."""
    classes: dict[tuple[Any, ...], int] = {}
    numbered = [(*own(value), classes.setdefault(alike(value), len(classes) + 1)) for value in values]
    return [*zip(*numbered, strict=True), *zip(*classes, strict=True)]


def keys(values: Sequence[Key]) -> list[Array]:
    """For reserve_keys: in an order that all batches share, so that two never wait for each other in a ring."""
    return _classes(sorted(values, key=_KEY_ORDER), _KEY_OWN, _KEY_ALIKE)


def leases(tasks: Sequence[Task]) -> list[Array]:
    """For lease."""
    return _classes(tasks, _LEASE, _LEASE_ALIKE)


def closes(tasks: Sequence[Task]) -> list[Array]:
    """For close."""
    return _classes(tasks, _CLOSE_OWN, _CLOSE_ALIKE)


def changes(tasks: Sequence[Task]) -> list[Array]:
    """For change."""
    return columns(tasks, _CHANGE)


def records(attempts: Sequence[Attempt]) -> list[Array]:
    """For record."""
    return columns(attempts, _RECORD)


def deletes(tasks: Sequence[Task]) -> list[Array]:
    """For delete."""
    return columns(tasks, _LEASE)


def runs(values: Sequence[Run]) -> list[Array]:
    """For put_runs."""
    return _classes(values, _RUN_OWN, _RUN_ALIKE)


def inserts(tasks: Sequence[Task]) -> tuple[tuple[str, ...], Iterable[tuple[Any, ...]]]:
    """Column names and rows of new tasks; what only a lease or a parent fills is left out when none has
    any."""
    if all(_seldom(task) == _NOTHING for task in tasks):
        return _NEW, map(_new, tasks)
    return _WHOLE, map(_whole, tasks)
