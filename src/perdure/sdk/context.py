"""`ctx`: what a running handler may ask and say. The same object serves plain handlers, in their thread, and async
ones.

Nothing here talks to the server. Progress and checkpoint are left for the next heartbeat, which a thread of the worker
sends; what that heartbeat answers (cancel, or lost) shows here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from perdure.core.errors import Cancelled, InvalidArgument, PayloadTooLarge
from perdure.core.limits import MAX_PAYLOAD, MAX_TEXT
from perdure.core.limits import progress as checked
from perdure.core.messages import Delivery
from perdure.core.model import Payloads, Progress
from perdure.sdk.converter import from_payloads, to_payloads


class Context:
    """One attempt, as its handler sees it."""

    __slots__ = ("_changed", "_delivery", "_stop", "pending_checkpoint", "pending_progress")

    def __init__(self, delivery: Delivery, changed: Callable[[], None]) -> None:
        self._delivery = delivery
        self._changed = changed
        self._stop = ""
        self.pending_progress: Progress | None = None
        self.pending_checkpoint: Payloads | None = None

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
    def last_checkpoint(self) -> object:
        """What this or an earlier attempt last gave to `checkpoint`; None when there is nothing."""
        latest = self.pending_checkpoint or self._delivery.checkpoint
        return from_payloads(latest or (), "checkpoint")

    def checkpoint(self, value: object) -> None:
        """Remember how far the work is: the next attempt finds `value` in `last_checkpoint` (TASK-22).

        It is stored with the next heartbeat, about a second later at most, and with the end of the attempt. Do the
        effect first, then checkpoint. At most 256 KiB. Raises Cancelled once the task is to stop, after noting the
        value.
        """
        payloads = to_payloads(value, "checkpoint")
        size = len(payloads[0].data)
        if size > MAX_PAYLOAD - 64:
            raise PayloadTooLarge(f"checkpoint has {size} bytes", field="checkpoint", limit=f"{MAX_PAYLOAD - 64} bytes")
        self.pending_checkpoint = payloads
        self._changed()
        self.raise_if_cancelled()

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Say how far the work is, for people. `done` below what was reported before, also by an earlier attempt,
        is not shown: progress never goes back (JOB-10). `message` is cut to 2,000 characters. Raises
        InvalidArgument for what is no int or float from 0 to 2**53."""
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

    def cancelled(self) -> bool:
        """True once the handler should stop: cancel was asked for, the lease was lost, the attempt ran out of time,
        or the worker is leaving."""
        return bool(self._stop)

    def raise_if_cancelled(self) -> None:
        """Raises Cancelled, which `except Exception` does not catch, once `cancelled()` is true."""
        if self._stop:
            raise Cancelled(self._stop)

    def idempotency_key(self, step: str) -> str:
        """A key for one effect of this task, the same in every attempt (IDEM-09)."""
        return f"{self._delivery.task_id}/{step}"

    @property
    def stop(self) -> str:
        """Why the handler should stop: "cancel", "lost", "timeout", "drain"; empty while it should not."""
        return self._stop

    @stop.setter
    def stop(self, reason: str) -> None:
        """For the worker. The first reason stays, but a lost lease overrules all: nothing may be reported then."""
        if not self._stop or reason == "lost":
            self._stop = reason


def _plain(number: float) -> float:
    """Of a subclass, such as the floats of numpy, the number itself: no encoder takes the subclass."""
    return int(number) if isinstance(number, int) else float(number)
