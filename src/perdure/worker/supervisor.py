"""Keeps worker processes running, and tells the server at once when one has died.

A dead process's leases would run out by themselves, but only after half a minute. Its supervisor knows the moment it
happens, and it chose the incarnation of the process, so it can end the session for it. Then it starts another one: at
once, or after a pause that grows while they die young.

A process that is worn says so and drains; another one takes its place at once, while the handlers of the old one end
in their own time.

The processes are sessions of their own, so that a Ctrl-C in a terminal reaches the supervisor alone, which forwards it.
When one has died, what its handlers had started in that session is ended as well: their tasks run again elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from perdure.core.errors import PerdureError
from perdure.worker.process import SUPERVISED, ProcessReport
from perdure.worker.receipts import Receipts
from perdure.worker.status import Health, ProcessHealth, WorkerStatus
from perdure.worker.worker import new_incarnation

log = logging.getLogger("perdure.supervisor")

YOUNG_SECONDS = 10.0
"""A process that dies before this age makes the next start wait."""
SHORTEST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
LONGEST_REPORT = 2.0  #: seconds that the next worker waits for the server to hear of a death
_REPORT_BYTES = 64 * 1024
_TIED_SECONDS = 0.3
"""For a process whose tie has ended to end as well: sooner than the server notices that its connection has."""


class Supervisor:
    """Runs `processes` processes of `command`. `died` tells the server that an incarnation is gone, and which leases it
    had begun in its last seconds. An exit status in `hopeless` (such as a module that cannot be loaded) is not tried
    again: it ends all."""

    def __init__(
        self,
        command: Sequence[str],
        processes: int,
        died: Callable[[int, list[bytes]], Awaitable[None]],
        hopeless: frozenset[int] = frozenset(),
    ) -> None:
        self._command = command
        self._processes = processes
        self._died = died
        self._hopeless = hopeless
        self._living: set[_Child] = set()
        self._leaving: set[asyncio.Task[tuple[int, bool]]] = set()  #: replaced already, and not yet gone
        self._reports: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._hurry = asyncio.Event()
        self._status = 0

    async def run(self) -> int:
        """Until `stop`, or a hopeless exit; the exit status for the supervisor's own process."""
        await asyncio.gather(*(self._keep() for _ in range(self._processes)))
        if self._leaving:
            await asyncio.wait(self._leaving)
        if self._reports:
            await asyncio.wait(self._reports)
        return self._status

    def stop(self) -> None:
        """Drain all; `run` returns when they are gone."""
        self._stopping = True
        self.restart()

    def kill(self) -> None:
        """End all at once, with what their handlers started."""
        for child in self._living:
            child.kill()

    def restart(self) -> None:
        """Drain the processes that run now; others take their place, without a pause."""
        self._hurry.set()
        for child in self._living:
            child.drain()

    def health(self) -> Health:
        """How the processes are, as far as they have told."""
        now = time.monotonic()
        return Health(
            self._stopping,
            [ProcessHealth(child.pid, round(now - child.heard_at, 3), child.status) for child in self._living],
        )

    async def _keep(self) -> None:
        """One process after the other."""
        pause = 0.0
        while not self._stopping:
            born = time.monotonic()
            child = await self._start()
            ended = asyncio.create_task(self._see_off(child))
            if await self._is_leaving(child, ended):
                self._leaving.add(ended)
                ended.add_done_callback(self._leaving.discard)
                pause = 0.0
                continue
            status, clean = await ended
            if status in self._hopeless and not child.worked:  # else a handler ended it with that status
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
                if self._reports:  # else what killed this one may be given to the next before it was counted
                    await asyncio.wait(self._reports, timeout=LONGEST_REPORT)

    async def _is_leaving(self, child: _Child, ended: asyncio.Task[tuple[int, bool]]) -> bool:
        """Returns when the process has ended: False; or wants to be replaced: True. Of those that were replaced no more
        may linger than there are others, or they would fill the machine."""
        leaving = asyncio.create_task(child.leaving.wait())
        await asyncio.wait((ended, leaving), return_when=asyncio.FIRST_COMPLETED)
        leaving.cancel()
        return not ended.done() and len(self._leaving) < self._processes

    async def _start(self) -> _Child:
        incarnation = new_incarnation()
        ours, theirs = socket.socketpair()
        with theirs, Receipts.file() as notes:
            receipts = Receipts(notes.fileno())
            try:
                process = await asyncio.create_subprocess_exec(
                    *self._command,
                    env={**os.environ, SUPERVISED: f"{incarnation}:{theirs.fileno()}:{notes.fileno()}"},
                    pass_fds=(theirs.fileno(), notes.fileno()),
                    start_new_session=True,
                )
            except BaseException:
                ours.close()
                receipts.close()
                raise
        child = _Child(incarnation, process, ours, receipts)
        self._living.add(child)
        if self._stopping:
            child.drain()
        return child

    async def _see_off(self, child: _Child) -> tuple[int, bool]:
        """When a process has ended: its exit status, negative for a signal, and whether it drained as it was told, or
        as it had said. Status 0 by itself says nothing: a handler may have called `os._exit(0)`."""
        status = await child.process.wait()
        self._living.discard(child)
        clean = status == 0 and (child.drained or child.leaving.is_set())
        if not clean:
            child.kill()
            if not self._stopping:
                log.error("worker process %d died with status %d", child.pid, status)
            report = asyncio.create_task(self._report(child.incarnation, child.receipts.recent()))
            self._reports.add(report)
            report.add_done_callback(self._reports.discard)
        child.let_go()
        return status, clean

    async def _report(self, incarnation: int, begun: list[bytes]) -> None:
        try:
            await self._died(incarnation, begun)
        except PerdureError as error:
            log.warning("the server did not hear of the death; its leases will run out: %s", error)


