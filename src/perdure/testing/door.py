"""What stands between a stage and those who call it, applications and workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from msgspec.structs import replace

from perdure.client.base import Service
from perdure.client.calls import Calls
from perdure.core import messages as m
from perdure.core import workflow_messages as w
from perdure.testing.waits import OPS, Waits

HEARTBEAT = 0.02
"""Seconds between heartbeats: how soon a handler hears, in real time, that it is to stop."""


class Door(Calls):
    """`used` hears of each queue that something is put into, `changed` is called after whatever may have let something
    begin or end, and `waits` answers the calls that wait."""

    def __init__(
        self, service: Service, used: Callable[[str], None], changed: Callable[[], None], waits: Waits
    ) -> None:
        self._service = service
        self._used = used
        self._changed = changed
        self._waits = waits

    async def _ask(self, op: str, body: m.Body) -> Any:
        if op in OPS and body.wait:  # type: ignore[attr-defined]
            return await getattr(self._waits, op)(body)
        if isinstance(body, (m.Enqueue, w.StartWorkflow)) and body.wait:
            body = replace(body, wait=0.0)  # unanswered, its sender goes on to wait by another call
        for queue in _queues(body):
            self._used(queue)
        reply = await getattr(self._service, op)(body)
        if isinstance(reply, m.SessionReply):
            reply = replace(reply, heartbeat=HEARTBEAT)
        if not isinstance(reply, m.HeartbeatReply) or "lost" in reply.actions:
            self._changed()
        return reply

    async def close(self) -> None:
        """The stage closes the Service."""


def _queues(body: m.Body) -> Iterator[str]:
    """Where a call puts tasks, activities and runs; a run that is to use the queue of its parent names none."""
    if isinstance(body, m.Enqueue):
        yield from (item.queue for item in body.tasks)
    elif isinstance(body, w.StartWorkflow):
        yield body.queue
    elif isinstance(body, w.Appends):
        for append in body.appends:
            yield from filter(None, (getattr(command, "task_queue", "") for command in append.commands))
