"""Every check of what workers append to histories. What a field may hold goes by its name, the same in all commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from perdure.api.drafts import at, failure_data
from perdure.core import limits
from perdure.core.cron import check_cron
from perdure.core.durations import MAX_SECONDS
from perdure.core.errors import InvalidArgument, PerdureError
from perdure.core.model import Failure, Payloads, RetryPolicy
from perdure.core.turn_commands import (
    CompleteStep,
    KeptSignal,
    StartStep,
    TurnCommand,
    UpsertSearchAttributes,
)

MAX_COMMANDS = 10_000
"""Of one append."""
PARENT_CLOSE_POLICIES = ("terminate", "request_cancel", "abandon")
GROUP_POLICIES = ("fail_fast", "collect")
ID_REUSE = ("allow_duplicate", "allow_duplicate_failed_only", "reject_duplicate")
_BYTES = 60  #: of a command besides what its caller wrote, more or less
_MAX_NUMBER = 2**53


def checked(commands: Sequence[TurnCommand]) -> int:
    """About how many bytes they take in the history. Raises at the first fault, which is named by its place."""
    limits.integer(len(commands), "commands", 0, MAX_COMMANDS)
    size = 0
    for index, command in enumerate(commands):
        try:
            size += _BYTES + _checked(command)
        except PerdureError as error:
            raise at(error, f"commands[{index}]") from None
    return size


def _checked(command: TurnCommand) -> int:
    match command:
        case StartStep():  # these two are nearly all that ever comes, so they are not looked at field by field
            return (
                _number(command.step_id, "step_id") + _number(command.attempt, "attempt") + _name(command.name, "name")
            )
        case CompleteStep():
            return _number(command.step_id, "step_id") + _payload(command.result, "result")
        case UpsertSearchAttributes(search_attributes=dict() as changes):  # None takes one away
            kept = {name: "" if value is None else value for name, value in changes.items()}
            return _attributes(kept, "search_attributes")
    checks = _FIELDS.get(type(command))
    if checks is None:
        kind = type(command).__name__
        raise InvalidArgument(f"{kind} is no command", field="", limit="one of the turn commands", kind=kind)
    size = 0
    for field, check in checks:
        value = getattr(command, field)
        if value is not None:
            size += check(value, field)
    return size


def _name(value: str, field: str) -> int:
    return len(limits.name(value, field))


def _may_be_empty(value: str, field: str) -> int:
    return len(limits.name(value, field, empty=True))


def _signals(value: tuple[KeptSignal, ...], field: str) -> int:
    return sum(_name(one.name, field) + _payload(one.input, field) for one in value)


def _flag(value: bool, field: str) -> int:
    return 1


def _cron(value: str, field: str) -> int:
    return len(check_cron(limits.name(value, field), field)) if value else 0


def _text(value: str, field: str) -> int:
    return len(limits.text(value, field))


def _id(value: bytes, field: str) -> int:
    limits.made_id(value, field)
    return 0


def _run_id(value: bytes, field: str) -> int:
    if value != b"" and len(value) != 16:
        raise InvalidArgument(f"{field} has {len(value)} bytes", field=field, limit="16 bytes, or none", kind="bytes")
    return 0


def _number(value: int, field: str) -> int:
    limits.integer(value, field, 0, _MAX_NUMBER)
    return 0


def _seconds(value: float, field: str) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= MAX_SECONDS:
        kind = type(value).__name__
        raise InvalidArgument(f"{field} is {value!r}"[:100], field=field, limit=f"0 to {MAX_SECONDS:g} s", kind=kind)
    return 0


def _payload(value: Payloads, field: str) -> int:
    return sum(len(item.data) for item in limits.payload(value, field))


def _inputs(value: list[Payloads], field: str) -> int:
    if not isinstance(value, list):  # a caller in this process may have passed anything
        raise InvalidArgument(f"{field} are no list", field=field, limit="a list", kind=type(value).__name__)
    limits.integer(len(value), field, 1, limits.MAX_GROUP)
    size = 0
    for index, one in enumerate(value):
        size += _payload(one, f"{field}[{index}]")
    if size > limits.MAX_GROUP_BYTES:
        limit = f"{limits.MAX_GROUP_BYTES} bytes in all"
        raise InvalidArgument(f"{field} have {size} bytes", field=field, limit=limit, kind="bytes")
    return size + _BYTES * len(value)


def _headers(value: dict[str, str], field: str) -> int:
    return sum(map(len, limits.headers(value, field).values())) if value else 0


def _memo(value: dict[str, Payloads], field: str) -> int:
    return sum(len(item.data) for payloads in limits.memo(value, field).values() for item in payloads)


def _details(value: dict[str, Payloads], field: str) -> int:
    """Of a marker: as large as a payload in all."""
    size = 0
    for key, payloads in value.items():
        size += _name(key, field) + _payload(payloads, f"{field}.{key}")
    if size > limits.MAX_PAYLOAD:
        raise InvalidArgument(f"{field} has {size} bytes", field=field, limit=f"{limits.MAX_PAYLOAD} bytes")
    return size


def _attributes(value: dict[str, Any], field: str) -> int:
    return _BYTES * len(limits.search_attributes(value, field))


def _retry(value: RetryPolicy, field: str) -> int:
    limits.retry_policy(value, field)
    return 0


def _failure(value: Failure, field: str) -> int:
    return len(failure_data(value))


def _priority(value: int, field: str) -> int:
    limits.integer(value, field, 1, limits.MAX_PRIORITY)
    return 0


def _weight(value: int, field: str) -> int:
    limits.integer(value, field, 1, limits.MAX_SLOTS)
    return 0


def _concurrency_key(value: str, field: str) -> int:
    return len(limits.concurrency_key(value)) if value else 0


def _policy(value: str, field: str) -> int:
    limits.choice(value, field, PARENT_CLOSE_POLICIES)
    return 0


def _group_policy(value: str, field: str) -> int:
    limits.choice(value, field, GROUP_POLICIES)
    return 0


def _window(value: int, field: str) -> int:
    limits.integer(value, field, 0, limits.MAX_GROUP)
    return 0


def _reuse(value: str, field: str) -> int:
    limits.choice(value, field, ID_REUSE)
    return 0


_Check = Callable[[Any, str], int]
_CHECKS: dict[str, _Check] = {
    **dict.fromkeys(
        (
            "activity_id", "activity_type", "task_queue", "timer_id", "name", "marker_name", "workflow_type",
            "workflow_id", "signal_name", "update_id", "group_id",
        ),
        _name,
    ),
    **dict.fromkeys(
        ("schedule_to_start", "start_to_close", "schedule_to_close", "heartbeat", "start_to_fire", "retry_in",
         "execution_timeout", "run_timeout"),
        _seconds,
    ),
    **dict.fromkeys(
        ("scheduled_event_id", "started_event_id", "accepted_event_id", "sequencing_event_id", "step_id", "attempt"),
        _number,
    ),
    "input": _payload,
    "result": _payload,
    "header": _headers,
    "memo": _memo,
    "search_attributes": _attributes,
    "task_id": _id,
    "run_id": _run_id,
    "identity": _text,
    "reason": _text,
    "cron": _cron,
    "retry": _retry,
    "failure": _failure,
    "priority": _priority,
    "weight": _weight,
    "concurrency_key": _concurrency_key,
    "parent_close_policy": _policy,
    "id_reuse": _reuse,
    "held": _flag,
    "inputs": _inputs,
    "policy": _group_policy,
    "window": _window,
    "signals": _signals,
}  # fmt: skip
_OTHERWISE: dict[tuple[str, str], _Check] = {
    ("RecordMarker", "details"): _details,
    ("CancelWorkflow", "details"): _payload,
    ("ContinueAsNew", "workflow_type"): _may_be_empty,
    ("ContinueAsNew", "task_queue"): _may_be_empty,
}
"""Fields that hold something else than those of their name elsewhere."""


def _fields(command: type[msgspec.Struct]) -> tuple[tuple[str, _Check], ...]:
    """A field that nobody thought of is an error when this module is loaded."""
    return tuple(
        (field, _OTHERWISE.get((command.__name__, field)) or _CHECKS[field]) for field in command.__struct_fields__
    )


_FIELDS = {command: _fields(command) for command in TurnCommand.__args__}
