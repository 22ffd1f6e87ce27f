"""Searches on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.core.model import Task
from perdure.core.search import Found, Hit, Search, Way
from perdure.store import postgres_rows, rows
from perdure.store.postgres_part import BatchPart, StorePart
from perdure.store.search import Entry, found, reach, statement

PARAMETER = "${}"


class PostgresSearchBatch(BatchPart):
    """See base.Batch, section "searches"."""

    async def put_attributes(self, entries: Sequence[Entry]) -> None:
        await self._write("forget_attributes", [entry.task_id for entry in entries])
        if given := [row for entry in entries for row in entry.rows()]:
            await self._write("put_attributes", *postgres_rows.columns(given, tuple))


class PostgresSearch(StorePart):
    """See base.Store."""

    async def search(self, search: Search, window: int, after: Hit | None = None) -> Found:
        sql, values = statement(search, window, after, PARAMETER)
        if not sql:
            return Found([], None)
        return found([(row[0], row[1], row[2]) for row in await self._read_sql("search", sql, *values)], window)

    async def reach(self, search: Search, ways: Sequence[Way], most: int, *, closed: bool) -> list[int]:
        sql, values = reach(search, ways, most, PARAMETER, closed=closed)
        return list((await self._read_sql("reach", sql, *values))[0])

    async def brief(self, task_ids: Sequence[bytes]) -> dict[bytes, Task]:
        return {row[0]: rows.task(row) for row in await self._read("trace", task_ids)}

    async def attribute_types(self, namespace: str) -> dict[str, str]:
        return {row[0]: row[1] for row in await self._read("attribute_types", namespace)}

    async def add_attribute_type(self, namespace: str, name: str, type: str) -> bool:
        return bool(await self._short("add_attribute_type", namespace, name, type))

    async def remove_attribute_type(self, namespace: str, name: str) -> bool:
        return bool(await self._short("remove_attribute_type", namespace, name))
