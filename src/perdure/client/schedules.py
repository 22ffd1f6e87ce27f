"""What the protocol has for schedules: the calls, and the calls over one way to ask."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

from perdure.core import schedule_messages as s
from perdure.core.body import Body


class ScheduleService(Protocol):
    """See the bodies in core/schedule_messages.py. NotFound for an unknown schedule."""

    async def put_schedule(self, body: s.PutSchedule) -> s.PutReply:
        """Conflict where there is another schedule of this id and it is not to be replaced."""
        ...

    async def update_schedule(self, body: s.UpdateSchedule) -> s.PutReply:
        """Conflict where the schedule has another version."""
        ...

    async def get_schedule(self, body: s.GetSchedule) -> s.ScheduleView: ...

    async def find_schedules(self, body: s.FindSchedules) -> s.SchedulePage: ...

    async def delete_schedule(self, body: s.DeleteSchedule) -> s.ScheduleReply: ...

    async def pause_schedule(self, body: s.PauseSchedule) -> s.ScheduleReply: ...

    async def trigger_schedule(self, body: s.TriggerSchedule) -> s.TriggerReply: ...

    async def backfill_schedule(self, body: s.BackfillSchedule) -> s.ScheduleReply:
        """Conflict while too many wait."""
        ...

    async def preview_times(self, body: s.PreviewTimes) -> s.PreviewReply: ...


class ScheduleCalls(ABC):
    """A part of client/calls.py."""

    @abstractmethod
    async def _ask(self, op: str, body: Body) -> Any: ...

    async def put_schedule(self, body: s.PutSchedule) -> s.PutReply:
        reply: s.PutReply = await self._ask("put_schedule", body)
        return reply

    async def update_schedule(self, body: s.UpdateSchedule) -> s.PutReply:
        reply: s.PutReply = await self._ask("update_schedule", body)
        return reply

    async def get_schedule(self, body: s.GetSchedule) -> s.ScheduleView:
        reply: s.ScheduleView = await self._ask("get_schedule", body)
        return reply

    async def find_schedules(self, body: s.FindSchedules) -> s.SchedulePage:
        reply: s.SchedulePage = await self._ask("find_schedules", body)
        return reply

    async def delete_schedule(self, body: s.DeleteSchedule) -> s.ScheduleReply:
        reply: s.ScheduleReply = await self._ask("delete_schedule", body)
        return reply

    async def pause_schedule(self, body: s.PauseSchedule) -> s.ScheduleReply:
        reply: s.ScheduleReply = await self._ask("pause_schedule", body)
        return reply

    async def trigger_schedule(self, body: s.TriggerSchedule) -> s.TriggerReply:
        reply: s.TriggerReply = await self._ask("trigger_schedule", body)
        return reply

    async def backfill_schedule(self, body: s.BackfillSchedule) -> s.ScheduleReply:
        reply: s.ScheduleReply = await self._ask("backfill_schedule", body)
        return reply

    async def preview_times(self, body: s.PreviewTimes) -> s.PreviewReply:
        reply: s.PreviewReply = await self._ask("preview_times", body)
        return reply
