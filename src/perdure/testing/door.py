"""What stands between a stage and those who call it, applications and workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from msgspec.structs import replace

from perdure.client.base import Service
from perdure.client.calls import Calls
from perdure.core import messages as m
from perdure.core import schedule_messages as s
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
        reply = await getattr(self._service, op)(body)
        for queue in _queues(body, reply):
            self._used(queue)
        if isinstance(reply, m.SessionReply):
            reply = replace(reply, heartbeat=HEARTBEAT)
        if not isinstance(reply, m.HeartbeatReply) or "lost" in reply.actions:
            self._changed()
        return reply

    async def close(self) -> None:
        """The stage closes the Service."""


def _queues(body: m.Body, reply: Any) -> Iterator[str]:
    """Where a call has put tasks, activities and runs."""
    if isinstance(body, m.Enqueue):
        yield from (item.queue for item, answer in zip(body.tasks, reply.tasks, strict=True) if answer.error is None)
    elif isinstance(body, w.StartWorkflow):
        yield body.queue
    elif isinstance(body, s.PutSchedule):
        yield from (template.queue for template in (body.schedule.task, body.schedule.workflow) if template is not None)
    elif isinstance(body, w.Appends):
        for append, outcome in zip(body.appends, reply.outcomes, strict=True):
            if outcome.error is None:
                named = (getattr(command, "task_queue", "") for command in append.commands)
                yield from filter(None, named)  # without a name it is the queue of the run itself
