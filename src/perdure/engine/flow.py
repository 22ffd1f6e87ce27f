"""What limits do in one batch: who of the ready tasks may start, and who comes back to a lane.

    judge   the breakers of types whose attempts this batch ends (breakers.py)
    pull    leases that this batch ends free slots: as many blocked tasks get their places back
    hold    the limits of all tasks that may be handed out; what another batch holds is not handed out now
    count   what runs, less what this batch ends: a later statement than the hold, so it sees all that is committed
    screen  in queue order, until a limit is full
    settle  what a limit refused leaves its lane

A batch without limits does nothing of it. Whatever is missed (a slot freed while its limit was being counted, a limit
that changed) is pulled by the service of flow_service.py.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress

from perdure.core import commands as c
from perdure.core.limit_rules import Limit, LimitName, Limits, Room, Running, block, limit_of, subject_of_type, unblock
from perdure.core.model import Task
from perdure.core.rounds import Rounds
from perdure.core.states import Kind
from perdure.engine.breakers import MOST_LEFT, Breakers, Left
from perdure.engine.gather import MAX_ROWS
from perdure.engine.ledger import Ledger
from perdure.store.base import Batch as Rows
from perdure.store.base import Demand

PULL = 200  #: blocked tasks of one subject that a batch puts back
LONGEST_TURN = 0.1  #: seconds that a batch waits for another one of this server that is counting

Ready = dict[str, list[Task]]


class Known:
    """What a server knows of limits, over its batches."""

    def __init__(self, rounds: Rounds) -> None:
        self._rounds = rounds
        self.rows: dict[LimitName, Limit] = {}
        self.limits = Limits()
        self.latest = 0  #: when the last of them was changed
        self.suspects: set[str] = set()  #: subjects that tasks may be blocked on
        self.left: Left = {}  #: endings that no batch could count yet
        self.steps: dict[str, int] = {}  #: by lane whose first tasks are refused: how many to claim at least
        self.turn = asyncio.Lock()  #: of the batch that counts

    def learn(self, rows: dict[LimitName, Limit]) -> None:
        """These are the limits."""
        self.rows = rows
        self.limits = Limits(rows.values())
        self._rounds.weights = self.limits.shares
        self.latest = max((limit.updated_at for limit in rows.values()), default=self.latest)
        for name in self.left.keys() - {limit.id for limit in self.limits.breakers.values()}:
            del self.left[name]

    def leave(self, uncounted: Left) -> None:
        """These endings are for a later batch."""
        for name, endings in uncounted.items():
            self.left[name] = [*self.left.get(name, ()), *endings][-MOST_LEFT:]


class Flow:
    """For one batch."""

    def __init__(self, ledger: Ledger, known: Known) -> None:
        self.limits = known.limits
        self.latest = known.latest
        self.breakers = Breakers(ledger, known.left, known.latest)
        self.moves = self.breakers.moves
        self.changes: dict[LimitName, Limit | None] = {}  #: limits that this batch changes, as they are then
        self.held: set[LimitName] = set()
        self.denied: dict[LimitName, set[str]] = {}  #: limits that another batch holds, and the lanes that want them
        self.looked_at: dict[str, int] = {}  #: by lane: how many ready tasks were found
        self.blocked: dict[str, set[str]] = {}  #: by lane: subjects on which this batch blocked tasks
        self.missed: set[str] = set()  #: subjects to look at whose limit another batch holds
        self.exhausted: set[str] = set()  #: subjects on which no more tasks are blocked
        self.wake: dict[str, int] = {}  #: by subject: when a rate allows the next start
        self.pulled = 0
        self.used = False  #: limits were looked at
        self._turn = known.turn
        self._has_turn = False
        self._ledger = ledger
        self._known = known.rows
        self._suspects = known.suspects
        self._steps = known.steps
        self._rooms: dict[str, Room] = {}
        self._closed: set[str] = set()  #: subjects that refused a task: nothing behind it may overtake it

    @property
    def denied_lanes(self) -> set[str]:
        return {lane for lanes in self.denied.values() for lane in lanes}

    def knows(self, name: LimitName) -> bool:
        return name in self._known

    def touches(self, lanes: Iterable[str]) -> bool:
        return bool(self.limits) and any(map(self.limits.touch, lanes))

    def widened(self, demands: list[Demand]) -> list[Demand]:
        """Where limits refused what was claimed last, more is looked at than is wanted."""
        if not self._steps:
            return demands
        return [Demand(d.lane, max(d.limit, self._steps.get(d.lane, 0)), d.after) for d in demands]

    async def open(
        self,
        rows: Rows,
        claimed: Ready,
        enqueues: Sequence[tuple[object, c.Enqueue]],
        polls: Sequence[object],
        exhausted: Container[str],
        asked: Sequence[str],
    ) -> None:
        """Everything that needs the database. `claimed` gets tasks that come back to its lanes; those of `enqueues` in
        lanes that are `exhausted` may be handed out too; `asked` are subjects to look at."""
        if not self.limits and not asked:
            return
        self.used = True
        await self.breakers.count(rows, self.limits, asked)
        if self.breakers.news:
            self.changes |= self.breakers.news
            self.limits = Limits((self._known | self.breakers.news).values())
        self.missed.update(map(subject_of_type, self.breakers.uncounted))
        self.looked_at = {lane: len(tasks) for lane, tasks in claimed.items()}
        ended = self._ended()
        back = await self._pull(rows, {subject: slots for subject, slots in ended.items() if subject in self._suspects})
        tasks = [task for lane in claimed for task in claimed[lane]] if polls else []
        if polls:
            tasks += [*back, *(made.draft for _, made in enqueues if made.draft.lane in exhausted)]
        subjects = {subject: limit.id for task in tasks for limit, subject in self.limits.of_task(task)}
        subjects |= {subject: limit_of(subject) for subject in asked}
        if subjects:
            await self._count(rows, subjects)
            back += await self._pull(rows, self._free(subjects, asked, back))
        for task in back:
            if polls and task.lane in claimed and task.kind is not Kind.WORKFLOW:  # a turn needs more than its row
                claimed[task.lane].append(task)
        for lane in {task.lane for task in back} & claimed.keys():
            claimed[lane].sort(key=lambda task: (task.priority, task.place or 0, task.id))

    def _ended(self) -> dict[str, int]:
        """Slots that this batch frees, by subject."""
        slots: dict[str, int] = {}
        for task in self._ledger.ended():
            for limit, subject in self.limits.of_task(task):
                if limit.max_running is None:
                    continue
                slots[subject] = slots.get(subject, 0) + limit.slots(task.weight)
        return slots

    async def _count(self, rows: Rows, subjects: Mapping[str, LimitName]) -> None:
        names = sorted({name for name in subjects.values() if self.limits.get(name) is not None})
        if not names:
            return
        await self._take_turn()
        held = await rows.hold_limits(names)
        if not held:
            return
        self.held.update(held)
        counted = {subject: held[name] for subject, name in subjects.items() if name in held}
        probes = await self.breakers.probes(rows, held)
        running: dict[str, int] = {}
        if any(limit.max_running is not None for limit in counted.values()):
            leased = await rows.running(sorted({name[0] for name in held}))
            running = Limits(held.values()).occupied([*leased, *map(_less, self._ledger.ended())])
        rated = sorted(subject for subject, limit in counted.items() if limit.rate is not None)
        full_at = await rows.buckets(rated) if rated else {}
        for subject, limit in counted.items():
            taken, full = running.get(subject, 0), full_at.get(subject, 0)
            self._rooms[subject] = Room(limit, taken, full, rows.now, probes.get(limit.id))

    async def _take_turn(self) -> None:
        """Two batches of one server that count at once get in each other's way: one of them holds the limits, and the
        other one could hand out nothing of what it has freed. Not for long, because this one holds rows that the other
        one may wait for."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_TURN):
                self._has_turn = await self._turn.acquire()

    def over(self) -> None:
        """The batch is committed, or is not."""
        if self._has_turn:
            self._has_turn = False
            self._turn.release()

    def _free(self, subjects: Iterable[str], asked: Sequence[str], back: Sequence[Task]) -> dict[str, int]:
        """How many blocked tasks of each subject can start, besides those that came back already."""
        most: dict[str, int] = {}
        left = MAX_ROWS - len(back)
        here = Counter(subject for task in back for _, subject in self.limits.of_task(task))
        for subject in sorted(subjects):
            room = self._rooms.get(subject)
            if room is None:
                gone = subject in asked and self.limits.get(limit_of(subject)) is None
                free = PULL if gone else 0
                if subject in asked and not gone:
                    self.missed.add(subject)
            elif subject in self._suspects or subject in asked:
                free = min(room.free - here[subject], PULL)
                if (at := room.next_start_at) is not None:
                    self.wake[subject] = at
            else:
                free = 0
            if min(free, left) > 0:
                most[subject] = min(free, left)
                left -= most[subject]
        return most

    async def _pull(self, rows: Rows, most: dict[str, int]) -> list[Task]:
        """Blocked tasks get their places back, at most so many of each subject."""
        if not most:
            return []
        found = await rows.blocked({subject: min(most[subject], PULL) for subject in sorted(most)})
        back: list[Task] = []
        left = dict(most)
        for task in found:
            assert task.blocked_on is not None
            left[task.blocked_on] -= 1
            self._ledger.load([task])
            if self._ledger.rows[task.id] is task:  # nothing else of this batch is about it
                change = unblock(task)
                self._ledger.apply([change])
                back.append(change.task)
        for subject, missing in left.items():
            room = self._rooms.get(subject)
            if missing > 0:
                self.exhausted.add(subject)
            elif room is not None and room.limit.rate is not None:
                self.wake[subject] = room.time_of(most[subject] + 1)
        self.pulled += len(back)
        return back

    # ------------------------------------------------------------------------------------------------------- decisions
    def screen(self, ready: Ready) -> tuple[Ready, list[tuple[Task, str]]]:
        """Those that may start, whose slots are taken, and those that a limit refuses, with its subject."""
        admitted: Ready = {}
        refused: list[tuple[Task, str]] = []
        for lane, tasks in ready.items():
            if not self.limits.touch(lane):
                admitted[lane] = tasks
                continue
            admitted[lane] = []
            for task in tasks:
                limited = list(self.limits.of_task(task))
                subjects = [subject for _, subject in limited]
                if missing := [limit.id for limit, subject in limited if subject not in self._rooms]:
                    for name in missing:
                        self.denied.setdefault(name, set()).add(lane)
                elif (subject := self._refusing(task, subjects)) is not None:
                    refused.append((task, subject))
                else:
                    for limit, subject in limited:
                        self._rooms[subject].take(task.weight)
                        self.breakers.admit(limit.id, task)
                    admitted[lane].append(task)
        return admitted, refused

    def _refusing(self, task: Task, subjects: Iterable[str]) -> str | None:
        for subject in subjects:
            if subject in self._closed or not self._rooms[subject].admits(task.weight):
                self._closed.add(subject)
                return subject
        return None

    def settle(self, left: Ready, refused: Sequence[tuple[Task, str]]) -> None:
        """`left` are those that no poll took: they stay ready. What is still refused leaves its lane."""
        for lane, tasks in left.items():
            for task in tasks if self.limits.touch(lane) else ():
                for _, subject in self.limits.of_task(task):
                    self._rooms[subject].give_back(task.weight)
        blocked: set[str] = set()
        for task, subject in refused:
            room = self._rooms[subject]
            if room.admits(task.weight) and subject not in blocked:  # and it would overtake nobody
                continue
            self._ledger.apply([block(task, subject)])
            blocked.add(subject)
            self.blocked.setdefault(task.lane, set()).add(subject)
            self.exhausted.discard(subject)
            if (at := room.next_start_at) is not None:
                self.wake[subject] = at

    async def flush(self, rows: Rows) -> None:
        """Write the tokens that were taken, and the probes that have started."""
        await self.breakers.flush(rows)
        self.changes |= self.breakers.news
        full_at = {subject: room.full_at for subject, room in self._rooms.items() if room.started}
        if full_at:
            await rows.put_buckets(full_at)


def _less(task: Task) -> Running:
    """A lease that ends, whose row still says that it lasts."""
    return Running(task.namespace, task.queue, task.type, task.concurrency_key, task.weight, -1)
