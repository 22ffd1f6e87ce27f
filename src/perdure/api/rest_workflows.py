"""The REST interface to workflows.

Workflow ids stand in paths percent-encoded; a "/" in one is %2F. So the paths of these routes reach them undecoded
(server.py), and the handlers decode the ids.
"""

from __future__ import annotations

import uuid
from typing import Annotated, Any
from urllib.parse import quote, unquote

import msgspec
from litestar import Response, get, post
from litestar.params import FromPath, FromQuery, QueryParameter

from perdure.api import workflow_schema as ws
from perdure.api.request import (
    PACE,
    AnyRequest,
    Key,
    Serving,
    Wait,
    body_of,
    moment_of,
    read,
    read_optional,
    traced,
    utf8,
    wait_of,
)
from perdure.api.rest_search import QueryText
from perdure.api.schema import json_payload, value
from perdure.api.service import Service
from perdure.core import limits
from perdure.core import workflow_messages as w
from perdure.core.durations import seconds
from perdure.core.errors import (
    InvalidArgument,
    QueryFailed,
    TaskCanceled,
    TaskFailed,
    TaskTerminated,
)
from perdure.core.events import Event
from perdure.core.model import Failure
from perdure.core.pages import unpack

PREFIX = "/v1/workflows/"
"""Of paths that hold a workflow id."""

WorkflowId = FromPath[str]
RunId = Annotated[
    str | None, QueryParameter(name="run_id", description="Without it the current run: the open one, or the last.")
]
_START = msgspec.json.Decoder(ws.WorkflowRequest)
_INPUTS = msgspec.json.Decoder(ws.InputsOnly)
_INPUT = msgspec.json.Decoder(ws.InputOnly)
_SIGNAL = msgspec.json.Decoder(ws.SignalRequest)
_QUERY = msgspec.json.Decoder(ws.QueryRequest)
_UPDATE = msgspec.json.Decoder(ws.UpdateRequest)
_END = msgspec.json.Decoder(ws.EndRequest)
_PAUSE = msgspec.json.Decoder(ws.PauseRequest)
_RESET = msgspec.json.Decoder(ws.ResetRequest)
_RESOLVE = msgspec.json.Decoder(ws.ResolveRequest)
_ACTIVITY = msgspec.json.Decoder(ws.ActivityRequest)
_RESULT = msgspec.json.Decoder(ws.ResultOnly)


@post("/v1/workflows", status_code=202, operation_id="startWorkflow")
async def start_workflow(
    request: AnyRequest, service: Serving, idempotency_key: Key = None
) -> Response[ws.StartedWorkflow]:
    """Start a run of a workflow, or with `signal` or `update` also tell the open one something. With a request id or
    key, a repeat within 24 hours answers the run that the first request started."""
    body = await body_of(request)
    data, written = read(body, _START), read(body, _INPUTS)
    workflow_id = str(uuid.uuid4()) if data.workflow_id is None else data.workflow_id
    new = ws.new_workflow(data, written, workflow_id, utf8(idempotency_key))
    new.headers = traced(request, new.headers)
    reply = await service.start_workflow(new)
    return Response(ws.started(reply, _links(workflow_id), new.update), status_code=202, headers=_at(workflow_id))


@get("/v1/workflows", operation_id="listWorkflows")
async def find_workflows(
    service: Serving,
    status_: Annotated[str | None, QueryParameter(name="status")] = None,
    type_: Annotated[str | None, QueryParameter(name="type")] = None,
    workflow_id: FromQuery[str | None] = None,
    queue: FromQuery[str | None] = None,
    since: FromQuery[str | None] = None,
    limit: FromQuery[int] = 50,
    cursor: FromQuery[str | None] = None,
    lacks_version: Annotated[
        str | None, QueryParameter(name="lacks_version", description="Open runs without a marker of this version id.")
    ] = None,
    open_: Annotated[bool, QueryParameter(name="open", description="Leave out closed runs.")] = False,
    requires_intervention: Annotated[
        bool,
        QueryParameter(description="Closed runs whose compensations failed or did not run, without a resolution."),
    ] = False,
    query_: QueryText = "",
) -> ws.WorkflowList:
    """Runs, newest first. Filters are conjunctive; `query` is one more, and may say another order; `limit` is the size
    of a page, at most 1,000, and `next` of a page the `cursor` of the following one. A page with `query`, or with
    `lacks_version`, which needs `type` and reads histories, may be short, or empty, although more follow."""
    body = w.FindWorkflows(
        status=status_,
        type=type_,
        workflow_id=workflow_id,
        queue=queue,
        since=None if since is None else moment_of(since, "since"),
        limit=limit,
        cursor=cursor,
        lacks_version=lacks_version,
        open=open_,
        requires_intervention=requires_intervention,
        query=query_,
    )
    page = await service.find_workflows(body)
    return ws.WorkflowList([ws.document(view, _links(view.workflow_id)) for view in page.workflows], page.next)


