"""The bodies of the wire protocol that are about limits; see core/limit_rules.py for what they mean."""

from __future__ import annotations

from datetime import datetime

from perdure.core.body import Body


class LimitSpec(Body):
    """What a limit allows; None does not limit. `scope` is "namespace" (`name` is ""), "queue", "type", "key" or
    "fairness". `max_running` are slots, 0 to 1,000,000; `rate` is text such as "10/s", "100/m" or "3/30s", with `burst`
    starts at once (1 to 1,000,000, by default as many as the rate says). A fairness key has a `weight` of 1 to 1,000
    and nothing else."""

    scope: str
    name: str = ""
    max_running: int | None = None
    rate: str | None = None
    burst: int | None = None
    weight: int | None = None
    note: str = ""


class SetLimit(Body):
    """Make or replace a limit. Whether it is paused does not change."""

    limit: LimitSpec


class PauseLimit(Body):
    """Let nothing start of a namespace, a queue, a type or a key, or let it start again. What runs goes on. Repeating
    it changes nothing but the note."""

    scope: str
    name: str = ""
    paused: bool = True
    note: str = ""


class DeleteLimit(Body):
    scope: str
    name: str = ""


class ListLimits(Body):
    """The limits of a namespace."""


class LimitView(Body):
    """A limit and how it stands. Of a key, `running` and `blocked` are sums over its values. `blocked` stops at 10,000
    for each subject."""

    scope: str
    name: str = ""
    max_running: int | None = None
    rate: str | None = None
    burst: int | None = None
    weight: int | None = None
    paused: bool = False
    note: str = ""
    declared: bool = False  #: by the code of an application, and not by an operator
    running: int = 0  #: slots taken
    blocked: int = 0  #: tasks that wait for it
    updated_at: datetime | None = None


class LimitReply(Body):
    """The limit as it is now; none where nothing limits any more."""

    limit: LimitView | None = None


class LimitsReply(Body):
    limits: list[LimitView]  #: by scope and name
