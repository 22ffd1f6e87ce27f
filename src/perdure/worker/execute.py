"""One delivery: run its handler and say how the attempt ended.

A handler may raise anything, SystemExit and KeyboardInterrupt included: it ends the attempt, never the worker. Why
a run was stopped decides what is reported, not which exception happened to come out:

    cancel    canceled; but a handler that returned anyway has succeeded (the first commit wins, CANC-08)
    timeout   failed with code "start_to_close_timeout"
    drain     released: no attempt is spent (field case B030)
    lost      nothing: somebody else owns the task now (TASK-24)

Middleware is around the handler and inside of this: it may make a success a failure, but no failure, cancel or loss
anything else.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any
from weakref import ref

from msgspec.structs import replace

from perdure.core.errors import Cancelled, CompleteLater, InvalidArgument
from perdure.core.limits import MAX_PAYLOAD
from perdure.core.messages import Completion, Delivery
from perdure.core.model import Failure, Payloads
from perdure.sdk.context import OVER, Context
from perdure.sdk.converter import PLAIN, Converter
from perdure.sdk.failure import cut, is_cut, to_failure
from perdure.sdk.logs import RUNNING
from perdure.sdk.middleware import Middleware
from perdure.sdk.task import Task
from perdure.worker.fork import end_copies, uncopied

log = logging.getLogger("perdure.worker")

METADATA_BYTES = 64
"""More than the name of an encoding takes; it counts as part of a payload."""


@dataclass(frozen=True)
class Environment:
    """What an application gives to all its handlers."""

    converter: Converter = PLAIN
    middleware: tuple[Middleware, ...] = ()
    state: Any = None  #: what its lifespan yielded


BARE = Environment()


NOT_COMMITTED = "not_committed"
"""What is reported after `ctx.complete_in`. A job that ended in its transaction answers as it was recorded; only where
there was no commit this failure counts."""


def undecided(completion: Completion) -> bool:
    """Whether the server alone can tell how the attempt ended."""
    return completion.failure is not None and completion.failure.code == NOT_COMMITTED


class Run:
    """A leased task while this worker has it: from delivery until its completion was answered. Its `ctx` knows it by a
    weak reference only: a circle would be left to the garbage collector."""

    __slots__ = (
        "__weakref__",
        "acknowledged",
        "beat_at",
        "ctx",
        "delivery",
        "ended",
        "entered",
        "environment",
        "heard_at",
        "messages",
        "overran",
        "pid",
        "running",
        "sent_checkpoint",
        "sent_progress",
        "task",
        "timer",
    )

    def __init__(
        self,
        delivery: Delivery,
        task: Task[..., Any] | None,
        changed: Callable[[Run], None],
        beat_at: float,
        environment: Environment = BARE,
    ) -> None:
        self.delivery = delivery
        self.task = None if delivery.turn is not None else task  #: a workflow may have the name of a task
        self.environment = environment
        myself = ref(self)
        self.ctx = Context(
            delivery, lambda: changed(run) if (run := myself()) else None, environment.converter, environment.state
        )
        self.entered: list[Middleware] = []  #: whose `before` was called, and neither `after` nor `error` yet
        self.pid = os.getpid()
        self.running: asyncio.Task[None] | None = None  #: of an async handler, once it has started
        self.timer: asyncio.TimerHandle | None = None  #: of its start-to-close time-out
        self.ended = False  #: the handler is done, or was given up
        self.overran = False  #: its start-to-close time is over
        self.acknowledged = False  #: the server knows that it was received
        self.beat_at = beat_at  #: when its next heartbeat is due, on the monotonic clock
        self.messages = False  #: of a turn: some have come that it does not see
        self.heard_at = time.monotonic()  #: when the server last said that the lease holds
        self.sent_progress: object = None  #: what heartbeats brought to the server, told apart by identity
        self.sent_checkpoint: object = None

    def stop(self, reason: str) -> bool:
        """Ask the handler to stop; False when this was known. From any thread; an async handler has to be canceled
        too."""
        known = self.ctx.stop
        self.ctx.stop = reason
        self.overran |= reason == "timeout"
        return self.ctx.stop != known

    def loss(self) -> str:
        """That its lease was lost, and by how much, for the log."""
        item = self.delivery
        silent = time.monotonic() - self.heard_at
        when = f"{silent:.1f} s after its last heartbeat (without one it lives {item.lease_seconds:g} s)"
        return f"task {item.task_id} ({item.type}): the lease was lost {when}"

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
    RUNNING.set(run.ctx)
    try:
        value = await uncopied(run.task.function(run.ctx, _entered(run)), run.pid)
        leave(run, value)
    except BaseException as error:  # noqa: BLE001 - see the module's first paragraph
        return _settled(run, _raised, error)
    return _settled(run, _returned, value)


def run_plain(run: Run) -> Completion | None:
    """Run a plain handler to its end, in the calling thread; None when nothing is to be reported. What it and its
    middleware set in context variables is forgotten then."""
    return copy_context().run(_run_plain, run)


def _run_plain(run: Run) -> Completion | None:
    assert run.task is not None
    RUNNING.set(run.ctx)
    try:
        value = run.task.function(run.ctx, _entered(run))
        leave(run, value)
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


def broken(run: Run, code: str, message: str) -> Completion | None:
    """The handler did not come to an end, as `message` says: its process died, or it was given up. Why it was stopped
    decides, if it was."""
    if run.ctx.stop == "timeout":
        return _settled(run, _timed_out, message)
    if run.ctx.stop:
        return _settled(run, _raised, Cancelled(run.ctx.stop))
    completion = _failed(run, Failure(message=message, code=code, type="ProcessDied"))
    _log_failure(run, completion, None)
    return completion


def refused(lease: bytes, detail: str) -> Completion:
    """What to report instead of an outcome that the server does not take."""
    return Completion(lease, "failed", failure=_refusal("unencodable_result", f"the outcome was refused: {detail}"))


def _entered(run: Run) -> object:
    """The payload, once the middleware has let it in."""
    assert run.task is not None
    run.ctx.result = run.task.result
    run.ctx.raise_if_cancelled()  # stopped before it started
    try:
        payload = run.environment.converter.from_payloads(run.delivery.payload, "payload", run.task.payload)
    except InvalidArgument as error:
        raise _UndecodableError(error.detail) from None
    for middleware in run.environment.middleware:
        middleware.before(run.ctx, payload)
        run.entered.append(middleware)
    return payload


def leave(run: Run, result: object) -> None:
    """Tell the middleware of a result, the innermost first. Cancelled when nobody waits for it any more."""
    if run.entered and run.ctx.stop in OVER:
        raise Cancelled(run.ctx.stop)
    while run.entered:
        run.entered.pop().after(run.ctx, result)


def complain(run: Run, error: BaseException) -> None:
    """Tell the middleware of an exception, the innermost first."""
    while run.entered:
        middleware = run.entered.pop()
        try:
            middleware.error(run.ctx, error)
        except BaseException:
            log.exception("%s.error raised an error, which changes nothing", type(middleware).__name__)


def _settled(run: Run, settle: Callable[[Run, Any], Completion | None], outcome: object) -> Completion | None:
    """What to report about an outcome. Values and exceptions are the application's own code, and so are log handlers:
    when looking at them fails, that is reported, because an end that nobody hears of leaves the task leased for
    ever. A copy of the process that a handler forked and that comes back ends here: it has no loop, and its sockets are
    those of the worker."""
    end_copies(run.pid)
    completion: Completion | None = None
    try:
        completion = settle(run, outcome)
        if completion is not None and completion.outcome == "failed" and not undecided(completion):
            _log_failure(run, completion, outcome if isinstance(outcome, BaseException) else None)
    except BaseException:  # noqa: BLE001 - see the module's first paragraph
        if completion is None:
            text = f"task {run.delivery.type}: looking at how the handler ended raised an error"
            completion = _failed(run, Failure(message=text, code="handler_error", type="UnreadableOutcome"))
    return completion


def _log_failure(run: Run, completion: Completion, error: BaseException | None) -> None:
    """A line for the one who operates this: with the stack when there is no other attempt. Python would write out all
    of a message, however long; the stack of one that was cut goes without it."""
    item, failure = run.delivery, completion.failure
    assert failure is not None
    fatal = not failure.retryable or (item.retry is not None and failure.type in item.retry.fatal_types)
    last = fatal or item.attempt >= item.max_attempts
    long = is_cut(failure)
    log.log(
        logging.ERROR if last else logging.WARNING,
        "task %s (%s) attempt %d of %d failed: %s: %s%s",
        item.type,
        item.task_id,
        item.attempt,
        item.max_attempts,
        failure.type,
        failure.message,
        f"\n{failure.stack}" if last and long else "",
        exc_info=error if last and not long else None,
    )


def _returned(run: Run, value: object) -> Completion | None:
    stop = run.ctx.stop
    if stop == "lost":
        return None
    if stop == "timeout":
        return _timed_out(run, "the handler returned after it, and its result is dropped")
    if run.ctx.handed_over:
        text = "the handler called complete_in and returned, but the transaction was not committed"
        return _failed(run, Failure(message=text, code=NOT_COMMITTED, type="NotCommitted"))
    assert run.task is not None
    try:
        result = run.environment.converter.to_payloads(value, "result", run.task.result)
    except InvalidArgument as error:
        return _failed(run, _refusal("unencodable_result", f"task {run.delivery.type}: {error}"))
    size = len(result[0].data) + METADATA_BYTES
    if size > MAX_PAYLOAD:
        text = f"task {run.delivery.type}: result has {size} bytes, {MAX_PAYLOAD} are allowed"
        return _failed(run, _refusal("unencodable_result", text))
    return _completion(run, "succeeded", result)


def _raised(run: Run, error: BaseException) -> Completion | None:
    if isinstance(error, CompleteLater) and not run.ctx.stop:
        run.entered.clear()
        return _completion(run, "deferred")
    complain(run, error)
    match run.ctx.stop:
        case "lost":
            return None
        case "cancel":
            return _completion(run, "canceled", failure=to_failure(error, code="canceled", skip=_our_frames(run)))
        case "drain":
            return released(run)
        case "timeout":
            return _timed_out(run, _how_it_stopped(error), error)
    if isinstance(error, _UndecodableError):
        return _failed(run, _refusal("undecodable_payload", f"task {run.delivery.type}: {error}"))
    assert run.task is not None
    verdict = run.task.after_error.verdict(error, run.delivery.attempt)
    failure = to_failure(error, skip=_our_frames(run))
    if not verdict.again:
        failure = replace(failure, retryable=False)
    return _failed(run, failure, verdict.wait)


def _our_frames(run: Run) -> int:
    """The outermost frames of a traceback that are not the application's."""
    return 1 if run.running is None else 2


def _how_it_stopped(error: BaseException) -> str:
    if isinstance(error, (Cancelled, asyncio.CancelledError)):
        return "the handler was stopped where `stack` says"
    return f"the handler then raised {type(error).__name__}"


def _timed_out(run: Run, how: str, error: BaseException | None = None) -> Completion:
    """With the place where the handler was, when it was stopped there, or what it raised instead."""
    message = f"the start-to-close time-out of {run.delivery.start_to_close:g} s is over; {how}"
    failure = Failure(message=message, code="start_to_close_timeout", type="Timeout")
    if error is not None:
        raised = to_failure(error, skip=_our_frames(run))
        cause = None if isinstance(error, (Cancelled, asyncio.CancelledError)) else raised
        failure = replace(failure, stack="" if cause else raised.stack, cause=cause)
    return _failed(run, failure)


def _refusal(code: str, message: str) -> Failure:
    """A failure that another attempt would only repeat."""
    return Failure(message=cut(message), code=code, type="InvalidArgument", retryable=False)


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
