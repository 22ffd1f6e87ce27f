"""Everything that can go wrong, one type per reaction of the caller.

    PerdureError                 code, HTTP status, retryable
     ├─ InvalidArgument          400  mend the call: names the field, the limit and the value's kind
     │   └─ PayloadTooLarge      413
     ├─ Unauthenticated          401  send an API key
     ├─ PermissionDenied         403
     ├─ NotFound                 404  never existed
     │   └─ Gone                 410  so old that retention has removed it
     ├─ Conflict                 409  the state of things forbids it
     │   ├─ IdempotencyConflict       same key, other body
     │   ├─ LeaseLost                 somebody else owns the task now: stop, commit nothing
     │   ├─ IllegalMove               a move that the state table does not know; nothing was changed
     │   ├─ WorkflowAlreadyStarted    a run of this workflow id is open, or must not be repeated
     │   ├─ WorkflowClosed            it can take no message any more
     │   └─ UnhandledMessages         for workers: show the code what arrived, then close
     ├─ ResourceExhausted        429  slow down
     ├─ Unavailable              503  try again after `retry_after` seconds
     │   ├─ NoWorker                  nobody is there to answer a query
     │   └─ OutcomeUnknown            it may or may not have been committed
     ├─ Internal                 500  our fault
     └─ outcomes that `result()` raises; REST answers them where a result is asked for:
         TaskFailed (of updates and queries of a workflow: UpdateFailed, QueryFailed), TaskCanceled, TaskTerminated,
         TaskExpired, WaitTimeout

What a handler raises to steer its own retries: RetryableError, FatalError. `Cancelled` derives from BaseException, so
that `except Exception` in application code cannot swallow it.

The wire form is an RFC 9457 problem document with the extension members `code`, `retryable`, `field`, `limit`, `kind`
and `retry_after` (API-25).
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

if TYPE_CHECKING:
    from perdure.core.model import Failure


class Problem(msgspec.Struct, omit_defaults=True):
    """RFC 9457 problem details; `code` is stable, `detail` is for people."""

    code: str
    title: str
    status: int
    detail: str = ""
    retryable: bool = False
    field: str | None = None
    limit: str | None = None
    kind: str | None = None
    retry_after: float | None = None


class PerdureError(Exception):
    """Base of all errors. Subclasses fix `code`, `status` and `retryable`."""

    code: ClassVar[str] = "internal"
    title: ClassVar[str] = "Internal error"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(
        self,
        detail: str = "",
        *,
        field: str | None = None,
        limit: str | None = None,
        kind: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(detail or self.title)
        self.detail = detail or self.title
        self.field = field
        self.limit = limit
        self.kind = kind
        self.retry_after = retry_after

    def problem(self) -> Problem:
        """The wire form of this error."""
        return Problem(
            code=self.code,
            title=self.title,
            status=self.status,
            detail=self.detail,
            retryable=self.retryable,
            field=self.field,
            limit=self.limit,
            kind=self.kind,
            retry_after=self.retry_after,
        )


class InvalidArgument(PerdureError):
    code, title, status = "invalid_argument", "Invalid argument", 400


class PayloadTooLarge(InvalidArgument):
    code, title, status = "payload_too_large", "Payload too large", 413


class Unauthenticated(PerdureError):
    code, title, status = "unauthenticated", "An API key is needed", 401


class PermissionDenied(PerdureError):
    code, title, status = "permission_denied", "Permission denied", 403


class NotFound(PerdureError):
    code, title, status = "not_found", "Not found", 404


class Gone(NotFound):
    code, title, status = "gone", "Not kept any more", 410


class Conflict(PerdureError):
    code, title, status = "conflict", "Conflict", 409


class IdempotencyConflict(Conflict):
    code, title = "idempotency_conflict", "This idempotency key was used with another body"


class LeaseLost(Conflict):
    code, title = "lease_lost", "The lease is no longer yours"


class IllegalMove(Conflict):
    code, title = "illegal_move", "The task is in no state that allows this"


class WorkflowAlreadyStarted(Conflict):
    code, title = "workflow_already_started", "A run of this workflow id exists"


class WorkflowClosed(Conflict):
    code, title = "workflow_closed", "The workflow run is closed"


class UnhandledMessages(Conflict):
    code, title = "unhandled_messages", "The run cannot close before its code has seen the messages that arrived"


class ResourceExhausted(PerdureError):
    code, title, status, retryable = "resource_exhausted", "Too much at once", 429, True


class Unavailable(PerdureError):
    code, title, status, retryable = "unavailable", "Temporarily unavailable", 503, True


class NoWorker(Unavailable):
    """No worker answered a query in time. The server did, so a client does not try again by itself."""

    code, title = "no_worker", "No worker answered"


class OutcomeUnknown(Unavailable):
    code, title = "outcome_unknown", "The request may or may not have been committed"


class Internal(PerdureError):
    code, title, status = "internal", "Internal error", 500


class TaskFailed(PerdureError):
    """The task closed FAILED; `failure` says why, `failure.code` and `failure.retryable` are machine-readable."""

    code, title, status = "task_failed", "The task failed", 409

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.type}: {failure.message}" if failure.type else failure.message)
        self.failure = failure


class UpdateFailed(TaskFailed):
    """An update of a workflow failed: `failure.code` is "update_rejected" where its validator refused it, and
    "workflow_closed" where the run closed before it answered."""

    code, title = "update_failed", "The update failed"


class QueryFailed(TaskFailed):
    """The code of a workflow could not answer a query: `failure` says why."""

    code, title = "query_failed", "The query failed"


class TaskTerminated(PerdureError):
    """Somebody closed the workflow without asking its code."""

    code, title, status = "task_terminated", "The workflow was terminated", 409


class TaskCanceled(PerdureError):
    code, title, status = "task_canceled", "The task was canceled", 409


class TaskExpired(PerdureError):
    code, title, status = "task_expired", "The task expired before it started", 409


class WaitTimeout(PerdureError, TimeoutError):
    """The task is still open after the wait; it goes on, and the wait may be repeated."""

    code, title, status, retryable = "wait_timeout", "The task is still open", 504, True


class RetryableError(Exception):
    """Raised by a handler: this attempt failed, try again; after `retry_after` (seconds, text such as "90s", or a
    timedelta), when given. TypeError when it is none of these."""

    def __init__(self, message: str = "", *, retry_after: float | str | timedelta | None = None) -> None:
        super().__init__(message)
        self.retry_after = None if retry_after is None else _seconds(retry_after)


class FatalError(Exception):
    """Raised by a handler: do not try again, whatever attempts remain (RETRY-03)."""


class CompleteLater(BaseException):
    """Raised by `ctx.complete_later()`: the handler is done, and the attempt is not."""


class Cancelled(BaseException):
    """Raised inside a handler by `ctx.raise_if_cancelled()` and by `ctx` calls once the task is to stop."""


def _seconds(value: object) -> float:
    from perdure.core.durations import MAX_SECONDS, seconds  # here, because that module needs this one

    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value == value:
        return float(min(max(value, 0), MAX_SECONDS))  # computed from a clock, it may lie in the past
    try:
        return seconds(value, "retry_after")  # type: ignore[arg-type]
    except InvalidArgument as error:
        raise TypeError(error.detail) from None


def _tree(root: type[PerdureError]) -> dict[str, type[PerdureError]]:
    found = {root.code: root}
    for child in root.__subclasses__():
        if child not in (TaskFailed,):
            found.update(_tree(child))
    return found


def from_problem(problem: Problem) -> PerdureError:
    """The error that a problem document stands for; an unknown code becomes a plain error of its status class."""
    kind = _tree(PerdureError).get(problem.code)
    if kind is None or kind is PerdureError:
        kind = Unavailable if problem.status >= 500 and problem.retryable else Internal
    fields: dict[str, Any] = {
        "field": problem.field,
        "limit": problem.limit,
        "kind": problem.kind,
        "retry_after": problem.retry_after,
    }
    return kind(problem.detail, **fields)
