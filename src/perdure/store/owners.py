"""The verbs about who looks after queues: part of base.Store. Nothing that runs tasks reads them."""

from __future__ import annotations

from typing import Protocol

from perdure.core.owners import QueueOwner


class OwnerStore(Protocol):
    """Part of Store."""

    async def queue_owners(self) -> list[QueueOwner]:
        """Those of all namespaces, by namespace and queue."""
        ...

    async def put_queue_owner(self, owner: QueueOwner) -> None:
        """Insert or replace the owner of a queue, by itself and not in a batch."""
        ...

    async def delete_queue_owner(self, namespace: str, queue: str) -> bool:
        """False when the queue has none."""
        ...
