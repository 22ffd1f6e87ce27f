"""Tasks in an SQLite file.

One connection writes, on the thread of the event loop: a statement takes microseconds and a hop to another thread a
hundred. Its transactions begin with `begin immediate`, so no row can be held by another transaction and every verb that
locks is a plain select. A second connection reads what is committed. Several processes may share the file; they take
turns, and `changed` tells one that another has written.

Rows travel in statements of a few fixed sizes, whose texts and prepared forms are cached: sqlite3 lets go of the
interpreter's lock once a statement, so row by row costs most of the time in a busy process. A batch writes the rows
that it locked by their row numbers.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import astuple

from perdure.core.commands import Heartbeat
from perdure.core.errors import Conflict
from perdure.core.model import Attempt, Key, Pulse, Task, WorkerSession
from perdure.store import rows
from perdure.store.base import CommitUnknown, Demand, Filter, KeyName, StoreFault, Switch
from perdure.store.clock import Clock, SlewedClock
from perdure.store.rows import Row
from perdure.store.sqlite_file import MEMORY, Connection, check_file, exists, split
from perdure.store.statements import expand, migrations, statements

T = TypeVar("T")

SQL = statements("sqlite")
_COPY_CLOSED, _DELETE_OPEN = SQL["close"].split(";")
_TRIM_ATTEMPTS, _TRIM_CLOSED = SQL["trim_closed"].split(";")
_KEEP_KEYS, _TRIM_KEYS = SQL["trim_keys"].split(";")
_CHUNKS = (200, 100, 50, 20, 10, 5, 2, 1)
_BEFORE_ALL_PLACES = (-1, 0, b"")
_BEHIND_ALL_IDS = b"\xff" * 17


class SqliteStore:
    """See base.Store. `path` is a file on a local disk, or ":memory:".

    `clock` gives microseconds since the epoch; None takes the wall clock, made so that it never goes back, not even
    over restarts. `switch` is awaited before every statement.
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
        self._writer: Connection | None = None
        self._reader: Connection | None = None
        self._pid = 0
        self._version = 0

    async def open(self) -> None:
        if not exists(self._path):
            raise Conflict(f"there is no database {self._path}; run `perdure migrate`")
        writer = await self._connect()
        applied = await self._applied(writer)
        missing = [name for name, _ in migrations("sqlite") if name not in applied]
        if missing:
            raise Conflict(f"{self._path} lacks {', '.join(missing)}; run `perdure migrate`")
        if self._own_clock:
            _alive_at, _hold_until, mark = (await writer.patiently(SQL["lock_pulse"]))[0]
            self._clock = SlewedClock(mark)
        self._reader = writer if self._path == MEMORY else Connection(self._path, query_only=True)
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
            writer = Connection(self._path)
            await writer.patiently("pragma journal_mode = wal")
            self._writer = writer
        return self._writer

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
            yield SqliteBatch(writer, self._clock, self._switch)

    @asynccontextmanager
    async def _transaction(self, writer: Connection) -> AsyncIterator[None]:
        await self._pause()
        await writer.patiently("begin immediate")
        try:
            yield
            await self._pause()
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
        values = {name: getattr(filter, name) for name in ("namespace", "limit", "queue", "type", "since")}
        values["before"] = _BEHIND_ALL_IDS if filter.before is None else filter.before
        values["state"] = None if filter.state is None else int(filter.state)
        return [rows.task(row) for row in await self._rows(SQL["find"], values)]

    async def sessions(self, namespace: str) -> list[WorkerSession]:
        return [WorkerSession(*row) for row in await self._rows(SQL["sessions"], (namespace,))]

    async def next_alarm(self) -> int | None:
        alarm: int | None = (await self._rows(SQL["next_alarm"]))[0][0]
        return alarm

    async def api_keys(self) -> dict[bytes, str]:
        return dict(await self._rows(SQL["api_keys"]))

    async def add_api_key(self, hash: bytes, namespace: str, label: str) -> None:
        writer = self._mine(self._writer)
        async with self._turn, self._transaction(writer):
            writer.write(SQL["add_api_key"], (hash, namespace, label, self._clock()))

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
        await self._pause()
        reader = self._mine(self._reader)
        if reader is not self._writer:
            return await reader.patiently(sql, values)
        async with self._turn:  # a database in memory has one connection, on which an open batch would be seen
            return reader.rows(sql, values)

    async def _pause(self) -> None:
        if self._switch is not None:
            await self._switch()

    def _mine(self, connection: Connection | None) -> Connection:
        if connection is None:
            raise StoreFault("the store is not open")
        if os.getpid() != self._pid:
            raise StoreFault(f"the store was opened by process {self._pid}; after a fork, open one of your own")
        return connection


