"""`ctx`: what a running handler may ask and say. The same object serves plain handlers, in their thread, and async
ones.

Nothing here talks to the server. Progress and checkpoint are left for the next heartbeat, which a thread of the worker
sends; what that heartbeat answers (cancel, or lost) shows here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NoReturn

from perdure.core.errors import Cancelled, CompleteLater, InvalidArgument, LeaseLost, PayloadTooLarge
from perdure.core.limits import MAX_PAYLOAD, MAX_TEXT, name
from perdure.core.limits import progress as checked
from perdure.core.messages import Delivery
from perdure.core.model import Payloads, Progress
from perdure.core.schedule_messages import SCHEDULED_AT
from perdure.sdk.converter import PLAIN, Converter
from perdure.sdk.hints import ANY, Hint
from perdure.sdk.stream import StreamWriter
from perdure.sdk.transaction import Call, complete_call, is_async, run, run_async

OVER = ("lost", "timeout")
"""Reasons to stop that end the attempt, whatever its handler does: another one may already run."""


class Context:
    """One attempt, as its handler sees it."""

    __slots__ = (
        "_changed",
        "_converter",
        "_delivery",
        "_stop",
        "_stream",
        "handed_over",
        "pending_checkpoint",
        "pending_progress",
        "result",
        "state",
        "stream_to",
    )

    def __init__(
        self, delivery: Delivery, changed: Callable[[], None], converter: Converter = PLAIN, state: Any = None
    ) -> None:
        self._delivery = delivery
        self._changed = changed
        self._converter = converter
        self.state = state  #: what the `lifespan` of the application has for its handlers; None without one
        self._stop = ""
        self._stream: StreamWriter | None = None
        self.stream_to: Callable[[StreamWriter], None] | None = None  #: where chunks are sent from, if anywhere
        self.pending_progress: Progress | None = None
        self.pending_checkpoint: Payloads | None = None
        self.result: Hint = ANY  #: what the handler is annotated to return
        self.handed_over = False  #: `complete_in` was called: a transaction of the application decides

    @property
    def task_id(self) -> str:
        """The same over all attempts: the key for writes to other systems (TASK-17)."""
        return self._delivery.task_id

    @property
    def attempt(self) -> int:
        """Counts from 1."""
        return self._delivery.attempt

    @property
    def max_attempts(self) -> int:
        return self._delivery.max_attempts

    @property
    def type(self) -> str:
        return self._delivery.type

    @property
    def queue(self) -> str:
        return self._delivery.queue

    @property
    def headers(self) -> Mapping[str, str]:
        """What the enqueuer sent along."""
        return self._delivery.headers

    @property
    def scheduled_at(self) -> datetime | None:
        """The nominal time of the firing that enqueued it, in UTC; None if no schedule did."""
        given = self.headers.get(SCHEDULED_AT)
        return None if given is None else datetime.fromisoformat(given)

    @property
    def task_token(self) -> bytes:
        """Names this attempt to whoever ends it elsewhere: `get_activity_handle(token=...)`."""
        return self._delivery.lease

    def complete_later(self) -> NoReturn:
        """End the handler and leave the attempt open: somebody else, who has `task_token`, will end it (a webhook, a
        person). It holds no slot meanwhile. Nothing but its time-outs ends it by itself, so it should have one
        (`timeout`). Never returns; do not catch what it raises."""
        raise CompleteLater

    @property
    def last_checkpoint(self) -> object:
        """What this or an earlier attempt last gave to `checkpoint`; None when there is nothing."""
        latest = self.pending_checkpoint or self._delivery.checkpoint
        return self._converter.from_payloads(latest or (), "checkpoint")

    def checkpoint(self, value: object) -> None:
        """Remember how far the work is: the next attempt finds `value` in `last_checkpoint` (TASK-22).

        It is stored with the next heartbeat, about a second later at most, and with the end of the attempt. Do the
        effect first, then checkpoint. At most 256 KiB. Raises Cancelled once the task is to stop, after noting the
        value.
        """
        payloads = self._converter.to_payloads(value, "checkpoint")
        size = len(payloads[0].data)
        if size > MAX_PAYLOAD - 64:
            raise PayloadTooLarge(f"checkpoint has {size} bytes", field="checkpoint", limit=f"{MAX_PAYLOAD - 64} bytes")
        self.pending_checkpoint = payloads
        self._changed()
        self.raise_if_cancelled()

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Say how far the work is, for people. `done` below what was reported before, also by an earlier attempt,
        is not shown: progress never goes back (JOB-10). `message` is cut to 2,000 characters. Raises
        InvalidArgument for what is no int or float from 0 to 2**53, and Cancelled once the attempt is over: out of
        time, or its lease was lost."""
        if not isinstance(message, str):
            given = type(message).__name__
            raise InvalidArgument(f"message is a {given}", field="message", limit="text", kind=given)
        text = message[:MAX_TEXT].replace("\x00", "\N{REPLACEMENT CHARACTER}")
        text = text.encode("utf-8", "backslashreplace").decode()[:MAX_TEXT]
        checked(Progress(done, total, text))
        done, total = _plain(done), None if total is None else _plain(total)
        before = self.pending_progress or self._delivery.progress
        if before is not None:
            done = max(done, before.done)
        self.pending_progress = Progress(done, total, text)
        self._changed()
        self._raise_if_over()

    @property
    def stream(self) -> StreamWriter:
        """What the handler says while it runs: `ctx.stream.write(chunk)`. Others read it with `job.stream()` as it is
        written, and after the end. Raises InvalidArgument where there is none: in handlers that run in a process of
        their own, and in steps of workflows."""
        if self._stream is None:
            if self.stream_to is None:
                raise InvalidArgument("handlers in processes, and steps, have no stream", field="stream")
            self._stream = StreamWriter(self._converter, self.stream_to)
        return self._stream

    @property
    def stream_writer(self) -> StreamWriter | None:
        """For the worker: its stream, if it was asked for."""
        return self._stream

    def complete_in(self, connection: object, result: object = None) -> Any:
        """Record that the job succeeded with `result` (what the handler is annotated to return), in the transaction
        that `connection` is in: with the commit both hold, the application's writes and the end of the job, and with a
        rollback neither. To be awaited when the methods of the connection are. PostgreSQL only, the database of
        Perdure's store, once an attempt.

        Call it last, right before the commit: the task's row is locked from here on. After it the handler's own result
        counts for nothing. Returning or raising without a commit ends the attempt as a failure (code "not_committed",
        or that of the exception), and another one follows as usual; after a commit whatever happens changes nothing.

        `connection` is an asyncpg or psycopg 3 connection, or a SQLAlchemy connection or session; TypeError otherwise.
        Raises LeaseLost when another attempt may run: roll back, nothing of this one may count; InvalidArgument or
        PayloadTooLarge (256 KiB) for `result`; Cancelled once the attempt is over; and what the driver raises.
        """
        self._raise_if_over()
        awaited = is_async(connection)
        payloads = self._converter.to_payloads(result, "result", self.result)
        size = len(payloads[0].data)
        if size > MAX_PAYLOAD - 64:
            raise PayloadTooLarge(f"result has {size} bytes", field="result", limit=f"{MAX_PAYLOAD - 64} bytes")
        call = complete_call(self._delivery.lease, payloads, self.pending_progress, self.pending_checkpoint)
        self.handed_over = True
        if awaited:
            return self._hand_over(connection, call)
        try:
            run(connection, call)
        except LeaseLost:
            self._lose()
            raise

    async def _hand_over(self, connection: object, call: Call) -> None:
        try:
            await run_async(connection, call)
        except LeaseLost:
            self._lose()
            raise

    def _lose(self) -> None:
        self.handed_over = False
        self.stop = "lost"

    def cancelled(self) -> bool:
        """True once the handler should stop: cancel was asked for, the lease was lost, the attempt ran out of time,
        or the worker is leaving."""
        return bool(self._stop)

    def raise_if_cancelled(self) -> None:
        """Raises Cancelled, which `except Exception` does not catch, once `cancelled()` is true."""
        if self._stop:
            raise Cancelled(self._stop)

    def idempotency_key(self, step: str) -> str:
        """A key for one effect of this task elsewhere: the same in every attempt, another one for each task and each
        `step` (IDEM-09). A closed task that is run again with `retry` is another task.

        Raises Cancelled once the attempt is over (out of time, or its lease was lost), because the effect is another
        attempt's business then; InvalidArgument for a `step` that is no text of 1 to 255 bytes."""
        self._raise_if_over()
        return f"{self._delivery.task_id}/{name(step, 'step')}"

    def _raise_if_over(self) -> None:
        """For calls that a handler may make while it winds up after a cancel, but not when nothing it does counts."""
        if self._stop in OVER:
            raise Cancelled(self._stop)

    @property
    def stop(self) -> str:
        """Why the handler should stop: "cancel", "lost", "timeout", "drain"; empty while it should not."""
        return self._stop

    @stop.setter
    def stop(self, reason: str) -> None:
        """For the worker. The first reason stays, but a lost lease overrules all: nothing may be reported then. A job
        that has ended in a transaction has no lease either, and its handler may go on to its end."""
        if reason == "lost" and self.handed_over:
            return
        if not self._stop or reason == "lost":
            self._stop = reason


def _plain(number: float) -> float:
    """Of a subclass, such as the floats of numpy, the number itself: no encoder takes the subclass."""
    return int(number) if isinstance(number, int) else float(number)
