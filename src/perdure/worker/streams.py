"""Brings what handlers write to `ctx.stream` to the server: one request in flight, each a twentieth of a second after
the one before, or at once when a handler has ended.

A request that did not get through is repeated with the same numbers, so nothing is stored twice. A report waits until
the chunks before it are stored, or refused.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from weakref import ref

from perdure.client.base import Service
from perdure.core.errors import (
    Cancelled,
    Internal,
    InvalidArgument,
    LeaseLost,
    NotFound,
    PerdureError,
    from_problem,
)
from perdure.core.event_messages import StreamWrite, StreamWritten, WriteStream
from perdure.sdk.stream import StreamWriter
from perdure.worker.execute import Run

log = logging.getLogger("perdure.worker")

SECONDS = 0.05  #: from a chunk until it is sent, so that those behind it go along
_REQUEST_BYTES = 2 * 1024 * 1024
_MOST = 500
_PAUSE = (0.05, 2.0)


class Streams:
    """The streams of a worker's runs."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[Run, StreamWriter] = {}
        self._behind: dict[Run, Callable[[], None]] = {}
        self._urgent = asyncio.Event()
        self._sender: asyncio.Task[None] | None = None

    def open(self, runs: Iterable[Run]) -> None:
        """Let their handlers write. A run has its context, which therefore knows it by a weak reference only."""
        for run in runs:
            run.ctx.stream_to = partial(self._written, ref(run))

    def _written(self, run: ref[Run], writer: StreamWriter) -> None:
        """There are chunks to send; from any thread."""
        if (found := run()) is not None:
            self._loop.call_soon_threadsafe(self._add, found, writer)

    def _add(self, run: Run, writer: StreamWriter) -> None:
        self._waiting[run] = writer
        if self._sender is None:
            self._sender = self._loop.create_task(self._run())

    def after(self, run: Run, report: Callable[[], None]) -> None:
        """Call `report` once nothing of this run waits any more."""
        writer = run.ctx.stream_writer
        if writer is None or not writer.waiting(0)[1]:
            report()
            return
        self._behind[run] = report
        self._add(run, writer)
        self._urgent.set()

    async def cancel(self) -> None:
        """Give up what waits."""
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.wait([self._sender])

    async def _run(self) -> None:
        try:
            while self._waiting:
                with suppress(TimeoutError):
                    async with asyncio.timeout(SECONDS):
                        await self._urgent.wait()
                self._urgent.clear()
                await self._send(self._take())
        finally:
            self._sender = None

    def _take(self) -> list[Run]:
        """Those whose handlers have ended come first."""
        return sorted(self._waiting, key=lambda run: run not in self._behind)[:_MOST]

    async def _send(self, runs: list[Run]) -> None:
        """One request, repeated while the server takes none."""
        pause, longest = _PAUSE
        while runs := [run for run in runs if not self._is_lost(run)]:
            writes, sent = self._writes(runs)
            try:
                reply = await self._service.write_stream(WriteStream(writes))
            except Exception as error:  # noqa: BLE001 - whatever it was, the reports behind must not wait for ever
                fault = error if isinstance(error, PerdureError) else Internal(repr(error))
                if isinstance(fault, (InvalidArgument, Internal)):
                    await self._search(sent, fault)
                    return
                log.warning("%d streams wait for the server: %s", len(sent), fault)
                await asyncio.sleep(pause * (0.5 + random.random() / 2))
                pause = min(pause * 2, longest)
                continue
            for run, write, answer in zip(sent, writes, reply.outcomes, strict=True):
                self._settle(run, write, answer)
            return

    def _writes(self, runs: list[Run]) -> tuple[list[StreamWrite], list[Run]]:
        """What of these fits into a request, and whose it is."""
        room = _REQUEST_BYTES
        writes: list[StreamWrite] = []
        for run in runs:
            first, chunks = self._waiting[run].waiting(room)
            writes.append(StreamWrite(run.delivery.lease, first, chunks))
            room -= 100 + sum(len(chunk.data) for chunk in chunks)
            if room < 0:
                break
        return writes, runs[: len(writes)]

    async def _search(self, runs: list[Run], fault: PerdureError) -> None:
        """One of them spoils the request: halve until it is alone."""
        if len(runs) == 1:
            self._end(runs[0], fault)
            return
        middle = len(runs) // 2
        await self._send(runs[:middle])
        await self._send(runs[middle:])

    def _settle(self, run: Run, write: StreamWrite, answer: StreamWritten) -> None:
        if answer.error is not None:
            self._end(run, from_problem(answer.error))
        elif not self._waiting[run].stored(len(write.chunks)):
            self._done(run)

    def _is_lost(self, run: Run) -> bool:
        """Whether a heartbeat has heard that somebody else owns the task now."""
        lost = run.ctx.stop == "lost"
        if lost:
            self._end(run, LeaseLost())
        return lost

    def _end(self, run: Run, error: PerdureError) -> None:
        """The server takes no more of this stream; its handler hears why when it writes again."""
        lost = isinstance(error, (LeaseLost, NotFound))
        if not lost:
            log.error("task %s (%s): its stream ends: %s", run.delivery.task_id, run.delivery.type, error)
        self._waiting[run].end(Cancelled("lost") if lost else error)
        self._done(run)

    def _done(self, run: Run) -> None:
        self._waiting.pop(run, None)
        if (report := self._behind.pop(run, None)) is not None:
            report()
