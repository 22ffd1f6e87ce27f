"""Arithmetic of deadlines and retries."""

from __future__ import annotations

from perdure.core.ids import Mint
from perdure.core.model import DEFAULT_RETRY, NO_TIMEOUTS, SECOND, RetryPolicy, Task, Timeouts, unpack
from perdure.core.states import State


def retry_policy(task: Task) -> RetryPolicy:
    policy: RetryPolicy = DEFAULT_RETRY if task.retry_policy is None else unpack(task.retry_policy, RetryPolicy)
    return policy


def timeouts(task: Task) -> Timeouts:
    found: Timeouts = NO_TIMEOUTS if task.timeouts is None else unpack(task.timeouts, Timeouts)
    return found


def backoff(policy: RetryPolicy, spent: int, mint: Mint) -> int:
    """Microseconds to wait after `spent` attempts."""
    return int(policy.wait(spent, mint.fraction()) * SECOND)


def _earliest(*times: int | None) -> int | None:
    first: int | None = None
    for time in times:
        if time is not None and (first is None or time < first):
            first = time
    return first


def _held(time: int | None, hold_until: int) -> int | None:
    return None if time is None else max(time, hold_until)


def wake_at(task: Task, hold_until: int = 0) -> int | None:
    """When the alarm of an open task rings next: a lower bound of every deadline that counts in its state. The worker's
    silence does not count before `hold_until`."""
    match task.state:
        case State.ENQUEUED:
            ready = task.ready_at if task.place is None else None
            expires = task.expires_at if task.started_at is None else None
            return _earliest(ready, expires, task.deadline)
        case State.RETRY_WAIT:
            return _earliest(task.ready_at, task.deadline)
        case State.LEASED:
            return _earliest(
                _held(task.lease_until, hold_until),
                task.attempt_deadline,
                _held(task.heartbeat_deadline, hold_until),
                task.deadline,
                task.cancel_deadline,
            )
        case State.WAITING:
            return _earliest(task.ready_at, task.deadline)
        case _:
            return None
