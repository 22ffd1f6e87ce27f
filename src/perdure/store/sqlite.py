"""Tasks in an SQLite file.

One connection writes. Its transactions begin with `begin immediate`, so no row can be held by another transaction and
every verb that locks is a plain select. A second connection reads what is committed. Several processes may share the
file; they take turns, and `changed` tells one that another has written.

All of it happens on the thread of the event loop: a statement takes microseconds and a hop to another thread a hundred.
(Tried: leaving the writes of a batch to its end and making them and the commit, or the commit alone, on a thread while
the loop goes on, for batches of at least 50, 300 and 500 rows. It cost a server 2 to 6 us of CPU a job and made it no
faster, and embedded use by 2 % at most: sqlite3 lets go of the interpreter's lock several times a statement, and a busy
loop is slow to give it back.)

Rows travel in statements of a few fixed sizes, whose texts and prepared forms are cached.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import asdict, astuple

from perdure.core.errors import Conflict
from perdure.core.model import Attempt, Key, Task, WorkerSession
from perdure.core.owners import QueueOwner
from perdure.core.run import Message, Page, Run
from perdure.store import rows
from perdure.store.base import ApiKey, CommitUnknown, Filter, KeyName, StoreFault, Switch
from perdure.store.census import MAX_LANES, LaneCount, OpenRun, census
from perdure.store.clock import Clock, SlewedClock
from perdure.store.rows import Row
from perdure.store.sqlite_batch import SqliteBatch, chunks, within
from perdure.store.sqlite_failures import SqliteFailures
from perdure.store.sqlite_file import LOG_BYTES, MEMORY, Connection, check_file, exists, log_size, split
from perdure.store.sqlite_flow import SqliteFlowReads
from perdure.store.sqlite_outbox import OutboxStore
from perdure.store.sqlite_search import SqliteSearch
from perdure.store.statements import check_migrations, expand, migrations, statements

log = logging.getLogger("perdure.store")

SQL = statements("sqlite")
_BEHIND_ALL_IDS = b"\xff" * 17


class SqliteStore(SqliteFailures, SqliteFlowReads, SqliteSearch, OutboxStore):
    """See base.Store. `path` is a file on a local disk, or ":memory:".

    `clock` gives microseconds since the epoch; None takes the wall clock, made so that it never goes back, not even
    over restarts. `switch` is awaited before every statement, but for those that a verb adds on SQLite only: to number
    and write payloads, and to find out which keys were lost.
    """

    batches_in_flight = 1
    dead_entries = False

    def __init__(
        self,
        path: str | Path,
        *,
        clock: Clock | None = None,
        switch: Switch | None = None,
    ) -> None:
        self._path = str(path)
        self._clock: Clock = clock or SlewedClock()
        self._own_clock = clock is None
        self._switch = switch
        self._turn = asyncio.Lock()
        self._batch: asyncio.Task[Any] | None = None  #: who has one open
        self._writer: Connection | None = None
        self._reader: Connection | None = None
        self._pid = 0
        self._version = 0

    async def open(self) -> None:
        if not exists(self._path):
            raise Conflict(f"there is no database {self._path}; run `perdure migrate`")
        writer = await self._connect()
        check_migrations("sqlite", await self._applied(writer), self._path)
        if self._own_clock:
            _alive_at, _hold_until, mark = (await writer.patiently(SQL["lock_pulse"]))[0]
            self._clock = SlewedClock(mark)
        if self._path != MEMORY and log_size(self._path) < LOG_BYTES:
            try:
                await self._size_log(writer)
            except StoreFault as fault:  # a full disk, or a busy one: it only goes slower
                log.info("the write-ahead log of %s keeps its size: %s", self._path, fault)
        self._reader = writer if self._path == MEMORY else await Connection.opened(self._path, query_only=True)
        await self.changed()

    async def close(self) -> None:
        """A forked child leaves the connections alone: they are its parent's."""
        if self._pid == os.getpid():
            for connection in (self._reader, self._writer):
                if connection is not None:
                    connection.close()
            self._reader = self._writer = None

    async def _connect(self) -> Connection:
        if self._writer is None:
            check_file(self._path)
            self._pid = os.getpid()
            writer = await Connection.opened(self._path)
            await writer.patiently("pragma journal_mode = wal")
            writer.note_place()
            self._writer = writer
        return self._writer

    async def _size_log(self, writer: Connection) -> None:
        """Let the write-ahead log grow to the size at which it starts over, at once. A sync after a write that makes
        the file longer takes twice as long as one after a write into it (measured: 205 us a commit against 103)."""
        create, fill = SQL["take_room"].split(";")
        async with self._turn:
            async with self._transaction(writer):
                writer.write(create)
                writer.write(fill, (LOG_BYTES,))
            async with self._transaction(writer):
                writer.write(SQL["leave_room"])

    async def _applied(self, writer: Connection) -> set[str]:
        [(has_migrations,)] = await writer.patiently(SQL["has_migrations"])
        if not has_migrations:
            return set()
        return {name for (name,) in await writer.patiently(SQL["migrations"])}

    async def migrate(self) -> list[str]:
        writer = await self._connect()
        async with self._turn, self._transaction(writer):
            writer.write(SQL["prepare_migrations"])
            applied = await self._applied(writer)
            missing = [(name, script) for name, script in migrations("sqlite") if name not in applied]
            for name, script in missing:
                for statement in split(script):
                    writer.write(statement)
                writer.write(SQL["add_migration"], (name, self._clock()))
        return [name for name, _ in missing]

    def now(self) -> int:
        return self._clock()

    @asynccontextmanager
    async def batch(self, *, single: bool = False) -> AsyncIterator[SqliteBatch]:
        """`single` saves nothing here: without round trips, begin and commit cost a few microseconds."""
        writer = self._mine(self._writer)
        async with self._turn, self._transaction(writer):
            self._batch = asyncio.current_task()
            try:
                yield SqliteBatch(writer, self._clock, self._switch)
            finally:
                self._batch = None

    @asynccontextmanager
    async def _transaction(self, writer: Connection) -> AsyncIterator[None]:
        await self._pause()
        await writer.patiently("begin immediate")
        try:
            yield
            await self._pause()
            writer.check_place()
            writer.write("commit")
        finally:
            if writer.in_transaction:
                writer.write("rollback")

    async def committed(self, unknown: CommitUnknown) -> bool:
        if not unknown.task_ids:
            raise StoreFault("no ids to look for")
        return len(await self.read(unknown.task_ids)) == len(unknown.task_ids)

    async def read(self, task_ids: Sequence[bytes]) -> dict[bytes, Task]:
        found = [row for ids in chunks(task_ids) for row in await self._rows(expand(SQL["read"], len(ids)), ids)]
        return {row[0]: rows.task(row) for row in found}

    async def attempts(self, task_ids: Sequence[bytes]) -> list[Attempt]:
        ids = sorted(task_ids)
        return [
            Attempt(*row) for part in chunks(ids) for row in await self._rows(expand(SQL["attempts"], len(part)), part)
        ]

    async def find(self, filter: Filter) -> list[Task]:
        values = asdict(filter)
        values["before"] = _BEHIND_ALL_IDS if filter.before is None else filter.before
        if filter.owing:
            ids = [run_id for (run_id,) in await self._rows(SQL["find_owing"], values)]
            parts = [await self._rows(expand(SQL["trace"], len(part)), part) for part in chunks(ids)]
            return sorted((rows.task(row) for part in parts for row in part), key=lambda task: task.id, reverse=True)
        which = "find_failures" if filter.group is not None else "find" if filter.workflow_id is None else "find_runs"
        return [rows.task(row) for row in await self._rows(SQL[which], values)]

    async def schedules(self, namespace: str, limit: int, before: bytes | None = None) -> list[Task]:
        asked = (namespace, _BEHIND_ALL_IDS if before is None else before, limit)
        ids = [task_id for (task_id,) in await self._rows(SQL["schedule_ids"], asked)]
        found = await self.read(ids)
        return [found[task_id] for task_id in ids if task_id in found]

    async def run_rows(self, run_ids: Sequence[bytes]) -> dict[bytes, Run]:
        ids = sorted(run_ids)
        return rows.runs(
            [row for part in chunks(ids) for row in await self._rows(expand(SQL["run_rows"], len(part)), part)]
        )

    async def histories(
        self, after: Mapping[bytes, int], limit: int, size: int | None = None
    ) -> dict[bytes, list[Page]]:
        """A statement a run: they take no round trips."""
        found: list[Row] = []
        for run_id, event in after.items():
            asked = {"run_id": run_id, "after": event, "limit": limit}
            if size is not None:
                asked["limit"] = within(await self._rows(SQL["history_sizes"], asked), size)
            found += await self._rows(SQL["histories"], asked)
        return rows.pages(found)

    async def pending(self, run_id: bytes, limit: int) -> tuple[list[Task], list[Message]]:
        children = [rows.task(row) for row in await self._rows(SQL["children"], (run_id, b"", limit))]
        return children, [Message(*row) for row in await self._rows(SQL["messages"], (run_id, limit))]

    async def find_activity(self, run_id: bytes, activity_id: str) -> bytes | None:
        found = await self._rows(SQL["find_activity"], (run_id, activity_id))
        return found[0][0] if found else None

    async def resolve(self, run_id: bytes, resolution: bytes) -> bool:
        writer = self._mine(self._writer)
        async with self._turn, self._transaction(writer):
            return writer.write(SQL["resolve"], (resolution, run_id)) > 0

    async def resolutions(self, run_ids: Sequence[bytes]) -> dict[bytes, bytes]:
        parts = chunks(run_ids)
        return dict([row for part in parts for row in await self._rows(expand(SQL["resolutions"], len(part)), part)])

    async def find_key(self, name: KeyName) -> Key | None:
        found = await self._rows(expand(SQL["read_keys"], 1), name)
        return Key(*found[0]) if found else None

    async def sessions(self, namespace: str) -> list[WorkerSession]:
        return [WorkerSession(*row) for row in await self._rows(SQL["sessions"], (namespace,))]

    async def held(self, incarnation: int, limit: int) -> list[Task]:
        return [rows.task(row) for row in await self._rows(SQL["held"], (incarnation, limit))]

    async def next_alarm(self, after: int = 0) -> int | None:
        alarm: int | None = (await self._rows(SQL["next_alarm"], (after,)))[0][0]
        return alarm

    async def api_keys(self) -> dict[bytes, str]:
        return dict(await self._rows(SQL["api_keys"]))

    async def add_api_key(self, hash: bytes, namespace: str, label: str) -> None:
        writer = self._mine(self._writer)
        async with self._turn, self._transaction(writer):
            writer.write(SQL["add_api_key"], (hash, namespace, label, self._clock()))

    async def queue_owners(self) -> list[QueueOwner]:
        return [QueueOwner(*row) for row in await self._rows(SQL["queue_owners"])]

    async def put_queue_owner(self, owner: QueueOwner) -> None:
        await self._alone(SQL["put_queue_owner"], astuple(owner))

    async def delete_queue_owner(self, namespace: str, queue: str) -> bool:
        return await self._alone(SQL["delete_queue_owner"], (namespace, queue)) > 0

    async def list_api_keys(self) -> list[ApiKey]:
        return [ApiKey(*row) for row in await self._rows(SQL["list_api_keys"])]

    async def remove_api_key(self, hash: bytes) -> bool:
        writer = self._mine(self._writer)
        async with self._turn, self._transaction(writer):
            return writer.write(SQL["remove_api_key"], (hash,)) > 0

    async def _alone(self, sql: str, values: Any = ()) -> int:
        """How many rows a statement wrote that is a transaction of its own."""
        writer = self._mine(self._writer)
        async with self._turn, self._transaction(writer):
            return writer.write(sql, values)

    async def _alone_rows(self, sql: str, values: Any = ()) -> list[Row]:
        """The rows that such a statement answers."""
        writer = self._mine(self._writer)
        async with self._turn, self._transaction(writer):
            return writer.rows(sql, values)

    async def count_lanes(self, first: str, last: str, most: int) -> list[LaneCount]:
        bounds = {"first": first, "last": last, "most": most}
        lanes = await self._rows(SQL["ready_lanes"], bounds | {"most": MAX_LANES})
        ready = [
            (lane, *(await self._rows(SQL["ready_in_lane"], {"lane": lane, "most": most}))[0]) for (lane,) in lanes
        ]
        running = await self._rows(SQL["leased_in_lanes"], bounds)
        return census(most, ready, running, await self._rows(SQL["later_in_lanes"], bounds))

    async def open_runs(self, most: int) -> list[OpenRun]:
        found = await self._rows(SQL["open_runs"], {"most": most})
        return [
            OpenRun(namespace, type_, at, events, failures, bool(failed), attributes)
            for namespace, type_, at, events, failures, failed, attributes in found
        ]

    async def changed(self) -> bool:
        """False while a batch runs; the call after it tells."""
        if self._turn.locked():
            return False
        before = self._version
        self._version = self._mine(self._writer).rows("pragma data_version")[0][0]
        return self._version != before

    async def announce(self, hint: bytes) -> None:
        """Other processes find out by `changed`."""

    async def listen(self, heard: Callable[[bytes], None]) -> None:
        """Other processes do not speak."""

    async def _rows(self, sql: str, values: Any = ()) -> list[Row]:
        """Between batches the writer reads, whose cache holds what it wrote; on it an open batch would be seen. In
        memory there is no other reader: others wait for the batch, and who has it open reads within it."""
        await self._pause()
        reader = self._mine(self._reader)
        if self._turn.locked() and (reader is not self._writer or self._batch is asyncio.current_task()):
            return await reader.patiently(sql, values)
        async with self._turn:
            return await self._mine(self._writer).patiently(sql, values)

    async def _pause(self) -> None:
        if self._switch is not None:
            await self._switch()

    def _mine(self, connection: Connection | None) -> Connection:
        if connection is None:
            raise StoreFault("the store is not open")
        if os.getpid() != self._pid:
            raise StoreFault(f"the store was opened by process {self._pid}; after a fork, open one of your own")
        return connection
