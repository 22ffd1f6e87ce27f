"""The REST interface: tasks, and the same rows as jobs. One service below both; OpenAPI is at /openapi.json.

Every error is a problem document with a stable code (RFC 9457), also for unknown routes and malformed JSON. What was
accepted answers 202 with Location and Retry-After, which sets the pace of those who poll (JOB-06); so does a job that
is still open, while one that has closed answers 200.
"""

from __future__ import annotations

import logging
from typing import Annotated, Any

import msgspec
from litestar import Litestar, Response, get, post
from litestar.di import NamedDependency, Provide
from litestar.exceptions import HTTPException
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.params import FromPath, FromQuery, QueryParameter

from perdure.api import (
    failure_schema,
    links,
    openapi,
    rest_events,
    rest_failures,
    rest_limits,
    rest_metrics,
    rest_owners,
    rest_schedules,
    rest_search,
    rest_signals,
    rest_workflows,
    schema,
)
from perdure.api.auth import Gate
from perdure.api.codec import MethodNotAllowed, invalid, problem_headers
from perdure.api.parking import Parking
from perdure.api.request import (
    PACE,
    AnyRequest,
    Calling,
    Key,
    Serves,
    Serving,
    Wait,
    body_of,
    moment_of,
    need_json,
    read,
    read_optional,
    traced,
    utf8,
    wait_of,
)
from perdure.api.service import Caller, Service
from perdure.core import limits
from perdure.core import messages as m
from perdure.core.errors import (
    Internal,
    InvalidArgument,
    NotFound,
    PayloadTooLarge,
    PerdureError,
    Problem,
    TaskCanceled,
    TaskExpired,
    TaskFailed,
    Unavailable,
)
from perdure.core.model import Failure
from perdure.engine.engine import Engine
from perdure.engine.outage import Outage
from perdure.observe.metrics import Metrics

log = logging.getLogger("perdure.api")

_UNHEALTHY = 10.0
"""Seconds of an outage after which this server is not healthy."""
PROBLEM = "application/problem+json"


# ---------------------------------------------------------------------------------------------------------- tasks
@post("/v1/tasks", status_code=202, operation_id="enqueueTask")
async def enqueue(request: AnyRequest, service: Serving, idempotency_key: Key = None) -> Response[schema.AcceptedTask]:
    """Enqueue a task. With a key, a repeat within 24 hours answers the task that the first request made; another body
    under the same key is a conflict. Without one, a request that is repeated may make a second task."""
    body = await body_of(request)
    data, written = read(body, _TASK), read(body, _PAYLOAD)
    item = schema.new_task(data, written, utf8(idempotency_key))
    item.headers = traced(request, item.headers)
    view, duplicate = await service.accept(item)
    return Response(schema.accepted(view, duplicate), status_code=202, headers=_at(view.task_id))


@post("/v1/tasks:batch", status_code=200, operation_id="enqueueTasks")
async def enqueue_batch(request: AnyRequest, service: Serving) -> schema.BatchReply:
    """Enqueue 1 to 1,000 tasks; the answer has one outcome, a task id or an error, for each, in order. Each may have a
    key of its own, so a batch that is sent again doubles nothing."""
    body = await body_of(request)
    data, written = read(body, _BATCH), read(body, _PAYLOADS)
    outcomes: list[schema.BatchOutcome | None] = []
    items: list[m.NewTask] = []
    limits.integer(len(data.tasks), "tasks", 1, limits.MAX_BATCH)
    for task, payload in zip(data.tasks, written.tasks, strict=True):
        try:
            items.append(schema.new_task(task, payload))
            outcomes.append(None)
        except InvalidArgument as error:
            outcomes.append(schema.BatchOutcome(error=error.problem()))
    answered = iter((await service.enqueue(m.Enqueue(items))).tasks if items else ())
    return schema.BatchReply([outcome or _batch_outcome(next(answered)) for outcome in outcomes])


def _batch_outcome(item: m.Enqueued) -> schema.BatchOutcome:
    return schema.BatchOutcome(item.task_id or None, item.duplicate, item.error)


