"""Search attributes as databases compare them: each value is a few bytes whose order is that of the values.

So one column and one index serve all types, and both databases and the reference store compare alike. The first byte
tells what the rest is, from the value alone: which type a name was registered with is known only when somebody asks.
A text stands there as it is; besides, as a time if it reads as one, and by its words for searches in texts. Numbers are
doubles: whole ones beyond 2**53 are found by what a double makes of them.
"""

from __future__ import annotations

import hashlib
import math
import re
import struct
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

MAX_TEXT_KEY = 255
"""Bytes of the key of a text. A longer one is cut and ends with a digest: equality stays exact, and its order and its
prefixes go by the first MAX_PREFIX bytes."""
MAX_PREFIX = 222
MAX_WORDS = 100
"""Different words of a text that it is found by."""

_TEXT, _NUMBER, _BOOL, _TIME, _WORD = b"s", b"n", b"b", b"t", b"w"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_MARKS = "\"'.,;:!?()[]{}<>"


def entries(attributes: Mapping[str, Any]) -> list[tuple[str, bytes]]:
    """What a run is found by: names and keys, each once and in order."""
    return sorted({(name, key) for name, value in attributes.items() for key in keys(value)})


def keys(value: object) -> list[bytes]:
    """All keys of the value of an attribute; none for what no attribute can have."""
    match value:
        case bool():
            return [truth(value)]
        case int() | float():
            return [number(value)]
        case str():
            moment = moment_of(value)
            parts = words(value)
            found = [text(value)] if moment is None else [text(value), time(moment)]
            return found + ([] if parts == [value] else [_WORD + _cut(part) for part in parts])
        case list() | tuple():
            return [text(part) for part in value if isinstance(part, str)]
        case _:
            return []


def text(value: str) -> bytes:
    return _TEXT + _cut(value)


def word(value: str) -> tuple[bytes, bytes]:
    """The keys one of which a text has that holds a word: of a text that is nothing else, and of any other."""
    return _TEXT + _cut(value), _WORD + _cut(value)


def words(value: str) -> list[str]:
    """The different words of a text, without punctuation around them, the same for capitals and others."""
    found = (part.strip(_MARKS) for part in value.casefold().split())
    return list(dict.fromkeys(part for part in found if part))[:MAX_WORDS]


def number(value: float) -> bytes:
    """Bytes in the order of the numbers."""
    (bits,) = struct.unpack(">Q", struct.pack(">d", _double(value) + 0.0))  # -0.0 is 0.0
    return _NUMBER + struct.pack(">Q", bits ^ (0xFFFF_FFFF_FFFF_FFFF if bits >> 63 else 1 << 63))


def truth(value: bool) -> bytes:
    return _BOOL + bytes([value])


def time(moment: int) -> bytes:
    """Of microseconds since the epoch."""
    return _TIME + struct.pack(">Q", moment + (1 << 63))


def prefix(value: str) -> tuple[bytes, bytes]:
    """The first key of texts that begin so, and the first one behind all of them."""
    low = _TEXT + value.encode()
    return low, low + b"\xff"  # no UTF-8 holds that byte


def moment_of(value: str) -> int | None:
    """Microseconds since the epoch of a date and time in RFC 3339; None for other text."""
    if not _MOMENT.fullmatch(value):
        return None
    try:
        return (datetime.fromisoformat(value) - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError):  # the thirtieth of February
        return None


def _double(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _cut(value: str) -> bytes:
    data = value.encode()
    if len(data) < MAX_TEXT_KEY:
        return data
    return data[:MAX_PREFIX] + hashlib.blake2b(data, digest_size=32).digest()
