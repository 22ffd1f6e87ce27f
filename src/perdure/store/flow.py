"""What limits ask of a database: verbs that belong to the protocols of base.py.

Limits are few rows; a batch that counts against one holds its row until it commits, so no two batches give the same
slot away. The count is a later statement than the lock, and so sees what every earlier holder committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from perdure.core.limit_rules import Limit, LimitName, Running
from perdure.core.model import Task


class FlowBatch(Protocol):
    """Part of base.Batch."""

    async def hold_limits(self, names: Sequence[LimitName]) -> dict[LimitName, Limit]:
        """Lock limits, which are distinct, and return them as they are. Those absent are held by another batch, or are
        not there any more."""
        ...

    async def running(self, namespaces: Sequence[str]) -> list[Running]:
        """Leased tasks of these namespaces, counted by what limits ask about."""
        ...

    async def blocked(self, most: Mapping[str, int]) -> list[Task]:
        """Lock tasks that are blocked on each subject, whole, as many as given for it, in order of (subject, priority,
        blocked_place, id); skips those held elsewhere."""
        ...

    async def buckets(self, subjects: Sequence[str]) -> dict[str, int]:
        """When the buckets of held limits will be full; those that are full are absent."""
        ...

    async def put_buckets(self, full_at: Mapping[str, int]) -> None:
        """Insert or replace buckets of held limits."""
        ...

    async def trim_buckets(self, limit: int) -> int:
        """Delete at most `limit` buckets that are full by the clock; how many."""
        ...

    async def put_limit(self, limit: Limit) -> None:
        """Insert or replace a limit. Who replaces one holds it."""
        ...

    async def delete_limit(self, name: LimitName) -> None:
        """Delete a limit that is held."""
        ...


class FlowStore(Protocol):
    """Part of base.Store."""

    async def limits(self) -> list[Limit]:
        """All limits of all namespaces, by name."""
        ...

    async def limits_version(self) -> tuple[int, int]:
        """Two numbers; at least one of them changes with every change of the limits."""
        ...

    async def blocked_subjects(self, after: str, most: int) -> list[str]:
        """Subjects behind `after` that tasks are blocked on, in order, at most so many."""
        ...

    async def count_running(self, namespace: str) -> list[Running]:
        """As FlowBatch.running, of what is committed."""
        ...

    async def count_blocked(self, subjects: Sequence[str], most: int) -> dict[str, int]:
        """How many tasks are blocked on each subject; no count goes beyond `most`. Those without any are absent."""
        ...
