"""Queues and workers as people look at them. Counts are bounded, so a look costs the same however much waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from perdure.core import messages as m
from perdure.core.lanes import lanes_of, queue_of
from perdure.core.model import SECOND, WorkerSession
from perdure.store.base import Store

SEPARATOR = "\n"
"""Between the queues of a stored session: names hold no unprintable characters."""
MOST = 10_000
"""Entries that one count looks at."""


async def overview(store: Store, namespace: str, now: int) -> m.QueuesReply:
    """The queues of a namespace that hold something, are polled, or that somebody looks after, by name."""
    polled = pollers(await store.sessions(namespace))
    owners = {one.queue: one for one in await store.queue_owners() if one.namespace == namespace}
    found = {name: m.QueueView(name, workers=polled[name]) for name in {*polled, *owners}}
    for lane in await store.count_lanes(*lanes_of(namespace), MOST):
        name = queue_of(lane.lane)
        if name is not None:
            found[name] = m.QueueView(
                name=name,
                ready=lane.ready,
                running=lane.running,
                delayed=lane.delayed,
                retrying=lane.retrying,
                oldest_ready_seconds=None if lane.ready_since is None else max(0, now - lane.ready_since) / SECOND,
                workers=polled[name],
                at_least=lane.at_least,
            )
    for name, owner in owners.items():
        found[name].owner, found[name].alert_depth = owner.owner, owner.alert_depth
    return m.QueuesReply([found[name] for name in sorted(found)])


def pollers(sessions: Iterable[WorkerSession]) -> Counter[str]:
    """How many worker processes poll each queue; those that are gone do not count."""
    alive = (session for session in sessions if session.ends_at is None)
    return Counter(queue for session in alive for queue in session.queues.split(SEPARATOR))
