"""Worker processes, and what they run."""

from __future__ import annotations

from perdure.core import messages as m
from perdure.dashboard.visit import Page, Visit

RUNNING = 50
"""Tasks of a worker that are listed."""


async def listing(visit: Visit) -> Page:
    """The registered processes with the tasks that they run."""
    found = (await visit.service.workers(m.ListWorkers(RUNNING))).workers
    return Page("workers.html", "Workers", {"workers": found})
