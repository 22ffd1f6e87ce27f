"""Where a claim starts to look in a lane's ready index.

On PostgreSQL the entries of claimed tasks stay in the index until vacuum removes them, which an old snapshot can
prevent for hours; a claim that starts from the front steps over all of them. So claims start behind a mark: the
position claimed 4 seconds ago. A transaction that was slower than that may have put a task before the mark; therefore
every lane is also looked at from its start once a second, after every claim that found less than it asked for, and as
long as that finds work more urgent than the mark's. What this server itself makes ready ahead of the mark is not
missed at all (`ahead`).
"""

from __future__ import annotations

from collections import deque

from perdure.core.model import Task
from perdure.store.base import Place

TRAIL = 4.0  #: seconds
FROM_START = 1.0  #: seconds between looks from the start


MAX_LANES = 10_000  #: lanes remembered; the one not claimed for longest is forgotten


class _Lane:
    __slots__ = ("claimed", "from_start_at", "mark")

    def __init__(self) -> None:
        self.mark: Place | None = None
        self.claimed: deque[tuple[float, Place]] = deque()
        self.from_start_at = 0.0


class Marks:
    """The marks of all lanes; times are of the loop's monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._lanes: dict[str, _Lane] = {}

    def after(self, lane: str, now: float) -> Place | None:
        """The position to start behind; None: look from the start."""
        seen = self._lanes.get(lane)
        if seen is None:
            return None
        while seen.claimed and seen.claimed[0][0] <= now - TRAIL:
            seen.mark = seen.claimed.popleft()[1]
        if now - seen.from_start_at >= FROM_START:
            seen.from_start_at = now
            return None
        return seen.mark

    def claimed(self, lane: str, last: Place | None, now: float, *, under_full: bool) -> None:
        """A claim took tasks up to `last` (None: nothing); an under-full one makes the next look start from the
        front."""
        seen = self._lanes.pop(lane, None) or _Lane()
        self._lanes[lane] = seen
        if len(self._lanes) > MAX_LANES:
            del self._lanes[next(iter(self._lanes))]
        if last is not None and (not seen.claimed or seen.claimed[-1][0] < now - 0.1):
            seen.claimed.append((now, last))
        urgent = last is not None and seen.mark is not None and last.priority < seen.mark.priority
        if under_full or urgent:
            seen.from_start_at = 0.0

    def ahead(self, task: Task) -> None:
        """This server makes a task ready; if its place is ahead of the mark, the next claim looks from the start."""
        seen = self._lanes.get(task.lane)
        mark = None if seen is None else seen.mark
        if seen is not None and mark is not None and (task.priority, task.place) < (mark.priority, mark.place):
            seen.from_start_at = 0.0
