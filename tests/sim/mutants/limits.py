"""Mistakes about limits."""

from __future__ import annotations

from contextlib import ExitStack
from copy import copy
from typing import Any

from perdure.core import limit_rules
from perdure.core.effects import Change
from perdure.core.model import Task
from perdure.engine import flow, flow_service
from perdure.store.memory import MemoryBatch
from tests.sim.mutants.registry import change, mutant


@mutant("a count of running tasks forgets their weights")
def _(stack: ExitStack) -> None:
    real = limit_rules.Limits.occupied

    def occupied(self: Any, running: Any) -> Any:
        return real(self, [limit_rules.Running(*(*found[:4], 1, found[5])) for found in map(tuple, map(_row, running))])

    def _row(found: limit_rules.Running) -> list[Any]:
        return [getattr(found, name) for name in limit_rules.Running.__struct_fields__]

    change(stack, limit_rules.Limits, "occupied", occupied)


@mutant("a limit is counted against without being held")
def _(stack: ExitStack) -> None:
    async def hold_limits(self: Any, names: Any) -> Any:
        found = {name: self._transaction.get(self._tables.limits, name) for name in names}
        return {name: copy(limit) for name, limit in found.items() if limit is not None}

    change(stack, MemoryBatch, "hold_limits", hold_limits)


@mutant("a slot that is free is given to nobody")
def _(stack: ExitStack) -> None:
    async def pull(self: Any, rows: Any, most: Any) -> list[Task]:
        return []

    change(stack, flow.Flow, "_pull", pull)


@mutant("a blocked task loses its place")
def _(stack: ExitStack) -> None:
    def block(task: Task, subject: str) -> Change:
        blocked = limit_rules.block(task, subject)
        blocked.task.blocked_place = None
        return blocked

    change(stack, flow, "block", block)


@mutant("the end of a lease pulls nothing, and nobody looks again")
def _(stack: ExitStack) -> None:
    async def run_once(self: Any) -> float:
        await self.load()
        return 1.0

    change(stack, flow_service.FlowService, "run_once", run_once)
    change(stack, flow.Flow, "_ended", lambda self: {})


@mutant("a limit admits one more than it says")
def _(stack: ExitStack) -> None:
    real = limit_rules.Room.admits

    def admits(self: Any, weight: int) -> bool:
        return real(self, weight) or (self.running == self.limit.max_running and not self.limit.paused)

    change(stack, limit_rules.Room, "admits", admits)
