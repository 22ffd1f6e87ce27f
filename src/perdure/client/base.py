"""The one protocol that applications and workers talk to; where the server runs makes no difference to them.

Implementations: embedded.py (a server in this process), http.py (WebSocket, or plain POST), and api/service.py itself.
An instance acts for one namespace. Every call answers after its effect is committed, and raises errors of
core/errors.py: InvalidArgument for a bad field, NotFound, Conflict, ResourceExhausted and Unavailable (with
`retry_after`), and OutcomeUnknown when an un-keyed enqueue may or may not have been committed. Batched calls answer by
item.
"""

from __future__ import annotations

from typing import Protocol

from perdure.client.events import EventService
from perdure.client.failures import FailureService
from perdure.client.limits import LimitService
from perdure.client.owners import OwnerService
from perdure.client.schedules import ScheduleService
from perdure.client.search import SearchService
from perdure.client.signals import SignalService
from perdure.core import messages as m
from perdure.core import workflow_messages as w


class Service(
    EventService, FailureService, LimitService, OwnerService, ScheduleService, SearchService, SignalService, Protocol
):
    """See the bodies in core/messages.py and core/workflow_messages.py for fields, units, defaults and limits."""

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

    async def start_workflow(self, body: w.StartWorkflow) -> w.StartReply:
        """WorkflowAlreadyStarted where the id policies forbid another run."""
        ...

    async def signal_workflow(self, body: w.SignalWorkflow) -> w.RunReply:
        """NotFound for an unknown workflow id or run, WorkflowClosed for a closed one; so do the next calls."""
        ...

    async def update_workflow(self, body: w.UpdateWorkflow) -> w.UpdateReply: ...

    async def query_workflow(self, body: w.QueryWorkflow) -> w.QueryReply:
        """Of closed runs too. NoWorker, naming the queue, when no worker answered."""
        ...

    async def cancel_workflow(self, body: w.CancelWorkflow) -> w.RunReply: ...

    async def terminate_workflow(self, body: w.TerminateWorkflow) -> w.RunReply: ...

    async def pause_workflow(self, body: w.PauseWorkflow) -> w.RunReply: ...

    async def reset_workflow(self, body: w.ResetWorkflow) -> w.StartReply:
        """Of closed runs too. WorkflowAlreadyStarted when another run of the workflow id is open."""
        ...

    async def resolve_workflow(self, body: w.ResolveWorkflow) -> w.RunReply:
        """Of closed runs only. IllegalMove while it is open."""
        ...

    async def describe_workflow(self, body: w.DescribeWorkflow) -> w.WorkflowView: ...

    async def result_workflow(self, body: w.ResultWorkflow) -> w.WorkflowView: ...

    async def find_workflows(self, body: w.FindWorkflows) -> w.WorkflowPage: ...

    async def history(self, body: w.History) -> w.HistoryReply: ...

    async def group_results(self, body: w.GroupResults) -> w.GroupResultsReply: ...

    async def complete_activity(self, body: w.CompleteActivity) -> w.RunReply: ...

    async def append(self, body: w.Appends) -> w.AppendReply: ...

    async def close(self) -> None:
        """Let go of the connection; open calls raise Unavailable."""
        ...
