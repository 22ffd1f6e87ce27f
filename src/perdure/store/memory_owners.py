"""The owners of queues in the reference store."""

from __future__ import annotations

from perdure.core.owners import QueueOwner


class MemoryOwners:
    """See base.Store."""

    def __init__(self) -> None:
        self._owners: dict[tuple[str, str], QueueOwner] = {}

    async def queue_owners(self) -> list[QueueOwner]:
        return [owner for _, owner in sorted(self._owners.items())]

    async def put_queue_owner(self, owner: QueueOwner) -> None:
        self._owners[owner.namespace, owner.queue] = owner

    async def delete_queue_owner(self, namespace: str, queue: str) -> bool:
        return self._owners.pop((namespace, queue), None) is not None
