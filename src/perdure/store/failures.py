"""The verbs about dead letters, actions on many jobs, and what the standing checks look at. Parts of base.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from perdure.core.bulk import Selection
from perdure.core.model import Task, WorkerSession


class FailureCount(msgspec.Struct, frozen=True):
    """Dead letters of a group that nobody has retried; times are those of closing. `newest` is the highest id."""

    group: int
    count: int
    first: int
    last: int
    newest: bytes


class Picked(msgspec.Struct, frozen=True):
    """Ids of jobs that a selection found, newest first; `last` is the last row that was looked at, None at the end."""

    ids: list[bytes]
    last: bytes | None


PICK = {"open": "pick_open", "closed": "pick_closed", "dead": "pick_dead"}
"""The statement that picks jobs of a Selection, by what it is among."""


class FailureBatch(Protocol):
    """Part of Batch."""

    async def mark_failed(self, tasks: Sequence[Task]) -> None:
        """Write the group and the type of the error (failures.fingerprint) into rows that this batch has closed."""
        ...

    async def mark_owing(self, owed: Mapping[bytes, int]) -> None:
        """Write into runs that this batch has closed what compensations they owe (an Owed)."""
        ...

    async def mark_retried(self, retried: Mapping[bytes, bytes]) -> None:
        """Write into closed rows which task repeats them: the old id -> the new one. Rows held elsewhere are skipped:
        they are being deleted."""
        ...

    async def delete_closed(self, task_ids: Sequence[bytes]) -> int:
        """Delete these closed jobs, their attempts and payloads; how many there were. Waits for rows held elsewhere,
        in order of id."""
        ...


class FailureStore(Protocol):
    """Part of Store."""

    async def failure_groups(self, namespace: str, first: int, most: int) -> list[tuple[int, Task]]:
        """The groups of dead letters that nobody has retried, in order of their numbers from `first` on, at most
        `most`; each with the newest of its dead letters (by id), without payload, headers and result."""
        ...

    async def count_failures(self, namespace: str, groups: Sequence[int], most: int) -> list[FailureCount]:
        """How many there are in these groups, and when they closed; of each no more than the `most` newest ids are
        looked at."""
        ...

    async def pick(self, selection: Selection, window: int, before: bytes | None = None) -> Picked:
        """The jobs of a selection among the `window` newest rows with an id below `before`; however few pass, no more
        rows are looked at."""
        ...

    async def retried_by(self, task_ids: Sequence[bytes]) -> dict[bytes, bytes]:
        """Which tasks repeat these closed ones; those that nobody has retried are absent."""
        ...

    async def suspects(self, after: bytes, window: int, begun_before: int) -> tuple[list[Task], bytes | None]:
        """Of the next `window` open tasks in order of id, from behind `after` on, those that somebody should look at,
        without payload and headers: workflow runs; leased ones whose attempt began before a time; and those that have
        no place, no session, no alarm, and are not held back by a cap. With them the last id that was looked at, None
        at the end."""
        ...

    async def old_failures(self, closed_before: int, most: int) -> list[tuple[str, str, bytes]]:
        """At most `most` dead letters that closed before a time and that nobody has retried: namespace, type, id."""
        ...

    async def owing(self, most: int) -> list[tuple[str, str, bytes, int]]:
        """At most `most` closed runs that owe compensations and about which nobody has written a resolution:
        namespace, type, id, and what they owe (an Owed)."""
        ...

    async def every_session(self, most: int) -> list[WorkerSession]:
        """Registered worker processes of all namespaces."""
        ...

    async def settings(self) -> dict[str, str]:
        """Settings of the database on which it depends that what is committed stays, by name."""
        ...
