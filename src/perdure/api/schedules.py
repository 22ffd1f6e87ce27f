"""The part of the service that is about schedules; Service inherits it."""

from __future__ import annotations

from perdure.api import schedule_drafts as drafts
from perdure.api.part import Part
from perdure.api.plan import as_error
from perdure.api.reading import readable, reading
from perdure.api.schedule_views import firing_view, options, planned, schedule_view
from perdure.core import commands as c
from perdure.core import ids, limits, schedules
from perdure.core import schedule_messages as s
from perdure.core.errors import Conflict, NotFound
from perdure.core.model import Task
from perdure.core.schedule import digest


class Schedules(Part):
    """See client/schedules.py for the operations."""

    async def put_schedule(self, body: s.PutSchedule) -> s.PutReply:
        identity = limits.text(body.identity, "identity") or self._identity
        command = drafts.put(body, self._namespace, identity, self._engine.mint, self._engine.now())
        return s.PutReply(command.schedule_id, (await self._do(command)).did)

    async def update_schedule(self, body: s.UpdateSchedule) -> s.PutReply:
        name = drafts.schedule_id(body.schedule_id)
        identity = limits.text(body.identity, "identity") or self._identity
        while True:
            definition = schedules.read(await self._row(name)).definition
            expects = digest(definition)
            if body.version not in ("", expects.hex()):
                raise Conflict("the schedule has another version", field="version", limit="the version that it has")
            wanted = s.PutSchedule(drafts.changed(options(definition, name), body.changes))
            put = drafts.put(wanted, self._namespace, identity, self._engine.mint, self._engine.now())
            if put.digest == expects:
                return s.PutReply(name, "unchanged")
            update = c.UpdateSchedule(
                namespace=self._namespace,
                schedule_id=name,
                definition=put.definition,
                digest=put.digest,
                expects=expects,
                size=put.size,
            )
            try:
                return s.PutReply(name, (await self._do(update)).did)
            except Conflict:
                if body.version:
                    raise

    async def get_schedule(self, body: s.GetSchedule) -> s.ScheduleView:
        times = limits.integer(body.times, "times", 0, drafts.MAX_TIMES)
        row = await self._row(drafts.schedule_id(body.schedule_id))
        return schedule_view(row, self._engine.now(), times)

    async def find_schedules(self, body: s.FindSchedules) -> s.SchedulePage:
        limit = limits.integer(body.limit, "limit", 1, limits.MAX_PAGE)
        before = None if body.cursor is None else ids.parse(body.cursor, "cursor")
        with reading():
            rows = await self._engine.store.schedules(self._namespace, limit + 1, before)
        now = self._engine.now()
        page = readable(lambda row: schedule_view(row, now), rows[:limit])
        return s.SchedulePage(page, ids.text(rows[limit - 1].id) if len(rows) > limit else None)

    async def delete_schedule(self, body: s.DeleteSchedule) -> s.ScheduleReply:
        name = drafts.schedule_id(body.schedule_id)
        return await self._change(c.DeleteSchedule(namespace=self._namespace, schedule_id=name))

    async def pause_schedule(self, body: s.PauseSchedule) -> s.ScheduleReply:
        return await self._change(drafts.pause(body, self._namespace))

    async def backfill_schedule(self, body: s.BackfillSchedule) -> s.ScheduleReply:
        return await self._change(drafts.backfill(body, self._namespace, self._engine.now()))

    async def trigger_schedule(self, body: s.TriggerSchedule) -> s.TriggerReply:
        done = await self._do(drafts.trigger(body, self._namespace))
        assert done.firing is not None
        return s.TriggerReply(body.schedule_id, firing_view(done.firing))

    async def preview_times(self, body: s.PreviewTimes) -> s.PreviewReply:
        count = limits.integer(body.count, "count", 1, drafts.MAX_TIMES)
        after = self._engine.now() if body.after is None else limits.microseconds(body.after, "after")
        return s.PreviewReply(planned(drafts.timing(body.timing), after, count))

    async def _change(self, command: c.ScheduleCommand) -> s.ScheduleReply:
        return s.ScheduleReply(command.schedule_id, (await self._do(command)).did)

    async def _do(self, command: c.ScheduleCommand) -> c.Scheduled:
        outcome = (await self._engine.apply([command]))[0]
        if isinstance(outcome, c.Scheduled):
            return outcome
        raise as_error(outcome)

    async def _row(self, schedule_id: str) -> Task:
        with reading():
            key = await self._engine.store.find_key(schedules.key_of(self._namespace, schedule_id))
            row = None if key is None else (await self._engine.store.read([key.task_id])).get(key.task_id)
        if row is None:
            raise NotFound(f"there is no schedule {schedule_id!r}", field="schedule_id")
        return row
