"""The REST interface: tasks, and the same rows as jobs. One service below both; OpenAPI is at /openapi.json.

Every error is a problem document with a stable code (RFC 9457), also for unknown routes and malformed JSON. What was
accepted answers 202 with Location and Retry-After, which sets the pace of those who poll (JOB-06).
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Annotated, Any

import msgspec
from litestar import Litestar, Request, Response, get, post
from litestar.di import NamedDependency, Provide
from litestar.exceptions import HTTPException
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.params import FromPath, FromQuery, HeaderParameter, JSONBody, QueryParameter

from perdure.api import schema, views
from perdure.api.auth import Gate
from perdure.api.codec import MethodNotAllowed, invalid, problem_headers
from perdure.api.parking import Parking
from perdure.api.service import QUEUES_SEPARATOR, Service
from perdure.core import limits
from perdure.core import messages as m
from perdure.core.durations import seconds
from perdure.core.errors import Internal, InvalidArgument, NotFound, PayloadTooLarge, PerdureError, Problem, Unavailable
from perdure.engine.engine import Engine
from perdure.engine.outage import Outage

log = logging.getLogger("perdure.api")

PACE = {"Retry-After": "5"}
"""Seconds between two looks at a job."""
_UNHEALTHY = 10.0
"""Seconds of an outage after which this server is not healthy."""
PROBLEM = "application/problem+json"

AnyRequest = Request[Any, Any, Any]
Serving = NamedDependency[Service]
Key = Annotated[str | None, HeaderParameter(name="Idempotency-Key")]


# ---------------------------------------------------------------------------------------------------------- tasks
@post("/v1/tasks", status_code=202)
async def enqueue(
    data: JSONBody[schema.TaskRequest], request: AnyRequest, service: Serving, idempotency_key: Key = None
) -> Response[schema.AcceptedTask]:
    """Enqueue a task. With a key, a repeat within 24 hours answers the task that the first request made."""
    written = msgspec.json.decode(await request.body(), type=schema.PayloadOnly)
    item = schema.new_task(data, written, idempotency_key)
    view, duplicate = await service.accept(item)
    headers = {**PACE, "Location": f"/v1/tasks/{view.task_id}"}
    return Response(schema.accepted(view, duplicate), status_code=202, headers=headers)


@post("/v1/tasks:batch", status_code=200)
async def enqueue_batch(
    data: JSONBody[schema.BatchRequest], request: AnyRequest, service: Serving
) -> schema.BatchReply:
    """Enqueue 1 to 1,000 tasks; the answer has one outcome, a task id or an error, for each."""
    outcomes: list[schema.BatchOutcome | None] = []
    items: list[m.NewTask] = []
    limits.integer(len(data.tasks), "tasks", 1, limits.MAX_BATCH)
    written = msgspec.json.decode(await request.body(), type=schema.PayloadsOnly)
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


@get("/v1/tasks/{task_id:str}")
async def get_task(
    task_id: FromPath[str], service: Serving, wait: FromQuery[str] = "0"
) -> Response[schema.TaskDocument]:
    """A task. `wait` (at most 25 seconds, "25s") holds the answer back until the task has closed."""
    view = await service.get(m.Get(task_id, wait=seconds(wait, "wait", most=limits.MAX_WAIT_SECONDS)))
    return Response(schema.document(view), headers=PACE)


@get("/v1/tasks")
async def find_tasks(
    service: Serving,
    state_: Annotated[str | None, QueryParameter(name="state")] = None,
    queue: FromQuery[str | None] = None,
    type_: Annotated[str | None, QueryParameter(name="type")] = None,
    since: FromQuery[datetime | None] = None,
    limit: FromQuery[int] = 50,
    cursor: FromQuery[str | None] = None,
) -> schema.TaskList:
    """Tasks, newest first, without payload and result. `next` is the `cursor` of the next page."""
    body = m.Find(state=state_, queue=queue, type=type_, since=since, limit=limit, cursor=cursor)
    page = await service.find(body)
    return schema.TaskList([schema.document(view) for view in page.tasks], page.next)


@post("/v1/tasks/{task_id:str}/cancel", status_code=202)
async def cancel_task(task_id: FromPath[str], service: Serving, request: AnyRequest) -> m.CancelReply:
    """Cancel a task: at once if nobody runs it, else its worker is told. The body {"reason"} may be left out."""
    return await service.cancel(m.Cancel(task_id, reason=await _reason(request)))


@post("/v1/tasks/{task_id:str}/retry", status_code=202)
async def retry_task(task_id: FromPath[str], service: Serving) -> m.RetryReply:
    """Run a task again: one that waits for its next attempt now, a closed one as a new task."""
    return await service.retry(m.Retry(task_id))


# ----------------------------------------------------------------------------------------------------------- jobs
@get(["/v1/jobs/{job_id:str}", "/jobs/{job_id:str}"])
async def get_job(job_id: FromPath[str], service: Serving) -> Response[schema.Job]:
    """The job resource of a task."""
    return Response(schema.job(await service.get(m.Get(job_id, payload=False))), headers=PACE)


@post(["/v1/jobs/{job_id:str}/cancel", "/jobs/{job_id:str}/cancel"], status_code=202)
async def cancel_job(job_id: FromPath[str], service: Serving, request: AnyRequest) -> Response[schema.Job]:
    """Cancel a job; the answer is the job as it is then."""
    await service.cancel(m.Cancel(job_id, reason=await _reason(request)))
    view = await service.get(m.Get(job_id, payload=False))
    return Response(schema.job(view), status_code=202, headers={**PACE, "Location": f"/v1/jobs/{job_id}"})


async def _reason(request: AnyRequest) -> str:
    body = await request.body()
    if not body:
        return ""
    _need_json(request)
    return msgspec.json.decode(body, type=schema.CancelRequest).reason


# -------------------------------------------------------------------------------------------------------- servers
@get("/v1/workers")
async def workers(service: Serving) -> list[schema.WorkerDocument]:
    """The registered worker processes."""
    return [
        schema.WorkerDocument(
            identity=session.identity,
            queues=session.queues.split(QUEUES_SEPARATOR),
            slots=session.slots,
            build=session.build,
            started_at=views.moment(session.started_at),
            seen_at=views.moment(session.seen_at),
            ending=session.ends_at is not None,
        )
        for session in await service.workers()
    ]


@get("/healthz")
async def healthz(outage: NamedDependency[Outage]) -> schema.Health:
    """200 while this server reaches its database; 503 once that has been away for more than ten seconds, with how
    long."""
    if outage.seconds > _UNHEALTHY:
        raise Unavailable(f"the database has been away for {outage.seconds:.0f} s", retry_after=5.0)
    return schema.Health("ok")


@get("/openapi.json", include_in_schema=False)
async def openapi(request: AnyRequest) -> dict[str, Any]:
    return request.app.openapi_schema.to_schema()


# --------------------------------------------------------------------------------------------------------- errors
def _need_json(request: AnyRequest) -> None:
    """Only JSON, said to be JSON: a browser sends other types across origins without asking first."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != "application/json":
        raise InvalidArgument(
            f"content type {given[:50]!r}", field="content-type", limit="application/json", kind="str"
        )


