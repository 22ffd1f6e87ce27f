"""Mistakes with schedules: nominal times that fire although nobody wants them, or do not."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from perdure.core import schedules
from perdure.core.commands import PauseSchedule
from perdure.core.model import Task
from perdure.core.schedules import Firings
from tests.sim.mutants.registry import change, mutant


@mutant("a paused schedule fires")
def _(stack: ExitStack) -> None:
    real = schedules.pause

    def pause(row: Task, command: PauseSchedule, now: int) -> Any:
        return real(row, PauseSchedule(namespace="", schedule_id="", paused=False, note=command.note), now)

    change(stack, schedules, "pause", pause)


@mutant("of the firings of a schedule in one batch the last one is lost")
def _(stack: ExitStack) -> None:
    real = Firings.settle

    def settle(self: Firings, *given: Any) -> Any:
        if len(self.starts) > 1:
            self.starts.pop()
        return real(self, *given)

    change(stack, Firings, "settle", settle)


@mutant("the next time of a schedule follows from when it really fired")
def _(stack: ExitStack) -> None:
    real = Firings._all_due

    def all_due(self: Firings, first: int, window: int | None) -> Any:
        due = real(self, first, window)
        due.next = schedules.next_after(self.schedule.definition.timing, self.now + 4_000_000)
        return due

    change(stack, Firings, "_all_due", all_due)
