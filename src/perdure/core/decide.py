"""What happens to one task: a value and a command in, effects out.

    enqueue   a draft becomes a task, in its queue or delayed
    claim     a worker's poll takes it
    complete  the worker reports how the attempt ended
    cancel    at once when nobody runs it, else cooperative with a grace
    retry     an operator runs a waiting or closed task again
    ring      its alarm went off: all due causes, in one fixed order
    abandon   its worker is gone

Every function works on a copy, awaits nothing, reads no clock (`now` is an argument and a row's time never goes back)
and draws ids and jitter from `mint`. A command that may not be is a typed error and leaves no trace. Fencing: whatever
a worker sends carries its lease, compared whole; the statement that writes the outcome compares it once more.
"""

from __future__ import annotations

import hashlib
from copy import copy

from perdure.core import commands
from perdure.core.effects import Change, Close, Delete, Effect, Insert, Lease, Record
from perdure.core.errors import IllegalMove, InvalidArgument, LeaseLost
from perdure.core.ids import Mint
from perdure.core.model import (
    CANCEL_GRACE_SECONDS,
    DELIVERY_SECONDS,
    LOST_DELIVERIES_FREE,
    SECOND,
    Attempt,
    Failure,
    Task,
    pack,
    unpack,
)
from perdure.core.policy import backoff, retry_policy, timeouts, wake_at
from perdure.core.rounds import Rounds
from perdure.core.states import Cause, Kind, State, is_closed, move

KEPT = (Kind.JOB, Kind.WORKFLOW, Kind.UPDATE, Kind.BULK, Kind.GROUP)
"""Kinds of which a closed row is kept; of the others the history of their parent tells."""

POSTPONED = 60 * SECOND  #: microseconds until a row that could not be decided upon is looked at again


def enqueue(command: commands.Enqueue, now: int, rounds: Rounds) -> Insert:
    """The new task; `command.task_id` was minted before. `delay` counts from `now`; a `run_at` in the past is now."""
    assert command.task_id is not None
    task = copy(command.draft)
    task.id = command.task_id
    task.created_at = task.updated_at = now
    start = max(now + command.delay, task.run_at or 0)
    if command.schedule_to_start is not None:
        task.expires_at = start + command.schedule_to_start
    if command.schedule_to_close is not None:
        task.deadline = start + command.schedule_to_close
    if start > now:
        task.ready_at = start
    else:
        if command.place is None:
            command.place = rounds.next(task.lane, task.fairness_key)
        task.place = command.place
    task.wake_at = wake_at(task)
    return Insert(task)


def claim(task: Task, session: int, worker: str, poll: int, now: int, bits: int) -> Lease:
    """A delivery lease: short until the worker acknowledges receipt. `bits` are random. For tasks without time-outs SQL
    repeats this rule (`Batch.exchange`)."""
    task, now = own(task, now)
    task.state = move(task.state, Cause.CLAIM)
    task.place = task.ready_at = None
    task.lease_number += 1
    task.lease_bits = bits
    task.received = False
    task.session, task.worker, task.poll = session, worker, poll
    task.attempt_started_at = task.heartbeat_at = now
    task.lease_until = now + min(DELIVERY_SECONDS * SECOND, task.lease_length)
    if task.timeouts is not None:
        limits = timeouts(task)
        if limits.start_to_close is not None:
            task.attempt_deadline = now + int(limits.start_to_close * SECOND)
        if limits.heartbeat is not None:
            task.heartbeat_deadline = now + int(limits.heartbeat * SECOND)
    task.wake_at = wake_at(task)
    return Lease(task)


def beat(task: Task, command: commands.Heartbeat, now: int) -> Task:
    """The task after a heartbeat of its current lease. A rule that SQL repeats, because a heartbeat is one
    statement; the contract suite holds the stores to this function."""
    task, now = own(task, now)
    task.received = True
    task.lost_deliveries = 0
    if task.lease_until is not None:
        task.lease_until = now + task.lease_length
    if task.heartbeat_deadline is not None and task.heartbeat_at is not None:
        task.heartbeat_deadline += now - task.heartbeat_at
    task.heartbeat_at = now
    task.started_at = task.started_at or task.attempt_started_at
    task.progress = command.progress or task.progress
    task.checkpoint = command.checkpoint or task.checkpoint
    return task


def holds(task: Task, command: commands.Heartbeat | commands.Complete | commands.Append) -> bool:
    """Whether the lease of a command is the current one of the task, compared whole (LEASE-05)."""
    lease = command.lease
    return task.state == State.LEASED and lease.number == task.lease_number and lease.bits == task.lease_bits


