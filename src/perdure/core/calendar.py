"""When a schedule goes off, in microseconds since the epoch: its nominal times.

An interval counts elapsed time from the epoch on, so it has no clock and no zone. Cron expressions and calendars are
about the clock of a time zone, and that clock jumps twice a year:

    gap        local times that do not exist because the clock is put forward:
               "after"   such a time fires at the first instant after the gap
               "skip"    it does not fire
    repeated   local times that come twice because the clock is put back:
               "first", "second", or "both"

What is fired at certain hours goes off exactly once on each such day unless told otherwise ("after", "first"); what
names no hours, or all of them, goes by real time ("skip", "both"). Two local times that are the same instant are one
nominal time. Nominal times rise strictly: `next_after(timing, t)` is always above `t` (field case B063).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice
from zoneinfo import ZoneInfo

import msgspec

from perdure.core.cron import Cron, parse
from perdure.core.errors import InvalidArgument
from perdure.core.model import SECOND

GAPS = ("after", "skip")
REPEATED = ("first", "second", "both")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_ONE = timedelta(seconds=1)
_NOT_THE_SAME_EVERYWHERE = ("localtime", "posix/", "posixrules", "right/")
_ZONE = "a name of the time zone database, such as Europe/Berlin"


class Timing(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One of `cron`, `calendar` (six fields of which a time must match all) and `interval`. Times and lengths are
    microseconds. `gap` and `repeated` are empty for what the module's head says."""

    cron: str = ""
    calendar: str = ""
    interval: int = 0
    phase: int = 0  #: of an interval: how long after its whole multiples
    timezone: str = "UTC"
    gap: str = ""
    repeated: str = ""
    start_at: int | None = None  #: no time before it
    end_at: int | None = None  #: no time after it
    jitter: int = 0  #: a firing is later than its nominal time by up to so much


def next_after(timing: Timing, after: int) -> int | None:
    """The first nominal time after `after`; None when there is none any more."""
    if timing.start_at is not None:
        after = max(after, timing.start_at - 1)
    if timing.interval:
        count = (after - timing.phase) // timing.interval + 1
        found: int | None = count * timing.interval + timing.phase
    else:
        found = _next_local(timing, after)
    return None if found is None or (timing.end_at is not None and found > timing.end_at) else found


def upcoming(timing: Timing, after: int, count: int) -> list[int]:
    """At most `count` nominal times after `after`."""
    return list(islice(_times(timing, after), count))


def _times(timing: Timing, after: int) -> Iterator[int]:
    at = next_after(timing, after)
    while at is not None:
        yield at
        at = next_after(timing, at)


def latest(timing: Timing, after: int, until: int) -> int:
    """The last nominal time not after `until`, given one (`after`) that is not after it either. By halving, because
    millions of them may lie between."""
    back = SECOND
    while until - back > after:
        found = next_after(timing, until - back)
        if found is not None and found <= until:
            after = found
            break
        back *= 2
    end = until  # no nominal time lies in (end, until]
    while after < end:
        found = next_after(timing, after)
        if found is None or found > until:
            break
        after = found
        middle = (after + end) // 2
        found = next_after(timing, middle)
        if found is not None and found <= until:
            after = found
        else:
            end = middle
    return after


def missed_in_gap(timing: Timing, after: int, before: int) -> int | None:
    """The first instant between two nominal times at which a firing would have been if its policy were not to skip
    what falls into a gap."""
    if timing.gap != "skip" or timing.interval:
        return None
    found = next_after(msgspec.structs.replace(timing, gap="after"), after)
    return found if found is not None and found < before else None


# --------------------------------------------------------------------------------------------------------- time zones
@lru_cache(maxsize=1024)
def zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


def check_zone(name: str, field: str) -> str:
    """The name; InvalidArgument when the time zone database has none of it. What means another zone on another machine
    is none."""
    try:
        if not isinstance(name, str) or not name.isascii() or name.startswith(_NOT_THE_SAME_EVERYWHERE):
            raise ValueError
        zone(name)
    except (ValueError, OSError, LookupError):
        detail = f"{field} is {name!r}"[:100] + ", which is no time zone"
        raise InvalidArgument(detail, field=field, limit=_ZONE, kind=type(name).__name__) from None
    return name


def clock(at: int, where: ZoneInfo) -> datetime:
    """What the clock of a zone shows."""
    return (_EPOCH + at * _MICROSECOND).astimezone(where)


def instant(moment: datetime) -> int:
    """Microseconds; `moment` has its zone."""
    return (moment - _EPOCH) // _MICROSECOND


def stamp(at: int) -> str:
    """RFC 3339 in UTC: the same text for the same instant."""
    return (_EPOCH + at * _MICROSECOND).isoformat().replace("+00:00", "Z")


def _next_local(timing: Timing, after: int) -> int | None:
    """The first time after an instant at which the clock shows a matching time."""
    cron = parse(timing.cron) if timing.cron else parse(timing.calendar, all_fields=True)
    gap = timing.gap or ("skip" if cron.every_hour else "after")
    repeated = timing.repeated or ("both" if cron.every_hour else "first")
    where = zone(timing.timezone)
    shown = clock(after, where)
    local = shown.replace(tzinfo=None, fold=0)
    again = None
    overlap = _overlap(local, where)
    if overlap is not None and shown.fold == 0 and repeated != "first":  # all of it comes once more
        again = _in_second_pass(cron, overlap, where)
    if overlap is not None and shown.fold == 1 and repeated == "first":
        local = overlap[1] - _ONE
    found = _first(cron, local, after, where, gap, repeated)
    return min((at for at in (again, found) if at is not None), default=None)


def _first(cron: Cron, local: datetime, after: int, where: ZoneInfo, gap: str, repeated: str) -> int | None:
    """The first instant after `after` of the matching times that a clock shows after `local`."""
    match = cron.after(local)
    while match is not None:
        first, second = (instant(match.replace(tzinfo=where, fold=fold)) for fold in (0, 1))
        if first > second:  # it does not exist: `fold` says by which of the two offsets it is read
            over = _change(second, first, where)
            if gap == "after":
                return over
            match = cron.at_or_after(clock(over, where).replace(tzinfo=None, fold=0))
            continue
        times = {"first": (first,), "second": (second,), "both": (first, second)}[repeated]
        at = min((at for at in times if at > after), default=None)
        if at is not None:
            return at
        match = cron.after(match)
    return None


def _overlap(local: datetime, where: ZoneInfo) -> tuple[datetime, datetime] | None:
    """Start and end of the local times that come twice, if this is one of them."""
    first, second = (instant(local.replace(tzinfo=where, fold=fold)) for fold in (0, 1))
    if first >= second:
        return None
    over = _change(first, second, where)
    start = clock(over, where).replace(tzinfo=None, fold=0)
    return start, start + (second - first) * _MICROSECOND


def _in_second_pass(cron: Cron, overlap: tuple[datetime, datetime], where: ZoneInfo) -> int | None:
    match = cron.at_or_after(overlap[0])
    if match is None or match >= overlap[1]:
        return None
    return instant(match.replace(tzinfo=where, fold=1))


def _change(start: int, end: int, where: ZoneInfo) -> int:
    """The instant between these two at which the clock jumps: the first whole second with another offset than at the
    start."""
    low, high = start // SECOND, -(-end // SECOND)
    offset = clock(start, where).utcoffset()
    while high - low > 1:
        middle = (low + high) // 2
        if clock(middle * SECOND, where).utcoffset() == offset:
            low = middle
        else:
            high = middle
    return high * SECOND
