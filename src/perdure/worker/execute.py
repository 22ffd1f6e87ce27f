"""One delivery: run its handler and say how the attempt ended.

A handler may raise anything, SystemExit and KeyboardInterrupt included: it ends the attempt, never the worker. Why
a run was stopped decides what is reported, not which exception happened to come out:

    cancel    canceled; but a handler that returned anyway has succeeded (the first commit wins, CANC-08)
    timeout   failed with code "start_to_close_timeout"
    drain     released: no attempt is spent (field case B030)
    lost      nothing: somebody else owns the task now (TASK-24)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from perdure.core.errors import InvalidArgument, RetryableError
from perdure.core.limits import MAX_PAYLOAD
from perdure.core.messages import Completion, Delivery
from perdure.core.model import Failure, Payloads
from perdure.sdk.context import Context
from perdure.sdk.converter import from_payloads, to_payloads
from perdure.sdk.failure import to_failure
from perdure.sdk.task import Task

log = logging.getLogger("perdure.worker")

METADATA_BYTES = 64
"""More than the name of an encoding takes; it counts as part of a payload."""
_MONTH = 31 * 86_400.0
_OUR_FRAMES = 1


class Run:
    """A leased task while this worker has it: from delivery until its completion was answered."""

    __slots__ = (
        "acknowledged",
        "beat_at",
        "ctx",
        "delivery",
        "ended",
        "running",
        "sent_checkpoint",
        "sent_progress",
        "task",
        "timer",
    )

    def __init__(
        self, delivery: Delivery, task: Task[..., Any] | None, changed: Callable[[Run], None], beat_at: float
    ) -> None:
        self.delivery = delivery
        self.task = task
        self.ctx = Context(delivery, lambda: changed(self))
        self.running: asyncio.Task[None] | None = None  #: of an async handler, once it has started
        self.timer: asyncio.TimerHandle | None = None  #: of its start-to-close time-out
        self.ended = False  #: the handler is done, or was given up
        self.acknowledged = False  #: the server knows that it was received
        self.beat_at = beat_at  #: when its next heartbeat is due, on the monotonic clock
        self.sent_progress: object = None  #: what heartbeats brought to the server, told apart by identity
        self.sent_checkpoint: object = None

    def stop(self, reason: str) -> bool:
        """Ask the handler to stop; False when this was known. From any thread; an async handler has to be canceled
        too."""
        known = self.ctx.stop
        self.ctx.stop = reason
        return self.ctx.stop != known

    def has_news(self) -> bool:
        """Whether there is progress or a checkpoint that no heartbeat has brought to the server."""
        ctx = self.ctx
        return ctx.pending_progress is not self.sent_progress or ctx.pending_checkpoint is not self.sent_checkpoint


class _UndecodableError(Exception):
    """The payload is none that this SDK can read; the handler did not run."""


async def run_async(run: Run) -> Completion | None:
    """Run an async handler to its end, in the current asyncio task; None when nothing is to be reported."""
    assert run.task is not None
    run.running = asyncio.current_task()
    try:
        value = await run.task.function(run.ctx, _payload(run))
    except BaseException as error:  # noqa: BLE001 - see the module's first paragraph
        return _settled(run, _raised, error)
    return _settled(run, _returned, value)


def run_plain(run: Run) -> Completion | None:
    """Run a plain handler to its end, in the calling thread; None when nothing is to be reported."""
    assert run.task is not None
    try:
        value = run.task.function(run.ctx, _payload(run))
    except BaseException as error:  # noqa: BLE001 - see the module's first paragraph
        return _settled(run, _raised, error)
    return _settled(run, _returned, value)


def released(run: Run) -> Completion:
    """Hand the task back: it did not end, and no attempt is spent."""
    return _completion(run, "released")


def unknown_handler(run: Run) -> Completion:
    """This worker serves the queue but does not know the task: a dead letter, not limbo (TASK-18)."""
    text = f"the worker has no task named {run.delivery.type!r}"
    completion = _failed(run, Failure(message=text, code="unknown_handler", type="UnknownHandler", retryable=False))
    _log_failure(run, completion, None)
    return completion


def refused(lease: bytes, detail: str) -> Completion:
    """What to report instead of an outcome that the server does not take."""
    return Completion(lease, "failed", failure=_refusal("unencodable_result", f"the outcome was refused: {detail}"))


def _payload(run: Run) -> object:
    run.ctx.raise_if_cancelled()  # stopped before it started
    try:
        return from_payloads(run.delivery.payload, "payload")
    except InvalidArgument as error:
        raise _UndecodableError(error.detail) from None


def _settled(run: Run, settle: Callable[[Run, Any], Completion | None], outcome: object) -> Completion | None:
    """What to report about an outcome. Values and exceptions are the application's own code, and so are log handlers:
    when looking at them fails, that is reported, because an end that nobody hears of leaves the task leased for
    ever."""
    completion: Completion | None = None
    try:
        completion = settle(run, outcome)
        if completion is not None and completion.outcome == "failed":
            _log_failure(run, completion, outcome if isinstance(outcome, BaseException) else None)
    except BaseException:  # noqa: BLE001 - see the module's first paragraph
        if completion is None:
            text = f"task {run.delivery.type}: looking at how the handler ended raised an error"
            completion = _failed(run, Failure(message=text, code="handler_error", type="UnreadableOutcome"))
    return completion


def _log_failure(run: Run, completion: Completion, error: BaseException | None) -> None:
    """A line for the one who operates this: with the stack when there is no other attempt."""
    item, failure = run.delivery, completion.failure
    assert failure is not None
    fatal = not failure.retryable or (item.retry is not None and failure.type in item.retry.fatal_types)
    last = fatal or item.attempt >= item.max_attempts
    log.log(
        logging.ERROR if last else logging.WARNING,
        "task %s (%s) attempt %d of %d failed: %s: %s",
        item.type,
        item.task_id,
        item.attempt,
        item.max_attempts,
        failure.type,
        failure.message,
        exc_info=error if last else None,
    )


def _returned(run: Run, value: object) -> Completion | None:
    stop = run.ctx.stop
    if stop == "lost":
        return None
    if stop == "timeout":
        return _timed_out(run)
    try:
        result = to_payloads(value, "result")
    except InvalidArgument as error:
        return _failed(run, _refusal("unencodable_result", f"task {run.delivery.type}: {error}"))
    size = len(result[0].data) + METADATA_BYTES
    if size > MAX_PAYLOAD:
        text = f"task {run.delivery.type}: result has {size} bytes, {MAX_PAYLOAD} are allowed"
        return _failed(run, _refusal("unencodable_result", text))
    return _completion(run, "succeeded", result)


def _raised(run: Run, error: BaseException) -> Completion | None:
    match run.ctx.stop:
        case "lost":
            return None
        case "cancel":
            return _completion(run, "canceled", failure=to_failure(error, code="canceled", skip=_OUR_FRAMES))
        case "drain":
            return released(run)
        case "timeout":
            return _timed_out(run)
    if isinstance(error, _UndecodableError):
        return _failed(run, _refusal("undecodable_payload", str(error)))
    after = error.retry_after if isinstance(error, RetryableError) else None
    return _failed(run, to_failure(error, skip=_OUR_FRAMES), None if after is None else min(max(after, 0.0), _MONTH))


def _timed_out(run: Run) -> Completion:
    limit = run.delivery.start_to_close
    message = f"the start-to-close time-out of {limit:g} s is over"
    return _failed(run, Failure(message=message, code="start_to_close_timeout", type="Timeout"))


def _refusal(code: str, message: str) -> Failure:
    """A failure that another attempt would only repeat."""
    return Failure(message=message, code=code, type="InvalidArgument", retryable=False)


def _failed(run: Run, failure: Failure, retry_after: float | None = None) -> Completion:
    return _completion(run, "failed", failure=failure, retry_after=retry_after)


def _completion(
    run: Run,
    outcome: str,
    result: Payloads = (),
    failure: Failure | None = None,
    retry_after: float | None = None,
) -> Completion:
    """With what no heartbeat has brought to the server yet."""
    checkpoint, progress = run.ctx.pending_checkpoint, run.ctx.pending_progress
    return Completion(
        run.delivery.lease,
        outcome,
        result,
        failure,
        retry_after,
        None if checkpoint is run.sent_checkpoint else checkpoint,
        None if progress is run.sent_progress else progress,
    )
