"""Where the claims of a batch begin in each lane: behind what was claimed lately (marks.py), or, now and then, at a
lower priority.

Priority is a strict order, and work of a high one that never ends would let all other work wait for ever (QUOTA-17,
B055). So of the claims of a lane that find as much as they ask for, each eighth begins behind priority 1, 2, 3 or 4, in
turn, and takes from the head what it does not find there: a lane that is full of urgent work gives an eighth of its
claims to the rest, and whatever is there is reached. Nothing is written for it, and a lane that is emptied now and then
knows nothing of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from perdure.core.limits import MAX_PRIORITY
from perdure.core.model import Task
from perdure.engine.marks import MAX_LANES, Marks
from perdure.store.base import Batch as Rows
from perdure.store.base import Demand, Place

EVERY = 8
"""One of so many full claims begins at a lower priority."""
_LONGEST_REST = 64  #: turns that are left out, once none of lower priority is found
_BEHIND = 2**62  #: behind every place
_LAST_ID = b"\xff" * 16


class _Lane:
    __slots__ = ("full", "left_out", "priority", "rest")

    def __init__(self) -> None:
        self.full = 0  #: claims in a row that found as much as they asked for
        self.priority = 0  #: behind which the last turn began
        self.rest = 0  #: turns to leave out after one that found nothing
        self.left_out = 0


class Ageing:
    """Whose turn it is, in all lanes of this server."""

    def __init__(self) -> None:
        self._lanes: dict[str, _Lane] = {}

    def is_due(self, lane: str) -> bool:
        seen = self._lanes.get(lane)
        return seen is not None and seen.full >= EVERY - 1

    def turn(self, lane: str) -> Place | None:
        """Where the turn of a lower priority begins; None if it is left out."""
        seen = self._lanes[lane]
        seen.full = 0
        if seen.left_out < seen.rest:
            seen.left_out += 1
            return None
        seen.left_out = 0
        seen.priority = seen.priority % (MAX_PRIORITY - 1) + 1
        return Place(seen.priority, _BEHIND, _LAST_ID)

    def took_turn(self, lane: str, found: bool) -> None:
        seen = self._lanes.get(lane)
        if seen is not None:
            seen.rest = 0 if found else min(_LONGEST_REST, max(1, seen.rest * 2))

    def claimed(self, lane: str, under_full: bool) -> None:
        """A claim from the head; one that did not find as much as it asked for left nobody waiting."""
        if under_full:
            self._lanes.pop(lane, None)
            return
        if len(self._lanes) >= MAX_LANES and lane not in self._lanes:
            self._lanes.clear()
        self._lanes.setdefault(lane, _Lane()).full += 1


class Heads:
    """Of one batch, at `now` of the loop's clock."""

    def __init__(self, marks: Marks | None, ageing: Ageing, now: float) -> None:
        self._marks = marks
        self._ageing = ageing
        self._now = now

    def after(self, lane: str) -> Place | None:
        """The position behind which to claim; None: from the start."""
        return None if self._marks is None else self._marks.after(lane, self._now)

    def is_turn(self, lane: str) -> bool:
        """Whether the next claim of a lane begins at a lower priority."""
        return self._ageing.is_due(lane)

    async def claim(self, rows: Rows, demands: Sequence[Demand]) -> tuple[dict[str, list[Task]], set[str]]:
        """Ready tasks of each lane, those of its turn first; and the lanes that were found exhausted."""
        turns = [Demand(d.lane, d.limit, self._ageing.turn(d.lane)) for d in demands if self.is_turn(d.lane)]
        turns = [demand for demand in turns if demand.after is not None]
        claimed = await rows.claim(turns) if turns else {}
        for demand in turns:
            self._ageing.took_turn(demand.lane, bool(claimed.get(demand.lane)))
        if claimed:
            demands = [Demand(d.lane, d.limit - len(claimed.get(d.lane, ())), d.after) for d in demands]
            demands = [demand for demand in demands if demand.limit]
        begun = asyncio.get_running_loop().time()
        found = await rows.claim(demands) if demands else {}
        took = asyncio.get_running_loop().time() - begun
        exhausted: set[str] = set()
        for demand in demands:
            tasks = found.get(demand.lane, [])
            if self.claimed(demand.lane, tasks, under_full=len(tasks) < demand.limit, took=took):
                exhausted.add(demand.lane)
            had = {task.id for task in claimed.get(demand.lane, ())}
            claimed.setdefault(demand.lane, []).extend(task for task in tasks if task.id not in had)
        return claimed, exhausted

    def claimed(self, lane: str, tasks: list[Task], *, under_full: bool, took: float) -> bool:
        """A claim found these, in so many seconds. Whether the lane is exhausted."""
        self._ageing.claimed(lane, under_full)
        if self._marks is not None:
            last = Place(tasks[-1].priority, tasks[-1].place or 0, tasks[-1].id) if tasks else None
            self._marks.claimed(lane, last, self._now, count=len(tasks), under_full=under_full, took=took)
        return under_full
