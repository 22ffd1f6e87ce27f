"""The part of the service that is about who looks after queues; Service inherits it."""

from __future__ import annotations

from perdure.api.part import Part
from perdure.api.reading import reading
from perdure.core import limits, owners
from perdure.core.errors import NotFound
from perdure.core.owners import DeleteQueueOwner, OwnerReply, SetQueueOwner


class Owners(Part):
    """See client/owners.py for the operations."""

    async def set_queue_owner(self, body: SetQueueOwner) -> OwnerReply:
        made = owners.checked(body, self._namespace, self._engine.now())
        with reading():
            await self._engine.store.put_queue_owner(made)
        return OwnerReply(made.queue, made.owner)

    async def delete_queue_owner(self, body: DeleteQueueOwner) -> OwnerReply:
        queue = limits.name(body.queue, "queue")
        with reading():
            if not await self._engine.store.delete_queue_owner(self._namespace, queue):
                raise NotFound(f"nobody looks after queue {queue!r}", field="queue")
        return OwnerReply(queue)
