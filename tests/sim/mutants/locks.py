"""Mistakes with locks and with the two tables that a task moves between."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from perdure.core.model import Task
from perdure.core.states import State
from perdure.engine import batch as batches
from perdure.store.memory import MemoryBatch
from perdure.store.memory_columns import OPEN_ONLY
from perdure.store.memory_rows import Transaction
from tests.sim.mutants.registry import change, mutant


@mutant("rows are read before they are locked")
def _(stack: ExitStack) -> None:
    real = batches.Batch._lock

    async def lock(self: Any, rows: Any, named: Any) -> Any:
        if named:
            seen = await rows.trace(
                list({task_id: None for item, _ in named for task_id in self._workflows.ids_of(item)})
            )
            self.ledger.load([task for task in seen.values() if task.state < State.SUCCEEDED])
        return await real(self, rows, named)

    change(stack, batches.Batch, "_lock", lock)


@mutant("locks are not kept")
def _(stack: ExitStack) -> None:
    def take(self: Any, table: Any, key: Any) -> bool:
        if table.holders.get(key) is not self:
            table.holders[key] = self
            self._held.append((table, key))
        return True

    change(stack, Transaction, "take", take)


@mutant("a lock does not ask its condition again")
def _(stack: ExitStack) -> None:
    real = MemoryBatch._lock

    async def lock(self: Any, table: Any, snapshot: Any, where: Any, **options: Any) -> Any:
        return await real(self, table, snapshot, lambda row: True, **options)

    change(stack, MemoryBatch, "_lock", lock)


@mutant("inserts into the closed table without a delete")
def _(stack: ExitStack) -> None:
    real = MemoryBatch._move

    async def move(self: Any, row: Task) -> None:
        before = self._open(row.id)
        await real(self, row)
        self._transaction.put(self._tables.tasks, row.id, before)

    change(stack, MemoryBatch, "_move", move)


@mutant("a closing row is inserted before its delete, in a commit of its own")
def _(stack: ExitStack) -> None:
    async def move(self: Any, row: Task) -> None:
        for column, nothing in OPEN_ONLY.items():
            setattr(row, column, nothing)
        await self._insert(self._tables.closed, row.id, row)
        self._transaction.commit()
        self._transaction.put(self._tables.tasks, row.id, None)

    change(stack, MemoryBatch, "_move", move)
