"""Dead letters, the jobs of actions on many, and what the standing checks look at, in an SQLite file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import asdict

from perdure.core.bulk import Selection
from perdure.core.failures import fingerprint
from perdure.core.model import Task, WorkerSession
from perdure.store import rows
from perdure.store.failures import PICK, FailureCount, Picked
from perdure.store.sqlite_part import BatchPart, StorePart
from perdure.store.statements import expand, statements

SQL = statements("sqlite")
_DELETE = SQL["delete_closed"].split(";")
_BEHIND_ALL_IDS = b"\xff" * 17


class SqliteFailureBatch(BatchPart):
    """See base.Batch, section "failures"."""

    async def mark_failed(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            found = fingerprint(task)
            await self._write(expand(SQL["mark_failed"], 1), (task.id, found.group, found.error))

    async def mark_owing(self, owed: Mapping[bytes, int]) -> None:
        for run_id, what in owed.items():
            await self._write(expand(SQL["mark_owing"], 1), (run_id, int(what)))

    async def mark_retried(self, retried: Mapping[bytes, bytes]) -> None:
        for ids in retried.items():
            await self._write(expand(SQL["mark_retried"], 1), ids)

    async def delete_closed(self, task_ids: Sequence[bytes]) -> int:
        deleted = 0
        for task_id in task_ids:
            for sql in _DELETE[:-1]:
                await self._write(expand(sql, 1), (task_id,))
            deleted += await self._write(expand(_DELETE[-1], 1), (task_id,))
        return deleted


class SqliteFailures(StorePart):
    """See base.Store."""

    async def failure_groups(self, namespace: str, first: int, most: int) -> list[tuple[int, Task]]:
        found = await self._rows(SQL["failure_groups"], {"namespace": namespace, "first": first, "most": most})
        return [(number, rows.task(row)) for number, *row in sorted(found)]

    async def count_failures(self, namespace: str, groups: Sequence[int], most: int) -> list[FailureCount]:
        found: list[FailureCount] = []
        for group in groups:
            [row] = await self._rows(SQL["count_failures"], {"namespace": namespace, "number": group, "most": most})
            if row[0]:
                found.append(FailureCount(group, *row))
        return found

    async def pick(self, selection: Selection, window: int, before: bytes | None = None) -> Picked:
        values = {**asdict(selection), "window": window, "before": _BEHIND_ALL_IDS if before is None else before}
        found = await self._rows(SQL[PICK[selection.among]], values)
        return Picked([task_id for task_id, passes in found if passes], found[-1][0] if len(found) == window else None)

    async def retried_by(self, task_ids: Sequence[bytes]) -> dict[bytes, bytes]:
        statement = expand(SQL["retried_by"], 1)
        return dict([row for task_id in task_ids for row in await self._rows(statement, (task_id,))])

    async def suspects(self, after: bytes, window: int, begun_before: int) -> tuple[list[Task], bytes | None]:
        end = await self._rows(SQL["window_end"], (after, window - 1))
        last = end[0][0] if end else _BEHIND_ALL_IDS
        found = await self._rows(SQL["suspects"], (after, last, begun_before))
        return [rows.task(row) for row in found], end[0][0] if end else None

    async def old_failures(self, closed_before: int, most: int) -> list[tuple[str, str, bytes]]:
        return [(namespace, type_, id_) for namespace, type_, id_ in await self._rows(
            SQL["old_failures"], (closed_before, most)
        )]  # fmt: skip

    async def owing(self, most: int) -> list[tuple[str, str, bytes, int]]:
        found = await self._rows(SQL["owing"], (most,))
        return [(namespace, type_, run_id, what) for namespace, type_, run_id, what in found]

    async def every_session(self, most: int) -> list[WorkerSession]:
        return [WorkerSession(*row) for row in await self._rows(SQL["every_session"], (most,))]

    async def settings(self) -> dict[str, str]:
        return {name: str(value) for name, value in await self._rows(SQL["settings"])}
