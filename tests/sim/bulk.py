"""Actions on many jobs in a run, and what must hold of them (RETRY-07, RETRY-08): all jobs that an action found as it
began are dealt with, none in two steps, and its counts are those of its steps."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from perdure.app import AsyncPerdure
from perdure.core.errors import Unavailable
from perdure.core.model import Task
from perdure.core.states import Kind, State
from tests.sim.moves import OPEN
from tests.sim.reading import short
from tests.sim.tables import Change

if TYPE_CHECKING:
    from tests.sim.world import World

TYPE = "work"
"""Of the jobs that actions are about."""


class Noted(msgspec.Struct):
    """What the row of an action keeps, as far as it is looked at."""

    action: str
    done: int = 0
    failed: int = 0
    step: list[bytes] = []


class Bulk:
    """The clients' part, and the judge of what comes of it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._cancels = False  #: a client has asked to cancel jobs
        self._about: dict[bytes, set[bytes]] = {}  #: the jobs that an action has found as it began
        self._steps: dict[bytes, list[tuple[bytes, ...]]] = {}  #: of an action

    # ------------------------------------------------------------------------------------------------------- clients
    def of(self, client: int) -> Callable[[AsyncPerdure], Awaitable[None]]:
        plan = self._world.plan
        numbers = [number for number in range(plan.bulk) if number % plan.clients == client]

        async def run(app: AsyncPerdure) -> None:
            await asyncio.gather(*(self._act(app, number) for number in numbers))

        return run

    async def _act(self, app: AsyncPerdure, number: int) -> None:
        world = self._world
        source = world.plan.stream(f"bulk/{number}")
        at = 1000.0 + (0.2 + 0.8 * source.random()) * world.plan.chaos
        if at < world.loop.now:
            return  # this client was started again
        await asyncio.sleep(at - world.loop.now)
        try:
            if source.random() < 0.6:
                await app.retry_tasks(type=TYPE)
            else:
                self._cancels = True
                await app.cancel_tasks(type=TYPE)
        except Unavailable as error:
            world.trace(f"action {number} on many jobs: {error}")

    # --------------------------------------------------------------------------------------------------------- judge
    def may_cancel(self, task_id: bytes) -> bool:
        checker = self._world.checker
        task = checker.tasks.get(task_id) or checker.closed.get(task_id)
        return self._cancels and task is not None and (task.kind, task.type) == (Kind.JOB, TYPE)

    def committed(self, changes: Sequence[Change]) -> None:
        for change in changes:
            row: Task | None = change.after if change.table in ("tasks", "closed") else None
            if row is None or row.kind != Kind.BULK:
                continue
            action = msgspec.msgpack.decode(row.checkpoint or b"", type=Noted)
            if row.id not in self._about:
                self._about[row.id], self._steps[row.id] = self._found(action), []
            steps = self._steps[row.id]
            if action.step and tuple(action.step) not in steps[-1:]:
                steps.append(tuple(action.step))
            if row.state == State.SUCCEEDED:
                self._over(row, action)

    def _found(self, action: Noted) -> set[bytes]:
        """The jobs that it is about at this moment."""
        checker = self._world.checker
        rows = checker.closed if action.action == "retry" else checker.tasks
        found = [row for row in rows.values() if (row.kind, row.type) == (Kind.JOB, TYPE)]
        if action.action == "retry":
            return {row.id for row in found if row.state == State.FAILED and row.id not in checker.repeats}
        return {row.id for row in found if row.state in OPEN}

    def _over(self, row: Task, action: Noted) -> None:
        checker = self._world.checker
        checker.count(f"bulk {action.action}")
        told = Counter(task_id for step in self._steps[row.id] for task_id in step)
        if twice := [task_id for task_id, count in told.items() if count > 1]:
            checker.fail("bulk", f"{short(min(twice))} is in two steps of {short(row.id)}")
        if action.done + action.failed != len(told):
            checker.fail("bulk", f"{short(row.id)} counts {action.done} + {action.failed} of {len(told)} jobs")
        for task_id in sorted(self._about[row.id]):
            task = checker.tasks.get(task_id)
            if action.action == "retry":
                forgotten = task_id in checker.closed and task_id not in checker.repeats
            else:
                forgotten = task is not None and task.cancel_requested_at is None
            if forgotten and not action.failed:
                checker.fail("bulk", f"{short(row.id)} is over, and has left out {short(task_id)}")
