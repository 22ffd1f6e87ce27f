"""Deletes what is older than its retention: closed tasks by closing time, keys by expiry, in bounded steps. Work that
is not closed is never touched (PERS-13, PERS-20)."""

from __future__ import annotations

from collections.abc import Callable

from perdure.core import commands as c
from perdure.core.model import SECOND
from perdure.engine.alarms import Apply

LIMIT = 500  #: rows a step
PAUSE = 30.0  #: seconds between looks when there is nothing to do
BREATH = 0.05  #: seconds between steps when there is: live work goes first
PATIENCE = 20
"""Steps after which a breath is half as long: more closes than is deleted, and a table must not grow for ever because
its server is busy."""


class Retention:
    """The service; `seconds` is how long a closed task is kept."""

    name = "retention"

    def __init__(self, apply: Apply, now: Callable[[], int], seconds: float) -> None:
        self._apply = apply
        self._now = now
        self._keep = int(seconds * SECOND)
        self._steps = 0  #: that there was more to do after

    async def run_once(self) -> float:
        (outcome,) = await self._apply([c.Trim(closed_before=self._now() - self._keep, limit=LIMIT)])
        full = isinstance(outcome, c.Did) and outcome.count >= LIMIT
        self._steps = self._steps + 1 if full else 0
        return BREATH / 2 ** min(self._steps // PATIENCE, 10) if full else PAUSE
