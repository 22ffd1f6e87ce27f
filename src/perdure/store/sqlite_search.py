"""Searches in an SQLite file."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from perdure.core.model import Task
from perdure.core.query import Value
from perdure.core.search import Found, Hit, Search, Way
from perdure.store import rows
from perdure.store.search import Entry, found, reach, statement
from perdure.store.sqlite_part import BatchPart, StorePart
from perdure.store.sqlite_rows import bounds
from perdure.store.statements import expand, statements

SQL = statements("sqlite")
PARAMETER = ":p{}"


class SqliteSearchBatch(BatchPart):
    """See base.Batch, section "searches"."""

    async def put_attributes(self, entries: Sequence[Entry]) -> None:
        ids = [(entry.task_id,) for entry in entries]
        values = [row for entry in entries for row in entry.rows()]
        for sql, given in ((SQL["forget_attributes"], ids), (SQL["put_attributes"], values)):
            for start, end in bounds(len(given)):
                await self._write(expand(sql, end - start), list(chain.from_iterable(given[start:end])))


class SqliteSearch(StorePart):
    """See base.Store."""

    async def search(self, search: Search, window: int, after: Hit | None = None) -> Found:
        sql, values = statement(search, window, after, PARAMETER)
        if not sql:
            return Found([], None)
        return found(await self._rows(sql, _named(values)), window)

    async def reach(self, search: Search, ways: Sequence[Way], most: int, *, closed: bool) -> list[int]:
        sql, values = reach(search, ways, most, PARAMETER, closed=closed)
        return list((await self._rows(sql, _named(values)))[0])

    async def brief(self, task_ids: Sequence[bytes]) -> dict[bytes, Task]:
        parts = [task_ids[start:end] for start, end in bounds(len(task_ids))]
        read = [row for part in parts for row in await self._rows(expand(SQL["trace"], len(part)), part)]
        return {row[0]: rows.task(row) for row in read}

    async def attribute_types(self, namespace: str) -> dict[str, str]:
        return dict(await self._rows(SQL["attribute_types"], (namespace,)))

    async def add_attribute_type(self, namespace: str, name: str, type: str) -> bool:
        return await self._alone(SQL["add_attribute_type"], (namespace, name, type)) > 0

    async def remove_attribute_type(self, namespace: str, name: str) -> bool:
        return await self._alone(SQL["remove_attribute_type"], (namespace, name)) > 0


def _named(values: Sequence[Value]) -> dict[str, Value]:
    return {f"p{n}": value for n, value in enumerate(values, 1)}
