"""Queues, and the limits that hold for them and for other things."""

from __future__ import annotations

from perdure.core import limit_messages as lm
from perdure.core import messages as m
from perdure.dashboard.request import link
from perdure.dashboard.visit import Page, Visit


async def listing(visit: Visit) -> Page:
    """What each queue holds, whether it is paused, and its cap; then the limits of namespace, types and keys."""
    queues = (await visit.service.queues(m.ListQueues())).queues
    limits = (await visit.service.limits(lm.ListLimits())).limits
    by_queue = {limit.name: limit for limit in limits if limit.scope == "queue"}
    others = [limit for limit in limits if limit.scope != "queue"]
    known = {queue.name for queue in queues}
    idle = [m.QueueView(name) for name in sorted(by_queue) if name not in known]
    return Page("queues.html", "Queues", {"queues": [*queues, *idle], "limits": by_queue, "others": others})


async def pause(visit: Visit) -> str:
    """Or resume."""
    paused = visit.field("paused") == "yes"
    body = lm.PauseLimit(visit.field("scope"), visit.given("name"), paused, visit.given("note"))
    await visit.service.pause_limit(body)
    return link("queues", done="pause" if paused else "resume")


async def set_cap(visit: Visit) -> str:
    """How many tasks of a queue may run at once, and how often one may start; left empty, nothing limits."""
    name, slots, rate = visit.field("name"), visit.given_number("max_running"), visit.given("rate")
    if slots is None and not rate:
        await visit.service.delete_limit(lm.DeleteLimit("queue", name))
    else:
        spec = lm.LimitSpec("queue", name, slots, rate or None, note=visit.given("note"))
        await visit.service.set_limit(lm.SetLimit(spec))
    return link("queues", done="cap")
