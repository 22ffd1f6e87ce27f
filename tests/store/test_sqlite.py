"""What only SQLite does: files, other processes, its clock, its faults."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.core.errors import Conflict
from perdure.core.model import SECOND, Pulse, Task
from perdure.core.states import Kind, State
from perdure.store import sqlite_file
from perdure.store.base import DataFault, Demand, Filter, StoreFault
from perdure.store.clock import SlewedClock
from perdure.store.sqlite import SqliteStore
from perdure.store.sqlite_batch import chunks
from perdure.store.sqlite_file import check_file, file_system
from perdure.store.statements import migrations
from tests.clock import START, SteppedClock
from tests.store.rows import close, closed, insert, leased, new_key, new_task, plain, read, task_id
from tests.store.runs import start_runs, take_turns

NAMES = [name for name, _ in migrations("sqlite")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


@pytest.fixture
async def store(path: Path, clock: SteppedClock) -> AsyncIterator[SqliteStore]:
    opened = await open_store(path, clock=clock.now)
    yield opened
    await opened.close()


async def open_store(path: Path | str, **options: object) -> SqliteStore:
    store = SqliteStore(path, **options)  # type: ignore[arg-type]
    await store.migrate()
    await store.open()
    return store


@pytest.fixture
def other(path: Path) -> Iterator[sqlite3.Connection]:
    """A stranger's connection to the same file."""
    connection = sqlite3.connect(path, isolation_level=None)
    yield connection
    connection.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "_WAITS", (0.001,) * 3)


# files and migrations ------------------------------------------------------------------------------------------------
async def test_open_asks_for_the_migrations(path: Path) -> None:
    with pytest.raises(Conflict, match="perdure migrate"):
        await SqliteStore(path).open()
    assert not path.exists(), "asking must not leave an empty file"
    path.touch()
    store = SqliteStore(path)
    with pytest.raises(Conflict, match="0001_initial"):
        await store.open()
    assert await store.migrate() == NAMES
    await store.open()
    await store.close()


async def test_a_failed_migration_leaves_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = [("0001_initial", "create table tasks (id); create table tasks (id);")]
    monkeypatch.setattr("perdure.store.sqlite.migrations", lambda dialect: broken)
    store = SqliteStore(path)
    with pytest.raises(StoreFault, match="already exists"):
        await store.migrate()
    monkeypatch.undo()
    assert await store.migrate() == NAMES
    await store.close()


def test_two_processes_may_migrate_at_once(path: Path) -> None:
    code = (
        "import asyncio, sys\n"
        "from perdure.store.sqlite import SqliteStore\n"
        "print(asyncio.run(SqliteStore(sys.argv[1]).migrate()))"
    )
    command = [sys.executable, "-c", code, str(path)]
    racers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = [racer.communicate(timeout=60)[0].strip() for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0, 0]
    assert sorted(said) == sorted([str(NAMES), "[]", "[]"])


async def test_what_was_committed_is_there_after_a_restart(path: Path) -> None:
    store = await open_store(path)
    await insert(store, new_task(1))
    await store.close()
    again = await open_store(path)
    assert (await read(again, 1)).payload == b"payload"
    await again.close()


async def test_the_file_is_durable_and_shared(store: SqliteStore, other: sqlite3.Connection) -> None:
    """PERF 18: synchronous stays FULL."""
    assert other.execute("pragma journal_mode").fetchone() == ("wal",)
    writer = store._mine(store._writer)
    assert writer.rows("pragma synchronous") == [(2,)]
    assert writer.rows("pragma busy_timeout") == [(5,)]


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "smb3", "fuse.sshfs"])
def test_network_file_systems_are_refused(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "file_system", lambda path: kind)
    with pytest.raises(Conflict, match=kind):
        check_file("tasks.db")
    check_file(":memory:")


