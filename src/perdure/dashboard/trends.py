"""How figures went while somebody looked at them: nothing is measured for nobody, so a trend begins with its first
look."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import NamedTuple

POINTS = 150
"""Of a trend: five minutes of looks."""
GAP_SECONDS = 60.0
"""After so long without a look a trend begins anew."""
MAX_NAMESPACES = 100
_LEAST_SECONDS = 1.5  #: between two points, however many people look
WIDTH, HEIGHT = 100, 30


class Point(NamedTuple):
    """`at` is in seconds of a clock that does not jump."""

    at: float
    figures: Mapping[str, float]


class Trends:
    """The last figures of each namespace."""

    def __init__(self) -> None:
        self._points: OrderedDict[str, deque[Point]] = OrderedDict()

    def add(self, namespace: str, point: Point) -> dict[str, str]:
        """Add a point, and give each figure's trend as the points of an SVG polyline."""
        points = self._points.setdefault(namespace, deque(maxlen=POINTS))
        self._points.move_to_end(namespace)
        if len(self._points) > MAX_NAMESPACES:
            self._points.popitem(last=False)
        if points and point.at - points[-1].at > GAP_SECONDS:
            points.clear()
        if not points or point.at - points[-1].at >= _LEAST_SECONDS:
            points.append(point)
        return {name: _polyline([one.figures[name] for one in points]) for name in point.figures}


def _polyline(values: list[float]) -> str:
    most = max(max(values), 1e-9)
    step = WIDTH / max(len(values) - 1, 1)
    heights = (HEIGHT - 1 - (HEIGHT - 2) * value / most for value in values)
    return " ".join(f"{number * step:.1f},{height:.1f}" for number, height in enumerate(heights))
