"""Notices that a worker did not run for a while: the machine slept, the process was stopped, or a handler blocked the
event loop.

What was delivered meanwhile may have been given to another worker since, because its receipt was not acknowledged in
time. So for a moment after it deliveries whose lease may be over are handed back, which is harmless if it is not.
"""

from __future__ import annotations

import time

from perdure.core.messages import Delivery
from perdure.core.model import DELIVERY_SECONDS


class Suspension:
    """`look` is to be called once an `interval` of seconds."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._awake_at = time.monotonic()
        self._lasted = 0.0
        self._woken_at = 0.0

    def look(self) -> float:
        """The seconds that the worker did not run, at least, since it was looked last."""
        now = time.monotonic()
        missed = now - self._awake_at - self._interval
        self._awake_at = now
        if missed > self._interval:
            self._lasted, self._woken_at = missed, now
            return missed
        return 0.0

    def outlasted(self, item: Delivery, asked_at: float) -> bool:
        """Whether the lease of a delivery that has arrived now may have ended meanwhile. One that was asked for after
        the worker woke may not: it would only come again and again."""
        now = time.monotonic()
        missed = now - self._awake_at - self._interval
        if now - self._woken_at < self._interval and asked_at < self._woken_at:
            missed = max(missed, self._lasted)
        return missed >= min(item.lease_seconds, DELIVERY_SECONDS)
