"""Every limit on what callers may send, and the checks; the same on all stores and interfaces.

A check raises InvalidArgument with the field, the limit and the kind of the value before anything is written.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from perdure.core import limit_messages as lm
from perdure.core import messages
from perdure.core.durations import MAX_SECONDS, seconds
from perdure.core.errors import InvalidArgument, PayloadTooLarge
from perdure.core.model import SECOND, Payloads, Progress, RetryPolicy, Timeouts

MAX_NAME = 255  #: bytes of UTF-8 of a namespace, queue, task type, app, key: three fit into one index entry
MAX_TEXT = 2_000  #: characters of an identity, a reason
MAX_PAYLOAD = 256 * 1024  #: bytes of a payload, result or checkpoint (TASK-11)
MAX_FAILURE = 64 * 1024  #: bytes of a failure as stored; longer messages and stacks are cut by the SDK
MAX_HEADERS = 16 * 1024  #: bytes
MAX_FATAL_TYPES = 100
MAX_DELAYS = 100  #: of a retry policy
MAX_CHUNK = 64 * 1024  #: bytes of a chunk of a stream
MAX_STREAM = 16 * 1024 * 1024  #: bytes of all chunks of a task
MAX_BATCH = 1_000  #: tasks of one enqueue request (TASK-06)
MAX_BODY = 16 * 1024 * 1024  #: bytes of a request body
MAX_HEAD = 64 * 1024  #: bytes of a URL and its headers
REQUEST_SECONDS = 60.0  #: for a request to arrive whole over HTTP, from its first byte or the connection's beginning
MAX_CAPACITY = 1_000  #: tasks of one poll
MAX_QUEUES = 100  #: queues of one poll
MAX_WAIT_SECONDS = 25.0  #: longest answer held back (JOB-14)
MAX_PAGE = 1_000
MAX_PRIORITY = 5
MAX_SLOTS = 1_000_000  #: of a limit, and of a task that takes some; starts of a rate
MAX_PERIOD = 31 * 86_400.0  #: seconds of a rate
RATE_FORM = 'a number of starts and a time, such as "10/s", "100/m" or "3/30s"'
MAX_CRASHES = 100  #: in a row that a breaker may wait for
MAX_ATTEMPTS = 1_000_000  #: that a failure rate may ask for
MAX_PROBES = 100
MIN_WINDOW = 1.0  #: seconds of a failure rate
MIN_COOL_DOWN = 0.1
MAX_WINDOW = 86_400.0  #: and the longest cool-down
MAX_GROUP = 100_000  #: calls of a group
MAX_GROUP_BYTES = 8 * 1024 * 1024  #: of all inputs of a group
MAX_MEMO = 32 * 1024  #: bytes of all values of a memo (names count too)
MAX_ATTRIBUTES = 100  #: search attributes of a run
MAX_ATTRIBUTE_TEXTS = 100  #: of a search attribute that is a list

_RATE = re.compile(r"(\d{1,7})/(\S+)", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def name(value: str, field: str, *, empty: bool = False, most: int = MAX_NAME) -> str:
    """A name: printable text, no NUL, no lone surrogate, no blank ends."""
    if type(value) is str and 0 < len(value) <= most and _is_plain(value):  # nearly all are
        return value
    limit = f"1 to {most} bytes of printable text"
    _is(value, str, field, limit)
    if not value and empty:
        return value
    if not value or len(value) > most:
        raise InvalidArgument(f"{field} has {len(value)} characters", field=field, limit=limit, kind="str")
    if not value.isprintable() or value != value.strip() or not encodable(value):
        raise InvalidArgument(f"{field} has characters that cannot be shown", field=field, limit=limit, kind="str")
    if (size := len(value.encode())) > most:
        raise InvalidArgument(f"{field} has {size} bytes", field=field, limit=limit, kind="str")
    return value


def _is_plain(value: str) -> bool:
    return value.isascii() and value.isprintable() and value[0] != " " and value[-1] != " "


def _is(value: object, kind: type | tuple[type, ...], field: str, limit: str) -> None:
    """Over the network a decoder has checked the types; a caller in this process may have passed anything."""
    if not isinstance(value, kind) or isinstance(value, bool):
        given = type(value).__name__
        raise InvalidArgument(f"{field} is a {given}", field=field, limit=limit, kind=given)


def encodable(value: str) -> bool:
    """False for text that UTF-8 cannot carry: lone surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def text(value: str, field: str, most: int = MAX_TEXT) -> str:
    """Free text such as a reason: no NUL, because PostgreSQL has none (field case B128)."""
    _is(value, str, field, "text")
    if len(value) > most or "\x00" in value or not encodable(value):
        raise InvalidArgument(
            f"{field} is too long or has a NUL", field=field, limit=f"{most} characters, no NUL", kind="str"
        )
    return value


