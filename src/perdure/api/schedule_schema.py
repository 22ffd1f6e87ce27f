"""What the REST interface takes and shows of schedules. Values are plain JSON here, as in schema.py."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from perdure.api.schema import PayloadOnly, RetryRequest, json_payload, value
from perdure.core import messages as m
from perdure.core import schedule_messages as s
from perdure.core.durations import Duration
from perdure.core.errors import InvalidArgument

_NULL = msgspec.Raw(b"null")


class PreviewRequest(s.TimingOptions, kw_only=True):
    """A timing, and how many of its times (1 to 1,000) after `after`, or now."""

    count: int = 10
    after: datetime | None = None


class TaskTemplate(msgspec.Struct, forbid_unknown_fields=True):
    """The task that each firing enqueues. `task_type` and `type` are the same field."""

    task_type: str | None = None
    type: str | None = None
    payload: Any = None
    queue: str = "default"
    app: str = "default"
    priority: int = 3
    fairness_key: str = ""
    concurrency_key: str = ""
    weight: int = 1
    retry: RetryRequest | None = None
    timeouts: m.TimeoutOptions | None = None
    headers: dict[str, str] = {}


class WorkflowTemplate(msgspec.Struct, forbid_unknown_fields=True):
    """The workflow that each firing starts. `workflow_type` and `type` are the same field. The id of a run is
    `workflow_id` (the schedule's without one), "-" and the nominal time."""

    workflow_type: str | None = None
    type: str | None = None
    workflow_id: str | None = None
    input: Any = None
    queue: str = "default"
    execution_timeout: Duration | None = None
    run_timeout: Duration | None = None
    retry: RetryRequest | None = None
    priority: int = 3
    fairness_key: str = ""
    headers: dict[str, str] = {}
    memo: dict[str, Any] = {}
    search_attributes: dict[str, Any] = {}


class ScheduleBody(s.TimingOptions, kw_only=True):
    """A schedule: its timing (docs/schedules.md), and one of `task_template` and `workflow_template`. Lengths are
    seconds or text such as "10m". `overlap_policy` is "skip", "allow", "buffer_one" or "cancel_previous";
    `misfire_policy` is "once", "skip" or "all"; `remaining` is how often it fires. `paused` and `note` are for a new
    one."""

    task_template: TaskTemplate | None = None
    workflow_template: WorkflowTemplate | None = None
    overlap_policy: str = "skip"
    misfire_policy: str = "once"
    catch_up_window: Duration | None = None
    remaining: int | None = None
    paused: bool = False
    note: str = ""


class ScheduleRequest(ScheduleBody, kw_only=True):
    """A schedule, and its id: 1 to 180 bytes of printable text."""

    id: str


class ScheduleChanges(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A merge patch (RFC 7396) of a schedule: what is not given stays, null takes a field away, and objects are merged
    field by field. A timing of another sort takes the place of the one that was. With `version`, that of the schedule
    as it was read, the answer is a conflict (409) if it has been changed since."""

    version: str = ""
    cron: str | None = None
    calendar: dict[str, str | None] | None = None
    interval: Duration | None = None
    phase: Duration | None = None
    timezone: str | None = None
    gap: str | None = None
    repeated: str | None = None
    start_at: datetime | None = None
    end_at: datetime | None = None
    jitter: Duration | None = None
    task_template: dict[str, Any] | None = None
    workflow_template: dict[str, Any] | None = None
    overlap_policy: str | None = None
    misfire_policy: str | None = None
    catch_up_window: Duration | None = None
    remaining: int | None = None


class InputsOnly(msgspec.Struct):
    """The values of a workflow_template as they were written."""

    input: msgspec.Raw = _NULL
    memo: dict[str, msgspec.Raw] = {}


class ValuesOnly(msgspec.Struct):
    task_template: PayloadOnly | None = None
    workflow_template: InputsOnly | None = None


class NoteRequest(msgspec.Struct, forbid_unknown_fields=True):
    """`note` says why, for people."""

    note: str = ""


class TriggerRequest(msgspec.Struct, forbid_unknown_fields=True):
    """`request_id` (64 bytes), or the header Idempotency-Key, makes a repeated request one."""

    request_id: str | None = None


class BackfillRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Both ends included."""

    start_at: datetime
    end_at: datetime


# ----------------------------------------------------------------------------------------------------------- answers
class ScheduleLinks(msgspec.Struct):
    """Paths on this server. Those that do something are for a POST."""

    pause: str
    resume: str
    trigger: str
    backfill: str
    itself: str = msgspec.field(name="self")


class ScheduleChanged(msgspec.Struct):
    """`did` is "created", "updated", "unchanged" or "deleted"."""

    id: str
    did: str
    links: ScheduleLinks


class FiringDocument(msgspec.Struct):
    """What became of a nominal time. `outcome` is "started", "started_before", "buffered", or why nothing was started:
    "overlap", "missed", "gap", "paused", "workflow_id_taken". `task_id` is the run id of a workflow."""

    scheduled_at: datetime
    at: datetime
    outcome: str
    task_id: str | None
    workflow_id: str | None


class TriggeredDocument(msgspec.Struct):
    id: str
    firing: FiringDocument
    links: ScheduleLinks


class StartedDocument(msgspec.Struct):
    task_id: str
    workflow_id: str | None


class TimesDocument(msgspec.Struct):
    times: list[s.PlannedTime]


class ScheduleDocument(msgspec.Struct, kw_only=True):
    """A schedule. `state` is "active", "paused" or "finished"; `next_firing_at` has its jitter. `counts` says how often
    each outcome was, `recent` are the last ten, newest first."""

    id: str
    namespace: str
    state: str
    version: str  #: another one with each change of what its owner said
    note: str
    identity: str
    cron: str | None
    calendar: dict[str, str] | None
    interval: float | None
    phase: float | None
    timezone: str
    gap: str | None
    repeated: str | None
    start_at: datetime | None
    end_at: datetime | None
    jitter: float | None
    task_template: dict[str, Any] | None
    workflow_template: dict[str, Any] | None
    overlap_policy: str
    misfire_policy: str
    catch_up_window: float | None
    remaining: int | None
    created_at: datetime
    updated_at: datetime
    next_times: list[s.PlannedTime]
    next_firing_at: datetime | None
    buffered: datetime | None
    running: list[StartedDocument]
    recent: list[FiringDocument]
    counts: dict[str, int]
    backfilling: bool
    links: ScheduleLinks


class ScheduleList(msgspec.Struct):
    """A page; `next` is the `cursor` of the following one, null on the last."""

    schedules: list[ScheduleDocument]
    next: str | None


# ------------------------------------------------------------------------------------------------------- conversions
_TIMING = tuple(s.TimingOptions.__struct_fields__)
_POLICIES = ("overlap_policy", "misfire_policy", "catch_up_window", "remaining")
_SAME = (
    "namespace", "state", "version", "note", "identity", "interval", "phase", "jitter", "cron", "timezone", "gap",
    "repeated", "start_at", "end_at", *_POLICIES, "created_at", "updated_at", "next_firing_at", "buffered", "counts",
    "backfilling",
)  # fmt: skip


def timing(request: s.TimingOptions) -> s.TimingOptions:
    return s.TimingOptions(**_timing(request))


def _timing(request: s.TimingOptions) -> dict[str, Any]:
    return {name: getattr(request, name) for name in _TIMING}


def put(schedule_id: str, request: ScheduleBody, written: ValuesOnly, *, replace: bool) -> s.PutSchedule:
    """The body of the wire protocol for a REST request."""
    options = s.ScheduleOptions(
        schedule_id=schedule_id,
        **_timing(request),
        **{name: getattr(request, name) for name in _POLICIES},
    )
    if (task := request.task_template) is not None and written.task_template is not None:
        options.task = s.TaskTemplate(
            _type(task.task_type, task.type, "task_template.task_type"),
            json_payload(written.task_template.payload, "task_template.payload"),
            **_rest(task, s.TaskTemplate, 2),
        )
    if (workflow := request.workflow_template) is not None and written.workflow_template is not None:
        values = written.workflow_template
        options.workflow = s.WorkflowTemplate(
            _type(workflow.workflow_type, workflow.type, "workflow_template.workflow_type"),
            json_payload(values.input, "workflow_template.input"),
            workflow.workflow_id or "",
            **_rest(workflow, s.WorkflowTemplate, 3)
            | {"memo": {name: json_payload(raw, f"memo.{name}") for name, raw in values.memo.items()}},
        )
    return s.PutSchedule(options, replace, request.paused, request.note)


def changes(request: ScheduleChanges, given: dict[str, Any]) -> dict[str, Any]:
    """The patch of the wire protocol for a REST request; `given` are the fields that it has."""
    found = {name: getattr(request, name) for name in given if name != "version"}
    for name, kind, value_ in (("task", "task_type", "payload"), ("workflow", "workflow_type", "input")):
        if f"{name}_template" in found:
            template = found.pop(f"{name}_template")
            found[name] = None if template is None else _template(template, kind, value_)
    return found


def _template(given: dict[str, Any], kind: str, value_: str) -> dict[str, Any]:
    template = {("type" if name == kind else name): item for name, item in given.items()}
    if value_ in template:
        template[value_] = _packed(template[value_], value_)
    if isinstance(memo := template.get("memo"), dict):
        template["memo"] = {name: None if item is None else _packed(item, "memo") for name, item in memo.items()}
    return template


def _packed(item: Any, field: str) -> Any:
    return msgspec.to_builtins(json_payload(msgspec.Raw(msgspec.json.encode(item)), field), builtin_types=(bytes,))


def _rest(template: msgspec.Struct, kind: type[msgspec.Struct], skip: int) -> dict[str, Any]:
    """The fields that both have, behind the first ones."""
    return {name: getattr(template, name) for name in kind.__struct_fields__[skip:]}


def _type(one: str | None, other: str | None, field: str) -> str:
    found = other if one is None else one
    if found is None or (other is not None and other != found):
        raise InvalidArgument(f"give {field.rpartition('.')[2]} (or type), once", field=field, kind="null")
    return found


def firing(view: s.FiringView) -> FiringDocument:
    return FiringDocument(view.scheduled_at, view.at, view.outcome, view.task_id or None, view.workflow_id or None)


def document(view: s.ScheduleView, links: ScheduleLinks) -> ScheduleDocument:
    calendar = view.calendar
    return ScheduleDocument(
        id=view.schedule_id,
        **{name: getattr(view, name) for name in _SAME},
        calendar=None if calendar is None else msgspec.structs.asdict(calendar),
        task_template=None if view.task is None else _task(view.task),
        workflow_template=None if view.workflow is None else _workflow(view.workflow),
        next_times=view.next_times,
        running=[StartedDocument(one.task_id, one.workflow_id or None) for one in view.running],
        recent=[firing(one) for one in view.recent],
        links=links,
    )


def _task(template: s.TaskTemplate) -> dict[str, Any]:
    return {**msgspec.structs.asdict(template), "payload": value(template.payload)}


def _workflow(template: s.WorkflowTemplate) -> dict[str, Any]:
    memo = {name: value(payloads) for name, payloads in template.memo.items()}
    return {**msgspec.structs.asdict(template), "input": value(template.input), "memo": memo}
