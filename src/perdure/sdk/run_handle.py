"""A workflow run in the hand of whoever started it: wait for its result, signal, query and update it, end it."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Generic, cast

from perdure.core.durations import Duration, seconds
from perdure.core.errors import (
    QueryFailed,
    TaskCanceled,
    TaskFailed,
    TaskTerminated,
    UpdateFailed,
    WaitTimeout,
)
from perdure.core.limits import MAX_WAIT_SECONDS
from perdure.core.model import Failure
from perdure.core.workflow_messages import (
    CancelWorkflow,
    DescribeWorkflow,
    PauseWorkflow,
    QueryWorkflow,
    ResetWorkflow,
    ResolveWorkflow,
    ResultWorkflow,
    RunReply,
    Signal,
    SignalWorkflow,
    TerminateWorkflow,
    UpdateReply,
    UpdateWorkflow,
    WorkflowView,
)
from perdure.sdk.handle import LONGEST_WAIT, Runner, patiently
from perdure.sdk.hints import ANY, Hint, of_value
from perdure.sdk.history import WorkflowHistory, read_history
from perdure.sdk.mint import mint_id
from perdure.sdk.task import R

if TYPE_CHECKING:
    from perdure.sdk.runs import AsyncRuns


class AsyncWorkflowHandle(Generic[R]):
    """A handle to the runs of one workflow id: to the one of `run_id` if that is given, else to the current one, which
    is the open one or the last."""

    __slots__ = ("_client", "_result", "id", "run_id", "started")

    def __init__(
        self, client: AsyncRuns, id: str, run_id: str | None = None, started: bool = False, result: Hint = ANY
    ) -> None:
        self._client = client
        self._result = result
        self.id = id
        self.run_id = run_id
        self.started = started  #: the call that made this handle has started the run; it was not open before

    def __repr__(self) -> str:
        return f"<workflow {self.id}>"

    async def result(self, timeout: Duration | None = None, *, follow: bool = True) -> R:
        """What the workflow returned, as the type that its function is annotated with when that is known here, else as
        plain JSON. With `follow` a run that continued as new, was retried or repeated is followed to the last one. None
        waits as long as it takes, 0 looks once.

        Raises TaskFailed (with `failure`; also for a time-out of the run), TaskCanceled or TaskTerminated as it closed;
        WaitTimeout while it is still open, and the wait may be repeated; NotFound; Unavailable as AsyncJob.result.
        """
        limit = None if timeout is None else seconds(timeout, "timeout", most=LONGEST_WAIT)

        async def ask(wait: float) -> WorkflowView:
            body = ResultWorkflow(self.id, self.run_id, wait, follow)
            return await (await self._client.service()).result_workflow(body)

        view = await patiently(ask, lambda view: view.closed_at is not None, limit)
        if view.closed_at is None:
            raise WaitTimeout(f"the workflow is still {view.status}")
        return self.outcome(view)

    def outcome(self, view: WorkflowView) -> R:
        """What the workflow returned, or the error that tells how it ended, from the view of the closed run."""
        match view.status:
            case "COMPLETED":
                return cast("R", self._client.converter.from_payloads(view.result or (), "result", self._result))
            case "CANCELLED":
                raise TaskCanceled("the workflow was canceled" if view.failure is None else view.failure.message)
            case "TERMINATED":
                raise TaskTerminated("" if view.failure is None else view.failure.message)
            case _:
                raise TaskFailed(view.failure or Failure(message=f"the workflow is {view.status}"))

    async def signal(self, name: str, input: object = None, *, headers: dict[str, str] | None = None) -> None:
        """Send a signal; it is kept when this returns, and its code sees it once. NotFound, or WorkflowClosed."""
        signal = Signal(name, self._client.converter.to_payloads(input, "input", of_value(input)), headers or {})
        body = SignalWorkflow(self.id, signal, self.run_id, request_id=request_id(), identity=self._client.identity)
        await self._client.sent(lambda service: service.signal_workflow(body))

    async def query(self, name: str, input: object = None, *, timeout: Duration = 10.0) -> Any:
        """Ask the code something that changes nothing, also after it has closed. QueryFailed when it cannot answer;
        NoWorker, which names the queue, when no worker is there to answer within `timeout` (25 s at most)."""
        body = QueryWorkflow(
            self.id,
            name,
            self._client.converter.to_payloads(input, "input", of_value(input)),
            self.run_id,
            seconds(timeout, "timeout", most=MAX_WAIT_SECONDS),
        )
        reply = await (await self._client.service()).query_workflow(body)
        if reply.failure is not None:
            raise QueryFailed(reply.failure)
        return self._client.converter.from_payloads(reply.result, "result")

    async def update(
        self,
        name: str,
        input: object = None,
        *,
        id: str | None = None,
        timeout: Duration | None = None,
        headers: dict[str, str] | None = None,
    ) -> Any:
        """Have the code change something, and wait for its answer. The same `id` is the same update, however often it
        is sent. Raises UpdateFailed, WaitTimeout (it goes on), NotFound, WorkflowClosed."""
        update = self._update(name, input, id, headers)
        return await update.result(timeout)

    async def start_update(
        self,
        name: str,
        input: object = None,
        *,
        id: str | None = None,
        timeout: Duration | None = None,
        headers: dict[str, str] | None = None,
    ) -> AsyncUpdateHandle:
        """The same, returning once the code has accepted it. UpdateFailed when it was rejected."""
        update = self._update(name, input, id, headers)
        await update.accepted(timeout)
        return update

    def _update(self, name: str, input: object, id: str | None, headers: dict[str, str] | None) -> AsyncUpdateHandle:
        body = UpdateWorkflow(
            self.id,
            id or request_id(),
            name,
            self._client.converter.to_payloads(input, "input", of_value(input)),
            self.run_id,
            headers or {},
            self._client.identity,
        )
        return AsyncUpdateHandle(self._client, body)

    async def cancel(self, reason: str = "") -> None:
        """Ask the code to end; it may clean up first. Harmless when repeated."""
        body = CancelWorkflow(self.id, self.run_id, reason, request_id(), self._client.identity)
        await self._client.sent(lambda service: service.cancel_workflow(body))

    async def terminate(self, reason: str = "") -> RunReply:
        """Close the run at once; its code does not hear of it, and nothing is cleaned up."""
        body = TerminateWorkflow(self.id, self.run_id, reason, self._client.identity)
        return await (await self._client.service()).terminate_workflow(body)

    async def pause(self) -> RunReply:
        """Run no code of the open run until it is resumed; what its code does just now goes on to its end, and so do
        activities and timers. Harmless when repeated. NotFound, or WorkflowClosed."""
        return await self._pause(True)

    async def resume(self) -> RunReply:
        """Run the code of a paused run again. Harmless when repeated. NotFound, or WorkflowClosed."""
        return await self._pause(False)

    async def _pause(self, paused: bool) -> RunReply:
        body = PauseWorkflow(self.id, self.run_id, paused)
        return await self._client.sent(lambda service: service.pause_workflow(body))

    async def reset(
        self, *, event_id: int | None = None, step: str | None = None, reason: str = ""
    ) -> AsyncWorkflowHandle[R]:
        """Begin the run again, open or closed, as a new run of the workflow id, whose handle this returns. It keeps
        what the old one did up to the event `event_id`, or what came before the last step of the name `step`; of what
        the code asked for at the same time all is kept or nothing. Signals that came later are kept too. The old run is
        terminated if it is open; the new one is not paused.

        NotFound, InvalidArgument for an event that nothing can begin again from (a child workflow that is under way,
        say), WorkflowAlreadyStarted when this handle names a run and another one of the workflow id is open."""
        body = ResetWorkflow(self.id, self.run_id, event_id, step, reason, request_id(), self._client.identity)
        reply = await self._client.sent(lambda service: service.reset_workflow(body))
        return AsyncWorkflowHandle(self._client, self.id, reply.run_id, True, self._result)

    async def resolve(self, note: str) -> RunReply:
        """Note what people have done about a run that has closed, such as one whose compensations failed; `describe`
        shows it, and a later note takes its place. NotFound; IllegalMove while the run is open."""
        body = ResolveWorkflow(self.id, note, self.run_id, self._client.identity)
        return await self._client.sent(lambda service: service.resolve_workflow(body))

    async def describe(self) -> WorkflowView:
        """The run as it is now: its state, what it waits for, its open activities, timers and children."""
        return await (await self._client.service()).describe_workflow(DescribeWorkflow(self.id, self.run_id))

    async def history(self) -> WorkflowHistory:
        """All events so far, for a look or for a replayer."""
        return await read_history(await self._client.service(), self.id, self.run_id)


class AsyncUpdateHandle:
    """An update that was sent; made by `start_update`."""

    __slots__ = ("_body", "_client", "_reply")

    def __init__(self, client: AsyncRuns, body: UpdateWorkflow) -> None:
        self._client = client
        self._body = body
        self._reply: UpdateReply | None = None

    @property
    def id(self) -> str:
        return self._body.update_id

    async def result(self, timeout: Duration | None = None) -> Any:
        """What its handler returned. None waits as long as it takes. UpdateFailed, WaitTimeout."""
        reply = await self._until("completed", timeout)
        if reply.stage != "completed":
            raise WaitTimeout(f"the update is only {reply.stage}")
        if reply.failure is not None:
            raise UpdateFailed(reply.failure)
        return self._client.converter.from_payloads(reply.result, "result")

    async def accepted(self, timeout: Duration | None = None) -> None:
        """Returns once the code has accepted it. UpdateFailed when it was rejected, WaitTimeout."""
        reply = await self._until("accepted", timeout)
        if reply.stage == "admitted":
            raise WaitTimeout("the update is only admitted")
        if reply.failure is not None:
            raise UpdateFailed(reply.failure)

    async def _until(self, stage: str, timeout: Duration | None) -> UpdateReply:
        if self._reply is not None and self._reply.stage in (stage, "completed"):
            return self._reply
        limit = None if timeout is None else seconds(timeout, "timeout", most=LONGEST_WAIT)

        async def ask(wait: float) -> UpdateReply:
            self._body.wait, self._body.stage = wait, stage
            reply = await (await self._client.service()).update_workflow(self._body)
            self._body.run_id = reply.run_id  # that run has it; the same id would be a new update to the next one
            return reply

        self._reply = await patiently(ask, lambda reply: reply.stage in (stage, "completed"), limit)
        return self._reply


class WorkflowHandle(Generic[R]):
    """AsyncWorkflowHandle for code without an event loop: every call blocks."""

    __slots__ = ("_handle", "_run")

    def __init__(self, handle: AsyncWorkflowHandle[R], run: Runner) -> None:
        self._handle = handle
        self._run = run

    def __repr__(self) -> str:
        return repr(self._handle)

    @property
    def id(self) -> str:
        return self._handle.id

    @property
    def run_id(self) -> str | None:
        return self._handle.run_id

    @property
    def started(self) -> bool:
        return self._handle.started

    def result(self, timeout: Duration | None = None, *, follow: bool = True) -> R:
        """See AsyncWorkflowHandle.result."""
        return self._run(self._handle.result(timeout, follow=follow))

    def signal(self, name: str, input: object = None, *, headers: dict[str, str] | None = None) -> None:
        """See AsyncWorkflowHandle.signal."""
        self._run(self._handle.signal(name, input, headers=headers))

    def query(self, name: str, input: object = None, *, timeout: Duration = 10.0) -> Any:
        """See AsyncWorkflowHandle.query."""
        return self._run(self._handle.query(name, input, timeout=timeout))

    def update(
        self,
        name: str,
        input: object = None,
        *,
        id: str | None = None,
        timeout: Duration | None = None,
        headers: dict[str, str] | None = None,
    ) -> Any:
        """See AsyncWorkflowHandle.update."""
        return self._run(self._handle.update(name, input, id=id, timeout=timeout, headers=headers))

    def start_update(
        self,
        name: str,
        input: object = None,
        *,
        id: str | None = None,
        timeout: Duration | None = None,
        headers: dict[str, str] | None = None,
    ) -> UpdateHandle:
        """See AsyncWorkflowHandle.start_update."""
        update = self._run(self._handle.start_update(name, input, id=id, timeout=timeout, headers=headers))
        return UpdateHandle(update, self._run)

    def cancel(self, reason: str = "") -> None:
        """See AsyncWorkflowHandle.cancel."""
        self._run(self._handle.cancel(reason))

    def terminate(self, reason: str = "") -> RunReply:
        """See AsyncWorkflowHandle.terminate."""
        return self._run(self._handle.terminate(reason))

    def pause(self) -> RunReply:
        """See AsyncWorkflowHandle.pause."""
        return self._run(self._handle.pause())

    def resume(self) -> RunReply:
        """See AsyncWorkflowHandle.resume."""
        return self._run(self._handle.resume())

    def reset(self, *, event_id: int | None = None, step: str | None = None, reason: str = "") -> WorkflowHandle[R]:
        """See AsyncWorkflowHandle.reset."""
        return WorkflowHandle(self._run(self._handle.reset(event_id=event_id, step=step, reason=reason)), self._run)

    def resolve(self, note: str) -> RunReply:
        """See AsyncWorkflowHandle.resolve."""
        return self._run(self._handle.resolve(note))

    def describe(self) -> WorkflowView:
        """See AsyncWorkflowHandle.describe."""
        return self._run(self._handle.describe())

    def history(self) -> WorkflowHistory:
        """See AsyncWorkflowHandle.history."""
        return self._run(self._handle.history())


class UpdateHandle:
    """AsyncUpdateHandle for code without an event loop."""

    __slots__ = ("_run", "_update")

    def __init__(self, update: AsyncUpdateHandle, run: Runner) -> None:
        self._update = update
        self._run = run

    @property
    def id(self) -> str:
        return self._update.id

    def result(self, timeout: Duration | None = None) -> Any:
        """See AsyncUpdateHandle.result."""
        return self._run(self._update.result(timeout))


def request_id() -> str:
    """A new one, by which a server knows a call that is repeated."""
    return str(uuid.UUID(bytes=mint_id()))
