"""Where a claim starts to look in a lane's ready index.

On PostgreSQL the entries of claimed tasks stay in the index until vacuum removes them, which an old snapshot can
prevent for hours; a claim that starts from the front steps over all of them, at up to 2 us each. So claims start behind
a mark: the position claimed 4 seconds or 2,000 tasks ago. A transaction that was slower than that may have put a
task before the mark; therefore every lane is also looked at from its start once a second, after every claim that found
less than it asked for, and as long as that finds work more urgent than the mark's. What this server itself makes ready
ahead of the mark is not missed at all (`ahead`). Only where looks from the start have become dear, they are made less
often, so that they take a twentieth of the time at most (`Start`).
"""

from __future__ import annotations

from collections import deque

from perdure.core.model import Task
from perdure.store.base import Place

TRAIL = 4.0  #: seconds
TRAIL_TASKS = 2_000
FROM_START = 1.0  #: seconds between looks from the start
FREE = 0.01  #: seconds of a look from the start that are not counted
REST = 19  #: seconds without such looks for each second that one took
_STEP = 0.1  #: seconds between two positions that are remembered
_STEP_TASKS = 200  #: tasks between them

MAX_LANES = 10_000  #: lanes remembered; the one not claimed for longest is forgotten


class Start:
    """When a look from the very start of an index is afforded. Times are seconds of one monotonic clock."""

    __slots__ = ("_rest_until",)

    def __init__(self) -> None:
        self._rest_until = 0.0

    def afforded(self, now: float) -> bool:
        return now >= self._rest_until

    def looked(self, begun: float, took: float) -> None:
        """A look began then and took so long."""
        self._rest_until = begun + took + max(0.0, took - FREE) * REST


class _Lane:
    """`claimed` holds (when, how many tasks were claimed until then, up to where)."""

    __slots__ = ("claimed", "from_start_at", "mark", "start", "tasks")

    def __init__(self) -> None:
        self.mark: Place | None = None
        self.claimed: deque[tuple[float, int, Place]] = deque()
        self.tasks = 0
        self.from_start_at = 0.0
        self.start = Start()


class Marks:
    """The marks of all lanes; times are of the loop's monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._lanes: dict[str, _Lane] = {}

    def after(self, lane: str, now: float) -> Place | None:
        """The position to start behind; None: look from the start."""
        seen = self._lanes.get(lane)
        if seen is None:
            return None
        while seen.claimed and (seen.claimed[0][0] <= now - TRAIL or seen.claimed[0][1] <= seen.tasks - TRAIL_TASKS):
            seen.mark = seen.claimed.popleft()[2]
        if now - seen.from_start_at >= FROM_START and seen.start.afforded(now):
            seen.from_start_at = now
            return None
        return seen.mark

    def claimed(self, lane: str, last: Place | None, now: float, *, count: int, under_full: bool, took: float) -> None:
        """A claim, for which `after` was asked at `now`, took `count` tasks up to `last` (None: nothing) in `took`
        seconds; an under-full one makes the next look start from the front."""
        seen = self._lanes.pop(lane, None) or _Lane()
        self._lanes[lane] = seen
        if len(self._lanes) > MAX_LANES:
            del self._lanes[next(iter(self._lanes))]
        seen.tasks += count
        when, tasks, _ = seen.claimed[-1] if seen.claimed else (now - TRAIL, 0, None)
        if last is not None and (when < now - _STEP or tasks <= seen.tasks - _STEP_TASKS):
            seen.claimed.append((now, seen.tasks, last))
        if seen.from_start_at == now or seen.mark is None:
            seen.start.looked(now, took)
        urgent = last is not None and seen.mark is not None and last.priority < seen.mark.priority
        if under_full or urgent:
            seen.from_start_at = 0.0

    def ahead(self, task: Task) -> None:
        """This server makes a task ready; if its place is ahead of the mark, the next claim looks from the start."""
        seen = self._lanes.get(task.lane)
        mark = None if seen is None else seen.mark
        if seen is not None and mark is not None and (task.priority, task.place) < (mark.priority, mark.place):
            seen.from_start_at = 0.0
