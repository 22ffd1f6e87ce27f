"""Drives an async workflow: its tasks, its handlers, and its end.

At an activation the messages are told first: handlers that are plain functions run there and then, async ones become
tasks, in order of arrival and before the main function's task (field case B092). Then the loop runs until nothing is
ready, conditions are looked at, and so on until the code waits for something that has not happened yet.

A cancel is asyncio's: CancelledError in the main function, where it waits. One that is there before the function has
begun lets it run to its first wait (field case B103).

The run is closed when the main function has ended and nothing else is ready. Handlers of updates that are still waiting
then are dropped, and the server tells their callers; a marker "unfinished_handlers" and a warning in the log name them
(field case B091).
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Callable
from contextvars import Context
from typing import Any

from perdure.core.events import Event
from perdure.core.model import Payloads
from perdure.core.run import UpdateRequest
from perdure.core.turn_commands import CompleteWorkflow, RecordMarker, TurnCommand
from perdure.sdk.converter import to_payloads
from perdure.sdk.definition import Workflow
from perdure.sdk.handlers import Ended
from perdure.sdk.operations import Operation, Timer
from perdure.sdk.steps import StepCall
from perdure.sdk.workflow_context import CURRENT, WorkflowContext
from perdure.sdk.workflow_errors import Dropped, closing_command
from perdure.worker import guard
from perdure.worker.execute import BARE, Environment
from perdure.worker.loop import WorkflowLoop
from perdure.worker.machine import Machine

_MOST_WAITS = 100
"""Of code that unwinds: what does not end within so many is left to the garbage collector."""


class AsyncContext(WorkflowContext):
    """`ctx` of async code."""

    def __init__(self, code: AsyncCode, workflow: Workflow, environment: Environment) -> None:
        super().__init__(code.machine, workflow.payload, environment.converter)
        self._code = code

    def _wait(self, operation: Operation[Any]) -> Any:
        return _drive(operation, self._code.loop)

    def _spawn(self, function: Callable[..., Any], arguments: tuple[Any, ...], ended: Ended) -> None:
        self._code.spawn(function, arguments, ended)

    def _failed(self, error: BaseException) -> None:
        self._code.fault = self._code.fault or error

    def _deliver_cancel(self) -> None:
        self._code.cancel_main()


async def _drive(operation: Operation[Any], loop: WorkflowLoop) -> Any:
    """Run an operation, waiting with the loop's futures."""
    try:
        wait = next(operation)
        while True:
            if not wait.done:
                future = loop.create_future()
                wait.when_done(lambda future=future: future.done() or future.set_result(None))  # type: ignore[misc]
                try:
                    await future
                except BaseException as error:  # noqa: BLE001 - for the operation, which raises it again
                    wait = operation.throw(error)
                    continue
            wait = operation.send(None)
    except StopIteration as end:
        return end.value