class _Child:
    """A worker process, and what it has told."""

    def __init__(
        self, incarnation: int, process: asyncio.subprocess.Process, tie: socket.socket, receipts: Receipts
    ) -> None:
        self.incarnation = incarnation
        self.receipts = receipts
        self.process = process
        self.pid = process.pid
        self.drained = False  #: it was told to drain
        self.leaving = asyncio.Event()  #: it drains by itself and wants to be replaced
        self.worked = False  #: it had a session with the server
        self.status: WorkerStatus | None = None
        self.heard_at = time.monotonic()
        self._tie = tie
        self._heard = b""
        tie.setblocking(False)
        asyncio.get_running_loop().add_reader(tie, self._hear)

    def drain(self) -> None:
        """By a signal, and by the tie: a handler may have changed what signals do."""
        self.drained = True
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(OSError):
            self._tie.shutdown(socket.SHUT_WR)

    def kill(self) -> None:
        """The whole session: the process, if it lives, and what its handlers started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def let_go(self) -> None:
        asyncio.get_running_loop().remove_reader(self._tie)
        self._tie.close()
        self.receipts.close()

    def _hear(self) -> None:
        try:
            data = self._tie.recv(_REPORT_BYTES)
        except OSError:  # it died with something unread
            data = b""
        if not data:
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._tie)
            loop.call_later(_TIED_SECONDS, self._end)
            return
        *lines, self._heard = (self._heard + data).split(b"\n")
        for line in lines:
            report = msgspec.json.decode(line, type=ProcessReport)
            self.heard_at = time.monotonic()
            self.status = report.status or self.status
            self.worked |= report.status is not None and report.status.connected
            if report.leaving:
                self.leaving.set()

    def _end(self) -> None:
        """A process without its tie is no worker any more: a handler has closed its descriptors, or called `exec`."""
        if self.process.returncode is None:
            log.error("worker process %d does not answer for itself any more; it is killed", self.pid)
            self.kill()
