"""Two engines on one database, and every order in which their statements can meet.

Each engine stops before each statement until the schedule lets it go. On the memory store (READ COMMITTED, real locks)
the schedules are enumerated: run one, note how many engines could have gone at each choice, go back to the last choice
with an untried alternative. On PostgreSQL the same scenarios run under schedules drawn from a seed, because a real
database cannot say when it has come to rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from random import Random
from typing import Any

from perdure.store.base import Store
from tests.clock import SteppedClock
from tests.engine.drive import Drive, running

_ENGINE: ContextVar[int] = ContextVar("engine", default=-1)


class Gate:
    """A `switch`: holds the statements of engines 0 and 1 while `closed`."""

    def __init__(self) -> None:
        self.closed = False
        self.held: dict[int, list[asyncio.Future[None]]] = {}

    async def __call__(self) -> None:
        engine = _ENGINE.get()
        if not self.closed or engine < 0:
            return
        held = asyncio.get_running_loop().create_future()
        self.held.setdefault(engine, []).append(held)
        await held

    def let_go(self, engine: int) -> None:
        first, *rest = self.held.pop(engine)
        if rest:
            self.held[engine] = rest
        first.set_result(None)

    def open(self) -> None:
        self.closed = False
        while self.held:
            self.let_go(next(iter(self.held)))


@dataclass
class Race:
    """`setup` prepares and returns what `left`, `right` and `check` work with; the results of both (or their errors) go
    to `check`."""

    setup: Callable[[Drive], Awaitable[Any]]
    left: Callable[[Drive, Any], Awaitable[Any]]
    right: Callable[[Drive, Any], Awaitable[Any]]
    check: Callable[[Drive, Any, Any, Any], Awaitable[None]]


@dataclass
class Schedule:
    """Which engine goes at each choice, and how many could have gone."""

    picks: Sequence[int]
    rest: Callable[[int], int] = lambda options: 0
    options: list[int] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)

    def pick(self, options: int) -> int:
        at = len(self.options)
        self.options.append(options)
        taken = (self.picks[at] if at < len(self.picks) else self.rest(options)) % options
        self.taken.append(taken)
        return taken

    def next(self) -> list[int] | None:
        """The picks of the next untried schedule; None when there is none."""
        for at in range(len(self.options) - 1, -1, -1):
            if self.taken[at] + 1 < self.options[at]:
                return [*self.taken[:at], self.taken[at] + 1]
        return None


async def run(race: Race, stores: tuple[Store, Store], gate: Gate, schedule: Schedule, patience: float) -> None:
    """One schedule of a race. `patience` is how long a released engine may take to its next statement before it counts
    as waiting for the other; 0 means that the loop coming to rest tells."""
    _ENGINE.set(0)
    async with running(stores[0], seed=1, incarnation=1) as first:
        _ENGINE.set(1)
        async with running(stores[1], seed=2, incarnation=2) as second:
            _ENGINE.set(-1)
            made = await race.setup(first)
            gate.closed = True
            sides = [
                asyncio.create_task(_side(race.left(first, made))),
                asyncio.create_task(_side(race.right(second, made))),
            ]
            await _steer(sides, gate, schedule, patience)
            gate.open()
            async with asyncio.timeout(20):
                left, right = await asyncio.gather(*sides)
            await race.check(first, made, left, right)


async def _side(work: Awaitable[Any]) -> Any:
    try:
        return await work
    except Exception as error:  # noqa: BLE001  # errors are results here
        return error


async def _steer(sides: list[asyncio.Task[Any]], gate: Gate, schedule: Schedule, patience: float) -> None:
    while not all(side.done() for side in sides):
        await _settle(sides, gate, patience)
        held = sorted(gate.held)
        if not held:
            if all(side.done() for side in sides):
                return
            await asyncio.sleep(0.005)  # waits for a lock or a repeat: time must pass
            continue
        gate.let_go(held[schedule.pick(len(held))])


async def _settle(sides: list[asyncio.Task[Any]], gate: Gate, patience: float) -> None:
    """Until each engine is held, done, or waits for the other."""
    if patience == 0:
        for _ in range(25):
            await asyncio.sleep(0)
        return
    loop = asyncio.get_running_loop()
    until = loop.time() + patience
    while loop.time() < until:
        if all(side.done() or engine in gate.held for engine, side in enumerate(sides)):
            return
        await asyncio.sleep(0.001)


async def every_order(name: str, race: Race, clock: SteppedClock, most: int) -> int:
    """Every order of a race on the memory store; how many were tried. Where there are more than `most`, the first of
    them, which differ late, and as many again that are drawn from seeds."""
    picks: list[int] | None = []
    tried = 0
    while picks is not None and tried < most:
        schedule = Schedule(picks)
        await _order(name, race, clock, schedule)
        picks = schedule.next()
        tried += 1
    if picks is not None:
        for seed in range(most):
            await _order(name, race, clock, drawn(seed))
        tried += most
    return tried


async def _order(name: str, race: Race, clock: SteppedClock, schedule: Schedule) -> None:
    from perdure.store.memory import MemoryStore

    gate = Gate()
    store = MemoryStore(clock=clock.now, switch=gate)
    await store.open()
    try:
        await run(race, (store, store), gate, schedule, 0)
    except BaseException as error:
        error.add_note(f"race {name}, schedule {schedule.taken}")
        raise


async def drawn_orders(name: str, race: Race, clock: SteppedClock, url: str, seeds: int) -> None:
    """Orders of a race that are drawn from seeds, on a PostgreSQL database that is up to date."""
    from perdure.store.postgres import PostgresStore

    gate = Gate()
    first, second = (PostgresStore(url, clock=clock.now, switch=gate) for _ in range(2))
    await asyncio.gather(first.open(), second.open())
    try:
        for seed in range(seeds):
            try:
                await run(race, (first, second), gate, drawn(seed), 0.03)
            except BaseException as error:
                error.add_note(f"race {name}, seed {seed}")
                raise
            await _empty(url)
    finally:
        await asyncio.gather(first.close(), second.close())


async def _empty(url: str) -> None:
    """The next schedule starts from nothing."""
    import asyncpg

    connection = await asyncpg.connect(url)
    tables = ("tasks", "closed_tasks", "attempts", "keys", "workers", "history", "inbox")
    await connection.execute(f"truncate {', '.join(f'perdure.{table}' for table in tables)}")
    await connection.close()


def drawn(seed: int) -> Schedule:
    """A schedule drawn from a seed."""
    source = Random(seed)
    return Schedule((), rest=source.randrange)


async def in_one_batch(race: Race, clock: SteppedClock, *, swapped: bool) -> None:
    """Both sides ask the same engine at the same moment; `swapped`: the right one first."""
    from perdure.store.memory import MemoryStore

    store = MemoryStore(clock=clock.now)
    await store.open()
    async with running(store) as drive:
        made = await race.setup(drive)
        works = [_side(race.left(drive, made)), _side(race.right(drive, made))]
        outcomes = await asyncio.gather(*(reversed(works) if swapped else works))
        left, right = reversed(outcomes) if swapped else outcomes
        await race.check(drive, made, left, right)