class AsyncCode:
    """One run of an async workflow in memory (machine.Instance)."""

    def __init__(self, workflow: Workflow, environment: Environment = BARE, run_id: str = "") -> None:
        self.workflow = workflow
        self.machine = Machine(self)
        self.loop = WorkflowLoop(  # type: ignore[abstract]  # the rest is refused
            lambda: self.machine.now, lambda seconds: Timer(self.ctx, seconds, self.ctx.timer_id(""))
        )
        self.ctx = AsyncContext(self, workflow, environment)
        self.fault: BaseException | None = None  #: that a handler raised, and that ends the run
        self._run_id = run_id
        self._context = Context()
        self._context.run(CURRENT.set, self.ctx)
        self._main: asyncio.Task[Any] | None = None
        self._begin: Callable[[], Any] | None = None  #: makes the main coroutine, until it has begun

    # ---------------------------------------------------------------------------------------------- for the machine
    def start(self, event: Event) -> None:
        payloads = self.ctx.begin(event, self._run_id)
        bound = self.workflow.bind()
        handlers = self.ctx.handlers
        for kind, handler in bound.handlers:
            getattr(handlers, kind)[handler.name] = handler
        arguments: tuple[Any, ...] = (self.ctx,)
        if self.workflow.takes:
            arguments += (self.ctx.converter.from_payloads(payloads, "input", self.workflow.payload),)
        self._begin = lambda: bound.run(*arguments)

    def signal(self, event: Event) -> None:
        self.ctx.handlers.signal(event)

    def cancel(self, event: Event) -> None:
        self.ctx.request_cancel(event)

    def update(self, request: UpdateRequest, accepted: Event | None) -> None:
        self.ctx.handlers.update(request, accepted)

    # ----------------------------------------------------------------------------------------------- for the worker
    @property
    def closed(self) -> bool:
        return self.machine.closed

    def run(self) -> None:
        """See machine.Instance."""
        with self.loop.running(), guard.watching():
            self._context.run(self._run)

    def query(self, name: str, input: Payloads) -> Payloads:
        """See machine.Instance."""
        with self.loop.running(), guard.watching():
            return self._context.run(self.ctx.handlers.query, name, input)

    def step(self, step_id: int) -> StepCall:
        return self.ctx.step_calls[step_id]

    def drop(self) -> None:
        """Unwind the code without effect: whatever it asks for while it unwinds raises Dropped. Once, and nothing but
        the machine is there afterwards."""
        self.machine.drop()
        with self.loop.running(), guard.watching():
            self._context.run(self._drop)
        self.ctx.let_go()
        del self.ctx, self.loop, self._context, self._main, self._begin

    def _drop(self) -> None:
        for task in list(self.loop.tasks):
            _unwind(task.get_coro())
        self.loop.tasks.clear()

    # ------------------------------------------------------------------------------------------------- activations
    def _run(self) -> None:
        machine = self.machine
        while machine.advance():
            if not machine.closed:
                self._activate()
            if machine.error is not None:
                raise machine.error

    def _activate(self) -> None:
        if self._begin is not None:
            begin, self._begin = self._begin, None
            self._main = self.loop.create_task(begin(), name="main")
            if self.ctx.cancel_requested:
                self.loop.call_soon(self._main.cancel)
        self._settle()
        if self.ctx.handlers.look_again():
            self._settle()
        if self._main is not None and (self._main.done() or self.fault is not None) and self.machine.error is None:
            self._close(self._main)

    def _settle(self) -> None:
        """Until the code waits."""
        while self.loop.run_ready() or self.ctx.check_conditions():
            pass

    def cancel_main(self) -> None:
        if self._main is not None:
            self._main.cancel()

    def spawn(self, function: Callable[..., Any], arguments: tuple[Any, ...], ended: Ended) -> None:
        """Call a handler: a plain one now, an async one in a task of its own."""
        try:
            value = function(*arguments)
        except Exception as error:  # noqa: BLE001 - the handler's own
            ended(None, error)
            return
        if not inspect.iscoroutine(value):
            ended(value, None)
            return
        task = self.loop.create_task(value)
        task.add_done_callback(lambda task: ended(*_result(task)))

    # --------------------------------------------------------------------------------------------------------- end
    def _close(self, main: asyncio.Task[Any]) -> None:
        command = self._closing(main)
        unfinished = dict(sorted(self.ctx.handlers.unfinished.items()))
        if unfinished:
            self.ctx.logger.warning("the run has ended while handlers were running: %s", ", ".join(unfinished))
            details = {"handlers": to_payloads(unfinished, "handlers")}
            self.machine.issue(RecordMarker(marker_name="unfinished_handlers", details=details))
        self.machine.issue(command)

    def _closing(self, main: asyncio.Task[Any]) -> TurnCommand:
        result, error = (None, self.fault) if self.fault is not None else _result(main)
        if error is None:
            try:
                return CompleteWorkflow(result=self.ctx.converter.to_payloads(result, "result", self.workflow.result))
            except Exception as fault:  # noqa: BLE001 - InvalidArgument, or what the value's own code raises
                error = fault
        return closing_command(error, self.ctx.cancel_requested)


def _unwind(coroutine: Any) -> None:
    """To its end: a `finally` that waits is a wait more to be thrown out of, as the end of a TaskGroup is."""
    with contextlib.suppress(BaseException):  # what the code raises while it unwinds is nobody's business
        for _ in range(_MOST_WAITS):
            coroutine.throw(Dropped())


def _result(task: asyncio.Task[Any]) -> tuple[Any, BaseException | None]:
    """Of a task that is done: its result, or how it ended instead."""
    if task.cancelled():
        return None, asyncio.CancelledError()
    error = task.exception()
    return (task.result(), None) if error is None else (None, error)
