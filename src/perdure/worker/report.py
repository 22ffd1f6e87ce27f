"""Reports how attempts ended: one request in flight, the rest gathers behind it, and none is forgotten.

A report that did not get through is repeated until it is answered: its lease is kept alive meanwhile, and the server
answers a repeated report with what it recorded the first time. Only an answer ends it, so after `flush` no handler that
returned runs again (field case B122).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable

from perdure.client.base import Service
from perdure.core.errors import PerdureError, Problem
from perdure.core.messages import Complete, Completed, Completion
from perdure.sdk.batch import Batcher
from perdure.worker.execute import Run, refused

log = logging.getLogger("perdure.worker")

Report = tuple[Run, Completion]

_MOST = 500
_REQUEST_BYTES = 4 * 1024 * 1024
_PAUSE = (0.05, 2.0)


class Reporter:
    """Sends completions; `answered` is called when the server knows how a run ended, or does not want to."""

    def __init__(self, service: Service, answered: Callable[[Run], None]) -> None:
        self._service = service
        self._answered = answered
        self._batcher = Batcher(self._send, _size, most=_MOST, most_bytes=_REQUEST_BYTES)

    def add(self, run: Run, completion: Completion) -> None:
        self._batcher.add((run, completion))

    async def flush(self) -> None:
        """Returns once every report was answered."""
        await self._batcher.idle()

    async def cancel(self) -> None:
        """Give up: the server will find out by itself that these leases ended."""
        await self._batcher.cancel()

    async def _send(self, reports: list[Report]) -> None:
        """Until every report has its answer."""
        pause, longest = _PAUSE
        while True:
            try:
                reply = await self._service.complete(Complete([completion for _, completion in reports]))
            except PerdureError as error:
                problem = error.problem()
                outcomes = [Completed(error=problem)] * len(reports)
                if len(reports) > 1 and not problem.retryable:  # one is at fault: let each have its own answer
                    for report in reports:
                        await self._send([report])
                    return
            else:
                outcomes = reply.outcomes
            reports = self._settle(reports, outcomes)
            if not reports:
                return
            await asyncio.sleep(pause * (0.5 + random.random() / 2))
            pause = min(pause * 2, longest)

    def _settle(self, reports: list[Report], outcomes: list[Completed]) -> list[Report]:
        """What has to be sent again."""
        again: list[Report] = []
        for (run, completion), outcome in zip(reports, outcomes, strict=True):
            if outcome.error is None:
                self._answered(run)
            elif outcome.error.retryable:
                again.append((run, completion))
            elif (instead := _instead(run, completion, outcome.error)) is not None:
                again.append((run, instead))
            else:
                self._answered(run)
        if again:
            log.warning("%d reports wait for the server", len(again))
        return again


def _instead(run: Run, completion: Completion, problem: Problem) -> Completion | None:
    """A report to send in place of a refused one, so that its task does not hang; None when there is nothing to say."""
    task = f"task {run.delivery.task_id} ({run.delivery.type})"
    if problem.code in ("lease_lost", "not_found"):
        log.info("%s ended here, but the lease was lost before: %s", task, problem.detail)
        return None
    log.error("%s: the server refused the outcome %r: %s", task, completion.outcome, problem.detail)
    if completion.outcome == "failed" and completion.failure is not None and not completion.failure.stack:
        return None
    return refused(completion.lease, problem.detail)


def _size(report: Report) -> int:
    completion = report[1]
    size = 200 + (len(completion.result[0].data) if completion.result else 0)
    if completion.checkpoint:
        size += len(completion.checkpoint[0].data)
    if completion.failure is not None:
        size += len(completion.failure.stack) + len(completion.failure.message)
    return size