@get("/v1/workflows/{workflow_id:str}", operation_id="getWorkflow")
async def get_workflow(
    workflow_id: WorkflowId, service: Serving, run_id: RunId = None
) -> Response[ws.WorkflowDocument]:
    """A run with what it waits for: activities, timers, children, signals that its code has not seen."""
    view = await service.describe_workflow(w.DescribeWorkflow(unquote(workflow_id), run_id))
    return Response(ws.document(view, _links(view.workflow_id)), headers=PACE)


@get("/v1/workflows/{workflow_id:str}/history", operation_id="getWorkflowHistory")
async def get_history(
    workflow_id: WorkflowId,
    service: Serving,
    run_id: RunId = None,
    limit: FromQuery[int] = 100,
    cursor: FromQuery[str | None] = None,
    reverse: FromQuery[bool] = False,
    wait: Annotated[
        str, QueryParameter(name="wait", description="Hold the answer back until there is an event: at most 25s.")
    ] = "0",
) -> ws.HistoryDocument:
    """The events of a run, oldest first, or with `reverse` newest first: 1,000 a page at most."""
    name = unquote(workflow_id)
    limits.integer(limit, "limit", 1, limits.MAX_PAGE)
    if reverse:
        return await _backward(service, name, run_id, limit, cursor)
    after = 0 if cursor is None else _event_id(cursor)
    reply = await service.history(w.History(name, run_id, after, limit, wait_of(wait)))
    found = [event for page in reply.pages for event in unpack(page) if event.id > after]
    events = found[:limit]
    more = reply.more or len(found) > limit
    last = events[-1].id if events else after
    return ws.history(name, reply.run_id, events, reply.closed, str(last) if more or not reply.closed else None)


async def _backward(
    service: Service, name: str, run_id: str | None, limit: int, cursor: str | None
) -> ws.HistoryDocument:
    """The `limit` events before the cursor, or the last ones."""
    view = await service.describe_workflow(w.DescribeWorkflow(name, run_id))
    end = view.history_length if cursor is None else min(_event_id(cursor) - 1, view.history_length)
    start = max(0, end - limit)
    events: list[Event] = []
    while start < end and (not events or events[-1].id < end):
        after = events[-1].id if events else start
        reply = await service.history(w.History(name, view.run_id, after, limit))
        events += (event for page in reply.pages for event in unpack(page) if after < event.id <= end)
        if not reply.more:
            break
    following = str(start + 1) if start > 0 else None
    return ws.history(name, view.run_id, events[::-1], view.closed_at is not None, following)


@get("/v1/workflows/{workflow_id:str}/result", operation_id="getWorkflowResult")
async def get_workflow_result(
    workflow_id: WorkflowId, service: Serving, run_id: RunId = None, wait: Wait = "0"
) -> Response[Any]:
    """What a workflow returned, alone, once it is COMPLETED; 202 and the run while it is open; 409 if it failed, timed
    out, was canceled or terminated. A run that went on as another one is followed."""
    view = await service.result_workflow(w.ResultWorkflow(unquote(workflow_id), run_id, wait_of(wait)))
    if view.closed_at is None:
        document = ws.document(view, _links(view.workflow_id))
        return Response(document, status_code=202, headers=_at(view.workflow_id))
    match view.status:
        case "COMPLETED":
            headers = {"Cache-Control": "private", "X-Content-Type-Options": "nosniff"}
            return Response(value(view.result or ()), headers=headers)
        case "CANCELLED":
            raise TaskCanceled("the workflow was canceled")
        case "TERMINATED":
            raise TaskTerminated("" if view.failure is None else view.failure.message)
        case _:
            raise TaskFailed(view.failure or Failure(message=f"the workflow is {view.status}"))


