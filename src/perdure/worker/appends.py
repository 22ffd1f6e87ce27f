"""Brings what the code of workflows asked for into their histories: one request in flight for the appends of many runs,
the rest gathers behind it.

An append that got no answer is repeated as it was: the server knows one that it has by `after`, and answers it as the
first time. An append that the server has no answer for, as when it fails at storing that very one, steps aside and
comes again later; after a few times its turn fails, so that people see why the run stands still. The leases are kept
alive meanwhile; one that a heartbeat finds lost takes its append with it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable

import msgspec

from perdure.client.base import Service
from perdure.core.errors import Internal, InvalidArgument, LeaseLost, PerdureError
from perdure.core.model import Payloads
from perdure.core.turn_commands import CompleteStep, StartStep, TurnCommand
from perdure.core.workflow_messages import Append, Appended, Appends
from perdure.sdk.batch import Batcher
from perdure.worker.execute import Run

log = logging.getLogger("perdure.worker")

_MOST = 500
_REQUEST_BYTES = 4 * 1024 * 1024
_PAUSE = (0.05, 2.0)
_TRIES = 6
"""Of an append that the server cannot store, though it stores others: some 3 seconds."""


class Sending:
    """An append on its way. `answered` is called on the loop, once."""

    __slots__ = ("answered", "append", "run", "size", "tries")

    def __init__(self, run: Run, append: Append, answered: Callable[[Appended], None]) -> None:
        self.run = run
        self.append = append
        self.answered = answered
        self.size = 100 + sum(map(_weight, append.commands))
        self.tries = 0


class Appender:
    """Sends appends. To be used on one event loop."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._batcher = Batcher(self._send, _size, most=_MOST, most_bytes=_REQUEST_BYTES)

    def add(self, sending: Sending) -> None:
        self._batcher.add(sending)

    async def cancel(self) -> None:
        """Give up: nothing of what waits is answered any more."""
        await self._batcher.cancel()

    async def _send(self, sendings: list[Sending]) -> None:
        """One request, repeated while the server takes none."""
        pause, longest = _PAUSE
        while sendings := [sending for sending in sendings if not _is_lost(sending)]:
            try:
                reply = await self._service.append(Appends([sending.append for sending in sendings]))
                answers = list(zip(sendings, reply.outcomes, strict=True))
            except Exception as error:  # noqa: BLE001 - whatever it was, each append has to be answered
                fault = error if isinstance(error, PerdureError) else Internal(repr(error))
            else:
                for sending, answer in answers:
                    self._settle(sending, answer)
                return
            if isinstance(fault, (InvalidArgument, Internal)):
                await self._search(sendings, fault)
                return
            log.warning("the appends of %d workflow runs wait for the server: %s", len(sendings), fault)
            await asyncio.sleep(_about(pause))
            pause = min(pause * 2, longest)

    async def _search(self, sendings: list[Sending], fault: PerdureError) -> None:
        """One of them spoils the request: halve until it is alone."""
        if len(sendings) == 1:
            self._settle(sendings[0], Appended(error=fault.problem()))
            return
        middle = len(sendings) // 2
        await self._send(sendings[:middle])
        await self._send(sendings[middle:])

    def _settle(self, sending: Sending, answer: Appended) -> None:
        problem = answer.error
        if problem is not None and (problem.retryable or problem.status >= 500):
            sending.tries += 1
            if sending.tries < _TRIES or problem.retryable:
                pause = min(_PAUSE[0] * 2**sending.tries, _PAUSE[1])
                item = sending.run.delivery
                level = logging.WARNING if sending.tries == 1 else logging.DEBUG  # once is enough
                log.log(level, "run %s (%s): its append comes again: %s", item.task_id, item.type, problem.detail)
                asyncio.get_running_loop().call_later(_about(pause), self.add, sending)
                return
        sending.answered(answer)


def _weight(command: TurnCommand) -> int:
    """About the bytes that a command takes on the wire."""
    if isinstance(command, StartStep):
        return 60
    if isinstance(command, CompleteStep):
        return 60 + _bytes(command.result)
    return len(msgspec.msgpack.encode(command))


def _bytes(payloads: Payloads) -> int:
    return sum(len(payload.data) for payload in payloads)


def _size(sending: Sending) -> int:
    return sending.size


def _is_lost(sending: Sending) -> bool:
    """Whether a heartbeat has heard that another worker has the run now."""
    lost = sending.run.ctx.stop == "lost"
    if lost:
        sending.answered(Appended(error=LeaseLost().problem()))
    return lost


def _about(seconds: float) -> float:
    return seconds * (0.5 + random.random() / 2)
