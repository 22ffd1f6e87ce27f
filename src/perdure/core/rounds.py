"""Fair order inside a lane: start-time fair queueing by virtual-time rounds (QUOTA-14, X-57).

Each (lane, fairness key) has a tag: the round of its newest task. A new task gets the round after its key's tag, but
never one before the lane's own time, which is the highest round served so far. So one key alone is served first in,
first out, and a key with ten tasks waits for about ten rounds however many tasks another key has queued. A key of
weight w has w tasks a round.

Tags live in the memory of each server: nothing is locked for fairness, and it is only as fair as what one server saw. A
lane seen for the first time starts from the highest round stored, so a restart keeps the order of what is queued.
"""

from __future__ import annotations

from collections.abc import Mapping

from perdure.core.lanes import namespace_of

MAX_TAGS = 20_000  #: keys remembered a lane; beyond that those that have been served are forgotten, or all of them
MAX_LANES = 10_000  #: lanes remembered; beyond that the oldest is forgotten, and asked for again when it is seen


class _Lane:
    __slots__ = ("floor", "tags", "time", "used")

    def __init__(self, floor: int) -> None:
        self.floor = floor
        self.time = 0
        self.tags: dict[str, int] = {}
        self.used: dict[str, int] = {}  #: of keys that weigh more than 1: tasks in the newest round

    def forget(self) -> None:
        """Too many keys: only those with tasks that wait are kept; if they are too many too, all start behind them."""
        waiting = {key: tag for key, tag in self.tags.items() if tag > self.time}
        if len(waiting) > MAX_TAGS // 2:
            self.floor = max(waiting.values())
            waiting = {}
        self.tags = waiting
        self.used = {key: used for key, used in self.used.items() if key in waiting}


class Rounds:
    """The rounds of all lanes that this server has seen."""

    def __init__(self) -> None:
        self.weights: Mapping[tuple[str, str], int] = {}  #: of (namespace, key), where it is not 1
        self._lanes: dict[str, _Lane] = {}

    def unknown(self, lanes: set[str]) -> list[str]:
        """Those of `lanes` that `learn` was not called for."""
        return [lane for lane in lanes if lane not in self._lanes]

    def learn(self, lane: str, lowest: int, highest: int) -> None:
        """The rounds stored in a lane, 0 if it is empty: when it is first seen, and again from time to time where other
        servers serve it too. What waits longest tells how far they are: nothing new may start before it."""
        seen = self._lanes.get(lane)
        if seen is None:
            seen = self._lanes[lane] = _Lane(highest)
        if lowest:
            seen.time = max(seen.time, lowest - 1)
        if len(self._lanes) > MAX_LANES:
            del self._lanes[next(iter(self._lanes))]

    def next(self, lane: str, key: str) -> int:
        """The round of a new task of `key`."""
        seen = self._lanes[lane]
        newest = seen.tags.get(key, seen.floor)
        weight = self.weights.get((namespace_of(lane), key), 1) if self.weights else 1
        if weight > 1:
            used = seen.used.get(key, weight)
            if used < weight and newest > seen.time:
                seen.used[key] = used + 1
                return newest
            seen.used[key] = 1
        tag = max(newest, seen.time) + 1
        seen.tags[key] = tag
        if len(seen.tags) > MAX_TAGS:
            seen.forget()
        return tag

    def front(self, lane: str) -> int:
        """The round of a task that was handed back: served next."""
        return self._lanes[lane].time

    def serve(self, lane: str, round_: int) -> None:
        """A task of this round was claimed."""
        seen = self._lanes.get(lane)
        if seen is not None and round_ > seen.time:
            seen.time = round_
