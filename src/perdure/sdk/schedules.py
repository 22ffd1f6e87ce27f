"""The client's calls about schedules: make, change, look at, preview, and what a handle can do. `AsyncClient` in
client.py inherits the first half, `Perdure` in app.py the second."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, TypedDict, Unpack

import msgspec

from perdure.core.durations import Duration
from perdure.core.messages import TimeoutOptions
from perdure.core.model import RetryPolicy
from perdure.core.schedule_messages import (
    BackfillSchedule,
    CalendarFields,
    DeleteSchedule,
    FindSchedules,
    GetSchedule,
    PauseSchedule,
    PlannedTime,
    PreviewTimes,
    PutSchedule,
    ScheduleOptions,
    SchedulePage,
    ScheduleView,
    TaskTemplate,
    TimingOptions,
    TriggerSchedule,
    UpdateSchedule,
    WorkflowTemplate,
)
from perdure.sdk.converter import Converter
from perdure.sdk.definition import WORKFLOWS, Workflow, named
from perdure.sdk.handle import AsyncJob, Job, Runner
from perdure.sdk.hints import of_value
from perdure.sdk.run_handle import AsyncWorkflowHandle, WorkflowHandle, request_id
from perdure.sdk.runs import AsyncRuns, Runs
from perdure.sdk.task import REGISTRY, Task


class ScheduleTiming(TypedDict, total=False):
    """When a schedule fires: one of `cron`, `calendar` and `interval`. Lengths are seconds or text such as "10m".

    cron        five fields, six with seconds first, or a nickname such as "@daily"
    calendar    fields by name, all of which a time must match: {"hour": "9", "day_of_week": "MON-FRI"}
    interval    elapsed time, counted from 1970-01-01T00:00Z on, and `phase` later
    timezone    of the clock that cron and calendar go by, "UTC" by default
    gap         local times that a clock put forward leaves out: "after" (fire at the end of the gap) or "skip"
    repeated    local times that come twice as a clock is put back: "first", "second" or "both"
    start_at    no firing before it, nor after `end_at`
    jitter      each firing is later by a part of it, always the same for one nominal time
    """

    cron: str | None
    calendar: Mapping[str, str] | None
    interval: Duration | None
    phase: Duration | None
    timezone: str
    gap: Literal["after", "skip"] | None
    repeated: Literal["first", "second", "both"] | None
    start_at: datetime | None
    end_at: datetime | None
    jitter: Duration | None


class ScheduleArguments(ScheduleTiming, total=False):
    """What else a call may say about a schedule.

    overlap_policy   while something that it started still runs: "skip" (default), "allow", "buffer_one" or
                     "cancel_previous"
    misfire_policy   firings that nobody served: "once" (default, one for the latest), "skip" or "all"
    catch_up_window  how late a firing may be; without it any, a minute and a day, in the order of these policies
    remaining        how often it fires
    paused, note     whether it begins paused, and why; only for a new one
    queue, priority, fairness_key, retry, headers
                     of what it starts; those of the @task or @workflow by default
    timeouts, concurrency_key
                     of the task
    workflow_id      what the ids of the runs begin with; the id of the schedule by default
    execution_timeout, run_timeout, memo, search_attributes
                     of the workflow
    """

    overlap_policy: Literal["skip", "allow", "buffer_one", "cancel_previous"]
    misfire_policy: Literal["once", "skip", "all"]
    catch_up_window: Duration | None
    remaining: int | None
    paused: bool
    note: str
    queue: str | None
    priority: int | None
    fairness_key: str
    retry: RetryPolicy | None
    headers: dict[str, str]
    timeouts: TimeoutOptions | None
    concurrency_key: str
    workflow_id: str
    execution_timeout: Duration | None
    run_timeout: Duration | None
    memo: Mapping[str, object]
    search_attributes: dict[str, Any]


_TIMING = tuple(ScheduleTiming.__annotations__)
_POLICIES = ("overlap_policy", "misfire_policy", "catch_up_window", "remaining")
_OF_TASKS = {"timeouts", "concurrency_key"}
_OF_WORKFLOWS = {"workflow_id", "execution_timeout", "run_timeout", "memo", "search_attributes"}


class AsyncScheduleHandle:
    """A handle to the schedule of one id."""

    __slots__ = ("_client", "did", "id")

    def __init__(self, client: AsyncSchedules, id: str, did: str = "") -> None:
        self._client = client
        self.id = id
        self.did = did  #: what the call that made this handle did: "created", "updated", "unchanged"

    def __repr__(self) -> str:
        return f"<schedule {self.id}>"

    async def describe(self, times: int = 5) -> ScheduleView:
        """The schedule as it is, with so many of its next times (at most 1,000). NotFound; so do all that follow."""
        return await (await self._client.service()).get_schedule(GetSchedule(self.id, times))

    async def update(self, *, version: str = "", **changes: Any) -> str:
        """Change some of the arguments that made it (ScheduleArguments, and `payload`), and leave the others as they
        are; None takes one away. What it did: "updated" or "unchanged". With a `version`, that of its description, it
        is a Conflict when the schedule has been changed since."""
        patch = _changes(changes, await self.describe(0), self._client.converter)
        body = UpdateSchedule(self.id, patch, version, self._client.identity)
        return (await self._client.sent(lambda service: service.update_schedule(body))).did

    async def pause(self, note: str = "") -> None:
        """Nothing fires from here on. What runs goes on."""
        await self._client.sent(lambda service: service.pause_schedule(PauseSchedule(self.id, True, note)))

    async def resume(self, note: str = "") -> None:
        """Go on with the times from here on; those that passed meanwhile are skipped."""
        await self._client.sent(lambda service: service.pause_schedule(PauseSchedule(self.id, False, note)))

    async def trigger(self) -> AsyncJob | AsyncWorkflowHandle:
        """Start what it starts, now, whatever runs and whether it is paused or not."""
        body = TriggerSchedule(self.id, request_id())
        firing = (await self._client.sent(lambda service: service.trigger_schedule(body))).firing
        if firing.workflow_id:
            return self._client.get_workflow_handle(firing.workflow_id, firing.task_id)
        return self._client.job(firing.task_id)

    async def backfill(self, start_at: datetime, end_at: datetime) -> None:
        """Fire for past nominal times, both ends included, at most 1,000 at a call; 60 a second are started, whatever
        runs. A time that fired within 24 hours is not fired again. InvalidArgument, or Conflict while ten wait."""
        body = BackfillSchedule(self.id, start_at, end_at)
        await self._client.sent(lambda service: service.backfill_schedule(body))

    async def delete(self) -> None:
        """Nothing of it is left but what it started."""
        await self._client.sent(lambda service: service.delete_schedule(DeleteSchedule(self.id)))


class AsyncSchedules(AsyncRuns):
    """What AsyncClient can do about schedules."""

    @abstractmethod
    def job(self, id: str) -> AsyncJob:
        """The handle of a task whose id is known."""

    async def create_schedule(
        self,
        id: str,
        *,
        task: Task[..., Any] | str | None = None,
        workflow: Workflow | str | None = None,
        payload: object = None,
        **options: Unpack[ScheduleArguments],
    ) -> AsyncScheduleHandle:
        """A schedule that is committed. It starts a `task` or a `workflow`, each time with this payload. Calling it
        again with the same arguments changes nothing; Conflict where there is another schedule of this id.

        Tasks find the nominal time in `ctx.scheduled_at`. An outage of up to 30 s is waited out. Raises
        InvalidArgument, also for an expression that never fires, and Unavailable.
        """
        return await self._put(id, task, workflow, payload, options, replace=False)

    async def put_schedule(
        self,
        id: str,
        *,
        task: Task[..., Any] | str | None = None,
        workflow: Workflow | str | None = None,
        payload: object = None,
        **options: Unpack[ScheduleArguments],
    ) -> AsyncScheduleHandle:
        """As `create_schedule`, but a schedule of this id gets the new definition, at once and as a whole: the next
        firing is by it. It stays paused if it is, and its nominal times go on if their timing is the same."""
        return await self._put(id, task, workflow, payload, options, replace=True)

    def get_schedule_handle(self, id: str) -> AsyncScheduleHandle:
        """The handle of a schedule whose id is known; asks nobody."""
        return AsyncScheduleHandle(self, id)

    async def list_schedules(self, limit: int = 50, cursor: str | None = None) -> SchedulePage:
        """Schedules, newest first; `next` of a page is the `cursor` of the next one."""
        return await (await self.service()).find_schedules(FindSchedules(limit, cursor))

    async def preview_schedule(
        self, count: int = 10, after: datetime | None = None, **timing: Unpack[ScheduleTiming]
    ) -> list[PlannedTime]:
        """When a schedule would fire: its first nominal times after now, or after `after`. Stores nothing."""
        body = PreviewTimes(TimingOptions(**_timing(timing)), count, after)
        return (await (await self.service()).preview_times(body)).times

    async def _put(
        self,
        id: str,
        task: Task[..., Any] | str | None,
        workflow: Workflow | str | None,
        payload: object,
        options: ScheduleArguments,
        *,
        replace: bool,
    ) -> AsyncScheduleHandle:
        if (task is None) == (workflow is None):
            raise TypeError("a schedule starts a task or a workflow: give one of them")
        foreign = options.keys() & (_OF_TASKS if task is None else _OF_WORKFLOWS)
        if unknown := (options.keys() - ScheduleArguments.__annotations__.keys()) | foreign:
            what = "workflow" if task is None else "task"
            raise TypeError(f"a schedule of a {what} has no option {', '.join(sorted(unknown))}")
        schedule = ScheduleOptions(
            schedule_id=id,
            **_timing(options),
            **{name: options[name] for name in _POLICIES if name in options},  # type: ignore[literal-required]
        )
        if task is not None:
            schedule.task = self._task(task, payload, options)
        elif workflow is not None:
            schedule.workflow = self._workflow(workflow, payload, options)
        body = PutSchedule(schedule, replace, options.get("paused", False), options.get("note", ""), self.identity)
        reply = await self.sent(lambda service: service.put_schedule(body))
        return AsyncScheduleHandle(self, reply.schedule_id, reply.did)

    def _task(self, task: Task[..., Any] | str, payload: object, options: ScheduleArguments) -> TaskTemplate:
        own = REGISTRY.get(task) if isinstance(task, str) else task
        hint = of_value(payload) if own is None else own.payload
        queue, priority = options.get("queue"), options.get("priority")
        return TaskTemplate(
            task if isinstance(task, str) else task.name,
            self.converter.to_payloads(payload, "payload", hint),
            queue=(own.queue if own is not None else "default") if queue is None else queue,
            priority=(own.priority if own is not None else 3) if priority is None else priority,
            fairness_key=options.get("fairness_key", ""),
            concurrency_key=options.get("concurrency_key", ""),
            weight=own.weight if own is not None else 1,
            retry=options.get("retry") or (own.retry if own is not None else None),
            timeouts=options.get("timeouts") or (own.timeouts if own is not None else None),
            headers=options.get("headers", {}),
        )

    def _workflow(self, workflow: Workflow | str, payload: object, options: ScheduleArguments) -> WorkflowTemplate:
        own = WORKFLOWS.get(workflow) if isinstance(workflow, str) else workflow
        hint = of_value(payload) if own is None else own.payload
        queue, priority = options.get("queue"), options.get("priority")
        return WorkflowTemplate(
            named(workflow),
            self.converter.to_payloads(payload, "payload", hint),
            workflow_id=options.get("workflow_id", ""),
            queue=(own.queue if own is not None else "default") if queue is None else queue,
            execution_timeout=options.get("execution_timeout") or (own.execution_timeout if own is not None else None),
            run_timeout=options.get("run_timeout") or (own.run_timeout if own is not None else None),
            retry=options.get("retry") or (own.retry if own is not None else None),
            priority=3 if priority is None else priority,
            fairness_key=options.get("fairness_key", ""),
            headers=options.get("headers", {}),
            memo={
                key: self.converter.to_payloads(value, f"memo.{key}", of_value(value))
                for key, value in options.get("memo", {}).items()
            },
            search_attributes=options.get("search_attributes", {}),
        )


def _timing(options: ScheduleTiming) -> dict[str, Any]:
    """The fields of TimingOptions."""
    found: dict[str, Any] = {name: options[name] for name in _TIMING if name in options}  # type: ignore[literal-required]
    if (calendar := found.get("calendar")) is not None:
        known = CalendarFields.__struct_fields__
        if unknown := set(calendar) - set(known):
            raise TypeError(f"a calendar has no field {', '.join(sorted(unknown))}; it has {', '.join(known)}")
        found["calendar"] = CalendarFields(**calendar)
    return found


def _changes(given: dict[str, Any], view: ScheduleView, converter: Converter) -> dict[str, Any]:
    """The merge patch that changes these arguments of a schedule."""
    kind, foreign = ("workflow", _OF_TASKS) if view.task is None else ("task", _OF_WORKFLOWS)
    known = (ScheduleArguments.__annotations__.keys() | {"payload"}) - foreign - {"paused", "note"}
    if unknown := given.keys() - known:
        raise TypeError(f"a change of a schedule of a {kind} has no {', '.join(sorted(unknown))}")
    timing = _TIMING + _POLICIES
    patch = {name: value for name, value in given.items() if name in timing}
    starts = {name: value for name, value in given.items() if name not in timing}
    if "payload" in starts:
        value, own = starts.pop("payload"), _own(view)
        packed = converter.to_payloads(value, "payload", of_value(value) if own is None else own.payload)
        starts["input" if view.task is None else "payload"] = packed
    if (memo := starts.get("memo")) is not None:
        starts["memo"] = {
            key: converter.to_payloads(value, f"memo.{key}", of_value(value)) for key, value in memo.items()
        }
    if starts:
        patch[kind] = starts
    plain: dict[str, Any] = msgspec.to_builtins(patch, builtin_types=(bytes, datetime))
    return plain


def _own(view: ScheduleView) -> Task[..., Any] | Workflow | None:
    """What it starts, where that is defined here."""
    if view.task is not None:
        return REGISTRY.get(view.task.type)
    return None if view.workflow is None else WORKFLOWS.get(view.workflow.type)


class ScheduleHandle:
    """AsyncScheduleHandle for code without an event loop: each call blocks."""

    __slots__ = ("_handle", "_run")

    def __init__(self, handle: AsyncScheduleHandle, run: Runner) -> None:
        self._handle = handle
        self._run = run

    def __repr__(self) -> str:
        return repr(self._handle)

    @property
    def id(self) -> str:
        return self._handle.id

    @property
    def did(self) -> str:
        """See AsyncScheduleHandle.did."""
        return self._handle.did

    def describe(self, times: int = 5) -> ScheduleView:
        """See AsyncScheduleHandle.describe."""
        return self._run(self._handle.describe(times))

    def update(self, *, version: str = "", **changes: Any) -> str:
        """See AsyncScheduleHandle.update."""
        return self._run(self._handle.update(version=version, **changes))

    def pause(self, note: str = "") -> None:
        """See AsyncScheduleHandle.pause."""
        self._run(self._handle.pause(note))

    def resume(self, note: str = "") -> None:
        """See AsyncScheduleHandle.resume."""
        self._run(self._handle.resume(note))

    def trigger(self) -> Job | WorkflowHandle:
        """See AsyncScheduleHandle.trigger."""
        started = self._run(self._handle.trigger())
        return Job(started, self._run) if isinstance(started, AsyncJob) else WorkflowHandle(started, self._run)

    def backfill(self, start_at: datetime, end_at: datetime) -> None:
        """See AsyncScheduleHandle.backfill."""
        self._run(self._handle.backfill(start_at, end_at))

    def delete(self) -> None:
        """See AsyncScheduleHandle.delete."""
        self._run(self._handle.delete())


class Schedules(Runs):
    """What Perdure can do about schedules: the calls of AsyncSchedules, each of which blocks."""

    _app: AsyncSchedules

    def create_schedule(
        self,
        id: str,
        *,
        task: Task[..., Any] | str | None = None,
        workflow: Workflow | str | None = None,
        payload: object = None,
        **options: Unpack[ScheduleArguments],
    ) -> ScheduleHandle:
        """See AsyncSchedules.create_schedule."""
        work = self._app.create_schedule(id, task=task, workflow=workflow, payload=payload, **options)
        return ScheduleHandle(self._run(work), self._run)

    def put_schedule(
        self,
        id: str,
        *,
        task: Task[..., Any] | str | None = None,
        workflow: Workflow | str | None = None,
        payload: object = None,
        **options: Unpack[ScheduleArguments],
    ) -> ScheduleHandle:
        """See AsyncSchedules.put_schedule."""
        work = self._app.put_schedule(id, task=task, workflow=workflow, payload=payload, **options)
        return ScheduleHandle(self._run(work), self._run)

    def get_schedule_handle(self, id: str) -> ScheduleHandle:
        """See AsyncSchedules.get_schedule_handle."""
        return ScheduleHandle(self._app.get_schedule_handle(id), self._run)

    def list_schedules(self, limit: int = 50, cursor: str | None = None) -> SchedulePage:
        """See AsyncSchedules.list_schedules."""
        return self._run(self._app.list_schedules(limit, cursor))

    def preview_schedule(
        self, count: int = 10, after: datetime | None = None, **timing: Unpack[ScheduleTiming]
    ) -> list[PlannedTime]:
        """See AsyncSchedules.preview_schedule."""
        return self._run(self._app.preview_schedule(count, after, **timing))
