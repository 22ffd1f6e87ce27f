"""The rows of one batch and what is to be written about them.

Decisions are applied here first, in order, so a row that two commands name is decided upon twice and written once: by
the narrowest statement that covers all that happened to it. Deletes go first, then updates, then inserts; but the
columns of a run are written before its row closes, which takes them along.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Any

from perdure.core import search_keys
from perdure.core.compensations import owed
from perdure.core.effects import (
    Append,
    Arrive,
    Change,
    Close,
    CopyPages,
    Delete,
    Effect,
    Insert,
    Lease,
    PassOn,
    Post,
    PutRun,
    Record,
    Take,
)
from perdure.core.failures import is_dead
from perdure.core.groups import result_page
from perdure.core.model import Attempt, Task, unpack
from perdure.core.run import Message, Page, Run
from perdure.core.states import State
from perdure.store.base import Batch
from perdure.store.search import Entry


class Overtaken(Exception):
    """A key went to another task while this batch was about to pass it on: nothing was written, and the batch has to
    look again."""


class Write(IntEnum):
    """How a row is written; of two ways the later one here covers both."""

    LEASE = 1
    CHANGE = 2
    CLOSE = 3
    DELETE = 4
    INSERT = 5


_WRITES: dict[type, Write] = {
    Lease: Write.LEASE,
    Change: Write.CHANGE,
    Close: Write.CLOSE,
    Delete: Write.DELETE,
    Insert: Write.INSERT,
}


class Ledger:
    """Rows by id, with the pending writes of this batch already visible in them; and runs and inboxes of those that are
    workflow runs."""

    def __init__(self) -> None:
        self.rows: dict[bytes, Task] = {}
        self.runs: dict[bytes, Run] = {}
        self.inboxes: dict[bytes, list[Message]] = {}  #: of runs whose turn is looked at
        self._writes: dict[bytes, Write] = {}
        self._before: dict[bytes, Task | None] = {}  #: of rows that are written: what they were
        self.attempts: list[Attempt] = []  #: that did not end their tasks
        self._put: dict[bytes, None] = {}  #: runs to write
        self._found_by: dict[bytes, bytes | None] = {}  #: of these: the search attributes that the database has
        self.first_pages: dict[bytes, Page] = {}  #: of histories that begin with this batch
        self._pages: list[Page] = []
        self._arrived: dict[bytes, list[Arrive]] = {}  #: results of calls, by group
        self._copies: list[CopyPages] = []
        self._posted: list[Message] = []
        self._taken: dict[bytes, int] = {}
        self._passed_on: list[PassOn] = []
        self._continued: set[bytes] = set()  #: runs that close, and are followed by another one
        self._alarm: int | None = None  #: of leases that are written
        self.claimed: Sequence[Task] = ()  #: rows whose leases are written already, as they were before

    def load(self, tasks: Iterable[Task]) -> None:
        """Rows as the database has them; a row that is known already keeps its pending value."""
        for task in tasks:
            self.rows.setdefault(task.id, task)

    def apply(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            write = _WRITES.get(type(effect))
            if write is not None:
                self._write(effect.task, write)  # type: ignore[union-attr]
                if type(effect) is Close and effect.continued:
                    self._continued.add(effect.task.id)
                continue
            match effect:
                case Record(attempt):
                    self.attempts.append(attempt)
                case PutRun(run):
                    known = self.runs.get(run.id)
                    self._found_by.setdefault(run.id, None if known is None else known.search_attributes)
                    self.runs[run.id] = run
                    self._put[run.id] = None
                case Append(page):
                    self._pages.append(page)
                    if page.first == 1:
                        self.first_pages[page.run_id] = page
                case Post(message):
                    self._posted.append(message)
                    self.inboxes.setdefault(message.run_id, []).append(message)
                case Take(run_id, seq):
                    self._taken[run_id] = seq
                case Arrive(group_id):
                    self._arrived.setdefault(group_id, []).append(effect)
                case CopyPages():
                    self._copies.append(effect)
                case PassOn():
                    self._passed_on.append(effect)

    def _write(self, task: Task, write: Write) -> None:
        before = self._writes.get(task.id)
        self._before.setdefault(task.id, self.rows.get(task.id))
        if before is not None:
            if before is Write.INSERT and write in (Write.CLOSE, Write.DELETE):
                raise AssertionError("a task cannot be made and closed in one batch")
            write = max(write, before)
        self._writes[task.id] = write
        self.rows[task.id] = task

    def leased(self, claimed: Sequence[Task], tasks: Sequence[Task]) -> None:
        """Leases that are written already: what the rows were, and are."""
        self.claimed = claimed
        for task in tasks:
            self.rows[task.id] = task
            self._alarm = task.wake_at if self._alarm is None else min(self._alarm, task.wake_at or self._alarm)

    def changes(self) -> Iterator[tuple[Write, Task | None, Task]]:
        """All rows that this batch writes at its end: how, what each was (None: nothing), and is."""
        for task_id, write in self._writes.items():
            yield write, self._before[task_id], self.rows[task_id]

    def _written(self, write: Write) -> list[Task]:
        return [self.rows[task_id] for task_id, kind in self._writes.items() if kind is write]

    @property
    def closed(self) -> list[Task]:
        """Tasks that this batch closes and keeps."""
        return self._written(Write.CLOSE)

    def ended(self) -> list[Task]:
        """Tasks whose leases this batch ends, as they were."""
        leased = ((i, task) for i, task in self._before.items() if task is not None and task.state == State.LEASED)
        return [task for task_id, task in leased if self.rows[task_id].state != State.LEASED]

    @property
    def made(self) -> list[Task]:
        """Tasks that this batch makes."""
        return self._written(Write.INSERT)

    @property
    def put_off(self) -> list[Task]:
        """Tasks of which an attempt ended in this batch, and that are open."""
        ids = dict.fromkeys(attempt.task_id for attempt in self.attempts)
        return [self.rows[task_id] for task_id in ids if self._writes.get(task_id) is Write.CHANGE]

    def became_ready(self) -> tuple[list[Task], list[Task]]:
        """New tasks that are ready, whole; and older tasks that became ready."""
        new: list[Task] = []
        older: list[Task] = []
        for task_id, write in self._writes.items():
            task = self.rows[task_id]
            if task.place is not None and task.state == State.ENQUEUED:
                if write is Write.INSERT:
                    new.append(task)
                elif write is Write.CHANGE:
                    older.append(task)
        return new, older

    def posted_to(self) -> list[Task]:
        """Runs that got messages while a worker has their turn in hand."""
        runs = (self.rows.get(message.run_id) for message in self._posted)
        return [run for run in runs if run is not None and run.state == State.LEASED]

    def next_alarm(self) -> int | None:
        """The earliest alarm that this batch sets."""
        rows = self.rows
        return min((wake for i in self._writes if (wake := rows[i].wake_at) is not None), default=self._alarm)

    async def flush(self, batch: Batch) -> None:
        """Write everything: a fixed number of statements, whatever the number of rows."""
        new = [self.runs[i] for i in self._put if self._writes.get(i) is Write.INSERT]
        if known := [self.runs[i] for i in self._put if self._writes.get(i) is not Write.INSERT]:
            await batch.put_runs(known)
        for write, verb in (
            (Write.CLOSE, batch.close),
            (Write.DELETE, batch.delete),
            (Write.LEASE, batch.lease),
            (Write.CHANGE, batch.change),
            (Write.INSERT, batch.insert),
        ):
            tasks = self._written(write)
            if tasks:
                await verb(tasks)
        kept = [attempt for attempt in self.attempts if self._writes.get(attempt.task_id) is not Write.DELETE]
        if kept:
            await batch.record(kept)
        if new:
            await batch.put_runs(new)
        for group_id, arrived in self._arrived.items():
            self._pages.append(result_page(group_id, arrived[0].number, [one.result for one in arrived]))
        if self._pages:
            await batch.append(self._pages)
        if self._copies:
            await batch.copy_pages(self._copies)
        await self._flush_inboxes(batch)
        await self._flush_failures(batch)
        await self._flush_attributes(batch)

    async def _flush_failures(self, batch: Batch) -> None:
        """What failed for good goes into its group; what was repeated is not counted there any more. Runs that owe
        compensations say so."""
        dead = [task for task in self._written(Write.CLOSE) if is_dead(task) and task.id not in self._continued]
        if dead:
            await batch.mark_failed(dead)
        runs = (self.runs[run_id] for run_id in self._put if self._writes.get(run_id) is Write.CLOSE)
        if owing := {run.id: what for run in runs if (what := owed(run)) is not None}:
            await batch.mark_owing(owing)
        again = {old: task.id for task in self._written(Write.INSERT) if (old := task.retry_of) is not None}
        if again:
            await batch.mark_retried(again)

    async def _flush_attributes(self, batch: Batch) -> None:
        """What runs are found by, of those where it is new, or whose rows close."""
        entries: list[Entry] = []
        for run_id, known in self._found_by.items():
            packed, closes = self.runs[run_id].search_attributes, self._writes.get(run_id) is Write.CLOSE
            if packed != known or (closes and packed is not None):
                attributes = {} if packed is None else unpack(packed, dict[str, Any])
                namespace = self.rows[run_id].namespace
                entries.append(Entry(run_id, namespace, closes, search_keys.entries(attributes)))
        if entries:
            await batch.put_attributes(entries)

    async def _flush_inboxes(self, batch: Batch) -> None:
        if self._posted:
            await batch.post(self._posted)
        if self._taken:
            await batch.take(self._taken)
        for passed in self._passed_on:
            if not await batch.replace_key(passed.old, passed.new):
                raise Overtaken(f"key {passed.old.key!r} went to another task meanwhile")
