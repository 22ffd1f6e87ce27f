"""How long a history may become (RPLY-26, RPLY-27): it is read from its beginning by whoever does not have the run in
memory, so it has a bound, and a warning long before that."""

from __future__ import annotations

from perdure.core.limits import integer

MAX_EVENTS = 50_000
"""Of a history, unless the server is told otherwise; at it, only closing or continue-as-new goes on."""
LEAST_MAX_EVENTS = 100
"""The least that a server may be told: less, and runs could not even fail."""
_WARNED_PART = 0.6


def check_max_events(most: int) -> int:
    """A bound that somebody has set. InvalidArgument for one that is too low to work with, or no number."""
    return integer(most, "max_history_events", LEAST_MAX_EVENTS, 10_000_000)


def warns_at(most: int) -> int:
    """The number of events from which on a history of at most `most` is warned of: 30,000 of 50,000."""
    return int(most * _WARNED_PART)


def warning(events: int, most: int) -> str:
    """What people are told about a history of so many events; empty while all is well."""
    if events < warns_at(most):
        return ""
    return f"the history has {events} of at most {most} events: continue as new before it is full"


def crosses(before: int, after: int, most: int) -> bool:
    """Whether a history comes to where it is warned of by growing so."""
    return before < warns_at(most) <= after
