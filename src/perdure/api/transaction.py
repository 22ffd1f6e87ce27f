"""The arguments of perdure.enqueue_v1 (migration 0002) for a task: checked and packed like any other request, so that
the same errors are raised before the database is asked, and the same key with the same body meets over both ways."""

from __future__ import annotations

import time

from perdure.api.drafts import Draftsman
from perdure.core import ids
from perdure.core import messages as m
from perdure.core.errors import InvalidArgument
from perdure.core.model import Task

Value = str | int | bytes

_LIKE_DEFAULTS = {
    name: Task.__struct_defaults__[Task.__struct_fields__.index(name) - len(Task.__struct_fields__)]
    for name in ("queue", "app", "priority", "fairness_key", "max_attempts", "lease_length", "identity")
}


def arguments(drafts: Draftsman, item: m.NewTask, identity: str = "") -> dict[str, Value]:
    """By name, without those that are as the function assumes. Raises what an enqueue raises."""
    command = drafts.enqueue(item, identity, time.time_ns() // 1000)
    draft = command.draft
    assert command.task_id is not None
    assert draft.payload is not None
    if draft.concurrency_key is not None:
        raise InvalidArgument(
            "a job that is enqueued in a transaction has no concurrency key", field="concurrency_key", limit="none"
        )
    given: dict[str, Value | None] = {
        "namespace": draft.namespace,
        "task_type": draft.type,
        "payload": draft.payload,
        "headers": draft.headers,
        "retry_policy": draft.retry_policy,
        "timeouts": draft.timeouts,
        "delay": command.delay or None,
        "run_at": draft.run_at,
        "schedule_to_start": command.schedule_to_start,
        "schedule_to_close": command.schedule_to_close,
    }
    for name, default in _LIKE_DEFAULTS.items():
        value = getattr(draft, name)
        given[name] = None if value == default else value
    if command.key is not None:
        given |= {"idempotency_key": command.key, "digest": command.digest, "slot": ids.slot(command.task_id)}
    return {name: value for name, value in given.items() if value is not None}
