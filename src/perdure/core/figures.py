"""What is counted: totals and distributions, by labels, as plain numbers that are added to on one thread.

How many series there are is bounded (`Names`): callers choose the names of their queues and types, and whoever collects
the numbers keeps a series for each of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence

Labels = tuple[str, ...]

OTHER = "other"
"""The label of all names that came too late to have one of their own."""
MOST_NAMESPACES = 200
MOST_NAMES = 1_000
"""Pairs of namespace and name."""

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)
"""Upper bounds for times."""


class Names:
    """The labels of (namespace, name): themselves for the first ones, OTHER from there on."""

    def __init__(self, most: int = MOST_NAMES, namespaces: int = MOST_NAMESPACES) -> None:
        self._most = most
        self._most_namespaces = namespaces
        self._namespaces: set[str] = set()
        self._known: dict[Labels, Labels] = {}

    def labels(self, pair: Labels) -> Labels:
        known = self._known.get(pair)
        return self._meet(pair) if known is None else known

    def _meet(self, pair: Labels) -> Labels:
        namespace, name = pair
        if namespace not in self._namespaces:
            if len(self._namespaces) >= self._most_namespaces:
                return (OTHER, OTHER)
            self._namespaces.add(namespace)
        if len(self._known) >= self._most:
            return (namespace, OTHER)
        self._known[pair] = (namespace, name)
        return self._known[pair]


class Histogram:
    """How many of the values that were added lie at or below each of `bounds`, and their sum, by labels."""

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        self.bounds = tuple(bounds)
        self.rows: dict[Labels, Distribution] = {}

    def add(self, labels: Labels, values: Iterable[float], times: int = 1) -> None:
        row = self.rows.get(labels)
        if row is None:
            row = self.rows[labels] = Distribution(self.bounds)
        counts, bounds = row.counts, self.bounds
        total = 0.0
        for value in values:
            counts[bisect_left(bounds, value)] += times
            total += value
        row.sum += total * times

    def copy(self) -> Histogram:
        again = Histogram(self.bounds)
        again.rows = self.since(again)
        return again

    def since(self, before: Histogram) -> dict[Labels, Distribution]:
        """What was added since it was as `before`, by labels."""
        return {labels: row.since(before.rows.get(labels)) for labels, row in self.rows.items()}


class Distribution:
    """The values of one series; `counts` has one more entry than there are bounds, for what lies above them all."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...], counts: list[int] | None = None, total: float = 0.0) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1) if counts is None else counts
        self.sum = total

    @property
    def count(self) -> int:
        return sum(self.counts)

    def since(self, before: Distribution | None) -> Distribution:
        """What was added since it was as `before`; None: since the beginning."""
        if before is None:
            return Distribution(self.bounds, list(self.counts), self.sum)
        counts = [now - then for now, then in zip(self.counts, before.counts, strict=True)]
        return Distribution(self.bounds, counts, self.sum - before.sum)

    def quantile(self, share: float) -> float | None:
        """The value below which this share of all lies, about: values are taken to lie evenly between two bounds, and
        none above the last one. None without values."""
        left = share * self.count
        if not self.count:
            return None
        lower = 0.0
        for bound, number in zip(self.bounds, self.counts, strict=False):
            if number and left <= number:
                return lower + (bound - lower) * max(left, 0.0) / number
            left -= number
            lower = bound
        return self.bounds[-1]


Totals = Counter[Labels]