def complete(
    task: Task, command: commands.Complete, now: int, mint: Mint, rounds: Rounds
) -> tuple[list[Effect], State]:
    """The effects and the state after them. A lease that completed before gets its recorded answer again."""
    if not holds(task, command):
        return [], recorded(task, command)
    if command.outcome == "succeeded":
        return [succeed(task, command, now)], State.SUCCEEDED
    if command.outcome == "deferred":
        return [_defer(task, command, now)], State.LEASED
    task, now = _completed(task, command, now)
    effects: list[Effect]
    match command.outcome:
        case "failed":
            effects = _attempt_failed(
                task,
                Cause.FAIL,
                "failed",
                now,
                mint,
                failure=command.failure,
                type_=command.failure_type,
                retryable=command.retryable,
                wait=command.retry_after,
            )
        case "canceled":
            if task.cancel_requested_at is None:
                raise InvalidArgument("nobody asked to cancel this task", field="outcome", kind="str")
            task.attempt += 1
            task.failure = command.failure or task.failure
            effects = [close(task, Cause.YIELD, now)]
        case "released":
            effects = _hand_back(task, Cause.RELEASE, "released", now, rounds)
        case other:
            limit = ", ".join(commands.OUTCOMES)
            raise InvalidArgument(f"outcome is {other!r}", field="outcome", limit=limit, kind="str")
    after = effects[-1]
    assert isinstance(after, (Change, Close, Delete))
    after.task.done_state = int(after.task.state)
    return effects, after.task.state


def _defer(task: Task, command: commands.Complete, now: int) -> Change:
    """Its worker is done with it, and somebody else will end the attempt: no lease runs out from here on, only the
    deadlines count."""
    task, now = own(task, now)
    task.received = True
    task.lost_deliveries = 0
    task.started_at = task.started_at or task.attempt_started_at
    task.progress = command.progress or task.progress
    task.checkpoint = command.checkpoint or task.checkpoint
    task.session = task.poll = task.lease_until = None
    task.wake_at = wake_at(task)
    return Change(task)


def succeed(task: Task, command: commands.Complete, now: int) -> Close | Delete:
    """The end of a leased job that succeeded. Nothing but the lease decides about it, so stores do it in one statement
    (`Batch.succeed`); like `beat` it is a rule that SQL repeats, and the contract suite holds the stores to it."""
    task, now = _completed(task, command, now)
    task.attempt += 1
    task.result = command.result
    closed = close(task, Cause.SUCCEED, now)
    task.done_state = int(task.state)
    return closed


def _completed(task: Task, command: commands.Complete, now: int) -> tuple[Task, int]:
    """A copy on which the end of this lease is noted, and the time of it."""
    task, now = own(task, now)
    task.done_number, task.done_bits = command.lease.number, command.lease.bits
    task.received = True
    task.started_at = task.started_at or task.attempt_started_at
    task.progress = command.progress or task.progress
    task.checkpoint = command.checkpoint or task.checkpoint
    return task, now


def recorded(task: Task, command: commands.Complete) -> State:
    """The answer that this lease's completion got before; LeaseLost when it never completed."""
    if command.lease.number == task.done_number and command.lease.bits == task.done_bits and task.done_number:
        return State(task.done_state)
    raise LeaseLost(why_lost(task))


def why_lost(task: Task | None) -> str:
    """Why a lease does not hold, in words for the worker's log."""
    if task is None:
        return "there is no such task any more"
    if is_closed(task.state):
        return f"the task is {task.state.name}"
    if task.state == State.LEASED:
        return f"the task was leased again, to {task.worker}"
    return f"the lease ended and the task is {task.state.name}"


def cancel(task: Task, command: commands.Cancel, now: int) -> list[Effect]:
    """CANC-01 to CANC-03. Nothing to do for a task that is closed or already asked to cancel (CANC-12)."""
    if is_closed(task.state) or task.cancel_requested_at is not None:
        return []
    task, now = own(task, now)
    task.cancel_requested_at = now
    task.cancel_reason = command.reason or None
    if task.state != State.LEASED:
        return [close(task, Cause.CANCEL, now)]
    task.cancel_deadline = now + CANCEL_GRACE_SECONDS * SECOND
    task.wake_at = wake_at(task)
    return [Change(task)]


