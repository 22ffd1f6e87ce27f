"""Mistakes with runs that come again by themselves, with resets, and with attempts that somebody else ends."""

from __future__ import annotations

from contextlib import ExitStack
from copy import copy
from typing import Any

from perdure.core import decide, runs, turn_effects
from perdure.core.effects import Change
from perdure.core.run import ClosePolicy
from perdure.core.states import Kind
from tests.sim.mutants.registry import change, mutant


@mutant("a run that cron repeats begins at once")
def _(stack: ExitStack) -> None:
    change(stack, turn_effects, "next_after", lambda expression, now: now)


@mutant("a workflow that cron repeats ends with its first failure")
def _(stack: ExitStack) -> None:
    real = turn_effects.TurnWriter._failed_for_good

    def failed(self: Any, command: Any, retry_state: str) -> None:
        cron, self._run.cron = self._run.cron, None
        real(self, command, retry_state)
        self._run.cron = cron

    change(stack, turn_effects.TurnWriter, "_failed_for_good", failed)


def _swept(stack: ExitStack, policy: ClosePolicy, instead: ClosePolicy) -> None:
    """Children of one close policy are treated as those of another one."""
    real = runs.swept

    def swept(child: Any, run: Any, *args: Any) -> Any:
        if child.kind == Kind.WORKFLOW and run is not None and run.parent_close_policy == policy:
            run = copy(run)
            run.parent_close_policy = instead
        return real(child, run, *args)

    change(stack, runs, "swept", swept)


@mutant("a child that may go on is terminated with its parent")
def _(stack: ExitStack) -> None:
    _swept(stack, ClosePolicy.ABANDON, ClosePolicy.TERMINATE)


@mutant("a child is not asked to cancel as its parent closes")
def _(stack: ExitStack) -> None:
    _swept(stack, ClosePolicy.REQUEST_CANCEL, ClosePolicy.ABANDON)


@mutant("an attempt that somebody else is to end is lost with its lease")
def _(stack: ExitStack) -> None:
    real = decide._defer

    def defer(task: Any, command: Any, now: int) -> Change:
        deferred = real(task, command, now).task
        deferred.session, deferred.lease_until = task.session, now + task.lease_length
        deferred.wake_at = decide.wake_at(deferred)
        return Change(deferred)

    change(stack, decide, "_defer", defer)
