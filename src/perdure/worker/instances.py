"""Workflow runs that wait, kept in memory so that their next turn needs only the new events (sticky execution).

The longest unused ones go first, when there are too many or when their histories, which is what their state was made
of, would take too much memory. One that is gone costs a replay, nothing else.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from perdure.worker.machine import Instance

MOST = 10_000
"""Runs."""
MOST_BYTES = 512 * 1024 * 1024
_BASE = 16 * 1024
"""Bytes of a run without history, about: its loop, its coroutine, its machine."""
_FACTOR = 4
"""Bytes in memory for a byte of history, about."""


class Cached:
    """A run in memory. `last` is the id of the last event that it has seen, `read` the bytes of its history, about."""

    __slots__ = ("broken", "instance", "last", "read")

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.last = 0
        self.read = 0
        self.broken = False  #: its state is nothing that a history says: it must not be used again

    @property
    def size(self) -> int:
        return _BASE + self.read * _FACTOR


class Instances:
    """`dropped` is called with those that have to go. To be used on one event loop."""

    def __init__(self, dropped: Callable[[Cached], None], most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self._dropped = dropped
        self._most = most
        self._room = most_bytes
        self._idle: OrderedDict[str, Cached] = OrderedDict()  #: the longest unused one first

    def __len__(self) -> int:
        return len(self._idle)

    def take(self, run_id: str) -> Cached | None:
        """For a turn; it is not here until `put` again."""
        found = self._idle.pop(run_id, None)
        if found is not None:
            self._room += found.size
        return found

    def look(self, run_id: str) -> Cached | None:
        """For a question that changes nothing."""
        return self._idle.get(run_id)

    def put(self, run_id: str, cached: Cached) -> None:
        self._idle[run_id] = cached
        self._room -= cached.size
        while self._room < 0 or len(self._idle) > self._most:
            _, oldest = self._idle.popitem(last=False)
            self._room += oldest.size
            self._dropped(oldest)

    def clear(self) -> None:
        while self._idle:
            _, oldest = self._idle.popitem()
            self._room += oldest.size
            self._dropped(oldest)
