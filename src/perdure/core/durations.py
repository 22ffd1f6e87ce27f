"""Durations as people write them: read in full, or refused.

Accepted: a number of seconds, the same as text, a sum of parts with the units ms, s, m, h, d, w ("1h30m", "42m30s"),
and ISO 8601 ("PT1H30M"). Anything else is an InvalidArgument that names the field; nothing is ever read as a shorter
time (field case B047).
"""

from __future__ import annotations

import math
import re
from datetime import timedelta

import msgspec

from perdure.core.errors import InvalidArgument

Duration = float | int | str
"""Seconds, or text in one of the forms of this module."""

MAX_SECONDS = 10 * 366 * 86_400.0
"""Longest duration accepted anywhere: ten years (field case B046)."""
MAX_CHARACTERS = 100  #: of a duration as text

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)", re.ASCII)
_WHOLE = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d|w))+", re.ASCII)
_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)


def seconds(value: Duration, field: str, *, least: float = 0.0, most: float = MAX_SECONDS) -> float:
    """`value` in seconds; InvalidArgument names `field` when it is not a duration between `least` and `most`."""
    limit = f"{least:g} to {most:g} seconds"
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise InvalidArgument(f"{field} is not a duration", field=field, limit=limit, kind=type(value).__name__)
    number = _parse(value, field) if isinstance(value, str) else value
    if isinstance(number, int) and abs(number) > 2**53:
        raise InvalidArgument(f"{field} is out of range", field=field, limit=limit, kind="int")
    if not math.isfinite(number) or not least <= number <= most:
        raise InvalidArgument(
            f"{field} is out of range: {number!r}", field=field, limit=limit, kind=type(value).__name__
        )
    return float(number)


def _parse(text: str, field: str) -> float:
    if len(text) > MAX_CHARACTERS:
        raise _unreadable(text[:MAX_CHARACTERS] + "...", field)
    if _NUMBER.fullmatch(text):
        return float(text)
    if _WHOLE.fullmatch(text):
        return sum(float(amount) * _UNITS[unit] for amount, unit in _PART.findall(text))
    if text.startswith("P"):
        try:
            return msgspec.convert(text, timedelta).total_seconds()
        except msgspec.ValidationError:
            raise _unreadable(text, field) from None
    raise _unreadable(text, field)


def _unreadable(text: str, field: str) -> InvalidArgument:
    return InvalidArgument(
        f'{field} is not a duration: {text!r}; write seconds, "1h30m" or "PT1H30M"',
        field=field,
        limit='seconds, "1h30m" or "PT1H30M"',
        kind="str",
    )
