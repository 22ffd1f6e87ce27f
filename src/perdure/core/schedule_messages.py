"""What clients ask about schedules, and the answers: a part of the wire protocol (messages.py)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from perdure.core.body import Body
from perdure.core.durations import Duration
from perdure.core.model import Payload, Payloads, RetryPolicy
from perdure.core.timeout_options import TimeoutOptions

SCHEDULE_ID = "perdure-schedule-id"
SCHEDULED_AT = "perdure-scheduled-at"
"""Headers of what a schedule starts: its id, and the nominal time (RFC 3339)."""


class CalendarFields(Body):
    """Fields of a cron expression by name. A time must match all of them."""

    second: str = "0"
    minute: str = "0"
    hour: str = "0"
    day_of_month: str = "*"
    month: str = "*"
    day_of_week: str = "*"


class TimingOptions(Body, kw_only=True):
    """When a schedule fires: one of `cron` (five or six fields, or a nickname), `calendar` and `interval` (elapsed
    time, counted from 1970 on; `phase` later). The first two go by the clock of `timezone`: `gap` says what a time does
    that is left out as clocks go forward ("after", "skip"), `repeated` which ones count of a time that comes twice
    ("first", "second", "both"); without them see docs/schedules.md. No firing is before `start_at` or after `end_at`;
    each is later by a part of `jitter` that is always the same for it."""

    cron: str | None = None
    calendar: CalendarFields | None = None
    interval: Duration | None = None
    phase: Duration | None = None
    timezone: str = "UTC"
    gap: str | None = None
    repeated: str | None = None
    start_at: datetime | None = None
    end_at: datetime | None = None
    jitter: Duration | None = None


class TaskTemplate(Body):
    """The task that each firing enqueues."""

    type: str
    payload: tuple[Payload, ...] = ()
    queue: str = "default"
    app: str = "default"
    priority: int = 3
    fairness_key: str = ""
    concurrency_key: str = ""
    weight: int = 1
    retry: RetryPolicy | None = None
    timeouts: TimeoutOptions | None = None
    headers: dict[str, str] = {}


class WorkflowTemplate(Body):
    """The workflow that each firing starts. Its id is `workflow_id` (the schedule's without one), "-" and the nominal
    time."""

    type: str
    input: tuple[Payload, ...] = ()
    workflow_id: str = ""
    queue: str = "default"
    execution_timeout: Duration | None = None
    run_timeout: Duration | None = None
    retry: RetryPolicy | None = None
    priority: int = 3
    fairness_key: str = ""
    headers: dict[str, str] = {}
    memo: dict[str, Payloads] = {}
    search_attributes: dict[str, Any] = {}


class ScheduleOptions(TimingOptions, kw_only=True):
    """What a schedule is: when it fires, and one of `task` and `workflow`. While something that it started still runs,
    a firing does what `overlap_policy` says: "skip", "allow", "buffer_one" or "cancel_previous". Firings that nobody
    served are one for the latest time ("once"), none if that is a minute ago ("skip"), or all of the last day ("all");
    `catch_up_window` overrules how late one may be. It fires `remaining` times."""

    schedule_id: str
    task: TaskTemplate | None = None
    workflow: WorkflowTemplate | None = None
    overlap_policy: str = "skip"
    misfire_policy: str = "once"
    catch_up_window: Duration | None = None
    remaining: int | None = None


class PutSchedule(Body):
    """Make a schedule (paused from the start, if so). The same again changes nothing; if there is another one of the id
    it is a Conflict or, with `replace`, that one gets this definition, and stays paused or not as it is."""

    schedule: ScheduleOptions
    replace: bool = False
    paused: bool = False
    note: str = ""
    identity: str = ""


class PutReply(Body):
    schedule_id: str
    did: str  #: "created", "updated" or "unchanged"


class UpdateSchedule(Body):
    """Change some fields of a schedule: a merge patch (RFC 7396) of ScheduleOptions, in which null takes a field away.
    A Conflict when the schedule is not of this `version` any more; without one it is changed as it is."""

    schedule_id: str
    changes: dict[str, Any]
    version: str = ""
    identity: str = ""


class GetSchedule(Body):
    """A schedule, with so many of its next times."""

    schedule_id: str
    times: int = 5


class FiringView(Body):
    """What became of a nominal time. `outcome` is "started", "started_before" (by an earlier firing for this time),
    "buffered", or why nothing was started: "overlap", "missed", "gap", "paused", "workflow_id_taken"."""

    scheduled_at: datetime
    at: datetime
    outcome: str
    task_id: str = ""  #: of a workflow its run id
    workflow_id: str = ""


class StartedView(Body):
    """Something that a schedule started, and that has not been seen to end."""

    task_id: str
    workflow_id: str = ""


class PlannedTime(Body):
    """A nominal time: the instant, and what the clock of the schedule's zone shows then, with its offset."""

    at: datetime
    local: str


class ScheduleView(ScheduleOptions, kw_only=True):
    """A schedule as it is. `remaining` is what remains; `state` is "active", "paused" or "finished". `counts` says how
    often each outcome was; of times that were missed it counts 1,000 at once at most."""

    namespace: str
    state: str
    version: str = ""  #: another one with each change of what its owner said
    note: str = ""
    identity: str = ""
    created_at: datetime
    updated_at: datetime
    next_times: list[PlannedTime] = []
    next_firing_at: datetime | None = None  #: with its jitter
    buffered: datetime | None = None  #: a nominal time that waits for what runs
    running: list[StartedView] = []
    recent: list[FiringView] = []  #: newest first
    counts: dict[str, int] = {}
    backfilling: bool = False


class FindSchedules(Body):
    """Schedules of a namespace, newest first, without their next times; `cursor` is the `next` of the page before."""

    limit: int = 50
    cursor: str | None = None


class SchedulePage(Body):
    schedules: list[ScheduleView]
    next: str | None = None


class DeleteSchedule(Body):
    """What it has started goes on."""

    schedule_id: str


class PauseSchedule(Body):
    """Fire no more, or (`paused` False) go on with the times from then on; those between are skipped. `note` says
    why."""

    schedule_id: str
    paused: bool = True
    note: str = ""


class TriggerSchedule(Body):
    """Start what it starts, now, whatever runs, also while it is paused. The same `request_id` starts one."""

    schedule_id: str
    request_id: str = ""


class TriggerReply(Body):
    schedule_id: str
    firing: FiringView


class BackfillSchedule(Body):
    """Fire for the nominal times from `start_at` to `end_at`, at most 1,000 and all in the past, 60 a second; those
    that fired within 24 hours are not fired again. Other things that run do not matter."""

    schedule_id: str
    start_at: datetime
    end_at: datetime


class ScheduleReply(Body):
    schedule_id: str
    did: str  #: "updated" or "deleted"


class PreviewTimes(Body):
    """The nominal times (1 to 1,000) after `after`, now by default, of a schedule that need not exist."""

    timing: TimingOptions
    count: int = 10
    after: datetime | None = None


class PreviewReply(Body):
    times: list[PlannedTime]
