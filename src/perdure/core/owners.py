"""Who looks after a queue and its dead letters (OPS-02), and what of it people should know."""

from __future__ import annotations

import msgspec

from perdure.core import limits
from perdure.core.body import Body

DEFAULT_DEPTH = 10_000
MAX_DEPTH = 1_000_000


class QueueOwner(msgspec.Struct, frozen=True):
    """As it is stored; field names and their order are those of the columns."""

    namespace: str
    queue: str
    owner: str
    alert_depth: int  #: more ready tasks than this are too many
    updated_at: int


class SetQueueOwner(Body):
    """Say who looks after a queue: a person, a team, an address. More ready tasks than `alert_depth` (1 to 1,000,000)
    are a finding of the standing checks."""

    queue: str
    owner: str
    alert_depth: int = DEFAULT_DEPTH


class DeleteQueueOwner(Body):
    """Nobody looks after it any more. NotFound when nobody did."""

    queue: str


class OwnerReply(Body):
    queue: str
    owner: str = ""


def checked(body: SetQueueOwner, namespace: str, now: int) -> QueueOwner:
    """What is to be stored; InvalidArgument names the field."""
    return QueueOwner(
        namespace,
        limits.name(body.queue, "queue"),
        limits.name(body.owner, "owner"),
        limits.integer(body.alert_depth, "alert_depth", 1, MAX_DEPTH),
        now,
    )
