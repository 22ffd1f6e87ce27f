"""From what callers send to commands: every check, and the packed form that is stored."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from copy import copy
from typing import NamedTuple

import msgspec

from perdure.core import commands as c
from perdure.core import keys, limits
from perdure.core import messages as m
from perdure.core.durations import Duration, seconds
from perdure.core.errors import InvalidArgument, PayloadTooLarge, PerdureError
from perdure.core.ids import Mint, parse_lease, slots_under
from perdure.core.lanes import lane
from perdure.core.model import DEFAULT_RETRY, SECOND, Failure, Task, pack
from perdure.core.states import State

KEY_LIFE = 24 * 3600 * SECOND
"""How long a customer's idempotency key finds its task (IDEM-02)."""
MAX_TEMPLATES = 1_000
"""Checked names that are kept."""
MAX_CAUSES = 100
"""Links of a chain of failures: what is nested deeper can be written but not always be read."""

_canonical = msgspec.msgpack.Encoder(order="deterministic").encode


class _Template(NamedTuple):
    """A command to copy for each item, and the slots of keys in its app."""

    command: c.Enqueue
    slot_of: Callable[[str], int]


class Draftsman:
    """Makes Enqueue commands of one namespace. `enqueue` raises at the first fault of an item."""

    def __init__(self, namespace: str, mint: Mint) -> None:
        self._namespace = namespace
        self._mint = mint
        self._templates: dict[tuple[str, str, str, str, str, int, int], _Template] = {}

    def enqueue(self, item: m.NewTask, identity: str, now: int) -> c.Enqueue:
        """The command for one item. Its id is made here, so that it stays the same over all tries to commit it; that
        of a keyed item carries the slot of its key, so that repeats meet where the first one was written (IDEM-03)."""
        if item.retry is None and item.timeouts is None and item.delay is None and item.run_at is None:
            template = self._plain(item)
        else:
            template = self._template(item)
        payload = packed(limits.payload(item.payload, "payload"), "payload")
        command = copy(template.command)
        command.size = len(payload)
        draft = command.draft = copy(template.command.draft)
        draft.payload = payload
        draft.identity = identity
        if item.headers:
            draft.headers = packed(limits.headers(item.headers, "headers"), "headers")
            command.size += len(draft.headers)
        key = item.idempotency_key
        if (pace := _pace(item)) is not None:
            limits.new_task(item)
            command.key_kind, command.key, command.key_life = pace
            command.task_id = self._mint.task_id(now, template.slot_of(command.key))
        elif item.minted:
            command.task_id = limits.minted(item.minted, key)
            command.minted = True
        elif key is None:
            command.task_id = self._mint.task_id(now)
        else:
            limits.name(key, "idempotency_key")
            command.task_id = self._mint.task_id(now, template.slot_of(key))
            command.key = draft.idempotency_key = key
            command.key_life = KEY_LIFE
            command.digest = digest(item)
        return command

    def _plain(self, item: m.NewTask) -> _Template:
        """The template of an item without times and policies, kept: items with the same names share it."""
        names = (item.type, item.queue, item.app, item.fairness_key, item.concurrency_key, item.priority, item.weight)
        try:
            found = self._templates.get(names)
        except TypeError:  # something that no name can be: the checks say what
            return self._template(item)
        if found is None:
            if len(self._templates) >= MAX_TEMPLATES:
                self._templates.clear()
            found = self._templates[names] = self._template(item)
        return found

    def _template(self, item: m.NewTask) -> _Template:
        """What does not depend on payload, headers and key of an item, checked."""
        limits.new_task(item)
        draft = Task(
            b"", self._namespace, item.type, State.ENQUEUED, lane(self._namespace, item.queue), 0, 0,
            app=item.app, queue=item.queue, priority=item.priority, fairness_key=item.fairness_key,
            max_attempts=DEFAULT_RETRY.max_attempts, concurrency_key=item.concurrency_key or None, weight=item.weight,
        )  # fmt: skip
        command = c.Enqueue(draft=draft)
        if item.retry is not None:
            draft.retry_policy = pack(item.retry)
            draft.max_attempts = item.retry.max_attempts
        if item.delay is not None:
            command.delay = micros(item.delay, "delay")
        if item.run_at is not None:
            draft.run_at = limits.microseconds(item.run_at, "run_at")
        if item.timeouts is not None:
            _limit(command, item.timeouts)
        return _Template(command, slots_under(self._namespace, item.app))


