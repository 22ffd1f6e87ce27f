"""The client's half for dead letters and the standing checks. `AsyncFailures` is a part of AsyncClient, `Failures` of
Perdure."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypedDict, Unpack

from perdure.core.doctor_messages import Doctor, DoctorReply
from perdure.core.failure_messages import (
    BulkFilter,
    BulkPage,
    BulkView,
    FailureGroup,
    FindBulk,
    ListFailures,
    StartBulk,
)
from perdure.core.signal_messages import GoldenSignals, GoldenSignalsReply
from perdure.sdk.bulk import AsyncBulk, Bulk
from perdure.sdk.part import AsyncPart, Part
from perdure.sdk.run_handle import request_id


class JobFilter(TypedDict, total=False):
    """Which jobs an action is about; conjunctive, and what is not given does not narrow it. A cancel and a delete need
    at least one of these.

    state          cancel: ENQUEUED, LEASED, RETRY_WAIT; retry: FAILED (by default), CANCELED, EXPIRED; delete: any
                   closed one
    queue, type    of the jobs
    since          created then or later
    failure_group  dead letters of this group; see `failures`
    error          dead letters whose error has this type, such as "ValueError"
    query          docs/search.md, without ORDER BY
    """

    state: str | None
    queue: str | None
    type: str | None
    since: datetime | None
    failure_group: str | None
    error: str | None
    query: str


class OpenRuns(TypedDict, total=False):
    """Which open workflow runs an action is about; conjunctive, and at least one of these is needed.

    state        ENQUEUED, LEASED, RETRY_WAIT or WAITING
    queue, type  of the runs
    since        started then or later
    query        docs/search.md, without ORDER BY
    """

    state: str | None
    queue: str | None
    type: str | None
    since: datetime | None
    query: str


class AsyncFailures(AsyncPart):
    """A part of AsyncClient."""

    async def failures(self, type: str | None = None, limit: int = 50) -> list[FailureGroup]:
        """Jobs and workflow runs that failed for good and that nobody has retried, grouped by type, type of the error
        and message; those that grew last first, at most `limit` (1,000)."""
        return (await (await self.service()).failures(ListFailures(type, limit))).groups

    async def count_tasks(self, action: Literal["retry", "cancel", "delete"], **filter: Unpack[JobFilter]) -> BulkView:
        """What an action would be about: `total` jobs, or more where `at_least` is true; changes nothing."""
        body = StartBulk(action, BulkFilter(**filter), dry_run=True)
        return await (await self.service()).start_bulk(body)

    async def retry_tasks(self, *, key: str | None = None, **filter: Unpack[JobFilter]) -> AsyncBulk:
        """Retry all closed jobs that pass, dead letters unless the filter says another state: a new job for each, with
        a link to it. Returns when the action is committed; it goes on by itself, in steps behind live work. The same
        `key` within 24 hours returns the same action."""
        return await self._begin("retry", filter, key)

    async def cancel_tasks(self, reason: str = "", *, key: str | None = None, **filter: Unpack[JobFilter]) -> AsyncBulk:
        """Cancel all open jobs that pass. Like `retry_tasks`."""
        return await self._begin("cancel", filter, key, reason)

    async def delete_tasks(self, *, key: str | None = None, **filter: Unpack[JobFilter]) -> AsyncBulk:
        """Delete all closed jobs that pass, before their retention is over. Like `retry_tasks`."""
        return await self._begin("delete", filter, key)

    async def count_runs(self, action: Literal["cancel", "terminate"], **filter: Unpack[OpenRuns]) -> BulkView:
        """As `count_tasks`, of open workflow runs."""
        body = StartBulk(f"{action}_runs", BulkFilter(**filter), dry_run=True)
        return await (await self.service()).start_bulk(body)

    async def cancel_workflows(
        self, reason: str = "", *, key: str | None = None, **filter: Unpack[OpenRuns]
    ) -> AsyncBulk:
        """Ask the code of all open runs that pass to end. Like `retry_tasks`."""
        return await self._begin("cancel_runs", filter, key, reason)

    async def terminate_workflows(
        self, reason: str = "", *, key: str | None = None, **filter: Unpack[OpenRuns]
    ) -> AsyncBulk:
        """Close all open runs that pass at once; their code does not hear of it. Like `retry_tasks`."""
        return await self._begin("terminate_runs", filter, key, reason)

    async def _begin(self, action: str, filter: JobFilter | OpenRuns, key: str | None, reason: str = "") -> AsyncBulk:
        body = StartBulk(action, BulkFilter(**filter), key or request_id(), reason=reason)
        view = await (await self.service()).start_bulk(body)
        return AsyncBulk(self.service, view.id)

    def bulk(self, id: str) -> AsyncBulk:
        """The handle of an action whose id is known; asks nobody."""
        return AsyncBulk(self.service, id)

    async def list_bulk(self, limit: int = 50, cursor: str | None = None) -> BulkPage:
        """Actions on many jobs, newest first; `next` of a page is the `cursor` of the next."""
        return await (await self.service()).find_bulk(FindBulk(limit, cursor))

    async def doctor(self) -> DoctorReply:
        """Run the standing checks (docs/doctor.md). They read, and change nothing."""
        return await (await self.service()).doctor(Doctor())

    async def golden_signals(self) -> GoldenSignalsReply:
        """How things went on the server in the last five minutes, in the figures that tell most (docs/metrics.md)."""
        return await (await self.service()).golden_signals(GoldenSignals())


class Failures(Part):
    """What Perdure can do about failures: the calls of AsyncFailures, each of which blocks."""

    _app: AsyncFailures

    def failures(self, type: str | None = None, limit: int = 50) -> list[FailureGroup]:
        """See AsyncFailures.failures."""
        return self._run(self._app.failures(type, limit))

    def count_tasks(self, action: Literal["retry", "cancel", "delete"], **filter: Unpack[JobFilter]) -> BulkView:
        """See AsyncFailures.count_tasks."""
        return self._run(self._app.count_tasks(action, **filter))

    def retry_tasks(self, *, key: str | None = None, **filter: Unpack[JobFilter]) -> Bulk:
        """See AsyncFailures.retry_tasks."""
        return Bulk(self._run(self._app.retry_tasks(key=key, **filter)), self._run)

    def cancel_tasks(self, reason: str = "", *, key: str | None = None, **filter: Unpack[JobFilter]) -> Bulk:
        """See AsyncFailures.cancel_tasks."""
        return Bulk(self._run(self._app.cancel_tasks(reason, key=key, **filter)), self._run)

    def delete_tasks(self, *, key: str | None = None, **filter: Unpack[JobFilter]) -> Bulk:
        """See AsyncFailures.delete_tasks."""
        return Bulk(self._run(self._app.delete_tasks(key=key, **filter)), self._run)

    def count_runs(self, action: Literal["cancel", "terminate"], **filter: Unpack[OpenRuns]) -> BulkView:
        """See AsyncFailures.count_runs."""
        return self._run(self._app.count_runs(action, **filter))

    def cancel_workflows(self, reason: str = "", *, key: str | None = None, **filter: Unpack[OpenRuns]) -> Bulk:
        """See AsyncFailures.cancel_workflows."""
        return Bulk(self._run(self._app.cancel_workflows(reason, key=key, **filter)), self._run)

    def terminate_workflows(self, reason: str = "", *, key: str | None = None, **filter: Unpack[OpenRuns]) -> Bulk:
        """See AsyncFailures.terminate_workflows."""
        return Bulk(self._run(self._app.terminate_workflows(reason, key=key, **filter)), self._run)

    def bulk(self, id: str) -> Bulk:
        """See AsyncFailures.bulk."""
        return Bulk(self._app.bulk(id), self._run)

    def list_bulk(self, limit: int = 50, cursor: str | None = None) -> BulkPage:
        """See AsyncFailures.list_bulk."""
        return self._run(self._app.list_bulk(limit, cursor))

    def doctor(self) -> DoctorReply:
        """See AsyncFailures.doctor."""
        return self._run(self._app.doctor())

    def golden_signals(self) -> GoldenSignalsReply:
        """See AsyncFailures.golden_signals."""
        return self._run(self._app.golden_signals())
