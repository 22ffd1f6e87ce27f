"""What the engine asks of a database: about 25 verbs, and the guarantee that each gives.

A store selects, orders, locks and writes; it decides nothing. All of a batch's verbs run in one transaction at READ
COMMITTED (or stricter): each verb is one statement, or a fixed number of them, whatever the number of rows, and sees
what was committed before it started plus the batch's own writes. Rows that another transaction holds are skipped, never
waited for, unless the verb says so. A write by a worker is fenced: it compares the lease in the statement that writes.

Stores: sqlite.py, postgres.py, and memory.py, the reference model. One contract suite and one differential test hold
them equal.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

from perdure.core.advance import Advance
from perdure.core.commands import Complete, Heartbeat
from perdure.core.effects import CopyPages
from perdure.core.model import Attempt, Key, Pulse, Task, WorkerSession
from perdure.core.run import Message, Page, Run
from perdure.store.census import LaneCount, OpenRun
from perdure.store.failures import FailureBatch, FailureStore
from perdure.store.flow import FlowBatch, FlowStore
from perdure.store.outbox import OutboxBatch, OutboxStore
from perdure.store.owners import OwnerStore
from perdure.store.search import SearchBatch, SearchStore

KeyName = tuple[str, str, str, str]
"""(namespace, app, kind, key)."""


class StoreFault(Exception):
    """The database did not do it: unreachable, busy, read-only, full, a deadlock. Nothing was written; try again."""


class DataFault(StoreFault):
    """The database refused a value (SQLSTATE classes 22 and 23): trying again changes nothing, but a part may pass."""


class Doubled(DataFault):
    """An id that a caller made is taken: the request was sent before."""


class Refusal(StoreFault):
    """The database answered, and will not do this: no passing state of it, but something about the statement or its
    values that is no plain data error (SQLSTATE classes 0A, 42, 54 and the like). After some tries it is the command's
    fault."""


class KeysHeld(StoreFault):
    """Another transaction is about to take one of the keys, and did not end within a fifth of a second."""


class CommitUnknown(StoreFault):
    """The connection broke while committing; `Store.committed(self)` finds out. `xid` and `task_ids` are its
    evidence."""

    def __init__(self, detail: str, *, xid: int | None = None, task_ids: Sequence[bytes] = ()) -> None:
        super().__init__(detail)
        self.xid = xid
        self.task_ids = task_ids


class Place(msgspec.Struct, frozen=True, array_like=True):
    """A position in a lane's ready index."""

    priority: int
    place: int
    task_id: bytes


class Demand(msgspec.Struct, frozen=True):
    """At most `limit` ready tasks of a lane, from behind `after` on (None: from its start)."""

    lane: str
    limit: int
    after: Place | None = None


