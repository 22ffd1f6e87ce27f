"""Mistakes with the turns of workflow runs, on both sides: what is written, what is answered, what runs."""

from __future__ import annotations

from contextlib import ExitStack
from copy import copy
from typing import Any

from msgspec.structs import replace

from perdure.core import advance, turns
from perdure.core import commands as c
from perdure.core.effects import Append, PutRun, Take
from perdure.core.states import State
from perdure.engine import batch as batches
from perdure.worker.async_turn import AsyncTurn
from perdure.worker.machine import Machine
from perdure.worker.turn import TurnInHand
from tests.sim.mutants.registry import change, mutant


def _following(task: Any, run: Any, messages: Any, command: c.Append) -> c.Append:
    """The append as if it had been asked for behind the last event."""
    begun = 0 if run.turn_written else len(turns.prepared(task, run, messages)[0])
    return replace(command, after=run.event_count + begun)


@mutant("appends are not fenced, neither by the lease nor by the event that they follow")
def _(stack: ExitStack) -> None:
    real = turns.append

    def append(task: Any, run: Any, messages: Any, command: c.Append, **rest: Any) -> Any:
        if task.state == State.LEASED and task.lease != command.lease:
            command = _following(task, run, messages, replace(command, lease=task.lease))
        return real(task, run, messages, command, **rest)

    change(stack, turns, "append", append)


@mutant("an append follows whatever there is")
def _(stack: ExitStack) -> None:
    real = turns.append

    def append(task: Any, run: Any, messages: Any, command: c.Append, **rest: Any) -> Any:
        if task.state == State.LEASED and task.lease == command.lease and run.turn_prepared_at is not None:
            command = _following(task, run, messages, command)
        return real(task, run, messages, command, **rest)

    change(stack, turns, "append", append)


@mutant("the statement that appends steps does not look where the history ends")
def _(stack: ExitStack) -> None:
    real = advance.holds

    def holds(task: Any, run: Any, wanted: Any) -> bool:
        run = copy(run)
        run.event_count = wanted.page.first - 1
        return real(task, run, wanted)

    change(stack, advance, "holds", holds)


@mutant("an append is answered before the commit")
def _(stack: ExitStack) -> None:
    real = batches.Batch.run

    async def run(self: Any, *args: Any) -> None:
        await real(self, *args)
        for item, outcome in self.answers:
            if isinstance(item.command, c.Append):
                item.answer(outcome)
        self.answers = [each for each in self.answers if not isinstance(each[0].command, c.Append)]

    change(stack, batches.Batch, "run", run)


def _changed_appends(stack: ExitStack, changed: Any) -> None:
    """`changed` gets the run and the effects of each append, and gives other ones."""
    real = turns.append

    def append(task: Any, run: Any, *args: Any, **rest: Any) -> Any:
        effects, outcome = real(task, run, *args, **rest)
        return changed(run, effects), outcome

    change(stack, turns, "append", append)


@mutant("a turn takes messages that it has not seen")
def _(stack: ExitStack) -> None:
    def taken(run: Any, effects: Any) -> Any:
        for effect in effects:
            if isinstance(effect, PutRun) and effect.run.inbox_taken < effect.run.inbox_count:
                effect.run.inbox_taken = effect.run.inbox_count
                return [*effects, Take(run.id, run.inbox_count)]
        return effects

    _changed_appends(stack, taken)


@mutant("a turn does not take its messages")
def _(stack: ExitStack) -> None:
    def taken(run: Any, effects: Any) -> Any:
        for effect in effects:
            if isinstance(effect, PutRun):
                effect.run.inbox_taken = run.inbox_taken
        return [effect for effect in effects if not isinstance(effect, Take)]

    _changed_appends(stack, taken)


@mutant("a run closes over a signal")
def _(stack: ExitStack) -> None:
    change(stack, turns, "_has_unhandled", lambda *args, **rest: False)


@mutant("the end of a step is not kept as its turn is put off")
def _(stack: ExitStack) -> None:
    change(stack, turns, "_settled", lambda wanted: [])


@mutant("event ids are off by one after a failed turn")
def _(stack: ExitStack) -> None:
    real = turns.fail

    def fail(*args: Any) -> Any:
        effects, state = real(*args)
        if any(isinstance(effect, Append) for effect in effects):
            for effect in effects:
                if isinstance(effect, PutRun):
                    effect.run.event_count -= 1
        return effects, state

    change(stack, turns, "fail", fail)


@mutant("steps run before their claim is in the history")
def _(stack: ExitStack) -> None:
    real = TurnInHand.send

    def send(self: Any, after: int, commands: Any, *, final: bool, accepted: Any) -> None:
        if final:
            real(self, after, commands, final=final, accepted=accepted)
            return
        real(self, after, commands, final=final, accepted=lambda: None)
        accepted()

    change(stack, TurnInHand, "send", send)


@mutant("a run whose append was refused stays in memory")
def _(stack: ExitStack) -> None:
    def let_go(self: Any) -> None:
        if self.cached is not None and not self._computing:
            self.cached.last = self.last or self.cached.last
            self.turns.instances.put(self.turn.run_id, self.cached)

    change(stack, AsyncTurn, "let_go", let_go)


@mutant("once real: a message keeps the time at which it came, whatever was written since")
def _(stack: ExitStack) -> None:
    real = turns.prepared

    def prepared(task: Any, run: Any, messages: Any) -> Any:
        events, updates = real(task, run, messages)
        times = [m.at for m in messages if m.seq <= run.turn_inbox for _ in turns.runs.news_of(m)]
        early = [replace(event, time=at) for event, at in zip(events, times, strict=False)]
        return [*early, *events[len(early) :]], updates

    change(stack, turns, "prepared", prepared)


@mutant("once real: a turn that ends because of a hint alone is followed by none")
def _(stack: ExitStack) -> None:
    real = turns._end

    def end(task: Any, run: Any, command: c.Append, *rest: Any) -> Any:
        seen = [replace(one, held=False) if getattr(one, "held", False) else one for one in command.commands]
        return real(task, run, replace(command, commands=seen), *rest)

    change(stack, turns, "_end", end)


@mutant("once real: a spared end of a step counts for an attempt that has failed")
def _(stack: ExitStack) -> None:
    change(stack, Machine, "is_open", lambda self, step_id: step_id in self._steps)


@mutant("once real: an append of a turn that was handed back counts as stored")
def _(stack: ExitStack) -> None:
    real = turns._answered

    def answered(task: Any, run: Any, command: c.Append) -> Any:
        return real(task, run, command if task.state == State.LEASED else replace(command, after=0))

    change(stack, turns, "_answered", answered)
