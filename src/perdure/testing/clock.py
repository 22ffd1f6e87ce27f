"""A clock that stands still until it is told to jump."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from perdure.core.model import SECOND

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class JumpingClock:
    """Integer microseconds since the epoch, as stores want them. `start` must have a time zone; None is the present."""

    def __init__(self, start: datetime | None = None) -> None:
        if start is not None and start.tzinfo is None:
            raise ValueError("start has no time zone; write datetime(..., tzinfo=UTC)")
        self._now = (start or datetime.now(UTC)) - _EPOCH

    def __call__(self) -> int:
        return self._now // timedelta(microseconds=1)

    @property
    def moment(self) -> datetime:
        """The time it shows, in UTC."""
        return _EPOCH + self._now

    def after(self, seconds: float) -> int:
        """What it will show in `seconds`."""
        return self() + round(seconds * SECOND)

    def jump(self, to: int) -> None:
        """Show `to` from now on. It never goes back: an earlier moment changes nothing."""
        self._now = max(self._now, timedelta(microseconds=to))