def test_file_systems_are_told_by_the_deepest_mount(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("dev / ext4 rw 0 0\nhost:/x /srv/share nfs4 rw 0 0\ndev /srv/share/my\\040disk xfs rw 0 0\n")
    assert file_system(Path("/srv/tasks.db"), mounts) == "ext4"
    assert file_system(Path("/srv/share/a/tasks.db"), mounts) == "nfs4"
    assert file_system(Path("/srv/share/my disk/tasks.db"), mounts) == "xfs"
    assert file_system(Path("/srv/tasks.db"), tmp_path / "none") is None


# other processes -----------------------------------------------------------------------------------------------------
async def test_a_batch_waits_for_another_process(store: SqliteStore, other: sqlite3.Connection) -> None:
    other.execute("begin immediate")
    task = asyncio.create_task(insert(store, new_task(1)))
    await asyncio.sleep(0)
    assert not task.done()
    other.execute("rollback")
    await task
    assert (await read(store, 1)).id == task_id(1)


@pytest.mark.usefixtures("impatient")
async def test_a_lock_held_for_long_is_a_fault_to_repeat(store: SqliteStore, other: sqlite3.Connection) -> None:
    """B138."""
    other.execute("begin immediate")
    with pytest.raises(StoreFault, match="busy") as caught:
        await insert(store, new_task(1))
    assert not isinstance(caught.value, DataFault)
    other.execute("rollback")
    await insert(store, new_task(1))


async def test_reads_go_on_while_another_process_writes(store: SqliteStore, other: sqlite3.Connection) -> None:
    """B138: a lock that a writer holds never reaches a read."""
    await insert(store, new_task(1))
    other.execute("begin immediate")
    other.execute("delete from tasks")
    assert (await read(store, 1)).id == task_id(1)
    other.execute("rollback")


_WRITER = """
import asyncio, sys
from perdure.store.sqlite import SqliteStore
from tests.store.rows import new_task

async def main():
    store = SqliteStore(sys.argv[1])
    await store.open()
    for n in range(int(sys.argv[2]), int(sys.argv[3])):
        async with store.batch() as batch:
            await batch.insert([new_task(n)])
            if len(sys.argv) == 5:
                print("in the middle", flush=True)
                sys.stdin.read()
    await store.close()

asyncio.run(main())
"""


def writer(path: Path, *args: object) -> subprocess.Popen[str]:
    """A process that inserts tasks one by one, between two numbers; with a third argument it stops in the middle."""
    command = [sys.executable, "-c", _WRITER, str(path), *map(str, args)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=Path(__file__).parents[2])


async def test_a_writer_that_is_killed_leaves_nothing_and_holds_nothing_up(store: SqliteStore, path: Path) -> None:
    """B139."""
    killed = writer(path, 1, 2, "stop")
    assert killed.stdout is not None
    assert killed.stdout.readline() == "in the middle\n"
    killed.kill()
    killed.communicate()
    await insert(store, new_task(1))
    assert (await read(store, 1)).id == task_id(1)


async def test_processes_take_turns(store: SqliteStore, path: Path) -> None:
    """B139: none of them fails, nothing is lost."""
    writers = [writer(path, n, n + 50) for n in (0, 50, 100, 150)]
    for process in writers:
        process.communicate(timeout=60)
    assert [process.returncode for process in writers] == [0, 0, 0, 0]
    assert len(await store.read([task_id(n) for n in range(200)])) == 200
    assert await store.changed()


async def test_changed_tells_of_other_processes_only(store: SqliteStore, path: Path) -> None:
    assert not await store.changed()
    await insert(store, new_task(1))
    assert not await store.changed()
    neighbour = await open_store(path)
    await insert(neighbour, new_task(2))
    async with store.batch():
        assert not await store.changed(), "the answer is kept until the batch is over"
    assert await store.changed()
    assert not await store.changed()
    await neighbour.close()


async def test_a_forked_child_is_told(store: SqliteStore) -> None:
    """A connection must not be used on both sides of a fork."""
    pid = os.fork()
    if pid == 0:
        told = 1
        try:
            store.batch().__aenter__().send(None)
        except StoreFault as fault:
            told = 0 if "fork" in str(fault) else 2
        finally:
            os._exit(told)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    await insert(store, new_task(1))


# batches -------------------------------------------------------------------------------------------------------------
async def test_reads_see_only_what_is_committed(store: SqliteStore) -> None:
    async with store.batch() as batch:
        await batch.insert([new_task(1)])
        assert await store.read([task_id(1)]) == {}
        assert await store.find(Filter(namespace="default", limit=1)) == []
    assert list(await store.read([task_id(1)])) == [task_id(1)]


async def test_batches_take_turns(store: SqliteStore) -> None:
    order = []

    async def one(n: int) -> None:
        async with store.batch() as batch:
            order.append(n)
            await batch.insert([new_task(n)])
            await asyncio.sleep(0)
            order.append(n)

    await asyncio.gather(one(1), one(2), one(3))
    assert order == [1, 1, 2, 2, 3, 3]


async def test_a_canceled_batch_is_rolled_back(store: SqliteStore) -> None:
    reached = asyncio.Event()

    async def stuck() -> None:
        async with store.batch() as batch:
            await batch.insert([new_task(1)])
            reached.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(stuck())
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await insert(store, new_task(1))


async def test_switch_is_awaited_before_every_statement(path: Path) -> None:
    """Statement budgets of DESIGN section 3, on top of begin and commit: keyed enqueue 2, claim 2, heartbeat 1; closing
    takes a second statement here, because SQLite cannot insert what a delete returns, and deleting two more."""
    count = 0

    async def switch() -> None:
        nonlocal count
        count += 1

    def sent() -> int:
        nonlocal count
        before, count = count, 0
        return before - 2

    store = await open_store(path, switch=switch)
    count = 0
    async with store.batch() as batch:
        await batch.reserve_keys([new_key("a", 1), new_key("b", 2)])
        await batch.insert([new_task(1), new_task(2)])
    assert sent() == 2
    async with store.batch() as batch:
        await batch.lease((await batch.claim([Demand("lane-1", 10)]))["lane-1"])
    assert sent() == 2
    await close(store, closed(new_task(1)), closed(new_task(2)))
    assert sent() == 3
    async with store.batch() as batch:
        await start_runs(batch, 50)
    assert sent() == 4
    async with store.batch() as batch:
        await take_turns(batch, 50)
    assert sent() == 9 + 2
    await store.close()


async def test_a_database_in_memory(clock: SteppedClock) -> None:
    store = await open_store(":memory:", clock=clock.now)
    async with store.batch() as batch:
        await batch.insert([new_task(1)])
        waiting = asyncio.create_task(read(store, 1))
        await asyncio.sleep(0)
        assert not waiting.done(), "there is one connection, so a read waits for what is not committed yet"
    assert (await waiting).id == task_id(1)
    await store.close()


async def test_a_closed_store_is_a_fault(store: SqliteStore) -> None:
    await store.close()
    with pytest.raises(StoreFault, match="not open"):
        await insert(store, new_task(1))
    with pytest.raises(StoreFault, match="not open"):
        await store.next_alarm()


@pytest.mark.parametrize("count", [0, 1, 137, 200, 399, 400])
def test_chunks_are_of_fixed_sizes_and_lose_nothing(count: int) -> None:
    parts = list(chunks(list(range(count))))
    assert [n for part in parts for n in part] == list(range(count))
    assert {len(part) for part in parts} <= {200, 100, 50, 20, 10, 5, 2, 1}
    assert len(parts) <= 8


# faults --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "fields",
    [
        {"place": 2**63},
        {"type": "\ud800"},
        {"type": None},
        {"created_at": "soon"},
        {"payload": "text"},
        {"payload": object()},
    ],
    ids=["64 bits", "surrogate", "null", "text for a number", "text for bytes", "unknown type"],
)
async def test_values_that_do_not_fit_are_data_faults(store: SqliteStore, fields: dict[str, object]) -> None:
    with pytest.raises(DataFault):
        await insert(store, new_task(1), new_task(2, **fields))
    await insert(store, new_task(1))


