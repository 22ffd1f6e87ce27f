"""What failed for good and nobody has retried, grouped by what is alike."""

from __future__ import annotations

from perdure.core import failure_messages as f
from perdure.core import messages as m
from perdure.dashboard.visit import Page, Visit

GROUPS = 100


async def listing(visit: Visit) -> Page:
    """Groups of dead letters, those that grew last first; with `group` the dead letters of one."""
    found = await visit.service.failures(f.ListFailures(type=visit.get("type"), limit=GROUPS))
    group = visit.get("group")
    if group is None:
        return Page("failures.html", "Failures", {"found": found})
    body = m.Find(failure_group=group, cursor=visit.get("cursor"))
    letters = await visit.service.find(body)
    known = next((one for one in found.groups if one.group == group), None)
    return Page("dead_letters.html", f"Dead letters of {group}", {"group": group, "known": known, "found": letters})