def retry(task: Task, now: int, rounds: Rounds) -> list[Effect]:
    """An operator cuts the back-off of an open task short."""
    task, now = own(task, now)
    task.state = move(task.state, Cause.RETRY)
    task.ready_at = None
    task.place = rounds.next(task.lane, task.fairness_key)
    task.wake_at = wake_at(task)
    return [Change(task)]


def repeat(closed: Task, payload: bytes | None = None) -> commands.Enqueue:
    """A command that enqueues a task like a closed one, with fresh counters and a link to it: a terminal state never
    goes back (RETRY-08). Keyed by the closed id, so that asking twice makes one task. With another `payload` it begins
    from the start, because a checkpoint belongs to the payload that it was made for."""
    if closed.state == State.SUCCEEDED:
        raise IllegalMove("the task SUCCEEDED; there is nothing to retry")
    edited = payload is not None
    draft = Task(
        id=b"", namespace=closed.namespace, app=closed.app, kind=closed.kind, type=closed.type, queue=closed.queue,
        lane=closed.lane, state=State.ENQUEUED, created_at=0, updated_at=0, payload=payload or closed.payload,
        headers=closed.headers, retry_policy=closed.retry_policy, timeouts=closed.timeouts,
        max_attempts=closed.max_attempts, lease_length=closed.lease_length, identity=closed.identity,
        priority=closed.priority, fairness_key=closed.fairness_key, retry_of=closed.id,
        checkpoint=None if edited else closed.checkpoint, progress=None if edited else closed.progress,
        concurrency_key=closed.concurrency_key, weight=closed.weight,
    )  # fmt: skip
    limits = timeouts(closed)
    return commands.Enqueue(
        draft=draft,
        schedule_to_start=_micros(limits.schedule_to_start),
        schedule_to_close=_micros(limits.schedule_to_close),
        key=closed.id.hex(),
        key_kind="retry",
        key_life=24 * 3600 * SECOND,
        digest=b"" if payload is None else hashlib.blake2b(payload, digest_size=16).digest(),
        size=len(payload or closed.payload or b""),
    )


def ring(task: Task, now: int, mint: Mint, rounds: Rounds, hold_until: int) -> list[Effect]:
    """The alarm of an open task. All causes that are due, in one fixed order; the first that moves the task wins. Until
    `hold_until` no lease expires: after an outage the living must be heard before anyone is declared dead."""
    task, now = own(task, now)
    leased = task.state == State.LEASED
    if _due(task.deadline, now):
        if task.state == State.ENQUEUED and task.started_at is None:
            return [close(task, Cause.EXPIRE, now, _timeout("schedule_to_close"))]
        task.attempt += leased
        return [close(task, Cause.OVERRUN, now, _timeout("schedule_to_close", task.failure))]
    if leased:
        if _due(task.cancel_deadline, now):
            task.attempt += 1
            return [close(task, Cause.FORCE, now)]
        silent = now >= hold_until and _due(task.heartbeat_deadline, now)
        if not task.received and (silent or _due(task.attempt_deadline, now)):
            return _lease_ended(task, "its receipt was never acknowledged", now, mint, rounds)
        if _due(task.attempt_deadline, now):
            return _attempt_failed(task, Cause.LOSE, "timed_out", now, mint, failure=_timeout("start_to_close"))
        if now >= hold_until:
            if _due(task.heartbeat_deadline, now):
                return _attempt_failed(task, Cause.LOSE, "timed_out", now, mint, failure=_timeout("heartbeat"))
            if _due(task.lease_until, now):
                return _lease_ended(task, "no heartbeat came within the lease", now, mint, rounds)
    elif task.state == State.ENQUEUED and task.started_at is None and _due(task.expires_at, now):
        return [close(task, Cause.EXPIRE, now, _timeout("schedule_to_start"))]
    elif task.place is None and _due(task.ready_at, now):
        if task.state == State.RETRY_WAIT:
            task.state = move(task.state, Cause.RETRY)
        task.ready_at = None
        task.place = rounds.next(task.lane, task.fairness_key)
    task.wake_at = wake_at(task, hold_until)
    return [Change(task)]


def postpone(task: Task, now: int) -> list[Effect]:
    """A row that could not be decided upon: out of the way of the others for a minute. Its state stays."""
    task, now = own(task, now)
    task.wake_at = now + POSTPONED
    if task.state == State.ENQUEUED:
        task.place, task.ready_at = None, task.wake_at
        task.blocked_on = task.blocked_place = None
    return [Change(task)]


def abandon(task: Task, reason: str, now: int, mint: Mint, rounds: Rounds) -> list[Effect]:
    """The worker that holds the lease is gone: the lease ends now, not when its time is over."""
    task, now = own(task, now)
    return _lease_ended(task, reason, now, mint, rounds)


