"""When things began and ended, as bars below each other, in the units of a drawing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from perdure.dashboard.render import duration

WIDTH = 1000
"""Of the bars; names stand left of them."""
LABELS = 260
ROW = 22
_LEAST = 3.0  #: of a bar that would not be seen
_TICKS = 5


class Bar(NamedTuple):
    """Something that lasted; without an end it still does. `href` is what a click leads to."""

    label: str
    detail: str
    start: datetime
    end: datetime | None
    outcome: str
    href: str


class Drawn(NamedTuple):
    """A bar where it is drawn."""

    bar: Bar
    x: float
    y: int
    width: float
    lasted: str


class Tick(NamedTuple):
    x: float
    text: str


class Timeline(NamedTuple):
    bars: list[Drawn]
    ticks: list[Tick]
    width: int
    height: int
    start: datetime

    @classmethod
    def of(cls, bars: Sequence[Bar], now: datetime) -> Timeline | None:
        """The drawing of some bars, in their order; None of none."""
        if not bars:
            return None
        start = min(bar.start for bar in bars)
        end = max(start + timedelta(milliseconds=1), *(bar.end or now for bar in bars))
        whole = (end - start) / timedelta(seconds=1)

        def x(moment: datetime) -> float:
            return round(LABELS + WIDTH * ((moment - start) / timedelta(seconds=1)) / whole, 1)

        drawn = []
        for number, bar in enumerate(bars):
            until = max(bar.end or now, bar.start)
            width = max(round(x(until) - x(bar.start), 1), _LEAST)
            left = min(x(bar.start), LABELS + WIDTH - width)
            drawn.append(Drawn(bar, left, number * ROW + ROW, width, duration(until - bar.start)))
        ticks = [
            Tick(LABELS + WIDTH * part / _TICKS, f"+{duration(whole * part / _TICKS)}" if part else "0")
            for part in range(_TICKS)
        ]
        return cls(drawn, ticks, LABELS + WIDTH, (len(bars) + 1) * ROW + 6, start)
