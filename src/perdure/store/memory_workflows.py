"""What the verbs about workflow runs mean, in the reference store.

The workflow columns, the history and the inbox of a run are rows of their own here. Whoever reads or writes them holds
the run's row, so nobody ever waits for one of them; a batch that does not hold it is mistaken.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from copy import copy

from perdure.core import advance
from perdure.core.advance import Advance
from perdure.core.effects import CopyPages
from perdure.core.model import Task
from perdure.core.run import Message, Page, Run
from perdure.core.turns import is_waiting
from perdure.store.base import StoreFault
from perdure.store.memory_columns import OPEN_RUNS_ONLY, without
from perdure.store.memory_locks import K, LockingBatch, R
from perdure.store.memory_rows import Table


class WorkflowBatch(LockingBatch):
    """See base.Batch, section "workflows"."""

    def _holds(self, run_ids: Iterable[bytes]) -> None:
        for run_id in run_ids:
            assert self._transaction.holds(self._tables.tasks, run_id), "the row of the run is not locked"

    async def runs(self, run_ids: Sequence[bytes]) -> dict[bytes, Run]:
        await self._begin()
        self._holds(run_ids)
        found = {run_id: self._transaction.get(self._tables.runs, run_id) for run_id in run_ids}
        return {run_id: copy(run) for run_id, run in found.items() if run is not None}

    async def inbox(self, after: Mapping[bytes, int], size: int | None = None) -> dict[bytes, list[Message]]:
        await self._begin()
        self._holds(after)
        inboxes: defaultdict[bytes, list[Message]] = defaultdict(list)
        for (run_id, seq), message in sorted(self._transaction.scan(self._tables.inbox)):
            if run_id in after and seq > after[run_id] and _fits(inboxes[run_id], size):
                inboxes[run_id].append(copy(message))
        return dict(inboxes)

    async def children(self, parent: bytes, limit: int, after: bytes = b"") -> tuple[list[Task], bool]:
        await self._begin()

        def is_child(task: Task) -> bool:
            return task.parent_run_id == parent and task.id > after

        snapshot = self._found(self._tables.tasks, is_child, lambda task: task.id)
        granted = await self._lock(self._tables.tasks, snapshot, is_child, limit=limit)
        seen = snapshot if len(granted) < limit else [key for key in snapshot if key <= granted[-1][0]]
        return [without(task, "payload", "headers") for _, task in granted], len(seen) == len(granted)

    # writes ----------------------------------------------------------------------------------------------------
    async def delete(self, tasks: Sequence[Task]) -> None:
        await self._begin()
        for task in tasks:
            held = self._open(task.id)
            if held is None or held.lease != task.lease:
                raise StoreFault("a row to delete does not have the lease that was decided upon")
            self._transaction.put(self._tables.tasks, task.id, None)
        self._erase({task.id for task in tasks}, self._tables.attempts)

    async def put_runs(self, runs: Sequence[Run]) -> None:
        await self._begin()
        self._holds(run.id for run in runs)
        for run in runs:
            if self._open(run.id) is None:
                raise StoreFault("the row of a run is gone")
            self._write(self._tables.runs, run.id, copy(run))

    async def advance(self, appends: Sequence[Advance]) -> dict[bytes, bool]:
        await self._begin()
        by_id = {wanted.lease.task_id: wanted for wanted in appends}

        def is_current(task: Task) -> bool:
            run = self._transaction.get(self._tables.runs, task.id)
            return run is not None and advance.holds(task, run, by_id[task.id])

        snapshot = [run_id for run_id in by_id if (task := self._open(run_id)) is not None and is_current(task)]
        waiting: dict[bytes, bool] = {}
        for run_id, _ in await self._lock(self._tables.tasks, snapshot, is_current):
            run = self._transaction.get(self._tables.runs, run_id)
            assert run is not None
            waiting[run_id] = is_waiting(run)
            self._write(self._tables.runs, run_id, advance.advanced(run, by_id[run_id]))
            page = by_id[run_id].page
            await self._insert(self._tables.history, (run_id, page.first), copy(page))
        return waiting

    async def append(self, pages: Sequence[Page]) -> None:
        await self._begin()
        self._holds(page.run_id for page in pages)
        for page in pages:
            await self._insert(self._tables.history, (page.run_id, page.first), copy(page))

    async def copy_pages(self, copies: Sequence[CopyPages]) -> None:
        await self._begin()
        self._holds(copied.target_id for copied in copies)
        for copied in copies:
            for (run_id, first), page in sorted(self._transaction.scan(self._tables.history)):
                if run_id == copied.source_id and first + page.count - 1 <= copied.last:
                    moved = Page(copied.target_id, first, page.count, page.data)
                    await self._insert(self._tables.history, (copied.target_id, first), moved)

    async def post(self, messages: Sequence[Message]) -> None:
        await self._begin()
        self._holds(message.run_id for message in messages)
        for message in messages:
            await self._insert(self._tables.inbox, (message.run_id, message.seq), copy(message))

    async def take(self, taken: Mapping[bytes, int]) -> None:
        await self._begin()
        self._holds(taken)
        for (run_id, seq), _ in list(self._transaction.scan(self._tables.inbox)):
            if run_id in taken and seq <= taken[run_id]:
                self._write(self._tables.inbox, (run_id, seq), None)

    def _close_run(self, run_id: bytes) -> None:
        """What a closed row keeps of a run."""
        run = copy(self._transaction.get(self._tables.runs, run_id))
        if run is not None:
            for column, nothing in OPEN_RUNS_ONLY.items():
                setattr(run, column, nothing)
            self._write(self._tables.runs, run_id, run)

    def _write(self, table: Table[K, R], key: K, row: R | None) -> None:
        """Of a row that nobody else can hold."""
        granted = self._transaction.take(table, key)
        assert granted, "a row is held by a batch that does not hold its run"
        self._transaction.put(table, key, row)

    def _erase(self, task_ids: set[bytes], table: Table[tuple[bytes, int], R]) -> None:
        """Delete what tasks have in a table; they are held."""
        for key in [key for key, _ in self._transaction.scan(table) if key[0] in task_ids]:
            self._write(table, key, None)


def _fits(before: list[Message], size: int | None) -> bool:
    return size is None or sum(len(message.body) for message in before) < size
