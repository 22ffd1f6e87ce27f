"""Known ways to break the engine. Each is a context manager that puts one mistake into the running code; the simulation
must find every one of them, or it is too weak."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from copy import copy
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec

from perdure.core import commands as c
from perdure.core import decide, policy, pulse
from perdure.core.model import SECOND, Task
from perdure.core.states import State
from perdure.engine import batch as batches
from perdure.engine import dispatch, engine, marks, sessions, watches
from perdure.sdk import client
from perdure.store.base import DataFault, StoreFault
from perdure.store.memory import MemoryBatch
from perdure.store.memory_rows import Transaction
from perdure.worker import heartbeat, report
from perdure.worker.suspension import Suspension
from tests.sim.plan import draw
from tests.sim.world import Result, run

_NOTES = Path(__file__).parent / "found_at.txt"
FOUND_AT = {name: int(seed) for seed, _, name in (line.partition(" ") for line in _NOTES.read_text().splitlines())}
"""The seed at which each mutant was found last; `python -m tests.sim mutants --note` writes them down."""

Mutant = Callable[[], Any]
MUTANTS: dict[str, Mutant] = {}
"""By name."""


def mutant(name: str) -> Callable[[Callable[[ExitStack], None]], Callable[[ExitStack], None]]:
    """Registers a function that makes its changes by what it enters into a stack."""

    def register(change: Callable[[ExitStack], None]) -> Callable[[ExitStack], None]:
        @contextmanager
        def applied() -> Iterator[None]:
            with ExitStack() as stack:
                change(stack)
                yield

        assert name not in MUTANTS, name
        MUTANTS[name] = applied
        return change

    return register


def _set(stack: ExitStack, owner: Any, name: str, value: Any) -> None:
    stack.enter_context(patch.object(owner, name, value))


def likely(name: str, most: int) -> list[int]:
    """The first `most` seeds, beginning with the one that found this mutant last."""
    noted = FOUND_AT.get(name)
    seeds = range(1, most + 1)
    return [*seeds] if noted is None else [noted, *(seed for seed in seeds if seed != noted)]


def note(found: dict[str, int]) -> None:
    """Write down at which seed each was found."""
    lines = [f"{seed} {name}\n" for name, seed in (FOUND_AT | found).items() if name in MUTANTS]
    _NOTES.write_text("".join(lines))


def find(name: str, seeds: Iterable[int]) -> tuple[int, Result | None]:
    """How many seeds were run until one found the mistake, and what it broke; None if none did."""
    count = 0
    for seed in seeds:
        count += 1
        with MUTANTS[name]():
            result = run(draw(seed))
        if result.rule:
            return count, result
    return count, None


# ----------------------------------------------------------------------------------------------------------- the fence
@mutant("completions are not fenced")
def _(stack: ExitStack) -> None:
    real = decide.complete

    def complete(task: Task, command: c.Complete, *rest: Any) -> Any:
        if task.state == State.LEASED:
            command = msgspec.structs.replace(command, lease=task.lease)
        return real(task, command, *rest)

    _set(stack, decide, "complete", complete)


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

    _set(stack, MemoryBatch, "beat", beat)


@mutant("the statement that succeeds is not fenced")
def _(stack: ExitStack) -> None:
    real = MemoryBatch.succeed

    async def succeed(self: Any, completions: Any) -> Any:
        return await real(self, _with_current_leases(self, completions))

    _set(stack, MemoryBatch, "succeed", succeed)


@mutant("the fence compares numbers only, and they start over")
def _(stack: ExitStack) -> None:
    real = decide._end_lease

    def end(task: Task) -> None:
        real(task)
        task.lease_number = 0

    _set(stack, decide, "_end_lease", end)


@mutant("a recorded completion is not recognised")
def _(stack: ExitStack) -> None:
    def recorded(task: Task, command: c.Complete) -> State:
        raise decide.LeaseLost(decide.why_lost(task))

    _set(stack, decide, "recorded", recorded)


# ---------------------------------------------------------------------------------------------------------- the alarms
def _wake_at_without(stack: ExitStack, state: State, *names: str) -> None:
    real = policy.wake_at

    def wake_at(task: Task, hold_until: int = 0) -> int | None:
        if task.state == state:
            task = copy(task)
            for name in names:
                setattr(task, name, None)
        return real(task, hold_until)

    _set(stack, decide, "wake_at", wake_at)


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
    _set(stack, decide, "_due", lambda time, now: time is not None and time <= now + SECOND)
    real = MemoryBatch.due

    async def due(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._now = self.now + SECOND
        found = await real(self, *args, **kwargs)
        self._now -= SECOND
        return found

    _set(stack, MemoryBatch, "due", due)


@mutant("alarms stop with the first fault of the database")
def _(stack: ExitStack) -> None:
    from perdure.engine import service

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

    _set(stack, service.Loop, "_run", run)


@mutant("leases expire before heartbeats are written")
def _(stack: ExitStack) -> None:
    real, read_chores = batches.Batch._run_phases, batches.Batch._read_chores

    async def run_phases(self: Any, rows: Any, *rest: Any) -> None:
        chores = [(i, i.command) for i in self.items if isinstance(i.command, (c.Ring, c.Reap, c.Trim))]
        keyed = any(isinstance(i.command, c.Enqueue) for i in self.items)  # keys come before any row
        self.early = None if keyed else await read_chores(self, rows, chores)
        await real(self, rows, *rest)

    async def read_early(self: Any, rows: Any, chores: Any) -> Any:
        return await read_chores(self, rows, chores) if self.early is None else self.early

    _set(stack, batches.Batch, "_run_phases", run_phases)
    _set(stack, batches.Batch, "_read_chores", read_early)


@mutant("nothing is held back after an outage")
def _(stack: ExitStack) -> None:
    real = pulse.take

    def take(seen: Any, now: int) -> Any:
        return msgspec.structs.replace(real(seen, now), hold_until=seen.hold_until)

    _set(stack, pulse, "take", take)


# ------------------------------------------------------------------------------------------------------------- commits
@mutant("answers before the commit")
def _(stack: ExitStack) -> None:
    real = batches.Batch.run

    async def run(self: Any, *args: Any) -> None:
        await real(self, *args)
        for item, outcome in self.answers:
            item.answer(outcome)
        self.answers = []

    _set(stack, batches.Batch, "run", run)


@mutant("delivers before the commit")
def _(stack: ExitStack) -> None:
    real = batches.Batch.run

    async def run(self: Any, *args: Any) -> None:
        await real(self, *args)
        for parked in self.polls:
            if parked.tasks and not parked.future.done():
                parked.future.set_result(parked.tasks)

    _set(stack, batches.Batch, "run", run)
    _set(stack, engine.Engine, "_take_back", lambda self, tasks: None)


@mutant("a commit of unknown outcome is taken for done")
def _(stack: ExitStack) -> None:
    async def committed(self: Any, unknown: Any) -> bool:
        return True

    _set(stack, engine.Engine, "_committed", committed)


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

    _set(stack, engine.Engine, "_transact", transact)


@mutant("a refused value fails the whole batch")
def _(stack: ExitStack) -> None:
    async def bisect(self: Any, items: Any, polls: Any, error: Any) -> None:
        self._unserve(polls)
        for item in items:
            item.answer(error)

    _set(stack, engine.Engine, "_bisect", bisect)


@mutant("what is deferred is forgotten")
def _(stack: ExitStack) -> None:
    _set(stack, engine.Engine, "_defer", lambda self, items: None)


# --------------------------------------------------------------------------------------------------------------- locks
@mutant("rows are read before they are locked")
def _(stack: ExitStack) -> None:
    real = batches.Batch._lock

    async def lock(self: Any, rows: Any, named: Any) -> Any:
        if named:
            seen = await rows.trace(list(dict.fromkeys(batches._task_of(command) for _, command in named)))
            self.ledger.load([task for task in seen.values() if task.state < State.SUCCEEDED])
        return await real(self, rows, named)

    _set(stack, batches.Batch, "_lock", lock)


@mutant("locks are not kept")
def _(stack: ExitStack) -> None:
    def take(self: Any, table: Any, key: Any) -> bool:
        if table.holders.get(key) is not self:
            table.holders[key] = self
            self._held.append((table, key))
        return True

    _set(stack, Transaction, "take", take)


@mutant("a lock does not ask its condition again")
def _(stack: ExitStack) -> None:
    real = MemoryBatch._lock

    async def lock(self: Any, table: Any, snapshot: Any, where: Any, **options: Any) -> Any:
        return await real(self, table, snapshot, lambda row: True, **options)

    _set(stack, MemoryBatch, "_lock", lock)


@mutant("inserts into the closed table without a delete")
def _(stack: ExitStack) -> None:
    real = MemoryBatch._move

    async def move(self: Any, row: Task) -> None:
        before = self._open(row.id)
        await real(self, row)
        self._transaction.put(self._tables.tasks, row.id, before)

    _set(stack, MemoryBatch, "_move", move)


# ---------------------------------------------------------------------------------------------------- claims and polls
@mutant("a hint and its repeat are lost")
def _(stack: ExitStack) -> None:
    _set(stack, dispatch.Dispatch, "_repeat", lambda self, name: None)
    _set(stack, engine.Engine, "_heard_ready", lambda self, lanes: None)
    _set(stack, engine.Engine, "_look_at_all", lambda self: None)


@mutant("a watch never looks again")
def _(stack: ExitStack) -> None:
    _set(stack, watches, "REPEAT", 1e9)
    _set(stack, engine.Engine, "_heard_closed", lambda self, task_ids: None)
    _set(stack, engine.Engine, "_look_at_all", lambda self: None)


@mutant("claims without the look from the start")
def _(stack: ExitStack) -> None:
    def after(self: Any, lane: str, now: float) -> Any:
        seen = self._lanes.get(lane)
        if seen is None:
            return None
        while seen.claimed:
            seen.mark = seen.claimed.popleft()[-1]
        return seen.mark

    _set(stack, marks.Marks, "after", after)


@mutant("a repeated poll is not recognised")
def _(stack: ExitStack) -> None:
    real = dispatch.Parked.__init__

    def init(self: Any, request: Any, repeated: bool, *rest: Any) -> None:
        real(self, request, False, *rest)

    _set(stack, dispatch.Parked, "__init__", init)


@mutant("`<=` for `<` in the numbers of polls")
def _(stack: ExitStack) -> None:
    real = dispatch.Dispatch.poll

    async def poll(self: Any, request: Any) -> Any:
        if self._newest.get(request.incarnation) == request.poll:
            self._newest[request.incarnation] = request.poll - 1
        return await real(self, request)

    _set(stack, dispatch.Dispatch, "poll", poll)


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

    _set(stack, MemoryBatch, "exchange", exchange)


# ---------------------------------------------------------------------------------------------------- keys and repeats
@mutant("a key that is held counts as expired")
def _(stack: ExitStack) -> None:
    real = MemoryBatch.read_keys

    async def read_keys(self: Any, names: Any) -> Any:
        found = await real(self, names)
        for key in found.values():
            key.expires_at = 0
        return found

    _set(stack, MemoryBatch, "read_keys", read_keys)


@mutant("keys of open tasks are trimmed")
def _(stack: ExitStack) -> None:
    real = MemoryBatch.trim_keys

    async def trim_keys(self: Any, limit: int, extend: int) -> int:
        self._open = lambda task_id: None
        try:
            return await real(self, limit, extend)
        finally:
            del self._open

    _set(stack, MemoryBatch, "trim_keys", trim_keys)


@mutant("minted ids are not looked for among closed tasks")
def _(stack: ExitStack) -> None:
    async def closed(self: Any, task_ids: Any) -> set[bytes]:
        return set()

    _set(stack, MemoryBatch, "closed", closed)


@mutant("an enqueue that is repeated gets another id")
def _(stack: ExitStack) -> None:
    real = client.AsyncClient._send

    async def send(self: Any, news: Any, wait: float = 0.0) -> Any:
        service = await self.service()
        enqueue = service.enqueue

        class Changed:
            async def enqueue(self, body: Any) -> Any:
                for new in body.tasks:
                    if new.minted:
                        new.minted = client.mint_id()
                return await enqueue(body)

        async def changed() -> Any:
            return Changed()

        with patch.object(self, "service", changed):
            return await real(self, news, wait)

    _set(stack, client.AsyncClient, "_send", send)


@mutant("closed tasks are trimmed at once")
def _(stack: ExitStack) -> None:
    real = MemoryBatch.trim_closed

    async def trim_closed(self: Any, before: int, limit: int) -> int:
        return await real(self, self._store.now(), limit)

    _set(stack, MemoryBatch, "trim_closed", trim_closed)


# --------------------------------------------------------------------------------------------------- attempts and ends
@mutant("`>` for `>=` in the attempts")
def _(stack: ExitStack) -> None:
    real = decide._attempt_failed

    def failed(task: Task, *rest: Any, **options: Any) -> Any:
        task.max_attempts += 1
        return real(task, *rest, **options)

    _set(stack, decide, "_attempt_failed", failed)


@mutant("a release spends an attempt")
def _(stack: ExitStack) -> None:
    real = decide._hand_back

    def hand_back(task: Task, *rest: Any) -> Any:
        task.attempt += 1
        return real(task, *rest)

    _set(stack, decide, "_hand_back", hand_back)


@mutant("a lost delivery spends an attempt")
def _(stack: ExitStack) -> None:
    _set(stack, decide, "LOST_DELIVERIES_FREE", 0)


@mutant("back-off is ten times too long")
def _(stack: ExitStack) -> None:
    real = decide.backoff
    _set(stack, decide, "backoff", lambda *args: 10 * real(*args))


@mutant("a cancel closes a running task at once")
def _(stack: ExitStack) -> None:
    real = decide.cancel

    def cancel(task: Task, command: c.Cancel, now: int) -> Any:
        effects = real(task, command, now)
        if effects and effects[0].task.state == State.LEASED:
            return [decide._close(effects[0].task, decide.Cause.FORCE, now)]
        return effects

    _set(stack, decide, "cancel", cancel)


@mutant("a cancel is forgotten")
def _(stack: ExitStack) -> None:
    _set(stack, decide, "cancel", lambda task, command, now: [])


# ------------------------------------------------------------------------------------------------------------ sessions
@mutant("`<=` for `<` in the epochs of sessions")
def _(stack: ExitStack) -> None:
    real = sessions._open

    async def open_(rows: Any, command: c.OpenSession) -> None:
        known = await rows.lock_session(command.incarnation)
        if known is not None and known.epoch == command.epoch:
            return
        await real(rows, command)

    _set(stack, sessions, "_open", open_)


@mutant("an old connection ends a new session")
def _(stack: ExitStack) -> None:
    real = sessions._close

    async def close(rows: Any, command: c.CloseSession) -> None:
        await real(rows, c.CloseSession(incarnation=command.incarnation))

    _set(stack, sessions, "_close", close)


# ------------------------------------------------------------------------------------------------------------- workers
@mutant("only the receipt is beaten")
def _(stack: ExitStack) -> None:
    real = heartbeat.Heartbeats._beat

    async def beat(self: Any, runs: Any) -> None:
        await real(self, [each for each in runs if not each.acknowledged] or runs[:0])
        for each in runs:
            each.beat_at += 60.0

    _set(stack, heartbeat.Heartbeats, "_beat", beat)


@mutant("a report is sent once only")
def _(stack: ExitStack) -> None:
    async def send(self: Any, reports: Any) -> None:
        try:
            reply = await self._service.complete(report.Complete([completion for _, completion, _ in reports]))
        except Exception:  # noqa: BLE001 - that is the mistake
            for given in reports:
                self._close(given[0])
        else:
            self._settle(list(zip(reports, reply.outcomes, strict=True)))

    _set(stack, report.Reporter, "_send", send)


# -------------------------------------------------------------------------------- what was found, brought back
@mutant("once real: the second of two repeated polls counts as new")
def _(stack: ExitStack) -> None:
    _set(stack, dispatch, "UNDER_WAY", 1)


@mutant("once real: what is asked for after a suspension counts as late")
def _(stack: ExitStack) -> None:
    real = Suspension.outlasted
    _set(stack, Suspension, "outlasted", lambda self, item, asked_at: real(self, item, 0.0))


@mutant("once real: nobody takes the error of a look")
def _(stack: ExitStack) -> None:
    _set(stack, watches.Watches, "_looked", lambda self, reading: self._readings.discard(reading))


@mutant("once real: nobody takes the error of a release as the server stops")
def _(stack: ExitStack) -> None:
    _set(stack, engine.Engine, "_stray_ended", lambda self, stray: self._strays.discard(stray))


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

    _set(stack, MemoryBatch, "exchange", exchange)