async def test_a_full_disk_is_a_fault_to_repeat(store: SqliteStore) -> None:
    """B139: nothing is written by halves, and work goes on when there is room again."""
    writer = store._mine(store._writer)
    await insert(store, new_task(1))
    writer.rows("pragma max_page_count = 1")
    with pytest.raises(StoreFault, match="full") as caught:
        await insert(store, *(new_task(n, payload=bytes(4 << 20)) for n in range(2, 5)))
    assert not isinstance(caught.value, DataFault)
    assert list(await store.read([task_id(n) for n in range(1, 5)])) == [task_id(1)]
    writer.rows("pragma max_page_count = 1000000")
    await insert(store, new_task(2))


async def test_a_read_only_database_is_a_fault_to_repeat(store: SqliteStore) -> None:
    """B139."""
    store._mine(store._writer).rows("pragma query_only = on")
    with pytest.raises(StoreFault, match="readonly") as caught:
        await insert(store, new_task(1))
    assert not isinstance(caught.value, DataFault)


async def test_a_failed_commit_is_rolled_back(store: SqliteStore, other: sqlite3.Connection) -> None:
    """A constraint that is checked when the transaction commits stands for whatever may go wrong there."""
    other.execute("create table parents (id integer primary key)")
    other.execute("create table children (parent references parents (id) deferrable initially deferred)")
    writer = store._mine(store._writer)
    writer.rows("pragma foreign_keys = on")
    with pytest.raises(StoreFault, match="FOREIGN KEY"):
        async with store.batch() as batch:
            await batch.insert([new_task(1)])
            writer.rows("insert into children (parent) values (1)")
    assert not writer.in_transaction
    assert await store.read([task_id(1)]) == {}
    await insert(store, new_task(1))


