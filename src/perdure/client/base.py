"""The one protocol that applications and workers talk to; where the server runs makes no difference to them.

Implementations: embedded.py (a server in this process), http.py (WebSocket, or plain POST), and api/service.py itself.
An instance acts for one namespace. Every call answers after its effect is committed, and raises errors of
core/errors.py: InvalidArgument for a bad field, NotFound, Conflict, ResourceExhausted and Unavailable (with
`retry_after`), and OutcomeUnknown when an un-keyed enqueue may or may not have been committed. Batched calls answer by
item.
"""

from __future__ import annotations

from typing import Protocol

from perdure.core import messages as m


class Service(Protocol):
    """See the bodies in core/messages.py for fields, units, defaults and limits."""

    async def enqueue(self, body: m.Enqueue) -> m.EnqueueReply: ...

    async def get(self, body: m.Get) -> m.TaskView:
        """NotFound when there is no such task in the namespace."""
        ...

    async def find(self, body: m.Find) -> m.TaskPage: ...

    async def cancel(self, body: m.Cancel) -> m.CancelReply: ...

    async def retry(self, body: m.Retry) -> m.RetryReply:
        """IllegalMove for a task that is queued, runs, or SUCCEEDED."""
        ...

    async def open_session(self, body: m.OpenSession) -> m.SessionReply: ...

    async def poll(self, body: m.Poll) -> m.PollReply: ...

    async def heartbeat(self, body: m.Heartbeat) -> m.HeartbeatReply: ...

    async def complete(self, body: m.Complete) -> m.CompleteReply: ...

    async def nudge(self, body: m.Nudge) -> m.NudgeReply: ...

    async def close_session(self, body: m.CloseSession) -> m.Done: ...

    async def queues(self, body: m.ListQueues) -> m.QueuesReply: ...

    async def workers(self, body: m.ListWorkers) -> m.WorkersReply: ...

    async def close(self) -> None:
        """Let go of the connection; open calls raise Unavailable."""
        ...