@get("/v1/tasks/{task_id:str}", operation_id="getTask")
async def get_task(task_id: FromPath[str], service: Serving, wait: Wait = "0") -> Response[schema.TaskDocument]:
    """A task with its attempts, its result or why it failed, and what it waits for."""
    view = await service.get(m.Get(task_id, wait=wait_of(wait)))
    return Response(schema.document(view), headers=PACE)


@get("/v1/tasks", operation_id="listTasks")
async def find_tasks(
    service: Serving,
    state_: Annotated[str | None, QueryParameter(name="state")] = None,
    queue: FromQuery[str | None] = None,
    type_: Annotated[str | None, QueryParameter(name="type")] = None,
    since: FromQuery[str | None] = None,
    limit: FromQuery[int] = 50,
    cursor: FromQuery[str | None] = None,
    failure_group: FromQuery[str | None] = None,
    query_: rest_search.QueryText = "",
) -> schema.TaskList:
    """Tasks, newest first, without payload and result. Filters are conjunctive; `failure_group` shows the dead letters
    of a group that nobody has retried; `query` is one more filter, and may say another order; `limit` is the size of a
    page, at most 1,000, and `next` of a page the `cursor` of the following one. A page of a query may be short, or
    empty, although more follow."""
    begun = None if since is None else moment_of(since, "since")
    body = m.Find(state_, queue, type_, begun, failure_group, limit, cursor, query_)
    page = await service.find(body)
    return schema.TaskList([schema.document(view) for view in page.tasks], page.next)


@post("/v1/tasks/{task_id:str}/cancel", status_code=202, operation_id="cancelTask")
async def cancel_task(task_id: FromPath[str], service: Serving, request: AnyRequest) -> Response[m.CancelReply]:
    """Cancel a task: at once if nobody runs it, else its worker is told and has 30 seconds to end it. The body
    {"reason"} may be left out. Harmless when repeated or too late: the answer tells the state."""
    reply = await service.cancel(m.Cancel(task_id, reason=await _reason(request)))
    return Response(reply, status_code=202, headers=_at(reply.task_id))


@post("/v1/tasks/{task_id:str}/retry", status_code=202, operation_id="retryTask")
async def retry_task(task_id: FromPath[str], service: Serving, request: AnyRequest) -> Response[m.RetryReply]:
    """Run a task again: one that waits for its next attempt now, a closed one as a new task with fresh attempts and, if
    the body has one, another `payload`. A task that is queued, runs or SUCCEEDED is a conflict."""
    given = await read_optional(request, _RETRY)
    written = None if given is None else read(await body_of(request), _RETRY_PAYLOAD).payload
    payload = schema.json_payload(written, "payload") if isinstance(written, msgspec.Raw) else None
    reply = await service.retry(m.Retry(task_id, payload))
    return Response(reply, status_code=202, headers=_at(reply.task_id))


def _at(task_id: str) -> dict[str, str]:
    """The headers of an answer that says where to look for what it began."""
    return {**PACE, "Location": f"/v1/tasks/{task_id}"}


# ----------------------------------------------------------------------------------------------------------- jobs
@get(["/v1/jobs/{job_id:str}", "/jobs/{job_id:str}"], operation_id=openapi.by_path("getJob"))
async def get_job(
    job_id: FromPath[str], service: Serving, caller: Calling, engine: Serves, wait: Wait = "0"
) -> Response[schema.Job]:
    """The job resource of a task: 202 while it is open, 200 once it has closed. `result_url` of one that SUCCEEDED is
    good for 15 minutes without an API key."""
    view = await service.get(m.Get(job_id, wait=wait_of(wait), payload=False))
    found = schema.job(view, links.result_url(caller, view.task_id, engine.now()))
    return Response(found, status_code=202 if view.closed_at is None else 200, headers=PACE)


