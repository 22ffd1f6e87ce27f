"""Schedules that clients make, and what must hold of their firings, written from the requirements (CRON-03 to CRON-07):
no nominal time fires twice, none fires once a pause was answered, and where all are to be caught up none is missing."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.app import AsyncPerdure
from perdure.core.errors import Conflict, NotFound, Unavailable
from perdure.core.model import RetryPolicy, Task
from perdure.core.states import Kind
from tests.sim import workload
from tests.sim.tables import Change

if TYPE_CHECKING:
    from tests.sim.world import World

NUMBERS = 3_000_000
"""Where those of the tasks begin."""
_SECOND = 1_000_000
_INTERVALS = (1, 3, 10)
_MODES = ("steady", "pause", "trigger", "change")


class Schedules:
    """The clients' part, and the judge of what comes of it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._modes: dict[str, tuple[str, int]] = {}  #: mode and interval, by schedule
        self._made_at: dict[str, int] = {}
        self._fired: dict[str, set[int]] = defaultdict(set)
        self._paused: set[str] = set()

    # ------------------------------------------------------------------------------------------------------- clients
    def of(self, client: int) -> Callable[[AsyncPerdure], Awaitable[None]]:
        plan = self._world.plan
        numbers = [number for number in range(plan.schedules) if number % plan.clients == client]

        async def run(app: AsyncPerdure) -> None:
            await asyncio.gather(*(self._act(app, number) for number in numbers))

        return run

    async def _act(self, app: AsyncPerdure, number: int) -> None:
        world = self._world
        source = world.plan.stream(f"schedule/{number}")
        at = 1000.0 + source.random() * world.plan.chaos * 0.5
        if at < world.loop.now:
            return  # this client was started again
        await asyncio.sleep(at - world.loop.now)
        try:
            await self._live(app, f"schedule {number}", number, source)
        except (Unavailable, NotFound, Conflict) as error:
            world.trace(f"schedule {number}: {error}")

    async def _live(self, app: AsyncPerdure, name: str, number: int, source: Random) -> None:
        mode, interval = source.choice(_MODES), source.choice(_INTERVALS)
        self._modes[name] = mode, interval
        body = workload.quick(NUMBERS + number, sleeps=[source.choice((0.01, 0.5, 4.0))])
        self._world.specs[body["n"]] = body
        options: dict[str, Any] = {
            "task": "work",
            "payload": body,
            "interval": interval,
            "retry": RetryPolicy(max_attempts=3, base=0.5, cap=8.0),
            "overlap_policy": "allow" if mode == "steady" else source.choice(("skip", "allow", "buffer_one")),
            "misfire_policy": "all" if mode == "steady" else source.choice(("once", "skip", "all")),
        }
        handle = await app.create_schedule(name, **options)
        await asyncio.sleep(source.random() * 20.0)
        match mode:
            case "pause":
                await handle.pause()
                self._paused.add(name)
            case "trigger":
                job = await handle.trigger()
                self._world.acknowledged(job.id, None)
            case "change":
                await app.put_schedule(name, **{**options, "misfire_policy": "once", "priority": 1})

    # --------------------------------------------------------------------------------------------------------- judge
    def open(self) -> list[str]:
        """Schedules that are still there."""
        rows = self._world.checker.tasks.values()
        return [row.idempotency_key or "" for row in rows if row.kind == Kind.SCHEDULE]

    def committed(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.table != "tasks":
                continue
            row: Task = change.after or change.before
            if row.kind == Kind.SCHEDULE:
                self._schedule(change)
            elif change.before is None and row.headers is not None:
                headers = msgspec.msgpack.decode(row.headers)
                if "perdure-schedule-id" in headers:
                    self._firing(headers["perdure-schedule-id"], headers["perdure-scheduled-at"])

    def _schedule(self, change: Change) -> None:
        if change.before is None:
            self._made_at[change.after.idempotency_key] = change.after.created_at
        elif change.after is None:
            self._deleted(change.before.idempotency_key)

    def _firing(self, name: str, stamp: str) -> None:
        checker = self._world.checker
        moment = datetime.fromisoformat(stamp)
        at = round(moment.timestamp()) * _SECOND + moment.microsecond
        if moment.microsecond or moment.timestamp() % self._modes[name][1]:
            return  # triggered
        if at in self._fired[name]:
            checker.fail("fired twice", f"{name} at {stamp}")
        if name in self._paused:
            checker.fail("fired while paused", f"{name} at {stamp}")
        self._fired[name].add(at)
        checker.count("firing")

    def _deleted(self, name: str) -> None:
        """Of one that catches up all none is missing, from its first time to its last."""
        mode, interval = self._modes[name]
        fired = sorted(self._fired[name])
        if mode != "steady" or not fired:
            return
        step = interval * _SECOND
        expected = range(self._made_at[name] // step * step + step, fired[-1] + 1, step)
        if missing := set(expected) - set(fired):
            self._world.checker.fail("not fired", f"{name} at {min(missing)}, and at {len(missing) - 1} more times")
