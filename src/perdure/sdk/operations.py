"""What workflow code waits for, written once for both styles.

An operation is a generator: it issues commands and yields a Wait wherever the code has to wait; its return value is
that of the call. `ctx._wait` of the driver runs it: an async one gives the code something to await, a plain one
blocks. A cancel is raised in the operation where it waits, as one of STOPPED, and the operation then cancels what it
has begun. Nothing else may issue a command while an exception passes: a run that is dropped unwinds through here too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from perdure.core.model import Failure
from perdure.core.turn_commands import (
    CancelActivity,
    CancelExternalWorkflow,
    CancelTimer,
    ScheduleActivity,
    SignalExternalWorkflow,
    StartChildWorkflow,
    StartStep,
    StartTimer,
)
from perdure.sdk.hints import Hint
from perdure.sdk.mint import mint_id
from perdure.sdk.steps import StepCall
from perdure.sdk.waiting import Outcome, Pending, Wait
from perdure.sdk.workflow_errors import (
    STOPPED,
    ActivityError,
    ChildWorkflowError,
    ExternalWorkflowError,
    OperationError,
    StepError,
)
from perdure.sdk.workflow_info import text

if TYPE_CHECKING:
    from perdure.sdk.workflow_context import WorkflowContext

T = TypeVar("T")
Operation = Generator[Wait, None, T]

_UNKNOWN = Failure(message="it did not say why", code="unknown")


class Handle(ABC):
    """Something that was started: `result()` waits for it and gives its value, or raises its error; in async code it
    may be awaited itself. Whoever is canceled while waiting for it cancels it."""

    error: type[OperationError] = OperationError

    def __init__(self, ctx: WorkflowContext, pending: Pending, result: Hint, what: str) -> None:
        self._ctx = ctx
        self._pending = pending
        self._result = result
        self._what = what

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self._pending.outcome is not None

    @abstractmethod
    def cancel(self) -> None:
        """Ask it to end. It still ends as it ends."""

    def result(self) -> Any:
        return self._ctx._wait(self.waiting())

    def __await__(self) -> Generator[Any, None, Any]:
        waiting: Generator[Any, None, Any] = self.result().__await__()
        return waiting

    def waiting(self) -> Operation[Any]:
        wait = Wait()
        self._pending.when_ended(wait.finish)
        try:
            yield wait
        except STOPPED:
            self.cancel()
            raise
        return self.value()

    def value(self) -> Any:
        """Once it has ended."""
        outcome = self._pending.outcome
        assert outcome is not None
        if outcome.status == "completed":
            return self._ctx.converter.from_payloads(outcome.result, "result", self._result)
        raise self.fault(outcome)

    def fault(self, outcome: Outcome) -> OperationError:
        event = outcome.event
        retry_state = "" if event is None else getattr(event.attributes, "retry_state", "")
        return self.error(self._what, outcome.failure or _UNKNOWN, retry_state)


class ActivityHandle(Handle):
    """An activity that was scheduled."""

    error = ActivityError

    @property
    def activity_id(self) -> str:
        """Unique in the run: what completes it from outside."""
        activity_id: str = self._pending.command.activity_id
        return activity_id

    def cancel(self) -> None:
        if not self.done and not self._pending.abandoned:
            self._pending.abandoned = True
            command = self._pending.command
            event_id = self._pending.event_id
            self._ctx.issue(CancelActivity(task_id=command.task_id, scheduled_event_id=event_id))


class StepHandle(Handle):
    """A step that was claimed."""

    error = StepError

    def cancel(self) -> None:
        """It may run to its end, but it is not tried again."""
        self._pending.abandoned = True


class ChildHandle(Handle):
    """A child workflow that has started."""

    error = ChildWorkflowError

    @property
    def workflow_id(self) -> str:
        workflow_id: str = self._pending.command.workflow_id
        return workflow_id

    @property
    def run_id(self) -> str:
        """Of its first run."""
        event: Any = self._pending.started
        return "" if event is None else text(event.attributes.run_id)

    def signal(self, name: str, payload: object = None) -> Any:
        """As `ctx.signal_workflow`."""
        return self._ctx.signal_workflow(self.workflow_id, name, payload)

    def cancel(self) -> None:
        """Ask it to end; a child whose parent close policy is "abandon" only if you call this yourself."""
        if not self.done and not self._pending.abandoned:
            self._pending.abandoned = True
            self._ctx.issue(CancelExternalWorkflow(task_id=mint_id(), workflow_id=self.workflow_id))

    def starting(self) -> Operation[ChildHandle]:
        """Until it has started."""
        wait = Wait()
        self._pending.when_started(wait.finish)
        try:
            yield wait
        except STOPPED:
            self._stopped()
            raise
        if self._pending.started is None:
            outcome = self._pending.outcome
            assert outcome is not None
            raise self.fault(outcome)
        return self

    def waiting(self) -> Operation[Any]:
        wait = Wait()
        self._pending.when_ended(wait.finish)
        try:
            yield wait
        except STOPPED:
            self._stopped()
            raise
        return self.value()

    def _stopped(self) -> None:
        if self._pending.command.parent_close_policy != "abandon":
            self.cancel()


# ---------------------------------------------------------------------------------------------------------- beginnings
def schedule(ctx: WorkflowContext, command: ScheduleActivity, result: Hint) -> ActivityHandle:
    return ActivityHandle(ctx, ctx.issue(command), result, f"activity {command.activity_type}")


def claim(ctx: WorkflowContext, call: StepCall) -> StepHandle:
    ctx.step_calls[call.step_id] = call
    pending = ctx.issue(StartStep(step_id=call.step_id, name=call.name))
    pending.when_ended(lambda _: ctx.step_calls.pop(call.step_id))
    return StepHandle(ctx, pending, call.result, f"step {call.name}")


def start_child(ctx: WorkflowContext, command: StartChildWorkflow, result: Hint) -> ChildHandle:
    return ChildHandle(ctx, ctx.issue(command), result, f"child workflow {command.workflow_type}")


class Timer:
    """A durable timer."""

    def __init__(self, ctx: WorkflowContext, seconds: float, timer_id: str) -> None:
        self._ctx = ctx
        self.pending = ctx.issue(StartTimer(task_id=mint_id(), timer_id=timer_id, start_to_fire=seconds))

    def cancel(self) -> None:
        pending = self.pending
        if pending.outcome is None and not pending.abandoned:
            pending.abandoned = True
            command = pending.command
            self._ctx.issue(
                CancelTimer(task_id=command.task_id, timer_id=command.timer_id, started_event_id=pending.event_id)
            )


# ---------------------------------------------------------------------------------------------------------- operations
def result_of(begin: Callable[[], Handle]) -> Operation[Any]:
    """Begin it, and wait for its result."""
    return (yield from begin().waiting())


def child_result(begin: Callable[[], ChildHandle]) -> Operation[Any]:
    return (yield from (yield from begin().starting()).waiting())


def child_started(begin: Callable[[], ChildHandle]) -> Operation[ChildHandle]:
    return (yield from begin().starting())


def sleep(ctx: WorkflowContext, seconds: float, name: str) -> Operation[None]:
    if seconds <= 0:
        return
    wait = Wait()
    timer = Timer(ctx, seconds, ctx.timer_id(name))
    timer.pending.when_ended(wait.finish)
    try:
        yield wait
    except STOPPED:
        timer.cancel()
        raise


def within(ctx: WorkflowContext, wait: Wait, seconds: float | None, give_up: Callable[[], object]) -> Operation[bool]:
    """Until `wait` is done; False when `seconds` are over before that. `give_up` is called when it is not waited for
    any longer."""
    if seconds is None or wait.done:
        try:
            yield wait
        except STOPPED:
            give_up()
            raise
        return True
    if seconds <= 0:
        give_up()
        return False
    timer = Timer(ctx, seconds, ctx.timer_id(""))
    timer.pending.when_ended(wait.finish)
    try:
        yield wait
    except STOPPED:
        give_up()
        timer.cancel()
        raise
    if wait.value is timer.pending:
        give_up()
        return False
    timer.cancel()
    return True


def parallel(begin: Callable[[], list[Handle]], collect: bool) -> Operation[list[Any]]:
    """The results in the order of the calls (STEP-28). Unless errors are to be collected the first one cancels the
    rest."""
    handles = begin()
    wait = Wait()
    left = len(handles)

    def ended(handle: Handle) -> Callable[[Pending], None]:
        def one_less(pending: Pending) -> None:
            nonlocal left
            left -= 1
            assert pending.outcome is not None
            if not collect and pending.outcome.status != "completed":
                wait.finish(handle)
            elif left == 0:
                wait.finish()

        return one_less

    for handle in handles:
        handle._pending.when_ended(ended(handle))
    if handles:
        try:
            yield wait
        except STOPPED:
            cancel_all(handles)
            raise
    if wait.value is not None:
        cancel_all(handles)
        wait.value.value()
    return [_value_or_error(handle) if collect else handle.value() for handle in handles]


def cancel_all(handles: Sequence[Handle]) -> None:
    for handle in handles:
        handle.cancel()


def _value_or_error(handle: Handle) -> Any:
    try:
        return handle.value()
    except OperationError as error:
        return error


def tell(ctx: WorkflowContext, command: SignalExternalWorkflow | CancelExternalWorkflow, what: str) -> Operation[None]:
    """A message to another run, until that has it."""
    wait = Wait()
    pending = ctx.issue(command)
    pending.when_ended(wait.finish)
    yield wait
    if pending.outcome is not None and pending.outcome.status == "failed":
        raise ExternalWorkflowError(what, pending.outcome.failure or _UNKNOWN)
