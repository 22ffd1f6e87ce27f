"""The Service protocol over one way to ask, for all that carry calls somewhere else."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from perdure.client.events import EventCalls
from perdure.client.failures import FailureCalls
from perdure.client.limits import LimitCalls
from perdure.client.owners import OwnerCalls
from perdure.client.schedules import ScheduleCalls
from perdure.client.search import SearchCalls
from perdure.client.signals import SignalCalls
from perdure.core import messages as m
from perdure.core import workflow_messages as w


class Calls(EventCalls, FailureCalls, LimitCalls, OwnerCalls, ScheduleCalls, SearchCalls, SignalCalls):
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

    async def start_workflow(self, body: w.StartWorkflow) -> w.StartReply:
        reply: w.StartReply = await self._ask("start_workflow", body)
        return reply

    async def signal_workflow(self, body: w.SignalWorkflow) -> w.RunReply:
        reply: w.RunReply = await self._ask("signal_workflow", body)
        return reply

    async def update_workflow(self, body: w.UpdateWorkflow) -> w.UpdateReply:
        reply: w.UpdateReply = await self._ask("update_workflow", body)
        return reply

    async def query_workflow(self, body: w.QueryWorkflow) -> w.QueryReply:
        reply: w.QueryReply = await self._ask("query_workflow", body)
        return reply

    async def cancel_workflow(self, body: w.CancelWorkflow) -> w.RunReply:
        reply: w.RunReply = await self._ask("cancel_workflow", body)
        return reply

    async def terminate_workflow(self, body: w.TerminateWorkflow) -> w.RunReply:
        reply: w.RunReply = await self._ask("terminate_workflow", body)
        return reply

    async def pause_workflow(self, body: w.PauseWorkflow) -> w.RunReply:
        reply: w.RunReply = await self._ask("pause_workflow", body)
        return reply

    async def reset_workflow(self, body: w.ResetWorkflow) -> w.StartReply:
        reply: w.StartReply = await self._ask("reset_workflow", body)
        return reply

    async def resolve_workflow(self, body: w.ResolveWorkflow) -> w.RunReply:
        reply: w.RunReply = await self._ask("resolve_workflow", body)
        return reply

    async def describe_workflow(self, body: w.DescribeWorkflow) -> w.WorkflowView:
        reply: w.WorkflowView = await self._ask("describe_workflow", body)
        return reply

    async def result_workflow(self, body: w.ResultWorkflow) -> w.WorkflowView:
        reply: w.WorkflowView = await self._ask("result_workflow", body)
        return reply

    async def find_workflows(self, body: w.FindWorkflows) -> w.WorkflowPage:
        reply: w.WorkflowPage = await self._ask("find_workflows", body)
        return reply

    async def history(self, body: w.History) -> w.HistoryReply:
        reply: w.HistoryReply = await self._ask("history", body)
        return reply

    async def group_results(self, body: w.GroupResults) -> w.GroupResultsReply:
        reply: w.GroupResultsReply = await self._ask("group_results", body)
        return reply

    async def append(self, body: w.Appends) -> w.AppendReply:
        reply: w.AppendReply = await self._ask("append", body)
        return reply

    async def complete_activity(self, body: w.CompleteActivity) -> w.RunReply:
        reply: w.RunReply = await self._ask("complete_activity", body)
        return reply
