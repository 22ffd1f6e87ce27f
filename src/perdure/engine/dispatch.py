"""Parked polls, and which of them a batch serves.

A poll that finds nothing parks here. It is looked at again when something may be ready in one of its lanes: a batch
makes a task ready there (it is then served in that same batch), a hint says that another server did, or its lane is
due for a repeat: 50 ms after an under-full look, backing off to one second, so a lost hint costs latency only.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import msgspec

from perdure.core.model import Task
from perdure.store.base import Demand, Place

FIRST_REPEAT = 0.05
LAST_REPEAT = 1.0
MAX_CLAIM = 400  #: tasks that one batch claims


class PollRequest(msgspec.Struct, frozen=True):
    """What a worker asks for: at most `capacity` tasks of `lanes`, in that order. `alive` says whether the worker still
    listens; it is asked right before the claim, so nothing is leased to a closed connection (CLUS-17)."""

    lanes: tuple[str, ...]
    capacity: int
    incarnation: int
    worker: str
    poll: int
    wait: float
    alive: Callable[[], bool]


class Parked:
    """A poll that waits. `repeated`: this number was polled before, so its unacknowledged leases come first. `busy`: a
    batch may be leasing tasks to it, so its time-out must wait for that batch."""

    __slots__ = ("busy", "expired", "future", "repeated", "request", "tasks")

    def __init__(self, request: PollRequest, repeated: bool, future: asyncio.Future[list[Task]]) -> None:
        self.request = request
        self.repeated = repeated
        self.future = future
        self.tasks: list[Task] = []
        self.busy = False
        self.expired = False

    @property
    def left(self) -> int:
        return self.request.capacity - len(self.tasks)

    @property
    def open(self) -> bool:
        return not self.future.done() and self.request.alive()


class _Lane:
    __slots__ = ("delay", "hot", "polls", "timer")

    def __init__(self) -> None:
        self.polls: dict[Parked, None] = {}
        self.hot = False
        self.delay = FIRST_REPEAT
        self.timer: asyncio.TimerHandle | None = None


class Dispatch:
    """All parked polls of this server. `wake` is called when a batch should look at them."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lanes: dict[str, _Lane] = {}
        self._hot: set[str] = set()
        self._busy: Counter[str] = Counter()  # lane -> polls that a batch has
        self._missed: set[str] = set()  # busy lanes where something became ready meanwhile
        self._newest: dict[int, int] = {}  # incarnation -> highest poll number seen

    def __bool__(self) -> bool:
        """Whether some parked poll wants to be looked at now."""
        return bool(self._hot)

    @property
    def waiting(self) -> bool:
        """Whether any poll is parked."""
        return bool(self._lanes)

    async def poll(self, request: PollRequest) -> list[Task]:
        """Leased tasks, or none after `wait` seconds."""
        loop = asyncio.get_running_loop()
        newest = self._newest.get(request.incarnation)
        self._newest[request.incarnation] = max(request.poll, newest or 0)
        parked = Parked(request, newest is None or request.poll <= newest, loop.create_future())
        timer = loop.call_later(request.wait, self._give_up, parked)
        self._park(parked)
        self.heat(request.lanes)
        try:
            return await parked.future
        finally:
            timer.cancel()
            self._unpark(parked)

    def forget(self, incarnation: int) -> None:
        """A worker process is gone."""
        self._newest.pop(incarnation, None)

    def heat(self, lanes: Iterable[str]) -> None:
        """Something may be ready in these lanes."""
        for name in lanes:
            lane = self._lanes.get(name)
            if lane is not None and lane.polls:
                self._hot.add(name)
            if self._busy[name]:
                self._missed.add(name)
        if self._hot:
            self._wake()

    def heat_all(self) -> None:
        self.heat(list(self._lanes))

    def take(self, touched: set[str]) -> list[Parked]:
        """The polls that the next batch serves, oldest first: those of hot lanes and of lanes that the batch touches.
        They are this batch's until it answers them or parks them again."""
        names = self._hot | (touched & self._lanes.keys())
        self._hot = set()
        taken: dict[Parked, None] = {}
        for name in names:
            taken.update(self._lanes[name].polls)
        for parked in taken:
            self._unpark(parked)
        polls = [parked for parked in taken if parked.open]
        for parked in polls:
            parked.busy = True
            self._busy.update(parked.request.lanes)
        return polls

    def park_again(self, polls: Sequence[Parked], under_full: set[str]) -> None:
        """Polls that got nothing; their lanes are looked at again by and by, or at once if something became ready there
        while the batch had the polls."""
        missed = {name for parked in polls for name in parked.request.lanes} & self._missed
        self.release(polls)
        for parked in polls:
            if parked.expired:
                self._give_up(parked)
            elif parked.open:
                self._park(parked)
        self.heat(missed)
        for name in under_full:
            lane = self._lanes.get(name)
            if lane is not None and lane.timer is None:
                lane.timer = asyncio.get_running_loop().call_later(lane.delay, self._repeat, name)
                lane.delay = min(lane.delay * 2, LAST_REPEAT)

    def release(self, polls: Iterable[Parked]) -> None:
        """A batch is done with these polls."""
        for parked in polls:
            parked.busy = False
            self._busy.subtract(parked.request.lanes)
        self._busy = +self._busy
        self._missed &= self._busy.keys()

    def served(self, lanes: Iterable[str]) -> None:
        """Tasks were found in these lanes: repeats start over at their shortest interval."""
        for name in lanes:
            lane = self._lanes.get(name)
            if lane is not None:
                lane.delay = FIRST_REPEAT

    def close(self) -> None:
        """Answer every parked poll with nothing: the server stops."""
        for lane in list(self._lanes.values()):
            for parked in list(lane.polls):
                self._give_up(parked)

    def _repeat(self, name: str) -> None:
        lane = self._lanes[name]
        lane.timer = None
        if lane.polls:
            self.heat((name,))
        else:
            del self._lanes[name]
            self._hot.discard(name)

    def _give_up(self, parked: Parked) -> None:
        if parked.busy:
            parked.expired = True
        elif not parked.future.done():
            parked.future.set_result([])

    def _park(self, parked: Parked) -> None:
        for name in parked.request.lanes:
            self._lanes.setdefault(name, _Lane()).polls[parked] = None

    def _unpark(self, parked: Parked) -> None:
        for name in parked.request.lanes:
            lane = self._lanes.get(name)
            if lane is not None:
                lane.polls.pop(parked, None)
                if not lane.polls and lane.timer is None:
                    del self._lanes[name]
                    self._hot.discard(name)


def demands(polls: Sequence[Parked], after: Callable[[str], Place | None]) -> list[Demand]:
    """What to claim for these polls: each lane once, never more in all than one batch may claim."""
    wanted: dict[str, int] = {}
    room = MAX_CLAIM
    for parked in polls:
        more = min(parked.left, room)
        room -= more
        for lane in parked.request.lanes if more else ():
            wanted[lane] = wanted.get(lane, 0) + more
    return [Demand(lane, limit, after(lane)) for lane, limit in wanted.items()]


def assign(polls: Sequence[Parked], ready: dict[str, list[Task]]) -> list[tuple[Parked, Task]]:
    """Who gets what: polls in order of arrival, each from its lanes in its own order, each lane in queue order. Tasks
    given away are removed from `ready`."""
    given: list[tuple[Parked, Task]] = []
    for parked in polls:
        room = parked.left
        for lane in parked.request.lanes:
            tasks = ready.get(lane)
            if tasks and room:
                given.extend((parked, task) for task in tasks[:room])
                taken = min(room, len(tasks))
                del tasks[:taken]
                room -= taken
    return given
