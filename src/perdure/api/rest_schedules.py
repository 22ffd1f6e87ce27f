"""The REST interface to schedules. Their ids stand in paths percent-encoded, as those of workflows do."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote, unquote

import msgspec
from litestar import Response, delete, get, patch, post, put
from litestar.params import FromPath, FromQuery, QueryParameter

from perdure.api import schedule_schema as ss
from perdure.api.request import AnyRequest, Key, Serving, body_of, read, read_optional, utf8
from perdure.api.service import Service
from perdure.api.workflow_schema import request_id
from perdure.core import schedule_messages as s

PREFIX = "/v1/schedules/"
"""Of paths that hold a schedule id."""

ScheduleId = FromPath[str]
_CREATE = msgspec.json.Decoder(ss.ScheduleRequest)
_PUT = msgspec.json.Decoder(ss.ScheduleBody)
_CHANGES = msgspec.json.Decoder(ss.ScheduleChanges)
_GIVEN = msgspec.json.Decoder(dict[str, Any])
_VALUES = msgspec.json.Decoder(ss.ValuesOnly)
_NOTE = msgspec.json.Decoder(ss.NoteRequest)
_TRIGGER = msgspec.json.Decoder(ss.TriggerRequest)
_BACKFILL = msgspec.json.Decoder(ss.BackfillRequest)
_PREVIEW = msgspec.json.Decoder(ss.PreviewRequest)


@post("/v1/schedules", status_code=201, operation_id="createSchedule")
async def create_schedule(request: AnyRequest, service: Serving) -> Response[ss.ScheduleChanged]:
    """Make a schedule. The same again changes nothing (200); another one under the same id is a conflict."""
    body = await body_of(request)
    data, written = read(body, _CREATE), read(body, _VALUES)
    reply = await service.put_schedule(ss.put(data.id, data, written, replace=False))
    return _changed(reply.schedule_id, reply.did)


@get("/v1/schedules", operation_id="listSchedules")
async def find_schedules(
    service: Serving, limit: FromQuery[int] = 50, cursor: FromQuery[str | None] = None
) -> ss.ScheduleList:
    """Schedules, newest first, without their next times. `limit` is the size of a page, at most 1,000, and `next` of a
    page the `cursor` of the following one."""
    page = await service.find_schedules(s.FindSchedules(limit, cursor))
    return ss.ScheduleList([ss.document(view, _links(view.schedule_id)) for view in page.schedules], page.next)


@post("/v1/schedules:preview", status_code=200, operation_id="previewTimes")
async def preview_times(request: AnyRequest, service: Serving) -> ss.TimesDocument:
    """When a schedule with this timing would fire. Stores nothing."""
    data = read(await body_of(request), _PREVIEW)
    reply = await service.preview_times(s.PreviewTimes(ss.timing(data), data.count, data.after))
    return ss.TimesDocument(reply.times)


@get("/v1/schedules/{schedule_id:str}", operation_id="getSchedule")
async def get_schedule(
    schedule_id: ScheduleId,
    service: Serving,
    times: Annotated[int, QueryParameter(name="times", description="How many of its next times: 0 to 1,000.")] = 5,
) -> ss.ScheduleDocument:
    """A schedule with its next times, what of it runs, and what became of the last ones."""
    view = await service.get_schedule(s.GetSchedule(unquote(schedule_id), times))
    return ss.document(view, _links(view.schedule_id))


@put("/v1/schedules/{schedule_id:str}", status_code=200, operation_id="putSchedule")
async def put_schedule(schedule_id: ScheduleId, request: AnyRequest, service: Serving) -> Response[ss.ScheduleChanged]:
    """Give a schedule this definition, as a whole and in one write, or make it (201). It stays paused or not as it is,
    and its nominal times go on if their timing is the same."""
    body = await body_of(request)
    data, written = read(body, _PUT), read(body, _VALUES)
    reply = await service.put_schedule(ss.put(unquote(schedule_id), data, written, replace=True))
    return _changed(reply.schedule_id, reply.did)


@patch("/v1/schedules/{schedule_id:str}", status_code=200, operation_id="updateSchedule")
async def update_schedule(
    schedule_id: ScheduleId, request: AnyRequest, service: Serving
) -> Response[ss.ScheduleChanged]:
    """Change some fields of a schedule, and leave the others as they are."""
    body = await body_of(request)
    data, given = read(body, _CHANGES), read(body, _GIVEN)
    update = s.UpdateSchedule(unquote(schedule_id), ss.changes(data, given), data.version)
    reply = await service.update_schedule(update)
    return _changed(reply.schedule_id, reply.did)


@delete("/v1/schedules/{schedule_id:str}", status_code=200, operation_id="deleteSchedule")
async def delete_schedule(schedule_id: ScheduleId, service: Serving) -> Response[ss.ScheduleChanged]:
    """Delete a schedule. What it has started goes on."""
    reply = await service.delete_schedule(s.DeleteSchedule(unquote(schedule_id)))
    return _changed(reply.schedule_id, reply.did)


@post("/v1/schedules/{schedule_id:str}/pause", status_code=200, operation_id="pauseSchedule")
async def pause_schedule(
    schedule_id: ScheduleId, request: AnyRequest, service: Serving
) -> Response[ss.ScheduleChanged]:
    """Fire no more until it is resumed; what runs goes on. The body may be left out. Harmless when repeated."""
    return await _pause(unquote(schedule_id), request, service, True)


@post("/v1/schedules/{schedule_id:str}/resume", status_code=200, operation_id="resumeSchedule")
async def resume_schedule(
    schedule_id: ScheduleId, request: AnyRequest, service: Serving
) -> Response[ss.ScheduleChanged]:
    """Go on with the nominal times from now on; those that passed meanwhile are skipped. The body may be left out.
    Harmless when repeated."""
    return await _pause(unquote(schedule_id), request, service, False)


async def _pause(name: str, request: AnyRequest, service: Service, paused: bool) -> Response[ss.ScheduleChanged]:
    data = await read_optional(request, _NOTE) or ss.NoteRequest()
    reply = await service.pause_schedule(s.PauseSchedule(name, paused, data.note))
    return _changed(reply.schedule_id, reply.did)


@post("/v1/schedules/{schedule_id:str}/trigger", status_code=202, operation_id="triggerSchedule")
async def trigger_schedule(
    schedule_id: ScheduleId, request: AnyRequest, service: Serving, idempotency_key: Key = None
) -> Response[ss.TriggeredDocument]:
    """Start what it starts, now, whatever runs and whether it is paused or not. The body may be left out."""
    data = await read_optional(request, _TRIGGER) or ss.TriggerRequest()
    key = request_id(data.request_id, utf8(idempotency_key))
    reply = await service.trigger_schedule(s.TriggerSchedule(unquote(schedule_id), key))
    started = reply.firing
    where = (
        f"/v1/workflows/{quote(started.workflow_id, safe='')}"
        if started.workflow_id
        else f"/v1/tasks/{started.task_id}"
    )
    document = ss.TriggeredDocument(reply.schedule_id, ss.firing(started), _links(reply.schedule_id))
    return Response(document, status_code=202, headers={"Location": where})


@post("/v1/schedules/{schedule_id:str}/backfill", status_code=202, operation_id="backfillSchedule")
async def backfill_schedule(
    schedule_id: ScheduleId, request: AnyRequest, service: Serving
) -> Response[ss.ScheduleChanged]:
    """Fire for the past nominal times of a range, at most 1,000, whatever runs: 60 a second. Those that fired within 24
    hours are not fired again."""
    data = read(await body_of(request), _BACKFILL)
    reply = await service.backfill_schedule(s.BackfillSchedule(unquote(schedule_id), data.start_at, data.end_at))
    return _changed(reply.schedule_id, reply.did, 202)


def _path(schedule_id: str) -> str:
    return PREFIX + quote(schedule_id, safe="")


def _changed(schedule_id: str, did: str, status: int = 200) -> Response[ss.ScheduleChanged]:
    document = ss.ScheduleChanged(schedule_id, did, _links(schedule_id))
    headers = {"Location": _path(schedule_id)} if did == "created" or status == 202 else {}
    return Response(document, status_code=201 if did == "created" else status, headers=headers)


def _links(schedule_id: str) -> ss.ScheduleLinks:
    path = _path(schedule_id)
    names = ("pause", "resume", "trigger", "backfill")
    return ss.ScheduleLinks(**{name: f"{path}/{name}" for name in names}, itself=path)


HANDLERS = (
    create_schedule, find_schedules, preview_times, get_schedule, put_schedule, update_schedule, delete_schedule,
    pause_schedule, resume_schedule, trigger_schedule, backfill_schedule,
)  # fmt: skip
QUERIES: dict[str, tuple[str, ...]] = {"find_schedules": ("limit", "cursor"), "get_schedule": ("times",)}
"""What the query of a handler may hold."""
