"""The reference store: what every verb of base.py means, in plain Python.

Several batches may be open at once, at READ COMMITTED: a verb sees what was committed before it started plus its own
batch's writes; row locks are real and last until the batch ends; only `lock(wait=True)`, `lock_session`, the writes of
keys and sessions, and a second insert of the same key ever wait for another batch. A select that locks works as
PostgreSQL's does: it finds its rows in a snapshot, locks one after another, and asks its condition again of the newest
version of each. Control may pass to another task (through `switch`) before every verb, between the two halves of such a
select, and before the commit.

The simulation runs on it and the other stores are compared with it; nothing is kept when the process ends.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import copy

from perdure.core import decide
from perdure.core.commands import Complete, Heartbeat
from perdure.core.model import Attempt, Key, Pulse, Task, WorkerSession
from perdure.core.run import Message, Page, Run
from perdure.core.states import Kind, State, is_closed
from perdure.store.base import (
    CommitUnknown,
    DataFault,
    Demand,
    Doubled,
    Filter,
    KeyName,
    Order,
    StoreFault,
    Switch,
)
from perdure.store.census import LaneCount, OpenRun, count, open_runs
from perdure.store.memory_columns import CHANGE, CLOSE, LEASE, OPEN_ONLY, without, written
from perdure.store.memory_failures import MemoryFailures
from perdure.store.memory_flow import FlowBatch, FlowReads
from perdure.store.memory_keys import MemoryKeys
from perdure.store.memory_locks import Tables
from perdure.store.memory_outbox import OutboxBatch, OutboxStore
from perdure.store.memory_owners import MemoryOwners
from perdure.store.memory_rows import Transaction
from perdure.store.memory_search import MemorySearch, SearchBatch


def _wall_clock() -> int:
    return time.time_ns() // 1000


class MemoryStore(MemoryFailures, MemorySearch, MemoryKeys, MemoryOwners, FlowReads, OutboxStore):
    """See base.Store. `clock` gives microseconds since the epoch; `switch` is awaited wherever another task may run."""

    batches_in_flight = 2
    dead_entries = True

    def __init__(self, *, clock: Callable[[], int] | None = None, switch: Switch | None = None) -> None:
        super().__init__(clock or _wall_clock)
        self._switch = switch
        self._tables = Tables()
        self._listeners: list[Callable[[bytes], None]] = []

    async def open(self) -> None:
        """Nothing to connect to."""

    async def close(self) -> None:
        self._listeners.clear()

    async def migrate(self) -> list[str]:
        return []

    def now(self) -> int:
        return self._clock()

    async def pause(self) -> None:
        """Let another task run, if a test wants one to."""
        if self._switch is not None:
            await self._switch()

    @asynccontextmanager
    async def batch(self, *, single: bool = False) -> AsyncIterator[MemoryBatch]:
        transaction = Transaction()
        try:
            yield MemoryBatch(self, self._tables, transaction, single)
            if not single:
                await self.pause()
            transaction.commit()
        finally:
            transaction.end()

    async def committed(self, unknown: CommitUnknown) -> bool:
        if not unknown.task_ids:
            raise StoreFault("no ids to look for")
        return all(
            task_id in self._tables.tasks.rows or task_id in self._tables.closed.rows for task_id in unknown.task_ids
        )

    async def read(self, task_ids: Sequence[bytes]) -> dict[bytes, Task]:
        await self.pause()
        both = self._tables.closed.rows | self._tables.tasks.rows
        return {task_id: copy(both[task_id]) for task_id in task_ids if task_id in both}

    async def attempts(self, task_ids: Sequence[bytes]) -> list[Attempt]:
        await self.pause()
        rows = self._tables.attempts.rows
        return [copy(rows[name]) for name in sorted(rows) if name[0] in task_ids]

    async def find(self, filter: Filter) -> list[Task]:
        await self.pause()
        workflow_ids = {run.id: run.workflow_id for run in self._tables.runs.rows.values()}

        def passes(task: Task) -> bool:
            return (
                task.namespace == filter.namespace
                and (filter.before is None or task.id < filter.before)
                and (filter.state is None or task.state == filter.state)
                and (filter.queue is None or task.queue == filter.queue)
                and (filter.type is None or task.type == filter.type)
                and (filter.since is None or task.created_at >= filter.since)
                and (filter.kind is None or task.kind == filter.kind)
                and (filter.workflow_id is None or workflow_ids.get(task.id) == filter.workflow_id)
                and self.in_group(task.id, filter.group)
                and (not filter.owing or self.owes(task.id))
                and task.type != filter.without_type
                and not (filter.open and is_closed(task.state))
            )

        both = self._tables.closed.rows | self._tables.tasks.rows
        found = sorted((task for task in both.values() if passes(task)), key=lambda task: task.id, reverse=True)
        return [without(task, "payload", "headers", "result") for task in found[: filter.limit]]

    async def schedules(self, namespace: str, limit: int, before: bytes | None = None) -> list[Task]:
        await self.pause()
        rows = self._tables.tasks.rows.values()
        found = (task for task in rows if task.kind == Kind.SCHEDULE and task.namespace == namespace)
        newest = sorted(found, key=lambda task: task.id, reverse=True)
        return [copy(task) for task in newest if before is None or task.id < before][:limit]

    async def run_rows(self, run_ids: Sequence[bytes]) -> dict[bytes, Run]:
        await self.pause()
        runs = self._tables.runs.rows
        return {run_id: copy(runs[run_id]) for run_id in run_ids if run_id in runs}

    async def histories(
        self, after: Mapping[bytes, int], limit: int, size: int | None = None
    ) -> dict[bytes, list[Page]]:
        await self.pause()
        histories: defaultdict[bytes, list[Page]] = defaultdict(list)
        for (run_id, first), page in sorted(self._tables.history.rows.items()):
            found = histories[run_id]
            fits = size is None or sum(len(before.data) for before in found) < size
            if run_id in after and first + page.count > after[run_id] + 1 and len(found) < limit and fits:
                found.append(copy(page))
        return {run_id: pages for run_id, pages in histories.items() if pages}

    async def pending(self, run_id: bytes, limit: int) -> tuple[list[Task], list[Message]]:
        await self.pause()
        children = [task for _, task in sorted(self._tables.tasks.rows.items()) if task.parent_run_id == run_id]
        inbox = [copy(message) for key, message in sorted(self._tables.inbox.rows.items()) if key[0] == run_id]
        return [without(task, "payload", "headers") for task in children[:limit]], inbox[:limit]

    async def find_activity(self, run_id: bytes, activity_id: str) -> bytes | None:
        await self.pause()
        children = (task for task in self._tables.tasks.rows.values() if task.parent_run_id == run_id)
        kinds = (Kind.ACTIVITY, Kind.GROUP)
        named = (child for child in children if child.kind in kinds and child.idempotency_key == activity_id)
        return next((child.id for child in named), None)

    async def resolve(self, run_id: bytes, resolution: bytes) -> bool:
        await self.pause()
        if run_id not in self._tables.closed.rows:
            return False
        self._tables.resolutions[run_id] = resolution
        self._tables.failures.rows.pop(run_id, None)
        return True

    async def resolutions(self, run_ids: Sequence[bytes]) -> dict[bytes, bytes]:
        await self.pause()
        return {i: self._tables.resolutions[i] for i in run_ids if i in self._tables.resolutions}

    async def find_key(self, name: KeyName) -> Key | None:
        await self.pause()
        return copy(self._tables.keys.rows.get(name))

    async def sessions(self, namespace: str) -> list[WorkerSession]:
        await self.pause()
        return [copy(session) for session in self._tables.sessions.rows.values() if session.namespace == namespace]

    async def held(self, incarnation: int, limit: int) -> list[Task]:
        await self.pause()
        held = [task for _, task in sorted(self._tables.tasks.rows.items()) if task.session == incarnation]
        return [without(task, "payload", "headers") for task in held[:limit]]

    async def next_alarm(self, after: int = 0) -> int | None:
        await self.pause()
        alarms = (t.wake_at for t in self._tables.tasks.rows.values() if t.wake_at is not None)
        return min((alarm for alarm in alarms if alarm > after), default=None)

    async def count_lanes(self, first: str, last: str, most: int) -> list[LaneCount]:
        await self.pause()
        return count(self._tables.tasks.rows.values(), first, last, most)

    async def open_runs(self, most: int) -> list[OpenRun]:
        await self.pause()
        return open_runs(self._tables.tasks.rows, self._tables.runs.rows, most)

    async def changed(self) -> bool:
        return False

    async def announce(self, hint: bytes) -> None:
        for heard in self._listeners:
            heard(hint)

    async def listen(self, heard: Callable[[bytes], None]) -> None:
        self._listeners.append(heard)


class MemoryBatch(SearchBatch, FlowBatch, OutboxBatch):
    """See base.Batch."""

    # keys ------------------------------------------------------------------------------------------------------
    async def reserve_keys(self, keys: Sequence[Key]) -> set[KeyName]:
        await self._begin()
        reserved = set()
        for key in sorted(keys, key=lambda key: key.name):
            await self._transaction.settle(self._tables.keys, key.name)
            if self._transaction.get(self._tables.keys, key.name) is None:
                await self._insert(self._tables.keys, key.name, copy(key))
                reserved.add(key.name)
        return reserved

    async def read_keys(self, names: Sequence[KeyName]) -> dict[KeyName, Key]:
        await self._begin()
        found = {name: self._transaction.get(self._tables.keys, name) for name in names}
        return {name: copy(key) for name, key in found.items() if key is not None}

    async def replace_key(self, old: Key, new: Key) -> bool:
        await self._begin()
        await self._transaction.settle(self._tables.keys, old.name)
        held = self._transaction.get(self._tables.keys, old.name)
        if held is None or held.task_id != old.task_id:
            return False
        self._transaction.take(self._tables.keys, old.name)
        self._transaction.put(self._tables.keys, old.name, copy(new))
        return True

    async def free_keys(self, keys: Sequence[Key]) -> None:
        await self._begin()
        for key in keys:
            self._transaction.put(self._tables.keys, key.name, None)

    # rows ------------------------------------------------------------------------------------------------------
    async def lock(self, task_ids: Sequence[bytes], *, wait: bool = False) -> dict[bytes, Task]:
        await self._begin()
        snapshot = [task_id for task_id in sorted(task_ids) if self._open(task_id) is not None]
        granted = await self._lock(self._tables.tasks, snapshot, lambda task: True, wait=wait)
        return {task_id: without(task, "payload", "headers") for task_id, task in granted}

    async def trace(self, task_ids: Sequence[bytes]) -> dict[bytes, Task]:
        await self._begin()
        found = {task_id: self._open(task_id) or self._closed(task_id) for task_id in task_ids}
        return {
            task_id: without(task, "payload", "headers", "result")
            for task_id, task in found.items()
            if task is not None
        }

    async def claim(self, demands: Sequence[Demand]) -> dict[str, list[Task]]:
        await self._begin()
        return await self._claim(demands)

    async def _claim(self, demands: Sequence[Demand]) -> dict[str, list[Task]]:
        snapshots = [(demand, self._ready(demand)) for demand in demands]
        claimed = {}
        for demand, snapshot in snapshots:
            granted = await self._lock(
                self._tables.tasks, snapshot, lambda task: task.place is not None, limit=demand.limit
            )
            claimed[demand.lane] = [task for _, task in granted]
        return claimed

    def _ready(self, demand: Demand) -> list[bytes]:
        after = None if demand.after is None else (demand.after.priority, demand.after.place, demand.after.task_id)
        places = sorted(
            (task.priority, task.place, task_id)
            for task_id, task in self._transaction.scan(self._tables.tasks)
            if task.lane == demand.lane and task.place is not None
        )
        return [place[2] for place in places if after is None or place > after]

    async def due(self, limit: int, after: int = 0) -> list[Task]:
        await self._begin()
        now = self.now

        def is_due(task: Task) -> bool:
            return task.wake_at is not None and after < task.wake_at <= now

        snapshot = self._found(self._tables.tasks, is_due, lambda task: task.wake_at)
        granted = await self._lock(self._tables.tasks, snapshot, is_due, limit=limit)
        return [without(task, "payload", "headers") for _, task in granted]

    async def leased_by(self, incarnation: int, limit: int, *, poll: int | None = None) -> list[Task]:
        await self._begin()

        def is_held(task: Task) -> bool:
            if task.session != incarnation or task.state != State.LEASED:
                return False
            return poll is None or (task.poll == poll and not task.received)

        snapshot = self._found(self._tables.tasks, is_held, lambda task: task.id)
        granted = await self._lock(self._tables.tasks, snapshot, is_held, limit=limit)
        return [task for _, task in granted]

    async def beat(self, beats: Sequence[Heartbeat]) -> dict[bytes, bool]:
        await self._begin()
        by_id = {beat.lease.task_id: beat for beat in beats}

        def is_current(task: Task) -> bool:
            return decide.holds(task, by_id[task.id])

        snapshot = [task_id for task_id in by_id if (task := self._open(task_id)) is not None and is_current(task)]
        granted = await self._lock(self._tables.tasks, snapshot, is_current)
        for task_id, task in granted:
            self._transaction.put(self._tables.tasks, task_id, decide.beat(task, by_id[task_id], self.now))
        return {task_id: task.cancel_requested_at is not None for task_id, task in granted}

    async def succeed(self, completions: Sequence[Complete]) -> set[bytes]:
        await self._begin()
        return await self._succeed(completions)

    async def _succeed(self, completions: Sequence[Complete]) -> set[bytes]:
        by_id = {done.lease.task_id: done for done in completions}

        def is_current(task: Task) -> bool:
            return task.kind == Kind.JOB and decide.holds(task, by_id[task.id])

        snapshot = [task_id for task_id in by_id if (task := self._open(task_id)) is not None and is_current(task)]
        granted = await self._lock(self._tables.tasks, snapshot, is_current)
        for task_id, task in granted:
            await self._move(decide.succeed(task, by_id[task_id], self.now).task)
        return {task_id for task_id, _ in granted}

    async def exchange(self, completions: Sequence[Complete], order: Order) -> tuple[set[bytes], list[Task], bool]:
        await self._begin()  # one statement, also for a batch that has no other
        succeeded = await self._succeed(completions)
        claimed = (await self._claim([order.demand]))[order.demand.lane]
        if any(task.timeouts is not None for task in claimed):
            return succeeded, [], True
        for task, bits in zip(claimed, order.bits, strict=False):
            lease = decide.claim(task, order.session, order.worker, order.poll, self.now, bits)
            self._transaction.put(self._tables.tasks, task.id, lease.task)
        return succeeded, claimed, False

    async def places(self, lanes: Sequence[str]) -> dict[str, tuple[int, int]]:
        await self._begin()
        places: dict[str, list[int]] = {lane: [] for lane in lanes}
        for _, task in self._transaction.scan(self._tables.tasks):
            if task.lane in places and task.place is not None:
                places[task.lane].append(task.place)
        return {lane: (min(found), max(found)) for lane, found in places.items() if found}

    # writes ----------------------------------------------------------------------------------------------------
    async def close(self, tasks: Sequence[Task]) -> None:
        await self._begin()
        for task in tasks:
            held = self._open(task.id)
            if held is None or held.lease != task.lease:
                raise StoreFault("a closing row does not have the lease that was decided upon")
            await self._move(written(held, task, CLOSE))

    async def _move(self, row: Task) -> None:
        """To the closed ones."""
        for column, nothing in OPEN_ONLY.items():
            setattr(row, column, nothing)
        self._transaction.put(self._tables.tasks, row.id, None)
        self._close_run(row.id)
        await self._insert(self._tables.closed, row.id, row)

    async def lease(self, tasks: Sequence[Task]) -> None:
        await self._update(tasks, LEASE)

    async def change(self, tasks: Sequence[Task]) -> None:
        await self._update(tasks, CHANGE)

    async def _update(self, tasks: Sequence[Task], columns: tuple[str, ...]) -> None:
        await self._begin()
        for task in tasks:
            held = self._open(task.id)
            assert held is not None, "a row is updated that is not there"
            self._transaction.put(self._tables.tasks, task.id, written(held, task, columns))

    async def insert(self, tasks: Sequence[Task]) -> None:
        await self._begin()
        for task in tasks:
            try:
                await self._insert(self._tables.tasks, task.id, copy(task))
            except DataFault as fault:
                raise Doubled(str(fault)) from fault

    async def closed(self, task_ids: Sequence[bytes]) -> set[bytes]:
        await self._begin()
        return {task_id for task_id in task_ids if self._closed(task_id) is not None}

    async def record(self, attempts: Sequence[Attempt]) -> None:
        await self._begin()
        for attempt in attempts:
            await self._insert(self._tables.attempts, (attempt.task_id, attempt.lease_number), copy(attempt))

    # workers, pulse --------------------------------------------------------------------------------------------
    async def lock_session(self, incarnation: int) -> WorkerSession | None:
        await self._begin()
        snapshot = [] if self._transaction.get(self._tables.sessions, incarnation) is None else [incarnation]
        granted = await self._lock(self._tables.sessions, snapshot, lambda session: True, wait=True)
        return granted[0][1] if granted else None

    async def put_session(self, session: WorkerSession) -> None:
        await self._begin()
        await self._transaction.wait(self._tables.sessions, session.incarnation)
        known = self._transaction.get(self._tables.sessions, session.incarnation)
        if known is None or known.epoch <= session.epoch:
            self._transaction.put(self._tables.sessions, session.incarnation, copy(session))

    async def ending_sessions(self, limit: int) -> list[WorkerSession]:
        await self._begin()
        now = self.now

        def is_ending(session: WorkerSession) -> bool:
            return session.ends_at is not None and session.ends_at <= now

        snapshot = self._found(self._tables.sessions, is_ending, lambda session: session.ends_at)
        granted = await self._lock(self._tables.sessions, snapshot, is_ending, limit=limit)
        return [session for _, session in granted]

    async def delete_sessions(self, incarnations: Sequence[int]) -> None:
        await self._begin()
        for incarnation in sorted(incarnations):
            await self._transaction.wait(self._tables.sessions, incarnation)
            self._transaction.put(self._tables.sessions, incarnation, None)

    async def pulse(self) -> Pulse:
        await self._begin()
        found = self._transaction.get(self._tables.pulse, None)
        assert found is not None
        return copy(found)

    async def lock_pulse(self) -> Pulse | None:
        await self._begin()
        granted = await self._lock(self._tables.pulse, [None], lambda pulse: True)
        return granted[0][1] if granted else None

    async def put_pulse(self, pulse: Pulse) -> None:
        await self._begin()
        self._transaction.put(self._tables.pulse, None, copy(pulse))

    # retention -------------------------------------------------------------------------------------------------
    async def trim_closed(self, before: int, limit: int) -> int:
        await self._begin()

        def is_old(task: Task) -> bool:
            return task.closed_at is not None and task.closed_at < before

        snapshot = self._found(self._tables.closed, is_old, lambda task: task.closed_at)
        old = await self._lock(self._tables.closed, snapshot, is_old, limit=limit)
        ids = {task_id for task_id, _ in old}
        for task_id in ids:
            self._transaction.put(self._tables.closed, task_id, None)
            if self._transaction.get(self._tables.runs, task_id) is not None:
                self._write(self._tables.runs, task_id, None)
        self._forget_failures(ids)
        self._forget_attributes(ids)
        self._erase(ids, self._tables.attempts)
        self._erase(ids, self._tables.history)
        self._erase(ids, self._tables.inbox)
        return len(ids)

    async def trim_keys(self, limit: int, extend: int) -> int:
        await self._begin()
        now = self.now

        def has_expired(key: Key) -> bool:
            return key.expires_at <= now

        snapshot = self._found(self._tables.keys, has_expired, lambda key: key.expires_at)
        over = await self._lock(self._tables.keys, snapshot, has_expired, limit=limit)
        for name, key in over:
            if key.kind == "throttle" or self._open(key.task_id) is None:
                self._transaction.put(self._tables.keys, name, None)
            else:
                key = copy(key)
                key.expires_at = now + extend
                self._transaction.put(self._tables.keys, name, key)
        return len(over)
