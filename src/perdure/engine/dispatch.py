"""Parked polls, and which of them a batch serves.

A poll that finds nothing parks here. It is looked at again when something may be ready in one of its lanes: a batch
makes a task ready there (it is then served in that same batch), a hint says that another server did, or its lane is
due for a repeat: 50 ms after an under-full look, backing off to one second, so a lost hint costs latency only.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from perdure.core.events import Event
from perdure.core.model import Task
from perdure.core.run import Page, Run, UpdateRequest
from perdure.store.base import Demand, Place

FIRST_REPEAT = 0.05
LAST_REPEAT = 1.0
ONE_LOOK = 0.1  #: seconds that a poll which may not wait is given to be looked at once
UNDER_WAY = 2
"""Polls that a worker process has under way at once. Those that a broken connection took with it come again in any
order, so the first one that is seen does not tell that the next one is new."""
MAX_CLAIM = 400  #: tasks that one batch claims in the first lanes of its polls; in all their other lanes, as many again


class Prepared(msgspec.Struct, frozen=True):
    """A turn in hand: the run, the events that the turn begins with, and the updates that it sees. `history` is all
    that there is before them, where the batch that leased the run has just written it."""

    run: Run
    events: list[Event]
    updates: list[UpdateRequest]
    history: Page | None = None


class PollRequest(msgspec.Struct, frozen=True):
    """What a worker asks for: at most `capacity` tasks of `lanes`, in that order. `alive` says whether the worker still
    listens; it is asked right before the claim, so nothing is leased to a closed connection (CLUS-17). `turns` is
    filled in for the workflow runs among the tasks that are the answer."""

    lanes: tuple[str, ...]
    capacity: int
    incarnation: int
    worker: str
    poll: int
    wait: float
    alive: Callable[[], bool]
    turns: dict[bytes, Prepared] = {}


class Parked:
    """A poll that waits. `repeated`: this number was polled before, so its unacknowledged leases come first. `busy`: a
    batch may be leasing tasks to it, so its time-out must wait for that batch. `looked`: some batch had it."""

    __slots__ = ("arrival", "busy", "expired", "future", "looked", "repeated", "request", "tasks")

    def __init__(
        self, request: PollRequest, repeated: bool, future: asyncio.Future[list[Task]], arrival: int = 0
    ) -> None:
        self.request = request
        self.repeated = repeated
        self.future = future
        self.arrival = arrival
        self.tasks: list[Task] = []
        self.busy = False
        self.looked = False
        self.expired = False

    @property
    def left(self) -> int:
        return self.request.capacity - len(self.tasks)

    @property
    def open(self) -> bool:
        return not self.future.done() and self.request.alive()


class _Lane:
    """`busy` counts the polls that batches have; `missed`: something became ready meanwhile."""

    __slots__ = ("busy", "delay", "missed", "polls", "timer")

    def __init__(self) -> None:
        self.polls: dict[Parked, None] = {}
        self.busy = 0
        self.missed = False
        self.delay = FIRST_REPEAT
        self.timer: asyncio.TimerHandle | None = None

    @property
    def idle(self) -> bool:
        return not self.polls and not self.busy


class Dispatch:
    """All parked polls of this server. `wake` is called when a batch should look at them."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lanes: dict[str, _Lane] = {}
        self._hot: set[str] = set()
        self._newest: dict[int, int] = {}  # incarnation -> highest poll number seen
        self._arrivals = itertools.count()

    def __bool__(self) -> bool:
        """Whether some parked poll wants to be looked at now."""
        return bool(self._hot)

    @property
    def waiting(self) -> bool:
        """Whether any poll is parked."""
        return any(lane.polls for lane in self._lanes.values())

    @property
    def lanes(self) -> Iterable[str]:
        """Lanes with polls."""
        return self._lanes

    async def poll(self, request: PollRequest) -> list[Task]:
        """Leased tasks, or none after `wait` seconds."""
        loop = asyncio.get_running_loop()
        newest = self._newest.get(request.incarnation)
        repeated = newest is None or request.poll <= newest
        newest = request.poll + UNDER_WAY - 1 if newest is None else max(request.poll, newest)
        self._newest[request.incarnation] = newest
        parked = Parked(request, repeated, loop.create_future(), next(self._arrivals))
        timers = [loop.call_later(request.wait + more, self._give_up, parked) for more in (0.0, ONE_LOOK)]
        self._park(parked)
        self.heat(request.lanes)
        try:
            return await parked.future
        finally:
            for timer in timers:
                timer.cancel()
            self._unpark(parked)

    def forget(self, incarnation: int) -> None:
        """A worker process connected anew, here or elsewhere, or is gone: what it polled before says nothing now."""
        self._newest.pop(incarnation, None)

    def heat(self, lanes: Iterable[str]) -> None:
        """Something may be ready in these lanes."""
        for name in lanes:
            lane = self._lanes.get(name)
            if lane is not None:
                lane.missed = lane.busy > 0
                if lane.polls:
                    self._hot.add(name)
        if self._hot:
            self._wake()

    def heat_all(self) -> None:
        self.heat(list(self._lanes))

    def take(self, touched: set[str]) -> list[Parked]:
        """The polls that the next batch serves, oldest first: those of hot lanes and of lanes that the batch touches.
        They are this batch's until it answers them or parks them again."""
        names = self._hot | (touched & self._lanes.keys())
        self._hot = set()
        found = {parked for name in names for parked in self._lanes[name].polls}
        polls = sorted((parked for parked in found if parked.open), key=lambda parked: parked.arrival)
        for parked in polls:
            parked.busy = parked.looked = True
            for name in parked.request.lanes:
                self._lanes[name].busy += 1
        for parked in found:
            self._unpark(parked)
        return polls

    def park_again(self, polls: Sequence[Parked], under_full: set[str]) -> None:
        """Polls that got nothing. Lanes that were found exhausted are looked at again by and by; the others, and those
        where something became ready while the batch had the polls, at once."""
        again: set[str] = set()
        for parked in polls:
            if parked.expired:
                parked.busy = False
                self._give_up(parked)
            elif parked.open:
                self._park(parked)
                again.update(name for name in parked.request.lanes if name not in under_full)
        for name in sorted(under_full):  # in one order in every process, so that a simulated run can be replayed
            lane = self._lanes.get(name)
            if lane is not None and lane.timer is None:
                lane.timer = asyncio.get_running_loop().call_later(lane.delay, self._repeat, name)
                lane.delay = min(lane.delay * 2, LAST_REPEAT)
        again.update(name for name in under_full if name in self._lanes and self._lanes[name].missed)
        self.release(polls)
        self.heat(again)

    def release(self, polls: Iterable[Parked]) -> None:
        """A batch is done with these polls."""
        for parked in polls:
            parked.busy = False
            for name in parked.request.lanes:
                lane = self._lanes[name]
                lane.busy -= 1
                lane.missed = lane.missed and lane.busy > 0
                self._drop_idle(name, lane)

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
                parked.expired = True
                self._give_up(parked)

    def _repeat(self, name: str) -> None:
        lane = self._lanes[name]
        lane.timer = None
        self.heat((name,))
        self._drop_idle(name, lane)

    def _give_up(self, parked: Parked) -> None:
        if parked.busy or not (parked.looked or parked.expired):
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
                self._drop_idle(name, lane)

    def _drop_idle(self, name: str, lane: _Lane) -> None:
        if lane.idle and lane.timer is None:
            self._lanes.pop(name, None)
            self._hot.discard(name)


