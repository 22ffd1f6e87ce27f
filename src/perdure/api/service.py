"""The Service protocol over the engine: validate, make commands, apply them, make the reply. No transport.

A Service acts for one caller. Another namespace's task is NotFound, as if it did not exist. Calls that only change
things (`PLANNED`) come in two halves, `plan` and `Plan.finish`, so that a transport can put many requests into one
`apply`: a task and a future for each would cost more than all else that happens to them here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from perdure.api import drafts, queues, turns, views, workers, workflows
from perdure.api.events import Events, plan_write
from perdure.api.failures import Failures
from perdure.api.groups import results
from perdure.api.limits import FlowControl
from perdure.api.owners import Owners
from perdure.api.parking import Parking
from perdure.api.plan import Plan, as_accepted, as_changed, as_error
from perdure.api.reading import readable, reading
from perdure.api.schedules import Schedules
from perdure.api.search import Searches, state
from perdure.api.signals import Signals
from perdure.api.webhooks import Webhooks
from perdure.api.workflows import Workflows
from perdure.core import commands as c
from perdure.core import failures, ids, limits
from perdure.core import messages as m
from perdure.core import workflow_messages as w
from perdure.core.describe import is_ready
from perdure.core.errors import (
    IllegalMove,
    Internal,
    InvalidArgument,
    LeaseLost,
    NotFound,
    PerdureError,
    Unavailable,
)
from perdure.core.lanes import TURNS, WORK, lane
from perdure.core.model import HEARTBEAT_SECONDS, LEASE_SECONDS, Attempt, Task
from perdure.core.states import Kind, State, job_state
from perdure.engine.dispatch import PollRequest
from perdure.engine.engine import Engine
from perdure.engine.watches import first
from perdure.store.base import Filter

MAX_LEASES = 10_000
"""Beats or completions of one request."""
_MAX_NUMBER = 2**63 - 1

PLANNED = frozenset({"enqueue", "cancel", "heartbeat", "complete", "close_session", "write_stream"}) | workflows.PLANNED
"""Operations that are one `apply` with nothing awaited before or after it."""


class Caller(msgspec.Struct, frozen=True):
    """Who calls: its namespace, decided by authentication, and the name it gives itself."""

    namespace: str
    identity: str = ""
    key: bytes = b""  #: the hash of its API key; nothing where the server needs none


def _listening() -> bool:
    return True


class Service(Events, Webhooks, Failures, FlowControl, Owners, Schedules, Searches, Signals):
    """Acts for `caller`. `alive` tells whether it still listens (asked before anything is leased to it); waits are held
    in `parking`."""

    def __init__(
        self,
        engine: Engine,
        caller: Caller,
        *,
        parking: Parking | None = None,
        alive: Callable[[], bool] = _listening,
    ) -> None:
        namespace, identity = limits.name(caller.namespace, "namespace"), limits.text(caller.identity, "identity")
        super().__init__(engine, namespace, identity, Parking() if parking is None else parking, alive)
        self._drafts = drafts.Draftsman(self._namespace, engine.mint)
        self._workflows = Workflows(engine, self._namespace, self._identity, self._parking)
        self._planners: dict[str, Callable[..., Plan]] = {
            "enqueue": self._plan_enqueue,
            "cancel": self._plan_cancel,
            "heartbeat": self._plan_heartbeat,
            "complete": self._plan_complete,
            "close_session": self._plan_close_session,
            "write_stream": plan_write,
            **self._workflows.planners,
        }

    # ------------------------------------------------------------------------------------------------------ tasks
    async def enqueue(self, body: m.Enqueue) -> m.EnqueueReply:
        wait = limits.wait(body.wait)
        plan = self._plan_enqueue(body)
        if wait and plan.commands:
            return await self._follow(plan, wait)
        return await self._carry_out(plan)  # type: ignore[return-value]

    async def _follow(self, plan: Plan, wait: float) -> m.EnqueueReply:
        """Enqueue one task and hold the answer until it has closed, `wait` seconds at most. That it is committed is
        said in any case."""
        end = time.monotonic() + wait
        with self._engine.watches.news(_task_id(plan.commands[0])) as news:
            reply: m.EnqueueReply = await self._carry_out(plan)  # type: ignore[assignment]
            made = reply.tasks[0]
            if made.error is not None:
                return reply
            with suppress(Unavailable, NotFound):  # the server stops, or cannot read: the caller will ask again
                task = None if made.duplicate else await self._parking.hold(first(news, wait))
                if task is not None:
                    reply.closed = views.task_view(task, await self._attempts(task), result=True)
                elif (left := end - time.monotonic()) > 0:
                    view = await self.get(m.Get(made.task_id, left, payload=False))
                    reply.closed = None if view.closed_at is None else view
        return reply

    async def accept(self, item: m.NewTask) -> tuple[m.TaskView, bool]:
        """Enqueue one task: the task as it was accepted, and whether an earlier request with its key made it. Nothing
        is read after a new one was committed, because a fault of that read would say that there is none."""
        command = self._drafts.enqueue(item, self._identity, self._engine.now())
        made = await self._make(command)
        if made.created_at:
            task = command.draft
            task.id = made.task_id
            task.created_at = task.updated_at = made.created_at
        else:
            task = await self._read(made.task_id)
        return views.task_view(task), made.duplicate

    async def get(self, body: m.Get) -> m.TaskView:
        wait = limits.wait(body.wait)
        task_id = ids.parse(body.task_id)
        if wait:
            watch = self._engine.watch(task_id, wait, namespace=self._namespace, whole=body.payload)
            task = self._found(task_id, await self._parking.hold(watch))
        else:
            task = await self._read(task_id)
        pollers: int | None = None
        if is_ready(task) and not wait:
            with reading():
                sessions = await self._engine.store.sessions(self._namespace)
            pollers = queues.pollers(sessions)[task.queue]
        standing = await self._standing(task)
        attempts = await self._attempts(task)
        view = views.task_view(task, attempts, pollers=pollers, standing=standing, payload=body.payload, result=True)
        view.retried_by = await self.retried_by(task)
        return view

    async def _attempts(self, task: Task) -> list[m.AttemptView]:
        recorded: list[Attempt] = []
        if _may_have_attempts(task):
            with reading():
                recorded = await self._engine.store.attempts([task.id])
        return views.attempt_views(task, recorded)

    async def find(self, body: m.Find) -> m.TaskPage:
        limit = limits.integer(body.limit, "limit", 1, limits.MAX_PAGE)
        if body.query:
            page, next = await self.search(body, limit)
            return m.TaskPage(readable(views.task_view, page), next)
        filter = Filter(
            namespace=self._namespace,
            limit=limit + 1,
            before=None if body.cursor is None else ids.parse(body.cursor, "cursor"),
            state=None if body.state is None else state(body.state),
            queue=None if body.queue is None else limits.name(body.queue, "queue"),
            type=None if body.type is None else limits.name(body.type, "type"),
            since=None if body.since is None else limits.microseconds(body.since, "since"),
            group=None if body.failure_group is None else failures.parse_group(body.failure_group),
            kind=Kind.JOB,
            without_type=w.QUERY,
        )
        with reading():
            tasks = await self._engine.store.find(filter)
        more = len(tasks) > limit
        page = tasks[:limit]
        return m.TaskPage(readable(views.task_view, page), ids.text(page[-1].id) if more else None)

    async def cancel(self, body: m.Cancel) -> m.CancelReply:
        return await self._carry_out(self._plan_cancel(body))  # type: ignore[return-value]

    # ---------------------------------------------------------------------------------------------------- workers
    async def open_session(self, body: m.OpenSession) -> m.SessionReply:
        names = [limits.name(queue, "queues") for queue in body.queues]
        limits.integer(len(names), "queues", 1, limits.MAX_QUEUES)
        command = c.OpenSession(
            namespace=self._namespace,
            incarnation=_number(body.incarnation, "incarnation"),
            epoch=_number(body.epoch, "epoch"),
            identity=limits.text(body.identity, "identity"),
            queues=queues.SEPARATOR.join(names),
            slots=limits.integer(body.slots, "slots", 1, 1_000_000),
            build=limits.text(body.build, "build"),
        )
        opened, *declared = await self._engine.apply([command, *self._declared(body.limits)])
        as_accepted(opened)
        for outcome in declared:
            if isinstance(outcome, PerdureError):
                raise outcome
        self._identity = self._workflows.identity = body.identity or self._identity
        self._workflows.build = body.build
        return m.SessionReply(HEARTBEAT_SECONDS, LEASE_SECONDS, self._namespace)

    async def poll(self, body: m.Poll) -> m.PollReply:
        limits.integer(len(body.queues), "queues", 1, limits.MAX_QUEUES)
        incarnation = _number(body.incarnation, "incarnation")
        request = PollRequest(
            lanes=tuple(
                lane(self._namespace, limits.name(queue, "queues"), kind)
                for queue in dict.fromkeys(body.queues)
                for kind in ((TURNS, WORK) if body.turns else (WORK,))
            ),
            capacity=limits.integer(body.capacity, "capacity", 1, limits.MAX_CAPACITY),
            incarnation=incarnation,
            worker=self._identity or f"{incarnation:016x}",
            poll=_number(body.poll, "poll"),
            wait=limits.wait(body.wait),
            alive=self._alive,
        )
        tasks = await self._parking.hold(self._engine.poll(request))
        # A repeated poll is answered by incarnation; whoever guesses another namespace's gets nothing by it.
        ours = [task for task in tasks if task.namespace == self._namespace]
        found = readable(self._delivery, ours)  # the delivery lease of one left out ends by itself
        return m.PollReply(await turns.with_turns(self._engine, request, found) if body.turns else found)

    def _delivery(self, task: Task) -> m.Delivery:
        return views.delivery(task, limited=self._engine.flow.is_limited(task))

    async def heartbeat(self, body: m.Heartbeat) -> m.HeartbeatReply:
        return await self._carry_out(self._plan_heartbeat(body))  # type: ignore[return-value]

    async def complete(self, body: m.Complete) -> m.CompleteReply:
        return await self._carry_out(self._plan_complete(body))  # type: ignore[return-value]

    async def nudge(self, body: m.Nudge) -> m.NudgeReply:
        incarnation = _number(body.incarnation, "incarnation")
        waiting = self._engine.nudges.wait(incarnation, limits.wait(body.wait))
        return m.NudgeReply([ids.text(task_id) for task_id in await self._parking.hold(waiting)])

    async def close_session(self, body: m.CloseSession) -> m.Done:
        return await self._carry_out(self._plan_close_session(body))  # type: ignore[return-value]

    # -------------------------------------------------------------------------------------------------- workflows
    async def start_workflow(self, body: w.StartWorkflow) -> w.StartReply:
        return await self._workflows.start(body)

    async def signal_workflow(self, body: w.SignalWorkflow) -> w.RunReply:
        return await self._carry_out(self.plan("signal_workflow", body))  # type: ignore[return-value]

    async def update_workflow(self, body: w.UpdateWorkflow) -> w.UpdateReply:
        return await self._workflows.update(body)

    async def query_workflow(self, body: w.QueryWorkflow) -> w.QueryReply:
        return await self._workflows.query(body)

    async def cancel_workflow(self, body: w.CancelWorkflow) -> w.RunReply:
        return await self._carry_out(self.plan("cancel_workflow", body))  # type: ignore[return-value]

    async def terminate_workflow(self, body: w.TerminateWorkflow) -> w.RunReply:
        return await self._carry_out(self.plan("terminate_workflow", body))  # type: ignore[return-value]

    async def pause_workflow(self, body: w.PauseWorkflow) -> w.RunReply:
        return await self._carry_out(self.plan("pause_workflow", body))  # type: ignore[return-value]

    async def reset_workflow(self, body: w.ResetWorkflow) -> w.StartReply:
        return await self._workflows.reset(body)

    async def resolve_workflow(self, body: w.ResolveWorkflow) -> w.RunReply:
        return await self._workflows.resolve(body)

    async def describe_workflow(self, body: w.DescribeWorkflow) -> w.WorkflowView:
        return await self._workflows.describe(body)

    async def result_workflow(self, body: w.ResultWorkflow) -> w.WorkflowView:
        return await self._workflows.result(body)

    async def find_workflows(self, body: w.FindWorkflows) -> w.WorkflowPage:
        return await self._workflows.find(body)

    async def history(self, body: w.History) -> w.HistoryReply:
        return await self._workflows.history(body)

    async def group_results(self, body: w.GroupResults) -> w.GroupResultsReply:
        return await results(self._engine.store, self._namespace, body)

    async def complete_activity(self, body: w.CompleteActivity) -> w.RunReply:
        return await self._workflows.complete_activity(body)

    async def append(self, body: w.Appends) -> w.AppendReply:
        return await self._carry_out(self.plan("append", body))  # type: ignore[return-value]

    # ------------------------------------------------------------------------------------------------- looking around
    async def queues(self, body: m.ListQueues) -> m.QueuesReply:
        with reading():
            return await queues.overview(self._engine.store, self._namespace, self._engine.now())

    async def workers(self, body: m.ListWorkers) -> m.WorkersReply:
        running = limits.integer(body.running, "running", 0, workers.MOST_RUNNING)
        with reading():
            return await workers.overview(self._engine.store, self._namespace, running)

    async def close(self) -> None:
        """End the waits of this Service."""
        self._parking.end()

    # ------------------------------------------------------------------------------------------------------ plans
    def plan(self, op: str, body: m.Body) -> Plan:
        """The first half of a PLANNED operation."""
        return self._planners[op](body)

    async def _carry_out(self, plan: Plan) -> m.Body:
        return await plan.carry_out(self._engine)

    def _plan_enqueue(self, body: m.Enqueue) -> Plan:
        limits.integer(len(body.tasks), "tasks", 1, 1 if body.wait else limits.MAX_BATCH)
        identity = limits.text(body.identity, "identity") or self._identity
        now = self._engine.now()
        commands: list[c.Command] = []
        refused: dict[int, m.Enqueued] = {}
        for index, item in enumerate(body.tasks):
            try:
                commands.append(self._drafts.enqueue(item, identity, now))
            except PerdureError as error:
                refused[index] = m.Enqueued(error=error.problem())

        def finish(outcomes: Sequence[c.Outcome]) -> m.EnqueueReply:
            items = [_enqueued(outcome) for outcome in outcomes]
            for index, item in refused.items():
                items.insert(index, item)
            return m.EnqueueReply(items)

        return Plan(commands, finish)

    def _plan_cancel(self, body: m.Cancel) -> Plan:
        command = c.Cancel(
            namespace=self._namespace,
            task_id=ids.parse(body.task_id),
            reason=limits.text(body.reason, "reason"),
        )

        def finish(outcomes: Sequence[c.Outcome]) -> m.CancelReply:
            changed = as_changed(outcomes[0])
            return m.CancelReply(
                ids.text(changed.task_id), changed.state.name, job_state(changed.state, changed.cancel_requested)
            )

        return Plan([command], finish)

    def _plan_heartbeat(self, body: m.Heartbeat) -> Plan:
        """A beat that cannot be read is an error of the whole call, but only after all others have been counted:
        nobody's lease ends for the fault of another."""
        limits.integer(len(body.beats), "beats", 0, MAX_LEASES)
        _number(body.incarnation, "incarnation")
        commands: list[c.Command] = []
        faults: list[PerdureError] = []
        for index, beat in enumerate(body.beats):
            try:
                commands.append(drafts.heartbeat(beat))
            except PerdureError as error:
                faults.append(drafts.at(error, f"beats[{index}]"))

        def finish(outcomes: Sequence[c.Outcome]) -> m.HeartbeatReply:
            if faults:
                raise faults[0]
            return m.HeartbeatReply([_action(outcome) for outcome in outcomes])

        return Plan(commands, finish)

    def _plan_complete(self, body: m.Complete) -> Plan:
        limits.integer(len(body.completions), "completions", 1, MAX_LEASES)
        commands: list[c.Command] = []
        refused: dict[int, m.Completed] = {}
        for index, item in enumerate(body.completions):
            try:
                commands.append(drafts.completion(item))
            except PerdureError as error:
                refused[index] = m.Completed(error=error.problem())

        def finish(outcomes: Sequence[c.Outcome]) -> m.CompleteReply:
            items = [_completed(outcome) for outcome in outcomes]
            for index, item in refused.items():
                items.insert(index, item)
            return m.CompleteReply(items)

        return Plan(commands, finish)

    def _plan_close_session(self, body: m.CloseSession) -> Plan:
        if body.reason not in ("goodbye", "died"):
            raise InvalidArgument(f"reason is {body.reason[:50]!r}", field="reason", limit="goodbye, died", kind="str")
        command = c.CloseSession(incarnation=_number(body.incarnation, "incarnation"))

        def finish(outcomes: Sequence[c.Outcome]) -> m.Done:
            as_accepted(outcomes[0])
            return m.Done()

        return Plan([command], finish)


