"""The client's half for owners of queues (docs/doctor.md). `AsyncOwners` is a part of AsyncClient, `Owners` of
Perdure."""

from __future__ import annotations

from perdure.core.owners import DEFAULT_DEPTH, DeleteQueueOwner, SetQueueOwner
from perdure.sdk.part import AsyncPart, Part


class AsyncOwners(AsyncPart):
    """A part of AsyncClient."""

    async def set_queue_owner(self, queue: str, owner: str, *, alert_depth: int = DEFAULT_DEPTH) -> None:
        """Say who looks after a queue and its dead letters: a person, a team, an address. More ready tasks than
        `alert_depth`, 1 to 1,000,000, are a finding of the standing checks."""
        await (await self.service()).set_queue_owner(SetQueueOwner(queue, owner, alert_depth))

    async def delete_queue_owner(self, queue: str) -> None:
        """Nobody looks after it any more. NotFound when nobody did."""
        await (await self.service()).delete_queue_owner(DeleteQueueOwner(queue))


class Owners(Part):
    """AsyncOwners for code without an event loop: every call blocks."""

    _app: AsyncOwners

    def set_queue_owner(self, queue: str, owner: str, *, alert_depth: int = DEFAULT_DEPTH) -> None:
        """See AsyncOwners.set_queue_owner."""
        self._run(self._app.set_queue_owner(queue, owner, alert_depth=alert_depth))

    def delete_queue_owner(self, queue: str) -> None:
        """See AsyncOwners.delete_queue_owner."""
        self._run(self._app.delete_queue_owner(queue))