@get(["/v1/jobs/{job_id:str}/result", "/jobs/{job_id:str}/result"], operation_id=openapi.by_path("getJobResult"))
async def get_job_result(job_id: FromPath[str], reader: NamedDependency[Service], wait: Wait = "0") -> Response[Any]:
    """What a job returned, alone, once it SUCCEEDED; 202 and the job while it is open; 409 if it failed or was
    canceled. Takes an API key, or the signature of a `result_url`."""
    view = await reader.get(m.Get(job_id, wait=wait_of(wait), payload=False))
    if view.closed_at is None:
        headers = {**PACE, "Location": f"/v1/jobs/{view.task_id}"}
        return Response(schema.job(view), status_code=202, headers=headers)
    return Response(_result(view), headers={"Cache-Control": "private", "X-Content-Type-Options": "nosniff"})


def _result(view: m.TaskView) -> Any:
    match view.job_state:
        case "SUCCEEDED":
            return schema.value(view.result or ())
        case "CANCELLED":
            raise TaskCanceled(view.cancel_reason or "")
        case _ if view.state == "EXPIRED":
            raise TaskExpired()
        case _:
            raise TaskFailed(view.failure or Failure(message=f"the task is {view.state}"))


@post(
    ["/v1/jobs/{job_id:str}/cancel", "/jobs/{job_id:str}/cancel"],
    status_code=202,
    operation_id=openapi.by_path("cancelJob"),
)
async def cancel_job(job_id: FromPath[str], service: Serving, request: AnyRequest) -> Response[schema.Job]:
    """Cancel a job; the answer is the job as it is then."""
    await service.cancel(m.Cancel(job_id, reason=await _reason(request)))
    view = await service.get(m.Get(job_id, payload=False))
    return Response(schema.job(view), status_code=202, headers={**PACE, "Location": f"/v1/jobs/{view.task_id}"})


async def _reason(request: AnyRequest) -> str:
    given = await read_optional(request, _CANCEL)
    return "" if given is None else given.reason


_TASK = msgspec.json.Decoder(schema.TaskRequest)
_BATCH = msgspec.json.Decoder(schema.BatchRequest)
_PAYLOAD = msgspec.json.Decoder(schema.PayloadOnly)
_PAYLOADS = msgspec.json.Decoder(schema.PayloadsOnly)
_CANCEL = msgspec.json.Decoder(schema.CancelRequest)
_RETRY = msgspec.json.Decoder(failure_schema.RetryTaskRequest)
_RETRY_PAYLOAD = msgspec.json.Decoder(failure_schema.RetryPayload)


# -------------------------------------------------------------------------------------------------------- servers
@get("/v1/queues", operation_id="listQueues")
async def list_queues(service: Serving) -> schema.QueueList:
    """The queues that hold open tasks or are polled, and about how much. Counts stop at 10,000."""
    return schema.queues(await service.queues(m.ListQueues()))


@get("/v1/workers", operation_id="listWorkers")
async def list_workers(service: Serving, running: FromQuery[int] = 0) -> schema.WorkerList:
    """The registered worker processes, each with as many of the tasks that it holds as `running` says, 100 at most."""
    return schema.workers(await service.workers(m.ListWorkers(running)))


@get("/healthz", operation_id="getHealth")
async def healthz(outage: NamedDependency[Outage]) -> schema.Health:
    """200 while this server reaches its database; 503 once that has been away for more than ten seconds, with how
    long."""
    if outage.seconds > _UNHEALTHY:
        raise Unavailable(f"the database has been away for {outage.seconds:.0f} s", retry_after=5.0)
    return schema.Health("ok")


@get("/openapi.json", include_in_schema=False)
async def openapi_document(request: AnyRequest) -> dict[str, Any]:
    return openapi.complete(request.app.openapi_schema.to_schema())


# --------------------------------------------------------------------------------------------------------- errors
_QUERIES: dict[str, tuple[str, ...]] = {
    "find_tasks": ("state", "queue", "type", "since", "failure_group", "limit", "cursor", "query"),
    "list_workers": ("running",),
    "get_task": ("wait",),
    "get_job": ("wait",),
    "get_job_result": ("wait", "namespace", *links.Signature._fields),
    **rest_workflows.QUERIES,
    **rest_failures.QUERIES,
    **rest_limits.QUERIES,
    **rest_schedules.QUERIES,
    **rest_search.QUERIES,
    **rest_events.QUERIES,
}
"""What the query of a handler may hold."""


