"""How things stand: what no event tells and has to be read. Bounded reads, kept for a second, so however many ask and
however much waits, the database is asked little."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable

from perdure.core.compensations import Owed, owed_by
from perdure.core.figures import Labels, Names, Totals
from perdure.core.lanes import TURNS, WORK
from perdure.core.model import SECOND, WorkerSession
from perdure.engine.engine import Engine
from perdure.store.base import StoreFault
from perdure.store.census import LaneCount, OpenRun

FRESH_SECONDS = 1.0
"""How old what was read may be."""
MOST = 10_000
"""Entries that one count looks at."""
LONG_HISTORY = 10_000
"""Events from which on a history should have been cut by continue-as-new (OBS-20)."""
_ALL = ("", "\U0010ffff")
_KINDS = {WORK: "work", TURNS: "turns"}


class Snapshot:
    """What was read at one moment; labels as in engine/tally.py."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self.tasks: Totals = Counter()  #: by queue, kind of work and state
        self.running: Totals = Counter()  #: by namespace
        self.oldest: dict[Labels, float] = {}  #: seconds; by queue and kind of work
        self.workers: Totals = Counter()  #: by namespace
        self.slots: Totals = Counter()  #: by namespace
        self.open_runs: Totals = Counter()  #: by type
        self.stuck: Totals = Counter()  #: by type
        self.long_histories: Totals = Counter()  #: by type
        self.saga_ages: dict[Labels, list[float]] = defaultdict(list)  #: seconds; by type
        self.owing: Totals = Counter()  #: closed runs by type and by what they owe
        self.overdue = 0.0  #: seconds since the first alarm that has not rung should have

    def lanes(self, counts: Iterable[LaneCount], now: int) -> None:
        for count in counts:
            namespace, queue, kind = count.lane.split("\x1f")
            labels = (*self._names.labels((namespace, queue)), _KINDS[kind])
            for state in ("ready", "running", "delayed", "retrying"):
                self.tasks[(*labels, state)] += getattr(count, state)
            self.running[labels[:1]] += count.running
            if count.ready_since is not None:
                age = max(0, now - count.ready_since) / SECOND
                self.oldest[labels] = max(age, self.oldest.get(labels, 0.0))

    def sessions(self, sessions: Iterable[WorkerSession]) -> None:
        for session in sessions:
            if session.ends_at is None:
                labels = (self._names.labels((session.namespace, ""))[0],)
                self.workers[labels] += 1
                self.slots[labels] += session.slots

    def runs(self, runs: Iterable[OpenRun], now: int) -> None:
        for run in runs:
            labels = self._names.labels((run.namespace, run.type))
            self.open_runs[labels] += 1
            self.stuck[labels] += run.failures > 0 and run.failed
            self.long_histories[labels] += run.events > LONG_HISTORY
            if owed_by(run.search_attributes) is not None:
                self.saga_ages[labels].append(max(0, now - run.created_at) / SECOND)

    def owes(self, runs: Iterable[tuple[str, str, bytes, int]]) -> None:
        for namespace, type_, _, what in runs:
            self.owing[(*self._names.labels((namespace, type_)), Owed(what).name.lower())] += 1

    def utilization(self) -> dict[Labels, float]:
        """The share of all slots of a namespace's workers that are taken."""
        return {labels: min(1.0, self.running[labels] / slots) for labels, slots in self.slots.items() if slots}


class Look:
    """Reads the snapshot of an engine's store."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._names = Names()
        self._last: Snapshot | None = None
        self._at = 0.0
        self._reading = asyncio.Lock()

    async def snapshot(self) -> Snapshot | None:
        """At most a second old; None while the database is away."""
        loop = asyncio.get_running_loop()
        async with self._reading:
            if self._last is None or loop.time() - self._at >= FRESH_SECONDS:
                try:
                    self._last = await self._read()
                except StoreFault:
                    self._last = None
                self._at = loop.time()
        return self._last

    async def _read(self) -> Snapshot:
        store, found = self._engine.store, Snapshot(self._names)
        now = self._engine.now()
        found.lanes(await store.count_lanes(*_ALL, MOST), now)
        found.sessions(await store.every_session(MOST))
        found.runs(await store.open_runs(MOST), now)
        found.owes(await store.owing(MOST))
        first = await store.next_alarm()
        if first is not None:
            found.overdue = max(0, now - first) / SECOND
        return found
