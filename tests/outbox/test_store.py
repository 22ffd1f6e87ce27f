"""What store/outbox.py promises of every verb, held against all three stores."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from perdure.core.model import SECOND
from perdure.core.outbox import START as OLDEST
from perdure.core.outbox import Cursor, Feed, OutboxEvent
from perdure.core.streams import Chunk, StreamEnd
from perdure.core.webhooks import DeadLetter, Webhook
from perdure.store.base import Store, StoreFault
from tests.clock import START
from tests.store.rows import close, closed, insert, new_task, read, task_id


def event(n: int, *, namespace: str = "default", at: int = START, **fields: Any) -> OutboxEvent:
    return OutboxEvent(namespace, "task.failed", at, task_id(n), "email", "app", "mail", n, **fields)


async def publish(store: Store, *events: OutboxEvent) -> None:
    async with store.batch() as batch:
        await batch.publish(events)


async def numbers(store: Store, after: Cursor = OLDEST, limit: int = 100, namespace: str = "default") -> list[int]:
    return [event.attempt for event in await store.events(namespace, after, limit)]


async def test_events_keep_every_column(store: Store) -> None:
    full = event(1, workflow_id="order", failure_code="fatal", failure_type="ValueError", reason="why")
    await publish(store, full)
    (found,) = await store.events("default", OLDEST, 10)
    assert replace(found, xid=0, seq=0) == full


async def test_a_reader_goes_on_behind_its_cursor(store: Store) -> None:
    """OBS-01: nothing is missing and nothing comes twice."""
    await publish(store, event(1), event(2))
    await publish(store, event(3), event(9, namespace="other"))
    first = await store.events("default", OLDEST, 2)
    assert [one.attempt for one in first] == [1, 2]
    assert await numbers(store, first[0].cursor) == [2, 3]
    assert await numbers(store, first[1].cursor) == [3]
    assert await numbers(store, namespace="other") == [9]


async def test_no_event_of_a_batch_that_was_rolled_back(store: Store) -> None:
    with pytest.raises(StoreFault):
        async with store.batch() as batch:
            await batch.publish([event(1)])
            raise StoreFault("it did not happen")
    assert await numbers(store) == []


async def test_what_commits_later_is_read_later(shared: Store) -> None:
    """OBS-01: batches overlap, and commit in another order than they wrote in; whoever reads between misses nothing."""
    await publish(shared, event(0))
    seen: list[OutboxEvent] = []

    async def read_on() -> None:
        seen.extend(await shared.events("default", seen[-1].cursor if seen else OLDEST, 10))

    async with shared.batch() as slow:
        await slow.publish([event(1)])
        async with shared.batch() as fast:
            await fast.publish([event(2)])
        await read_on()
        await publish(shared, event(3))
        await read_on()
    await read_on()
    assert sorted(one.attempt for one in seen) == [0, 1, 2, 3]
    assert [one.cursor for one in seen] == sorted(one.cursor for one in seen)


async def test_closed_tasks_are_published_by_their_rows(store: Store) -> None:
    for n in (1, 2, 3):
        await insert(store, new_task(n, namespace="mine" if n < 3 else "other", queue="mail", app="shop"))
    await insert(store, new_task(4, namespace="mine", queue="mail", app="shop"))
    done = closed(await read(store, 4), attempt=2, closed_at=START + 5, updated_at=START + 5)
    await close(store, done)
    async with store.batch() as batch:
        await batch.publish_closed("task.succeeded", [task_id(n) for n in (1, 3, 4)], {"mine", "else"})
    (found,) = await store.events("mine", OLDEST, 10)
    assert replace(found, xid=0, seq=0) == OutboxEvent(
        "mine", "task.succeeded", START + 5, task_id(4), "email", "shop", "mail", 2
    )
    assert await store.events("other", OLDEST, 10) == []


async def test_feeds(store: Store) -> None:
    assert await store.feed("default") == Feed()
    assert await store.recording() == set()
    await store.record_events("default", True)
    await store.record_events("other", True)
    assert await store.recording() == {"default", "other"}
    await store.record_events("other", False)
    assert await store.recording() == {"default"}
    await publish(store, event(1), event(2))
    last = (await store.events("default", OLDEST, 10))[-1].cursor
    assert await store.feed("default") == Feed(True, OLDEST, last)
    assert await store.feed("other") == Feed(False)


async def test_trimmed_events_are_noted(store: Store) -> None:
    await store.record_events("default", True)
    await publish(store, event(1), event(2, at=START + SECOND), event(3, at=START + 2 * SECOND))
    first, second, third = await store.events("default", OLDEST, 10)
    assert await store.last_event_before("default", START + SECOND) == first.cursor
    assert await store.last_event_before("default", START) is None
    async with store.batch() as batch:
        assert await batch.trim_events(START + 2 * SECOND, 10) == 2
        assert await batch.trim_events(START + 2 * SECOND, 10) == 0
    assert await numbers(store) == [3]
    assert await store.feed("default") == Feed(True, second.cursor, third.cursor)


async def test_numbers_never_come_again(store: Store) -> None:
    """Or a reader's cursor would lie before events that it has not seen."""
    await store.record_events("default", True)
    await publish(store, event(1))
    (first,) = await store.events("default", OLDEST, 10)
    async with store.batch() as batch:
        assert await batch.trim_events(START + 1, 10) == 1
    await publish(store, event(2))
    (second,) = await store.events("default", OLDEST, 10)
    assert second.cursor > first.cursor


