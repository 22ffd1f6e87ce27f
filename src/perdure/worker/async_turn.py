"""A turn of an async workflow: its code goes on in the activation thread, its steps run on the loop.

One thing at a time: either the code runs, or what it asked for is on its way to the history. Steps that end meanwhile
wait for the next activation, so a burst of results is one activation and one append.

When the worker leaves, steps that run may end, and what the code makes of their results is appended. The steps that it
claims then are for the next worker: the turn is handed back.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from perdure.core.group_events import CallResult
from perdure.core.model import Failure
from perdure.core.turn_commands import StartStep, TurnCommand
from perdure.sdk.workflow_errors import turn_failure
from perdure.worker.execute import Run, released
from perdure.worker.history import events_after
from perdure.worker.instances import Cached
from perdure.worker.steps import Attempt, StepEnd
from perdure.worker.turn import TurnInHand
from perdure.worker.watchdog import Hanging

if TYPE_CHECKING:
    from perdure.sdk.definition import Workflow
    from perdure.worker.turns import Turns


class AsyncTurn(TurnInHand):
    def __init__(self, turns: Turns, run: Run, workflow: Workflow, cached: Cached | None) -> None:
        super().__init__(turns, run, workflow)
        self.cached = cached
        self._ends: list[StepEnd] = []  #: not yet seen by the code
        self._busy = False  #: the code runs, or an append is under way
        self._computing = False

    def begin(self, pages: list[bytes]) -> None:
        self._activate(pages)

    def let_go(self) -> None:
        if self.cached is not None and not self._computing:  # else when that is over
            self.cached.broken = True
            self.turns.drop(self.cached)

    def _activate(self, pages: list[bytes]) -> None:
        self._busy = self._computing = self.sending = True
        ends, self._ends = self._ends, []
        self.unsaved = [*self.spared, *ends]
        self.turns.activations.add(_GoOn(self, pages, ends))

    def waits(self, done: _GoOn) -> None:
        """The code waits again, has ended, or is at fault."""
        self._computing = False
        self.cached = done.cached
        if self.over:
            self.let_go()
        elif done.wants:
            self.fetch(done.wants, partial(self._fetched, done))
        elif done.fault is not None:
            self.fail(done.fault)
        else:
            assert done.cached is not None
            claims = [command for command in done.commands if type(command) is StartStep]
            final = done.cached.instance.closed or not (claims or self.attempts or self._ends)
            if final or done.commands:
                self.send(done.after, done.commands, final=final, accepted=partial(self._accepted, claims, final))
            else:
                self.sending = False
                self._go_on()
                self._settle()

    def _fetched(self, done: _GoOn, results: dict[int, list[CallResult]] | None) -> None:
        """The results of groups are here: the code goes on where it was. None: the turn is over."""
        if results is not None:
            self._computing = True
            done.results = results
            self.turns.activations.add(done)

    def _accepted(self, claims: list[StartStep], final: bool) -> None:
        cached = self.cached
        assert cached is not None
        cached.instance.machine.accepted()
        if final:
            cached.last = self.last
            cached.read += self.sent
            self.finish()
            if cached.instance.closed:
                self.turns.drop(cached)
            else:
                self.turns.instances.put(self.turn.run_id, cached)
        elif self.turns.draining():
            self._go_on()
        else:
            for claim in claims:
                attempt = self.attempt(claim, cached.instance.step(claim.step_id), self._step_ended)
                if isinstance(attempt, Attempt):
                    self.turns.steps.start(attempt)
                else:
                    self._ends.append(attempt)
            self._go_on()

    def _step_ended(self, end: StepEnd) -> None:
        if self.over:
            return
        del self.attempts[end.step_id]
        self._ends.append(end)
        if not self._busy:
            self._go_on()

    def _hold(self) -> None:
        """Steps have ended, and messages wait: the code is to see both, so the turn ends as soon as no step runs."""
        assert self.cached is not None
        machine = self.cached.instance.machine
        ends, self._ends = self._ends, []
        for end in ends:
            machine.step_held(*end)
        after, commands = machine.take()
        self._busy = True
        self.unsaved = ends
        final = not self.attempts
        self.send(after, commands, final=final, accepted=partial(self._accepted, [], final))

    def _go_on(self) -> None:
        """Nothing is under way but steps."""
        self._busy = False
        if self._ends and self.run.messages:
            self._hold()
        elif self._ends:
            self._activate([])
        elif not self.attempts:  # the worker leaves, and steps are claimed that it does not run
            self.leave(released(self.run))


class _GoOn:
    """An activation: the code sees new events, or steps that have ended."""

    def __init__(self, turn: AsyncTurn, pages: list[bytes], ends: list[StepEnd]) -> None:
        self._turn = turn
        self._pages = pages
        self._ends = ends
        self.cached = turn.cached
        self.fault: Failure | None = None
        self.wants: dict[int, bytes] = {}  #: groups whose results the code needs before it can go on
        self.results: dict[int, list[CallResult]] = {}
        self._fed = False
        self._replay_seconds: float | None = None  #: of a run that was not in memory
        self.after = 0
        self.commands: list[TurnCommand] = []

    def work(self) -> None:
        try:
            self._work()
        except Hanging:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever the code does, it fails its turn and not the worker
            self.fault = turn_failure(error)

    def _work(self) -> None:
        turn = self._turn
        self.wants = {}
        begun = time.monotonic()
        replays = self.cached is None or self._replay_seconds is not None
        if self.cached is None:
            self.cached = Cached(turn.turns.instance(turn.workflow, turn.turn.run_id))
        elif self.cached.broken:
            raise RuntimeError("the run was dropped from memory")
        instance = self.cached.instance
        machine = instance.machine
        if not self._fed:
            self._feed(self.cached)
        machine.results |= self.results
        instance.run()
        if replays:
            self._replay_seconds = (self._replay_seconds or 0.0) + time.monotonic() - begun
        self.wants = machine.wants
        if self.wants:
            return
        if self._pages and not instance.closed:
            for end in turn.spared:
                if machine.is_open(end.step_id):
                    machine.step_ended(*end)
            instance.run()
            if not instance.closed:
                machine.open_steps()
        self.after, self.commands = machine.take()

    def _feed(self, cached: Cached) -> None:
        machine = cached.instance.machine
        if self._pages:
            cached.read += sum(map(len, self._pages))
            machine.feed(events_after(self._pages, cached.last), self._turn.turn.updates)
        for end in self._ends:
            machine.step_ended(*end)
        self._fed = True

    def done(self, fault: Failure | None) -> None:
        if fault is not None:
            self.fault = fault
            if self.cached is not None:
                self.cached.broken = True
                self.cached = None  # a thread hangs in it
        elif self._replay_seconds is not None and not self.wants:
            self._turn.turns.replayed(self._turn.turn, self._replay_seconds)
        self._turn.waits(self)

    def progress(self) -> int:
        return 0 if self.cached is None else self.cached.instance.machine.activation