async def _check(request: AnyRequest) -> None:
    """A misspelled filter must not list everything; a body must say that it is JSON."""
    known = _QUERIES.get(request.route_handler.handler_name, ())
    for name in request.query_params:
        if name not in known:
            limit = ", ".join(known) or "no query"
            raise InvalidArgument(f"{request.url.path} takes no {name[:50]!r} here", field=name[:50], limit=limit)
    if request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers:
        need_json(request)


def _on_error(_: AnyRequest, error: Exception) -> Response[Problem]:
    match error:
        case PerdureError():
            return _problem(error.problem(), problem_headers(error))
        case HTTPException():
            return _http_problem(error)
        case _:
            log.error("a request failed", exc_info=error)
            return _problem(Internal().problem(), [])


_REFUSALS: dict[int, type[PerdureError]] = {404: NotFound, 405: MethodNotAllowed, 413: PayloadTooLarge}


def _http_problem(error: HTTPException) -> Response[Problem]:
    """What the framework refused before a handler saw it."""
    if error.status_code >= 500:
        log.error("a request failed", exc_info=error)
        return _problem(Internal().problem(), [])
    refusal = _REFUSALS.get(error.status_code, InvalidArgument)(error.detail)
    if isinstance(error.extra, list) and error.extra and isinstance(error.extra[0], dict):
        refusal = invalid(error.extra[0].get("message", error.detail), error.extra[0].get("key"))
    return _problem(refusal.problem(), [(k.encode(), v.encode()) for k, v in (error.headers or {}).items()])


def _problem(problem: Problem, headers: list[tuple[bytes, bytes]]) -> Response[Problem]:
    named = {name.decode(): value.decode() for name, value in headers}
    return Response(problem, status_code=problem.status, media_type=PROBLEM, headers=named)


def build(engine: Engine, gate: Gate, parking: Parking) -> Litestar:
    """The Litestar app; server.py puts the wire protocol beside it."""

    def caller(request: AnyRequest) -> Caller:
        return gate.admit(request.scope["headers"])

    def service(caller: Calling) -> Service:
        return Service(engine, caller, parking=parking, alive=lambda: gate.admits(caller))

    def reader(request: AnyRequest) -> Service:
        """For whoever has a key, or a URL that somebody with a key was given."""
        query = request.query_params
        if "signature" in query:
            given = links.Signature(*(query.get(name, "") for name in links.Signature._fields))
            return service(links.admit(gate, request.path_params["job_id"], given, engine.now()))
        found = gate.admit(request.scope["headers"])
        if not gate.locked and "namespace" in query:
            found = msgspec.structs.replace(found, namespace=query["namespace"])
        return service(found)

    figures = Metrics(engine)
    return Litestar(
        [
            enqueue, enqueue_batch, get_task, find_tasks, cancel_task, retry_task, get_job, get_job_result, cancel_job,
            list_queues, list_workers, healthz, rest_metrics.metrics, rest_signals.golden_signals, openapi_document,
            *rest_workflows.HANDLERS, *rest_failures.HANDLERS, *rest_limits.HANDLERS, *rest_owners.HANDLERS,
            *rest_schedules.HANDLERS, *rest_events.HANDLERS,
            *rest_search.HANDLERS,
        ],
        dependencies={
            "caller": Provide(caller, sync_to_thread=False),
            "service": Provide(service, sync_to_thread=False),
            "reader": Provide(reader, sync_to_thread=False),
            "engine": Provide(lambda: engine, sync_to_thread=False),
            "outage": Provide(lambda: engine.outage, sync_to_thread=False),
            "figures": Provide(lambda: figures, sync_to_thread=False),
        },
        before_request=_check,
        exception_handlers={Exception: _on_error},
        request_max_body_size=limits.MAX_BODY,
        openapi_config=OpenAPIConfig(
            title="Perdure", version="v1", use_handler_docstrings=True, render_plugins=[JsonRenderPlugin()]
        ),
        logging_config=None,
    )  # fmt: skip
