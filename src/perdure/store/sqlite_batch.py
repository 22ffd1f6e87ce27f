"""One transaction on an SQLite file. It writes the rows that it locked by their row numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, chain, takewhile
from operator import attrgetter
from typing import Any, TypeVar

from msgspec.structs import astuple

from perdure.core.advance import Advance
from perdure.core.commands import Complete, Heartbeat
from perdure.core.effects import CopyPages
from perdure.core.model import Attempt, Key, Pulse, Task, WorkerSession
from perdure.core.run import Message, Page, Run
from perdure.store import rows, sqlite_rows
from perdure.store.base import DataFault, Demand, Doubled, KeyName, Order, StoreFault, Switch
from perdure.store.clock import Clock
from perdure.store.rows import Row
from perdure.store.sqlite_failures import SqliteFailureBatch
from perdure.store.sqlite_file import Connection
from perdure.store.sqlite_flow import SqliteFlow
from perdure.store.sqlite_outbox import OutboxBatch
from perdure.store.sqlite_rows import Shape, Write
from perdure.store.sqlite_search import SqliteSearchBatch
from perdure.store.statements import expand, statements

T = TypeVar("T")

SQL = statements("sqlite")
_NEXT_PAYLOAD, _INSERT_PAYLOADS, *_INSERT = SQL["insert"].split(";")
_RESERVE, _RESERVE_SOME = SQL["reserve_keys"].split(";")
_SUCCEED, _SUCCEEDED, _DELETE_SUCCEEDED = SQL["succeed"].split(";")
*_CLOSE, _DELETE_OPEN = SQL["close"].split(";")
_DELETE_ATTEMPTS, _DELETE_PAYLOADS, _DELETE = SQL["delete"].split(";")
_TRIM = SQL["trim_closed"].split(";")
_KEEP_KEYS, _TRIM_KEYS = SQL["trim_keys"].split(";")
_BEFORE_ALL_PLACES = (-1, 0, b"")

_insert = Shape(_INSERT, sqlite_rows.INSERT, sqlite_rows.INSERT_SELDOM)
_lease = Shape(SQL["lease"].split(";"), sqlite_rows.LEASE, sqlite_rows.LEASE_SELDOM)
_close = Shape(_CLOSE, sqlite_rows.CLOSE, sqlite_rows.CLOSE_SELDOM)
_put_runs = Shape(SQL["put_runs"].split(";"), sqlite_rows.RUN, sqlite_rows.RUN_SELDOM, sqlite_rows.RUN_FIELDS)
_by_seq = attrgetter("seq")


class SqliteBatch(SqliteFailureBatch, SqliteFlow, SqliteSearchBatch, OutboxBatch):
    """See base.Batch."""

    def __init__(self, connection: Connection, clock: Clock, switch: Switch | None) -> None:
        self._connection = connection
        self._clock = clock
        self._switch = switch
        self._numbers: dict[bytes, int] = {}  # of the rows that this batch locked
        self._payloads = 0  # the next number for a payload; 0: not read yet

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

    async def _rows_by_id(self, sql: str, task_ids: Sequence[bytes]) -> list[Row]:
        return [row for ids in chunks(task_ids) for row in await self._rows(expand(sql, len(ids)), ids)]

    async def _write_all(self, writes: Iterable[Write]) -> None:
        """Write; StoreFault when a row met none in the database."""
        for sql, values, count in writes:
            written = await self._write(sql, values)
            if written != count:
                raise StoreFault(f"{count - written} of {count} rows are not what this batch has locked")

    def _numbers_of(self, tasks: Sequence[Task]) -> list[int | None]:
        return [self._numbers.get(task.id) for task in tasks]

    def _locked(self, found: list[Row]) -> list[Task]:
        tasks = [rows.task(row) for row in found]
        for task in tasks:
            self._numbers[task.id] = task.rowid
        return tasks

    # keys ------------------------------------------------------------------------------------------------------
    async def reserve_keys(self, keys: Sequence[Key]) -> set[KeyName]:
        wanted = sorted(map(astuple, keys))
        reserved: set[KeyName] = set()
        for part in chunks(wanted):
            values = list(chain.from_iterable(part))
            self._connection.write("savepoint reserving")
            written = await self._write(expand(_RESERVE, len(part)), values)
            if written == len(part):
                reserved.update(row[:4] for row in part)
            else:  # which ones? Asking for that always would cost half as much again
                self._connection.write("rollback to reserving")
                reserved.update(self._connection.rows(expand(_RESERVE_SOME, len(part)), values))
            self._connection.write("release reserving")
        return reserved

    async def read_keys(self, names: Sequence[KeyName]) -> dict[KeyName, Key]:
        return {row[:4]: Key(*row) for row in await self._rows_of(SQL["read_keys"], names)}

    async def replace_key(self, old: Key, new: Key) -> bool:
        values = (new.task_id, new.digest, new.expires_at, *old.name, old.task_id)
        return await self._write(SQL["replace_key"], values) == 1

    async def free_keys(self, keys: Sequence[Key]) -> None:
        for key in keys:
            await self._write(SQL["free_keys"], key.name)

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

    async def due(self, limit: int, after: int = 0) -> list[Task]:
        return self._locked(await self._rows(SQL["due"], (after, self.now, limit)))

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

    async def succeed(self, completions: Sequence[Complete]) -> set[bytes]:
        succeeded: set[bytes] = set()
        for part in chunks(completions):
            values: list[Any] = []
            for done in part:
                lease = done.lease
                values += (
                    lease.task_id, lease.number, lease.bits, self.now, done.progress, done.checkpoint, done.result,
                )  # fmt: skip
            ids = [done.lease.task_id for done in part]
            if await self._write(expand(_SUCCEED, len(part)), values) < len(part):
                ids = [row[0] for row in self._connection.rows(expand(_SUCCEEDED, len(part)), ids)]
            for group in chunks(ids):
                await self._write(expand(_DELETE_SUCCEEDED, len(group)), group)
            succeeded.update(ids)
        return succeeded

    async def exchange(self, completions: Sequence[Complete], order: Order) -> tuple[set[bytes], list[Task], bool]:
        succeeded = await self.succeed(completions)
        claimed = (await self.claim([order.demand]))[order.demand.lane]
        if any(task.timeouts is not None for task in claimed):
            return succeeded, [], True
        given = [(task.rowid, bits) for task, bits in zip(claimed, order.bits, strict=False)]
        for part in chunks(given):
            values = [order.session, order.worker, order.poll, self.now, *chain.from_iterable(part)]
            await self._write(expand(SQL["take"], len(part)), values)
        return succeeded, claimed, False

    async def places(self, lanes: Sequence[str]) -> dict[str, tuple[int, int]]:
        places: dict[str, tuple[int, int]] = {}
        for lane, lowest, highest in await self._rows_of(SQL["places"], [(lane,) for lane in lanes]):
            if lowest is not None:
                before = places.get(lane, (lowest, highest))
                places[lane] = (min(lowest, before[0]), max(highest, before[1]))
        return places

    # writes ----------------------------------------------------------------------------------------------------
    async def close(self, tasks: Sequence[Task]) -> None:
        numbers = self._numbers_of(tasks)
        await self._write_all(_close.writes(tasks, numbers))
        await self._write_all(writes(_DELETE_OPEN, [(number,) for number in numbers]))

    async def lease(self, tasks: Sequence[Task]) -> None:
        await self._write_all(_lease.writes(tasks, self._numbers_of(tasks)))

    async def change(self, tasks: Sequence[Task]) -> None:
        numbers = self._numbers_of(tasks)
        given = [sqlite_rows.change_row(task, number) for task, number in zip(tasks, numbers, strict=True)]
        await self._write_all(writes(SQL["change"], given))

    async def insert(self, tasks: Sequence[Task]) -> None:
        """Payloads go to a table of their own. Nobody else takes their numbers as long as this transaction lasts."""
        if not self._payloads:
            self._payloads = self._connection.rows(_NEXT_PAYLOAD)[0][0]
        numbers: list[int | None] = []
        payloads: list[Row] = []
        for task in tasks:
            if task.payload is None and task.headers is None:
                numbers.append(None)
            else:
                numbers.append(self._payloads)
                payloads.append((self._payloads, task.payload, task.headers))
                self._payloads += 1
        for sql, values, _count in writes(_INSERT_PAYLOADS, payloads):
            self._connection.write(sql, values)
        try:
            await self._write_all(_insert.writes(tasks, numbers))
        except DataFault as fault:
            if "tasks.id" in str(fault):
                raise Doubled(str(fault)) from fault
            raise

    async def closed(self, task_ids: Sequence[bytes]) -> set[bytes]:
        return {row[0] for row in await self._rows_by_id(SQL["closed"], task_ids)}

    async def record(self, attempts: Sequence[Attempt]) -> None:
        await self._write_all(writes(SQL["record"], [astuple(attempt) for attempt in attempts]))

    # workflows -------------------------------------------------------------------------------------------------
    async def runs(self, run_ids: Sequence[bytes]) -> dict[bytes, Run]:
        return rows.runs(await self._rows_by_id(SQL["runs"], run_ids))

    async def inbox(self, after: Mapping[bytes, int], size: int | None = None) -> dict[bytes, list[Message]]:
        if size is not None:
            asked = [(*item, within(await self._rows(SQL["inbox_sizes"], item), size)) for item in after.items()]
            return rows.messages([row for values in asked for row in await self._rows(SQL["inbox_start"], values)])
        inboxes = rows.messages(await self._rows_of(SQL["inbox"], list(after.items())))
        for messages in inboxes.values():
            messages.sort(key=_by_seq)
        return inboxes

    async def children(self, parent: bytes, limit: int, after: bytes = b"") -> tuple[list[Task], bool]:
        return self._locked(await self._rows(SQL["children"], (parent, after, limit))), True

    async def delete(self, tasks: Sequence[Task]) -> None:
        numbers = self._numbers_of(tasks)
        for part in chunks(numbers):
            await self._write(expand(_DELETE_ATTEMPTS, len(part)), part)
            await self._write(expand(_DELETE_PAYLOADS, len(part)), part)
        leases = [(number, task.lease_number, task.lease_bits) for number, task in zip(numbers, tasks, strict=True)]
        await self._write_all(writes(_DELETE, leases))

    async def put_runs(self, runs: Sequence[Run]) -> None:
        await self._write_all(_put_runs.writes(runs, [run.id for run in runs]))

    async def advance(self, appends: Sequence[Advance]) -> dict[bytes, bool]:
        given = [
            (
                wanted.lease.task_id, wanted.lease.number, wanted.lease.bits, wanted.completed_event_id, wanted.worker,
                wanted.at, wanted.page.first - 1, wanted.page.count, len(wanted.page.data),
            )
            for wanted in appends
        ]  # fmt: skip
        waiting = {run_id: waits == 1 for run_id, waits in await self._rows_of(SQL["advance"], given)}
        await self.append([wanted.page for wanted in appends if wanted.lease.task_id in waiting])
        return waiting

    async def append(self, pages: Sequence[Page]) -> None:
        await self._write_all(writes(SQL["append"], [astuple(page) for page in pages]))

    async def copy_pages(self, copies: Sequence[CopyPages]) -> None:
        for sql, values, _count in writes(SQL["copy_pages"], [astuple(copied) for copied in copies]):
            await self._write(sql, values)

    async def post(self, messages: Sequence[Message]) -> None:
        await self._write_all(writes(SQL["post"], [astuple(message) for message in messages]))

    async def take(self, taken: Mapping[bytes, int]) -> None:
        for sql, values, _count in writes(SQL["take_messages"], list(taken.items())):
            await self._write(sql, values)

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

    async def pulse(self) -> Pulse:
        return Pulse(*(await self._rows(SQL["pulse"]))[0])

    async def lock_pulse(self) -> Pulse | None:
        alive_at, hold_until, _mark = (await self._rows(SQL["lock_pulse"]))[0]
        return Pulse(alive_at, hold_until)

    async def put_pulse(self, pulse: Pulse) -> None:
        """The clock's mark is raised along with it, about once a second."""
        await self._write(SQL["put_pulse"], (pulse.alive_at, pulse.hold_until, self.now))

    # retention -------------------------------------------------------------------------------------------------
    async def trim_closed(self, before: int, limit: int) -> int:
        for sql in _TRIM[:-1]:
            await self._write(sql, (before, limit))
        return await self._write(_TRIM[-1], (before, limit))

    async def trim_keys(self, limit: int, extend: int) -> int:
        kept = await self._write(_KEEP_KEYS, (self.now + extend, self.now, limit))
        return kept + await self._write(_TRIM_KEYS, (self.now, limit))


def within(sizes: Sequence[Row], size: int) -> int:
    """How many of the first values, of which the bytes are given, begin within `size` bytes."""
    ends = accumulate(length for (length,) in sizes)
    return min(len(sizes), 1 + sum(1 for _ in takewhile(lambda end: end < size, ends)))


def writes(sql: str, given: Sequence[Row]) -> Iterator[Write]:
    """The statements that write `given`."""
    for part in chunks(given):
        yield Write(expand(sql, len(part)), list(chain.from_iterable(part)), len(part))


def chunks(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """`values` in parts of the fixed sizes, largest first."""
    for start, end in sqlite_rows.bounds(len(values)):
        yield values[start:end]
