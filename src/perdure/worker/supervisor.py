"""Keeps worker processes running, and tells the server at once when one has died.

A dead process's leases would run out by themselves, but only after half a minute. Its supervisor knows the moment it
happens, and it chose the incarnation of the process, so it can end the session for it. Then it starts another one: at
once, or after a pause that grows while they die young.

The processes are sessions of their own, so that a Ctrl-C in a terminal reaches the supervisor alone, which forwards it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable, Sequence

from perdure.core.errors import PerdureError
from perdure.worker.process import SUPERVISED
from perdure.worker.worker import new_incarnation

log = logging.getLogger("perdure.supervisor")

YOUNG_SECONDS = 10.0
"""A process that dies before this age makes the next start wait."""
SHORTEST_PAUSE = 0.5
LONGEST_PAUSE = 30.0


class Supervisor:
    """Runs `processes` processes of `command`. `died` tells the server that an incarnation is gone. An exit status in
    `hopeless` (such as a module that cannot be loaded) is not tried again: it ends all."""

    def __init__(
        self,
        command: Sequence[str],
        processes: int,
        died: Callable[[int], Awaitable[None]],
        hopeless: frozenset[int] = frozenset(),
    ) -> None:
        self._command = command
        self._processes = processes
        self._died = died
        self._hopeless = hopeless
        self._living: dict[int, asyncio.subprocess.Process] = {}
        self._drained: set[int] = set()  #: process ids of those that were told to drain
        self._reports: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._hurry = asyncio.Event()
        self._status = 0

    async def run(self) -> int:
        """Until `stop`, or a hopeless exit; the exit status for the supervisor's own process."""
        reading, writing = os.pipe()  # nobody writes: the children's end ends when this process does
        try:
            await asyncio.gather(*(self._keep(reading) for _ in range(self._processes)))
            if self._reports:
                await asyncio.wait(self._reports)
        finally:
            os.close(reading)
            os.close(writing)
        return self._status

    def stop(self) -> None:
        """Drain all; `run` returns when they are gone."""
        self._stopping = True
        self.restart()

    def kill(self) -> None:
        """End all at once."""
        for process in self._living.values():
            process.kill()

    def restart(self) -> None:
        """Drain the processes that run now; others take their place, without a pause."""
        self._hurry.set()
        for process in self._living.values():
            self._drain(process)

    def _drain(self, process: asyncio.subprocess.Process) -> None:
        self._drained.add(process.pid)
        process.send_signal(signal.SIGTERM)

    async def _keep(self, pipe: int) -> None:
        """One process after the other."""
        pause = 0.0
        while not self._stopping:
            born = time.monotonic()
            status, clean = await self._one(pipe)
            if status in self._hopeless:
                self._status = status
                self.stop()
            young = not clean and time.monotonic() - born < YOUNG_SECONDS
            pause = min(max(pause * 2, SHORTEST_PAUSE), LONGEST_PAUSE) if young else 0.0
            if pause and not self._stopping:
                log.warning("the next worker starts in %.1f s", pause)
                self._hurry.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._hurry.wait()

    async def _one(self, pipe: int) -> tuple[int, bool]:
        """A process from start to end: its exit status, negative for a signal, and whether it drained as it was told.
        Status 0 by itself says nothing: a handler may have called `os._exit(0)`."""
        incarnation = new_incarnation()
        process = await asyncio.create_subprocess_exec(
            *self._command,
            env={**os.environ, SUPERVISED: f"{incarnation}:{pipe}"},
            pass_fds=(pipe,),
            start_new_session=True,
        )
        self._living[process.pid] = process
        if self._stopping:
            self._drain(process)
        status = await process.wait()
        del self._living[process.pid]
        clean = status == 0 and process.pid in self._drained
        self._drained.discard(process.pid)
        if not clean:
            if not self._stopping:
                log.error("worker process %d died with status %d", process.pid, status)
            report = asyncio.create_task(self._report(incarnation))
            self._reports.add(report)
            report.add_done_callback(self._reports.discard)
        return status, clean

    async def _report(self, incarnation: int) -> None:
        try:
            await self._died(incarnation)
        except PerdureError as error:
            log.warning("the server did not hear of the death; its leases will run out: %s", error)
