"""Time and chance, as the modules of Perdure ask for them: from the simulation instead of from the machine."""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from perdure.sdk import mint
from tests.sim.loop import START, SimLoop


class WallClock:
    """The clock on the wall of the database's machine; `step` sets it forward or back."""

    def __init__(self, loop: SimLoop, begins: float) -> None:
        self._loop = loop
        self._set = begins - START

    def step(self, seconds: float) -> None:
        self._set += seconds

    def nanoseconds(self) -> int:
        return self.microseconds() * 1_000

    def microseconds(self) -> int:
        return round((self._loop.now + self._set) * 1_000_000)

    def monotonic_nanoseconds(self) -> int:
        return round(self._loop.now * 1e9)


@contextmanager
def simulated(loop: SimLoop, source: Random, begins: float) -> Iterator[None]:
    """Inside, the machine's clocks show the loop's time, and what is random comes from `source`."""

    def wall() -> float:
        return begins + loop.now - START

    instead: dict[tuple[Any, str], Any] = {
        (time, "monotonic"): loop.time,
        (time, "monotonic_ns"): lambda: round(loop.now * 1e9),
        (time, "time"): wall,
        (time, "time_ns"): lambda: round(wall() * 1e9),
        (os, "urandom"): source.randbytes,
        (os, "getpid"): lambda: 1,
        (socket, "gethostname"): lambda: "host",
    }
    before = {place: getattr(*place) for place in instead}
    state = random.getstate()
    random.seed(source.getrandbits(64))
    mint._RANDOM.clear()
    mint._sequence._last = 0
    for (module, name), value in instead.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for (module, name), value in before.items():
            setattr(module, name, value)
        random.setstate(state)
        mint._RANDOM.clear()
        mint._sequence._last = 0
