"""Idempotency keys: whose task a repeated enqueue is answered with (IDEM-01, IDEM-02, IDEM-15)."""

from __future__ import annotations

from perdure.core import commands as c
from perdure.core.errors import IdempotencyConflict
from perdure.core.model import Key, Task
from perdure.core.states import is_closed

SINGLETON, THROTTLE, DEBOUNCE = "singleton", "throttle", "debounce"
"""Kinds of keys that say how often something is to be done: while one is open it is the only one; at most one in a
time; only the last one of many, before it has begun."""


def name(command: c.Enqueue) -> tuple[str, str, str, str]:
    """The name of the key that a command carries."""
    return (command.draft.namespace, command.draft.app, command.key_kind, command.key or "")


def reservation(command: c.Enqueue, now: int) -> Key:
    """The key, held for the task that the command would make."""
    assert command.task_id is not None
    return Key(*name(command), command.task_id, command.digest, now + command.key_life)


def has_expired(key: Key, now: int) -> bool:
    """Whether a repeat may make a new task; only if the old one is not open, see `may_pass_on`."""
    return key.kind == SINGLETON or key.expires_at <= now


def may_pass_on(key: Key, task: Task | None) -> bool:
    """Whether an expired key may go to another task than this one, which holds it: a key outlives its time as long as
    its task is open."""
    return key.kind == THROTTLE or task is None or is_closed(task.state)


def answer(command: c.Enqueue, holder: Key) -> c.Enqueued:
    """The answer to an enqueue whose key is taken: its own earlier try is no duplicate. IdempotencyConflict when the
    key stands for another body."""
    if holder.digest != command.digest:
        raise IdempotencyConflict(
            f"idempotency key {command.key!r} was used with another body", field="idempotency_key"
        )
    return c.Enqueued(holder.task_id, holder.task_id != command.task_id)