def _lease_ended(task: Task, reason: str, now: int, mint: Mint, rounds: Rounds) -> list[Effect]:
    """A lease ended without completion. Only receipt, or the third undelivered lease in a row, makes it an attempt."""
    if task.cancel_requested_at is not None:
        task.attempt += task.received
        return [close(task, Cause.FORCE, now)]
    if not task.received:
        task.lost_deliveries += 1
        if task.lost_deliveries <= LOST_DELIVERIES_FREE:
            return _hand_back(task, Cause.UNDELIVERED, "undelivered", now, rounds)
    failure = pack(Failure(message=f"the worker {task.worker} was lost: {reason}", code="lease_lost", type="LeaseLost"))
    return _attempt_failed(task, Cause.LOSE, "lost", now, mint, failure=failure)


def _hand_back(task: Task, cause: Cause, outcome: str, now: int, rounds: Rounds) -> list[Effect]:
    """Back to the front of the queue, no attempt spent; canceled instead, if that was asked for."""
    if task.cancel_requested_at is not None:
        return [close(task, Cause.YIELD, now)]
    noted = record(task, outcome, task.attempt + 1, now, None)
    task.state = move(task.state, cause)
    end_lease(task)
    task.place = rounds.front(task.lane)
    task.wake_at = wake_at(task)
    return [noted, Change(task)]


def _attempt_failed(
    task: Task, cause: Cause, outcome: str, now: int, mint: Mint, *, failure: bytes | None,
    type_: str = "", retryable: bool = True, wait: int | None = None,
) -> list[Effect]:  # fmt: skip
    """An attempt is spent: back-off if another one may follow, else FAILED (or CANCELED, when that was asked for)."""
    task.attempt += 1
    task.failure = failure
    if task.cancel_requested_at is not None:
        return [close(task, Cause.YIELD, now)]
    policy = retry_policy(task)
    if not retryable or task.attempt >= task.max_attempts or type_ in policy.fatal_types:
        return [close(task, Cause.EXHAUST, now)]
    ready_at = now + (backoff(policy, task.attempt, mint) if wait is None else wait)
    if task.deadline is not None and ready_at >= task.deadline:
        return [close(task, Cause.EXHAUST, now, _timeout("schedule_to_close", failure))]
    noted = record(task, outcome, task.attempt, now, failure)
    task.state = move(task.state, cause)
    end_lease(task)
    task.ready_at = ready_at
    task.wake_at = wake_at(task)
    return [noted, Change(task)]


def close(task: Task, cause: Cause, now: int, failure: bytes | None = None) -> Close | Delete:
    """The end of a task that this decision owns."""
    task.state = move(task.state, cause)
    task.failure = failure or (None if task.state == State.SUCCEEDED else task.failure)
    task.closed_at = now
    task.place = task.wake_at = None
    return Close(task) if task.kind in KEPT else Delete(task)


def end_lease(task: Task) -> None:
    task.session = task.poll = None
    task.lease_until = task.attempt_deadline = task.heartbeat_deadline = task.cancel_deadline = None
    task.lost_deliveries = 0 if task.received else task.lost_deliveries
    task.received = False


def record(task: Task, outcome: str, attempt: int, now: int, failure: bytes | None) -> Record:
    return Record(
        Attempt(
            task_id=task.id,
            lease_number=task.lease_number,
            attempt=attempt,
            outcome=outcome,
            worker=task.worker,
            started_at=task.attempt_started_at or now,
            finished_at=now,
            failure=failure,
        )
    )


def _timeout(which: str, cause: bytes | None = None) -> bytes:
    words = which.replace("_", "-")
    return pack(
        Failure(
            message=f"the {words} time-out is over",
            code=f"{which}_timeout",
            type="Timeout",
            cause=None if cause is None else unpack(cause, Failure),
        )
    )


def is_whole(task: Task) -> bool:
    """Whether callers may name it: it is no part of a run."""
    return task.kind in KEPT and task.kind is not Kind.GROUP


def own(task: Task, now: int) -> tuple[Task, int]:
    """A copy to change, and a `now` that is not before the row's last change."""
    task = copy(task)
    now = max(now, task.updated_at)
    task.updated_at = now
    return task, now


def _due(time: int | None, now: int) -> bool:
    return time is not None and time <= now


def _micros(duration: float | None) -> int | None:
    return None if duration is None else int(duration * SECOND)
