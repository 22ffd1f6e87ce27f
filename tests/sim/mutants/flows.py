"""Mistakes with what lies between workflow runs: messages, children, names."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from perdure.core import reset, runs, turn_effects, turns
from perdure.core.effects import Change, PassOn, Post, PutRun
from perdure.core.states import State
from perdure.engine.reservations import Reservations
from tests.sim.mutants.registry import change, mutant


@mutant("a message does not wake its run")
def _(stack: ExitStack) -> None:
    real = runs.post

    def post(task: Any, *args: Any) -> Any:
        effects = real(task, *args)
        return [e for e in effects if not (task.state == State.WAITING and isinstance(e, Change))]

    change(stack, runs, "post", post)


@mutant("the workflow id does not go to the next run")
def _(stack: ExitStack) -> None:
    real = turns.append

    def append(*args: Any, **rest: Any) -> Any:
        effects, outcome = real(*args, **rest)
        return [effect for effect in effects if not isinstance(effect, PassOn)], outcome

    change(stack, turns, "append", append)


@mutant("messages do not go along to the next run")
def _(stack: ExitStack) -> None:
    change(stack, turn_effects.runs, "is_for_successor", lambda message: False)


@mutant("the end of a child is told twice")
def _(stack: ExitStack) -> None:
    real = runs.ended

    def ended(parent: Any, *args: Any) -> Any:
        effects = real(parent, *args)
        bodies = [e.message for e in effects if isinstance(e, Post)]
        for message in bodies:
            [run] = [e.run for e in effects if isinstance(e, PutRun)]
            effects = [*effects, *runs.post(parent, run, runs.news_of(message), args[-2], args[-1])]
        return effects

    change(stack, runs, "ended", ended)


@mutant("the end of a child is not told")
def _(stack: ExitStack) -> None:
    change(stack, runs, "_ending", lambda child, run: [])


@mutant("children that end are not counted down")
def _(stack: ExitStack) -> None:
    real = runs.ended

    def ended(parent: Any, run: Any, *args: Any) -> Any:
        effects = real(parent, run, *args)
        for effect in effects:
            if isinstance(effect, PutRun):
                effect.run.children = run.children
        return effects

    change(stack, runs, "ended", ended)


@mutant("a sweep forgets the children")
def _(stack: ExitStack) -> None:
    change(stack, runs, "swept", lambda *args: [])


@mutant("a paused run gets a place")
def _(stack: ExitStack) -> None:
    real = runs.make_ready

    def make_ready(task: Any, run: Any, now: int, rounds: Any) -> None:
        real(task, run, now, rounds)
        if run.paused:
            task.place = rounds.next(task.lane, task.fairness_key)

    change(stack, runs, "make_ready", make_ready)


@mutant("the request id of a message is not looked at")
def _(stack: ExitStack) -> None:
    change(stack, Reservations, "asked_before", lambda self, item: None)


@mutant("once real: a reset keeps the event by which the run closed")
def _(stack: ExitStack) -> None:
    change(stack, reset, "_CLOSING", ())
