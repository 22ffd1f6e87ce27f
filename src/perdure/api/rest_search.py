"""The REST interface to counts and search attributes; lists take a `query` themselves."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import delete, get, post
from litestar.params import FromPath, FromQuery, QueryParameter

from perdure.api.request import AnyRequest, Serving, body_of, moment_of, read
from perdure.api.search_schema import (
    Count,
    SearchAttributeDocument,
    SearchAttributeList,
    SearchAttributeRemoved,
    SearchAttributeRequest,
)
from perdure.core import search_messages as s

QueryText = Annotated[
    str,
    QueryParameter(
        name="query", description="A query, such as `WorkflowType = 'order' AND ExecutionStatus = 'Running'`."
    ),
]

_ATTRIBUTE = msgspec.json.Decoder(SearchAttributeRequest)


@get("/v1/tasks:count", operation_id="countTasks")
async def count_tasks(
    service: Serving,
    state_: Annotated[str | None, QueryParameter(name="state")] = None,
    queue: FromQuery[str | None] = None,
    type_: Annotated[str | None, QueryParameter(name="type")] = None,
    since: FromQuery[str | None] = None,
    failure_group: FromQuery[str | None] = None,
    query_: QueryText = "",
) -> Count:
    """How many tasks the same filters list. A count stops at 100,000, or where a million rows were looked at."""
    begun = None if since is None else moment_of(since, "since")
    found = await service.count(s.Count(state_, queue, type_, begun, failure_group, query_))
    return Count(found.count, found.at_least)


@get("/v1/workflows:count", operation_id="countWorkflows")
async def count_workflows(
    service: Serving,
    status_: Annotated[str | None, QueryParameter(name="status")] = None,
    type_: Annotated[str | None, QueryParameter(name="type")] = None,
    workflow_id: FromQuery[str | None] = None,
    queue: FromQuery[str | None] = None,
    since: FromQuery[str | None] = None,
    open_: Annotated[bool, QueryParameter(name="open", description="Leave out closed runs.")] = False,
    requires_intervention: FromQuery[bool] = False,
    query_: QueryText = "",
) -> Count:
    """How many runs the same filters list. A count stops at 100,000, or where a million rows were looked at."""
    begun = None if since is None else moment_of(since, "since")
    body = s.CountWorkflows(status_, type_, workflow_id, queue, begun, open_, requires_intervention, query_)
    found = await service.count_workflows(body)
    return Count(found.count, found.at_least)


@get("/v1/search-attributes", operation_id="listSearchAttributes")
async def list_search_attributes(service: Serving) -> SearchAttributeList:
    """The search attributes that queries may name."""
    found = await service.search_attributes(s.ListSearchAttributes())
    return SearchAttributeList([SearchAttributeDocument(one.name, one.type) for one in found.attributes])


@post("/v1/search-attributes", status_code=200, operation_id="addSearchAttribute")
async def add_search_attribute(request: AnyRequest, service: Serving) -> SearchAttributeDocument:
    """Let queries name a search attribute. Runs that have it are found at once. Harmless when repeated."""
    data = read(await body_of(request), _ATTRIBUTE)
    added = await service.add_search_attribute(s.AddSearchAttribute(data.name, data.type))
    return SearchAttributeDocument(added.name, added.type)


@delete("/v1/search-attributes/{name:str}", status_code=200, operation_id="removeSearchAttribute")
async def remove_search_attribute(name: FromPath[str], service: Serving) -> SearchAttributeRemoved:
    """Let queries name it no more; runs keep what they have."""
    await service.remove_search_attribute(s.RemoveSearchAttribute(name))
    return SearchAttributeRemoved(name)


HANDLERS = (count_tasks, count_workflows, list_search_attributes, add_search_attribute, remove_search_attribute)
QUERIES: dict[str, tuple[str, ...]] = {
    "count_tasks": ("state", "queue", "type", "since", "failure_group", "query"),
    "count_workflows": (
        "status", "type", "workflow_id", "queue", "since", "open", "requires_intervention", "query",
    ),
}  # fmt: skip
"""What the query of a handler may hold."""
