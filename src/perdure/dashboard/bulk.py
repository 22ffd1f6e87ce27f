"""Something done to all tasks, or open runs, of a list: how many there are, then the action, then how far it is."""

from __future__ import annotations

from perdure.core import failure_messages as f
from perdure.core import messages as m
from perdure.dashboard.request import link
from perdure.dashboard.tasks import bulk_filter
from perdure.dashboard.visit import Page, Visit

RECENT = 10
"""Actions that are listed below the one that is asked for."""


async def count(visit: Visit) -> Page:
    """How many an action would be about, and the form that begins it. The form carries a request id: sent twice it
    begins one action."""
    action, filter = visit.need("action"), bulk_filter(visit.request.query)
    view = await visit.service.start_bulk(f.StartBulk(action, filter, dry_run=True))
    data = {"counted": view, "filter": visit.request.query}
    return Page("bulk.html", f"{action.replace('_', ' ')} all of these?", data)


async def start(visit: Visit) -> str:
    body = f.StartBulk(
        visit.field("action"),
        bulk_filter(visit.request.form),
        request_id=visit.field("request_id"),
        reason=visit.given("reason"),
    )
    return link("action", id=(await visit.service.start_bulk(body)).id)


async def action(visit: Visit) -> Page:
    """How far an action is, and those before it."""
    view = await visit.service.get_bulk(f.GetBulk(visit.need("id")))
    recent = (await visit.service.find_bulk(f.FindBulk(limit=RECENT))).actions
    return Page("action.html", f"{view.action.replace('_', ' ')}: {view.total}", {"action": view, "recent": recent})


async def cancel(visit: Visit) -> str:
    """Stop an action where it is."""
    id = visit.field("id")
    await visit.service.cancel(m.Cancel(id))
    return link("action", id=id)