def integer(value: int, field: str, least: int, most: int) -> int:
    if type(value) is int and least <= value <= most:
        return value
    _is(value, int, field, f"an integer from {least} to {most}")
    if not least <= value <= most:
        raise InvalidArgument(f"{field} is {value}", field=field, limit=f"{least} to {most}", kind="int")
    return value


def payload(value: Payloads, field: str, most: int = MAX_PAYLOAD) -> Payloads:
    """Payloads within the inline cap; metadata, and the frame of every item but the first, count too."""
    size = 8 * max(len(value) - 1, 0)
    for item in value:
        size += len(item.data)
        for key, text_ in item.metadata.items():
            size += (len(key) + len(text_)) * (1 if key.isascii() and text_.isascii() else 4)
    if size > most:
        raise PayloadTooLarge(f"{field} has {size} bytes", field=field, limit=f"{most} bytes", kind="bytes")
    return value


def headers(value: dict[str, str], field: str) -> dict[str, str]:
    _is(value, dict, field, "a map of text")
    size = 0
    for key, text_ in value.items():
        _is(key, str, field, "a map of text")
        _is(text_, str, f"{field}.{key}", "text")
        if not encodable(key) or not encodable(text_):
            raise InvalidArgument(
                f"{field} has text that UTF-8 cannot carry", field=field, limit="text that UTF-8 can carry", kind="str"
            )
        size += len(key.encode(errors="replace")) + len(text_.encode(errors="replace"))
    if size > MAX_HEADERS:
        raise PayloadTooLarge(f"{field} has {size} bytes", field=field, limit=f"{MAX_HEADERS} bytes")
    return value


def retry_policy(value: RetryPolicy, field: str = "retry") -> RetryPolicy:
    integer(value.max_attempts, f"{field}.max_attempts", 1, 10_000)
    for which in ("base", "factor", "cap"):
        _is(getattr(value, which), (int, float), f"{field}.{which}", "a number")
    seconds(value.base, f"{field}.base", least=0.001, most=86_400.0)
    if not 1 <= value.factor <= 100:  # nan is not either
        given = value.factor
        raise InvalidArgument(
            f"{field}.factor is {given!r}"[:100], field=f"{field}.factor", limit="1 to 100", kind="float"
        )
    seconds(value.cap, f"{field}.cap", least=value.base, most=31 * 86_400.0)
    limit = f"a tuple of at most {MAX_FATAL_TYPES} names"
    _is(value.fatal_types, (tuple, list), f"{field}.fatal_types", limit)
    if len(value.fatal_types) > MAX_FATAL_TYPES:
        given = len(value.fatal_types)
        raise InvalidArgument(f"{field}.fatal_types has {given} names", field=f"{field}.fatal_types", limit=limit)
    for type_ in value.fatal_types:
        name(type_, f"{field}.fatal_types")
    limit = f"a tuple of at most {MAX_DELAYS} numbers"
    _is(value.delays, (tuple, list), f"{field}.delays", limit)
    if len(value.delays) > MAX_DELAYS:
        given = len(value.delays)
        raise InvalidArgument(f"{field}.delays has {given} numbers", field=f"{field}.delays", limit=limit)
    for index, delay in enumerate(value.delays):
        _is(delay, (int, float), f"{field}.delays[{index}]", "a number")
        seconds(delay, f"{field}.delays[{index}]", least=0.001, most=31 * 86_400.0)
    return value


