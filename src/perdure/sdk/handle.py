"""A job in the hand of its owner: wait for its result, look at it, cancel it."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from perdure.core.durations import Duration, seconds
from perdure.core.errors import TaskCanceled, TaskExpired, TaskFailed, Unavailable, WaitTimeout
from perdure.core.limits import MAX_WAIT_SECONDS
from perdure.core.messages import Cancel, CancelReply, Get, TaskView
from perdure.core.model import Failure
from perdure.sdk.hints import ANY, Hint
from perdure.sdk.stream import Chunk, blocking
from perdure.sdk.task import R

if TYPE_CHECKING:
    from perdure.sdk.client import AsyncClient

OUTAGE_SECONDS = 30.0
"""How long a server may be away before waiting for it raises Unavailable."""
_ANSWER_SECONDS = 2.0
"""What an answer may take beyond the wait before a bounded wait ends."""
LONGEST_WAIT = 1e12
"""Seconds that a caller may be willing to wait."""
_RETRY_SECONDS = 0.2
T = TypeVar("T")


class AsyncJob(Generic[R]):
    """A handle to one task; made by a client, or by `client.job(id)` for an id that was kept."""

    __slots__ = ("_client", "_result", "duplicate", "id")

    def __init__(self, client: AsyncClient, id: str, duplicate: bool = False, result: Hint = ANY) -> None:
        self._client = client
        self._result = result
        self.id = id
        self.duplicate = duplicate  #: an earlier enqueue with the same key had made it

    def __repr__(self) -> str:
        return f"<job {self.id}>"

    async def result(self, timeout: Duration | None = None) -> R:
        """What the task returned: as the type that its function is annotated with when the @task is known here, else
        as plain JSON. None waits as long as it takes, 0 looks once.

        Raises TaskFailed (with `failure`), TaskCanceled or TaskExpired as it closed; WaitTimeout while it is still
        open, and the wait may be repeated; NotFound; Unavailable when no server answered for 30 s, or for all of
        `timeout`; InvalidArgument for a result that this process cannot read.
        """
        limit = None if timeout is None else seconds(timeout, "timeout", most=LONGEST_WAIT)
        return self.outcome(await self._closed(limit))

    def outcome(self, view: TaskView) -> R:
        """What the task returned, or the error that tells how it ended, from its view once it has closed."""
        match view.state:
            case "SUCCEEDED":
                return cast("R", self._client.converter.from_payloads(view.result or (), "result", self._result))
            case "CANCELED":
                raise TaskCanceled(view.cancel_reason or "")
            case "EXPIRED":
                raise TaskExpired()
            case _:
                raise TaskFailed(view.failure or Failure(message=f"the task is {view.state}"))

    async def status(self) -> TaskView:
        """The task as it is now, with its attempts."""
        return await self._client.get(self.id)

    async def cancel(self, reason: str = "") -> CancelReply:
        """Cancel it: at once while it waits, cooperatively while it runs. Harmless when repeated or too late."""
        service = await self._client.service()
        return await service.cancel(Cancel(self.id, reason))

    def stream(self, offset: int = 0) -> AsyncIterator[Chunk]:
        """What its handler gives to `ctx.stream`, chunk by chunk from a number on, as it comes, to the end of the task;
        and after that as long as the task is kept. Where another attempt begins again, the first chunk of it says so
        (`restarted`). Raises NotFound, and Unavailable when no server answered for 30 s."""
        return self._client.stream(self.id, offset)

    async def _closed(self, limit: float | None) -> TaskView:
        """The view of the closed task. A server that is away for a moment is waited for like the task itself."""

        async def ask(wait: float) -> TaskView:
            return await (await self._client.service()).get(Get(self.id, wait=wait, payload=False))

        view = await patiently(ask, lambda view: view.closed_at is not None, limit)
        if view.closed_at is None:
            raise WaitTimeout(f"the task is still {view.state}")
        return view


async def patiently(ask: Callable[[float], Awaitable[T]], is_done: Callable[[T], bool], limit: float | None) -> T:
    """What `ask`, which is told how many seconds a server may hold its answer back, answers once that is done, or when
    the `limit` is over. A server that is away for a moment is waited for too; Unavailable when none answered for
    OUTAGE_SECONDS, or for all of `limit`."""
    heard = time.monotonic()
    end = math.inf if limit is None else heard + limit
    while True:
        wait = min(max(0.0, end - time.monotonic()), MAX_WAIT_SECONDS)
        try:
            async with asyncio.timeout(wait + _ANSWER_SECONDS if wait < MAX_WAIT_SECONDS else None) as patience:
                answer = await ask(wait)
        except TimeoutError:
            if not patience.expired():
                raise  # it is the answer
            raise Unavailable("no server answered in time") from None
        except Unavailable as error:
            now = time.monotonic()
            if now >= min(end, heard + OUTAGE_SECONDS):
                raise
            await asyncio.sleep(min(error.retry_after or _RETRY_SECONDS, end - now))
            continue
        if is_done(answer):
            return answer
        heard = time.monotonic()
        if heard >= end:
            return answer


class Runner(Protocol):
    """Runs a coroutine of a client elsewhere and waits for it."""

    def __call__(self, work: Coroutine[Any, Any, T], /) -> T: ...


class Job(Generic[R]):
    """AsyncJob for code without an event loop: every call blocks."""

    __slots__ = ("_job", "_run")

    def __init__(self, job: AsyncJob[R], run: Runner) -> None:
        self._job = job
        self._run = run

    def __repr__(self) -> str:
        return repr(self._job)

    @property
    def id(self) -> str:
        return self._job.id

    @property
    def duplicate(self) -> bool:
        return self._job.duplicate

    def result(self, timeout: Duration | None = None) -> R:
        """See AsyncJob.result."""
        return self._run(self._job.result(timeout))

    def stream(self, offset: int = 0) -> Iterator[Chunk]:
        """See AsyncJob.stream."""
        return blocking(self._job.stream(offset), self._run)

    def status(self) -> TaskView:
        return self._run(self._job.status())

    def cancel(self, reason: str = "") -> CancelReply:
        return self._run(self._job.cancel(reason))
