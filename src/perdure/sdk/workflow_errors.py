"""What goes wrong in the code of a workflow, by who has to react.

    raised to the code, which may catch it:
        OperationError            something that the workflow waited for has failed; `.failure` says how
         ├─ ActivityError
         ├─ StepError
         ├─ ChildWorkflowError
         └─ ExternalWorkflowError    a signal or a cancel request found no open run
    raised by faults of the code; they fail the turn, never the run, so that mended code goes on where this one stood:
        NonDeterminismError       the code does something else than the history says (RPLY-10)
        ForbiddenError            sockets, files, threads and the like in workflow code; commands in a query
    raised through the code, and not to be caught: Dropped, ContinuedAsNew

An exception that leaves the workflow function fails the run, whatever it is, unless it is one of the second group.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec.structs import replace

from perdure.core.errors import Cancelled, PerdureError
from perdure.core.model import Failure
from perdure.core.turn_commands import CancelWorkflow, ContinueAsNew, FailWorkflow, TurnCommand
from perdure.sdk.failure import to_failure

if TYPE_CHECKING:
    from collections.abc import Iterator

STOPPED = (asyncio.CancelledError, Cancelled)
"""How a cancel arrives in the code: the first in async code, the second in plain code."""


class RecordedError(Exception):
    """An exception of another process, as the history has it: the `cause` of an OperationError."""

    def __init__(self, failure: Failure) -> None:
        text = f"{failure.type}: {failure.message}" if failure.type else failure.message
        super().__init__(f"{text}\n\n{failure.stack}" if failure.stack else text)
        self.failure = failure
        if failure.cause is not None:
            self.__cause__ = RecordedError(failure.cause)


class OperationError(PerdureError):
    """What the workflow waited for has failed. `failure` is that of the last attempt; `retry_state` says why there was
    no other one, where that is known."""

    code, title, status = "operation_failed", "Something that the workflow waited for failed", 409

    def __init__(self, what: str, failure: Failure, retry_state: str = "") -> None:
        text = f"{failure.type}: {failure.message}" if failure.type else failure.message
        super().__init__(f"{what}: {text}")
        self.failure = failure
        self.retry_state = retry_state
        self.__cause__ = RecordedError(failure)

    @property
    def cause(self) -> BaseException | None:
        """The exception of the other side."""
        return self.__cause__


class ActivityError(OperationError):
    """An activity failed, timed out or was canceled: see `failure.code`."""

    code, title = "activity_failed", "The activity failed"


class StepError(OperationError):
    """A step failed, and no attempt is left."""

    code, title = "step_failed", "The step failed"


class ChildWorkflowError(OperationError):
    """A child workflow failed ("handler_error" and so on), was canceled ("canceled"), terminated ("terminated"), timed
    out ("timed_out") or could not start ("workflow_already_exists"): see `failure.code`."""

    code, title = "child_workflow_failed", "The child workflow failed"


class ExternalWorkflowError(OperationError):
    """There is no open run to signal or to cancel."""

    code, title = "external_workflow_failed", "The other workflow cannot be reached"


class NonDeterminismError(BaseException):
    """The code and the history of a run differ. Derives from BaseException, so that workflow code cannot swallow it.

    `expected` is what the history has at `event_id`, `found` what the code did instead, at `file` and `line`.
    """

    def __init__(self, event_id: int, expected: str, found: str, file: str = "", line: int = 0) -> None:
        super().__init__(event_id, expected, found, file, line)
        self.event_id = event_id
        self.expected = expected
        self.found = found
        self.file = file
        self.line = line

    def __str__(self) -> str:
        place = f" at {self.file}:{self.line}" if self.file else ""
        return (
            f"the code differs from the history at event {self.event_id}: expected {self.expected}, found {self.found}"
            f"{place}"
        )


class ForbiddenError(Exception):
    """Workflow code did what it must not: the message says what, and what to do instead."""


class Dropped(BaseException):
    """Unwinds code whose run is not in this process any more."""


class ContinuedAsNew(BaseException):
    """Ends the code of a run that goes on in another one."""

    def __init__(self, command: ContinueAsNew) -> None:
        super().__init__("the run continues as new")
        self.command = command


def turn_failure(error: BaseException) -> Failure:
    """Of a turn that cannot go on: "non_determinism" for the code's own fault, else "turn_failed"."""
    if isinstance(error, NonDeterminismError):
        return Failure(message=str(error), code="non_determinism", type="NonDeterminismError")
    return to_failure(error, code="turn_failed")


def failure_of(error: BaseException, *, skip: int = 0) -> Failure:
    """As `to_failure`, with what came from other processes as it was recorded there (field case B108)."""
    return _with_recorded(to_failure(error, skip=skip), error)


def _with_recorded(failure: Failure, error: BaseException) -> Failure:
    if isinstance(error, OperationError):
        return replace(failure, cause=error.failure)
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if failure.cause is None or cause is None:
        return failure
    return replace(failure, cause=_with_recorded(failure.cause, cause))


def closing_command(error: BaseException, canceled: bool, skip: int = 0) -> TurnCommand:
    """What closes a run whose code ended with `error`; `canceled` says that a cancel had been asked for. Raises the
    error where it fails the turn instead."""
    for part in _parts(error):
        if isinstance(part, ContinuedAsNew):
            return part.command
        if isinstance(part, (NonDeterminismError, ForbiddenError, Dropped)):
            raise part
    if canceled and isinstance(error, STOPPED):
        return CancelWorkflow()
    if isinstance(error, (Exception, *STOPPED)):
        return FailWorkflow(failure=failure_of(error, skip=skip))
    raise error


def _parts(error: BaseException) -> Iterator[BaseException]:
    """The error, or those of a group."""
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from _parts(part)
    else:
        yield error
