"""The REST interface to owners of queues. The names of queues stand in paths percent-encoded."""

from __future__ import annotations

from urllib.parse import unquote

import msgspec
from litestar import delete, put
from litestar.params import FromPath

from perdure.api.request import AnyRequest, Serving, body_of, read
from perdure.core.owners import DEFAULT_DEPTH, DeleteQueueOwner, SetQueueOwner


class OwnerRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """`owner` is a person, a team, an address. More ready tasks than `alert_depth` are a finding of the standing
    checks."""

    owner: str
    alert_depth: int = DEFAULT_DEPTH


class OwnerDocument(msgspec.Struct):
    """Who looks after a queue; `owner` is empty where nobody does."""

    queue: str
    owner: str


_OWNER = msgspec.json.Decoder(OwnerRequest)


@put("/v1/queues/{queue:str}", status_code=200, operation_id="setQueueOwner")
async def set_queue_owner(queue: FromPath[str], request: AnyRequest, service: Serving) -> OwnerDocument:
    """Say who looks after a queue and its dead letters, and how many ready tasks are too many."""
    data = read(await body_of(request), _OWNER)
    reply = await service.set_queue_owner(SetQueueOwner(unquote(queue), data.owner, data.alert_depth))
    return OwnerDocument(reply.queue, reply.owner)


@delete("/v1/queues/{queue:str}", status_code=200, operation_id="deleteQueueOwner")
async def delete_queue_owner(queue: FromPath[str], service: Serving) -> OwnerDocument:
    """Nobody looks after a queue any more. Its tasks stay."""
    reply = await service.delete_queue_owner(DeleteQueueOwner(unquote(queue)))
    return OwnerDocument(reply.queue, reply.owner)


HANDLERS = (set_queue_owner, delete_queue_owner)
