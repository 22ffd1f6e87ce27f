"""Pairs of what meets on a schedule: whatever the order of their statements, a nominal time fires once, and what was
answered is true. Every order on the memory store, drawn orders on PostgreSQL with two connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from perdure.core import commands as c
from perdure.core.calendar import Timing
from perdure.core.model import SECOND, Task
from perdure.core.schedule import Definition, Schedule, TaskAction, WorkflowAction
from perdure.core.schedules import read
from perdure.core.states import Kind
from perdure.store.base import Filter
from tests.clock import SteppedClock
from tests.engine import interleave
from tests.engine.drive import Drive
from tests.engine.interleave import Race

MOST = 120
"""Schedules of one race that are tried on the memory store."""
DRAWN = 6
"""Schedules of one race that are tried on PostgreSQL."""

CLOCK = SteppedClock()
MINUTE = Timing(interval=60 * SECOND)


def next_minute() -> None:
    """A second after a nominal time."""
    CLOCK.advance(61 - CLOCK.now() / SECOND % 60)


def definition(overlap: str = "skip", **action: Any) -> Definition:
    return Definition(timing=MINUTE, action=TaskAction(type="t", **action), overlap=overlap)


def put(drive: Drive, wanted: Definition, digest: bytes = b"1", *, replace: bool = False) -> Any:
    task_id = drive.engine.mint.task_id(CLOCK.now())
    command = c.PutSchedule(
        namespace="default", schedule_id="s", definition=wanted, digest=digest, replace=replace, task_id=task_id
    )
    return drive.one(command)


async def due(drive: Drive, wanted: Definition | None = None) -> Any:
    await put(drive, wanted or definition())
    next_minute()
    return None


async def due_again(drive: Drive) -> Task:
    """What the first firing has started runs, and the second one is due."""
    await due(drive, definition("cancel_previous"))
    await drive.ring()
    task = await drive.lease()
    await drive.beat(task)
    next_minute()
    return task


async def due_workflow(drive: Drive) -> None:
    action = WorkflowAction(type="flow", workflow_id="w")
    await put(drive, Definition(timing=MINUTE, action=action))
    next_minute()


def ring(drive: Drive, made: Any) -> Any:
    return drive.ring()


def pause(drive: Drive, made: Any) -> Any:
    return drive.one(c.PauseSchedule(namespace="default", schedule_id="s", paused=True))


def delete(drive: Drive, made: Any) -> Any:
    return drive.one(c.DeleteSchedule(namespace="default", schedule_id="s"))


def trigger(drive: Drive, made: Any) -> Any:
    return drive.one(c.TriggerSchedule(namespace="default", schedule_id="s", request_id="r"))


def backfill(drive: Drive, made: Any) -> Any:
    now = CLOCK.now()
    return drive.one(c.BackfillSchedule(namespace="default", schedule_id="s", start_at=now - 30 * SECOND, end_at=now))


def create(drive: Drive, made: Any) -> Any:
    return put(drive, definition())


def change(drive: Drive, made: Any) -> Any:
    return put(drive, definition(queue="other"), b"2", replace=True)


def succeed(drive: Drive, task: Task) -> Any:
    return drive.succeed(task)


async def schedule(drive: Drive) -> Schedule | None:
    rows = await drive.engine.store.schedules("default", 10)
    assert len(rows) <= 1
    return read(rows[0]) if rows else None


async def started(drive: Drive) -> list[Task]:
    found = await drive.engine.store.find(Filter(namespace="default", limit=100))
    return sorted((task for task in found if task.type in ("t", "flow")), key=lambda task: task.id)


async def fires_once(drive: Drive, made: Any, left: Any, right: Any) -> None:
    """One task for each key, and what stands in the row is what there is."""
    await drive.ring()
    tasks = await started(drive)
    names = [task.idempotency_key for task in tasks if task.kind is Kind.JOB]
    assert len(set(names)) == len(names)
    found = await schedule(drive)
    assert found is not None
    noted = {firing.task_id for firing in found.standing.recent if firing.outcome.startswith("started")}
    assert noted == {task.id for task in tasks}
    assert found.standing.counts["started"] == len(tasks)


async def once(drive: Drive, made: Any, left: Any, right: Any) -> None:
    await fires_once(drive, made, left, right)
    assert len(await started(drive)) == 1


async def no_more(drive: Drive, made: Any, left: Any, right: Any) -> None:
    """The right side has ended it: nothing fires any more."""
    assert isinstance(right, c.Scheduled)
    before = len(await started(drive))
    assert before <= 1
    CLOCK.advance(600)
    await drive.ring()
    assert len(await started(drive)) == before


async def by_one_of_both(drive: Drive, made: Any, left: Any, right: Any) -> None:
    """The overdue time is served by the old definition or by the new one, and the next one by the new."""
    assert isinstance(right, c.Scheduled)
    await once(drive, made, left, right)
    found = await schedule(drive)
    assert found is not None
    assert found.definition.action.queue == "other"


async def two(drive: Drive, made: Any, left: Any, right: Any) -> None:
    assert isinstance(right, c.Scheduled)
    await fires_once(drive, made, left, right)
    assert len(await started(drive)) == 2 - (await schedule(drive)).standing.counts.get("overlap", 0)  # type: ignore[union-attr]


async def goes_on(drive: Drive, made: Any, left: Any, right: Any) -> None:
    """The one before has ended by itself or was asked to; the next one starts in any case."""
    for _ in range(3):
        CLOCK.advance(1)
        await drive.ring()
    found = await schedule(drive)
    assert found is not None
    task = await drive.read(made.id)
    if task.closed_at is None:
        assert task.cancel_requested_at is not None
        assert found.standing.buffered is not None
    else:
        assert found.standing.counts["started"] == 2
        assert found.standing.buffered is None


async def one_is_made(drive: Drive, made: Any, left: Any, right: Any) -> None:
    assert sorted(one.did for one in (left, right)) == ["created", "unchanged"]
    assert left.task_id == right.task_id
    assert await schedule(drive) is not None


async def deleted_or_made_anew(drive: Drive, made: Any, left: Any, right: Any) -> None:
    assert left.did == "deleted"
    assert (await schedule(drive) is not None) == (right.did == "created")
    assert right.did in ("created", "unchanged")


async def nothing(drive: Drive) -> None:
    """No schedule."""


def race(setup: Callable[[Drive], Any], left: Any, right: Any, check: Any) -> Race:
    return Race(setup, left, right, check)


RACES = {
    "create/create": race(nothing, create, create, one_is_made),
    "delete/create": race(due, delete, create, deleted_or_made_anew),
    "ring/backfill": race(due, ring, backfill, once),
    "ring/change": race(due, ring, change, by_one_of_both),
    "ring/delete": race(due, ring, delete, no_more),
    "ring/pause": race(due, ring, pause, no_more),
    "ring/ring": race(due, ring, ring, once),
    "ring/succeed": race(due_again, ring, succeed, goes_on),
    "ring/trigger": race(due, ring, trigger, two),
    "trigger/trigger": race(due, trigger, trigger, fires_once),
    "workflow: ring/ring": race(due_workflow, ring, ring, once),
    "workflow: ring/trigger": race(due_workflow, ring, trigger, two),
}


@pytest.mark.parametrize("name", sorted(RACES))
async def test_every_order_on_the_memory_store(name: str) -> None:
    """B076, B079, CRON-07."""
    assert await interleave.every_order(name, RACES[name], CLOCK, MOST) > 3


@pytest.mark.parametrize("name", sorted(RACES))
async def test_drawn_orders_on_postgresql(name: str, migrated_database: str) -> None:
    await interleave.drawn_orders(name, RACES[name], CLOCK, migrated_database, DRAWN)
