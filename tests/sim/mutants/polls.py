"""Mistakes in handing out tasks: claims, polls, hints and watches."""

from __future__ import annotations

from contextlib import ExitStack
from copy import copy
from typing import Any

from perdure.engine import dispatch, engine, marks, watches
from perdure.store.memory import MemoryBatch
from tests.sim.mutants.registry import change, mutant


@mutant("a hint and its repeat are lost")
def _(stack: ExitStack) -> None:
    change(stack, dispatch.Dispatch, "_repeat", lambda self, name: None)
    change(stack, engine.Engine, "_heard_ready", lambda self, lanes: None)
    change(stack, engine.Engine, "_look_at_all", lambda self: None)


@mutant("a watch never looks again")
def _(stack: ExitStack) -> None:
    change(stack, watches, "REPEAT", 1e9)
    change(stack, engine.Engine, "_heard_closed", lambda self, task_ids: None)
    change(stack, engine.Engine, "_look_at_all", lambda self: None)


@mutant("claims without the look from the start")
def _(stack: ExitStack) -> None:
    def after(self: Any, lane: str, now: float) -> Any:
        seen = self._lanes.get(lane)
        if seen is None:
            return None
        while seen.claimed:
            seen.mark = seen.claimed.popleft()[-1]
        return seen.mark

    change(stack, marks.Marks, "after", after)


@mutant("a repeated poll is not recognised")
def _(stack: ExitStack) -> None:
    real = dispatch.Parked.__init__

    def init(self: Any, request: Any, repeated: bool, *rest: Any) -> None:
        real(self, request, False, *rest)

    change(stack, dispatch.Parked, "__init__", init)


@mutant("`<=` for `<` in the numbers of polls")
def _(stack: ExitStack) -> None:
    real = dispatch.Dispatch.poll

    async def poll(self: Any, request: Any) -> Any:
        if self._newest.get(request.incarnation) == request.poll:
            self._newest[request.incarnation] = request.poll - 1
        return await real(self, request)

    change(stack, dispatch.Dispatch, "poll", poll)


@mutant("an exchange sets no alarm")
def _(stack: ExitStack) -> None:
    real = MemoryBatch.exchange

    async def exchange(self: Any, completions: Any, order: Any) -> Any:
        found = await real(self, completions, order)
        for task in found[1]:
            row = copy(self._open(task.id))
            row.wake_at = None
            self._transaction.put(self._tables.tasks, task.id, row)
        return found

    change(stack, MemoryBatch, "exchange", exchange)