@post("/v1/workflows/{workflow_id:str}/signal", status_code=202, operation_id="signalWorkflow")
async def signal_workflow(
    workflow_id: WorkflowId, request: AnyRequest, service: Serving, idempotency_key: Key = None
) -> Response[ws.RunDocument]:
    """Send a signal to the open run. It is kept when this is answered; the code sees it with its next turn."""
    body = await body_of(request)
    data, written = read(body, _SIGNAL), read(body, _INPUT)
    signal = w.Signal(data.name, json_payload(written.input, "input"), data.headers)
    key = ws.request_id(data.request_id, utf8(idempotency_key))
    reply = await service.signal_workflow(w.SignalWorkflow(unquote(workflow_id), signal, data.run_id, key))
    return Response(ws.run(reply), status_code=202, headers=_at(reply.workflow_id))


@post("/v1/workflows/{workflow_id:str}/query", status_code=200, operation_id="queryWorkflow")
async def query_workflow(workflow_id: WorkflowId, request: AnyRequest, service: Serving) -> ws.QueryDocument:
    """Ask the code of an open or closed run something that changes nothing. 503 when no worker answers in time."""
    body = await body_of(request)
    data, written = read(body, _QUERY), read(body, _INPUT)
    wait = seconds(data.wait, "wait", most=limits.MAX_WAIT_SECONDS)
    asked = w.QueryWorkflow(unquote(workflow_id), data.name, json_payload(written.input, "input"), data.run_id, wait)
    reply = await service.query_workflow(asked)
    if reply.failure is not None:
        raise QueryFailed(reply.failure)
    return ws.QueryDocument(value(reply.result))


@post("/v1/workflows/{workflow_id:str}/update", status_code=200, operation_id="updateWorkflow")
async def update_workflow(
    workflow_id: WorkflowId, request: AnyRequest, service: Serving
) -> Response[ws.UpdateDocument]:
    """Ask the code of the open run to change something and to answer. 202 while there is no answer: ask again with the
    same `update_id`."""
    body = await body_of(request)
    data, written = read(body, _UPDATE), read(body, _INPUT)
    asked = w.UpdateWorkflow(
        workflow_id=unquote(workflow_id),
        update_id=str(uuid.uuid4()) if data.update_id is None else data.update_id,
        name=data.name,
        input=json_payload(written.input, "input"),
        run_id=data.run_id,
        headers=data.headers,
        wait=seconds(data.wait, "wait", most=limits.MAX_WAIT_SECONDS),
        stage=data.stage,
    )
    reply = await service.update_workflow(asked)
    if reply.stage == "completed":
        return Response(ws.update(reply))
    return Response(ws.update(reply), status_code=202, headers=_at(reply.workflow_id))


@post("/v1/workflows/{workflow_id:str}/cancel", status_code=202, operation_id="cancelWorkflow")
async def cancel_workflow(workflow_id: WorkflowId, request: AnyRequest, service: Serving) -> Response[ws.RunDocument]:
    """Ask the code to end; it may clean up first. The body may be left out. Harmless when repeated."""
    data = await read_optional(request, _END) or ws.EndRequest()
    reply = await service.cancel_workflow(w.CancelWorkflow(unquote(workflow_id), data.run_id, data.reason))
    return Response(ws.run(reply), status_code=202, headers=_at(reply.workflow_id))


@post("/v1/workflows/{workflow_id:str}/terminate", status_code=202, operation_id="terminateWorkflow")
async def terminate_workflow(
    workflow_id: WorkflowId, request: AnyRequest, service: Serving
) -> Response[ws.RunDocument]:
    """Close the run at once; its code does not hear of it and cleans nothing up. The body may be left out."""
    data = await read_optional(request, _END) or ws.EndRequest()
    reply = await service.terminate_workflow(w.TerminateWorkflow(unquote(workflow_id), data.run_id, data.reason))
    return Response(ws.run(reply), status_code=202, headers=_at(reply.workflow_id))


@post("/v1/workflows/{workflow_id:str}/pause", status_code=202, operation_id="pauseWorkflow")
async def pause_workflow(workflow_id: WorkflowId, request: AnyRequest, service: Serving) -> Response[ws.RunDocument]:
    """Run no code of the open run until it is resumed; what its code does just now goes on to its end. The body may be
    left out. Harmless when repeated."""
    return await _pause(unquote(workflow_id), request, service, True)


@post("/v1/workflows/{workflow_id:str}/resume", status_code=202, operation_id="resumeWorkflow")
async def resume_workflow(workflow_id: WorkflowId, request: AnyRequest, service: Serving) -> Response[ws.RunDocument]:
    """Run the code of a paused run again. The body may be left out. Harmless when repeated."""
    return await _pause(unquote(workflow_id), request, service, False)


