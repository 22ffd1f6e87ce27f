"""The Service protocol over one way to ask, for all that carry calls somewhere else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from perdure.core import messages as m


class Calls(ABC):
    """Implements the operations of client/base.py by `_ask`."""

    @abstractmethod
    async def _ask(self, op: str, body: m.Body) -> Any:
        """The reply to `op`, one of messages.OPS."""

    async def enqueue(self, body: m.Enqueue) -> m.EnqueueReply:
        reply: m.EnqueueReply = await self._ask("enqueue", body)
        return reply

    async def get(self, body: m.Get) -> m.TaskView:
        reply: m.TaskView = await self._ask("get", body)
        return reply

    async def find(self, body: m.Find) -> m.TaskPage:
        reply: m.TaskPage = await self._ask("find", body)
        return reply

    async def cancel(self, body: m.Cancel) -> m.CancelReply:
        reply: m.CancelReply = await self._ask("cancel", body)
        return reply

    async def retry(self, body: m.Retry) -> m.RetryReply:
        reply: m.RetryReply = await self._ask("retry", body)
        return reply

    async def open_session(self, body: m.OpenSession) -> m.SessionReply:
        reply: m.SessionReply = await self._ask("open_session", body)
        return reply

    async def poll(self, body: m.Poll) -> m.PollReply:
        reply: m.PollReply = await self._ask("poll", body)
        return reply

    async def heartbeat(self, body: m.Heartbeat) -> m.HeartbeatReply:
        reply: m.HeartbeatReply = await self._ask("heartbeat", body)
        return reply

    async def complete(self, body: m.Complete) -> m.CompleteReply:
        reply: m.CompleteReply = await self._ask("complete", body)
        return reply

    async def nudge(self, body: m.Nudge) -> m.NudgeReply:
        reply: m.NudgeReply = await self._ask("nudge", body)
        return reply

    async def close_session(self, body: m.CloseSession) -> m.Done:
        reply: m.Done = await self._ask("close_session", body)
        return reply

    async def queues(self, body: m.ListQueues) -> m.QueuesReply:
        reply: m.QueuesReply = await self._ask("queues", body)
        return reply

    async def workers(self, body: m.ListWorkers) -> m.WorkersReply:
        reply: m.WorkersReply = await self._ask("workers", body)
        return reply
