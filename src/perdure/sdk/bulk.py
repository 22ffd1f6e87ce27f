"""An action on many jobs, or runs, in the hand of who began it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from perdure.client.base import Service
from perdure.core.durations import Duration, seconds
from perdure.core.errors import WaitTimeout
from perdure.core.failure_messages import BulkView, GetBulk
from perdure.core.messages import Cancel
from perdure.sdk.handle import LONGEST_WAIT, Runner, patiently


class AsyncBulk:
    """A handle to one action; made by a client, or by `client.bulk(id)` for an id that was kept."""

    __slots__ = ("_service", "id")

    def __init__(self, service: Callable[[], Awaitable[Service]], id: str) -> None:
        self._service = service
        self.id = id

    def __repr__(self) -> str:
        return f"<bulk {self.id}>"

    async def result(self, timeout: Duration | None = None) -> BulkView:
        """The action once it has ended, SUCCEEDED or CANCELED: `done`, `failed` and the first `errors`. None waits as
        long as it takes. Raises WaitTimeout while it still runs, NotFound, and Unavailable when no server answered for
        30 s."""
        limit = None if timeout is None else seconds(timeout, "timeout", most=LONGEST_WAIT)

        async def ask(wait: float) -> BulkView:
            return await (await self._service()).get_bulk(GetBulk(self.id, wait))

        view = await patiently(ask, lambda view: view.closed_at is not None, limit)
        if view.closed_at is None:
            raise WaitTimeout(f"the action is at {view.done + view.failed} of {view.total}")
        return view

    async def status(self) -> BulkView:
        """How far it is."""
        return await (await self._service()).get_bulk(GetBulk(self.id))

    async def cancel(self) -> BulkView:
        """End it; what it has done stays done. Harmless when it has ended."""
        await (await self._service()).cancel(Cancel(self.id))
        return await self.status()


class Bulk:
    """AsyncBulk for code without an event loop: every call blocks."""

    __slots__ = ("_bulk", "_run")

    def __init__(self, bulk: AsyncBulk, run: Runner) -> None:
        self._bulk = bulk
        self._run = run

    def __repr__(self) -> str:
        return repr(self._bulk)

    @property
    def id(self) -> str:
        return self._bulk.id

    def result(self, timeout: Duration | None = None) -> BulkView:
        """See AsyncBulk.result."""
        return self._run(self._bulk.result(timeout))

    def status(self) -> BulkView:
        return self._run(self._bulk.status())

    def cancel(self) -> BulkView:
        return self._run(self._bulk.cancel())
