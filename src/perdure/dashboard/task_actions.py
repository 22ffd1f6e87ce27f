"""What can be done to one task."""

from __future__ import annotations

from perdure.core import messages as m
from perdure.dashboard.request import link
from perdure.dashboard.visit import Visit


async def cancel(visit: Visit) -> str:
    """At once while it waits, cooperatively while it runs."""
    id = visit.field("id")
    await visit.service.cancel(m.Cancel(id, visit.given("reason")))
    return link("task", id=id, done="cancel")


async def retry(visit: Visit) -> str:
    """Now instead of after the back-off; a closed task as a new one, which is shown then."""
    reply = await visit.service.retry(m.Retry(visit.field("id")))
    return link("task", id=reply.task_id, done="retry")
