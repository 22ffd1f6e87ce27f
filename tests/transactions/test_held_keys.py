"""A key that an application's open transaction holds keeps nobody from anything else: servers do not wait for it."""

from __future__ import annotations

import asyncio
import time

import psycopg
import pytest

from perdure import AsyncPerdure, Perdure, Unavailable
from perdure.core.messages import Enqueue, NewTask
from perdure.store.postgres import PostgresStore
from tests.store.rows import new_key


@pytest.mark.parametrize("commits", [True, False])
async def test_an_open_transaction_stops_its_own_key_only(url: str, commits: bool) -> None:
    """B148, B150: a client that went to sleep inside its transaction must not be an outage of all servers."""
    with psycopg.connect(url) as connection, Perdure(url) as blocking:
        mine = blocking.enqueue_in(connection, "t", idempotency_key="held")
        async with AsyncPerdure(url, coalesce=False) as app:
            await app.enqueue("warm up")
            waiting = [asyncio.create_task(app.enqueue("t", idempotency_key="held")) for _ in range(3)]
            await asyncio.sleep(0.3)
            began = time.monotonic()
            for n in range(20):
                both = app.enqueue("t"), app.enqueue("t", idempotency_key=f"free {n}")
                await asyncio.gather(*both)
            assert time.monotonic() - began < 1.0
            assert not any(task.done() for task in waiting)
            (connection.commit if commits else connection.rollback)()
            found = await asyncio.wait_for(asyncio.gather(*waiting), 5)
        assert len({job.id for job in found}) == 1
        assert (found[0].id == mine.id) is commits
        assert [job.duplicate for job in found].count(False) == (0 if commits else 1)


@pytest.mark.parametrize("coalesce", [True, False])
async def test_free_keys_of_the_same_batch_are_not_kept_waiting_for_long(url: str, coalesce: bool) -> None:
    """Whoever waits for the held key goes on asking, and nobody waits for that."""
    with psycopg.connect(url) as connection, Perdure(url) as blocking:
        blocking.enqueue_in(connection, "t", idempotency_key="held")
        async with AsyncPerdure(url, coalesce=coalesce) as app:
            await app.enqueue("warm up")
            held = asyncio.create_task(app.enqueue("t", idempotency_key="held"))
            await asyncio.sleep(0.01)
            began = time.monotonic()
            await app.enqueue("not keyed, so never behind a key")
            assert time.monotonic() - began < 0.5
            free = await asyncio.gather(*(app.enqueue("t", idempotency_key=f"k{n}") for n in range(50)))
            assert time.monotonic() - began < 4.0
            assert not any(job.duplicate for job in free)
            free = await asyncio.gather(*(app.enqueue("t", idempotency_key=f"l{n}") for n in range(50)))
            assert time.monotonic() - began < 7.0
            connection.rollback()
            assert not (await asyncio.wait_for(held, 10)).duplicate


async def test_a_server_does_not_wait_for_ever(url: str) -> None:
    """B150: an answer that says what is the matter and when to try again, to the one item it is about."""
    with psycopg.connect(url) as connection, Perdure(url) as blocking:
        blocking.enqueue_in(connection, "t", idempotency_key="held")
        async with AsyncPerdure(url) as app:
            items = [NewTask("t", idempotency_key=key) for key in ("held", "free")]
            reply = await asyncio.wait_for((await app.service()).enqueue(Enqueue(items)), 5)
    problem = reply.tasks[0].error
    assert problem is not None
    assert (problem.code, problem.field, problem.retry_after) == ("unavailable", "idempotency_key", 2.0)
    assert reply.tasks[1].error is None


async def test_a_server_that_stops_answers_what_waits_for_a_key(url: str) -> None:
    with psycopg.connect(url) as connection, Perdure(url) as blocking:
        blocking.enqueue_in(connection, "t", idempotency_key="held")
        app = AsyncPerdure(url)
        waiting = [asyncio.create_task(app.enqueue("t", idempotency_key="held")) for _ in range(2)]
        await asyncio.sleep(0.5)
        await asyncio.wait_for(app.close(), 10)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await app.close()


async def test_a_client_that_is_closed_asks_no_more(url: str) -> None:
    with psycopg.connect(url) as connection, Perdure(url) as blocking:
        blocking.enqueue_in(connection, "t", idempotency_key="held")
        app = AsyncPerdure(url)
        held = asyncio.create_task(app.enqueue("t", idempotency_key="held"))
        await asyncio.sleep(3.0)  # it was sent back once
        await asyncio.wait_for(app.close(), 10)
        with pytest.raises(Unavailable, match="closed"):
            await asyncio.wait_for(held, 1)


async def test_a_batch_keeps_its_connection_when_a_key_is_held(url: str) -> None:
    from perdure.store.base import KeysHeld

    store = PostgresStore(url)
    await store.open()
    async with store.batch() as one:
        await one.reserve_keys([new_key("k", 1)])
        for _ in range(3):
            began = time.monotonic()
            with pytest.raises(KeysHeld):
                async with store.batch() as two:
                    await two.reserve_keys([new_key("k", 2)])
            assert time.monotonic() - began < 1.0
        assert await asyncio.wait_for(count_sessions(store), 5) == 2
    await store.close()


async def count_sessions(store: PostgresStore) -> int:
    """Connections of the store that write."""
    return len(store._writers._idle) + 1
