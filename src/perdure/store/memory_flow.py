"""What the verbs of flow.py mean, in the reference store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy

from perdure.core.limit_rules import Limit, LimitName, Running, is_blocked
from perdure.core.model import Task
from perdure.core.states import State
from perdure.store.memory_locks import LockingBatch
from perdure.store.memory_part import StorePart


class FlowBatch(LockingBatch):
    """See flow.FlowBatch."""

    async def hold_limits(self, names: Sequence[LimitName]) -> dict[LimitName, Limit]:
        await self._begin()
        snapshot = [name for name in sorted(names) if self._transaction.get(self._tables.limits, name) is not None]
        return dict(await self._lock(self._tables.limits, snapshot, lambda limit: True))

    async def running(self, namespaces: Sequence[str]) -> list[Running]:
        await self._begin()
        return _running((task for _, task in self._transaction.scan(self._tables.tasks)), namespaces)

    async def blocked(self, most: Mapping[str, int]) -> list[Task]:
        await self._begin()
        found: list[Task] = []
        for subject in sorted(most):
            waits = _blocked_on(subject)
            snapshot = self._found(self._tables.tasks, waits, lambda t: (t.priority, t.blocked_place, t.id))
            found += [task for _, task in await self._lock(self._tables.tasks, snapshot, waits, limit=most[subject])]
        return found

    async def buckets(self, subjects: Sequence[str]) -> dict[str, int]:
        await self._begin()
        found = {subject: self._transaction.get(self._tables.buckets, subject) for subject in subjects}
        return {subject: full_at for subject, full_at in found.items() if full_at is not None}

    async def put_buckets(self, full_at: Mapping[str, int]) -> None:
        await self._begin()
        for subject in sorted(full_at):
            await self._transaction.wait(self._tables.buckets, subject)
            self._transaction.put(self._tables.buckets, subject, full_at[subject])

    async def trim_buckets(self, limit: int) -> int:
        await self._begin()
        now = self.now
        snapshot = self._found(self._tables.buckets, lambda full_at: full_at <= now, lambda full_at: full_at)
        granted = await self._lock(self._tables.buckets, snapshot, lambda full_at: full_at <= now, limit=limit)
        for subject, _ in granted:
            self._transaction.put(self._tables.buckets, subject, None)
        return len(granted)

    async def put_limit(self, limit: Limit) -> None:
        await self._begin()
        await self._transaction.wait(self._tables.limits, limit.id)
        self._transaction.put(self._tables.limits, limit.id, copy(limit))

    async def delete_limit(self, name: LimitName) -> None:
        await self._begin()
        self._transaction.put(self._tables.limits, name, None)


class FlowReads(StorePart):
    """See flow.FlowStore."""

    async def limits(self) -> list[Limit]:
        await self.pause()
        return [copy(limit) for _, limit in sorted(self._tables.limits.rows.items())]

    async def limits_version(self) -> tuple[int, int]:
        await self.pause()
        rows = self._tables.limits.rows
        return len(rows), max((limit.updated_at for limit in rows.values()), default=0)

    async def blocked_subjects(self, after: str, most: int) -> list[str]:
        await self.pause()
        found = {task.blocked_on for task in self._tables.tasks.rows.values() if task.blocked_on is not None}
        return sorted(subject for subject in found if subject > after)[:most]

    async def count_running(self, namespace: str) -> list[Running]:
        await self.pause()
        return _running(self._tables.tasks.rows.values(), [namespace])

    async def count_blocked(self, subjects: Sequence[str], most: int) -> dict[str, int]:
        await self.pause()
        found = Counter(task.blocked_on for task in self._tables.tasks.rows.values())
        return {subject: min(found[subject], most) for subject in subjects if found[subject]}


def _blocked_on(subject: str) -> Callable[[Task], bool]:
    def waits(task: Task) -> bool:
        return task.blocked_on == subject and is_blocked(task)

    return waits


def _running(tasks: Iterable[Task], namespaces: Sequence[str]) -> list[Running]:
    leased = (task for task in tasks if task.state == State.LEASED and task.namespace in namespaces)
    counted = Counter((t.namespace, t.queue, t.type, t.concurrency_key, t.weight) for t in leased)
    return [Running(*alike, number) for alike, number in counted.items()]