async def test_rows_that_were_not_locked_are_not_written(store: SqliteStore) -> None:
    await insert(store, new_task(1))
    with pytest.raises(StoreFault, match="locked"):
        async with store.batch() as batch:
            await batch.change([new_task(1, priority=1)])
    with pytest.raises(StoreFault, match="locked"):
        await close_unlocked(store)
    assert (await read(store, 1)).priority == 3


async def close_unlocked(store: SqliteStore) -> None:
    async with store.batch() as batch:
        await batch.close([closed(new_task(1))])


# payloads ------------------------------------------------------------------------------------------------------------
def payload_numbers(other: sqlite3.Connection) -> list[int]:
    return [number for (number,) in other.execute("select rowid from payloads order by rowid")]


def owned(n: int) -> Task:
    return new_task(n, payload=b"payload of %d" % n, headers=None)


async def payloads(store: SqliteStore, *numbers: int) -> list[bytes | None]:
    found = await store.read([task_id(n) for n in numbers])
    return [found[task_id(n)].payload for n in numbers]


async def test_a_payload_is_written_once_and_stays_where_it_is(store: SqliteStore, other: sqlite3.Connection) -> None:
    await insert(store, owned(1), owned(2))
    writes = other.execute("pragma data_version").fetchone()
    assert payload_numbers(other) == [1, 2]
    async with store.batch() as batch:
        [task, _] = (await batch.claim([Demand("lane-1", 2)]))["lane-1"]
        assert task.payload == b"payload of 1"
        await batch.lease([leased(task)])
    async with store.batch() as batch:
        held = (await batch.lock([task.id]))[task.id]
        assert held.payload is None
        await batch.close([closed(held)])
    assert other.execute("pragma data_version").fetchone() != writes
    assert payload_numbers(other) == [1, 2]
    assert await payloads(store, 1, 2) == [b"payload of 1", b"payload of 2"]


async def test_a_task_without_payload_and_headers_has_no_row_of_them(
    store: SqliteStore, other: sqlite3.Connection
) -> None:
    await insert(store, new_task(1, payload=None, headers=None), new_task(2, payload=None, headers=b"h"), owned(3))
    assert payload_numbers(other) == [1, 2]
    assert await payloads(store, 1, 2, 3) == [None, None, b"payload of 3"]
    assert (await read(store, 2)).headers == b"h"


async def test_a_batch_that_is_rolled_back_leaves_no_payload(store: SqliteStore, other: sqlite3.Connection) -> None:
    await insert(store, owned(1))
    with pytest.raises(DataFault):
        await insert(store, owned(2), owned(1))
    assert payload_numbers(other) == [1]
    await insert(store, owned(3))
    assert await payloads(store, 1, 3) == [b"payload of 1", b"payload of 3"]


async def test_trimming_takes_the_payloads_of_what_it_trims(store: SqliteStore, other: sqlite3.Connection) -> None:
    await insert(store, *(owned(n) for n in range(1, 6)))
    await close(store, *(closed(owned(n), closed_at=START + n) for n in range(1, 5)))
    async with store.batch() as batch:
        assert await batch.trim_closed(START + 4, 2) == 2
    assert payload_numbers(other) == [3, 4, 5]
    assert await payloads(store, 3, 4, 5) == [b"payload of 3", b"payload of 4", b"payload of 5"]


@pytest.mark.parametrize("restart", [False, True])
async def test_a_payload_number_in_use_is_never_given_again(path: Path, restart: bool) -> None:
    """Neither over trims of the highest numbers, nor over restarts, nor between processes."""
    store = await open_store(path)
    neighbour = await open_store(path)
    alive: set[int] = set()
    for round_ in range(1, 8):
        first = round_ * 10
        await insert(store, owned(first), owned(first + 1))
        await insert(neighbour, owned(first + 2))
        async with store.batch() as batch:  # in two verbs of one batch
            await batch.insert([owned(first + 3)])
            await batch.insert([owned(first + 4)])
        alive |= {first + n for n in range(5)}
        # closed out of order; the newest rows, with the highest numbers, are trimmed first
        gone = {first + 4, first + 3} if round_ % 2 else {first, first + 4}
        await close(store, *(closed(owned(n), closed_at=START) for n in gone))
        await close(neighbour, closed(owned(first + 1), closed_at=START * 2))
        async with neighbour.batch() as batch:
            assert await batch.trim_closed(START + 1, 100) == 2
        alive -= gone
        if restart:
            await store.close()
            store = await open_store(path)
        assert await payloads(store, *alive) == [b"payload of %d" % n for n in alive]
    await store.close()
    await neighbour.close()