class SqliteBatch:
    """See base.Batch."""

    def __init__(self, connection: Connection, clock: Clock, switch: Switch | None) -> None:
        self._connection = connection
        self._clock = clock
        self._switch = switch
        self._numbers: dict[bytes, int] = {}  # of the rows that this batch locked

    @cached_property
    def now(self) -> int:
        """Read when first asked for: the locks were granted before the batch began."""
        return self._clock()

    async def _rows(self, sql: str, values: Any = ()) -> list[Row]:
        if self._switch is not None:
            await self._switch()
        return self._connection.rows(sql, values)

    async def _write(self, sql: str, values: Any = ()) -> int:
        if self._switch is not None:
            await self._switch()
        return self._connection.write(sql, values)

    async def _rows_of(self, sql: str, given: Sequence[Row]) -> list[Row]:
        """The rows that a statement returns for each of `given`."""
        return [
            row
            for part in chunks(given)
            for row in await self._rows(expand(sql, len(part)), list(chain.from_iterable(part)))
        ]

    async def _write_all(self, sql: str, given: Sequence[Row]) -> None:
        """Write `given`; StoreFault when one of them met no row."""
        for part in chunks(given):
            written = await self._write(expand(sql, len(part)), list(chain.from_iterable(part)))
            if written != len(part):
                raise StoreFault(f"{len(part) - written} of {len(part)} rows are not what this batch has locked")

    async def _rows_by_id(self, sql: str, task_ids: Sequence[bytes]) -> list[Row]:
        return [row for ids in chunks(task_ids) for row in await self._rows(expand(sql, len(ids)), ids)]

    def _locked(self, found: list[Row]) -> list[Task]:
        tasks = [rows.task(row) for row in found]
        for task in tasks:
            self._numbers[task.id] = task.rowid
        return tasks

    # keys ------------------------------------------------------------------------------------------------------
    async def reserve_keys(self, keys: Sequence[Key]) -> set[KeyName]:
        return set(await self._rows_of(SQL["reserve_keys"], sorted(map(astuple, keys))))

    async def read_keys(self, names: Sequence[KeyName]) -> dict[KeyName, Key]:
        return {row[:4]: Key(*row) for row in await self._rows_of(SQL["read_keys"], names)}

    async def replace_key(self, old: Key, new: Key) -> bool:
        values = (new.task_id, new.digest, new.expires_at, *old.name, old.task_id)
        return await self._write(SQL["replace_key"], values) == 1

    # rows ------------------------------------------------------------------------------------------------------
    async def lock(self, task_ids: Sequence[bytes], *, wait: bool = False) -> dict[bytes, Task]:
        locked = self._locked(await self._rows_by_id(SQL["lock"], task_ids))
        return {task.id: task for task in locked}

    async def trace(self, task_ids: Sequence[bytes]) -> dict[bytes, Task]:
        return {row[0]: rows.task(row) for row in await self._rows_by_id(SQL["trace"], task_ids)}

    async def claim(self, demands: Sequence[Demand]) -> dict[str, list[Task]]:
        claimed = {}
        for demand in demands:
            after = _BEFORE_ALL_PLACES if demand.after is None else astuple(demand.after)
            found = await self._rows(SQL["claim"], (demand.lane, *after, demand.limit))
            claimed[demand.lane] = self._locked(found)
        return claimed

    async def due(self, limit: int) -> list[Task]:
        return self._locked(await self._rows(SQL["due"], (self.now, limit)))

    async def leased_by(self, incarnation: int, limit: int, *, poll: int | None = None) -> list[Task]:
        if poll is None:
            found = await self._rows(SQL["leased_by"], (incarnation, limit))
        else:
            found = await self._rows(SQL["leased_by_poll"], (incarnation, poll, limit))
        return self._locked(found)

    async def beat(self, beats: Sequence[Heartbeat]) -> dict[bytes, bool]:
        given = [
            (beat.lease.task_id, beat.lease.number, beat.lease.bits, self.now, beat.progress, beat.checkpoint)
            for beat in beats
        ]
        return {task_id: cancel == 1 for task_id, cancel in await self._rows_of(SQL["beat"], given)}

    async def highest_places(self, lanes: Sequence[str]) -> dict[str, int]:
        highest = dict.fromkeys(lanes, 0)
        for lane, place in await self._rows_of(SQL["highest_places"], [(lane,) for lane in lanes]):
            highest[lane] = max(highest[lane], place or 0)
        return highest

    # writes ----------------------------------------------------------------------------------------------------
    async def close(self, tasks: Sequence[Task]) -> None:
        number = self._numbers.get
        await self._write_all(_COPY_CLOSED, [rows.close_row(task, number(task.id)) for task in tasks])
        await self._write_all(_DELETE_OPEN, [(number(task.id),) for task in tasks])

    async def lease(self, tasks: Sequence[Task]) -> None:
        await self._write_all(SQL["lease"], [rows.lease_row(task, self._numbers.get(task.id)) for task in tasks])

    async def change(self, tasks: Sequence[Task]) -> None:
        await self._write_all(SQL["change"], [rows.change_row(task, self._numbers.get(task.id)) for task in tasks])

    async def insert(self, tasks: Sequence[Task]) -> None:
        await self._write_all(SQL["insert"], [rows.insert_row(task) for task in tasks])

    async def record(self, attempts: Sequence[Attempt]) -> None:
        await self._write_all(SQL["record"], [astuple(attempt) for attempt in attempts])

    # workers, pulse --------------------------------------------------------------------------------------------
    async def lock_session(self, incarnation: int) -> WorkerSession | None:
        found = await self._rows(SQL["lock_session"], (incarnation,))
        return WorkerSession(*found[0]) if found else None

    async def put_session(self, session: WorkerSession) -> None:
        await self._write(SQL["put_session"], astuple(session))

    async def ending_sessions(self, limit: int) -> list[WorkerSession]:
        return [WorkerSession(*row) for row in await self._rows(SQL["ending_sessions"], (self.now, limit))]

    async def delete_sessions(self, incarnations: Sequence[int]) -> None:
        for part in chunks(incarnations):
            await self._write(expand(SQL["delete_sessions"], len(part)), part)

    async def lock_pulse(self) -> Pulse | None:
        alive_at, hold_until, _mark = (await self._rows(SQL["lock_pulse"]))[0]
        return Pulse(alive_at, hold_until)

    async def put_pulse(self, pulse: Pulse) -> None:
        """The clock's mark is raised along with it, about once a second."""
        await self._write(SQL["put_pulse"], (pulse.alive_at, pulse.hold_until, self.now))

    # retention -------------------------------------------------------------------------------------------------
    async def trim_closed(self, before: int, limit: int) -> int:
        await self._write(_TRIM_ATTEMPTS, (before, limit))
        return await self._write(_TRIM_CLOSED, (before, limit))

    async def trim_keys(self, limit: int, extend: int) -> int:
        kept = await self._write(_KEEP_KEYS, (self.now + extend, self.now, limit))
        return kept + await self._write(_TRIM_KEYS, (self.now, limit))


def chunks(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """`values` in parts of the fixed sizes, largest first."""
    start = 0
    for size in _CHUNKS:
        while len(values) - start >= size:
            yield values[start : start + size]
            start += size
