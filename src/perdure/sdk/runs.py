"""The client's half for workflows: start them, find them, get a handle to them. `AsyncRuns` is a part of AsyncClient,
`Runs` of Perdure.

Every start and every message carries a request id, kept while the call is repeated over outages, so that a lost answer
never makes a second run or signal.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict, TypeVar, Unpack

from perdure.client.base import Service
from perdure.core.durations import Duration, seconds
from perdure.core.errors import ResourceExhausted, Unavailable
from perdure.core.limits import MAX_WAIT_SECONDS
from perdure.core.model import RetryPolicy
from perdure.core.workflow_messages import FindWorkflows, Signal, StartReply, StartWorkflow, Update, WorkflowPage
from perdure.sdk.activity_handle import ActivityHandle, AsyncActivityHandle
from perdure.sdk.definition import WORKFLOWS, AnyWorkflow, Workflow, named
from perdure.sdk.handle import LONGEST_WAIT, OUTAGE_SECONDS
from perdure.sdk.hints import ANY, Hint, of_value
from perdure.sdk.part import AsyncPart, Part
from perdure.sdk.run_handle import AsyncWorkflowHandle, WorkflowHandle, request_id
from perdure.sdk.task import R

T = TypeVar("T")

_RETRY_SECONDS = (0.05, 2.0)


class RunOptions(TypedDict, total=False):
    """What a call may say about a run; it overrules what `@workflow` says, option by option. Times are seconds or text
    such as "90s", `start_delay` also a timedelta.

    queue              where its turns run; the workflow's own queue by default
    start_delay        until its first turn
    execution_timeout  longest time of all runs of the chain (retries, cron, continue-as-new) together
    run_timeout        longest time of one run
    retry              repeats a run that failed; without it none is repeated
    cron               repeats the workflow by this expression, in UTC
    priority           1 first to 5 last
    fairness_key       runs that share one in a queue share one turn
    memo               values that lists and descriptions show
    search_attributes  plain values to find it by
    id_reuse           once the last run of this id has closed: "allow_duplicate" (default),
                       "allow_duplicate_failed_only", "reject_duplicate"
    id_conflict        while a run of this id is open: "fail" (default), "use_existing", "terminate_existing"
    """

    queue: str | None
    start_delay: Duration | timedelta | None
    execution_timeout: Duration | None
    run_timeout: Duration | None
    retry: RetryPolicy | None
    cron: str
    priority: int
    fairness_key: str
    headers: dict[str, str] | None
    memo: Mapping[str, object] | None
    search_attributes: dict[str, Any] | None
    id_reuse: Literal["allow_duplicate", "allow_duplicate_failed_only", "reject_duplicate"]
    id_conflict: Literal["fail", "use_existing", "terminate_existing"]


class RunFilter(TypedDict, total=False):
    """Which runs a list shows. `status` is RUNNING, COMPLETED, FAILED, CANCELLED, TERMINATED, TIMED_OUT or
    CONTINUED_AS_NEW; `open` leaves out closed ones; `limit` (50 by default, at most 1,000) is the size of a page.
    `lacks_version`, together with `type`, asks for the open runs whose history has no marker of `ctx.patched` or
    `ctx.version` with this id; `requires_intervention` for closed runs whose compensations failed or did not run, and
    that nobody has resolved. `query` (docs/search.md) is one more filter, and may say another order; a page of a query
    may be short, or empty, although more follow."""

    status: str | None
    type: str | None
    workflow_id: str | None
    queue: str | None
    since: datetime | None
    limit: int
    cursor: str | None
    lacks_version: str | None
    open: bool
    requires_intervention: bool
    query: str


class AsyncRuns(AsyncPart):
    """What AsyncClient can do about workflows."""

    async def start_workflow(
        self,
        workflow: Workflow[R] | type[Any] | str,
        input: object = None,
        *,
        id: str | None = None,
        **options: Unpack[RunOptions],
    ) -> AsyncWorkflowHandle[R]:
        """A run that is committed. Of one `id` at most one run is open; without it the run gets a random one.

        `workflow` is a @workflow, or a name when the function lives elsewhere; the options of one that this process has
        count also by its name. `input` is what the function is
        annotated with, or JSON that stands for it. An outage of up to 30 s is waited out. Raises
        WorkflowAlreadyStarted as `id_conflict` and `id_reuse` say, InvalidArgument, Unavailable.
        """
        reply = await self._start(self._new_run(workflow, input, id, options))
        return self._handle(reply, workflow)

    async def execute_workflow(
        self,
        workflow: Workflow[R] | type[Any] | str,
        input: object = None,
        *,
        id: str | None = None,
        timeout: Duration | None = None,
        **options: Unpack[RunOptions],
    ) -> R:
        """Start a run and wait for what it returns, in one request if it is quick: `start_workflow` and then
        `AsyncWorkflowHandle.result`, whose errors it raises. After a WaitTimeout the run goes on."""
        begun = time.monotonic()
        limit = None if timeout is None else seconds(timeout, "timeout", most=LONGEST_WAIT)
        body = self._new_run(workflow, input, id, options)
        body.wait = MAX_WAIT_SECONDS if limit is None else min(limit, MAX_WAIT_SECONDS)
        reply = await self._start(body)
        handle = self._handle(reply, workflow)
        if reply.closed is not None and not reply.closed.next_run_id:
            return handle.outcome(reply.closed)
        return await handle.result(None if limit is None else max(0.0, limit - (time.monotonic() - begun)))

    async def signal_with_start(
        self,
        workflow: Workflow[R] | type[Any] | str,
        input: object = None,
        *,
        id: str,
        signal: str,
        signal_input: object = None,
        **options: Unpack[RunOptions],
    ) -> AsyncWorkflowHandle[R]:
        """Signal the open run of this id; if there is none, start one that has the signal from the beginning. One
        transaction, so many callers at once make one run and no signal is lost."""
        body = self._new_run(workflow, input, id, {"id_conflict": "use_existing", **options})
        body.signal = Signal(signal, self.converter.to_payloads(signal_input, "signal_input", of_value(signal_input)))
        return self._handle(await self._start(body), workflow)

    async def update_with_start(
        self,
        workflow: AnyWorkflow,
        input: object = None,
        *,
        id: str,
        update: str,
        update_input: object = None,
        update_id: str | None = None,
        timeout: Duration | None = None,
        **options: Unpack[RunOptions],
    ) -> Any:
        """Update the open run of this id, which is started if there is none, and wait for the answer: a start and an
        update in one transaction, both or neither. Raises what `AsyncWorkflowHandle.update` raises."""
        body = self._new_run(workflow, input, id, {"id_conflict": "use_existing", **options})
        payloads = self.converter.to_payloads(update_input, "update_input", of_value(update_input))
        body.update = Update(update_id or request_id(), update, payloads)
        handle = self._handle(await self._start(body), workflow)
        return await handle.update(update, update_input, id=body.update.update_id, timeout=timeout)

    def get_workflow_handle(
        self, id: str, run_id: str | None = None, workflow: Workflow[R] | type[Any] | str | None = None
    ) -> AsyncWorkflowHandle[R]:
        """The handle of a workflow whose id is known; asks nobody. With its @workflow the result has the type that the
        function is annotated with."""
        return AsyncWorkflowHandle(self, id, run_id, result=_result(workflow))

    async def list_workflows(self, **filter: Unpack[RunFilter]) -> WorkflowPage:
        """Runs that pass all filters, newest first; `next` of a page is the `cursor` of the next. A page with
        `lacks_version` may be short, or empty, although more follow: it reads histories, a bounded part of them for
        each page."""
        return await (await self.service()).find_workflows(FindWorkflows(**filter))

    def get_activity_handle(
        self,
        *,
        token: bytes | None = None,
        workflow_id: str | None = None,
        activity_id: str | None = None,
        run_id: str | None = None,
    ) -> AsyncActivityHandle:
        """The handle by which somebody else than its worker ends an activity (or any task): by the `token` of its
        attempt, which is its lease, or by the ids of workflow and activity."""
        return AsyncActivityHandle(self, token, workflow_id, activity_id, run_id)

    async def sent(self, call: Callable[[Service], Awaitable[T]]) -> T:
        """The answer to a call that may be repeated; an outage of up to 30 s is waited out."""
        end = time.monotonic() + OUTAGE_SECONDS
        pause, longest = _RETRY_SECONDS
        while True:
            try:
                return await call(await self.service())
            except (Unavailable, ResourceExhausted) as error:
                now = error.retry_after or pause
                if time.monotonic() + now > end:
                    raise
            await asyncio.sleep(now)
            pause = min(pause * 2, longest)

    async def _start(self, body: StartWorkflow) -> StartReply:
        return await self.sent(lambda service: service.start_workflow(body))

    def _handle(self, reply: StartReply, workflow: Workflow[R] | type[Any] | str) -> AsyncWorkflowHandle[R]:
        return AsyncWorkflowHandle(self, reply.workflow_id, reply.run_id, reply.started, _result(workflow))

    def _new_run(self, workflow: AnyWorkflow, input: object, id: str | None, options: RunOptions) -> StartWorkflow:
        if unknown := options.keys() - RunOptions.__annotations__.keys():
            known = ", ".join(RunOptions.__annotations__)
            raise TypeError(f"a workflow has no option {', '.join(sorted(unknown))}; it has {known}")
        name, own = named(workflow), _own(workflow)
        hint = of_value(input) if own is None else own.payload
        delay, queue = options.get("start_delay"), options.get("queue")
        return StartWorkflow(
            name,
            request_id() if id is None else id,
            self.converter.to_payloads(input, "input", hint),
            queue=(own.queue if own is not None else "default") if queue is None else queue,
            request_id=request_id(),
            id_reuse=options.get("id_reuse", "allow_duplicate"),
            id_conflict=options.get("id_conflict", "fail"),
            start_delay=delay.total_seconds() if isinstance(delay, timedelta) else delay,
            execution_timeout=options.get("execution_timeout") or (own.execution_timeout if own is not None else None),
            run_timeout=options.get("run_timeout") or (own.run_timeout if own is not None else None),
            retry=options.get("retry") or (own.retry if own is not None else None),
            cron=options.get("cron", ""),
            priority=options.get("priority", 3),
            fairness_key=options.get("fairness_key", ""),
            headers=self.headers_of(name, options.get("headers") or {}),
            memo={
                key: self.converter.to_payloads(value, f"memo.{key}", of_value(value))
                for key, value in (options.get("memo") or {}).items()
            },
            search_attributes=options.get("search_attributes") or {},
            identity=self.identity,
        )


class Runs(Part):
    """What Perdure can do about workflows: the calls of AsyncRuns, each of which blocks."""

    _app: AsyncRuns

    def start_workflow(
        self,
        workflow: Workflow[R] | type[Any] | str,
        input: object = None,
        *,
        id: str | None = None,
        **options: Unpack[RunOptions],
    ) -> WorkflowHandle[R]:
        """See AsyncRuns.start_workflow."""
        return WorkflowHandle(self._run(self._app.start_workflow(workflow, input, id=id, **options)), self._run)

    def execute_workflow(
        self,
        workflow: Workflow[R] | type[Any] | str,
        input: object = None,
        *,
        id: str | None = None,
        timeout: Duration | None = None,
        **options: Unpack[RunOptions],
    ) -> R:
        """See AsyncRuns.execute_workflow."""
        return self._run(self._app.execute_workflow(workflow, input, id=id, timeout=timeout, **options))

    def signal_with_start(
        self,
        workflow: Workflow[R] | type[Any] | str,
        input: object = None,
        *,
        id: str,
        signal: str,
        signal_input: object = None,
        **options: Unpack[RunOptions],
    ) -> WorkflowHandle[R]:
        """See AsyncRuns.signal_with_start."""
        call = self._app.signal_with_start(workflow, input, id=id, signal=signal, signal_input=signal_input, **options)
        return WorkflowHandle(self._run(call), self._run)

    def update_with_start(
        self,
        workflow: AnyWorkflow,
        input: object = None,
        *,
        id: str,
        update: str,
        update_input: object = None,
        update_id: str | None = None,
        timeout: Duration | None = None,
        **options: Unpack[RunOptions],
    ) -> Any:
        """See AsyncRuns.update_with_start."""
        return self._run(
            self._app.update_with_start(
                workflow,
                input,
                id=id,
                update=update,
                update_input=update_input,
                update_id=update_id,
                timeout=timeout,
                **options,
            )
        )

    def get_workflow_handle(
        self, id: str, run_id: str | None = None, workflow: Workflow[R] | type[Any] | str | None = None
    ) -> WorkflowHandle[R]:
        """See AsyncRuns.get_workflow_handle."""
        return WorkflowHandle(self._app.get_workflow_handle(id, run_id, workflow), self._run)

    def list_workflows(self, **filter: Unpack[RunFilter]) -> WorkflowPage:
        """See AsyncRuns.list_workflows."""
        return self._run(self._app.list_workflows(**filter))

    def get_activity_handle(
        self,
        *,
        token: bytes | None = None,
        workflow_id: str | None = None,
        activity_id: str | None = None,
        run_id: str | None = None,
    ) -> ActivityHandle:
        """See AsyncRuns.get_activity_handle."""
        handle = self._app.get_activity_handle(
            token=token, workflow_id=workflow_id, activity_id=activity_id, run_id=run_id
        )
        return ActivityHandle(handle, self._run)


def _own(workflow: AnyWorkflow | None) -> Workflow | None:
    """The workflow, if this process has it."""
    known = WORKFLOWS.get(workflow) if isinstance(workflow, str) else workflow
    return known if isinstance(known, Workflow) else None


def _result(workflow: AnyWorkflow | None) -> Hint:
    own = _own(workflow)
    return ANY if own is None else own.result
