"""One turn of a workflow run, in the hands of this worker: what both ways to write a workflow have in common.

A turn ends once: with the answer to its final append, with a failure, which the server answers by another turn later,
handed back, or with the loss of its lease. After that nothing of it counts, whatever still runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from perdure.core.errors import InvalidArgument, LeaseLost, NotFound, PerdureError, Problem, UnhandledMessages
from perdure.core.group_events import CallResult
from perdure.core.messages import Completion
from perdure.core.model import Failure
from perdure.core.turn_commands import StartStep, TurnCommand
from perdure.core.workflow_messages import Append, Appended, Turn
from perdure.worker.appends import Sending
from perdure.worker.execute import Run, released
from perdure.worker.groups import fetch_results
from perdure.worker.steps import Attempt, StepEnd

if TYPE_CHECKING:
    from perdure.sdk.definition import Workflow
    from perdure.sdk.steps import StepCall
    from perdure.worker.turns import Turns

log = logging.getLogger("perdure.worker")

_GONE = frozenset(error.code for error in (LeaseLost, NotFound))


class TurnInHand:
    """To be used on the worker's loop."""

    def __init__(self, turns: Turns, run: Run, workflow: Workflow) -> None:
        assert run.delivery.turn is not None
        self.turns = turns
        self.run = run
        self.workflow = workflow
        self.turn: Turn = run.delivery.turn
        self.attempts: dict[int, Attempt] = {}  #: steps that run
        self.unsaved: list[StepEnd] = []  #: how steps ended that is not in the history yet
        self.spared = turns.spared.pop(self.turn.run_id, [])  #: the same, of an earlier turn that was put off
        self.last = 0  #: id of the last event of the history
        self.sending = False  #: the code has done what is not in the history yet
        self.sent = 0  #: bytes
        self.over = False
        self._quiet: list[Callable[[], None]] = []

    def begin(self, pages: list[bytes]) -> None:
        """`pages` hold the history that is not in memory."""
        raise NotImplementedError

    def let_go(self) -> None:
        """The turn is over: nothing of the run may stay in memory."""
        raise NotImplementedError

    def when_quiet(self, call: Callable[[], None]) -> None:
        """Call it while nothing is on its way to the history."""
        if self.sending:
            self._quiet.append(call)
        else:
            call()

    def stop(self) -> None:
        """Its lease was lost, or the worker leaves: `ctx.stop` says which. Steps that still run are interrupted. A
        cancel is nothing for a turn: it comes as a message."""
        if not self.over and self.run.ctx.stop != "cancel":
            self.turns.spare(self.turn.run_id, self.unsaved)  # the next turn may be here already, before an answer
            self.leave(None if self.run.ctx.stop == "lost" else released(self.run))

    # ------------------------------------------------------------------------------------------------------ sending
    def send(self, after: int, commands: list[TurnCommand], *, final: bool, accepted: Callable[[], None]) -> None:
        """`accepted` is called when it is in the history. What an activation asked for is never divided: a history
        that ends within it would not match the code any more."""
        self.sending = True
        completed = self.turn.started_event_id + 1 if self.last else 0
        append = Append(self.run.delivery.lease, after, commands, final, self.workflow.is_async, completed)
        sending = Sending(self.run, append, partial(self._answered, accepted))
        self.sent += sending.size
        self.turns.appender.add(sending)

    def _answered(self, accepted: Callable[[], None], answer: Appended) -> None:
        if self.over:
            return
        self.sending = False
        if answer.error is not None:
            self._refused(answer.error)
            return
        self.last = answer.last
        self.run.messages |= answer.waiting
        self.unsaved = []
        accepted()
        self._settle()

    def _refused(self, problem: Problem) -> None:
        item = self.run.delivery
        if problem.code == UnhandledMessages.code:
            log.debug("run %s (%s) cannot close yet: messages have arrived", item.task_id, item.type)
            self.turns.spare(self.turn.run_id, self.unsaved)
            self.leave(None)
        elif problem.code in _GONE:
            log.info("%s; its turn here does not count: %s", self.run.loss(), problem.detail)
            self.leave(None)
        else:
            allowed = f"; the limit is {problem.limit}" if problem.limit else ""
            self.fail(Failure(message=problem.detail + allowed, code=problem.code, type="AppendRefused"))

    # ------------------------------------------------------------------------------------------------------- groups
    def fetch(self, wants: dict[int, bytes], answer: Callable[[dict[int, list[CallResult]] | None], None]) -> None:
        """Get the results of groups; None when the turn is over before that."""
        self.turns.keep(asyncio.get_running_loop().create_task(self._fetch(wants, answer)))

    async def _fetch(
        self, wants: dict[int, bytes], answer: Callable[[dict[int, list[CallResult]] | None], None]
    ) -> None:
        found: dict[int, list[CallResult]] = {}
        try:
            found = await fetch_results(self.turns.service, wants, lambda: not self.over)
        except PerdureError as error:
            if not self.over:
                self.fail(Failure(message=error.detail, code="results_unreadable", type=type(error).__name__))
        answer(None if self.over else found)

    # -------------------------------------------------------------------------------------------------------- steps
    def attempt(self, claim: StartStep, call: StepCall, ended: Callable[[StepEnd], None]) -> Attempt | StepEnd:
        """An attempt that is to run now; or how it has ended, if it cannot even begin. From any thread."""
        try:
            attempt = Attempt(claim, call, self.run.delivery, self.turns.environment, ended)
        except InvalidArgument as error:
            failure = Failure(message=str(error), code="unencodable_payload", type="InvalidArgument", retryable=False)
            return StepEnd(claim.step_id, None, failure)
        self.attempts[claim.step_id] = attempt
        return attempt

    # ---------------------------------------------------------------------------------------------------------- end
    def fail(self, failure: Failure) -> None:
        """The code cannot go on: the server tries again later, and shows why."""
        item = self.run.delivery
        log.error("run %s (%s): its turn failed: %s: %s", item.task_id, item.type, failure.code, failure.message)
        self.leave(Completion(item.lease, "failed", failure=failure))

    def leave(self, completion: Completion | None) -> None:
        """It ends here without a final append."""
        self.finish(completion)
        self.let_go()

    def finish(self, completion: Completion | None = None) -> None:
        assert not self.over
        self.over = True
        for attempt in list(self.attempts.values()):
            attempt.stop(self.run.ctx.stop or "cancel")
        self.attempts.clear()
        self.turns.forget(self)
        self.turns.ended(self.run, completion)
        self._settle()

    def _settle(self) -> None:
        calls, self._quiet = self._quiet, []
        for call in calls:
            call()
