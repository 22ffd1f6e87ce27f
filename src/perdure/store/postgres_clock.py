"""What a PostgreSQL store knows of the database's clock."""

from __future__ import annotations

import time
from collections.abc import Callable


class Clock:
    """An estimate between two readings: the last one plus the time that has passed here since it arrived. Tests give
    `override`, the time itself; every batch then tells it to its connection."""

    def __init__(self, override: Callable[[], int] | None) -> None:
        self.override = override
        self._offset = 0

    def learn(self, now: int) -> None:
        """The database said that it is `now`."""
        self._offset = now - _monotonic()

    def now(self) -> int:
        return self.override() if self.override is not None else _monotonic() + self._offset


def _monotonic() -> int:
    return time.monotonic_ns() // 1000
