"""Mistakes with groups: calls that are made or end otherwise than once, and runs that do not hear of it once."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from msgspec.structs import replace

from perdure.core import groups
from perdure.core.effects import Change
from perdure.core.model import Task, pack
from tests.sim.mutants.registry import change, mutant


def _keeping(stack: ExitStack, name: str, changed: Any) -> None:
    """`changed` corrects what the row of a group keeps after this decision; it gets what it kept before, and now."""
    real = getattr(groups, name)

    def decided(task: Task, *rest: Any, **options: Any) -> Any:
        before = groups.group_of(task)
        effects = real(task, *rest, **options)
        for effect in effects:
            if isinstance(effect, Change):
                group = groups.group_of(effect.task)
                changed(before, group)
                effect.task.checkpoint = pack(group)
        return effects

    change(stack, groups, name, decided)


@mutant("the run of a group is told, and the group does not note it")
def _(stack: ExitStack) -> None:
    real = groups.told

    def told(task: Task, now: int) -> Any:
        [effect] = real(task, now)
        assert isinstance(effect, Change)
        group = groups.group_of(effect.task)
        group.told = False
        return [Change(groups._keep(effect.task, group, now))]

    change(stack, groups, "told", told)


@mutant("a group notes that its run was told, and tells nobody")
def _(stack: ExitStack) -> None:
    change(stack, groups, "needs_run", lambda task: False)


@mutant("the window of a group admits one call more")
def _(stack: ExitStack) -> None:
    real = groups.room

    def room(group: groups.Group) -> int:
        return real(replace(group, window=group.window + 1) if group.window else group)

    change(stack, groups, "room", room)


@mutant("the calls of a group get the inputs from the beginning of their page")
def _(stack: ExitStack) -> None:
    real = groups.inputs_from
    change(stack, groups, "inputs_from", lambda page, group: real(page, replace(group, inserted=page.first - 1)))


@mutant("of the calls of a group that end the bits are set, and not counted")
def _(stack: ExitStack) -> None:
    def forget(before: groups.Group, group: groups.Group) -> None:
        if group.done > 1:
            group.done = before.done

    _keeping(stack, "ended", forget)


@mutant("a group that collects does not count what has failed")
def _(stack: ExitStack) -> None:
    def forget(before: groups.Group, group: groups.Group) -> None:
        group.failed = 0

    _keeping(stack, "ended", forget)


@mutant("the row of a group closes before its calls do")
def _(stack: ExitStack) -> None:
    real = groups.stopped

    def stopped(task: Task, calls: Any, **given: Any) -> Any:
        return real(task, [] if groups.group_of(task).over else calls, **given)

    change(stack, groups, "stopped", stopped)


@mutant("a group that is full inserts no more once a call has ended")
def _(stack: ExitStack) -> None:
    real = groups.ended

    def ended(task: Task, call: Task, now: int) -> Any:
        effects = real(task, call, now)
        for effect in effects:
            if isinstance(effect, Change) and groups.step_of(groups.group_of(effect.task)) is groups.Step.INSERT:
                effect.task.ready_at = effect.task.wake_at = None
        return effects

    change(stack, groups, "ended", ended)
