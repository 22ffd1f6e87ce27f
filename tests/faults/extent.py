"""How long the faults last: short in the test run, their full length by `make faults`."""

from __future__ import annotations

import os

FULL = os.environ.get("PERDURE_FAULTS") == "full"


def extent(short: float, full: float) -> float:
    """Seconds, or a number of times."""
    return full if FULL else short