# streams -------------------------------------------------------------------------------------------------------------
async def test_streams(store: Store) -> None:
    await insert(store, new_task(1))
    end = StreamEnd(task_id(1), "default", 1, 2, 2, 10, START)
    chunks = [Chunk(task_id(1), n, 1, 1, b"chunk") for n in range(2)]
    async with store.batch() as batch:
        await batch.lock([task_id(1)])
        assert await batch.stream_ends([task_id(1)]) == {}
        await batch.add_chunks([end], chunks)
    longer = replace(end, lease_number=2, lease_chunks=1, chunks=3, bytes=15, touched_at=START + 1)
    async with store.batch() as batch:
        assert await batch.stream_ends([task_id(1), task_id(2)]) == {task_id(1): end}
        await batch.add_chunks([longer], [Chunk(task_id(1), 2, 2, 2, b"again")])
    assert await store.stream_end(task_id(1)) == longer
    assert await store.stream_end(task_id(2)) is None
    assert await store.chunks(task_id(1), 0, 2) == chunks
    assert await store.chunks(task_id(1), 1, 9) == [chunks[1], Chunk(task_id(1), 2, 2, 2, b"again")]


async def test_streams_of_open_tasks_are_kept(store: Store) -> None:
    await insert(store, new_task(1))
    for n in (1, 2, 3):
        async with store.batch() as batch:
            await batch.add_chunks(
                [StreamEnd(task_id(n), "default", 1, 1, 1, 1, START + n)], [Chunk(task_id(n), 0, 1, 1, b"x")]
            )
    async with store.batch() as batch:
        assert await batch.trim_streams(START + 3, 10) == 1
    left = [n for n in (1, 2, 3) if await store.chunks(task_id(n), 0, 1) and await store.stream_end(task_id(n))]
    assert left == [1, 3]


# webhooks ------------------------------------------------------------------------------------------------------------
def hook(id: str, namespace: str = "default", **fields: Any) -> Webhook:
    return Webhook(id, namespace, f"https://{id}.example", "whsec_x", "task.*", START, 0, 0, **fields)


async def test_webhooks(store: Store) -> None:
    one, two = hook("one"), hook("two", "other")
    await store.add_webhook(one)
    await store.add_webhook(two)
    assert await store.webhooks("default") == [one]
    assert await store.webhooks(None) == [one, two]
    full = replace(
        one,
        xid=1,
        seq=2,
        disabled_at=3,
        note="note",
        failures=4,
        failing_since=5,
        retry_at=6,
        last_error="no",
        sent_at=7,
    )
    assert await store.put_webhook(full, None)
    assert await store.webhooks("default") == [full]
    assert not await store.remove_webhook("default", "two")
    assert await store.remove_webhook("other", "two")
    assert await store.webhooks(None) == [full]
    assert not await store.put_webhook(two, None)


async def test_one_server_sends(store: Store) -> None:
    await store.add_webhook(hook("one"))
    assert await store.take_webhook("none", 7, START + 10, START) is None
    taken = await store.take_webhook("one", 7, START + 10, START)
    assert taken == hook("one", lease_owner=7, lease_until=START + 10)
    assert await store.take_webhook("one", 8, START + 20, START + 5) is None
    assert await store.take_webhook("one", 7, START + 15, START + 5) is not None
    assert await store.take_webhook("one", 8, START + 30, START + 16) is not None
    assert taken is not None
    assert not await store.put_webhook(taken, 7), "its lease is over"
    assert await store.put_webhook(hook("one", lease_owner=8, lease_until=START + 40), 8)


async def test_dead_letters(store: Store) -> None:
    await store.add_webhook(hook("one"))
    letters = [DeadLetter("one", 0, n, START, 3, "status 500", b"{}") for n in (1, 2)]
    for letter in (letters[1], letters[0], letters[0]):
        await store.bury(letter)
    assert await store.dead_letters("one", 10) == letters
    assert await store.dead_letters("one", 1) == letters[:1]
    assert await store.dead_letters("two", 10) == []
    await store.remove_webhook("default", "one")
    assert await store.dead_letters("one", 10) == []
