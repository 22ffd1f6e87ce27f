"""Schedules on a clock that jumps from alarm to alarm, and a worker whose tasks take as long as a test says."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from perdure.api.service import Caller, Service
from perdure.core import commands as c
from perdure.core import schedule_messages as s
from perdure.core.model import SECOND, Payload, Task, unpack
from perdure.engine.engine import Engine
from tests.clock import SteppedClock
from tests.engine.drive import Drive

DAY = 86_400 * SECOND


def micros(text: str) -> int:
    """Of RFC 3339."""
    moment = datetime.fromisoformat(text)
    assert moment.tzinfo is not None
    return round(moment.timestamp()) * SECOND


def rfc(at: int | datetime) -> str:
    moment = at if isinstance(at, datetime) else datetime.fromtimestamp(at / SECOND, UTC)
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def payload(text: str = "1") -> tuple[Payload, ...]:
    return (Payload({"encoding": "json/plain"}, text.encode()),)


def options(schedule_id: str = "s", task: str = "t", body: str = "1", **more: Any) -> s.ScheduleOptions:
    if "workflow" not in more:
        more["task"] = s.TaskTemplate(task, payload(body))
    return s.ScheduleOptions(schedule_id=schedule_id, **more)


class Ran:
    """A task that a schedule started."""

    def __init__(self, task: Task) -> None:
        headers = unpack(task.headers or b"", dict[str, str])
        self.task = task
        self.schedule = headers[s.SCHEDULE_ID]
        self.at = headers[s.SCHEDULED_AT]
        self.body = unpack(task.payload or b"", tuple[Payload, ...])[0].data.decode()


class Flow:
    """One server (or several, by `engines`) and one worker."""

    def __init__(self, drive: Drive, clock: SteppedClock, start: str) -> None:
        self.drive = drive
        self.clock = clock
        self.engines: list[Engine] = [drive.engine]
        self.service = Service(drive.engine, Caller("default"))
        self.ran: list[Ran] = []
        self.lasts = 0.0  #: seconds that a task takes
        self._ends: list[tuple[int, Task]] = []
        clock.advance((micros(start) - clock.now()) / SECOND)

    @property
    def times(self) -> list[str]:
        return [ran.at for ran in self.ran]

    async def put(self, *args: Any, replace: bool = False, paused: bool = False, **more: Any) -> str:
        body = s.PutSchedule(options(*args, **more), replace, paused)
        return (await self.service.put_schedule(body)).did

    async def view(self, schedule_id: str = "s", times: int = 5) -> s.ScheduleView:
        return await self.service.get_schedule(s.GetSchedule(schedule_id, times))

    async def pause(self, schedule_id: str = "s", paused: bool = True) -> None:
        await self.service.pause_schedule(s.PauseSchedule(schedule_id, paused))

    async def delete(self, schedule_id: str = "s") -> None:
        await self.service.delete_schedule(s.DeleteSchedule(schedule_id))

    async def ring(self) -> None:
        """Everything that is due, by all servers in turn; then the worker takes what is ready."""
        count = 1
        while count:
            count = 0
            for engine in self.engines:
                for outcome in await engine.apply([c.Ring(limit=100)]):
                    count += outcome.count if isinstance(outcome, c.Did) else 0
        await self.work()

    async def work(self) -> None:
        """Tasks that are over end, and new ones begin."""
        for end, task in list(self._ends):
            if end <= self.clock.now():
                self._ends.remove((end, task))
                await self.drive.succeed(task)
        while tasks := await self.drive.poll(100):
            for task in tasks:
                self.ran.append(Ran(task))
                if self.lasts:
                    task.lease_until = None
                    await self.drive.complete(task, "deferred")
                    self._ends.append((self.clock.now() + round(self.lasts * SECOND), task))
                else:
                    await self.drive.succeed(task)

    async def until(self, end: str) -> None:
        """Time passes: alarms ring when they are due, and tasks end in time."""
        limit = micros(end)
        await self.ring()
        while True:
            alarm = await self.drive.engine.store.next_alarm(self.clock.now())
            times = [at for at, _ in self._ends] + ([] if alarm is None else [alarm])
            at = min(times, default=limit)
            if at > limit:
                break
            self.clock.advance((at - self.clock.now()) / SECOND)
            await self.ring()
            if at == limit:
                break
        self.clock.advance((limit - self.clock.now()) / SECOND)

    def sleep(self, seconds: float) -> None:
        """Nothing runs meanwhile."""
        self.clock.advance(seconds)
