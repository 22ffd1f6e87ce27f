"""Makes a failing run smaller: fewer faults, fewer tasks, fewer processes, as long as the same rule is broken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.sim.plan import Plan
from tests.sim.world import Result

TRIES = 60
"""Runs that a shrink takes at most."""


def shrink(found: Result, run: Callable[[Plan], Result]) -> Result:
    """The smallest run that was found, and that breaks the rule that `found` breaks."""
    tries = 0
    smaller = True
    while smaller:
        smaller = False
        for plan in _smaller(found.plan):
            tries += 1
            if tries > TRIES:
                return found
            result = run(plan)
            if result.rule == found.rule:
                found, smaller = result, True
                break
    return found


def _smaller(plan: Plan) -> Iterator[Plan]:
    half = len(plan.faults) // 2
    if half > 1:
        yield replace(plan, faults=plan.faults[:half])
        yield replace(plan, faults=plan.faults[half:])
    for fault in plan.faults:
        yield replace(plan, faults=tuple(other for other in plan.faults if other != fault))
    for tasks in (1, plan.tasks // 4, plan.tasks // 2, plan.tasks - 1):
        if 0 < tasks < plan.tasks:
            yield replace(plan, tasks=tasks)
    for flows in (0, 1, plan.flows // 2, plan.flows - 1):
        if 0 <= flows < plan.flows:
            yield replace(plan, flows=flows)
    for name in ("servers", "workers", "clients", "queues"):
        if getattr(plan, name) > 1:
            yield replace(plan, **{name: getattr(plan, name) - 1})
    for change in (
        {"events": 0}, {"bulk": 0}, {"schedules": 0}, {"limits": 0},
        {"shuffle": False}, {"posting": False}, {"lease": 0.0}, {"kept": 10_000},
    ):  # fmt: skip
        if any(getattr(plan, name) != value for name, value in change.items()):
            yield replace(plan, **change)
    if plan.chaos > 10:
        yield replace(plan, chaos=plan.chaos / 2)