def breaker(value: lm.Breaker, field: str = "breaker") -> lm.Breaker:
    """It with its times in seconds."""
    _is(value, lm.Breaker, field, "a Breaker")
    if value.crashes is None and value.failure_rate is None:
        limit = "crashes, failure_rate or both"
        raise InvalidArgument(f"{field} says nothing of when it opens", field=f"{field}.crashes", limit=limit)
    if value.crashes is not None:
        integer(value.crashes, f"{field}.crashes", 1, MAX_CRASHES)
    if value.failure_rate is not None:
        limit = "more than 0, up to 1"
        _is(value.failure_rate, (int, float), f"{field}.failure_rate", limit)
        if not 0 < value.failure_rate <= 1:  # nan is not either
            text_ = f"{field}.failure_rate is {value.failure_rate!r}"[:100]
            raise InvalidArgument(text_, field=f"{field}.failure_rate", limit=limit, kind="float")
    integer(value.min_attempts, f"{field}.min_attempts", 1, MAX_ATTEMPTS)
    integer(value.probes, f"{field}.probes", 1, MAX_PROBES)
    return replace(
        value,
        window=seconds(value.window, f"{field}.window", least=MIN_WINDOW, most=MAX_WINDOW),
        cool_down=seconds(value.cool_down, f"{field}.cool_down", least=MIN_COOL_DOWN, most=MAX_WINDOW),
    )


def progress(value: Progress, field: str = "progress") -> Progress:
    """Numbers from 0 on, and a message for people."""
    numbers = {"done": value.done} if value.total is None else {"done": value.done, "total": value.total}
    for which, number in numbers.items():
        _is(number, (int, float), f"{field}.{which}", "a number from 0 on")
        if not 0 <= number <= 2**53:  # nan is not either
            raise InvalidArgument(f"{field}.{which} is {number!r}", field=f"{field}.{which}", limit="0 to 2**53")
    text(value.message, f"{field}.message")
    return value


def timeouts(value: messages.TimeoutOptions, field: str = "timeouts") -> Timeouts:
    """The parsed time-outs; each at least a millisecond."""

    def one(which: str, least: float = 0.001) -> float | None:
        given = getattr(value, which)
        return None if given is None else seconds(given, f"{field}.{which}", least=least)

    return Timeouts(
        schedule_to_start=one("schedule_to_start"),
        start_to_close=one("start_to_close"),
        schedule_to_close=one("schedule_to_close"),
        heartbeat=one("heartbeat"),
        lease=one("lease", least=1.0),
    )


def wait(value: float, field: str = "wait") -> float:
    return seconds(value, field, most=MAX_WAIT_SECONDS)


def microseconds(value: datetime, field: str) -> int:
    """A point in time; it must carry its zone and lie between 1970 and now plus ten years or so."""
    _is(value, datetime, field, "RFC 3339 with an offset")
    if value.tzinfo is None:
        raise InvalidArgument(
            f"{field} has no time zone", field=field, limit="RFC 3339 with an offset", kind="datetime"
        )
    moment = (value - _EPOCH) // timedelta(microseconds=1)
    if not 0 <= moment <= (4_102_444_800 + MAX_SECONDS) * SECOND:
        raise InvalidArgument(f"{field} is out of range", field=field, limit="1970 to 2110", kind="datetime")
    return moment


def new_task(item: messages.NewTask) -> None:
    """All checks of one item that need no clock; raises at the first fault."""
    name(item.type, "type")
    name(item.queue, "queue")
    name(item.app, "app")
    if item.idempotency_key is not None:
        name(item.idempotency_key, "idempotency_key")
    if item.fairness_key:
        name(item.fairness_key, "fairness_key")
    if item.concurrency_key:
        concurrency_key(item.concurrency_key)
    if item.singleton or item.throttle is not None or item.debounce:
        _pace(item)
    integer(item.priority, "priority", 1, MAX_PRIORITY)
    integer(item.weight, "weight", 1, MAX_SLOTS)
    payload(item.payload, "payload")
    if item.headers:
        headers(item.headers, "headers")
    if item.delay is not None and item.run_at is not None:
        raise InvalidArgument("delay and run_at exclude each other", field="run_at", limit="one of delay, run_at")
    if item.delay is not None:
        seconds(item.delay, "delay")
    if item.run_at is not None:
        microseconds(item.run_at, "run_at")
    if item.retry is not None:
        retry_policy(item.retry)
    if item.timeouts is not None:
        timeouts(item.timeouts)


