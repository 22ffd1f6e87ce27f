"""Reports how attempts ended: one request in flight, the rest gathers behind it, and none is forgotten.

A report that did not get through is repeated until it is answered: its lease is kept alive meanwhile, and the server
answers a repeated report with what it recorded the first time. Only an answer ends it, or the loss of its lease, so
after `flush` no handler that returned runs again (field case B122).

A server that takes no reports at all is asked again and again by the one request; what gathers behind it would fare no
better. A report that the server has no answer for, as when it fails at storing that very one, steps aside and comes
again later. Its outcome stays what it was: only an error about the outcome itself makes it another.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from functools import partial

from perdure.client.base import Service
from perdure.core.errors import (
    Conflict,
    IllegalMove,
    Internal,
    InvalidArgument,
    LeaseLost,
    NotFound,
    PayloadTooLarge,
    PerdureError,
)
from perdure.core.messages import Complete, Completed, Completion
from perdure.sdk.batch import Batcher
from perdure.worker.execute import Run, refused, undecided
from perdure.worker.streams import Streams

log = logging.getLogger("perdure.worker")

Report = tuple[Run, Completion, float]
"""With the seconds that it steps aside for, the next time."""

_MOST = 500
_REQUEST_BYTES = 4 * 1024 * 1024
_PAUSE = (0.05, 2.0)
_REFUSALS = frozenset(error.code for error in (InvalidArgument, PayloadTooLarge))
_LOST = frozenset(error.code for error in (Conflict, IllegalMove, LeaseLost, NotFound))


class Reporter:
    """Sends completions; `answered` is called when the server knows how a run ended, or does not want to."""

    def __init__(self, service: Service, answered: Callable[[Run], None]) -> None:
        self._service = service
        self._answered = answered
        self._loop = asyncio.get_running_loop()
        self._batcher = Batcher(self._send, _size, most=_MOST, most_bytes=_REQUEST_BYTES)
        self._apart: set[asyncio.Task[None]] = set()
        self.streams = Streams(service)
        self._open = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._given_up = False

    def add(self, run: Run, completion: Completion) -> None:
        """Report it, once what its handler wrote to its stream is stored."""
        self._open += 1
        self._idle.clear()
        if run.ctx.stream_writer is None:
            self._report(run, completion)
        else:
            self.streams.after(run, partial(self._report, run, completion))

    def _report(self, run: Run, completion: Completion) -> None:
        report = (run, completion, _PAUSE[0])
        if undecided(completion):  # as long as that transaction is open there is no answer: nobody else waits for it
            sending = self._loop.create_task(self._send([report]))
            self._apart.add(sending)
            sending.add_done_callback(self._apart.discard)
        else:
            self._batcher.add(report)

    async def flush(self) -> None:
        """Returns once every report was answered."""
        await self._idle.wait()

    async def cancel(self) -> None:
        """Give up: the server will find out by itself that these leases ended."""
        self._given_up = True
        await self.streams.cancel()
        for sending in list(self._apart):
            sending.cancel()
        await asyncio.gather(self._batcher.cancel(), *self._apart, return_exceptions=True)

    async def _send(self, reports: list[Report]) -> None:
        """One request, repeated while the server takes none."""
        pause, longest = _PAUSE
        while reports:
            try:
                reply = await self._service.complete(Complete([completion for _, completion, _ in reports]))
                answers = list(zip(reports, reply.outcomes, strict=True))
            except Exception as error:  # noqa: BLE001 - whatever it was, no report may be forgotten
                fault = error if isinstance(error, PerdureError) else Internal(repr(error))
            else:
                self._settle(answers)
                return
            if isinstance(fault, (InvalidArgument, Internal)):
                await self._search(reports, fault)
                return
            log.warning("%d reports wait for the server: %s", len(reports), fault)
            await asyncio.sleep(_about(pause))
            pause = min(pause * 2, longest)
            reports = [report for report in reports if not self._is_lost(report)]

    async def _search(self, reports: list[Report], fault: PerdureError) -> None:
        """One of them spoils the request: halve until it is alone."""
        if len(reports) == 1:
            self._settle([(reports[0], Completed(error=fault.problem()))])
            return
        middle = len(reports) // 2
        await self._send(reports[:middle])
        await self._send(reports[middle:])

    def _settle(self, answers: list[tuple[Report, Completed]]) -> None:
        for report, answer in answers:
            run, completion, pause = report
            if (problem := answer.error) is None:
                if undecided(completion) and answer.state != "SUCCEEDED":
                    log.warning("task %s (%s): complete_in without a commit", run.delivery.task_id, run.delivery.type)
                self._close(run)
                continue
            task = f"task {run.delivery.task_id} ({run.delivery.type})"
            if problem.code in _LOST:
                log.info("%s; its end here does not count: %s", run.loss(), problem.detail)
                self._close(run)
            elif problem.code in _REFUSALS:
                log.error("%s: the server refused the outcome %r: %s", task, completion.outcome, problem.detail)
                self._replace(report, problem.detail)
            else:
                level = logging.WARNING if pause == _PAUSE[0] else logging.DEBUG  # once is enough
                log.log(level, "%s: its report comes again in about %.1f s: %s", task, pause, problem.detail)
                again = (run, completion, min(pause * 2, _PAUSE[1]))
                self._loop.call_later(_about(pause), self._come_again, again)

    def _replace(self, report: Report, detail: str) -> None:
        """By a report that can be stored, so that the task does not hang; nothing is left to say when it was one."""
        run, completion, pause = report
        if completion.outcome == "failed" and completion.failure is not None and not completion.failure.stack:
            self._close(run)
        else:
            self._batcher.add((run, refused(completion.lease, detail), pause))

    def _come_again(self, report: Report) -> None:
        if not self._given_up and not self._is_lost(report):
            self._batcher.add(report)

    def _is_lost(self, report: Report) -> bool:
        """Whether a heartbeat has heard that somebody else owns the task now: the report is dropped."""
        lost = report[0].ctx.stop == "lost"
        if lost:
            self._close(report[0])
        return lost

    def _close(self, run: Run) -> None:
        self._open -= 1
        if not self._open:
            self._idle.set()
        self._answered(run)


def _about(seconds: float) -> float:
    return seconds * (0.5 + random.random() / 2)


def _size(report: Report) -> int:
    completion = report[1]
    size = 200 + (len(completion.result[0].data) if completion.result else 0)
    if completion.checkpoint:
        size += len(completion.checkpoint[0].data)
    if completion.failure is not None:
        size += len(completion.failure.stack) + len(completion.failure.message)
    return size
