"""What the simulation found once, brought back."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from perdure.core import decide
from perdure.engine import dispatch, engine, watches
from perdure.store.memory import MemoryBatch
from perdure.worker.suspension import Suspension
from tests.sim.mutants.registry import change, mutant


@mutant("once real: the second of two repeated polls counts as new")
def _(stack: ExitStack) -> None:
    change(stack, dispatch, "UNDER_WAY", 1)


@mutant("once real: what is asked for after a suspension counts as late")
def _(stack: ExitStack) -> None:
    real = Suspension.outlasted
    change(stack, Suspension, "outlasted", lambda self, item, asked_at: real(self, item, 0.0))


@mutant("once real: nobody takes the error of a look")
def _(stack: ExitStack) -> None:
    change(stack, watches.Watches, "_looked", lambda self, reading: self._readings.discard(reading))


@mutant("once real: nobody takes the error of a release as the server stops")
def _(stack: ExitStack) -> None:
    change(stack, engine.Engine, "_stray_ended", lambda self, stray: self._strays.discard(stray))


@mutant("once real: a single batch exchanges in two statements")
def _(stack: ExitStack) -> None:
    async def exchange(self: Any, completions: Any, order: Any) -> Any:
        succeeded = await self.succeed(completions)
        claimed = (await self.claim([order.demand]))[order.demand.lane]
        if any(task.timeouts is not None for task in claimed):
            return succeeded, [], True
        for task, bits in zip(claimed, order.bits, strict=False):
            lease = decide.claim(task, order.session, order.worker, order.poll, self.now, bits)
            self._transaction.put(self._tables.tasks, task.id, lease.task)
        return succeeded, claimed, False

    change(stack, MemoryBatch, "exchange", exchange)