async def _check_body(request: AnyRequest) -> None:
    if request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers:
        _need_json(request)


def _on_error(_: AnyRequest, error: Exception) -> Response[Problem]:
    match error:
        case PerdureError():
            return _problem(error.problem(), problem_headers(error))
        case msgspec.MsgspecError():
            return _problem(invalid(str(error)).problem(), [])
        case RecursionError():
            return _problem(invalid("the body is nested too deeply").problem(), [])
        case HTTPException():
            return _http_problem(error)
        case _:
            log.error("a request failed", exc_info=error)
            return _problem(Internal().problem(), [])


_REFUSALS: dict[int, type[PerdureError]] = {404: NotFound, 405: MethodNotAllowed, 413: PayloadTooLarge}


def _http_problem(error: HTTPException) -> Response[Problem]:
    """What the framework refused before a handler saw it."""
    if isinstance(error.__cause__ or error.__context__, RecursionError):
        return _problem(invalid("the body is nested too deeply").problem(), [])
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

    def service(request: AnyRequest) -> Service:
        return Service(engine, gate.admit(request.scope["headers"]), parking=parking)

    return Litestar(
        [
            enqueue, enqueue_batch, get_task, find_tasks, cancel_task, retry_task, get_job, cancel_job, workers,
            healthz, openapi,
        ],
        dependencies={
            "service": Provide(service, sync_to_thread=False),
            "outage": Provide(lambda: engine.outage, sync_to_thread=False),
        },
        before_request=_check_body,
        exception_handlers={Exception: _on_error},
        request_max_body_size=limits.MAX_BODY,
        openapi_config=OpenAPIConfig(
            title="Perdure", version="v1", use_handler_docstrings=True, render_plugins=[JsonRenderPlugin()]
        ),
        logging_config=None,
    )  # fmt: skip
