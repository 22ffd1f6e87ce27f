"""The bodies of the wire protocol that are about limits; see core/limit_rules.py for what they mean."""

from __future__ import annotations

from datetime import datetime

from perdure.core.body import Body
from perdure.core.durations import Duration


class Breaker(Body):
    """When a task type gets a rest: after `crashes` in a row (1 to 100), or once `failure_rate` (more than 0, up to 1)
    of the attempts failed that ended within the `window` (1 s to 1 day), if these are `min_attempts` (1 to 1,000,000)
    or more. One of the two is given, or both. For `cool_down` (0.1 s to 1 day) nothing starts; then `probes` (1 to 100)
    do, and if all of them succeed it is over."""

    crashes: int | None = None
    failure_rate: float | None = None
    window: Duration = 60.0
    min_attempts: int = 20
    cool_down: Duration = 30.0
    probes: int = 1


class LimitSpec(Body):
    """What a limit allows; None does not limit. `scope` is "namespace" (`name` is ""), "queue", "type", "key" or
    "fairness". `max_running` are slots, 0 to 1,000,000; `rate` is text such as "10/s", "100/m" or "3/30s", with `burst`
    starts at once (1 to 1,000,000, by default as many as the rate says). A fairness key has a `weight` of 1 to 1,000
    and nothing else. A type may have a `breaker`."""

    scope: str
    name: str = ""
    max_running: int | None = None
    rate: str | None = None
    burst: int | None = None
    weight: int | None = None
    note: str = ""
    breaker: Breaker | None = None


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


class SwitchBreaker(Body):
    """Open the breaker of a type for a cool-down from now on, or close it. `note` says why."""

    name: str
    open: bool
    note: str = ""


class ListLimits(Body):
    """The limits of a namespace."""


class BreakerView(Body):
    """A breaker and how it stands. `state` is "closed", "open" or "half_open"; `in_a_row` are crashes; `attempts` and
    `failed` those that ended in the window, as of the last one."""

    crashes: int | None
    failure_rate: float | None
    window: float  #: seconds, as is cool_down
    min_attempts: int
    cool_down: float
    probes: int
    state: str
    since: datetime | None  #: none where it never opened
    until: datetime | None  #: while it is open: the end of the cool-down
    reason: str
    in_a_row: int
    attempts: int
    failed: int


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
    breaker: BreakerView | None = None


class LimitReply(Body):
    """The limit as it is now; none where nothing limits any more."""

    limit: LimitView | None = None


class LimitsReply(Body):
    limits: list[LimitView]  #: by scope and name
