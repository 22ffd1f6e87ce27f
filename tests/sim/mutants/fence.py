"""Mistakes at the fence: what a worker writes without a lease that holds."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import msgspec

from perdure.core import commands as c
from perdure.core import decide
from perdure.core.model import Task
from perdure.core.states import State
from perdure.store.memory import MemoryBatch
from tests.sim.mutants.registry import change, mutant


@mutant("completions are not fenced")
def _(stack: ExitStack) -> None:
    real = decide.complete

    def complete(task: Task, command: c.Complete, *rest: Any) -> Any:
        if task.state == State.LEASED:
            command = msgspec.structs.replace(command, lease=task.lease)
        return real(task, command, *rest)

    change(stack, decide, "complete", complete)


def _with_current_leases(batch: Any, commands: Any) -> list[Any]:
    found = []
    for command in commands:
        task = batch._open(command.lease.task_id)
        held = task is not None and task.state == State.LEASED
        found.append(msgspec.structs.replace(command, lease=task.lease) if held else command)
    return found


@mutant("the statement that beats is not fenced")
def _(stack: ExitStack) -> None:
    real = MemoryBatch.beat

    async def beat(self: Any, beats: Any) -> Any:
        return await real(self, _with_current_leases(self, beats))

    change(stack, MemoryBatch, "beat", beat)


@mutant("the statement that succeeds is not fenced")
def _(stack: ExitStack) -> None:
    real = MemoryBatch.succeed

    async def succeed(self: Any, completions: Any) -> Any:
        return await real(self, _with_current_leases(self, completions))

    change(stack, MemoryBatch, "succeed", succeed)


@mutant("the fence compares numbers only, and they start over")
def _(stack: ExitStack) -> None:
    real = decide.end_lease

    def end(task: Task) -> None:
        real(task)
        task.lease_number = 0

    change(stack, decide, "end_lease", end)


@mutant("a recorded completion is not recognised")
def _(stack: ExitStack) -> None:
    def recorded(task: Task, command: c.Complete) -> State:
        raise decide.LeaseLost(decide.why_lost(task))

    change(stack, decide, "recorded", recorded)
