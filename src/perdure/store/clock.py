"""The clock of a database that has none of its own."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Microseconds since the epoch."""


class SlewedClock:
    """The wall clock, made safe: it never goes back, and never starts before `floor` (what it showed before a restart).

    A wall clock that steps forward is followed at once. One that was set back is waited for at half speed, by the
    monotonic clock, so that deadlines still come while it catches up. `wall` and `monotonic` count nanoseconds.
    """

    def __init__(
        self,
        floor: int = 0,
        *,
        wall: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._shown = max(floor * 1000, wall())
        self._read_at = monotonic()

    def __call__(self) -> int:
        moment = self._monotonic()
        passed = moment - self._read_at
        self._read_at = moment
        self._shown = max(self._wall(), self._shown + passed // 2)
        return self._shown // 1000