def _task_id(command: c.Command) -> bytes:
    assert isinstance(command, c.Enqueue)
    assert command.task_id is not None
    return command.task_id


def _may_have_attempts(task: Task) -> bool:
    """False when nothing was recorded before what the row itself tells: it waits for its first lease, holds it, or
    succeeded with it."""
    return task.lease_number > 1 or (task.lease_number == 1 and task.state not in (State.LEASED, State.SUCCEEDED))


def _number(value: int, field: str) -> int:
    return limits.integer(value, field, 0, _MAX_NUMBER)


def _enqueued(outcome: c.Outcome) -> m.Enqueued:
    if isinstance(outcome, c.Enqueued):
        return m.Enqueued(ids.text(outcome.task_id), outcome.duplicate)
    return m.Enqueued(error=as_error(outcome).problem())


def _completed(outcome: c.Outcome) -> m.Completed:
    if isinstance(outcome, c.Changed):
        return m.Completed(outcome.state.name)
    return m.Completed(error=as_error(outcome).problem())


def _action(outcome: c.Outcome) -> str:
    if isinstance(outcome, c.Alive):
        return "cancel" if outcome.cancel else "continue"
    error = as_error(outcome)
    if isinstance(error, (LeaseLost, NotFound, IllegalMove)):
        return "lost"
    if isinstance(error, Internal):  # a bug must not keep the answers to all other beats from the worker
        return "continue"
    raise error
