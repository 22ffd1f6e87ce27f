"""PostgreSQL 16 and newer, through asyncpg.

Connections: one a batch in flight; two beside them, for the command that the engine lets wait for a lock and for one
whose key an application's transaction holds; two for reads (one slow list must not hold up all others); one for short
statements that no list may hold up (alarms, hints, API keys, the outcome of a commit), because a server that rings
alarms late takes the pulse late, and others then end the leases of its workers; one that listens. Batches are kept
apart by row locks that nobody waits for.

A commit whose answer did not come is settled in three steps. The server process that may still be at it is ended and
must be gone. Ids that the batch inserted are looked for: they are there exactly if it committed. Without such ids the
transaction id tells, as long as the server has not restarted, because after a crash or a fail-over transaction ids are
given out again. Then the answer is no and the batch is tried again: all that inserts nothing is fenced by leases. The
question is itself a commit that waits for a synchronous standby, because ending the process may have cut that wait
short.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import asyncpg
from msgspec.structs import astuple

from perdure.core.model import Attempt, Key, Task, WorkerSession
from perdure.core.owners import QueueOwner
from perdure.core.run import Message, Page, Run
from perdure.store import rows
from perdure.store.base import ApiKey, CommitUnknown, Filter, KeyName, StoreFault, Switch
from perdure.store.census import MAX_LANES, LaneCount, OpenRun, census
from perdure.store.postgres_batch import WARM_UP, CommitLost, PostgresBatch
from perdure.store.postgres_clock import Clock
from perdure.store.postgres_failures import PostgresFailures
from perdure.store.postgres_flow import PostgresFlowReads
from perdure.store.postgres_outbox import OutboxStore
from perdure.store.postgres_search import PostgresSearch
from perdure.store.postgres_session import (
    ANSWER_SECONDS,
    BASE_SETTINGS,
    BATCH_SETTINGS,
    READ_SETTINGS,
    Backend,
    Session,
    Sessions,
    close,
    connect,
    faults,
    survives,
)
from perdure.store.statements import check_migrations, migrations, statements

CHANNEL = "perdure"
_LAST_ID = b"\xff" * 16
_GONE_TRIES = 100
_GONE_SECONDS = 0.02
_LISTEN_AGAIN_SECONDS = 1.0


class PostgresStore(PostgresFailures, PostgresFlowReads, PostgresSearch, OutboxStore):
    """See base.Store. `clock` (microseconds) replaces the database's clock, `switch` is awaited before every statement:
    both are for tests."""

    batches_in_flight = 2
    dead_entries = True

    def __init__(self, url: str, *, clock: Callable[[], int] | None = None, switch: Switch | None = None) -> None:
        self._url = url
        self._switch = switch
        self._clock = Clock(clock)
        self._writers = Sessions(self.batches_in_flight + 2, self._connect_writer)
        self._readers = Sessions(2, self._connect_reader)
        self._shorts = Sessions(1, self._connect_reader)
        self._listening: asyncio.Task[None] | None = None

    async def _connect_writer(self) -> Session:
        return await connect(self._url, BATCH_SETTINGS, seconds=ANSWER_SECONDS, switch=self._switch, warm_up=WARM_UP)

    async def _connect_reader(self) -> Session:
        return await connect(self._url, READ_SETTINGS, seconds=ANSWER_SECONDS, switch=self._switch)

    # life ----------------------------------------------------------------------------------------------------------
    async def open(self) -> None:
        async with self._readers.one() as session:
            done: set[str] = set()
            if (await session.fetch("has_migrations"))[0][0]:
                done = {row[0] for row in await session.fetch("migrations")}
            check_migrations("postgres", done, "the database")
            self._clock.learn((await session.fetch("clock"))[0][0])

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])
        await self._writers.close()
        await self._readers.close()
        await self._shorts.close()

    async def migrate(self) -> list[str]:
        session = await connect(self._url, BASE_SETTINGS, seconds=None)
        try:
            await session.script("migrate", statements("postgres")["prepare_migrations"])
            done = {row[0] for row in await session.fetch("migrations")}
            missing = [(name, sql) for name, sql in migrations("postgres") if name not in done]
            for name, sql in missing:
                async with session.connection.transaction():
                    await session.script(name, sql)
                    await session.write("add_migration", name)
            return [name for name, _ in missing]
        finally:
            await close(session)

    def now(self) -> int:
        return self._clock.now()

    # batches -------------------------------------------------------------------------------------------------------
    @asynccontextmanager
    async def batch(self, *, single: bool = False) -> AsyncIterator[PostgresBatch]:
        async with self._writers.one() as session:
            batch = PostgresBatch(session, self._clock, single=single)
            try:
                yield batch
            except Exception as error:
                if survives(error):
                    await batch.roll_back()
                raise
            await batch.commit()

    async def committed(self, unknown: CommitUnknown) -> bool:
        async with self._shorts.one() as session:
            backend = unknown.backend if isinstance(unknown, CommitLost) else None
            if backend is not None:
                await self._end(session, backend)
            task_id = unknown.task_ids[0] if unknown.task_ids else None
            server_started_at = None if backend is None else backend.server_started_at
            happened: bool = (await session.fetch("outcome", task_id, unknown.xid, server_started_at))[0][0]
            return happened

    async def _end(self, session: Session, backend: Backend) -> None:
        for _ in range(_GONE_TRIES):
            if not await session.fetch("end_backend", backend.pid, backend.started_at):
                return
            await asyncio.sleep(_GONE_SECONDS)
        raise StoreFault(f"server process {backend.pid} is still at a commit whose connection broke")

    # reads ---------------------------------------------------------------------------------------------------------
    async def _short(self, name: str, *args: object) -> list[asyncpg.Record]:
        async with self._shorts.one() as session:
            return await session.fetch(name, *args)

    async def _read(self, name: str, *args: object) -> list[asyncpg.Record]:
        async with self._readers.one() as session:
            return await session.fetch(name, *args)

    async def _read_sql(self, doing: str, sql: str, *args: object) -> list[asyncpg.Record]:
        async with self._readers.one() as session:
            return await session.fetch_sql(doing, sql, *args)

    async def read(self, task_ids: Sequence[bytes]) -> dict[bytes, Task]:
        return {row[0]: rows.task(row) for row in await self._read("read", task_ids)}

    async def attempts(self, task_ids: Sequence[bytes]) -> list[Attempt]:
        return [Attempt(*row) for row in await self._read("attempts", task_ids)]

    async def find(self, filter: Filter) -> list[Task]:
        before = _LAST_ID if filter.before is None else filter.before
        given = (
            before, filter.namespace, filter.state, filter.queue, filter.type, filter.since, filter.limit, filter.kind,
            filter.without_type, filter.open,
        )  # fmt: skip
        if filter.group is not None:
            found = await self._read("find_failures", *given[:8], filter.group)
        elif filter.owing:
            found = await self._read("find_owing", *given[:7], filter.workflow_id)
        elif filter.workflow_id is None:
            found = await self._read("find", *given)
        else:
            found = await self._read("find_runs", *given, filter.workflow_id)
        return [rows.task(row) for row in found]

    async def schedules(self, namespace: str, limit: int, before: bytes | None = None) -> list[Task]:
        found = await self._read("schedule_ids", namespace, _LAST_ID if before is None else before, limit)
        rows_ = await self.read([task_id for (task_id,) in found])
        return [rows_[task_id] for (task_id,) in found if task_id in rows_]

    async def run_rows(self, run_ids: Sequence[bytes]) -> dict[bytes, Run]:
        return rows.runs(await self._read("run_rows", run_ids))

    async def histories(
        self, after: Mapping[bytes, int], limit: int, size: int | None = None
    ) -> dict[bytes, list[Page]]:
        return rows.pages(await self._read("histories", after.keys(), after.values(), limit, size))

    async def pending(self, run_id: bytes, limit: int) -> tuple[list[Task], list[Message]]:
        async with self._readers.one() as session:
            children = await session.fetch("open_children", run_id, limit)
            messages = await session.fetch("messages", run_id, limit)
        return [rows.task(row) for row in children], [Message(*row) for row in messages]

    async def find_activity(self, run_id: bytes, activity_id: str) -> bytes | None:
        found = await self._read("find_activity", run_id, activity_id)
        return found[0][0] if found else None

    async def resolve(self, run_id: bytes, resolution: bytes) -> bool:
        return bool(await self._short("resolve", resolution, run_id))

    async def resolutions(self, run_ids: Sequence[bytes]) -> dict[bytes, bytes]:
        return {row[0]: row[1] for row in await self._read("resolutions", run_ids)}

    async def find_key(self, name: KeyName) -> Key | None:
        found = await self._read("read_keys", *([part] for part in name))
        return Key(*found[0]) if found else None

    async def sessions(self, namespace: str) -> list[WorkerSession]:
        return [WorkerSession(*row) for row in await self._read("sessions", namespace)]

    async def held(self, incarnation: int, limit: int) -> list[Task]:
        return [rows.task(row) for row in await self._read("held", incarnation, limit)]

    async def next_alarm(self, after: int = 0) -> int | None:
        earliest: int | None = (await self._short("next_alarm", after))[0][0]
        return earliest

    async def api_keys(self) -> dict[bytes, str]:
        return {row[0]: row[1] for row in await self._short("api_keys")}

    async def add_api_key(self, hash: bytes, namespace: str, label: str) -> None:
        await self._short("add_api_key", hash, namespace, label)

    async def queue_owners(self) -> list[QueueOwner]:
        return [QueueOwner(*row) for row in await self._read("queue_owners")]

    async def put_queue_owner(self, owner: QueueOwner) -> None:
        await self._short("put_queue_owner", *astuple(owner))

    async def delete_queue_owner(self, namespace: str, queue: str) -> bool:
        return bool(await self._short("delete_queue_owner", namespace, queue))

    async def list_api_keys(self) -> list[ApiKey]:
        return [ApiKey(*row) for row in await self._short("list_api_keys")]

    async def remove_api_key(self, hash: bytes) -> bool:
        return bool(await self._short("remove_api_key", hash))

    async def count_lanes(self, first: str, last: str, most: int) -> list[LaneCount]:
        async with self._readers.one() as session:
            lanes = [lane for (lane,) in await session.fetch("ready_lanes", first, last, MAX_LANES)]
            ready = await session.fetch("ready_in_lane", lanes, most)
            running = await session.fetch("leased_in_lanes", first, last, most)
            later = await session.fetch("later_in_lanes", first, last, most)
        return census(most, map(tuple, ready), map(tuple, running), map(tuple, later))

    async def open_runs(self, most: int) -> list[OpenRun]:
        return [OpenRun(*row) for row in await self._read("open_runs", most)]

    # hints ---------------------------------------------------------------------------------------------------------
    async def changed(self) -> bool:
        return False

    async def announce(self, hint: bytes) -> None:
        await self._short("announce", base64.b64encode(hint).decode())

    async def listen(self, heard: Callable[[bytes], None]) -> None:
        lost = await self._subscribe(heard)
        self._listening = asyncio.create_task(self._keep_listening(heard, lost))

    async def _subscribe(self, heard: Callable[[bytes], None]) -> tuple[Session, asyncio.Event]:
        session = await connect(self._url, BASE_SETTINGS, seconds=ANSWER_SECONDS)
        lost = asyncio.Event()

        def hear(_connection: object, _pid: int, _channel: str, hint: object) -> None:
            heard(base64.b64decode(str(hint)))

        session.connection.add_termination_listener(lambda _connection: lost.set())
        try:
            with faults("listen"):
                await session.connection.add_listener(CHANNEL, hear)
        except BaseException:  # also when the engine stops meanwhile: nobody else knows of this connection
            session.connection.terminate()
            raise
        return session, lost

    async def _keep_listening(self, heard: Callable[[bytes], None], found: tuple[Session, asyncio.Event]) -> None:
        """Listen again whenever the connection is lost; what is announced meanwhile is missed."""
        session, lost = found
        try:
            while True:
                await lost.wait()
                await asyncio.sleep(_LISTEN_AGAIN_SECONDS)
                with contextlib.suppress(StoreFault):
                    session, lost = await self._subscribe(heard)
        finally:
            session.connection.terminate()