def _pace(item: messages.NewTask) -> None:
    """At most one way to say how often it is done."""
    ways = {
        "singleton": item.singleton,
        "throttle": "" if item.throttle is None else item.throttle.key,
        "debounce": item.debounce,
    }
    given = [field for field in ways if ways[field] or (field == "throttle" and item.throttle is not None)]
    if len(given) > 1 or item.idempotency_key is not None or item.minted:
        text_ = f"{given[0]} excludes other keys"
        raise InvalidArgument(text_, field=given[0], limit="one of idempotency_key, singleton, throttle, debounce")
    name(ways[given[0]], "throttle.key" if item.throttle is not None else given[0])
    if item.throttle is not None:
        seconds(item.throttle.period, "throttle.period", least=0.001, most=MAX_PERIOD)
    if item.debounce and item.delay is None:
        raise InvalidArgument("debounce needs a delay", field="debounce", limit="with delay", kind="str")


def concurrency_key(value: str) -> str:
    """The key of a task: "name:value", or a name alone."""
    name(value, "concurrency_key")
    if value.startswith(":"):
        raise InvalidArgument(
            "concurrency_key begins with a colon", field="concurrency_key", limit="name:value", kind="str"
        )
    return value


def starts_of(value: str, field: str = "rate") -> tuple[int, int]:
    """(Starts, microseconds) of a rate."""
    found = _RATE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        given = type(value).__name__
        raise InvalidArgument(f"{field} is {value!r}"[:100], field=field, limit=RATE_FORM, kind=given)
    starts = integer(int(found[1]), field, 1, MAX_SLOTS)
    period = found[2] if found[2][0].isdigit() or found[2][0] == "P" else f"1{found[2]}"
    return starts, int(seconds(period, field, least=0.001, most=MAX_PERIOD) * SECOND)


def minted(value: bytes, key: str | None) -> bytes:
    """An id that a caller made, and no key beside it."""
    if key is not None:
        raise InvalidArgument("minted excludes idempotency_key", field="minted", limit="one of them", kind="bytes")
    return made_id(value, "minted")


def made_id(value: bytes, field: str) -> bytes:
    """An id that a caller made: 16 bytes with the version and variant of a UUIDv7."""
    _is(value, bytes, field, "16 bytes of a UUIDv7")
    if len(value) != 16 or value[6] >> 4 != 7 or value[8] >> 6 != 2:
        raise InvalidArgument(f"{field} is not a task id", field=field, limit="16 bytes of a UUIDv7", kind="bytes")
    return value


def choice(value: str, field: str, allowed: Collection[str]) -> str:
    """One of a few words."""
    limit = ", ".join(allowed)
    _is(value, str, field, limit)
    if value not in allowed:
        raise InvalidArgument(f"{field} is {value[:50]!r}", field=field, limit=limit, kind="str")
    return value


def memo(value: dict[str, Payloads], field: str = "memo") -> dict[str, Payloads]:
    """What a run carries for its readers: names and payloads."""
    _is(value, dict, field, "a map of payloads")
    size = 0
    for key, payloads in value.items():
        name(key, field)
        payload(payloads, f"{field}.{key}", MAX_MEMO)
        size += len(key.encode()) + sum(len(item.data) for item in payloads)
    if size > MAX_MEMO:
        raise PayloadTooLarge(f"{field} has {size} bytes", field=field, limit=f"{MAX_MEMO} bytes", kind="bytes")
    return value


def search_attributes(value: dict[str, Any], field: str = "search_attributes") -> dict[str, Any]:
    """Names and plain values: text, a 64-bit integer, a finite number, a truth value, or a list of texts."""
    _is(value, dict, field, "a map of values")
    if len(value) > MAX_ATTRIBUTES:
        raise InvalidArgument(f"{field} has {len(value)} names", field=field, limit=f"{MAX_ATTRIBUTES} names")
    for key, item in value.items():
        name(key, field)
        _attribute(item, f"{field}.{key}")
    return value


def _attribute(item: object, field: str) -> None:
    match item:
        case bool():
            return
        case str():
            text(item, field)
        case int() if -(2**63) <= item < 2**63:
            return
        case float() if math.isfinite(item):
            return
        case list() | tuple() if len(item) <= MAX_ATTRIBUTE_TEXTS and all(isinstance(part, str) for part in item):
            for part in item:
                text(part, field)
        case _:
            limit = f"text, a 64-bit integer, a finite number, true or false, or a list of {MAX_ATTRIBUTE_TEXTS} texts"
            raise InvalidArgument(f"{field} is {item!r}"[:100], field=field, limit=limit, kind=type(item).__name__)
