"""The batch of a worker at full speed: it reports successes and takes as many new tasks, and nothing else happens.

Such a batch is one statement on PostgreSQL, which commits itself, instead of five. It is for one poll of one lane, for
successes that nobody waits for here, and for tasks without time-outs, whose arithmetic only core/ knows; a lane in
which one of those was met goes the long way for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perdure.core import commands as c
from perdure.core import decide
from perdure.core.ids import Mint
from perdure.core.lanes import queue_of
from perdure.core.model import Task
from perdure.engine.dispatch import Parked, demands
from perdure.engine.gather import Item
from perdure.store.base import Batch as Rows
from perdure.store.base import Order, Place

TIMED_SECONDS = 10.0
"""How long a lane goes the long way once a task with time-outs was met in it."""


def fits(items: Sequence[Item], polls: Sequence[Parked], simple: Callable[[Item], bool]) -> bool:
    """Whether this is all that these want; `simple` tells a success that nobody waits for."""
    if len(polls) != 1 or polls[0].repeated or len(polls[0].request.lanes) != 1:
        return False
    if queue_of(polls[0].request.lanes[0]) is None:
        return False
    ids = {item.command.lease.task_id for item in items if isinstance(item.command, c.Complete) and simple(item)}
    return len(ids) == len(items)


class Exchange:
    """What came of it."""

    def __init__(self) -> None:
        self.succeeded: set[bytes] = set()
        self.claimed: list[Task] = []  #: as they were before
        self.timed = False  #: nothing was claimed, because of a task with time-outs
        self.under_full = False

    async def run(
        self, rows: Rows, completions: Sequence[c.Complete], parked: Parked, after: Place | None, mint: Mint
    ) -> None:
        request = parked.request
        [demand] = demands([parked], lambda lane: after)
        bits = [mint.lease_bits() for _ in range(demand.limit)]
        order = Order(demand, request.incarnation, request.worker, request.poll, bits)
        self.succeeded, claimed, self.timed = await rows.exchange(completions, order)
        if self.timed:
            return
        self.claimed = claimed
        self.under_full = len(claimed) < demand.limit
        for task, drawn in zip(claimed, bits, strict=False):
            lease = decide.claim(task, request.incarnation, request.worker, request.poll, rows.now, drawn)
            parked.tasks.append(lease.task)
