"""The half of the service that is about workflows; Service hands its calls on to here.

A run is found by its workflow id through the key that its start reserved, which goes on to the next run of a chain;
where the key is not kept any more, the last run of that id is meant. Waiting is what it is for tasks: a watch on the
row of the run, of the answer to an update, or of the job that asks a query.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from perdure.api import drafts, queues, run_drafts, search
from perdure.api.groups import find_activity
from perdure.api.parking import Parking
from perdure.api.plan import Plan, as_changed, as_error
from perdure.api.reading import reading
from perdure.api.resets import Resets
from perdure.api.run_drafts import RunDraftsman
from perdure.api.versions import Lacking, check_lacking
from perdure.api.workflow_views import RUNNING, STATUSES, run_view
from perdure.core import commands as c
from perdure.core import ids, limits, pages
from perdure.core import workflow_messages as w
from perdure.core.compensations import owed
from perdure.core.describe import is_ready, run_waits_for
from perdure.core.errors import (
    IllegalMove,
    InvalidArgument,
    NotFound,
    NoWorker,
    PerdureError,
    Unavailable,
)
from perdure.core.messages import Completion
from perdure.core.model import SECOND, Failure, Lease, Payloads, Task, pack, unpack
from perdure.core.run import Resolution, Run
from perdure.core.states import Kind, State, is_closed
from perdure.engine.engine import Engine
from perdure.engine.watches import first
from perdure.store.base import Filter

log = logging.getLogger("perdure.api")

PLANNED = frozenset(
    {"start_workflow", "signal_workflow", "cancel_workflow", "terminate_workflow", "pause_workflow", "append"}
)
"""Operations that are one `apply` with nothing awaited before or after it."""
WAITING = frozenset({"start_workflow", "update_workflow", "query_workflow", "result_workflow", "history"})
"""Operations whose answer may be held back."""
MAX_APPENDS = 10_000
"""Of one request."""
MAX_PENDING = 1_000
"""Open children, and messages, that a description names."""
MAX_HISTORY_BYTES = 4 * 1024 * 1024
"""Of one answer; a single larger page is sent alone."""
_PAGES = 100  #: of a history that are read at once


class Workflows:
    """Acts for one namespace. `identity` and `build` are what the caller says of itself."""

    def __init__(self, engine: Engine, namespace: str, identity: str, parking: Parking) -> None:
        self._engine = engine
        self._namespace = namespace
        self._parking = parking
        self._drafts = RunDraftsman(namespace, engine.mint, int(engine.retention * SECOND))
        self.identity = identity
        self.build = ""
        self.planners: dict[str, Callable[..., Plan]] = {
            "start_workflow": self._plan_start,
            "signal_workflow": self._plan_signal,
            "cancel_workflow": self._plan_cancel,
            "terminate_workflow": self._plan_terminate,
            "pause_workflow": self._plan_pause,
            "append": self._plan_append,
        }

    # ------------------------------------------------------------------------------------------------------ starting
    async def start(self, body: w.StartWorkflow) -> w.StartReply:
        wait = limits.wait(body.wait)
        plan = self._plan_start(body)
        if wait:
            return await self._follow(plan, wait)
        return await plan.carry_out(self._engine)  # type: ignore[return-value]

    def _plan_start(self, body: w.StartWorkflow) -> Plan:
        command = self._drafts.start(body, self._who(body.identity), self._engine.now())

        def finish(outcomes: Sequence[c.Outcome]) -> w.StartReply:
            started = outcomes[0]
            if not isinstance(started, c.Started):
                raise as_error(started)
            return w.StartReply(body.workflow_id, ids.text(started.run_id), started.started)

        return Plan([command], finish)

    async def _follow(self, plan: Plan, wait: float) -> w.StartReply:
        """Start a run and hold the answer until it has closed, `wait` seconds at most. That it is committed is said in
        any case."""
        end = time.monotonic() + wait
        command = plan.commands[0]
        assert isinstance(command, c.Enqueue) and command.task_id is not None
        with self._engine.watches.news(command.task_id) as news:
            reply: w.StartReply = await plan.carry_out(self._engine)  # type: ignore[assignment]
            with suppress(Unavailable, NotFound):  # the server stops, or cannot read: the caller will ask again
                own = ids.parse(reply.run_id) == command.task_id
                task = await self._parking.hold(first(news, wait)) if own else None
                if task is not None:
                    reply.closed = await self._closed_view(task, self._engine.watches.run(task.id))
                elif (left := end - time.monotonic()) > 0:
                    body = w.ResultWorkflow(reply.workflow_id, reply.run_id, left, follow=False)
                    view = await self.result(body)
                    reply.closed = None if view.closed_at is None else view
        return reply

    # ------------------------------------------------------------------------------------------------------- messages
    def _plan_signal(self, body: w.SignalWorkflow) -> Plan:
        return self._told(self._drafts.signal(body, self._who(body.identity)))

    def _plan_cancel(self, body: w.CancelWorkflow) -> Plan:
        return self._told(self._drafts.cancel(body, self._who(body.identity)))

    def _told(self, command: c.Tell) -> Plan:
        def finish(outcomes: Sequence[c.Outcome]) -> w.RunReply:
            return w.RunReply(command.workflow_id, ids.text(_told(outcomes[0]).run_id))

        return Plan([command], finish)

    def _plan_terminate(self, body: w.TerminateWorkflow) -> Plan:
        return _changed(self._drafts.terminate(body, self._who(body.identity)))

    def _plan_pause(self, body: w.PauseWorkflow) -> Plan:
        return _changed(self._drafts.pause(body))

    async def reset(self, body: w.ResetWorkflow) -> w.StartReply:
        """See resets.py."""
        return await Resets(self._engine, self._namespace, self._load).reset(body, self._who(body.identity))

    async def resolve(self, body: w.ResolveWorkflow) -> w.RunReply:
        """People have brought to an end what the code of a closed run could not (SAGA-05)."""
        note, who = limits.text(body.note, "note"), self._who(body.identity)
        if not note.strip():
            raise InvalidArgument("a note says what was done", field="note", limit="a word at least", kind="str")
        task, run = await self._load(body.workflow_id, body.run_id)
        if not is_closed(task.state):
            raise IllegalMove("the run is open: its code may still bring it to an end", field="workflow_id")
        with reading():
            if not await self._engine.store.resolve(task.id, pack(Resolution(note, who, self._engine.now()))):
                raise NotFound("there is no such run any more", field="run_id")
        log.info("workflow %r, run %s is resolved by %r: %s", run.workflow_id, ids.text(run.id), who, note)
        return w.RunReply(run.workflow_id, ids.text(run.id), task.state.name)

    async def update(self, body: w.UpdateWorkflow) -> w.UpdateReply:
        """The same update id finds the same answer, however often it is sent."""
        wait = limits.wait(body.wait)
        end = time.monotonic() + wait
        command = self._drafts.update(body, self._who(body.identity), self._engine.now())
        told = _told((await self._engine.apply([command]))[0])
        assert told.answer_id is not None
        accepted = body.stage == "accepted"
        task = await self._parking.hold(self._answer(told.answer_id, end, accepted=accepted))
        reply = w.UpdateReply(body.workflow_id, ids.text(told.run_id), body.update_id, "admitted")
        if is_closed(task.state):
            reply.stage = "completed"
            if task.state == State.SUCCEEDED:
                reply.result = _payloads(task)
            else:
                reply.failure = _failure(task)
        elif task.started_at is not None:
            reply.stage = "accepted"
        return reply

    async def _answer(self, answer_id: bytes, end: float, *, accepted: bool) -> Task:
        """The row of an update once it is answered, or has been accepted, or as it is at the `end`."""
        while True:
            with self._engine.watches.news(answer_id) as news:
                task = await self._row(answer_id)
                left = end - time.monotonic()
                if is_closed(task.state) or left <= 0 or (accepted and task.started_at is not None):
                    return task
                await first(news, left)

    # -------------------------------------------------------------------------------------------------------- queries
    async def query(self, body: w.QueryWorkflow) -> w.QueryReply:
        """By a job that a worker of the run's queue takes like a turn."""
        end = time.monotonic() + limits.wait(body.wait)
        run_drafts.check_query(body)
        task, run = await self._load(body.workflow_id, body.run_id)
        task, run = await self._parking.hold(self._begun(task, run, end))
        if run.event_count == 1:
            raise NoWorker(f"the run has not begun: it waits for {run_waits_for(task, run, ())}", field="queue")
        command = self._drafts.query(run, task, body, self._engine.now())
        made = (await self._engine.apply([command]))[0]
        if not isinstance(made, c.Enqueued):
            raise as_error(made)
        left = max(0.0, end - time.monotonic())
        watch = self._engine.watch(made.task_id, left, namespace=self._namespace, whole=False)
        job = await self._parking.hold(watch)
        match None if job is None else job.state:
            case State.SUCCEEDED:
                return w.QueryReply(_payloads(job))
            case State.FAILED if job is not None and job.done_number == job.lease_number:
                return w.QueryReply(failure=_failure(job))
        await self._engine.apply([c.Cancel(namespace=self._namespace, task_id=made.task_id)])
        raise NoWorker(await self._unanswered(task.queue), field="queue", retry_after=1.0)

    async def _begun(self, task: Task, run: Run, end: float) -> tuple[Task, Run]:
        """The run once its code has begun, or as it is at the `end`: before that there is nothing to ask."""
        while run.event_count == 1 and (left := end - time.monotonic()) > 0:
            with self._engine.watches.news(run.id) as news:
                task = await self._row(run.id)
                run = await self._run_of(task, run.workflow_id)
                if run.event_count == 1:
                    await first(news, left)
        return task, run

    async def _unanswered(self, queue: str) -> str:
        with reading():
            sessions = await self._engine.store.sessions(self._namespace)
        if queues.pollers(sessions)[queue] == 0:
            return f"no worker is registered for queue {queue!r}, so nobody can answer the query"
        return f"no worker of queue {queue!r} answered the query in time"

    # ------------------------------------------------------------------------------------------------ looking at runs
    async def describe(self, body: w.DescribeWorkflow) -> w.WorkflowView:
        task, run = await self._load(body.workflow_id, body.run_id)
        if is_closed(task.state):
            return await self._closed_view(task, run, (await self._resolutions([task])).get(task.id))
        pollers: int | None = None
        with reading():
            children, messages = await self._engine.store.pending(task.id, MAX_PENDING)
            runs = await self._runs([child.id for child in children if child.kind == Kind.WORKFLOW])
            if is_ready(task):
                pollers = queues.pollers(await self._engine.store.sessions(self._namespace))[task.queue]
        most = self._engine.max_history_events
        return run_view(
            task, run, children=children, child_runs=runs, messages=messages, pollers=pollers, max_events=most
        )

    async def result(self, body: w.ResultWorkflow) -> w.WorkflowView:
        end = time.monotonic() + limits.wait(body.wait)
        workflow_id = run_drafts.workflow_id(body.workflow_id)
        run_id = run_drafts.run_id(body.run_id) or await self._current(workflow_id)
        while True:
            left = max(0.0, end - time.monotonic())
            watch = self._engine.watch(run_id, left, namespace=self._namespace, whole=False)
            task = await self._parking.hold(watch)
            run = await self._run_of(task, workflow_id)
            assert task is not None
            if not is_closed(task.state):
                return run_view(task, run, max_events=self._engine.max_history_events)
            next_run = await self._next_run(task, run)
            if next_run is None or not body.follow:
                return run_view(task, run, next_run=next_run)
            run_id = next_run

    async def find(self, body: w.FindWorkflows) -> w.WorkflowPage:
        """Runs, newest first unless a query says another order."""
        limit = limits.integer(body.limit, "limit", 1, limits.MAX_PAGE)
        if not body.query:
            page, before = await self._listed(body, limit)
            next = None if before is None else ids.text(before)
        elif body.lacks_version is not None:
            raise InvalidArgument("lacks_version excludes a query", field="lacks_version", limit="without query")
        else:
            wanted = await search.runs(self._engine.store, self._namespace, body)
            page, next = await search.page(self._engine.store, wanted, limit, body.cursor)
        runs = await self._runs([task.id for task in page])
        resolved = await self._resolutions(task for task in page if task.id in runs and owed(runs[task.id]))
        return w.WorkflowPage(
            [
                run_view(
                    task,
                    runs[task.id],
                    resolution=resolved.get(task.id),
                    max_events=self._engine.max_history_events,
                )
                for task in page
                if task.id in runs
            ],
            next,
        )

    async def _resolutions(self, tasks: Iterable[Task]) -> dict[bytes, Resolution]:
        """What people have written into closed runs."""
        run_ids = [task.id for task in tasks]
        if not run_ids:
            return {}
        with reading():
            noted = await self._engine.store.resolutions(run_ids)
        return {run_id: unpack(note, Resolution) for run_id, note in noted.items()}

    async def _listed(self, body: w.FindWorkflows, limit: int) -> tuple[list[Task], bytes | None]:
        """A page of those that pass the plain filters, and where the next one begins."""
        wanted = search.status(body.status)
        filter = Filter(
            namespace=self._namespace,
            limit=limit + 1,
            before=None if body.cursor is None else ids.parse(body.cursor, "cursor"),
            state=next((state for state, word in STATUSES.items() if word == wanted), None),
            queue=None if body.queue is None else limits.name(body.queue, "queue"),
            type=None if body.type is None else limits.name(body.type, "type"),
            since=None if body.since is None else limits.microseconds(body.since, "since"),
            kind=Kind.WORKFLOW,
            workflow_id=None if body.workflow_id is None else run_drafts.workflow_id(body.workflow_id),
            open=body.open or wanted == RUNNING or body.lacks_version is not None,
            owing=body.requires_intervention,
        )
        if body.requires_intervention and filter.open:
            limit_ = "without lacks_version, open and RUNNING"
            raise InvalidArgument("only closed runs require intervention", field="requires_intervention", limit=limit_)
        if body.lacks_version is not None:
            version = limits.name(body.lacks_version, "lacks_version")
            check_lacking(body.type, wanted)
            return await Lacking(self._engine.store, version).find(filter, limit)
        with reading():
            found = await self._engine.store.find(filter)
        page = found[:limit]
        return page, page[-1].id if len(found) > limit else None

    async def history(self, body: w.History) -> w.HistoryReply:
        end = time.monotonic() + limits.wait(body.wait)
        after = limits.integer(body.after, "after", 0, 2**53)
        limit = limits.integer(body.limit, "limit", 1, 10_000)
        workflow_id = run_drafts.workflow_id(body.workflow_id)
        run_id = run_drafts.run_id(body.run_id) or await self._current(workflow_id)
        await self._run_of(await self._row(run_id), workflow_id)
        return await self._parking.hold(self._events(run_id, after, limit, end))

    async def _events(self, run_id: bytes, after: int, limit: int, end: float) -> w.HistoryReply:
        """What follows `after`; if there is nothing yet, once there is, or as soon as the run has closed."""
        while True:
            with self._engine.watches.news(run_id) as news:
                task = await self._row(run_id)  # before its history: what closes it is written with the last event
                sent, more = await self._pages(run_id, after, limit)
                left = end - time.monotonic()
                if sent or left <= 0 or is_closed(task.state):
                    return w.HistoryReply(ids.text(run_id), sent, more=more, closed=is_closed(task.state))
                await first(news, left)

    async def _pages(self, run_id: bytes, after: int, limit: int) -> tuple[list[bytes], bool]:
        """Pages until there are `limit` events or too many bytes, and whether there are more."""
        sent: list[bytes] = []
        count = size = 0
        while True:
            with reading():
                read = await self._engine.store.histories({run_id: after}, _PAGES + 1, MAX_HISTORY_BYTES)
            found = read.get(run_id, [])
            for page in found[:_PAGES]:
                size += len(page.data)
                if sent and (count >= limit or size > MAX_HISTORY_BYTES):
                    return sent, True
                last = page.first + page.count - 1
                count += last - max(after, page.first - 1)
                sent.append(page.data)
                after = last
            if len(found) <= _PAGES and sum(len(page.data) for page in found) < MAX_HISTORY_BYTES:
                return sent, False

    # -------------------------------------------------------------------------------------------------------- workers
    def _plan_append(self, body: w.Appends) -> Plan:
        limits.integer(len(body.appends), "appends", 1, MAX_APPENDS)
        commands: list[c.Command] = []
        refused: dict[int, w.Appended] = {}
        for index, item in enumerate(body.appends):
            try:
                commands.append(run_drafts.append(item, self.identity, self.build))
            except PerdureError as fault:
                refused[index] = w.Appended(error=fault.problem())

        def finish(outcomes: Sequence[c.Outcome]) -> w.AppendReply:
            items = [_appended(outcome) for outcome in outcomes]
            for index, item in refused.items():
                items.insert(index, item)
            return w.AppendReply(items)

        return Plan(commands, finish)

    async def complete_activity(self, body: w.CompleteActivity) -> w.RunReply:
        """By whoever does the work instead of the worker that has the lease."""
        activity_id = limits.name(body.activity_id, "activity_id")
        lease = ids.lease_token(Lease(bytes(16), 0, 0))  # stands for the one that is still to be found
        command = drafts.completion(Completion(lease, body.outcome, result=body.result, failure=body.failure))
        task, _ = await self._load(body.workflow_id, body.run_id)
        with reading():
            found = await find_activity(self._engine.store, task.id, activity_id)
            activity = None if found is None else (await self._engine.store.read([found])).get(found)
        if activity is None or activity.kind != Kind.ACTIVITY or is_closed(activity.state):
            raise NotFound(f"the run waits for no activity {activity_id!r}", field="activity_id")
        if activity.state != State.LEASED:
            raise IllegalMove(f"the activity is {activity.state.name}: no worker has it", field="activity_id")
        command.lease = activity.lease
        changed = as_changed((await self._engine.apply([command]))[0])
        return w.RunReply(body.workflow_id, ids.text(task.id), changed.state.name)

    # ---------------------------------------------------------------------------------------------------------- rows
    def _who(self, identity: str) -> str:
        return limits.text(identity, "identity") or self.identity

    async def _load(self, workflow_id: str, run_id: str | None) -> tuple[Task, Run]:
        run_drafts.workflow_id(workflow_id)
        found = run_drafts.run_id(run_id) or await self._current(workflow_id)
        task = await self._row(found)
        return task, await self._run_of(task, workflow_id)

    async def _current(self, workflow_id: str) -> bytes:
        """The current run: the open one, or the last."""
        with reading():
            key = await self._engine.store.find_key((self._namespace, "", "workflow", workflow_id))
            if key is not None:
                return key.task_id
            last = await self._engine.store.find(
                Filter(namespace=self._namespace, limit=1, kind=Kind.WORKFLOW, workflow_id=workflow_id)
            )
        if not last:
            raise NotFound(f"there is no workflow {workflow_id!r}", field="workflow_id")
        return last[0].id

    async def _row(self, id: bytes) -> Task:
        with reading():
            task = (await self._engine.store.read([id])).get(id)
        if task is None or task.namespace != self._namespace:
            raise NotFound("there is no such run", field="run_id")
        return task

    async def _run_of(self, task: Task | None, workflow_id: str) -> Run:
        """The columns of a run; NotFound for a row that is none of this workflow id."""
        run = None if task is None else (await self._runs([task.id])).get(task.id)
        if run is None or run.workflow_id != workflow_id:
            raise NotFound(f"there is no such run of workflow {workflow_id!r}", field="run_id")
        return run

    async def _runs(self, run_ids: Sequence[bytes]) -> dict[bytes, Run]:
        if not run_ids:
            return {}
        with reading():
            return await self._engine.store.run_rows(run_ids)

    async def _closed_view(
        self, task: Task, run: Run | None = None, resolution: Resolution | None = None
    ) -> w.WorkflowView:
        if run is None:
            run = (await self._runs([task.id]))[task.id]
        return run_view(task, run, next_run=await self._next_run(task, run), resolution=resolution)

    async def _next_run(self, task: Task, run: Run) -> bytes | None:
        """The run that a closed one went on as, which its last event names. Only few can have one."""
        may_repeat = run.cron is not None or task.retry_policy is not None
        if task.state != State.CONTINUED_AS_NEW and not may_repeat:
            return None
        with reading():
            found = await self._engine.store.histories({run.id: run.event_count - 1}, 1)
        events = [event for page in found.get(run.id, ()) for event in pages.unpack(page.data)]
        return getattr(events[-1].attributes, "new_run_id", None) or None if events else None


def _changed(command: c.Terminate | c.Pause) -> Plan:
    def finish(outcomes: Sequence[c.Outcome]) -> w.RunReply:
        changed = as_changed(outcomes[0])
        return w.RunReply(command.workflow_id, ids.text(changed.task_id), changed.state.name)

    return Plan([command], finish)


def _told(outcome: c.Outcome) -> c.Told:
    if isinstance(outcome, c.Told):
        return outcome
    raise as_error(outcome)


def _appended(outcome: c.Outcome) -> w.Appended:
    if isinstance(outcome, c.Appended):
        return w.Appended(outcome.state.name, outcome.last, outcome.waiting)
    return w.Appended(error=as_error(outcome).problem())


def _payloads(task: Task | None) -> Payloads:
    found: Payloads = () if task is None or task.result is None else unpack(task.result, Payloads)
    return found


def _failure(task: Task) -> Failure:
    if task.failure is None:
        return Failure(message=f"it is {task.state.name}", code=task.state.name.lower())
    found: Failure = unpack(task.failure, Failure)
    return found
