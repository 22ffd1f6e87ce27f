"""Mistakes around a commit: what is said before it, and what is made of one that fails."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from perdure.engine import batch as batches
from perdure.engine import engine
from perdure.store.base import DataFault, StoreFault
from tests.sim.mutants.registry import change, mutant


@mutant("answers before the commit")
def _(stack: ExitStack) -> None:
    real = batches.Batch.run

    async def run(self: Any, *args: Any) -> None:
        await real(self, *args)
        for item, outcome in self.answers:
            item.answer(outcome)
        self.answers = []

    change(stack, batches.Batch, "run", run)


@mutant("delivers before the commit")
def _(stack: ExitStack) -> None:
    real = batches.Batch.run

    async def run(self: Any, *args: Any) -> None:
        await real(self, *args)
        for parked in self.polls:
            if parked.tasks and not parked.future.done():
                parked.future.set_result(parked.tasks)

    change(stack, batches.Batch, "run", run)
    change(stack, engine.Engine, "_take_back", lambda self, tasks: None)


@mutant("a commit of unknown outcome is taken for done")
def _(stack: ExitStack) -> None:
    async def committed(self: Any, unknown: Any) -> bool:
        return True

    change(stack, engine.Engine, "_committed", committed)


@mutant("a lost connection bisects the batch")
def _(stack: ExitStack) -> None:
    real = engine.Engine._transact

    async def transact(self: Any, batch: Any) -> None:
        try:
            await real(self, batch)
        except DataFault:
            raise
        except StoreFault as fault:
            raise DataFault(str(fault)) from fault

    change(stack, engine.Engine, "_transact", transact)


@mutant("a refused value fails the whole batch")
def _(stack: ExitStack) -> None:
    async def bisect(self: Any, items: Any, polls: Any, error: Any) -> None:
        self._unserve(polls)
        for item in items:
            item.answer(error)

    change(stack, engine.Engine, "_bisect", bisect)


@mutant("what is deferred is forgotten")
def _(stack: ExitStack) -> None:
    change(stack, engine.Engine, "_defer", lambda self, items: None)
