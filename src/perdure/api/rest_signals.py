"""The REST interface to golden signals."""

from __future__ import annotations

import msgspec
from litestar import get

from perdure.api.request import Serving
from perdure.core.signal_messages import GoldenSignals, GoldenSignalsReply


class QueueSignalsDocument(msgspec.Struct):
    """A queue of which tasks were handed out. Times are seconds from when a job or activity was ready until a worker
    got it."""

    name: str
    started: int
    schedule_to_start_p50: float
    schedule_to_start_p99: float


class SignalsDocument(msgspec.Struct):
    """Of the server that was asked, and of the caller's namespace, over the last `seconds`. `started` are tasks and
    turns handed out, `dispatch_share` is their part of all that this server handed out; `utilization` is the part of
    the slots of all registered workers that are taken now. null: there is nothing to tell from."""

    seconds: float
    queues: list[QueueSignalsDocument]
    alarm_lag_p99: float | None
    started: int
    leases_lost: int
    dispatch_share: float | None
    utilization: float | None


@get("/v1/golden-signals", operation_id="getGoldenSignals")
async def golden_signals(service: Serving) -> SignalsDocument:
    """How things went on this server in the last five minutes, in the figures that tell most."""
    return _document(await service.golden_signals(GoldenSignals()))


def _document(reply: GoldenSignalsReply) -> SignalsDocument:
    return msgspec.convert(reply, SignalsDocument, from_attributes=True)
