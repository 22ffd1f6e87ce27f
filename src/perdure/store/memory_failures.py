"""What the verbs about dead letters, actions on many jobs and standing checks mean, in the reference store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from copy import copy

import msgspec

from perdure.core.bulk import Selection
from perdure.core.failures import fingerprint
from perdure.core.model import Task, WorkerSession
from perdure.core.states import Kind, State
from perdure.store.failures import FailureCount, Picked
from perdure.store.memory_columns import without
from perdure.store.memory_part import StorePart
from perdure.store.memory_workflows import WorkflowBatch

_BRIEF = ("payload", "headers", "result")
_BEHIND_ALL_IDS = b"\xff" * 17


class DeadLetter(msgspec.Struct):
    """The columns of a closed row that are about its failure."""

    group: int | None = None
    error: str | None = None
    retried_by: bytes | None = None
    owed: int | None = None  #: compensations; see core/compensations.py

    @property
    def counts(self) -> bool:
        return self.group is not None and self.retried_by is None


class FailureBatch(WorkflowBatch):
    """See base.Batch, section "failures". Whoever writes these columns holds the closed row."""

    async def mark_failed(self, tasks: Sequence[Task]) -> None:
        await self._begin()
        for task in tasks:
            found = fingerprint(task)
            self._write(self._tables.failures, task.id, DeadLetter(found.group, found.error))

    async def mark_owing(self, owed: Mapping[bytes, int]) -> None:
        await self._begin()
        for run_id, what in owed.items():
            column = copy(self._transaction.get(self._tables.failures, run_id)) or DeadLetter()
            column.owed = int(what)
            self._write(self._tables.failures, run_id, column)

    async def mark_retried(self, retried: Mapping[bytes, bytes]) -> None:
        await self._begin()
        snapshot = [task_id for task_id in retried if self._closed(task_id) is not None]
        for task_id, _ in await self._lock(self._tables.closed, snapshot, lambda task: True):
            column = copy(self._transaction.get(self._tables.failures, task_id)) or DeadLetter()
            column.retried_by = retried[task_id]
            self._write(self._tables.failures, task_id, column)

    async def delete_closed(self, task_ids: Sequence[bytes]) -> int:
        await self._begin()
        snapshot = [task_id for task_id in sorted(task_ids) if self._closed(task_id) is not None]
        granted = await self._lock(self._tables.closed, snapshot, lambda task: True, wait=True)
        ids = {task_id for task_id, _ in granted}
        for task_id in ids:
            self._transaction.put(self._tables.closed, task_id, None)
        self._forget_failures(ids)
        self._erase(ids, self._tables.attempts)
        return len(ids)

    def _forget_failures(self, task_ids: set[bytes]) -> None:
        """Columns of closed rows that are deleted."""
        for task_id in task_ids:
            if self._transaction.get(self._tables.failures, task_id) is not None:
                self._write(self._tables.failures, task_id, None)


class MemoryFailures(StorePart):
    """See base.Store."""

    async def failure_groups(self, namespace: str, first: int, most: int) -> list[tuple[int, Task]]:
        await self.pause()
        groups = sorted((group, ids) for group, ids in self._groups(namespace).items() if group >= first)
        newest = {group: self._tables.closed.rows[max(ids)] for group, ids in groups[:most]}
        return [(group, without(task, *_BRIEF)) for group, task in newest.items()]

    async def count_failures(self, namespace: str, groups: Sequence[int], most: int) -> list[FailureCount]:
        await self.pause()
        members = self._groups(namespace)
        counts = []
        for group in groups:
            if ids := sorted(members.get(group, ()), reverse=True)[:most]:
                closed = [self._tables.closed.rows[task_id].closed_at or 0 for task_id in ids]
                counts.append(FailureCount(group, len(ids), min(closed), max(closed), ids[0]))
        return counts

    def _groups(self, namespace: str) -> dict[int, list[bytes]]:
        groups: defaultdict[int, list[bytes]] = defaultdict(list)
        for task_id, column in self._tables.failures.rows.items():
            if column.counts and self._tables.closed.rows[task_id].namespace == namespace:
                groups[column.group].append(task_id)
        return dict(groups)

    def in_group(self, task_id: bytes, group: int | None) -> bool:
        """Whether a dead letter that counts is in a group; None: any task is."""
        column = self._tables.failures.rows.get(task_id)
        return group is None or (column is not None and column.counts and column.group == group)

    def owes(self, task_id: bytes) -> bool:
        """Whether a run owes compensations, and nobody has resolved it."""
        return self._column(task_id).owed is not None

    async def pick(self, selection: Selection, window: int, before: bytes | None = None) -> Picked:
        await self.pause()
        table = self._tables.tasks if selection.among == "open" else self._tables.closed
        behind = before or _BEHIND_ALL_IDS
        rows = sorted(
            (task for task in table.rows.values() if task.id < behind), key=lambda task: task.id, reverse=True
        )
        if selection.among == "dead":
            rows = [t for t in rows if self._column(t.id).counts and t.namespace == selection.namespace]
        seen = rows[:window]
        ids = [task.id for task in seen if self._passes(selection, task)]
        return Picked(ids, seen[-1].id if len(seen) == window else None)

    def _passes(self, selection: Selection, task: Task) -> bool:
        column = self._column(task.id)
        return (
            task.namespace == selection.namespace
            and task.kind == selection.kind
            and (selection.state is None or task.state == selection.state)
            and (selection.queue is None or task.queue == selection.queue)
            and (selection.type is None or task.type == selection.type)
            and (selection.since is None or task.created_at >= selection.since)
            and (selection.group is None or column.group == selection.group)
            and (selection.error is None or column.error == selection.error)
            and (not selection.fresh or column.retried_by is None)
        )

    def _column(self, task_id: bytes) -> DeadLetter:
        return self._tables.failures.rows.get(task_id) or DeadLetter()

    async def retried_by(self, task_ids: Sequence[bytes]) -> dict[bytes, bytes]:
        await self.pause()
        found = {task_id: self._column(task_id).retried_by for task_id in task_ids}
        return {task_id: by for task_id, by in found.items() if by is not None}

    async def suspects(self, after: bytes, window: int, begun_before: int) -> tuple[list[Task], bytes | None]:
        await self.pause()
        behind = [task for task_id, task in sorted(self._tables.tasks.rows.items()) if task_id > after][:window]
        found = [
            without(task, "payload", "headers")
            for task in behind
            if task.kind == Kind.WORKFLOW
            or (task.state == State.LEASED and (task.attempt_started_at or begun_before) < begun_before)
            or (task.place is None and task.session is None and task.wake_at is None and task.blocked_on is None)
        ]
        return found, behind[-1].id if len(behind) == window else None

    async def old_failures(self, closed_before: int, most: int) -> list[tuple[str, str, bytes]]:
        await self.pause()
        found = (self._tables.closed.rows[i] for i, column in self._tables.failures.rows.items() if column.counts)
        return [(t.namespace, t.type, t.id) for t in found if (t.closed_at or closed_before) < closed_before][:most]

    async def owing(self, most: int) -> list[tuple[str, str, bytes, int]]:
        await self.pause()
        found = ((self._tables.closed.rows[i], column.owed) for i, column in self._tables.failures.rows.items())
        return [(t.namespace, t.type, t.id, owed) for t, owed in found if owed is not None][:most]

    async def every_session(self, most: int) -> list[WorkerSession]:
        await self.pause()
        return [copy(session) for session in list(self._tables.sessions.rows.values())[:most]]

    async def settings(self) -> dict[str, str]:
        return {}
