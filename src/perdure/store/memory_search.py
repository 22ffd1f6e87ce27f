"""What the verbs of searches mean, in the reference store: the tree of a query, read off the rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from perdure.core import query
from perdure.core.model import Task
from perdure.core.query import Attribute, Field, Node, Value
from perdure.core.search import Found, Hit, Search, Way
from perdure.core.states import is_closed
from perdure.store.memory_columns import without
from perdure.store.memory_failures import DeadLetter, FailureBatch
from perdure.store.memory_part import StorePart
from perdure.store.search import Entry

_OF_TASKS = {"id", "type", "state", "created_at", "started_at", "queue", "attempt", "worker", "closed_at"}


class SearchBatch(FailureBatch):
    """See base.Batch, section "searches"."""

    async def put_attributes(self, entries: Sequence[Entry]) -> None:
        await self._begin()
        for entry in entries:
            self._write(self._tables.attributes, entry.task_id, entry if entry.keys else None)

    def _forget_attributes(self, task_ids: set[bytes]) -> None:
        for task_id in task_ids:
            if self._transaction.get(self._tables.attributes, task_id) is not None:
                self._write(self._tables.attributes, task_id, None)


class MemorySearch(StorePart):
    """See base.Store."""

    async def search(self, search: Search, window: int, after: Hit | None = None) -> Found:
        await self.pause()

        def rank(hit: Hit) -> tuple[int, bytes]:
            return (hit.closed_at or 0) if search.by_close else 0, hit.id

        rows = {**self._tables.closed.rows, **self._tables.tasks.rows}
        among = {
            Hit(task.id, task.closed_at): task
            for task in rows.values()
            if task.namespace == search.namespace
            and task.kind == search.kind
            and (is_closed(task.state) or not search.by_close)
        }
        ordered = sorted(among, key=rank, reverse=not search.ascending)
        if after is not None:
            ordered = [hit for hit in ordered if (rank(hit) > rank(after)) == search.ascending and hit.id != after.id]
        seen = ordered[:window]
        hits = [hit for hit in seen if self._is_found(search.where, among[hit])]
        return Found(hits, seen[-1] if len(seen) == window else None)

    async def reach(self, search: Search, ways: Sequence[Way], most: int, *, closed: bool) -> list[int]:
        await self.pause()
        rows = self._tables.closed.rows if closed else self._tables.tasks.rows
        own = [task for task in rows.values() if task.namespace == search.namespace and task.kind == search.kind]
        return [min(most, sum(self._is_found(way.test, task) for task in own)) for way in ways]

    def _is_found(self, node: Node | None, task: Task) -> bool:
        keys: defaultdict[str, list[bytes]] = defaultdict(list)
        entry = self._tables.attributes.rows.get(task.id)
        for name, key in () if entry is None else entry.keys:
            keys[name].append(key)

        def values(field: Field) -> Collection[Value]:
            if isinstance(field, Attribute):
                return keys[field.name]
            value = self._column_of(task, field.name)
            return () if value is None else (value,)

        return query.passes(node, values)

    def _column_of(self, task: Task, name: str) -> Value | None:
        """A column as queries name it."""
        letter = self._tables.failures.rows.get(task.id) or DeadLetter()
        match name:
            case "error":
                return letter.error
            case "group":
                return letter.group
            case "retried":
                return letter.retried_by is not None if is_closed(task.state) else None
            case "owed":
                return letter.owed is not None if is_closed(task.state) else None
            case "run_time":
                return None if task.closed_at is None else task.closed_at - task.created_at
            case "work_time":
                return None if task.closed_at is None or task.started_at is None else task.closed_at - task.started_at
            case _ if name in _OF_TASKS:
                found: Value | None = getattr(task, name)
                return found
        run = self._tables.runs.rows.get(task.id)
        of_run: Value | None = None if run is None else getattr(run, name)
        return of_run

    async def brief(self, task_ids: Sequence[bytes]) -> dict[bytes, Task]:
        await self.pause()
        both = self._tables.closed.rows | self._tables.tasks.rows
        return {i: without(both[i], "payload", "headers", "result") for i in task_ids if i in both}

    async def attribute_types(self, namespace: str) -> dict[str, str]:
        return {name: type for (owner, name), type in sorted(self._tables.types.items()) if owner == namespace}

    async def add_attribute_type(self, namespace: str, name: str, type: str) -> bool:
        new = (namespace, name) not in self._tables.types
        self._tables.types.setdefault((namespace, name), type)
        return new

    async def remove_attribute_type(self, namespace: str, name: str) -> bool:
        return self._tables.types.pop((namespace, name), None) is not None
