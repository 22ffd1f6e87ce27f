"""Jobs come, are done and are deleted, on a clock that is stepped. Arguments: the store's URL, how many jobs.

Started by `python -m benchmarks`, which reads this process's memory and the size of the store whenever a line is
printed: every MINUTES of the stepped clock. Closed jobs are kept for 10 minutes of a run of 100, so a tenth of all jobs
is there at a time.
"""

from __future__ import annotations

import asyncio
import sys
import time

from benchmarks.growth import REQUEST, Hands
from perdure.api.service import Caller, Service
from perdure.core import commands as c
from perdure.core.model import SECOND
from perdure.engine.engine import Engine
from perdure.engine.retention import PAUSE, Retention
from perdure.store.base import Store
from perdure.store.postgres import PostgresStore
from perdure.store.sqlite import SqliteStore
from perdure.worker.process import calm_garbage_collector

KEEP_SECONDS = 600.0
RUN_SECONDS = 10 * KEEP_SECONDS
MINUTES = 5
_ROUND = 5 * REQUEST
_SEEN_SECONDS = 2.0  #: until the last line has been seen


class Clock:
    """Microseconds since the epoch; it moves when it is told to."""

    def __init__(self) -> None:
        self.shown = time.time_ns() // 1000

    def __call__(self) -> int:
        return self.shown


def _store(url: str, clock: Clock) -> Store:
    scheme, _, path = url.partition(":///")
    return SqliteStore(path, clock=clock) if scheme == "sqlite" else PostgresStore(url, clock=clock)


async def run(url: str, jobs: int) -> None:
    """All rounds. Alarms and retention run as often as they would on a clock that moves by itself, but for the pauses
    in which retention lets live work go first."""
    clock = Clock()
    store = _store(url, clock)
    await store.migrate()
    await store.open()
    engine = Engine(store, retention=KEEP_SECONDS)
    await engine.start(services=False)
    retention = Retention(engine.apply, engine.now, KEEP_SECONDS)
    hands = Hands(Service(engine, Caller("default")))
    await hands.open()
    rounds = jobs // _ROUND
    begun = trimmed = clock.shown
    lines = 0
    for number in range(1, rounds + 1):
        await hands.round(_ROUND)
        clock.shown = begun + int(RUN_SECONDS / rounds * number * SECOND)
        await engine.apply([c.Ring(limit=200), c.Reap(limit=200)])
        if clock.shown - trimmed >= PAUSE * SECOND:
            trimmed = clock.shown
            while await retention.run_once() < PAUSE:
                pass
        if clock.shown - begun >= (lines + 1) * MINUTES * 60 * SECOND:
            lines += 1
            if lines == 1:
                calm_garbage_collector()
            print(f"minute {lines * MINUTES}", flush=True)
    await asyncio.sleep(_SEEN_SECONDS)
    await engine.stop()
    await store.close()


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], int(sys.argv[2])))
