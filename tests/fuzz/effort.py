"""How much is tried. `make test` tries the same few examples each time, so that it is quick and says the same twice;
FUZZ=50 in the environment tries fifty times as many, other ones each time."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_TIMES = int(os.environ.get("FUZZ", "1"))


def effort(examples: int, *, steps: int = 50) -> settings:
    return settings(
        max_examples=examples * _TIMES,
        stateful_step_count=steps,
        derandomize=_TIMES == 1,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


def times(seeds: int) -> int:
    """How many seeds are tried."""
    return seeds * _TIMES
