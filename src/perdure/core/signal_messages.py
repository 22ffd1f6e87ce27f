"""The golden signals, on the wire."""

from __future__ import annotations

from perdure.core.body import Body


class GoldenSignals(Body):
    """How things go, in the figures that tell most, over the last five minutes."""


class QueueSignals(Body):
    """A queue of which tasks were handed out. Times are seconds, from when a job or activity was ready until a worker
    got it; quantiles are as exact as the buckets that the server counts in."""

    name: str
    started: int
    schedule_to_start_p50: float
    schedule_to_start_p99: float


class GoldenSignalsReply(Body):
    """Of the server that was asked, and of the caller's namespace, over the last `seconds`: about five minutes, or
    since the server started. null: there is nothing to tell from."""

    seconds: float
    queues: list[QueueSignals] = []
    alarm_lag_p99: float | None = None  #: seconds from when anything of any namespace was due until it was done
    started: int = 0  #: tasks and turns handed out
    leases_lost: int = 0  #: that ended without a word of their worker
    dispatch_share: float | None = None  #: part of all that this server handed out, 0 to 1
    utilization: float | None = None  #: part of the slots of all registered workers that are taken now, 0 to 1
