"""The REST interface to dead letters, actions on many jobs, and the standing checks."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import Response, get, post
from litestar.params import FromPath, FromQuery, QueryParameter

from perdure.api import failure_schema as fs
from perdure.api import openapi
from perdure.api.request import PACE, AnyRequest, Key, Serving, Wait, read_optional, utf8, wait_of
from perdure.api.service import Service
from perdure.core import doctor_messages as d
from perdure.core import failure_messages as f
from perdure.core import messages as m
from perdure.core.errors import InvalidArgument

FilterText = Annotated[
    str | None, QueryParameter(name="filter", description="Instead of a body: name=value,... of the filter's fields.")
]
Begun = Response[fs.BulkDocument] | Response[fs.BulkCount]
_BULK = msgspec.json.Decoder(fs.BulkRequest)


@get("/v1/failures", operation_id="listFailures")
async def list_failures(
    service: Serving,
    type_: Annotated[str | None, QueryParameter(name="type")] = None,
    limit: FromQuery[int] = 50,
) -> fs.FailureList:
    """Tasks and workflow runs that failed for good, grouped by type, type of the error and message; those that grew
    last first. What was retried is not counted any more."""
    return fs.failure_list(await service.failures(f.ListFailures(type_, limit)))


@post(["/v1/tasks:retry", "/tasks:retry"], status_code=202, operation_id=openapi.by_path("retryTasks"))
async def retry_tasks(
    request: AnyRequest, service: Serving, idempotency_key: Key = None, filter_: FilterText = None
) -> Begun:
    """Retry all jobs that a filter finds, dead letters if it names no state: new tasks like them, each linked to the
    old one. A second retry of a job makes no second task."""
    return await _begin("retry", request, service, idempotency_key, filter_)


@post(["/v1/tasks:cancel", "/tasks:cancel"], status_code=202, operation_id=openapi.by_path("cancelTasks"))
async def cancel_tasks(
    request: AnyRequest, service: Serving, idempotency_key: Key = None, filter_: FilterText = None
) -> Begun:
    """Cancel all open jobs that a filter finds: at once what waits, cooperatively what runs."""
    return await _begin("cancel", request, service, idempotency_key, filter_)


@post(["/v1/tasks:delete", "/tasks:delete"], status_code=202, operation_id=openapi.by_path("deleteTasks"))
async def delete_tasks(
    request: AnyRequest, service: Serving, idempotency_key: Key = None, filter_: FilterText = None
) -> Begun:
    """Delete all closed jobs that a filter finds, before their retention is over."""
    return await _begin("delete", request, service, idempotency_key, filter_)


@post("/v1/workflows:cancel", status_code=202, operation_id="cancelWorkflows")
async def cancel_workflows(
    request: AnyRequest, service: Serving, idempotency_key: Key = None, filter_: FilterText = None
) -> Begun:
    """Ask the code of all open workflow runs that a filter finds to end; it may clean up first."""
    return await _begin("cancel_runs", request, service, idempotency_key, filter_)


@post("/v1/workflows:terminate", status_code=202, operation_id="terminateWorkflows")
async def terminate_workflows(
    request: AnyRequest, service: Serving, idempotency_key: Key = None, filter_: FilterText = None
) -> Begun:
    """Close all open workflow runs that a filter finds at once; their code does not hear of it."""
    return await _begin("terminate_runs", request, service, idempotency_key, filter_)


async def _begin(action: str, request: AnyRequest, service: Service, key: str | None, query: str | None) -> Begun:
    data = await read_optional(request, _BULK) or fs.BulkRequest()
    header = utf8(key)
    if header and data.request_id and header != data.request_id:
        raise InvalidArgument("request_id is not the Idempotency-Key", field="request_id", limit="one of them")
    filter = fs.filter_of(data.filter, query)
    view = await service.start_bulk(f.StartBulk(action, filter, header or data.request_id, data.dry_run, data.reason))
    if data.dry_run:
        return Response(fs.BulkCount(view.action, view.total, view.at_least), status_code=200)
    return _accepted(view)


@get("/v1/bulk", operation_id="listBulkActions")
async def list_bulk(service: Serving, limit: FromQuery[int] = 50, cursor: FromQuery[str | None] = None) -> fs.BulkList:
    """Actions on many jobs, newest first."""
    page = await service.find_bulk(f.FindBulk(limit, cursor))
    return fs.BulkList([fs.bulk_document(view) for view in page.actions], page.next)


@get("/v1/bulk/{action_id:str}", operation_id="getBulkAction")
async def get_bulk(action_id: FromPath[str], service: Serving, wait: Wait = "0") -> Response[fs.BulkDocument]:
    """How far an action is, and what it could not do."""
    view = await service.get_bulk(f.GetBulk(action_id, wait_of(wait)))
    return Response(fs.bulk_document(view), headers=PACE)


@post("/v1/bulk/{action_id:str}/cancel", status_code=202, operation_id="cancelBulkAction")
async def cancel_bulk(action_id: FromPath[str], service: Serving) -> Response[fs.BulkDocument]:
    """End an action; what it has done stays done. Harmless when it has ended."""
    await service.get_bulk(f.GetBulk(action_id))
    await service.cancel(m.Cancel(action_id))
    return _accepted(await service.get_bulk(f.GetBulk(action_id)))


@get("/v1/doctor", operation_id="runDoctor")
async def run_doctor(service: Serving) -> fs.DoctorReport:
    """Run the standing checks now: what should not be as it is, and what to do. They read, and change nothing."""
    return fs.report(await service.doctor(d.Doctor()))


def _accepted(view: f.BulkView) -> Response[fs.BulkDocument]:
    document = fs.bulk_document(view)
    return Response(document, status_code=202, headers={**PACE, "Location": document.links.itself})


HANDLERS = (
    list_failures, retry_tasks, cancel_tasks, delete_tasks, cancel_workflows, terminate_workflows, list_bulk, get_bulk,
    cancel_bulk, run_doctor,
)  # fmt: skip
QUERIES: dict[str, tuple[str, ...]] = {
    "list_failures": ("type", "limit"),
    "retry_tasks": ("filter",),
    "cancel_tasks": ("filter",),
    "delete_tasks": ("filter",),
    "cancel_workflows": ("filter",),
    "terminate_workflows": ("filter",),
    "list_bulk": ("limit", "cursor"),
    "get_bulk": ("wait",),
}
"""What the query of a handler may hold."""
