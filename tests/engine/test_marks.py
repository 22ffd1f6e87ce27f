"""Where looks into the indexes of a store start, so that what an old snapshot keeps in them costs nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import asyncpg
import pytest

from perdure.core import commands as c
from perdure.core.model import SECOND, Task
from perdure.core.states import State
from perdure.engine.alarms import Alarms
from perdure.engine.marks import FREE, FROM_START, REST, TRAIL, TRAIL_TASKS, Marks, Start
from perdure.store.base import Place
from perdure.store.memory import MemoryStore
from perdure.store.postgres import PostgresStore
from tests.engine.drive import enqueue, running

NOW = 1_000.0
LANE = "a"


def place(number: int, priority: int = 3) -> Place:
    return Place(priority, number, b"")


def claim(
    marks: Marks, now: float, last: int, count: int = 100, *, under_full: bool = False, took: float = 0.0
) -> None:
    marks.after(LANE, now)
    marks.claimed(LANE, place(last), now, count=count, under_full=under_full, took=took)


def test_a_mark_trails_by_four_seconds() -> None:
    marks = Marks()
    claim(marks, NOW, 1)
    claim(marks, NOW + 3.5, 2)
    claim(marks, NOW + 3.9, 3)
    assert marks.after(LANE, NOW + TRAIL) == place(1)


def test_a_busy_lane_is_trailed_by_some_thousand_tasks() -> None:
    """DESIGN 3: a claim does not step over what was claimed in four seconds at 20,000 a second."""
    marks = Marks()
    claims = 100
    for number in range(1, claims + 1):
        claim(marks, NOW + number / 200, number * 100)
    mark = marks.after(LANE, NOW + (claims + 1) / 200)
    assert mark is not None
    assert TRAIL_TASKS <= claims * 100 - mark.place <= TRAIL_TASKS + 300


def test_a_lane_is_looked_at_from_its_start_every_second_and_when_it_seems_empty() -> None:
    marks = Marks()
    claim(marks, NOW, 1)
    claim(marks, NOW + TRAIL, 2)
    claim(marks, NOW + TRAIL + 0.1, 3)
    assert marks.after(LANE, NOW + TRAIL + 0.2) == place(1)
    assert marks.after(LANE, NOW + TRAIL + FROM_START) is None
    claim(marks, NOW + TRAIL + FROM_START + 0.1, 4, count=1, under_full=True)
    assert marks.after(LANE, NOW + TRAIL + FROM_START + 0.2) is None


def test_what_is_made_ready_ahead_of_the_mark_is_looked_for_at_once() -> None:
    marks = Marks()
    claim(marks, NOW, 10)
    claim(marks, NOW + TRAIL, 20)
    task = Task(b"1", "default", "t", State.ENQUEUED, LANE, 0, 0, priority=1, place=30)
    assert marks.after(LANE, NOW + TRAIL + 0.1) == place(10)
    marks.ahead(task)
    assert marks.after(LANE, NOW + TRAIL + 0.2) is None


def test_looks_from_the_start_take_a_twentieth_of_the_time_at_most() -> None:
    """However many claims find too little: each would step over all that an old snapshot keeps."""
    marks = Marks()
    claim(marks, NOW, 1)
    claim(marks, NOW + TRAIL, 2, under_full=True, took=0.2)
    soon, later = NOW + TRAIL + 1.0, NOW + TRAIL + 0.2 + (0.2 - FREE) * REST
    assert marks.after(LANE, soon) == place(1)
    assert marks.after(LANE, later) is None


def test_cheap_looks_from_the_start_are_free() -> None:
    start = Start()
    assert start.afforded(NOW)
    start.looked(NOW, FREE)
    assert start.afforded(NOW + FREE)


class _SlowFromTheStart(MemoryStore):
    """Looks at all alarms take long, as over a million entries of alarms that are over."""

    def __init__(self) -> None:
        super().__init__(clock=lambda: 100 * SECOND)
        self.looks: list[int] = []

    async def next_alarm(self, after: int = 0) -> int | None:
        self.looks.append(after)
        if not after:
            await asyncio.sleep(5 * FREE)
        return await super().next_alarm(after)


async def test_alarms_are_looked_for_behind_those_that_are_over() -> None:
    """A look at all of them is dear, so the next ones start behind what it found; also those that ring."""
    store = _SlowFromTheStart()
    rung: list[c.Ring] = []

    async def apply(chores: Sequence[c.Command]) -> list[c.Outcome]:
        rung.extend(chore for chore in chores if isinstance(chore, c.Ring))
        return [c.Did(0) for _ in chores]

    alarms = Alarms(store, apply, lambda: None)
    floor = int(100 * SECOND - TRAIL * SECOND)
    await alarms.run_once()
    assert rung == [c.Ring(limit=200, after=floor)]
    await alarms.run_once()
    assert store.looks == [0, floor, floor]
    alarms.note(10 * SECOND)
    assert await alarms.run_once() == 0.25
    assert store.looks[-1] == 10 * SECOND - 1, "an alarm that this server sets is never below the floor"


@pytest.mark.timeout(60)
async def test_an_old_snapshot_does_not_make_claims_step_over_all_that_was_claimed(postgres_database: str) -> None:
    """DESIGN 3: counted in index entries, which vacuum and claims themselves cannot remove meanwhile."""
    store = PostgresStore(postgres_database)
    await store.migrate()
    await store.open()
    observer = await asyncpg.connect(postgres_database)
    rounds, jobs = 50, 400
    try:
        await observer.execute("begin isolation level repeatable read")
        await observer.execute("select 1")
        async with running(store) as drive:
            for _ in range(rounds):
                await drive.engine.apply([enqueue() for _ in range(jobs)])
                tasks = await drive.poll(jobs)
                assert len(tasks) == jobs
                done = [c.Complete(lease=task.lease, outcome="succeeded") for task in tasks]
                assert all(isinstance(outcome, c.Changed) for outcome in await drive.engine.apply(done))
        await store.close()  # the numbers below arrive when a connection ends
        await observer.execute("commit")
        read = "select idx_tup_read from pg_stat_user_indexes where indexrelname = 'tasks_ready'"
        looked_at = await observer.fetchval(read)
    finally:
        await observer.close()
        await store.close()
    assert rounds * jobs <= looked_at < rounds * jobs * rounds / 4, "half of rounds squared is all of it each time"
