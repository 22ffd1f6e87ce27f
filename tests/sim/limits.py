"""Limits in a run: each queue has so many slots from the start on, and no commit ever gives away more (QUOTA-12)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from perdure.core.limit_rules import Limit
from perdure.core.model import Task
from perdure.core.states import State
from perdure.store.base import Store
from tests.sim.plan import EPOCH, Plan

if TYPE_CHECKING:
    from tests.sim.invariants import Checker

QUEUES = ("default", "mail")
WEIGHTS = (1, 1, 2, 9)
"""Of tasks; the last one is more than any limit has."""


async def begin(store: Store, plan: Plan) -> None:
    """Before any server is there, so that all of them know the limits from their start."""
    if plan.limits:
        async with store.batch() as batch:
            for name in QUEUES:
                limit = Limit("default", "queue", name, max_running=plan.limits, updated_at=EPOCH * 1_000_000)
                await batch.put_limit(limit)


def check(checker: Checker, tasks: Iterable[Task]) -> None:
    """At every commit."""
    most = checker.world.plan.limits
    taken = dict.fromkeys(QUEUES, 0)
    for task in tasks:
        if task.state == State.LEASED and task.queue in taken:
            taken[task.queue] += min(task.weight, most)
    for name, slots in taken.items():
        if slots > most:
            checker.fail("limits", f"{slots} of {most} slots of queue {name} are taken")
