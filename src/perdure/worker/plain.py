"""Drives the code of a plain workflow: it runs from the top, in a thread, until it has to wait for the server.

Then it unwinds, by an exception that `except Exception` does not catch, and nothing of it stays: the next turn runs it
again, and what it has asked for before is answered from the history (RPLY, STEP-03). While it unwinds it can ask for
nothing more. Code that catches the exception and goes on fails its turn.

A handler of a signal or an update is called where the code waits, before the code goes on. One that waits itself holds
the code up meanwhile: there is one thread.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any, Protocol

from perdure.core.errors import Cancelled, Conflict
from perdure.core.events import Event
from perdure.core.group_events import CallResult
from perdure.core.model import Payloads
from perdure.core.run import UpdateRequest
from perdure.core.turn_commands import CompleteWorkflow, StartStep, TurnCommand
from perdure.sdk.definition import Bound, Workflow
from perdure.sdk.handlers import Ended
from perdure.sdk.operations import Operation
from perdure.sdk.steps import StepCall
from perdure.sdk.waiting import Pending, Wait
from perdure.sdk.workflow_context import CURRENT, WorkflowContext
from perdure.sdk.workflow_errors import Dropped, closing_command
from perdure.worker import guard
from perdure.worker.execute import BARE, Environment
from perdure.worker.machine import Machine
from perdure.worker.steps import StepEnd

MOST_CATCHES = 100
"""How often code may catch the exception that unwinds it, until its thread is stopped for good."""

Last = tuple[int, list[TurnCommand]]
"""What the final append of a turn says."""


class Port(Protocol):
    """The worker, as the code of one turn sees it."""

    spared: list[StepEnd]  #: how steps ended in an earlier turn that was put off

    def append(self, after: int, commands: list[TurnCommand]) -> None:
        """Returns when it is in the history; raises Dropped when the turn is over."""

    def next_end(self, claims: list[StartStep]) -> StepEnd:
        """Begin with these steps; returns when one of those that run has ended. Dropped as above."""
        ...

    def is_running(self) -> bool:
        """Whether steps run."""
        ...

    def results(self, wants: dict[int, bytes]) -> dict[int, list[CallResult]]:
        """Of groups that have completed. Dropped as above."""
        ...

    def has_messages(self) -> bool:
        """Whether messages have come that the code sees with the next turn."""
        ...

    def swallowed(self, error: SwallowedError) -> None:
        """The code goes on and on though it should unwind."""


class SwallowedError(Exception):
    """The code has caught what unwinds it."""

    def __init__(self) -> None:
        super().__init__(
            "the code has caught the exception that suspends it while it waits: it must let it pass. Write `except"
            " Exception`, and never a bare `except` or `except BaseException` that does not raise again; a `finally`"
            " must neither return nor wait"
        )


class PlainCode:
    """One run of the code. `run_id` may be empty. Without a port it only replays, and answers queries."""

    def __init__(
        self, workflow: Workflow, environment: Environment = BARE, run_id: str = "", port: Port | None = None
    ) -> None:
        self.machine = Machine(self)
        self._workflow = workflow
        self._run_id = run_id
        self._port = port
        self._ctx = _Context(self, workflow, environment)
        self._bound: Bound | None = None
        self._input: Payloads = ()
        self._calls: deque[Callable[[], None]] = deque()  #: of handlers, not yet begun
        self._error: BaseException | None = None  #: of a signal handler: the run ends with it
        self._canceled = False  #: and the code has not heard of it
        self._question: Callable[[], None] | None = None
        self._last: Last | None = None
        self._looked = False  #: for steps that have ended in an earlier turn
        self._claimed = False  #: again, those steps whose worker died
        self._catches = 0
        self.unwinding = False

    # ------------------------------------------------------------------------------------------ for whoever drives it
    def run(self) -> Last | None:
        """Until it has to wait or has ended: what the turn's final append says; None when the turn is over before that.
        NonDeterminismError, SwallowedError and whatever else fails the turn."""
        return Context().run(self._run)

    def query(self, name: str, input: Payloads) -> Payloads:
        """The answer of a query handler after all that was fed. NotFound when there is none of this name; else what the
        handler raises."""
        answers: list[Payloads | BaseException] = []

        def question() -> None:
            try:
                answers.append(self._ctx.handlers.query(name, input))
            except BaseException as error:  # noqa: BLE001 - it is raised below, where no code of the workflow sees it
                answers.append(error)

        self._question = question
        self.run()
        if isinstance(answers[0], BaseException):
            raise answers[0]
        return answers[0]

    def let_go(self) -> None:
        """It will not run again: nothing but the machine is there afterwards."""
        self.machine.drop()
        self._ctx.let_go()
        del self._ctx, self._port

    def step(self, step_id: int) -> StepCall:
        """What to run for a claimed step."""
        return self._ctx.step_calls[step_id]

    # -------------------------------------------------------------------------------------------------- for the machine
    def start(self, event: Event) -> None:
        self._input = self._ctx.begin(event, self._run_id)
        self._bound = self._workflow.bind()
        for kind, handler in self._bound.handlers:
            getattr(self._ctx.handlers, kind)[handler.name] = handler

    def signal(self, event: Event) -> None:
        self._ctx.handlers.signal(event)

    def cancel(self, event: Event) -> None:
        self._ctx.request_cancel(event)

    def update(self, request: UpdateRequest, accepted: Event | None) -> None:
        self._ctx.handlers.update(request, accepted)

    # --------------------------------------------------------------------------------------------------------- for ctx
    def wait(self, operation: Operation[Any]) -> Any:
        """Run an operation in the thread of the code."""
        advance: Callable[[Any], Wait] = operation.send
        given: Any = None
        while True:
            try:
                wait = advance(given)
            except StopIteration as end:
                return end.value
            try:
                self._block(wait)
                advance, given = operation.send, None
            except Cancelled as error:
                advance, given = operation.throw, error

    def call_later(self, call: Callable[[], None]) -> None:
        """A handler, once all that has come is applied."""
        self._calls.append(call)

    def fail_with(self, error: BaseException) -> None:
        self._error = self._error or error

    def deliver_cancel(self) -> None:
        self._canceled = True

    # -------------------------------------------------------------------------------------------------------- the code
    def _run(self) -> Last | None:
        CURRENT.set(self._ctx)
        with guard.watching():
            if not self.machine.advance():
                raise Conflict("the run has not begun")
            command = self._outcome()
            if command is not None:
                self.machine.issue(command)
                while self.machine.advance():
                    pass
                if self._question is not None:
                    self._question()
                return self.machine.take()
            return self._last

    def _outcome(self) -> TurnCommand | None:
        """How the code has ended; None when it was unwound."""
        try:
            value = self._call()
            self._settle()
        except Dropped:
            if not self.unwinding:
                raise
        except BaseException as error:
            if self.unwinding:
                raise SwallowedError from error
            return closing_command(error, self._ctx.cancel_requested, skip=2)
        else:
            if not self.unwinding:
                result = self._ctx.converter.to_payloads(value, "result", self._workflow.result)
                return CompleteWorkflow(result=result)
            if self._error is None:
                raise SwallowedError
        if self._error is not None:
            return closing_command(self._error, self._ctx.cancel_requested)
        return None

    def _call(self) -> object:
        bound, workflow = self._bound, self._workflow
        assert bound is not None
        self._call_handlers()
        if not workflow.takes:
            return bound.run(self._ctx)
        return bound.run(self._ctx, self._ctx.converter.from_payloads(self._input, "payload", workflow.payload))

    def _settle(self) -> None:
        """Updates that came and found no handler are answered before the run closes."""
        while self._ctx.handlers.look_again():
            self._call_handlers()

    def _block(self, wait: Wait) -> None:
        """Returns when `wait` is done; raises Cancelled, once, when a cancel has come."""
        self.check()
        while True:
            self._call_handlers()
            if self._error is not None:
                self._unwind()
            if self._canceled:
                self._canceled = False
                raise Cancelled("cancel")
            if wait.done:
                return
            if self._ctx.handlers.look_again() or self._ctx.check_conditions():
                continue
            if not self.machine.advance():
                if self.machine.wants:
                    self._load(self.machine.wants)
                else:
                    self._go_live()

    def _call_handlers(self) -> None:
        while self._calls:
            self._calls.popleft()()

    def _load(self, wants: dict[int, bytes]) -> None:
        """The code has come to where groups have completed: get their results."""
        assert self._port is not None, "a replay has all results beforehand"
        with guard.pausing():
            try:
                self.machine.results |= self._port.results(wants)
            except Dropped:
                self.unwinding = True
                raise

    def _go_live(self) -> None:
        """The code waits for what is not in the history: send what it asked for, and run its steps. Returns when a step
        has ended."""
        machine, port = self.machine, self._port
        if port is None:
            if self._question is not None:
                self._question()
            self._unwind()
            return
        if not self._looked:
            self._looked = True
            spared = [end for end in port.spared if machine.is_open(end.step_id)]
            for end in spared:
                machine.step_ended(*end)
            if spared:
                return
        if not self._claimed:
            self._claimed = True
            machine.open_steps()
        after, commands = machine.take()
        claims = [command for command in commands if type(command) is StartStep]
        if not claims and not port.is_running():
            self._last = after, commands
            self._unwind()
        with guard.pausing():
            try:
                if commands:
                    port.append(after, commands)
                    machine.accepted()
                end = port.next_end(claims)
            except Dropped:
                self.unwinding = True
                raise
        if port.has_messages():
            self._hold(port, end)
        machine.step_ended(*end)

    def _hold(self, port: Port, end: StepEnd) -> None:
        """Messages wait, which the code is to see as well: the turn ends, once all steps that run have."""
        machine = self.machine
        machine.step_held(*end)
        with guard.pausing():
            try:
                while port.is_running():
                    machine.step_held(*port.next_end([]))
            except Dropped:
                self.unwinding = True
                raise
        self._last = machine.take()
        self._unwind()

    def _unwind(self) -> None:
        self.unwinding = True
        raise Dropped

    def check(self) -> None:
        """Whatever the code asks for while it unwinds, it gets the exception again."""
        if not self.unwinding:
            return
        self._catches += 1
        if self._catches > MOST_CATCHES and self._port is not None:
            self._port.swallowed(SwallowedError())
            stopped = threading.Lock()
            stopped.acquire()
            stopped.acquire()  # no exception gets out of such a loop: the thread must at least not compute
        raise Dropped


class _Context(WorkflowContext):
    def __init__(self, code: PlainCode, workflow: Workflow, environment: Environment) -> None:
        super().__init__(code.machine, workflow.payload, environment.converter)
        self._code = code

    def issue(self, command: TurnCommand) -> Pending:
        self._code.check()
        return super().issue(command)

    def _wait(self, operation: Operation[Any]) -> Any:
        return self._code.wait(operation)

    def _spawn(self, function: Callable[..., Any], arguments: tuple[Any, ...], ended: Ended) -> None:
        def call() -> None:
            try:
                value = function(*arguments)
            except Dropped:
                raise
            except BaseException as error:  # noqa: BLE001 - it ends the update or the run, as `ended` knows
                ended(None, error)
            else:
                ended(value, None)

        self._code.call_later(call)

    def _failed(self, error: BaseException) -> None:
        self._code.fail_with(error)

    def _deliver_cancel(self) -> None:
        self._code.deliver_cancel()