def demands(polls: Sequence[Parked], after: Callable[[str], Place | None]) -> list[Demand]:
    """What to claim for these polls, each lane once. Most tasks come from the first lane of a poll, so the others share
    what the first may have: a poll of a hundred queues must not lock a hundred times its capacity."""
    wanted: dict[str, int] = {}
    room = MAX_CLAIM
    for parked in polls:
        more = min(parked.left, room)
        room -= more
        first, *others = parked.request.lanes if more else ("",)
        if more:
            wanted[first] = wanted.get(first, 0) + more
        for lane in others:
            wanted[lane] = wanted.get(lane, 0) + max(1, more // len(others))
    return [Demand(lane, limit, after(lane)) for lane, limit in wanted.items()]


def assign(
    polls: Sequence[Parked], ready: dict[str, list[Task]], sticky: Mapping[bytes, int]
) -> list[tuple[Parked, Task]]:
    """Who gets what: polls in order of arrival, each from its lanes in its own order, each lane in queue order. But a
    run goes to the worker that has it in memory (`sticky`: run id to incarnation), if that one asks as well (RPLY-34).
    Tasks given away are removed from `ready`."""
    given = _to_their_own(polls, ready, sticky) if sticky else []
    taken: dict[Parked, int] = {}
    for parked, _ in given:
        taken[parked] = taken.get(parked, 0) + 1
    for parked in polls:
        room = parked.left - taken.get(parked, 0)
        for lane in parked.request.lanes:
            tasks = ready.get(lane)
            if tasks and room:
                given.extend((parked, task) for task in tasks[:room])
                count = min(room, len(tasks))
                del tasks[:count]
                room -= count
    return given


def _to_their_own(
    polls: Sequence[Parked], ready: dict[str, list[Task]], sticky: Mapping[bytes, int]
) -> list[tuple[Parked, Task]]:
    given: list[tuple[Parked, Task]] = []
    room = {parked: parked.left for parked in polls}
    by_worker: dict[int, list[Parked]] = {}
    for parked in polls:
        by_worker.setdefault(parked.request.incarnation, []).append(parked)
    for lane, tasks in ready.items():
        left: list[Task] = []
        for task in tasks:
            own = by_worker.get(sticky.get(task.id, 0), ())
            free = next((one for one in own if room[one] and lane in one.request.lanes), None)
            if free is None:
                left.append(task)
            else:
                room[free] -= 1
                given.append((free, task))
        ready[lane] = left
    return given
