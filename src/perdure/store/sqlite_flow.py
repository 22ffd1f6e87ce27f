"""The verbs of flow.py on SQLite. Nobody else writes while a batch lasts, so it holds every limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perdure.core.limit_rules import Limit, LimitName, Running
from perdure.core.model import Task
from perdure.store import rows
from perdure.store.sqlite_part import BatchPart, StorePart
from perdure.store.sqlite_rows import bounds
from perdure.store.statements import expand, statements

SQL = statements("sqlite")


class SqliteFlow(BatchPart):
    """Part of the batch."""

    async def hold_limits(self, names: Sequence[LimitName]) -> dict[LimitName, Limit]:
        return {limit.id: limit for limit in map(rows.limit, await self._rows_of(SQL["hold_limits"], names))}

    async def running(self, namespaces: Sequence[str]) -> list[Running]:
        return [Running(*row) for row in await self._rows(expand(SQL["running"], len(namespaces)), namespaces)]

    async def blocked(self, most: Mapping[str, int]) -> list[Task]:
        found: list[Task] = []
        for subject in sorted(most):
            found += self._locked(await self._rows(SQL["blocked"], (subject, most[subject])))
        return found

    async def buckets(self, subjects: Sequence[str]) -> dict[str, int]:
        return dict(await self._rows_of(SQL["buckets"], [(subject,) for subject in subjects]))

    async def put_buckets(self, full_at: Mapping[str, int]) -> None:
        given = sorted(full_at.items())
        for start, end in bounds(len(given)):
            values = [value for pair in given[start:end] for value in pair]
            await self._write(expand(SQL["put_buckets"], end - start), values)

    async def trim_buckets(self, limit: int) -> int:
        return await self._write(SQL["trim_buckets"], (self.now, limit))

    async def put_limit(self, limit: Limit) -> None:
        await self._write(SQL["put_limit"], rows.of_limit(limit))

    async def delete_limit(self, name: LimitName) -> None:
        await self._write(SQL["delete_limit"], name)


class SqliteFlowReads(StorePart):
    """Part of the store."""

    async def limits(self) -> list[Limit]:
        return [rows.limit(row) for row in await self._rows(SQL["limits"])]

    async def limits_version(self) -> tuple[int, int]:
        count, latest = (await self._rows(SQL["limits_version"]))[0]
        return count, latest

    async def blocked_subjects(self, after: str, most: int) -> list[str]:
        return [subject for (subject,) in await self._rows(SQL["blocked_subjects"], {"after": after, "most": most})]

    async def count_running(self, namespace: str) -> list[Running]:
        return [Running(*row) for row in await self._rows(expand(SQL["running"], 1), (namespace,))]

    async def count_blocked(self, subjects: Sequence[str], most: int) -> dict[str, int]:
        counted = {subject: (await self._rows(SQL["count_blocked"], (subject, most)))[0][0] for subject in subjects}
        return {subject: number for subject, number in counted.items() if number}