# rows that are not usual ---------------------------------------------------------------------------------------------
UNUSUAL: list[dict[str, Any]] = [
    {},
    {"run_at": START, "ready_at": START + 1, "place": None, "wake_at": START + 1},
    {"retry_policy": b"policy"},
    {"checkpoint": b"c"},
    {"kind": Kind.ACTIVITY, "parent_run_id": task_id(9), "parent_event_id": 5},
    {"attempt": 1},
]


async def test_usual_and_other_rows_of_one_verb_are_written_alike(store: SqliteStore) -> None:
    """They take different statements; what is stored is what was given, whatever their chunk."""
    tasks = [new_task(n, **UNUSUAL[n % 6 if n > 200 else 0]) for n in range(1, 251)]
    await insert(store, *tasks)
    ids = [task.id for task in tasks]
    assert {key: plain(task) for key, task in (await store.read(ids)).items()} == {task.id: task for task in tasks}
    held = [
        leased(task, **({"attempt_deadline": START + n} if n == 249 else {"heartbeat_deadline": None}))
        for n, task in enumerate(tasks)
    ]
    async with store.batch() as batch:
        await batch.lock(ids)
        await batch.lease(held)
    assert {key: plain(task) for key, task in (await store.read(ids)).items()} == {task.id: task for task in held}
    ends: list[dict[str, Any]] = [{}, {"state": State.FAILED, "failure": b"f"}, {"result": b"r"}, {"progress": b"p"}]
    async with store.batch() as batch:
        await batch.lock(ids)
        await batch.close([closed(task, **ends[n % 4 if n > 200 else 0]) for n, task in enumerate(held)])
    stored = await store.read(ids)
    for n, task in enumerate(held):
        want = closed(task, **ends[n % 4 if n > 200 else 0])
        found = stored[task.id]
        for name in ("state", "kind", "failure", "result", "progress", "checkpoint", "attempt", "payload", "headers"):
            assert getattr(found, name) == getattr(want, name), (n, name)


async def test_keys_that_are_lost_are_told_apart_in_every_chunk(store: SqliteStore) -> None:
    async with store.batch() as batch:
        assert len(await batch.reserve_keys([new_key("k210", 1), new_key("k001", 2)])) == 2
    keys = [new_key(f"k{n:03}", n) for n in range(250)]
    async with store.batch() as batch:
        reserved = await batch.reserve_keys(keys)
        assert {key.name for key in keys} - reserved == {new_key("k210", 1).name, new_key("k001", 2).name}
        found = await batch.read_keys([key.name for key in keys])
    assert {key.task_id for key in found.values()} >= {task_id(n) for n in range(250) if n not in (1, 210)}
    async with store.batch() as batch:  # its own earlier try counts as lost, too
        assert await batch.reserve_keys([new_key("k005", 5)]) == set()


# the clock -----------------------------------------------------------------------------------------------------------
class Moments:
    """Wall and monotonic clock of a machine, in nanoseconds."""

    def __init__(self) -> None:
        self.wall = START * 1000
        self.monotonic = 5_000_000_000

    def clock(self, floor: int = 0) -> SlewedClock:
        return SlewedClock(floor, wall=lambda: self.wall, monotonic=lambda: self.monotonic)

    def advance(self, seconds: int) -> None:
        self.wall += seconds * 1_000_000_000
        self.monotonic += seconds * 1_000_000_000


def test_the_clock_follows_the_wall() -> None:
    moments = Moments()
    clock = moments.clock()
    assert clock() == START
    moments.advance(3)
    assert clock() == START + 3 * SECOND
    moments.wall += 3600 * 1_000_000_000
    assert clock() == START + 3603 * SECOND, "a step forward is followed at once"


def test_a_clock_that_was_set_back_never_goes_back() -> None:
    """TIMER-10: it shows as lateness."""
    moments = Moments()
    clock = moments.clock()
    moments.wall -= 10 * 1_000_000_000
    assert clock() == START
    moments.advance(4)
    assert clock() == START + 2 * SECOND, "deadlines still come while the wall catches up"
    moments.advance(100)
    assert clock() == moments.wall // 1000


def test_the_clock_starts_at_its_floor() -> None:
    moments = Moments()
    clock = moments.clock(START + 60 * SECOND)
    assert clock() == START + 60 * SECOND
    moments.advance(10)
    assert clock() == START + 65 * SECOND


async def test_time_does_not_go_back_over_a_restart(path: Path) -> None:
    future = 4_000_000_000_000_000
    store = await open_store(path, clock=lambda: future)
    async with store.batch() as batch:
        await batch.put_pulse(Pulse(1, 1))
    await store.close()
    again = await open_store(path)
    assert again.now() >= future
    await again.close()
