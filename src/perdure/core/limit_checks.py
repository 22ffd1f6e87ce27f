"""What callers may say of limits, checked; every error names the field, the limit and the kind of the value."""

from __future__ import annotations

from perdure.core import limit_messages as lm
from perdure.core import limits
from perdure.core.breaker import Circuit
from perdure.core.durations import seconds
from perdure.core.errors import InvalidArgument
from perdure.core.limit_rules import FAIRNESS, KEY, NAMESPACE, SCOPES, TYPE, Limit, LimitName
from perdure.core.model import SECOND

MAX_SHARE = 1_000  #: weight of a fairness key


def name(namespace: str, scope: str, name_: str) -> LimitName:
    """The name of a limit."""
    limits.choice(scope, "scope", SCOPES)
    if scope == NAMESPACE:
        if name_:
            raise InvalidArgument("a namespace has one limit", field="name", limit="no name", kind="str")
    else:
        limits.name(name_, "name")
    if scope == KEY and ":" in name_:
        text = "the limit of a key holds for all its values: its name ends before the colon"
        raise InvalidArgument(text, field="name", limit="no colon", kind="str")
    return (namespace, scope, name_)


def limit(namespace: str, spec: lm.LimitSpec, *, declared: bool = False) -> Limit:
    """What is to be stored."""
    made = Limit(*name(namespace, spec.scope, spec.name), declared=declared, note=limits.text(spec.note, "note"))
    if spec.scope == FAIRNESS:
        if spec.weight is None or (spec.max_running, spec.rate, spec.burst, spec.breaker) != (None,) * 4:
            raise InvalidArgument("a fairness key has a weight, and only that", field="weight", limit="weight alone")
        made.weight = limits.integer(spec.weight, "weight", 1, MAX_SHARE)
        return made
    if spec.weight is not None:
        raise InvalidArgument("only a fairness key has a weight", field="weight", limit="scope fairness", kind="int")
    if spec.max_running is None and spec.rate is None and spec.breaker is None:
        text = "a limit needs max_running, rate or breaker"
        raise InvalidArgument(text, field="max_running", limit="one of them or more")
    if spec.max_running is not None:
        made.max_running = limits.integer(spec.max_running, "max_running", 0, limits.MAX_SLOTS)
    if spec.rate is not None:
        made.rate, made.per = limits.starts_of(spec.rate)
        made.burst = made.rate if spec.burst is None else limits.integer(spec.burst, "burst", 1, limits.MAX_SLOTS)
    elif spec.burst is not None:
        raise InvalidArgument("burst says nothing without a rate", field="burst", limit="with rate", kind="int")
    if spec.breaker is not None:
        made.circuit = _circuit(spec.scope, spec.breaker)
    return made


def _circuit(scope: str, breaker: lm.Breaker) -> Circuit:
    """A breaker that has counted nothing."""
    if scope != TYPE:
        raise InvalidArgument("only a task type has a breaker", field="breaker", limit="scope type", kind="Breaker")
    given = limits.breaker(breaker)
    return Circuit(
        crashes=given.crashes,
        failure_rate=given.failure_rate,
        window=int(seconds(given.window, "breaker.window") * SECOND),
        min_attempts=given.min_attempts,
        cool_down=int(seconds(given.cool_down, "breaker.cool_down") * SECOND),
        probes=given.probes,
    )


def rate_text(found: Limit) -> str | None:
    """A rate as callers write it."""
    if found.rate is None or found.per is None:
        return None
    for unit, length in (("h", 3600 * SECOND), ("m", 60 * SECOND), ("s", SECOND), ("ms", SECOND // 1000)):
        if found.per % length == 0:
            number = found.per // length
            return f"{found.rate}/{unit}" if number == 1 else f"{found.rate}/{number}{unit}"
    return f"{found.rate}/{found.per / SECOND:f}s"
