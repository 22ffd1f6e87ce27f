"""What the REST interface takes and shows of limits."""

from __future__ import annotations

from datetime import datetime

import msgspec

from perdure.core.limit_messages import Breaker, BreakerView, LimitView


class LimitRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """`scope`: "namespace" (without a name), "queue", "type", "key" (for each value of a concurrency key) or
    "fairness". `max_running` are slots at once; `rate` starts, such as "10/s" or "100/m", of which `burst` may come at
    once. A fairness key has a `weight`, the tasks it gets in a round, and nothing else. A type
    may have a `breaker`."""

    scope: str
    name: str = ""
    max_running: int | None = None
    rate: str | None = None
    burst: int | None = None
    weight: int | None = None
    note: str = ""
    breaker: Breaker | None = None


class LimitDocument(msgspec.Struct):
    """A limit and how it stands. Of a key, `running` and `blocked` are sums over its values."""

    scope: str
    name: str
    max_running: int | None
    rate: str | None
    burst: int | None
    weight: int | None
    paused: bool  #: nothing starts
    note: str
    declared: bool  #: by the code of an application, and not by an operator
    running: int  #: slots taken
    blocked: int  #: tasks that wait for it
    updated_at: datetime | None
    breaker: BreakerView | None


class LimitList(msgspec.Struct):
    """By scope and name."""

    limits: list[LimitDocument]


class LimitDeleted(msgspec.Struct):
    scope: str
    name: str


class PauseQueueRequest(msgspec.Struct, forbid_unknown_fields=True):
    note: str = ""


class SwitchRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Of the breaker of which type, and whether it is to be open."""

    type: str
    open: bool
    note: str = ""


class QueuePaused(msgspec.Struct):
    queue: str
    paused: bool
    note: str


def document(view: LimitView) -> LimitDocument:
    return LimitDocument(**{name: getattr(view, name) for name in LimitDocument.__struct_fields__})
