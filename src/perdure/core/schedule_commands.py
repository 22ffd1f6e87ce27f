"""What anyone may ask about schedules. See commands.py."""

from __future__ import annotations

import msgspec

from perdure.core.schedule import Definition, Firing


class PutSchedule(msgspec.Struct, kw_only=True, gc=False):
    """Make a schedule; with `replace` also change the one that has the id. `digest` stands for the definition: the same
    one again changes nothing. `paused` and `note` are for a new one."""

    namespace: str
    schedule_id: str
    definition: Definition
    digest: bytes
    paused: bool = False
    note: str = ""
    identity: str = ""
    replace: bool = False
    task_id: bytes  #: of its row, if it is new
    size: int = 0


class UpdateSchedule(msgspec.Struct, kw_only=True, gc=False):
    """Change a schedule, if what it is now has the digest `expects`."""

    namespace: str
    schedule_id: str
    definition: Definition
    digest: bytes
    expects: bytes
    size: int = 0


class PauseSchedule(msgspec.Struct, kw_only=True, gc=False):
    """Fire no more, or (`paused` False) go on with the nominal times from now on."""

    namespace: str
    schedule_id: str
    paused: bool
    note: str = ""


class TriggerSchedule(msgspec.Struct, kw_only=True, gc=False):
    """Start what it starts, now, whatever runs and whether it is paused or not. The same request starts one."""

    namespace: str
    schedule_id: str
    request_id: str = ""


class BackfillSchedule(msgspec.Struct, kw_only=True, gc=False):
    """Fire for all nominal times of a range, from its first to its last microsecond."""

    namespace: str
    schedule_id: str
    start_at: int
    end_at: int


class DeleteSchedule(msgspec.Struct, kw_only=True, gc=False):
    namespace: str
    schedule_id: str


ScheduleChange = UpdateSchedule | PauseSchedule | TriggerSchedule | BackfillSchedule | DeleteSchedule
"""Commands about a schedule that is there."""
ScheduleCommand = PutSchedule | ScheduleChange


class Scheduled(msgspec.Struct, frozen=True, gc=False):
    """The row of a schedule, and what a command did to it: "created", "updated", "unchanged", "deleted", or, with the
    firing, "triggered"."""

    task_id: bytes
    did: str
    firing: Firing | None = None