class Order(msgspec.Struct, frozen=True):
    """What one poll is to get: each task is leased with the next of `bits`, of which there are `demand.limit`."""

    demand: Demand
    session: int
    worker: str
    poll: int
    bits: Sequence[int]


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which tasks a list shows, newest id first, from before the id `before` on. None does not filter."""

    namespace: str
    limit: int
    before: bytes | None = None
    state: int | None = None
    queue: str | None = None
    type: str | None = None
    since: int | None = None  #: created_at at or after
    kind: int | None = None
    workflow_id: str | None = None
    without_type: str | None = None  #: all types but this one
    open: bool = False  #: open tasks only
    group: int | None = None  #: dead letters of this group that nobody has retried
    owing: bool = False  #: closed runs that owe compensations, and that nobody has resolved


class ApiKey(msgspec.Struct, frozen=True):
    """An API key as it is stored; `label` says whose it is."""

    hash: bytes
    namespace: str
    label: str
    created_at: int


class Batch(FailureBatch, FlowBatch, OutboxBatch, SearchBatch, Protocol):
    """One transaction. Leaving the context commits; leaving it by an exception rolls back."""

    @property
    def now(self) -> int:
        """The batch's one reading of the database's clock, in microseconds: taken with the first verb that locks rows,
        after the locks were granted. Before that, the store's estimate of it."""
        ...

    # keys ------------------------------------------------------------------------------------------------------
    async def reserve_keys(self, keys: Sequence[Key]) -> set[KeyName]:
        """Insert the keys that are free, in sorted order, and return the names of those that were. Names in `keys` are
        distinct. May wait for another transaction that is inserting the same key, so it is the first verb of a batch;
        but not for long: KeysHeld. (Request ids of messages and ids of child workflows are reserved behind the locks:
        a wait for one of these is rare, and ends by itself.)"""
        ...

    async def read_keys(self, names: Sequence[KeyName]) -> dict[KeyName, Key]:
        """The committed holders of keys that `reserve_keys` did not get."""
        ...

    async def replace_key(self, old: Key, new: Key) -> bool:
        """Give the key to `new.task_id` if `old.task_id` still holds it; False when it does not."""
        ...

    async def free_keys(self, keys: Sequence[Key]) -> None:
        """Delete keys that this batch has reserved and has no use for. Names in `keys` are distinct."""
        ...

    # rows ------------------------------------------------------------------------------------------------------
    async def lock(self, task_ids: Sequence[bytes], *, wait: bool = False) -> dict[bytes, Task]:
        """Lock open tasks and return them without payload and headers. Those absent from the answer are closed, unknown
        or (unless `wait`) held by another transaction: `trace` tells."""
        ...

    async def trace(self, task_ids: Sequence[bytes]) -> dict[bytes, Task]:
        """What tasks are that `lock` or `beat` did not grant, open or closed, without locking them and without payload,
        headers and result; one statement, so one snapshot."""
        ...

    async def claim(self, demands: Sequence[Demand]) -> dict[str, list[Task]]:
        """Lock ready tasks, whole (with payload), in order of (priority, place, id); skips those held elsewhere. Lanes
        are distinct. One statement on PostgreSQL, one a lane on SQLite."""
        ...

    async def due(self, limit: int, after: int = 0) -> list[Task]:
        """Lock tasks whose `wake_at` is after `after` and not after the clock, oldest first, without payload and
        headers; skips those held elsewhere."""
        ...

    async def leased_by(self, incarnation: int, limit: int, *, poll: int | None = None) -> list[Task]:
        """Lock leased tasks of a worker process, whole; with `poll`, only those that this poll got and that were not
        received. Skips those held elsewhere."""
        ...

    async def beat(self, beats: Sequence[Heartbeat]) -> dict[bytes, bool]:
        """`decide.beat` for every LEASED task whose whole lease matches, in one fenced statement that skips rows held
        elsewhere. Returns, by task id, whether cancel was requested. Leases name distinct tasks."""
        ...

    async def succeed(self, completions: Sequence[Complete]) -> set[bytes]:
        """`decide.succeed` for LEASED jobs whose whole lease matches: fenced, in one statement (SQLite: two), and
        without a look at the rows. Returns the ids of those that it closed. A row held elsewhere is left alone. Leases
        name distinct tasks."""
        ...

    async def exchange(self, completions: Sequence[Complete], order: Order) -> tuple[set[bytes], list[Task], bool]:
        """`succeed`; and then a claim that is written at once, by the rule of `decide.claim`, of ready tasks whole and
        in order of (priority, place, id), skipping those held elsewhere. One statement on PostgreSQL. Returns the ids
        that were closed, the tasks as they were before they were leased, and whether a task with time-outs is among
        those that were wanted: then none was leased, and none is returned."""
        ...

    async def places(self, lanes: Sequence[str]) -> dict[str, tuple[int, int]]:
        """The lowest and the highest place stored in each lane; empty lanes are absent."""
        ...

    # writes, in the order in which a batch sends them ------------------------------------------------------------
    async def close(self, tasks: Sequence[Task]) -> None:
        """Move tasks to the closed table: delete and insert inside the database, so payloads do not travel. From the
        value come: state, attempt, lost_deliveries, updated_at, started_at, cancel_requested_at, cancel_reason,
        progress, checkpoint, failure, result, closed_at, done_number, done_bits, done_state. Fenced by lease number and
        bits; a row that does not match raises StoreFault."""
        ...

    async def lease(self, tasks: Sequence[Task]) -> None:
        """Write a claim: state, place and ready_at (null), lease_number, lease_bits, received, session, worker, poll,
        attempt_started_at, heartbeat_at, lease_until, attempt_deadline, heartbeat_deadline, wake_at, updated_at."""
        ...

    async def change(self, tasks: Sequence[Task]) -> None:
        """Write every column that a decision may change on an open task: those of `lease`, and priority, attempt,
        lost_deliveries, started_at, cancel_requested_at, cancel_reason, cancel_deadline, progress, checkpoint, failure,
        done_number, done_bits, done_state."""
        ...

    async def insert(self, tasks: Sequence[Task]) -> None:
        """New open tasks, whole; also such as were claimed in the same batch. Raises Doubled when an open task has one
        of their ids."""
        ...

    async def closed(self, task_ids: Sequence[bytes]) -> set[bytes]:
        """Which of these ids, which callers made, closed tasks have. Asked behind `insert`: from there on nobody else
        can make an open task of this id. Such ids are no evidence of whether the batch was committed."""
        ...

    async def record(self, attempts: Sequence[Attempt]) -> None:
        """New rows of attempts."""
        ...

    # workflows -------------------------------------------------------------------------------------------------------
    async def runs(self, run_ids: Sequence[bytes]) -> dict[bytes, Run]:
        """The workflow columns of runs whose rows this batch has locked. Sent after the lock was granted, never joined
        with it: a lock wait keeps the old snapshot."""
        ...

    async def inbox(self, after: Mapping[bytes, int], size: int | None = None) -> dict[bytes, list[Message]]:
        """The messages, in order of `seq`, of each of these locked runs whose `seq` is above the number given for it;
        with `size` only those of which all before have fewer bytes together. Runs without any are absent."""
        ...

    async def children(self, parent: bytes, limit: int, after: bytes = b"") -> tuple[list[Task], bool]:
        """Lock open tasks whose `parent_run_id` this is and whose id is above `after`, in order of id, without payload
        and headers; skips those held elsewhere, and says whether there were none of these: before the last one that was
        granted, or at all when these are fewer than `limit`."""
        ...

    async def delete(self, tasks: Sequence[Task]) -> None:
        """Delete open tasks that leave no closed row (activities, timers and the like), with their attempts and
        payloads. Fenced by lease number and bits as the caller read them; a row that does not match raises
        StoreFault."""
        ...

    async def put_runs(self, runs: Sequence[Run]) -> None:
        """Write all columns of `Run` but the id, of open tasks. A batch sends it before `close` for runs that it
        closes, because the closed row takes them along, and behind `insert` for new ones."""
        ...

    async def advance(self, appends: Sequence[Advance]) -> dict[bytes, bool]:
        """`advance.advanced` for every run of which `advance.holds`, and its page: fenced, in one statement (SQLite:
        two), and without a look at the rows. Returns, by run id, whether messages wait for the run. A row held
        elsewhere is left alone. Leases name distinct runs."""
        ...

    async def append(self, pages: Sequence[Page]) -> None:
        """New rows of histories. Raises DataFault when a run has a row that begins with the same event already."""
        ...

    async def copy_pages(self, copies: Sequence[CopyPages]) -> None:
        """Rows of a history, those that hold nothing above `last`, once more for another row. This batch holds that."""
        ...

    async def post(self, messages: Sequence[Message]) -> None:
        """New rows of inboxes."""
        ...

    async def take(self, taken: Mapping[bytes, int]) -> None:
        """Delete the messages of each run up to a number, that one included."""
        ...

    # workers, pulse ----------------------------------------------------------------------------------------------
    async def lock_session(self, incarnation: int) -> WorkerSession | None:
        """Lock the row of a worker process (waits); None when it is not registered."""
        ...

    async def put_session(self, session: WorkerSession) -> None:
        """Insert or replace the row of a worker process; nothing if a later epoch of it is stored."""
        ...

    async def ending_sessions(self, limit: int) -> list[WorkerSession]:
        """Lock worker processes whose `ends_at` is not after the clock; skips those held elsewhere."""
        ...

    async def delete_sessions(self, incarnations: Sequence[int]) -> None: ...

    async def pulse(self) -> Pulse:
        """The one pulse row as it was committed last, without a lock."""
        ...

    async def lock_pulse(self) -> Pulse | None:
        """Lock the one pulse row; None when another server holds it."""
        ...

    async def put_pulse(self, pulse: Pulse) -> None: ...

    # retention ---------------------------------------------------------------------------------------------------
    async def trim_closed(self, before: int, limit: int) -> int:
        """Delete at most `limit` tasks (and their attempts) that closed before `before`, oldest first; how many."""
        ...

    async def trim_keys(self, limit: int, extend: int) -> int:
        """Of the `limit` keys that expired first, delete those whose task is not open and let the others live `extend`
        microseconds more, so that they are not looked at again and again; how many in all."""
        ...


