"""The REST interface to limits. The names of queues stand in paths percent-encoded."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import unquote

import msgspec
from litestar import Response, delete, get, post, put
from litestar.params import FromPath, FromQuery, QueryParameter

from perdure.api.limit_schema import (
    LimitDeleted,
    LimitDocument,
    LimitList,
    LimitRequest,
    PauseQueueRequest,
    QueuePaused,
    SwitchRequest,
    document,
)
from perdure.api.request import AnyRequest, Serving, body_of, read, read_optional
from perdure.api.service import Service
from perdure.core import limit_messages as lm

PREFIX = "/v1/queues/"
"""Of paths that hold the name of a queue."""

_LIMIT = msgspec.json.Decoder(LimitRequest)
_PAUSE = msgspec.json.Decoder(PauseQueueRequest)
_SWITCH = msgspec.json.Decoder(SwitchRequest)


@get("/v1/limits", operation_id="listLimits")
async def list_limits(service: Serving) -> LimitList:
    """The limits of the namespace, and how they stand: slots taken, and tasks that wait for them (counts stop at
    10,000 for each value of a key)."""
    return LimitList([document(view) for view in (await service.limits(lm.ListLimits())).limits])


@put("/v1/limits", status_code=200, operation_id="setLimit")
async def set_limit(request: AnyRequest, service: Serving) -> LimitDocument:
    """Make or replace a limit, while everything runs. Whether it is paused does not change."""
    data = read(await body_of(request), _LIMIT)
    reply = await service.set_limit(lm.SetLimit(lm.LimitSpec(**msgspec.structs.asdict(data))))
    assert reply.limit is not None
    return document(reply.limit)


@delete("/v1/limits", status_code=200, operation_id="deleteLimit")
async def delete_limit(
    scope_: Annotated[str, QueryParameter(name="scope")], service: Serving, name: FromQuery[str] = ""
) -> LimitDeleted:
    """Limit it no more. What waits for it starts."""
    await service.delete_limit(lm.DeleteLimit(scope_, name))
    return LimitDeleted(scope_, name)


@put("/v1/limits/breaker", status_code=200, operation_id="switchBreaker")
async def switch_breaker(request: AnyRequest, service: Serving) -> LimitDocument:
    """Open the breaker of a task type for a cool-down from now on, or close it. Answers the limit of the type."""
    data = read(await body_of(request), _SWITCH)
    reply = await service.switch_breaker(lm.SwitchBreaker(data.type, data.open, data.note))
    assert reply.limit is not None
    return document(reply.limit)


@post("/v1/queues/{queue:str}/pause", status_code=200, operation_id="pauseQueue")
async def pause_queue(queue: FromPath[str], request: AnyRequest, service: Serving) -> Response[QueuePaused]:
    """Start nothing more of a queue until it is resumed; what runs goes on. The body, {"note"}, may be left out.
    Harmless when repeated."""
    return await _pause(unquote(queue), request, service, True)


@post("/v1/queues/{queue:str}/resume", status_code=200, operation_id="resumeQueue")
async def resume_queue(queue: FromPath[str], request: AnyRequest, service: Serving) -> Response[QueuePaused]:
    """Go on with a queue. Harmless when repeated."""
    return await _pause(unquote(queue), request, service, False)


async def _pause(queue: str, request: AnyRequest, service: Service, paused: bool) -> Response[QueuePaused]:
    data = await read_optional(request, _PAUSE) or PauseQueueRequest()
    await service.pause_limit(lm.PauseLimit("queue", queue, paused, data.note))
    return Response(QueuePaused(queue, paused, data.note if paused else ""), status_code=200)


HANDLERS = (list_limits, set_limit, delete_limit, switch_breaker, pause_queue, resume_queue)
QUERIES: dict[str, tuple[str, ...]] = {"delete_limit": ("scope", "name")}
"""What the query of a handler may hold."""