async def _pause(name: str, request: AnyRequest, service: Service, paused: bool) -> Response[ws.RunDocument]:
    data = await read_optional(request, _PAUSE) or ws.PauseRequest()
    reply = await service.pause_workflow(w.PauseWorkflow(name, data.run_id, paused))
    return Response(ws.run(reply), status_code=202, headers=_at(reply.workflow_id))


@post("/v1/workflows/{workflow_id:str}/reset", status_code=202, operation_id="resetWorkflow")
async def reset_workflow(
    workflow_id: WorkflowId, request: AnyRequest, service: Serving, idempotency_key: Key = None
) -> Response[ws.StartedWorkflow]:
    """Begin a run, open or closed, again from an event of its history, as a new run of the workflow id. The old one is
    terminated if it is open."""
    data = read(await body_of(request), _RESET)
    reply = await service.reset_workflow(ws.reset(data, unquote(workflow_id), utf8(idempotency_key)))
    return Response(ws.started(reply, _links(reply.workflow_id)), status_code=202, headers=_at(reply.workflow_id))


@post("/v1/workflows/{workflow_id:str}/resolve", status_code=202, operation_id="resolveWorkflow")
async def resolve_workflow(workflow_id: WorkflowId, request: AnyRequest, service: Serving) -> Response[ws.RunDocument]:
    """Note what people have done about a closed run, such as one whose compensations failed. A later note takes the
    place of an earlier one."""
    data = read(await body_of(request), _RESOLVE)
    reply = await service.resolve_workflow(w.ResolveWorkflow(unquote(workflow_id), data.note, data.run_id))
    return Response(ws.run(reply), status_code=202, headers=_at(reply.workflow_id))


@post(
    "/v1/workflows/{workflow_id:str}/activities/{activity_id:str}/complete",
    status_code=202,
    operation_id="completeActivity",
)
async def complete_activity(
    workflow_id: WorkflowId, activity_id: FromPath[str], request: AnyRequest, service: Serving
) -> Response[ws.RunDocument]:
    """End an activity that a worker has begun and somebody else finishes: with a result, or with an error. `state` of
    the answer is that of the activity."""
    data, written = ws.ActivityRequest(), ws.ResultOnly()
    if body := await body_of(request):
        data, written = read(body, _ACTIVITY), read(body, _RESULT)
    ended = w.CompleteActivity(unquote(workflow_id), unquote(activity_id), run_id=data.run_id)
    if data.error is None:
        ended.result = json_payload(written.result, "result")
    else:
        ended.outcome, ended.failure = "failed", Failure(message=data.error, source="rest", retryable=data.retryable)
    reply = await service.complete_activity(ended)
    return Response(ws.run(reply), status_code=202, headers=_at(reply.workflow_id))


def _path(workflow_id: str) -> str:
    return PREFIX + quote(workflow_id, safe="")


def _at(workflow_id: str) -> dict[str, str]:
    """The headers of an answer that says where to look for what it began."""
    return {**PACE, "Location": _path(workflow_id)}


def _links(workflow_id: str) -> ws.WorkflowLinks:
    path = _path(workflow_id)
    names = (
        "result", "history", "signal", "query", "update", "cancel", "terminate", "pause", "resume", "reset", "resolve",
    )  # fmt: skip
    return ws.WorkflowLinks(**{name: f"{path}/{name}" for name in names}, itself=path)


def _event_id(cursor: str) -> int:
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 16):
        raise InvalidArgument(f"cursor is {cursor[:50]!r}", field="cursor", limit="the `next` of a page", kind="str")
    return int(cursor)


HANDLERS = (
    start_workflow, find_workflows, get_workflow, get_history, get_workflow_result, signal_workflow, query_workflow,
    update_workflow, cancel_workflow, terminate_workflow, pause_workflow, resume_workflow, reset_workflow,
    resolve_workflow, complete_activity,
)  # fmt: skip
QUERIES: dict[str, tuple[str, ...]] = {
    "find_workflows": (
        "status", "type", "workflow_id", "queue", "since", "limit", "cursor", "lacks_version", "open",
        "requires_intervention", "query",
    ),
    "get_workflow": ("run_id",),
    "get_history": ("run_id", "limit", "cursor", "reverse", "wait"),
    "get_workflow_result": ("run_id", "wait"),
}  # fmt: skip
"""What the query of a handler may hold."""