class Store(FailureStore, FlowStore, OutboxStore, OwnerStore, SearchStore, Protocol):
    """A database. All reads outside a batch see what is committed."""

    batches_in_flight: int  #: how many batches the engine may run at once
    dead_entries: bool  #: claimed rows stay in the ready index for a while, so marks pay off

    async def open(self) -> None:
        """Connect. Raises StoreFault when it cannot, Conflict when the schema is not the one this code needs."""
        ...

    async def close(self) -> None: ...

    async def migrate(self) -> list[str]:
        """Bring the schema up to date under a lock; names of the migrations applied. Safe to repeat and to race."""
        ...

    def now(self) -> int:
        """An estimate of the database's clock in microseconds, without asking it."""
        ...

    def batch(self, *, single: bool = False) -> AbstractAsyncContextManager[Batch]:
        """A transaction. With `single` one statement writes, at most reads follow it, and neither begin nor commit is
        sent."""
        ...

    async def committed(self, unknown: CommitUnknown) -> bool:
        """Whether a commit of unknown outcome happened; StoreFault while that cannot be told."""
        ...

    async def read(self, task_ids: Sequence[bytes]) -> dict[bytes, Task]:
        """Open and closed tasks, whole."""
        ...

    async def attempts(self, task_ids: Sequence[bytes]) -> list[Attempt]:
        """Their recorded attempts, by task and lease number."""
        ...

    async def find(self, filter: Filter) -> list[Task]:
        """Open and closed tasks that pass, newest id first, without payload, headers and result."""
        ...

    async def schedules(self, namespace: str, limit: int, before: bytes | None = None) -> list[Task]:
        """At most `limit` rows of schedules, newest id first, from before an id on."""
        ...

    async def run_rows(self, run_ids: Sequence[bytes]) -> dict[bytes, Run]:
        """The workflow columns of runs, open and closed."""
        ...

    async def histories(
        self, after: Mapping[bytes, int], limit: int, size: int | None = None
    ) -> dict[bytes, list[Page]]:
        """Of each run, open or closed, at most `limit` pages of its history, in order, that hold an event above the
        number given for it; with `size` only those of which all before have fewer bytes together. Runs without any are
        absent."""
        ...

    async def pending(self, run_id: bytes, limit: int) -> tuple[list[Task], list[Message]]:
        """What a run waits for: at most `limit` of its open children, in order of id and without payload, and at most
        `limit` messages of its inbox."""
        ...

    async def find_activity(self, run_id: bytes, activity_id: str) -> bytes | None:
        """The task id of the open activity or group of a run, or of the call of a group, that has this id."""
        ...

    async def resolve(self, run_id: bytes, resolution: bytes) -> bool:
        """Write into a closed run what people have done about it, by itself and not in a batch: nothing decides about
        it. From then on it is in no group of failures. False when there is no closed row of this id."""
        ...

    async def resolutions(self, run_ids: Sequence[bytes]) -> dict[bytes, bytes]:
        """What was written so into these runs; those into which nothing was are absent."""
        ...

    async def find_key(self, name: KeyName) -> Key | None:
        """The committed holder of a key."""
        ...

    async def sessions(self, namespace: str) -> list[WorkerSession]:
        """Registered worker processes."""
        ...

    async def held(self, incarnation: int, limit: int) -> list[Task]:
        """Tasks of any kind that a worker process holds, without payload and headers; no locks."""
        ...

    async def next_alarm(self, after: int = 0) -> int | None:
        """The earliest `wake_at` after `after`."""
        ...

    async def api_keys(self) -> dict[bytes, str]:
        """Hash of an API key -> namespace."""
        ...

    async def add_api_key(self, hash: bytes, namespace: str, label: str) -> None: ...

    async def list_api_keys(self) -> list[ApiKey]:
        """All of them, oldest first."""
        ...

    async def remove_api_key(self, hash: bytes) -> bool:
        """False when there is none of this hash."""
        ...

    async def count_lanes(self, first: str, last: str, most: int) -> list[LaneCount]:
        """What the lanes between two names hold, by name; see census.py. No count looks at more than `most` entries, so
        this is cheap however much waits; a lane of nothing but tasks far in the future may be missing."""
        ...

    async def open_runs(self, most: int) -> list[OpenRun]:
        """Open workflow runs of all namespaces, at most so many, in order of namespace and workflow id."""
        ...

    async def changed(self) -> bool:
        """SQLite: whether another process committed since the last call. Elsewhere False: hints tell."""
        ...

    async def announce(self, hint: bytes) -> None:
        """Tell all servers, this one included, best effort, at most 5,900 bytes. Never part of a batch."""
        ...

    async def listen(self, heard: Callable[[bytes], None]) -> None:
        """Call `heard` with all hints, best effort."""
        ...


Switch = Callable[[], Awaitable[None]]
"""A point where a test may switch to another task: awaited before every statement."""
