"""The owners of queues in the reference store."""

from __future__ import annotations

from perdure.core.owners import QueueOwner
from perdure.store.memory_part import StorePart


class MemoryOwners(StorePart):
    """See base.Store."""

    async def queue_owners(self) -> list[QueueOwner]:
        return [owner for _, owner in sorted(self._tables.owners.items())]

    async def put_queue_owner(self, owner: QueueOwner) -> None:
        self._tables.owners[owner.namespace, owner.queue] = owner

    async def delete_queue_owner(self, namespace: str, queue: str) -> bool:
        return self._tables.owners.pop((namespace, queue), None) is not None
