"""When a workflow with a cron expression runs again (CRON, B§4). cronsim knows the expressions; times are UTC."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

from cronsim import CronSim, CronSimError

from perdure.core.errors import InvalidArgument
from perdure.core.model import SECOND

LIMIT = "five fields: minute, hour, day of the month, month, day of the week"


def check_cron(expression: str, field: str) -> str:
    """The expression; InvalidArgument when it is none, or never goes off."""
    try:
        next(CronSim(expression, datetime(2026, 1, 1, tzinfo=UTC)))
    except CronSimError as error:
        detail = f"{field} is {expression[:50]!r}: {error}"
        raise InvalidArgument(detail, field=field, limit=LIMIT, kind="str") from None
    except StopIteration:
        detail = f"{field} is {expression[:50]!r}, which never comes"
        raise InvalidArgument(detail, field=field, limit=LIMIT, kind="str") from None
    return expression


@lru_cache(maxsize=1024)
def _after(expression: str, minute: int) -> int | None:
    """Microseconds; asked for by whole minutes, because answers are the same within one."""
    found = next(CronSim(expression, datetime.fromtimestamp(minute * 60, UTC)), None)
    return None if found is None else int(found.timestamp()) * SECOND


def next_after(expression: str, now: int) -> int | None:
    """The first time after `now`, in microseconds; None when there is none any more."""
    return _after(expression, now // (60 * SECOND))
