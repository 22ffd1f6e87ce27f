"""Whatever happens in whatever order: no limit is exceeded at any commit, order is kept, and everything ends.

Random commands from two workers, with two batches in flight where the store has them (QUOTA-06, QUOTA-12, B018).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from random import Random

import pytest

from perdure.core.limit_rules import Limit, Limits, Room
from perdure.core.model import RetryPolicy, Task, Timeouts
from perdure.core.states import is_closed
from perdure.store.base import Store
from perdure.store.memory import MemoryStore
from tests.clock import SteppedClock
from tests.engine.drive import Drive, enqueue, running
from tests.flow.limited import complete, delete, look, occupied, pause, put
from tests.store.conftest import make_store, opened

SCOPES = (("key", "customer"), ("namespace", ""), ("queue", "default"), ("type", "t"))


class Watch:
    """What each limit may have at most: its number, or what ran as it was lowered."""

    def __init__(self, drive: Drive) -> None:
        self._drive = drive
        self._most: Counter[str] = Counter()

    async def check(self, *, changed: bool = False) -> None:
        taken = await occupied(self._drive)
        limits = Limits(await self._drive.engine.store.limits())
        for subject, slots in taken.items():
            limit = next(each for each in limits_of(limits) if subject.startswith("\x1f".join(each.id[:2])))
            most = 0 if limit.paused else limit.max_running
            if most is None:
                continue
            if changed or subject not in self._most:
                self._most[subject] = max(most, slots if changed else most)
            self._most[subject] = max(most, min(self._most[subject], slots) if not changed else self._most[subject])
            assert slots <= self._most[subject], f"{subject!r} has {slots} of {most}"
        for subject in self._most.keys() - taken.keys():
            del self._most[subject]


def limits_of(limits: Limits) -> list[Limit]:
    return [limit for found in limits._by_namespace.values() for limit in found.values()]


class Play:
    """One random course of events."""

    def __init__(self, drive: Drive, clock: SteppedClock, seed: int) -> None:
        self.random = Random(seed)
        self.drive = drive
        self.clock = clock
        self.watch = Watch(drive)
        self.held: list[Task] = []
        self.ids: list[bytes] = []

    async def step(self) -> None:
        action = self.random.choices(
            (self.add, self.poll, self.end, self.limit, self.let_go, self.cancel, self.wait), (5, 6, 6, 1, 1, 1, 1)
        )[0]
        await action()
        await self.watch.check(changed=action == self.limit)

    async def add(self) -> None:
        pick = self.random
        for _ in range(pick.randint(1, 6)):
            command = enqueue(
                pick.choice("tu"),
                concurrency_key=pick.choice((None, "customer:1", "customer:2")),
                weight=pick.choice((1, 1, 1, 2, 9)),
                priority=pick.choice((3, 3, 2)),
                retry=RetryPolicy(max_attempts=3, base=0.001, cap=0.001),
                timeouts=Timeouts(lease=5),
            )
            self.ids.append((await self.drive.one(command)).task_id)

    async def poll(self) -> None:
        polls = [self.drive.poll(self.random.randint(1, 4)) for _ in range(2)]
        for tasks in await asyncio.gather(*polls):
            self.held += tasks

    async def end(self) -> None:
        self.random.shuffle(self.held)
        ending, self.held = self.held[:2], self.held[2:]
        for task in ending:
            await self.drive.beat(task)
        outcomes = [self.random.choice(("succeeded", "succeeded", "released", "failed")) for _ in ending]
        await asyncio.gather(
            *(
                self.drive.fail(task) if outcome == "failed" else complete(self.drive, task, outcome)
                for task, outcome in zip(ending, outcomes, strict=True)
            )
        )

    async def limit(self) -> None:
        scope, name = self.random.choice(SCOPES)
        match self.random.randrange(5):
            case 0:
                await pause(self.drive, scope, name)
            case 1:
                await pause(self.drive, scope, name, paused=False)
            case 2 if known := [x for x in await self.drive.engine.store.limits() if x.id[1:] == (scope, name)]:
                await delete(self.drive, *known[0].id[1:])
            case _:
                await put(self.drive, scope, name, max_running=self.random.randint(1, 5))

    async def let_go(self) -> None:
        """A worker vanishes with all it has."""
        self.held.clear()
        await self.drive.elapse(self.clock, 11)

    async def cancel(self) -> None:
        if self.ids:
            await self.drive.cancel(self.random.choice(self.ids))

    async def wait(self) -> None:
        await self.drive.elapse(self.clock, 1)
        await look(self.drive)

    async def finish(self) -> None:
        """Everything ends once nothing is paused."""
        for scope, name in SCOPES:
            await pause(self.drive, scope, name, paused=False)
        await self.let_go()
        for _ in range(300):
            await self.wait()
            got = await self.drive.poll(50)
            await self.watch.check()
            for task in got:
                await complete(self.drive, task)
            left = [task_id for task_id in self.ids if not is_closed(await self.drive.state(task_id))]
            if not left:
                return
        raise AssertionError(f"{len(left)} tasks never end: {await self.drive.read(left[0])}")


async def play(store: Store, clock: SteppedClock, seed: int, steps: int) -> None:
    async with running(store, seed=seed) as drive:
        course = Play(drive, clock, seed)
        for _ in range(steps):
            await course.step()
        await course.finish()


@pytest.mark.parametrize("seed", range(20))
async def test_no_limit_is_ever_exceeded_and_everything_ends(seed: int) -> None:
    clock, pick = SteppedClock(), Random(seed)

    async def switch() -> None:
        for _ in range(pick.randrange(3)):
            await asyncio.sleep(0)

    store = MemoryStore(clock=clock.now, switch=switch)
    async with opened(store):
        await play(store, clock, seed, 80)


@pytest.fixture(params=["postgres", "sqlite"])
async def real(request: pytest.FixtureRequest, clock: SteppedClock, tmp_path: object) -> AsyncIterator[Store]:
    async with opened(make_store(request.param, clock, tmp_path, request)) as store:  # type: ignore[arg-type]
        yield store


async def test_the_same_on_a_real_database(real: Store, clock: SteppedClock) -> None:
    await play(real, clock, 7, 40)


def test_a_room_is_never_overdrawn() -> None:
    """The arithmetic alone: what is admitted is never more than the limit, what is given back can be had again."""
    pick = Random(1)
    for _ in range(500):
        most, rate = pick.randint(1, 9), pick.choice((None, 5))
        limit = Limit("n", "queue", "q", max_running=most, rate=rate, per=1_000, burst=4)
        room, taken = Room(limit, 0, 0, 0), list[int]()
        for _ in range(30):
            weight = pick.randint(1, 12)
            if taken and pick.random() < 0.4:
                room.give_back(taken.pop())
            elif room.admits(weight):
                room.take(weight)
                taken.append(weight)
            assert 0 <= room.running <= (limit.max_running or 0)
            assert limit.rate is None or room.started <= 4
