"""Rings alarms when they are due, ends the leases of sessions that are gone, and takes the pulse: one service, because
all three are rows that wait for a time. It sleeps until the next alarm it knows of, and looks for alarms that others
set four times a second (A/Scheduling).

The index of alarms is read from a floor, as lanes are from a mark (marks.py): what an old snapshot keeps of alarms that
are over lies below it. The floor trails the earliest alarm, so nothing comes to lie below it but what a slow
transaction of somebody else sets, an application's say. That is found by looks from the start, which all are unless
they have become dear.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from perdure.core import commands as c
from perdure.core import pulse
from perdure.core.model import SECOND
from perdure.engine.marks import TRAIL, Start
from perdure.store.base import Store

LOOK = 0.25  #: seconds between looks for alarms that other servers set
LIMIT = 200  #: rows that one chore changes

Apply = Callable[[Sequence[c.Command]], Awaitable[list[c.Outcome]]]


class Alarms:
    """The service; `note` tells it of alarms set here."""

    name = "alarms"

    def __init__(self, store: Store, apply: Apply, nudge: Callable[[], None]) -> None:
        self._store = store
        self._apply = apply
        self._nudge = nudge
        self._next: int | None = None
        self._floor = 0
        self._start = Start()
        self._pulse_at = 0.0
        self._ending = False

    def note(self, wake_at: int | None) -> None:
        """An alarm was set; ring it in time if it is the next."""
        if wake_at is not None and (self._next is None or wake_at < self._next):
            self._next = wake_at
            self._floor = min(self._floor, wake_at - 1)
            if wake_at - self._store.now() < LOOK * SECOND:
                self._nudge()

    def end_sessions(self) -> None:
        """A session is to end."""
        self._ending = True
        self._nudge()

    async def run_once(self) -> float:
        monotonic = asyncio.get_running_loop().time()
        await self._look(monotonic)
        chores: list[c.Command] = []
        pulse_due = monotonic - self._pulse_at >= pulse.INTERVAL / SECOND
        if pulse_due or (self._next is not None and self._next <= self._store.now()):
            chores.append(c.Ring(limit=LIMIT, after=self._floor))
        if pulse_due or self._ending:
            chores.append(c.Reap(limit=LIMIT))
        if chores:
            self._pulse_at = monotonic if pulse_due else self._pulse_at
            outcomes = await self._apply(chores)
            counts = [outcome.count for outcome in outcomes if isinstance(outcome, c.Did)]
            self._ending = isinstance(chores[-1], c.Reap) and any(counts[-1:])
            if max(counts, default=0) >= LIMIT:
                return 0.0
            self._next = await self._store.next_alarm(self._floor)
        if self._next is None:
            return LOOK
        return max(0.0, min(LOOK, (self._next - self._store.now()) / SECOND))

    async def _look(self, monotonic: float) -> None:
        """Learn of the earliest alarm."""
        from_start = self._start.afforded(monotonic)
        self._next = await self._store.next_alarm(0 if from_start else self._floor)
        if from_start:
            self._start.looked(monotonic, asyncio.get_running_loop().time() - monotonic)
        now = self._store.now()
        earliest = now if self._next is None else min(now, self._next)
        self._floor = max(0, earliest - int(TRAIL * SECOND))
