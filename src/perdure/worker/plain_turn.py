"""A turn of a plain workflow: its code runs from the top in a thread, and so does a step that is alone.

Nothing of the run stays in memory between two turns. Within one the thread waits for the server and for steps; while
it does, it costs a thread and no more.

When the worker leaves, steps that run may end, and what the code makes of their results is appended. The steps that it
claims then are for the next worker: the turn is handed back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING

from perdure.core.group_events import CallResult
from perdure.core.model import Failure
from perdure.core.turn_commands import StartStep, TurnCommand
from perdure.sdk.workflow_errors import Dropped, turn_failure
from perdure.worker.execute import Run, released
from perdure.worker.history import events_after
from perdure.worker.plain import Last, PlainCode, SwallowedError
from perdure.worker.steps import Attempt, StepEnd, run_here
from perdure.worker.turn import TurnInHand
from perdure.worker.watchdog import interrupt

if TYPE_CHECKING:
    from perdure.sdk.definition import Workflow
    from perdure.worker.turns import Turns


class PlainTurn(TurnInHand):
    def __init__(self, turns: Turns, run: Run, workflow: Workflow) -> None:
        super().__init__(turns, run, workflow)
        self._code = PlainCode(workflow, turns.environment, self.turn.run_id, self)
        self._answer: Callable[[bool], None] | None = None  #: to the thread that waits for its append
        self._ends: SimpleQueue[StepEnd | None] = SimpleQueue()
        self.unsaved += self.spared
        self._under_way = 0  #: steps whose end the code has not seen
        self._thread: int | None = None  #: the thread, while the code itself runs
        self._lock = threading.Lock()
        self._begun = 0.0  #: on the monotonic clock
        self._replay_seconds: float | None = None  #: until the code first waited for something new, or its end

    def begin(self, pages: list[bytes]) -> None:
        self.turns.watchdog.watch(self)
        self.turns.threads.call(partial(self._work, pages), self._unwound)

    def let_go(self) -> None:
        """The thread unwinds when it looks."""
        self.turns.watchdog.leave(self)
        if (answer := self._answer) is not None:
            self._answer = None
            answer(False)
        self._ends.put(None)

    def _unwound(self, outcome: Last | Failure | None) -> None:
        """The code waits for the server, has ended, or is at fault."""
        self.turns.watchdog.leave(self)
        self._code.let_go()
        if self._replay_seconds is not None:
            self.turns.replayed(self.turn, self._replay_seconds)
        if self.over:
            return
        if outcome is None:
            self.leave(released(self.run))
        elif isinstance(outcome, Failure):
            self.fail(outcome)
        else:
            self.send(*outcome, final=True, accepted=self.finish)

    def _start(self, begun: list[Attempt | StepEnd]) -> None:
        for one in begun:
            if isinstance(one, StepEnd):
                self._ends.put(one)
            elif not self.over:
                self.turns.steps.start(one)

    def _append(self, after: int, commands: list[TurnCommand], answer: Callable[[bool], None]) -> None:
        if self.over:
            answer(False)
            return
        self._answer = answer
        self.send(after, commands, final=False, accepted=self._accepted)

    def _accepted(self) -> None:
        answer, self._answer = self._answer, None
        assert answer is not None
        answer(True)

    # ---------------------------------------------------------------------------------------------------- the thread
    def _work(self, pages: list[bytes]) -> Last | Failure | None:
        code = self._code
        self._begun = time.monotonic()
        try:
            with self._computing():
                code.machine.feed(events_after(pages, 0), self.turn.updates)
                return code.run()
        except Dropped:
            return None
        except BaseException as error:  # noqa: BLE001 - whatever the code does, it fails its turn and not the worker
            return turn_failure(error)

    @contextmanager
    def _computing(self) -> Iterator[None]:
        self._thread = threading.get_ident()
        try:
            yield
        finally:
            self._replayed()
            with self._lock:
                self._thread = None

    def _replayed(self) -> None:
        if self._replay_seconds is None:
            self._replay_seconds = time.monotonic() - self._begun

    def append(self, after: int, commands: list[TurnCommand]) -> None:
        """For the code: returns when it is in the history."""
        with self._waiting():
            if not self.turns.threads.ask(partial(self._append, after, commands)):
                raise Dropped

    def next_end(self, claims: list[StartStep]) -> StepEnd:
        """For the code: begin with these steps; returns when one of those that run has ended."""
        with self._waiting():
            if self.turns.draining():
                claims = []
            begun = [self.attempt(claim, self._code.step(claim.step_id), self._ends.put) for claim in claims]
            self._under_way += len(begun)
            alone = begun[0] if len(begun) == self._under_way == 1 else None
            if isinstance(alone, Attempt) and not alone.is_async and alone.call.timeout is None:
                end = run_here(alone)
            else:
                self.turns.threads.tell(partial(self._start, begun))
                end = self._ends.get() if self._under_way else None
            if end is None or self.over:
                raise Dropped
            self._under_way -= 1
            self.attempts.pop(end.step_id, None)
            self.unsaved.append(end)
            return end

    def is_running(self) -> bool:
        return self._under_way > 0

    def results(self, wants: dict[int, bytes]) -> dict[int, list[CallResult]]:
        """For the code: waits for the server."""
        with self._waiting():
            found: dict[int, list[CallResult]] | None = self.turns.threads.ask(partial(self.fetch, wants))
        if found is None:
            raise Dropped
        return found

    def has_messages(self) -> bool:
        return self.run.messages

    def swallowed(self, error: SwallowedError) -> None:
        self.turns.threads.tell(partial(self._unwound, turn_failure(error)))

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """The code itself does not run."""
        self._replayed()
        with self._lock:
            thread, self._thread = self._thread, None
        try:
            yield
        finally:
            self._thread = thread

    # -------------------------------------------------------------------------------------------------- the watchdog
    def thread(self) -> int | None:
        return self._thread

    def progress(self) -> object:
        return self._code.machine.activation

    def hangs(self, thread: int, fault: Failure) -> None:
        with self._lock:
            if self._thread != thread or self.over:
                return
            interrupt(thread)
        self.fail(fault)
