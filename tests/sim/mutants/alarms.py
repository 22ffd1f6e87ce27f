"""Mistakes with alarms: what is to happen later and does not, or too early."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from copy import copy
from typing import Any

import msgspec

from perdure.core import commands as c
from perdure.core import decide, policy, pulse
from perdure.core.model import SECOND, Task
from perdure.core.states import State
from perdure.engine import batch as batches
from perdure.engine import chores, service
from perdure.store.base import StoreFault
from perdure.store.memory import MemoryBatch
from tests.sim.mutants.registry import change, mutant


def _wake_at_without(stack: ExitStack, state: State, *names: str) -> None:
    real = policy.wake_at

    def wake_at(task: Task, hold_until: int = 0) -> int | None:
        if task.state == state:
            task = copy(task)
            for name in names:
                setattr(task, name, None)
        return real(task, hold_until)

    change(stack, decide, "wake_at", wake_at)


@mutant("no alarm for the end of a back-off")
def _(stack: ExitStack) -> None:
    _wake_at_without(stack, State.RETRY_WAIT, "ready_at")


@mutant("no alarm for the end of a lease")
def _(stack: ExitStack) -> None:
    _wake_at_without(stack, State.LEASED, "lease_until")


@mutant("no alarm for the start-to-close limit")
def _(stack: ExitStack) -> None:
    _wake_at_without(stack, State.LEASED, "attempt_deadline")


@mutant("no alarm for the cancel grace")
def _(stack: ExitStack) -> None:
    _wake_at_without(stack, State.LEASED, "cancel_deadline")


@mutant("alarms ring a second early")
def _(stack: ExitStack) -> None:
    change(stack, decide, "_due", lambda time, now: time is not None and time <= now + SECOND)
    real = MemoryBatch.due

    async def due(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._now = self.now + SECOND
        found = await real(self, *args, **kwargs)
        self._now -= SECOND
        return found

    change(stack, MemoryBatch, "due", due)


@mutant("alarms stop with the first fault of the database")
def _(stack: ExitStack) -> None:
    real = service.Loop._run

    async def run(self: Any) -> None:
        once = self._service.run_once

        async def run_once() -> float:
            try:
                return float(await once())
            except StoreFault:
                await asyncio.Event().wait()
                raise

        self._service.run_once = run_once
        await real(self)

    change(stack, service.Loop, "_run", run)


@mutant("leases expire before heartbeats are written")
def _(stack: ExitStack) -> None:
    real, read = batches.Batch._run_phases, chores.Chores.read
    early: dict[Any, Any] = {}

    async def run_phases(self: Any, rows: Any, *rest: Any) -> None:
        if not any(isinstance(i.command, c.Enqueue) for i in self.items):  # keys come before any row
            first = chores.Chores(self.ledger, self._relatives, self._workflows, self._mint, self._rounds)
            await read(
                first, rows, [(i, i.command) for i in self.items if isinstance(i.command, (c.Ring, c.Reap, c.Trim))]
            )
            early[self._workflows] = first
        await real(self, rows, *rest)

    async def read_early(self: Any, rows: Any, work: Any) -> None:
        if (first := early.pop(self._workflows, None)) is None:
            await read(self, rows, work)
        else:
            self.due, self.answers, self._hold_until = first.due, first.answers, first._hold_until

    change(stack, batches.Batch, "_run_phases", run_phases)
    change(stack, chores.Chores, "read", read_early)


@mutant("nothing is held back after an outage")
def _(stack: ExitStack) -> None:
    real = pulse.take

    def take(seen: Any, now: int) -> Any:
        return msgspec.structs.replace(real(seen, now), hold_until=seen.hold_until)

    change(stack, pulse, "take", take)
