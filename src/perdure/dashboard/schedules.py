"""Schedules, and when they fire next."""

from __future__ import annotations

from perdure.core import schedule_messages as s
from perdure.dashboard.tasks import ROWS
from perdure.dashboard.visit import Page, Visit

TIMES = 10
"""Next times on the page of a schedule."""


async def listing(visit: Visit) -> Page:
    """Schedules, newest first."""
    found = await visit.service.find_schedules(s.FindSchedules(ROWS, visit.get("cursor")))
    return Page("schedules.html", "Schedules", {"found": found, "when": when})


async def schedule(visit: Visit) -> Page:
    """One schedule: its next times by its own clock too, and what became of the last ones."""
    view = await visit.service.get_schedule(s.GetSchedule(visit.need("id"), TIMES))
    return Page("schedule.html", view.schedule_id, {"schedule": view, "when": when})


def when(view: s.ScheduleView) -> str:
    """In words when it fires."""
    if view.cron is not None:
        return view.cron
    if view.interval is not None:
        return f"every {view.interval}"
    fields = view.calendar
    if fields is None:
        return ""
    return ", ".join(f"{name.replace('_', ' ')} {getattr(fields, name)}" for name in fields.__struct_fields__)
