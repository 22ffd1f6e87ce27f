"""What stands between a stage and those who call it, applications and workers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec.structs import replace

from perdure.client.base import Service
from perdure.client.calls import Calls
from perdure.core import messages as m

HEARTBEAT = 0.02
"""Seconds between heartbeats: how soon a handler hears, in real time, that it is to stop."""


class Door(Calls):
    """`used` hears of each queue that got a task, `changed` is called after whatever may have let something begin or
    end, and `settle` makes a task end that somebody waits for."""

    def __init__(
        self,
        service: Service,
        used: Callable[[str], None],
        changed: Callable[[], None],
        settle: Callable[[m.Get], Awaitable[m.TaskView]],
    ) -> None:
        self._service = service
        self._used = used
        self._changed = changed
        self._settle = settle

    async def _ask(self, op: str, body: m.Body) -> Any:
        if isinstance(body, m.Get) and body.wait:
            return await self._settle(body)
        if isinstance(body, m.Enqueue) and body.wait:
            body = replace(body, wait=0.0)  # unanswered, its sender goes on to wait by a Get
        reply = await getattr(self._service, op)(body)
        if isinstance(body, m.Enqueue):
            for item, answer in zip(body.tasks, reply.tasks, strict=True):
                if answer.error is None:
                    self._used(item.queue)
        elif isinstance(reply, m.SessionReply):
            reply = replace(reply, heartbeat=HEARTBEAT)
        if not isinstance(reply, m.HeartbeatReply) or "lost" in reply.actions:
            self._changed()
        return reply

    async def close(self) -> None:
        """The stage closes the Service."""
