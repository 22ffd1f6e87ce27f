"""A clock that only moves when a test says so."""

from __future__ import annotations

START = 1_800_000_000_000_000
"""A fixed moment in January 2027, in microseconds."""


class SteppedClock:
    """Integer microseconds since the epoch; a negative step is a clock set back."""

    def __init__(self, start: int = START) -> None:
        self._now = start

    def now(self) -> int:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += round(seconds * 1_000_000)
