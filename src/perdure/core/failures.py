"""Dead letters: jobs and workflow runs that failed for good, and what is alike about them (RETRY-06).

A group is a number, made of what stays the same while the same thing goes wrong: the type of the task, the type of the
error, and its message without what differs each time. Nobody counts a group up: a closed row carries its number, and
counts come from the index of these numbers, so no failing task waits for another one.
"""

from __future__ import annotations

import hashlib
import re

import msgspec

from perdure.core.errors import InvalidArgument
from perdure.core.model import Failure, Task, unpack
from perdure.core.states import Kind, State

MAX_MESSAGE = 200
"""Characters of a normalized message."""
MAX_ERROR = 200
"""Characters of the type of an error, as it is stored."""
_READ = 2_000
"""Characters of a message that are looked at."""
_STATES = (State.FAILED, State.TIMED_OUT)
_KINDS = (Kind.JOB, Kind.WORKFLOW)
_MASK = 2**64 - 1

_VARIABLE = re.compile(
    r"""
      (?P<url>\b[a-z][a-z0-9+.-]*://[^\s'"`<>]+)
    | (?P<text>(?<!\w)'[^'\n]*'(?!\w) | "[^"\n]*" | `[^`\n]*`)
    | (?P<id>\b[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}\b)
    | (?P<path>(?<![\w/\\])(?:[a-z]:)?(?:[/\\][\w.@~+-]+)+[/\\]?)
    | (?P<hex>\b0x[0-9a-f]+\b | \b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,}\b)
    | (?P<n>\d+(?:[.,:]\d+)*)
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""What differs from one failure to the next although the same thing went wrong."""


class Fingerprint(msgspec.Struct, frozen=True):
    """What the dead letters of a group have in common: its number, the type of the error (its code where it has none),
    and the normalized message."""

    group: int
    error: str
    message: str


def is_dead(task: Task) -> bool:
    """Whether a task is a dead letter: a job or a workflow run that nothing but people will take up again."""
    return task.state in _STATES and task.kind in _KINDS


def fingerprint(task: Task) -> Fingerprint:
    """That of a dead letter. A failure that cannot be read (written by another version, say) is a group of its own."""
    try:
        failure = Failure(message="") if task.failure is None else unpack(task.failure, Failure)
    except (msgspec.DecodeError, UnicodeDecodeError):
        failure = Failure(message="the failure cannot be read", code="unreadable")
    kind = (failure.type or failure.code).replace("\0", "")[:MAX_ERROR]
    if task.failure is None:
        kind = task.state.name
    message = normalized(failure.message)
    digest = hashlib.blake2b(digest_size=8)
    for part in (task.type, kind, message):
        data = part.encode()
        digest.update(len(data).to_bytes(4, "big") + data)
    return Fingerprint(int.from_bytes(digest.digest(), "big", signed=True), kind, message)


def normalized(message: str) -> str:
    """A message in which what differs each time has a name instead: <n>, <hex>, <id>, <text>, <path>, <url>."""
    named = _VARIABLE.sub(lambda match: f"<{match.lastgroup}>", message[:_READ].replace("\0", ""))
    return " ".join(named.split())[:MAX_MESSAGE]


def group_text(group: int) -> str:
    """The number of a group as callers see it: 16 hexadecimal digits."""
    return f"{group & _MASK:016x}"


def parse_group(text: str, field: str = "failure_group") -> int:
    """The number that `group_text` wrote; InvalidArgument for other text."""
    if len(text) != 16 or not all(digit in "0123456789abcdef" for digit in text):
        raise InvalidArgument(f"{field} is {text[:50]!r}", field=field, limit="16 hexadecimal digits", kind="str")
    number = int(text, 16)
    return number - 2**64 if number >= 2**63 else number
