"""What only PostgreSQL has: migrations under a lock, plans, connections that break, commits whose answer is lost."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from perdure.core.commands import Heartbeat
from perdure.core.errors import Conflict
from perdure.core.model import Task
from perdure.core.states import State
from perdure.store import postgres_session
from perdure.store.base import CommitUnknown, DataFault, Demand, Filter, StoreFault
from perdure.store.postgres import PostgresStore
from perdure.store.postgres_batch import CommitLost
from perdure.store.statements import migrations, statements
from tests.conftest import PostgresServer
from tests.store.rows import changed, closed, insert, leased, new_key, new_task, task_id
from tests.store.runs import child, start_runs, take_turns

PATIENCE = 20.0
"""Seconds until a test gives up on something that it waits for."""
EVERYTHING = Filter(namespace="default", limit=10)


@contextlib.asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url, **options)
    await store.migrate()
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@contextlib.asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """A connection beside the store, with its schema."""
    connection = await asyncpg.connect(url, server_settings={"search_path": "perdure"})
    try:
        yield connection
    finally:
        await connection.close()


@pytest.fixture
async def store(migrated_database: str) -> AsyncIterator[PostgresStore]:
    async with opened(migrated_database) as found:
        yield found


class Steps:
    """A switch that counts statements and does something before the n-th."""

    def __init__(self) -> None:
        self.sent = 0
        self.before: dict[int, Any] = {}

    async def __call__(self) -> None:
        self.sent += 1
        if self.sent in self.before:
            await self.before[self.sent]()


class Proxy:
    """Stands between a store and its server; loses the answer that contains `lose`, and the connection with it."""

    def __init__(self, folder: Path, server: PostgresServer) -> None:
        self.lose = b"\xffnever\xff"
        self.lost = 0
        self._folder = folder
        self._upstream = f"{server.socket}/.s.PGSQL.5432"

    def url(self, direct: str) -> str:
        return f"{direct.partition('?')[0]}?host={self._folder}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_unix_connection(self._upstream)

        async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter, guarded: bool) -> None:
            with contextlib.suppress(ConnectionError):
                while data := await source.read(65536):
                    if guarded and self.lose in data:
                        self.lost += 1
                        break
                    target.write(data)
                    await target.drain()
            writer.close()
            up_writer.close()

        await asyncio.gather(pump(reader, up_writer, False), pump(up_reader, writer, True))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Proxy]:
        self._folder.mkdir()
        server = await asyncio.start_unix_server(self._serve, f"{self._folder}/.s.PGSQL.5432")
        try:
            yield self
        finally:
            server.close()


@pytest.fixture
async def proxy(tmp_path: Path, postgres_server: PostgresServer) -> AsyncIterator[Proxy]:
    async with Proxy(tmp_path / "p", postgres_server).running() as running:
        yield running


# schema --------------------------------------------------------------------------------------------------------------
async def test_migrations_run_once_from_any_number_of_hosts(postgres_database: str) -> None:
    names = [name for name, _ in migrations("postgres")]
    stores = [PostgresStore(postgres_database) for _ in range(4)]
    applied = await asyncio.gather(*(store.migrate() for store in stores))
    assert sorted(map(len, applied)) == [0, 0, 0, len(names)]
    assert max(applied) == names
    assert await stores[0].migrate() == []


async def test_a_database_without_the_schema_is_refused_with_the_remedy(postgres_database: str) -> None:
    store = PostgresStore(postgres_database)
    with pytest.raises(Conflict, match=r"0001_initial.*perdure migrate"):
        await store.open()
    await store.close()


async def test_an_old_server_is_refused(migrated_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_session, "OLDEST_SERVER", 99)
    with pytest.raises(Conflict, match="PostgreSQL 99 or newer"):
        await PostgresStore(migrated_database).open()


async def test_no_server_is_a_store_fault(tmp_path: Path) -> None:
    with pytest.raises(StoreFault):
        await PostgresStore(f"postgresql://postgres@/postgres?host={tmp_path}").open()


async def test_a_server_that_takes_no_writes_is_a_store_fault(
    postgres_server: PostgresServer, migrated_database: str
) -> None:
    """After a fail-over the old primary must not be taken for the new one."""
    async with opened(migrated_database):
        name = migrated_database.partition("?")[0].rpartition("/")[2]
        postgres_server.run(f"alter database {name} set default_transaction_read_only = on")
        with pytest.raises(StoreFault):
            await PostgresStore(migrated_database).open()


@pytest.mark.parametrize("view", ["closed_brief_v3", "closed_whole_v3", "open_brief_v3", "open_whole_v3"])
async def test_views_follow_the_fields_of_a_task(store: PostgresStore, migrated_database: str, view: str) -> None:
    async with connected(migrated_database) as connection:
        prepared = await connection.prepare(f"select * from {view}")
        assert tuple(column.name for column in prepared.get_attributes()) == Task.__struct_fields__


INDEXES = {
    "lock": "tasks_pkey",
    "lock_waiting": "tasks_pkey",
    "trace": "closed_tasks_pkey",
    "claim": "tasks_ready",
    "due": "tasks_wake",
    "leased_by": "tasks_session",
    "leased_by_poll": "tasks_session",
    "places": "tasks_ready",
    "beat": "tasks_pkey",
    "lease": "tasks_pkey",
    "change": "tasks_pkey",
    "close": "tasks_pkey",
    "succeed": "tasks_pkey",
    "exchange": "tasks_ready",
    "closed": "closed_tasks_pkey",
    "read_keys": "keys_pkey",
    "trim_keys": "keys_expires_at",
    "trim_closed": "closed_tasks_closed_at",
    "runs": "tasks_pkey",
    "run_rows": "closed_tasks_pkey",
    "put_runs": "tasks_pkey",
    "advance": "tasks_pkey",
    "children": "tasks_parent",
    "open_children": "tasks_parent",
    "delete": "attempts_pkey",
    "close_runs": "tasks_pkey",
    "histories": "history_pkey",
    "inbox": "inbox_pkey",
    "messages": "inbox_pkey",
    "take_messages": "inbox_pkey",
    "find_runs": "closed_tasks_workflow",
}


@pytest.mark.parametrize("name", INDEXES)
async def test_statements_go_by_their_index_even_when_planned_on_empty_tables(
    store: PostgresStore, migrated_database: str, name: str
) -> None:
    """A plan made on an empty table must not read a full one a second later."""
    session = await postgres_session.connect(migrated_database, postgres_session.BATCH_SETTINGS, seconds=PATIENCE)
    sql = statements("postgres")[name]
    nulls = ", ".join(["null"] * len(set(re.findall(r"\$\d+", sql))))
    await session.connection.execute(f"prepare planned as {sql}")
    lines = await session.connection.fetch(f"explain execute planned({nulls})")
    await session.connection.close()
    plan = "\n".join(line[0] for line in lines)
    assert f"using {INDEXES[name]} " in plan, plan
    assert "Seq Scan on" not in plan, plan
    if name in ("claim", "exchange"):
        assert "ROW(priority, place, id) > ROW(" in plan, plan


# statements ----------------------------------------------------------------------------------------------------------
async def test_statement_budgets(migrated_database: str) -> None:
    """DESIGN section 3: what a batch of any size sends, begin and commit included where more than one is sent."""
    steps = Steps()
    tasks = [new_task(n) for n in range(1, 51)]
    lane = tasks[0].lane
    async with opened(migrated_database, switch=steps) as store:

        async def sent(verbs: Any, *, single: bool = False) -> int:
            async with store.batch(single=single) as batch:
                before = steps.sent
                await verbs(batch)
            return steps.sent - before

        async def keyed(batch: Any) -> None:
            await batch.reserve_keys([new_key(f"k{n}", n) for n in range(100, 150)])
            await batch.insert([new_task(n, lane="other") for n in range(100, 150)])

        async def claim(batch: Any) -> None:
            found = await batch.claim([Demand(lane, 50)])
            await batch.lease([leased(task) for task in found[lane]])

        async def complete(batch: Any) -> None:
            found = await batch.lock([task.id for task in tasks])
            await batch.close([closed(task, result=b"r") for task in found.values()])

        async with store.batch():
            pass  # connects
        assert await sent(lambda batch: batch.insert(tasks), single=True) == 1
        assert await sent(keyed) == 2 + 2
        assert await sent(claim) == 2 + 2
        beats = [Heartbeat(lease=leased(task).lease) for task in tasks]
        assert await sent(lambda batch: batch.beat(beats), single=True) == 1
        assert await sent(complete) == 2 + 2
        assert await sent(lambda batch: start_runs(batch, 50)) == 4 + 2
        assert await sent(lambda batch: take_turns(batch, 50)) == 9 + 2
        assert len(await store.read([task.id for task in tasks])) == 50


async def test_refused_values_are_data_faults_and_leave_the_connection_alone(store: PostgresStore) -> None:
    """B128: a NUL cannot be stored. A refused value fails its batch and nothing else."""
    backends = set()
    for bad in (
        new_task(2, type="a\x00b"),
        new_task(2, type="\ud800"),
        new_task(2, wake_at=1 << 70),
        new_task(2, state=1 << 20),
        changed(new_task(2), max_attempts=None),
    ):
        with pytest.raises(DataFault):
            async with store.batch() as batch:
                await batch.insert([new_task(1)])
                await batch.insert([bad])
        async with store.batch() as batch:
            await batch.lock([])
            backends.add(batch._session.backend)
    assert len(backends) == 1
    assert await store.read([task_id(1), task_id(2)]) == {}
    await insert(store, new_task(1))
    with pytest.raises(DataFault):
        await insert(store, new_task(1))


async def test_large_payloads_leave_the_row(store: PostgresStore, migrated_database: str) -> None:
    payload = bytes(range(256)) * 1024
    await insert(store, new_task(1, payload=payload))
    async with store.batch() as batch:
        found = await batch.lock([task_id(1)])
        await batch.close([closed(found[task_id(1)], result=payload)])
    task = (await store.read([task_id(1)]))[task_id(1)]
    assert (task.payload, task.result) == (payload, payload)
    async with connected(migrated_database) as connection:
        assert await connection.fetchval("select pg_relation_size('closed_tasks')") == 8192


# the clock -----------------------------------------------------------------------------------------------------------
async def test_the_clock_is_read_after_the_last_lock_was_granted(store: PostgresStore, migrated_database: str) -> None:
    """Else a batch that waited would hold a time from before the change that it waited for."""
    await insert(store, new_task(1), new_task(2))
    async with connected(migrated_database) as connection:

        async def wait() -> int:
            async with store.batch() as batch:
                assert len(await batch.lock([task_id(1), task_id(2)], wait=True)) == 2
                return batch.now

        async with store.batch() as holder:
            await holder.lock([task_id(2)])
            waiting = asyncio.create_task(wait())
            blocked = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and state = 'active'"
            while not await connection.fetchval(blocked):
                await asyncio.sleep(0)
            released = await connection.fetchval("select now_us()")
        assert await waiting >= released


async def test_the_estimate_follows_the_database(store: PostgresStore, migrated_database: str) -> None:
    async with connected(migrated_database) as connection:
        before = await connection.fetchval("select now_us()")
        estimate = store.now()
        after = await connection.fetchval("select now_us()")
    assert before - 1_000_000 < estimate < after + 1_000_000


async def test_one_reading_a_batch(store: PostgresStore) -> None:
    await insert(store, new_task(1), changed(leased(new_task(2)), wake_at=1, updated_at=1))
    async with store.batch() as batch:
        await batch.lock([task_id(1)])
        now = batch.now
        assert [task.id for task in await batch.due(10)] == [task_id(2)]
        assert await batch.beat([Heartbeat(lease=leased(new_task(2)).lease)]) == {task_id(2): False}
        assert batch.now == now
    assert (await store.read([task_id(2)]))[task_id(2)].heartbeat_at == now


# connections that break ----------------------------------------------------------------------------------------------
async def test_connections_that_died_while_idle_are_replaced(store: PostgresStore, migrated_database: str) -> None:
    """A restart of the server between two batches costs nobody an error."""
    await insert(store, new_task(1))
    async with connected(migrated_database) as connection:
        await end_others(connection)
    await until_closed(store)
    await insert(store, new_task(2))
    assert len(await store.read([task_id(1), task_id(2)])) == 2


async def test_a_break_inside_a_batch_writes_nothing(store: PostgresStore, migrated_database: str) -> None:
    async with connected(migrated_database) as connection:
        with pytest.raises(StoreFault) as caught:
            async with store.batch() as batch:
                await batch.insert([new_task(1)])
                await end_others(connection)
                await batch.insert([new_task(2)])
    assert not isinstance(caught.value, DataFault | CommitUnknown)
    assert await retried(store.read, [task_id(1), task_id(2)]) == {}


async def test_a_break_before_the_commit_is_found_out(migrated_database: str) -> None:
    """The server ended the connection: nobody knows, until it is asked."""
    steps = Steps()
    async with opened(migrated_database, switch=steps) as store, connected(migrated_database) as connection:
        await insert(store, new_task(1))
        steps.before[steps.sent + 4] = lambda: end_others(connection)  # begin, lock, close, commit
        with pytest.raises(CommitUnknown) as caught:
            async with store.batch() as batch:
                found = await batch.lock([task_id(1)])
                await batch.close([closed(found[task_id(1)])])
        assert caught.value.xid is not None
        assert await retried(store.committed, caught.value) is False
        assert (await store.read([task_id(1)]))[task_id(1)].state == State.ENQUEUED


@pytest.mark.parametrize("inserts", [False, True])
async def test_a_lost_answer_to_a_commit_is_found_out(migrated_database: str, proxy: Proxy, inserts: bool) -> None:
    """By the transaction id, or by the ids of what was inserted."""
    async with opened(proxy.url(migrated_database)) as store:
        await insert(store, new_task(1))
        with pytest.raises(CommitUnknown) as caught:
            async with store.batch() as batch:
                found = await batch.lock([task_id(1)])
                await batch.close([closed(found[task_id(1)])])
                await batch.insert([new_task(2)] if inserts else [])
                proxy.lose = b"COMMIT\x00"
        proxy.lose = b"\xffnever\xff"
        assert proxy.lost == 1
        assert await store.committed(caught.value) is True
        assert (await store.read([task_id(1)]))[task_id(1)].state == State.SUCCEEDED


async def test_a_child_that_is_gone_by_then_proves_nothing_against_a_commit(
    migrated_database: str, proxy: Proxy
) -> None:
    """An activity leaves no row: another server may have deleted it before this one asks."""
    async with opened(proxy.url(migrated_database)) as store:
        await insert(store, new_task(1))
        with pytest.raises(CommitUnknown) as caught:
            async with store.batch() as batch:
                await batch.lock([task_id(1)])
                await batch.insert([child(2, 1)])
                proxy.lose = b"COMMIT\x00"
        proxy.lose = b"\xffnever\xff"
        async with store.batch() as batch:
            await batch.delete(list((await batch.lock([task_id(2)])).values()))
        assert await store.committed(caught.value) is True


async def test_a_lost_answer_to_a_single_insert_is_found_out(migrated_database: str, proxy: Proxy) -> None:
    async with opened(proxy.url(migrated_database)) as store:
        proxy.lose = b"COPY 2\x00"
        with pytest.raises(CommitUnknown) as caught:
            async with store.batch(single=True) as batch:
                await batch.insert([new_task(1), new_task(2)])
        proxy.lose = b"\xffnever\xff"
        assert await store.committed(caught.value) is True
        never = CommitUnknown("never sent", task_ids=[task_id(3)])
        assert await store.committed(never) is False


async def test_a_commit_that_is_still_under_way_is_ended_first(store: PostgresStore, migrated_database: str) -> None:
    """A server process that has not noticed yet that its client is gone must not commit after the answer was no."""
    async with connected(migrated_database) as ghost:
        await ghost.execute(
            "begin; insert into attempts values ('00000000-0000-0000-0000-000000000001', 1, 1, 1, 1, 'x')"
        )
        xid = await ghost.fetchval("select pg_current_xact_id()::text::bigint")
        row = await ghost.fetchrow(statements("postgres")["backend"])
        assert row is not None
        unknown = CommitLost("lost", xid=xid, task_ids=[], backend=postgres_session.Backend(*row))
        assert await store.committed(unknown) is False
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, ConnectionError)):
            await ghost.execute("commit")
    assert await store.attempts([task_id(1)]) == []


async def test_a_transaction_id_of_an_earlier_run_of_the_server_proves_nothing(store: PostgresStore) -> None:
    """Ids that were not yet on disk at a crash are given out again."""
    async with store.batch() as batch:
        await batch.lock([])
        xid, backend = batch._xid, batch._session.backend
    gone = backend._replace(pid=backend.pid + 100_000)
    assert await store.committed(CommitLost("", xid=xid, task_ids=[], backend=gone)) is True
    earlier = gone._replace(server_started_at=gone.server_started_at - 1)
    assert await store.committed(CommitLost("", xid=xid, task_ids=[], backend=earlier)) is False


async def test_a_canceled_batch_releases_its_locks(store: PostgresStore) -> None:
    await insert(store, new_task(1))

    async def hold() -> None:
        async with store.batch() as batch:
            await batch.lock([task_id(1)])
            held.set()
            await asyncio.Event().wait()

    held = asyncio.Event()
    holding = asyncio.create_task(hold())
    await held.wait()
    holding.cancel()
    await asyncio.wait([holding])
    async with store.batch() as batch:
        assert set(await batch.lock([task_id(1)], wait=True)) == {task_id(1)}


async def test_an_error_of_the_application_rolls_back_and_keeps_the_connection(store: PostgresStore) -> None:
    with pytest.raises(ZeroDivisionError):
        async with store.batch() as batch:
            await batch.insert([new_task(1)])
            backend = batch._session.backend
            raise ZeroDivisionError
    async with store.batch() as batch:
        assert await batch.lock([task_id(1)]) == {}
        assert batch._session.backend == backend


async def test_a_fault_of_the_server_is_a_store_fault(store: PostgresStore, migrated_database: str) -> None:
    """Anything but a refused value may pass when tried again; here the table is locked for longer than we wait."""
    async with connected(migrated_database) as connection, connection.transaction():
        await connection.execute("lock table tasks")
        with pytest.raises(StoreFault) as caught:
            async with store.batch() as batch:
                await batch._session.connection.execute("set lock_timeout = '50ms'")
                await batch.lock([task_id(1)])
        assert not isinstance(caught.value, DataFault)
    await insert(store, new_task(1))


# connections of their own --------------------------------------------------------------------------------------------
async def test_lists_hold_up_neither_alarms_nor_hints_nor_keys(migrated_database: str) -> None:
    """Alarms that come late end the leases of living workers."""
    slow = 0
    go_on = asyncio.Event()

    async def switch() -> None:
        nonlocal slow
        if slow:
            slow -= 1
            await go_on.wait()

    async with opened(migrated_database, switch=switch) as store:
        await insert(store, new_task(1))
        await asyncio.gather(*(store.find(EVERYTHING) for _ in range(2)))
        slow = 2
        lists = [asyncio.create_task(store.find(EVERYTHING)) for _ in range(3)]
        async with asyncio.timeout(PATIENCE):
            while slow:
                await asyncio.sleep(0)
        async with asyncio.timeout(PATIENCE / 4):
            assert await store.next_alarm() is None
            assert await store.api_keys() == {}
            await store.announce(b"hint")
            assert not await store.committed(CommitUnknown("lost", task_ids=[task_id(7)]))
        assert not any(listing.done() for listing in lists)
        go_on.set()
        assert [len(found) for found in await asyncio.gather(*lists)] == [1] * 3


async def test_a_command_that_waits_for_a_lock_has_a_connection_beside_the_batches(store: PostgresStore) -> None:
    """The engine runs it beside `batches_in_flight` others."""
    await insert(store, *(new_task(number) for number in (1, 2, 3)))
    async with asyncio.timeout(PATIENCE), contextlib.AsyncExitStack() as stack:
        for number in range(1, store.batches_in_flight + 2):
            batch = await stack.enter_async_context(store.batch())
            assert len(await batch.lock([task_id(number)])) == 1


# hints ---------------------------------------------------------------------------------------------------------------
async def test_hints_reach_all_servers(migrated_database: str) -> None:
    async with opened(migrated_database) as one, opened(migrated_database) as two:
        heard: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()
        await one.listen(lambda hint: heard.put_nowait((1, hint)))
        await two.listen(lambda hint: heard.put_nowait((2, hint)))
        for hint in (bytes(5_900), bytes(range(256)), b""):
            await one.announce(hint)
            async with asyncio.timeout(PATIENCE):
                assert {await heard.get(), await heard.get()} == {(1, hint), (2, hint)}


async def test_listening_goes_on_after_a_break(migrated_database: str) -> None:
    async with opened(migrated_database) as one, opened(migrated_database) as two:
        heard = asyncio.Event()
        await one.listen(lambda _hint: heard.set())
        async with connected(migrated_database) as connection:
            await connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where query ilike 'listen%'"
            )
            listening = "select count(*) from pg_stat_activity where query ilike 'listen%'"
            async with asyncio.timeout(PATIENCE):
                while not await connection.fetchval(listening):
                    await asyncio.sleep(0.02)
        await two.announce(b"again")
        await asyncio.wait_for(heard.wait(), PATIENCE)


async def end_others(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    """End every other connection to the database, and wait until they are gone."""
    others = "from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    while await connection.fetchval(f"select count(pg_terminate_backend(pid)) {others}"):
        await asyncio.sleep(0)


async def until_closed(store: PostgresStore) -> None:
    """Until the driver has seen the end of the idle connections."""
    async with asyncio.timeout(PATIENCE):
        idle = store._writers._idle + store._readers._idle
        while not all(session.connection.is_closed() for session in idle):
            await asyncio.sleep(0)


async def retried(verb: Any, *args: Any) -> Any:
    """The answer of a read whose connection may have died since: one more try makes a new one."""
    try:
        return await verb(*args)
    except StoreFault:
        return await verb(*args)
