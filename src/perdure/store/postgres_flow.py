"""The verbs of flow.py on PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perdure.core.limit_rules import Limit, LimitName, Running
from perdure.core.model import Task
from perdure.store import postgres_rows, rows
from perdure.store.postgres_part import BatchPart, StorePart


class PostgresFlow(BatchPart):
    """Part of the batch."""

    async def hold_limits(self, names: Sequence[LimitName]) -> dict[LimitName, Limit]:
        if not names:
            return {}
        found = await self._fetch("hold_limits", *postgres_rows.columns(names, tuple))
        return {limit.id: limit for limit in map(rows.limit, found)}

    async def running(self, namespaces: Sequence[str]) -> list[Running]:
        return [Running(*row) for row in await self._fetch("running", namespaces)]

    async def blocked(self, most: Mapping[str, int]) -> list[Task]:
        if not most:
            return []
        subjects = sorted(most)
        found = await self._locked("blocked", subjects, [most[subject] for subject in subjects])
        return [rows.task(row) for row in found]

    async def buckets(self, subjects: Sequence[str]) -> dict[str, int]:
        return dict(map(tuple, await self._fetch("buckets", subjects)))

    async def put_buckets(self, full_at: Mapping[str, int]) -> None:
        if full_at:
            subjects = sorted(full_at)
            await self._write("put_buckets", subjects, [full_at[subject] for subject in subjects])

    async def trim_buckets(self, limit: int) -> int:
        return int((await self._fetch("trim_buckets", self.now, limit))[0][0])

    async def put_limit(self, limit: Limit) -> None:
        await self._write("put_limit", *rows.of_limit(limit))

    async def delete_limit(self, name: LimitName) -> None:
        await self._write("delete_limit", *name)


class PostgresFlowReads(StorePart):
    """Part of the store."""

    async def limits(self) -> list[Limit]:
        return [rows.limit(row) for row in await self._short("limits")]

    async def limits_version(self) -> tuple[int, int]:
        count, latest = (await self._short("limits_version"))[0]
        return count, latest

    async def blocked_subjects(self, after: str, most: int) -> list[str]:
        return [subject for (subject,) in await self._short("blocked_subjects", after, most)]

    async def count_running(self, namespace: str) -> list[Running]:
        return [Running(*row) for row in await self._read("running", [namespace])]

    async def count_blocked(self, subjects: Sequence[str], most: int) -> dict[str, int]:
        return dict(map(tuple, await self._read("count_blocked", subjects, most)))
