"""The one loop of all background services: `run_once` does a bounded piece of work and says when it wants to run
again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Protocol

from perdure.core.errors import Unavailable
from perdure.engine.outage import Outage
from perdure.store.base import StoreFault

log = logging.getLogger("perdure.engine")


class Service(Protocol):
    """Something that must happen again and again."""

    name: str

    async def run_once(self) -> float:
        """Do a bounded piece of work; seconds until the next one is wanted (0: at once)."""
        ...


class Loop:
    """Runs a service until stopped. `nudge` makes it run at once; a database fault makes it try again with back-off."""

    def __init__(self, service: Service, outage: Outage | None = None) -> None:
        self._service = service
        self._outage = outage or Outage()
        self._nudged = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"perdure-{self._service.name}")

    def nudge(self) -> None:
        self._nudged.set()

    async def stop(self) -> None:
        """Idempotent, and safe before start."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        faults = 0
        while True:
            try:
                pause = await self._service.run_once()
                faults = 0
            except (StoreFault, Unavailable) as fault:
                faults += 1
                pause = min(0.05 * 2 ** min(faults, 10), 2.0)
                if isinstance(fault, StoreFault):
                    self._outage.fault(fault)
            except Exception:  # a bug in one run must not end what has to happen again and again
                log.exception("%s failed; it goes on in a second", self._service.name)
                pause = 1.0
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):  # wait_for can swallow a cancel that meets a nudge
                    await self._nudged.wait()
            self._nudged.clear()
