"""Dead letters, the jobs of actions on many, and what the standing checks look at, on PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.core.bulk import Selection
from perdure.core.failures import fingerprint
from perdure.core.model import Task, WorkerSession
from perdure.store import postgres_rows, rows
from perdure.store.failures import PICK, FailureCount, Picked
from perdure.store.postgres_part import BatchPart, StorePart

_LAST_ID = b"\xff" * 16


def _failed(task: Task) -> tuple[bytes, int, str]:
    found = fingerprint(task)
    return task.id, found.group, found.error


class PostgresFailureBatch(BatchPart):
    """See base.Batch, section "failures"."""

    async def mark_failed(self, tasks: Sequence[Task]) -> None:
        await self._write("mark_failed", *postgres_rows.columns(tasks, _failed))

    async def mark_owing(self, owed: Mapping[bytes, int]) -> None:
        await self._write("mark_owing", list(owed), list(map(int, owed.values())))

    async def mark_retried(self, retried: Mapping[bytes, bytes]) -> None:
        await self._write("mark_retried", list(retried), list(retried.values()))

    async def delete_closed(self, task_ids: Sequence[bytes]) -> int:
        return int((await self._fetch("delete_closed", task_ids))[0][0])


class PostgresFailures(StorePart):
    """See base.Store."""

    async def failure_groups(self, namespace: str, first: int, most: int) -> list[tuple[int, Task]]:
        found = await self._read("failure_groups", namespace, most, first)
        return [(number, rows.task(row)) for number, *row in sorted(found, key=lambda row: row[0])]

    async def count_failures(self, namespace: str, groups: Sequence[int], most: int) -> list[FailureCount]:
        found = [FailureCount(*row) for row in await self._read("count_failures", namespace, groups, most)]
        return [counted for counted in found if counted.count]

    async def pick(self, selection: Selection, window: int, before: bytes | None = None) -> Picked:
        values: list[Any] = [
            _LAST_ID if before is None else before, window, selection.namespace, selection.state, selection.queue,
            selection.type, selection.since,
        ]  # fmt: skip
        if selection.among == "open":
            values.append(int(selection.kind))
        elif selection.among == "closed":
            values.append(selection.fresh)
        elif selection.among == "dead":
            values += [selection.group, selection.error]
        found = await self._read(PICK[selection.among], *values)
        return Picked([task_id for task_id, passes in found if passes], found[-1][0] if len(found) == window else None)

    async def retried_by(self, task_ids: Sequence[bytes]) -> dict[bytes, bytes]:
        return {row[0]: row[1] for row in await self._read("retried_by", task_ids)}

    async def suspects(self, after: bytes, window: int, begun_before: int) -> tuple[list[Task], bytes | None]:
        after = after or bytes(16)
        end = await self._read("window_end", after, window - 1)
        last = end[0][0] if end else _LAST_ID
        found = await self._read("suspects", after, last, begun_before)
        return [rows.task(row) for row in found], end[0][0] if end else None

    async def old_failures(self, closed_before: int, most: int) -> list[tuple[str, str, bytes]]:
        return [(row[0], row[1], row[2]) for row in await self._read("old_failures", closed_before, most)]

    async def owing(self, most: int) -> list[tuple[str, str, bytes, int]]:
        return [(row[0], row[1], row[2], row[3]) for row in await self._read("owing", most)]

    async def every_session(self, most: int) -> list[WorkerSession]:
        return [WorkerSession(*row) for row in await self._read("every_session", most)]

    async def settings(self) -> dict[str, str]:
        return {row[0]: row[1] for row in await self._read("settings")}
