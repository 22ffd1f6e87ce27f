"""What can be done to a schedule."""

from __future__ import annotations

from perdure.core import schedule_messages as s
from perdure.dashboard.request import link
from perdure.dashboard.visit import Visit


async def pause(visit: Visit) -> str:
    """Or resume."""
    id, paused = visit.field("id"), visit.field("paused") == "yes"
    await visit.service.pause_schedule(s.PauseSchedule(id, paused, visit.given("note")))
    return link("schedule", id=id, done="pause" if paused else "resume")


async def trigger(visit: Visit) -> str:
    """Start now what it starts. The request id is that of the form: sent twice it starts one."""
    id = visit.field("id")
    await visit.service.trigger_schedule(s.TriggerSchedule(id, visit.field("request_id")))
    return link("schedule", id=id, done="trigger")
