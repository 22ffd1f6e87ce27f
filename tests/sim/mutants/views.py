"""Mistakes in what owners are shown."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from perdure.api import views
from perdure.core.model import Task
from perdure.core.states import State
from perdure.store.memory import MemoryStore
from tests.sim.mutants.registry import change, mutant


@mutant("a page reads the closed tasks first, and the open ones then")
def _(stack: ExitStack) -> None:
    real = MemoryStore.find

    async def find(self: Any, filter: Any) -> list[Task]:
        closed = set(self._tables.closed.rows)
        await self.pause()
        found = await real(self, filter)
        return [task for task in found if task.closed_at is None or task.id in closed]

    change(stack, MemoryStore, "find", find)


@mutant("a task that was handed back has no reason")
def _(stack: ExitStack) -> None:
    real = views.waiting_for

    def waiting_for(task: Task, *rest: Any) -> str:
        return "" if task.state == State.ENQUEUED and task.lease_number else real(task, *rest)

    change(stack, views, "waiting_for", waiting_for)
