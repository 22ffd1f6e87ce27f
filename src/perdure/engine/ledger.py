"""The rows of one batch and what is to be written about them.

Decisions are applied here first, in order, so a row that two commands name is decided upon twice and written once: by
the narrowest statement that covers all that happened to it. Deletes go first, then updates, then inserts.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from perdure.core.effects import Change, Close, Effect, Insert, Lease, Record
from perdure.core.model import Attempt, Task
from perdure.core.states import State
from perdure.store.base import Batch


class _Write(IntEnum):
    LEASE = 1
    CHANGE = 2
    CLOSE = 3
    INSERT = 4


_WRITES = {Lease: _Write.LEASE, Change: _Write.CHANGE, Close: _Write.CLOSE, Insert: _Write.INSERT}


class Ledger:
    """Rows by id, with the pending writes of this batch already visible in them."""

    def __init__(self) -> None:
        self.rows: dict[bytes, Task] = {}
        self._writes: dict[bytes, _Write] = {}
        self._attempts: list[Attempt] = []
        self._alarm: int | None = None  #: of leases that are written

    def load(self, tasks: Iterable[Task]) -> None:
        """Rows as the database has them; a row that is known already keeps its pending value."""
        for task in tasks:
            self.rows.setdefault(task.id, task)

    def apply(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Record):
                self._attempts.append(effect.attempt)
                continue
            task, write = effect.task, _WRITES[type(effect)]
            before = self._writes.get(task.id)
            if before is _Write.INSERT and write is _Write.CLOSE:
                raise AssertionError("a task cannot be made and closed in one batch")
            self._writes[task.id] = write if before is None or write > before else before
            self.rows[task.id] = task

    def leased(self, tasks: Iterable[Task]) -> None:
        """Leases that are written already."""
        for task in tasks:
            self.rows[task.id] = task
            self._alarm = task.wake_at if self._alarm is None else min(self._alarm, task.wake_at or self._alarm)

    def _written(self, write: _Write) -> list[Task]:
        return [self.rows[task_id] for task_id, kind in self._writes.items() if kind is write]

    @property
    def closed(self) -> list[Task]:
        """Tasks that this batch closes."""
        return self._written(_Write.CLOSE)

    def became_ready(self) -> tuple[list[Task], list[Task]]:
        """New tasks that are ready, whole; and older tasks that became ready."""
        new: list[Task] = []
        older: list[Task] = []
        for task_id, write in self._writes.items():
            task = self.rows[task_id]
            if task.place is not None and task.state == State.ENQUEUED:
                if write is _Write.INSERT:
                    new.append(task)
                elif write is _Write.CHANGE:
                    older.append(task)
        return new, older

    def next_alarm(self) -> int | None:
        """The earliest alarm that this batch sets."""
        rows = self.rows
        return min((wake for i in self._writes if (wake := rows[i].wake_at) is not None), default=self._alarm)

    async def flush(self, batch: Batch) -> None:
        """Write everything: a fixed number of statements, whatever the number of rows."""
        for write, verb in (
            (_Write.CLOSE, batch.close),
            (_Write.LEASE, batch.lease),
            (_Write.CHANGE, batch.change),
            (_Write.INSERT, batch.insert),
        ):
            tasks = self._written(write)
            if tasks:
                await verb(tasks)
        if self._attempts:
            await batch.record(self._attempts)
