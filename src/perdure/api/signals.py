"""The part of the service that tells how things go; Service inherits it."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.api.part import Part
from perdure.api.queues import MOST
from perdure.api.reading import reading
from perdure.core.figures import Distribution, Labels, Totals
from perdure.core.lanes import lanes_of
from perdure.core.model import SECOND
from perdure.core.signal_messages import GoldenSignals, GoldenSignalsReply, QueueSignals


class Signals(Part):
    """See client/signals.py for the operation."""

    async def golden_signals(self, _: GoldenSignals) -> GoldenSignalsReply:
        tally, before = self._engine.tally, self._engine.tally.recent()
        dispatched = tally.dispatched - before.dispatched
        started = self._ours(dispatched)
        lags = tally.alarm_lag.since(before.alarm_lag)
        return GoldenSignalsReply(
            seconds=max(0, self._engine.now() - before.at) / SECOND,
            queues=self._queues(tally.schedule_to_start.since(before.schedule_to_start)),
            alarm_lag_p99=lags[()].quantile(0.99) if () in lags else None,
            started=started,
            leases_lost=self._ours(tally.leases_lost - before.leases_lost),
            dispatch_share=started / dispatched.total() if dispatched else None,
            utilization=await self._utilization(),
        )

    def _ours(self, totals: Totals) -> int:
        return sum(number for (namespace, *_), number in totals.items() if namespace == self._namespace)

    def _queues(self, waits: Mapping[Labels, Distribution]) -> list[QueueSignals]:
        found: list[QueueSignals] = []
        for (namespace, queue), row in sorted(waits.items()):
            p50, p99 = row.quantile(0.5), row.quantile(0.99)
            if namespace == self._namespace and p50 is not None and p99 is not None:
                found.append(QueueSignals(queue, row.count, p50, p99))
        return found

    async def _utilization(self) -> float | None:
        store = self._engine.store
        with reading():
            slots = sum(session.slots for session in await store.sessions(self._namespace) if session.ends_at is None)
            lanes = await store.count_lanes(*lanes_of(self._namespace), MOST)
        return min(1.0, sum(lane.running for lane in lanes) / slots) if slots else None
