"""Mistakes in how a task goes on or ends: attempts, back-off, cancels."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from perdure.core import commands as c
from perdure.core import decide
from perdure.core.model import Task
from perdure.core.states import State
from tests.sim.mutants.registry import change, mutant


@mutant("`>` for `>=` in the attempts")
def _(stack: ExitStack) -> None:
    real = decide._attempt_failed

    def failed(task: Task, *rest: Any, **options: Any) -> Any:
        task.max_attempts += 1
        return real(task, *rest, **options)

    change(stack, decide, "_attempt_failed", failed)


@mutant("a release spends an attempt")
def _(stack: ExitStack) -> None:
    real = decide._hand_back

    def hand_back(task: Task, *rest: Any) -> Any:
        task.attempt += 1
        return real(task, *rest)

    change(stack, decide, "_hand_back", hand_back)


@mutant("a lost delivery spends an attempt")
def _(stack: ExitStack) -> None:
    change(stack, decide, "LOST_DELIVERIES_FREE", 0)


@mutant("back-off is ten times too long")
def _(stack: ExitStack) -> None:
    real = decide.backoff
    change(stack, decide, "backoff", lambda *args: 10 * real(*args))


@mutant("a cancel closes a running task at once")
def _(stack: ExitStack) -> None:
    real = decide.cancel

    def cancel(task: Task, command: c.Cancel, now: int) -> Any:
        effects = real(task, command, now)
        if effects and effects[0].task.state == State.LEASED:
            return [decide.close(effects[0].task, decide.Cause.FORCE, now)]
        return effects

    change(stack, decide, "cancel", cancel)


@mutant("a cancel is forgotten")
def _(stack: ExitStack) -> None:
    change(stack, decide, "cancel", lambda task, command, now: [])
