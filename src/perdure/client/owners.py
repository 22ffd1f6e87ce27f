"""What the protocol has for owners of queues: the calls, and the calls over one way to ask."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

from perdure.core.body import Body
from perdure.core.owners import DeleteQueueOwner, OwnerReply, SetQueueOwner


class OwnerService(Protocol):
    """See the bodies in core/owners.py."""

    async def set_queue_owner(self, body: SetQueueOwner) -> OwnerReply: ...

    async def delete_queue_owner(self, body: DeleteQueueOwner) -> OwnerReply:
        """NotFound when nobody looks after the queue."""
        ...


class OwnerCalls(ABC):
    """A part of client/calls.py."""

    @abstractmethod
    async def _ask(self, op: str, body: Body) -> Any: ...

    async def set_queue_owner(self, body: SetQueueOwner) -> OwnerReply:
        reply: OwnerReply = await self._ask("set_queue_owner", body)
        return reply

    async def delete_queue_owner(self, body: DeleteQueueOwner) -> OwnerReply:
        reply: OwnerReply = await self._ask("delete_queue_owner", body)
        return reply