def _pace(item: m.NewTask) -> tuple[str, str, int] | None:
    """Kind, name and life (microseconds) of the key that says how often a task is done; checked later."""
    if item.singleton:
        return keys.SINGLETON, item.singleton, 0
    if item.throttle is not None:
        return keys.THROTTLE, item.throttle.key, micros(item.throttle.period, "throttle.period")
    if item.debounce:
        return keys.DEBOUNCE, item.debounce, KEY_LIFE
    return None


def _limit(command: c.Enqueue, given: m.TimeoutOptions) -> None:
    times = limits.timeouts(given)
    command.draft.timeouts = pack(times)
    if times.lease is not None:
        command.draft.lease_length = int(times.lease * SECOND)
    if times.schedule_to_start is not None:
        command.schedule_to_start = int(times.schedule_to_start * SECOND)
    if times.schedule_to_close is not None:
        command.schedule_to_close = int(times.schedule_to_close * SECOND)


def digest(item: m.NewTask) -> bytes:
    """What makes two items with one key the same: all of the item but the key, and its trace (IDEM-15)."""
    headers = {name: value for name, value in item.headers.items() if name not in m.TRACE_HEADERS}
    body = msgspec.structs.replace(item, idempotency_key=None, headers=headers)
    return hashlib.blake2b(_canonical(body), digest_size=16).digest()


def packed(value: object, field: str) -> bytes:
    """The stored form of something that the caller wrote. Only an embedded caller can fail here: nothing that came over
    the network holds text that UTF-8 cannot carry."""
    try:
        return pack(value)
    except (TypeError, ValueError, OverflowError) as fault:
        raise InvalidArgument(f"{field} cannot be encoded: {fault}", field=field, kind=type(value).__name__) from None


def heartbeat(beat: m.Beat) -> c.Heartbeat:
    command = c.Heartbeat(lease=parse_lease(beat.lease))
    _carry(command, beat)
    return command


def completion(item: m.Completion) -> c.Complete:
    lease = parse_lease(item.lease)
    if item.outcome not in c.OUTCOMES:
        limit = ", ".join(c.OUTCOMES)
        raise InvalidArgument(f"outcome is {item.outcome[:50]!r}", field="outcome", limit=limit, kind="str")
    command = c.Complete(lease=lease, outcome=item.outcome)
    if item.outcome == "succeeded":
        command.result = packed(limits.payload(item.result, "result"), "result")
        command.size = len(command.result)
    failure = item.failure
    if failure is not None:
        command.failure = failure_data(failure)
        command.failure_type = failure.type
        command.retryable = failure.retryable
        command.size += len(command.failure)
    elif item.outcome == "failed":
        raise InvalidArgument("a failed attempt needs a failure", field="failure", kind="null")
    if item.retry_after is not None:
        command.retry_after = micros(item.retry_after, "retry_after")
    _carry(command, item)
    return command


def _carry(command: c.Heartbeat | c.Complete, item: m.Beat | m.Completion) -> None:
    """Take over what rides on both."""
    if item.progress is not None:
        command.progress = packed(limits.progress(item.progress), "progress")
        command.size += len(command.progress)
    if item.checkpoint is not None:
        command.checkpoint = packed(limits.payload(item.checkpoint, "checkpoint"), "checkpoint")
        command.size += len(command.checkpoint)


def failure_data(failure: Failure) -> bytes:
    """A failure as it is stored; not too large, and not too deep to be read again."""
    data = packed(failure, "failure")
    if len(data) > limits.MAX_FAILURE:
        raise PayloadTooLarge(f"failure has {len(data)} bytes", field="failure", limit=f"{limits.MAX_FAILURE} bytes")
    depth, cause = 0, failure.cause
    while cause is not None:
        depth, cause = depth + 1, cause.cause
    if depth > MAX_CAUSES:
        raise InvalidArgument(f"failure has {depth} causes", field="failure.cause", limit=f"{MAX_CAUSES} causes")
    return data


def at(error: PerdureError, where: str) -> PerdureError:
    """The error of a part of a request, its field named from the top."""
    error.field = where if error.field is None else f"{where}.{error.field}"
    return error


def micros(value: Duration, field: str) -> int:
    """A duration as it is stored."""
    return int(seconds(value, field) * SECOND)
