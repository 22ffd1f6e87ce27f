"""A batch on PostgreSQL: one transaction at READ COMMITTED, begun with its first statement.

Statements take arrays, one a column, and unnest them: a fixed number of round trips for any number of rows. (Tried and
rejected: executemany, which costs the server half as much again a row.) New tasks, pages and messages are sent by COPY:
half the time of an insert by arrays at 200 rows, and faster from the first row on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import asyncpg
from msgspec.structs import astuple

from perdure.core.advance import Advance
from perdure.core.commands import Complete, Heartbeat
from perdure.core.effects import CopyPages
from perdure.core.model import Attempt, Key, Pulse, Task, WorkerSession
from perdure.core.run import Message, Page, Run
from perdure.core.states import Kind
from perdure.store import postgres_rows, rows
from perdure.store.base import CommitUnknown, DataFault, Demand, Doubled, KeyName, KeysHeld, Order, Place, StoreFault
from perdure.store.postgres_clock import Clock
from perdure.store.postgres_failures import PostgresFailureBatch
from perdure.store.postgres_flow import PostgresFlow
from perdure.store.postgres_outbox import OutboxBatch
from perdure.store.postgres_search import PostgresSearchBatch
from perdure.store.postgres_session import Backend, Session, refused

_BEAT = attrgetter("lease.task_id", "lease.number", "lease.bits", "progress", "checkpoint")

_SUCCEED = attrgetter("lease.task_id", "lease.number", "lease.bits", "progress", "checkpoint", "result")

_ADVANCE = attrgetter(
    "lease.task_id", "lease.number", "lease.bits", "completed_event_id", "worker", "at", "page.first", "page.count",
    "page.data",
)  # fmt: skip

WARM_UP: dict[str, tuple[Any, ...]] = {
    "exchange": (*[()] * 6, None, "", 0, 0, 0, bytes(16), 0, "", 0, ()),
    "succeed": (*[()] * 6, None),
    "claim": ((),) * 5,
    "lease": ((),) * 16,
    "closed": ((),),
    "advance": ((),) * 9,
}
"""Statements under load, with values that make them do nothing: a new connection plans them before it is used, because
the plan of the largest takes 8 ms."""

_LOCK_NOT_AVAILABLE = "55P03"

_KEPT = frozenset((Kind.JOB, Kind.WORKFLOW, Kind.UPDATE, Kind.GROUP, Kind.BULK))
"""What leaves a row when it closes. Only such an id is evidence of a commit: the others may be gone by the time of the
question."""

_START = Place(priority=0, place=0, task_id=bytes(16))
"""Before every place of a lane."""


def _demand(demand: Demand) -> tuple[str, int, int, int, bytes]:
    after = demand.after or _START
    return (demand.lane, demand.limit, after.priority, after.place, after.task_id)


class CommitLost(CommitUnknown):
    """A commit whose answer did not come; `backend` is the server process that may still be at it."""

    def __init__(self, detail: str, *, xid: int | None, task_ids: Sequence[bytes], backend: Backend) -> None:
        super().__init__(detail, xid=xid, task_ids=task_ids)
        self.backend = backend


class PostgresBatch(PostgresFailureBatch, PostgresFlow, PostgresSearchBatch, OutboxBatch):
    """See base.Batch."""

    def __init__(self, session: Session, clock: Clock, *, single: bool) -> None:
        self._session = session
        self._clock = clock
        self._single = single
        self._begun = False
        self._now: int | None = None
        self._xid: int | None = None
        self._inserted: list[bytes] = []

    @property
    def now(self) -> int:
        return self._clock.now() if self._now is None else self._now

    # the transaction ---------------------------------------------------------------------------------------------
    async def commit(self) -> None:
        if self._single or not self._begun:
            return
        try:
            tag = await self._session.run("commit")
        except StoreFault as fault:
            raise self._unless_refused(fault) from fault.__cause__
        if tag != "COMMIT":
            raise StoreFault(f"commit: the server answered {tag}")

    async def roll_back(self) -> None:
        """Undo it all, on a connection that lives; on a broken one the server does it."""
        if self._session.connection.is_in_transaction():
            await self._session.run("rollback")

    async def _begin(self) -> None:
        if self._begun:
            return
        self._begun = True
        if self._clock.override is not None:
            await self._session.fetch("set_clock", self._clock.override())
        if not self._single:
            await self._session.run("begin")

    async def _fetch(self, name: str, *args: Any) -> list[asyncpg.Record]:
        await self._begin()
        return await self._session.fetch(name, *args)

    async def _write(self, name: str, *args: Any) -> int:
        await self._begin()
        return await self._session.write(name, *args)

    async def _copy(self, table: str, columns: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> None:
        await self._begin()
        await self._session.copy(table, columns, rows)

    async def _locked(self, name: str, *args: Any) -> list[tuple[Any, ...]]:
        """The rows of a statement that locks. Each ends with the clock and the transaction id; nulls before them mean
        that nothing was granted."""
        found = await self._fetch(name, *args)
        self._learn(*found[0][-2:])
        return [] if found[0][0] is None else [row[:-2] for row in found]

    def _learn(self, now: int, xid: int) -> None:
        self._clock.learn(now)
        self._xid = xid
        if self._now is None:
            self._now = now

    def _unless_refused(self, fault: StoreFault) -> StoreFault:
        """What a fault means that hit the statement which commits."""
        if refused(fault):
            return fault
        return CommitLost(str(fault), xid=self._xid, task_ids=self._inserted, backend=self._session.backend)

    # keys ------------------------------------------------------------------------------------------------------
    async def reserve_keys(self, keys: Sequence[Key]) -> set[KeyName]:
        if not keys:
            return set()
        try:
            taken, *names = (await self._fetch("reserve_keys", *postgres_rows.keys(keys)))[0]
        except StoreFault as fault:
            if getattr(fault.__cause__, "sqlstate", None) == _LOCK_NOT_AVAILABLE:
                raise KeysHeld(str(fault)) from fault.__cause__
            raise
        if taken == len(keys):
            return {key.name for key in keys}
        return set(zip(*names, strict=True)) if taken else set()

    async def read_keys(self, names: Sequence[KeyName]) -> dict[KeyName, Key]:
        if not names:
            return {}
        found = [Key(*row) for row in await self._fetch("read_keys", *postgres_rows.columns(names, tuple))]
        return {key.name: key for key in found}

    async def replace_key(self, old: Key, new: Key) -> bool:
        return await self._write("replace_key", *old.name, old.task_id, new.task_id, new.digest, new.expires_at) == 1

    async def free_keys(self, keys: Sequence[Key]) -> None:
        await self._write("free_keys", *postgres_rows.columns(keys, lambda key: key.name))

    # rows ------------------------------------------------------------------------------------------------------
    async def lock(self, task_ids: Sequence[bytes], *, wait: bool = False) -> dict[bytes, Task]:
        found = await self._locked("lock_waiting" if wait else "lock", task_ids)
        return {row[0]: rows.task(row) for row in found}

    async def trace(self, task_ids: Sequence[bytes]) -> dict[bytes, Task]:
        return {row[0]: rows.task(row) for row in await self._fetch("trace", task_ids)}

    async def claim(self, demands: Sequence[Demand]) -> dict[str, list[Task]]:
        claimed: dict[str, list[Task]] = {demand.lane: [] for demand in demands}
        if demands:
            for row in await self._locked("claim", *postgres_rows.columns(demands, _demand)):
                task = rows.task(row)
                claimed[task.lane].append(task)
        return claimed

    async def due(self, limit: int, after: int = 0) -> list[Task]:
        return [rows.task(row) for row in await self._locked("due", limit, self._now, after)]

    async def leased_by(self, incarnation: int, limit: int, *, poll: int | None = None) -> list[Task]:
        if poll is None:
            found = await self._locked("leased_by", incarnation, limit)
        else:
            found = await self._locked("leased_by_poll", incarnation, limit, poll)
        return [rows.task(row) for row in found]

    async def beat(self, beats: Sequence[Heartbeat]) -> dict[bytes, bool]:
        if not beats:
            return {}
        found = await self._fetch("beat", *postgres_rows.columns(beats, _BEAT), self._now)
        if found:
            self._learn(*found[0][2:])
        return {row[0]: row[1] for row in found}

    async def succeed(self, completions: Sequence[Complete]) -> set[bytes]:
        if not completions:
            return set()
        found = await self._fetch("succeed", *postgres_rows.columns(completions, _SUCCEED), self._now)
        if found:
            self._learn(*found[0][1:])
        return {row[0] for row in found}

    async def exchange(self, completions: Sequence[Complete], order: Order) -> tuple[set[bytes], list[Task], bool]:
        done = postgres_rows.columns(completions, _SUCCEED) if completions else [()] * 6
        lane, *demand = _demand(order.demand)
        found = await self._fetch(
            "exchange", *done, self._now, lane, *demand, order.session, order.worker, order.poll, order.bits
        )
        timed, closed, now, xid = found[0][-4:]
        self._learn(now, xid)
        claimed = [] if timed or found[0][0] is None else [rows.task(row[:-4]) for row in found]
        return set(closed), claimed, timed

    async def places(self, lanes: Sequence[str]) -> dict[str, tuple[int, int]]:
        return {lane: (lowest, highest) for lane, lowest, highest in await self._fetch("places", lanes)}

    # writes ----------------------------------------------------------------------------------------------------
    async def close(self, tasks: Sequence[Task]) -> None:
        jobs = [task for task in tasks if task.kind is Kind.JOB]
        others = [task for task in tasks if task.kind is not Kind.JOB]
        for statement, part in (("close", jobs), ("close_runs", others)):
            if part and await self._write(statement, *postgres_rows.closes(part)) != len(part):
                raise StoreFault("close: a row does not have the lease that was decided upon")

    async def lease(self, tasks: Sequence[Task]) -> None:
        if tasks and await self._write("lease", *postgres_rows.leases(tasks)) != len(tasks):
            raise StoreFault("lease: a row is gone")

    async def change(self, tasks: Sequence[Task]) -> None:
        if tasks and await self._write("change", *postgres_rows.changes(tasks)) != len(tasks):
            raise StoreFault("change: a row is gone")

    async def insert(self, tasks: Sequence[Task]) -> None:
        if not tasks:
            return
        self._inserted += [task.id for task in tasks if task.kind in _KEPT]
        try:
            await self._copy("tasks", *postgres_rows.inserts(tasks))
        except DataFault as fault:
            if getattr(fault.__cause__, "constraint_name", None) == "tasks_pkey":
                raise Doubled(str(fault)) from fault.__cause__
            raise
        except StoreFault as fault:
            if self._single:
                raise self._unless_refused(fault) from fault.__cause__
            raise

    async def closed(self, task_ids: Sequence[bytes]) -> set[bytes]:
        callers = set(task_ids)
        self._inserted = [task_id for task_id in self._inserted if task_id not in callers]
        return {row[0] for row in await self._fetch("closed", task_ids)}

    async def record(self, attempts: Sequence[Attempt]) -> None:
        if attempts:
            await self._write("record", *postgres_rows.records(attempts))

    # workflows ---------------------------------------------------------------------------------------------------
    async def runs(self, run_ids: Sequence[bytes]) -> dict[bytes, Run]:
        return rows.runs(await self._fetch("runs", run_ids))

    async def inbox(self, after: Mapping[bytes, int], size: int | None = None) -> dict[bytes, list[Message]]:
        if size is not None:
            return rows.messages(await self._fetch("inbox_start", after.keys(), after.values(), size))
        return rows.messages(await self._fetch("inbox", after.keys(), after.values()))

    async def children(self, parent: bytes, limit: int, after: bytes = b"") -> tuple[list[Task], bool]:
        found = await self._fetch("children", parent, limit, after or bytes(16))
        whole, now, xid = found[0][-3:]
        self._learn(now, xid)
        return [rows.task(row[:-3]) for row in found if row[0] is not None], whole

    async def delete(self, tasks: Sequence[Task]) -> None:
        if tasks and (await self._fetch("delete", *postgres_rows.deletes(tasks)))[0][0] != len(tasks):
            raise StoreFault("delete: a row does not have the lease that was decided upon")

    async def put_runs(self, runs: Sequence[Run]) -> None:
        if runs and await self._write("put_runs", *postgres_rows.runs(runs)) != len(runs):
            raise StoreFault("put_runs: a row is gone")

    async def advance(self, appends: Sequence[Advance]) -> dict[bytes, bool]:
        if not appends:
            return {}
        found = await self._fetch("advance", *postgres_rows.columns(appends, _ADVANCE))
        if found:
            self._learn(*found[0][2:])
        return {row[0]: row[1] for row in found}

    async def append(self, pages: Sequence[Page]) -> None:
        if pages:
            await self._copy("history", Page.__struct_fields__, map(astuple, pages))

    async def copy_pages(self, copies: Sequence[CopyPages]) -> None:
        if copies:
            await self._write("copy_pages", *postgres_rows.columns(copies, astuple))

    async def post(self, messages: Sequence[Message]) -> None:
        if messages:
            await self._copy("inbox", Message.__struct_fields__, map(astuple, messages))

    async def take(self, taken: Mapping[bytes, int]) -> None:
        if taken:
            await self._write("take_messages", taken.keys(), taken.values())

    # workers, pulse ----------------------------------------------------------------------------------------------
    async def lock_session(self, incarnation: int) -> WorkerSession | None:
        found = await self._locked("lock_session", incarnation)
        return WorkerSession(*found[0]) if found else None

    async def put_session(self, session: WorkerSession) -> None:
        await self._write("put_session", *postgres_rows.session(session))

    async def ending_sessions(self, limit: int) -> list[WorkerSession]:
        return [WorkerSession(*row) for row in await self._locked("ending_sessions", limit, self._now)]

    async def delete_sessions(self, incarnations: Sequence[int]) -> None:
        await self._write("delete_sessions", incarnations)

    async def pulse(self) -> Pulse:
        return Pulse(*(await self._fetch("pulse"))[0])

    async def lock_pulse(self) -> Pulse | None:
        found = await self._locked("lock_pulse")
        return Pulse(*found[0]) if found else None

    async def put_pulse(self, pulse: Pulse) -> None:
        await self._write("put_pulse", pulse.alive_at, pulse.hold_until)

    # retention ---------------------------------------------------------------------------------------------------
    async def trim_closed(self, before: int, limit: int) -> int:
        return int((await self._fetch("trim_closed", before, limit))[0][0])

    async def trim_keys(self, limit: int, extend: int) -> int:
        return int((await self._fetch("trim_keys", limit, self._now, extend))[0][0])
