"""Cron expressions: what is accepted, and the next time that one matches. Only this module knows cronsim.

Five fields (minute, hour, day of the month, month, day of the week), six with seconds before them, or a nickname such
as @daily. Names of months and days, L, LW and # are those of cronsim. As in Debian's cron a day must match both fields
of days if one of them begins with a star, and either of them otherwise. Times have no zone here: calendar.py maps those
of a clock to instants. What would never come, and what cronsim would read as something else, is refused with the
reason.
"""

from __future__ import annotations

from copy import copy
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from cronsim import CronSim, CronSimError

from perdure.core.errors import InvalidArgument
from perdure.core.model import SECOND

LIMIT = "five fields: minute, hour, day of the month, month, day of the week; or six, with seconds first"
MAX_CHARACTERS = 255  #: of an expression

_NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_FIELDS = (("second", 60), ("minute", 60), ("hour", 24), ("day-of-month", 31), ("month", 12), ("day-of-week", 7))
_START = datetime(2026, 1, 1)
_ONE = timedelta(seconds=1)


class Cron:
    """A parsed expression."""

    __slots__ = ("_sim", "every_hour")

    def __init__(self, sim: CronSim, every_hour: bool) -> None:
        self._sim = sim
        self.every_hour = every_hour  #: it names no certain hours, or all of them

    def after(self, local: datetime) -> datetime | None:
        """The first matching time after `local`; both show a clock and have no zone. None: there is none in 50
        years."""
        sim = copy(self._sim)
        sim.dt = local.replace(microsecond=0)
        return next(sim, None)

    def at_or_after(self, local: datetime) -> datetime | None:
        return self.after(local - _ONE)


@lru_cache(maxsize=4096)
def parse(expression: str, *, all_fields: bool = False) -> Cron:
    """ValueError, which says why, when it is none. With `all_fields` a day must match both fields of days."""
    text = " ".join(expression.split())
    if not text.isascii():
        raise ValueError("it has characters that no field can have")
    if text.startswith("@"):
        text = _NICKNAMES.get(text.lower(), "")
        if not text:
            raise ValueError(_why_not(expression))
    parts = text.upper().split()
    _check_steps(parts)
    try:
        sim = CronSim(text, _START)
    except CronSimError as error:
        raise ValueError(str(error)) from None
    sim.day_and = sim.day_and or all_fields
    hour = parts[-4]
    found = Cron(sim, hour.startswith("*") or len(sim.hours) == 24)
    if found.after(_START) is None:
        raise ValueError("it never fires")
    return found


def _why_not(nickname: str) -> str:
    if nickname.lower() == "@reboot":
        return "nothing here reboots: start a task when your program starts"
    if nickname.lower().startswith("@every"):
        return 'an interval is no cron expression: give interval="5m"'
    return f"there is no such nickname; there are {', '.join(_NICKNAMES)}"


def _check_steps(parts: list[str]) -> None:
    """A step that the field cannot take even once means something else than what would be done."""
    for part, (name, size) in zip(parts, _FIELDS[-len(parts) :], strict=False):
        for term in part.split(","):
            start, slash, step = term.partition("/")
            if slash and start in ("L", "LW"):
                raise ValueError(f"Bad {name}: {start} takes no step")
            if slash and step.isascii() and step.isdigit() and int(step[:9]) > size:
                raise ValueError(f"Bad {name}: a step of {step[:9]} is longer than the field's {size} values")


def check_cron(expression: str, field: str, *, all_fields: bool = False) -> str:
    """The expression; InvalidArgument when it is none, or never goes off."""
    if not isinstance(expression, str):
        kind = type(expression).__name__
        raise InvalidArgument(f"{field} is a {kind}", field=field, limit=LIMIT, kind=kind)
    if len(expression) > MAX_CHARACTERS:
        detail = f"{field} has {len(expression)} characters"
        raise InvalidArgument(detail, field=field, limit=f"{MAX_CHARACTERS} characters", kind="str")
    try:
        parse(expression, all_fields=all_fields)
    except ValueError as error:
        detail = f"{field} is {expression[:50]!r}: {error}"
        raise InvalidArgument(detail, field=field, limit=LIMIT, kind="str") from None
    return expression


@lru_cache(maxsize=1024)
def _after(expression: str, second: int) -> int | None:
    """Microseconds; asked for by whole seconds, because answers are the same within one."""
    found = parse(expression).after(datetime.fromtimestamp(second, UTC).replace(tzinfo=None))
    return None if found is None else int(found.replace(tzinfo=UTC).timestamp()) * SECOND


def next_after(expression: str, now: int) -> int | None:
    """The first time after `now` by the clock of UTC, in microseconds; None when there is none any more."""
    return _after(expression, now // SECOND)
