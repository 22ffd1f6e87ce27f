"""What base.py promises of every verb, held against all three stores."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.core import decide
from perdure.core.commands import Heartbeat
from perdure.core.model import SECOND, Lease, Pulse, Task
from perdure.core.states import Kind, State
from perdure.store.base import DataFault, Demand, Doubled, Filter, Place, Store, StoreFault
from tests.clock import START, SteppedClock
from tests.store.rows import (
    changed,
    close,
    closed,
    insert,
    insert_leased,
    new_attempt,
    new_key,
    new_session,
    new_task,
    plain,
    read,
    task_id,
)


class Oops(Exception):
    """Leaves a batch."""


def ids(tasks: list[Task]) -> list[int]:
    return [int.from_bytes(task.id, "big") for task in tasks]


# rows ----------------------------------------------------------------------------------------------------------------
FULL = new_task(
    1, app="app", kind=Kind.WORKFLOW, queue="mail", idempotency_key="key", retry_policy=b"policy", timeouts=b"timeouts",
    max_attempts=9, identity="me", retry_of=task_id(99), priority=2, fairness_key="tenant", place=5, run_at=START + 1,
    ready_at=START + 2, expires_at=START + 3, attempt_deadline=START + 4, deadline=START + 5, heartbeat_deadline=START
    + 6, lease_length=7 * SECOND, lease_until=START + 7, cancel_deadline=START + 8, wake_at=START + 9, attempt=2,
    lost_deliveries=1, lease_number=3, lease_bits=-5, received=True, session=11, worker="w", poll=4, started_at=START
    + 10, attempt_started_at=START + 11, heartbeat_at=START + 12, cancel_requested_at=START + 13, cancel_reason="why",
    progress=b"progress", checkpoint=b"checkpoint", failure=b"failure", done_number=2, done_bits=6, done_state=4,
    parent_run_id=task_id(98), parent_event_id=7,
)  # fmt: skip
"""A row with something in every column that an open task has."""


async def test_insert_keeps_every_column(store: Store) -> None:
    await insert(store, FULL)
    assert plain(await read(store, 1)) == FULL


async def test_an_id_is_given_once(store: Store) -> None:
    """IDEM-05: to one open task, and `closed` tells of those that closed."""
    await insert(store, new_task(1))
    with pytest.raises(Doubled):
        await insert(store, new_task(2), new_task(1))
    assert set(await store.read([task_id(1), task_id(2)])) == {task_id(1)}
    await insert_leased(store, 3)
    await close(store, closed(await read(store, 3)))
    async with store.batch() as batch:
        await batch.insert([new_task(n) for n in (3, 4)])
        assert await batch.closed([task_id(n) for n in (1, 3, 4, 5)]) == {task_id(3)}


async def test_insert_keeps_absent_values_absent(store: Store) -> None:
    bare = new_task(1, payload=None, headers=None, place=None)
    await insert(store, bare)
    assert plain(await read(store, 1)) == bare


async def test_insert_refuses_an_id_twice(store: Store) -> None:
    await insert(store, new_task(1))
    with pytest.raises(DataFault):
        await insert(store, new_task(2), new_task(1))
    assert list(await store.read([task_id(1), task_id(2)])) == [task_id(1)]


async def test_many_rows_in_one_verb(store: Store) -> None:
    tasks = [new_task(n) for n in range(1, 1_001)]
    await insert(store, *tasks)
    found = await store.read([task.id for task in tasks])
    assert [plain(found[task.id]) for task in tasks] == tasks


async def test_large_payloads_and_unicode_come_back_whole(store: Store) -> None:
    words = "Ω_задача_任务 🎉 \u202eabc e\u0301"
    payload = bytes(range(256)) * 1024
    task = new_task(
        1, payload=payload, namespace=words, type=words, lane=words, queue=words, fairness_key=words, app=words
    )
    await insert(store, task)
    assert plain(await read(store, 1)) == task
    await close(store, closed(task, result=payload))
    assert (await read(store, 1)).result == payload


@pytest.mark.parametrize("number", [-(2**63), -1, 0, 2**63 - 1])
async def test_64_bit_numbers(store: Store, number: int) -> None:
    await insert_leased(store, 1, bits=number, session=number)
    async with store.batch() as batch:
        assert await batch.beat([Heartbeat(lease=Lease(task_id(1), 1, number))]) == {task_id(1): False}
        [held] = await batch.leased_by(number, 10)
        assert (held.lease_bits, held.session) == (number, number)


async def test_what_a_caller_does_to_a_value_does_not_reach_the_store(store: Store) -> None:
    task = new_task(1)
    await insert(store, task)
    task.priority = 1
    (await read(store, 1)).priority = 1
    async with store.batch() as batch:
        (await batch.lock([task_id(1)]))[task_id(1)].priority = 1
    assert (await read(store, 1)).priority == 3


async def test_lock_returns_open_tasks_without_payload_and_headers(store: Store) -> None:
    await insert(store, FULL, new_task(2))
    await close(store, closed(new_task(2)))
    async with store.batch() as batch:
        held = await batch.lock([task_id(n) for n in (1, 2, 3)])
    assert {key: plain(task) for key, task in held.items()} == {task_id(1): changed(FULL, payload=None, headers=None)}


async def test_lock_of_nothing(store: Store) -> None:
    async with store.batch() as batch:
        assert await batch.lock([]) == {}
        assert await batch.trace([]) == {}


async def test_trace_tells_open_from_closed_and_unknown(store: Store) -> None:
    await insert(store, new_task(1), new_task(2))
    await close(store, closed(new_task(2), result=b"result"))
    async with store.batch() as batch:
        found = await batch.trace([task_id(n) for n in (1, 2, 3)])
    assert {key: task.state for key, task in found.items()} == {
        task_id(1): State.ENQUEUED,
        task_id(2): State.SUCCEEDED,
    }
    assert all(task.payload is None and task.result is None for task in found.values())


async def test_a_batch_sees_its_own_writes(store: Store) -> None:
    async with store.batch() as batch:
        await batch.insert([new_task(1)])
        held = await batch.lock([task_id(1)])
        await batch.change([changed(held[task_id(1)], priority=1)])
        assert (await batch.trace([task_id(1)]))[task_id(1)].priority == 1


async def test_rollback_leaves_nothing(store: Store) -> None:
    before = await insert_leased(store, 1)
    await insert(store, new_task(2))
    with pytest.raises(Oops):
        async with store.batch() as batch:
            await batch.reserve_keys([new_key("k", 3)])
            await batch.lock([task_id(1), task_id(2)])
            await batch.close([closed(new_task(2))])
            await batch.change([changed(before, priority=1)])
            await batch.insert([new_task(3)])
            await batch.record([new_attempt(1, 1)])
            await batch.put_session(new_session(1))
            await batch.lock_pulse()
            await batch.put_pulse(Pulse(1, 2))
            raise Oops
    async with store.batch() as batch:
        assert await batch.read_keys([new_key("k", 3).name]) == {}
        assert await batch.lock_pulse() == Pulse(0, 0)
    assert list(await store.read([task_id(n) for n in (1, 2, 3)])) == [task_id(1), task_id(2)]
    assert await read(store, 1) == before
    assert (await read(store, 2)).state == State.ENQUEUED
    assert await store.attempts([task_id(1)]) == []
    assert await store.sessions("default") == []


async def test_a_batch_may_do_nothing(store: Store) -> None:
    async with store.batch():
        pass


async def test_single_batches_commit_their_one_statement(store: Store) -> None:
    async with store.batch(single=True) as batch:
        await batch.insert([new_task(1)])
    assert list(await store.read([task_id(1)])) == [task_id(1)]
    task = await insert_leased(store, 2)
    async with store.batch(single=True) as batch:
        assert await batch.beat([Heartbeat(lease=task.lease)]) == {task.id: False}
    assert (await read(store, 2)).received


async def test_single_batches_may_read_after_they_wrote(store: Store) -> None:
    task = await insert_leased(store, 1)
    async with store.batch(single=True) as batch:
        beats = [Heartbeat(lease=task.lease), Heartbeat(lease=Lease(task_id(2), 1, 1))]
        assert await batch.beat(beats) == {task.id: False}
        assert (await batch.trace([task.id]))[task.id].received


async def test_single_batches_fail_as_a_whole(store: Store) -> None:
    await insert(store, new_task(1))
    with pytest.raises(DataFault):
        async with store.batch(single=True) as batch:
            await batch.insert([new_task(2), new_task(1)])
    assert await store.read([task_id(2)]) == {}


async def test_the_store_goes_on_after_a_refused_statement(store: Store) -> None:
    await insert(store, new_task(1))
    with pytest.raises(DataFault):
        await insert(store, new_task(1))
    await insert(store, new_task(2))
    assert len(await store.read([task_id(1), task_id(2)])) == 2


# claims --------------------------------------------------------------------------------------------------------------
async def test_claim_goes_by_priority_then_place_then_id(store: Store) -> None:
    await insert(
        store,
        new_task(1, priority=3, place=9),
        new_task(2, priority=3, place=8),
        new_task(4, priority=1, place=50),
        new_task(3, priority=1, place=50),
        new_task(5, priority=5, place=1),
    )
    async with store.batch() as batch:
        claimed = await batch.claim([Demand("lane-1", 10)])
    assert ids(claimed["lane-1"]) == [3, 4, 2, 1, 5]


async def test_claim_returns_whole_tasks(store: Store) -> None:
    await insert(store, changed(FULL, lane="lane-1"))
    async with store.batch() as batch:
        [task] = (await batch.claim([Demand("lane-1", 1)]))["lane-1"]
    assert plain(task) == FULL


async def test_claim_keeps_lanes_and_limits_apart(store: Store) -> None:
    await insert(store, *(new_task(n, lane=f"lane-{n % 2}") for n in range(1, 11)))
    async with store.batch() as batch:
        claimed = await batch.claim([Demand("lane-0", 2), Demand("lane-1", 3), Demand("lane-9", 5)])
    assert ids(claimed["lane-0"]) == [2, 4]
    assert ids(claimed["lane-1"]) == [1, 3, 5]
    assert not claimed.get("lane-9")


@pytest.mark.parametrize(
    ("after", "found"),
    [
        (Place(1, 1, task_id(1)), [2, 3, 4]),
        (Place(1, 1, task_id(0)), [1, 2, 3, 4]),
        (Place(1, 2, task_id(2)), [3, 4]),
        (Place(1, 99, task_id(0)), [3, 4]),
        (Place(2, 0, task_id(0)), [3, 4]),
        (Place(3, 7, task_id(4)), []),
        (Place(5, 0, task_id(0)), []),
    ],
)
async def test_claim_starts_behind_a_mark(store: Store, after: Place, found: list[int]) -> None:
    await insert(
        store,
        new_task(1, priority=1, place=1),
        new_task(2, priority=1, place=2),
        new_task(3, priority=3, place=0),
        new_task(4, priority=3, place=7),
    )
    async with store.batch() as batch:
        claimed = await batch.claim([Demand("lane-1", 10, after)])
    assert ids(claimed.get("lane-1", [])) == found


async def test_claim_sees_ready_tasks_only(store: Store) -> None:
    await insert_leased(store, 1)
    await insert(store, new_task(2, place=None, ready_at=START), new_task(3), new_task(4))
    await close(store, closed(new_task(3)))
    async with store.batch() as batch:
        claimed = await batch.claim([Demand("lane-1", 10)])
    assert ids(claimed["lane-1"]) == [4]


async def test_lease_writes_the_columns_of_a_claim_and_no_other(store: Store) -> None:
    await insert(store, FULL)
    written = changed(
        FULL, state=State.LEASED, place=None, ready_at=None, lease_number=4, lease_bits=-9, received=False,
        session=-2, worker="w2", poll=8, attempt_started_at=START + 20, heartbeat_at=START + 21, lease_until=START +
        22, attempt_deadline=START + 23, heartbeat_deadline=START + 24, wake_at=START + 25, updated_at=START + 26,
    )  # fmt: skip
    async with store.batch() as batch:
        await batch.claim([Demand("lane-1", 1)])
        await batch.lease([changed(written, attempt=7, priority=5, failure=b"x", payload=b"x", type="x")])
    assert plain(await read(store, 1)) == written


async def test_change_writes_what_a_decision_may_change_and_no_more(store: Store) -> None:
    await insert(store, FULL)
    written = changed(
        FULL, state=State.RETRY_WAIT, place=None, ready_at=START + 30, lease_number=8, lease_bits=2**62,
        received=False, session=None, worker="w3", poll=None, attempt_started_at=START + 31, heartbeat_at=START + 32,
        lease_until=None, attempt_deadline=None, heartbeat_deadline=None, wake_at=START + 33, updated_at=START + 34,
        priority=1, attempt=3, lost_deliveries=2, started_at=START + 35, cancel_requested_at=None, cancel_reason=None,
        cancel_deadline=None, progress=b"p2", checkpoint=b"c2", failure=None, done_number=8, done_bits=-(2**62),
        done_state=10,
    )  # fmt: skip
    async with store.batch() as batch:
        await batch.lock([task_id(1)])
        await batch.change([changed(written, payload=None, headers=None, type="x", created_at=1, deadline=1, lane="x")])
    assert plain(await read(store, 1)) == written


# leases and heartbeats ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("received", [False, True])
@pytest.mark.parametrize("heartbeat_deadline", [None, START + 5 * SECOND])
@pytest.mark.parametrize("news", [{}, {"progress": b"p"}, {"checkpoint": b"c"}, {"progress": b"p", "checkpoint": b"c"}])
async def test_beat_does_what_decide_beat_says(
    store: Store, clock: SteppedClock, received: bool, heartbeat_deadline: int | None, news: dict[str, Any]
) -> None:
    """LEASE-02, JOB-10: the one rule that is written in SQL as well."""
    task = await insert_leased(store, 1)
    task = changed(
        task,
        received=received,
        heartbeat_deadline=heartbeat_deadline,
        lost_deliveries=2,
        progress=b"old",
        checkpoint=b"old",
    )
    async with store.batch() as batch:
        await batch.lock([task.id])
        await batch.change([task])
    clock.advance(2)
    beat = Heartbeat(lease=task.lease, **news)
    async with store.batch() as batch:
        assert await batch.beat([beat]) == {task.id: False}
        now = batch.now
    assert await read(store, 1) == decide.beat(task, beat, now)
    assert now == clock.now()


async def test_beat_keeps_the_first_start(store: Store, clock: SteppedClock) -> None:
    task = await insert_leased(store, 1, started_at=START - 5)
    clock.advance(2)
    async with store.batch() as batch:
        await batch.beat([Heartbeat(lease=task.lease)])
    assert (await read(store, 1)).started_at == START - 5


async def test_a_row_never_gets_younger_by_a_heartbeat(store: Store) -> None:
    """The clock of the database was set back since the row was written."""
    task = await insert_leased(store, 1, updated_at=START + 5 * SECOND)
    beat = Heartbeat(lease=task.lease)
    async with store.batch() as batch:
        await batch.beat([beat])
        now = batch.now
    assert await read(store, 1) == decide.beat(task, beat, now)
    assert (await read(store, 1)).updated_at == START + 5 * SECOND


async def test_beat_tells_of_a_cancel_request(store: Store) -> None:
    """CANC-02."""
    task = await insert_leased(store, 1, cancel_requested_at=START)
    other = await insert_leased(store, 2)
    async with store.batch() as batch:
        answer = await batch.beat([Heartbeat(lease=task.lease), Heartbeat(lease=other.lease)])
    assert answer == {task.id: True, other.id: False}


@pytest.mark.parametrize(("number", "bits"), [(2, 77), (0, 77), (1, 78), (1, -77)])
async def test_a_stale_heartbeat_changes_nothing(store: Store, number: int, bits: int) -> None:
    """LEASE-05: the lease is compared whole."""
    task = await insert_leased(store, 1)
    async with store.batch() as batch:
        assert await batch.beat([Heartbeat(lease=Lease(task.id, number, bits), progress=b"stale")]) == {}
    assert await read(store, 1) == task


async def test_beat_of_tasks_that_are_not_leased(store: Store) -> None:
    await insert(store, new_task(1, lease_number=1, lease_bits=77), new_task(2, lease_number=1, lease_bits=77))
    await close(store, closed(new_task(2, lease_number=1, lease_bits=77)))
    async with store.batch() as batch:
        beats = [Heartbeat(lease=Lease(task_id(n), 1, 77)) for n in (1, 2, 3)]
        assert await batch.beat(beats) == {}


async def test_leased_by_finds_what_a_worker_holds(store: Store) -> None:
    mine = await insert_leased(store, 1, session=7)
    await insert_leased(store, 2, session=8)
    await insert_leased(store, 3, session=7)
    await insert(store, new_task(4))
    await close(store, closed(await read(store, 3)))
    async with store.batch() as batch:
        assert await batch.leased_by(7, 10) == [mine]
        assert await batch.leased_by(9, 10) == []


async def test_held_shows_what_a_worker_holds(store: Store) -> None:
    await insert_leased(store, 1, session=7)
    await insert_leased(store, 2, session=8)
    await insert_leased(store, 3, session=7)
    await insert(store, new_task(4))
    found = await store.held(7, 10)
    assert ids(found) == [1, 3]
    assert [task.payload for task in found] == [None, None]
    assert ids(await store.held(7, 1)) == [1]
    assert await store.held(9, 10) == []


async def test_leased_by_a_poll_finds_what_was_not_received(store: Store) -> None:
    """A poll that is repeated gets its leases again."""
    await insert_leased(store, 1)
    received = await insert_leased(store, 2)
    async with store.batch() as batch:
        await batch.beat([Heartbeat(lease=received.lease)])
    async with store.batch() as batch:
        assert ids(await batch.leased_by(7, 10, poll=1)) == [1]
        assert await batch.leased_by(7, 10, poll=2) == []


async def test_leased_by_is_bounded(store: Store) -> None:
    for n in range(1, 6):
        await insert_leased(store, n)
    async with store.batch() as batch:
        assert len(await batch.leased_by(7, 3)) == 3


async def test_places(store: Store) -> None:
    await insert(
        store,
        new_task(1, place=4, priority=1),
        new_task(2, place=9, priority=5),
        new_task(3, place=7, lane="lane-2"),
        new_task(4, place=None, lane="lane-3"),
    )
    async with store.batch() as batch:
        places = await batch.places(["lane-1", "lane-2", "lane-3", "lane-4"])
    assert places == {"lane-1": (4, 9), "lane-2": (7, 7)}


# closing -------------------------------------------------------------------------------------------------------------
async def test_close_moves_a_row_with_the_payload_it_had(store: Store) -> None:
    """RETRY-06: payload, headers and the final error stay; they did not travel."""
    await insert(store, FULL)
    async with store.batch() as batch:
        task = (await batch.lock([task_id(1)]))[task_id(1)]
        await batch.close(
            [
                closed(
                    task, State.FAILED, attempt=9, lost_deliveries=2, updated_at=START + 41, started_at=START + 42,
                    cancel_requested_at=START + 43, cancel_reason="because", progress=b"p", checkpoint=b"c",
                    failure=b"f", result=b"r", closed_at=START + 44, done_number=3, done_bits=-5, done_state=11,
                )
            ]
        )  # fmt: skip
    expected = changed(
        FULL, state=State.FAILED, attempt=9, lost_deliveries=2, updated_at=START + 41, started_at=START + 42,
        cancel_requested_at=START + 43, cancel_reason="because", progress=b"p", checkpoint=b"c", failure=b"f",
        result=b"r", closed_at=START + 44, done_number=3, done_bits=-5, done_state=11, place=None, ready_at=None,
        lease_until=None, attempt_deadline=None, heartbeat_deadline=None, cancel_deadline=None, wake_at=None,
        session=None, poll=None, lease_bits=0, received=False, heartbeat_at=None,
    )  # fmt: skip
    assert plain(await read(store, 1)) == expected
    async with store.batch() as batch:
        assert await batch.lock([task_id(1)]) == {}
    assert await store.next_alarm() is None


@pytest.mark.parametrize(("number", "bits"), [(2, 77), (1, 76)])
async def test_close_is_fenced(store: Store, number: int, bits: int) -> None:
    """LEASE-05: a row with another lease is not closed, and the whole batch is undone."""
    task = await insert_leased(store, 1)
    await insert(store, new_task(2))
    with pytest.raises(StoreFault):
        async with store.batch() as batch:
            await batch.lock([task.id, task_id(2)])
            await batch.close([closed(new_task(2)), closed(changed(task, lease_number=number, lease_bits=bits))])
    assert await read(store, 1) == task
    assert (await read(store, 2)).state == State.ENQUEUED


async def test_attempts_are_listed_by_task_and_lease_number(store: Store) -> None:
    rows = [new_attempt(1, 2), new_attempt(1, 10, failure=None, worker=None), new_attempt(2, 1)]
    async with store.batch() as batch:
        await batch.record([rows[2], rows[1], rows[0], new_attempt(3, 1)])
    assert await store.attempts([task_id(2), task_id(1)]) == rows
    assert await store.attempts([task_id(9)]) == []


# keys ----------------------------------------------------------------------------------------------------------------
async def test_a_free_key_is_reserved_once(store: Store) -> None:
    """IDEM-01."""
    first, second = new_key("k", 1), new_key("k", 2, digest=b"other")
    async with store.batch() as batch:
        assert await batch.reserve_keys([first]) == {first.name}
    async with store.batch() as batch:
        assert await batch.reserve_keys([second, new_key("free", 3)]) == {new_key("free", 3).name}
        assert await batch.read_keys([second.name, new_key("none", 1).name]) == {first.name: first}


@pytest.mark.parametrize("part", ["namespace", "app", "kind"])
async def test_keys_of_other_owners_do_not_collide(store: Store, part: str) -> None:
    fields: dict[str, Any] = {part: "other"}
    one, other = new_key("k", 1), new_key("k", 2, **fields)
    async with store.batch() as batch:
        assert await batch.reserve_keys([one, other]) == {one.name, other.name}
        assert await batch.read_keys([one.name, other.name]) == {one.name: one, other.name: other}


async def test_replace_key_only_from_its_holder(store: Store) -> None:
    first = new_key("k", 1)
    async with store.batch() as batch:
        await batch.reserve_keys([first])
    later = new_key("k", 2, digest=b"new", expires_at=START + 99)
    async with store.batch() as batch:
        assert not await batch.replace_key(new_key("k", 5), later)
        assert not await batch.replace_key(new_key("none", 1), new_key("none", 2))
        assert await batch.replace_key(first, later)
        assert not await batch.replace_key(first, new_key("k", 3))
    async with store.batch() as batch:
        assert await batch.read_keys([first.name]) == {first.name: later}


async def test_keys_that_a_batch_has_no_use_for_are_free_again(store: Store) -> None:
    """But not those that another task holds, or that are not there."""
    kept, freed, others = new_key("kept", 1), new_key("freed", 2), new_key("others", 3)
    async with store.batch() as batch:
        await batch.reserve_keys([others])
    async with store.batch() as batch:
        await batch.reserve_keys([kept, freed])
        await batch.free_keys([freed])
    async with store.batch() as batch:
        found = await batch.read_keys([kept.name, freed.name, others.name])
        assert set(found) == {kept.name, others.name}
        assert await batch.reserve_keys([freed, others]) == {freed.name}


async def test_trim_keys_spares_the_living_and_the_open(store: Store, clock: SteppedClock) -> None:
    """IDEM-02, and a key lives at least until its task has closed."""
    await insert(store, new_task(1), new_task(2))
    await close(store, closed(new_task(2)))
    keys = [new_key(f"k{n}", n, expires_at=START + n * SECOND) for n in (1, 2, 3, 4)]
    async with store.batch() as batch:
        await batch.reserve_keys(keys)
    clock.advance(3)
    async with store.batch() as batch:
        assert await batch.trim_keys(10, 60 * SECOND) == 3
    async with store.batch() as batch:
        left = await batch.read_keys([key.name for key in keys])
    assert set(left) == {keys[0].name, keys[3].name}
    assert left[keys[0].name].expires_at == clock.now() + 60 * SECOND


async def test_trim_keys_is_bounded(store: Store) -> None:
    async with store.batch() as batch:
        await batch.reserve_keys([new_key(f"k{n}", n, expires_at=START) for n in range(5)])
    counts = []
    for _ in range(3):
        async with store.batch() as batch:
            counts.append(await batch.trim_keys(2, 60_000_000))
    assert counts == [2, 2, 1]


# alarms and the clock ------------------------------------------------------------------------------------------------
async def test_due_finds_what_the_clock_has_reached_oldest_first(store: Store, clock: SteppedClock) -> None:
    await insert(
        store,
        new_task(1, wake_at=START + 2 * SECOND),
        new_task(2, wake_at=START + SECOND),
        new_task(3, wake_at=START + 2 * SECOND + 1),
        new_task(4, wake_at=None),
        new_task(5, wake_at=START),
    )
    assert await store.next_alarm() == START
    async with store.batch() as batch:
        assert ids(await batch.due(10)) == [5]
    clock.advance(2)
    async with store.batch() as batch:
        assert ids(await batch.due(2)) == [5, 2]
        assert ids(await batch.due(2, START)) == [2, 1]
    assert await store.next_alarm(START) == START + SECOND
    assert await store.next_alarm(START + 3 * SECOND) is None
    async with store.batch() as batch:
        found = await batch.due(10)
        assert ids(found) == [5, 2, 1]
        assert all(task.payload is None for task in found)
        assert batch.now == clock.now()


async def test_a_batch_has_one_reading_of_the_clock(store: Store, clock: SteppedClock) -> None:
    await insert(store, new_task(1))
    async with store.batch() as batch:
        clock.advance(1)
        await batch.lock([task_id(1)])
        first = batch.now
        assert first == clock.now()
        clock.advance(1)
        await batch.claim([Demand("lane-1", 1)])
        assert batch.now == first
    assert store.now() == clock.now()


async def test_a_batch_that_locks_nothing_knows_the_time(store: Store, clock: SteppedClock) -> None:
    async with store.batch() as batch:
        assert batch.now == clock.now()
        await batch.lock([task_id(1)])
        assert batch.now == clock.now()
    assert await store.next_alarm() is None


# lists ---------------------------------------------------------------------------------------------------------------
async def test_find_lists_open_and_closed_newest_first(store: Store) -> None:
    await insert(store, *(new_task(n) for n in range(1, 6)))
    await close(store, closed(new_task(2), result=b"result"), closed(new_task(4)))
    found = await store.find(Filter(namespace="default", limit=10))
    assert ids(found) == [5, 4, 3, 2, 1]
    assert all(task.payload is None and task.result is None for task in found)


async def test_find_pages_without_gap_or_repeat(store: Store) -> None:
    """B054: as many pages as it takes, each from before the last id on."""
    await insert(store, *(new_task(n) for n in range(1, 24)))
    await close(store, *(closed(new_task(n)) for n in range(1, 24, 3)))
    seen: list[int] = []
    before = None
    while page := await store.find(Filter(namespace="default", limit=5, before=before)):
        seen += ids(page)
        before = page[-1].id
    assert seen == list(range(23, 0, -1))


@pytest.mark.parametrize(
    ("filter", "found"),
    [
        ({"state": int(State.ENQUEUED)}, [6, 3, 1]),
        ({"state": int(State.SUCCEEDED)}, [5]),
        ({"state": int(State.FAILED)}, [4]),
        ({"queue": "mail"}, [5, 3]),
        ({"type": "resize"}, [6]),
        ({"since": START + 5}, [6, 5]),
        ({"queue": "mail", "state": int(State.SUCCEEDED)}, [5]),
        ({"queue": "mail", "type": "resize"}, []),
        ({"limit": 2}, [6, 5]),
        ({"before": task_id(4)}, [3, 1]),
        ({"namespace": "other"}, [2]),
        ({"namespace": "none"}, []),
        ({"open": True}, [6, 3, 1]),
        ({"open": True, "state": int(State.FAILED)}, []),
        ({"without_type": "resize"}, [5, 4, 3, 1]),
        ({"without_type": "resize", "type": "resize"}, []),
    ],
)
async def test_find_filters(store: Store, filter: dict[str, object], found: list[int]) -> None:
    await insert(
        store,
        new_task(1, created_at=START + 1),
        new_task(2, created_at=START + 2, namespace="other"),
        new_task(3, created_at=START + 3, queue="mail"),
        new_task(4, created_at=START + 4),
        new_task(5, created_at=START + 5, queue="mail"),
        new_task(6, created_at=START + 6, type="resize"),
    )
    await close(store, closed(new_task(4), State.FAILED), closed(new_task(5)))
    query = Filter(**({"namespace": "default", "limit": 10} | filter))  # type: ignore[arg-type]
    assert ids(await store.find(query)) == found


async def test_read_gives_open_and_closed_tasks_whole(store: Store) -> None:
    await insert(store, new_task(1), new_task(2))
    await close(store, closed(new_task(2), result=b"result"))
    found = await store.read([task_id(n) for n in (1, 2, 3)])
    assert set(found) == {task_id(1), task_id(2)}
    assert (found[task_id(1)].payload, found[task_id(1)].headers) == (b"payload", b"headers")
    assert (found[task_id(2)].payload, found[task_id(2)].result) == (b"payload", b"result")
    assert await store.read([]) == {}


# workers, pulse, keys of the API -------------------------------------------------------------------------------------
async def test_sessions_are_put_locked_and_deleted(store: Store) -> None:
    one = new_session(-(2**63), identity="Ω")
    async with store.batch() as batch:
        assert await batch.lock_session(one.incarnation) is None
        await batch.put_session(one)
    again = new_session(-(2**63), epoch=2, queues="a,b", slots=3, build="b2", seen_at=START + 9, ends_at=START + 10)
    async with store.batch() as batch:
        assert await batch.lock_session(one.incarnation) == one
        await batch.put_session(again)
        await batch.put_session(new_session(5, namespace="other"))
    assert await store.sessions("default") == [again]
    async with store.batch() as batch:
        await batch.delete_sessions([one.incarnation, 99])
    assert await store.sessions("default") == []
    assert len(await store.sessions("other")) == 1


async def test_ending_sessions(store: Store, clock: SteppedClock) -> None:
    async with store.batch() as batch:
        await batch.put_session(new_session(1, ends_at=START + SECOND))
        await batch.put_session(new_session(2, ends_at=START + 3 * SECOND))
        await batch.put_session(new_session(3))
        await batch.put_session(new_session(4, ends_at=START))
    clock.advance(1)
    async with store.batch() as batch:
        assert [session.incarnation for session in await batch.ending_sessions(10)] == [4, 1]
    async with store.batch() as batch:
        assert [session.incarnation for session in await batch.ending_sessions(1)] == [4]


async def test_the_pulse_is_there_from_the_start(store: Store) -> None:
    async with store.batch() as batch:
        assert await batch.lock_pulse() == await batch.pulse() == Pulse(alive_at=0, hold_until=0)
        await batch.put_pulse(Pulse(alive_at=START, hold_until=START + 1))
    async with store.batch() as batch:
        assert await batch.pulse() == await batch.lock_pulse() == Pulse(alive_at=START, hold_until=START + 1)


async def test_api_keys(store: Store) -> None:
    assert await store.api_keys() == {}
    await store.add_api_key(b"hash-1", "one", "ci")
    await store.add_api_key(b"hash-2", "two", "laptop")
    assert await store.api_keys() == {b"hash-1": "one", b"hash-2": "two"}


# retention -----------------------------------------------------------------------------------------------------------
async def test_trim_closed_deletes_the_oldest_first_with_their_attempts(store: Store) -> None:
    await insert(store, *(new_task(n) for n in range(1, 6)))
    async with store.batch() as batch:
        await batch.record([new_attempt(n, 1) for n in range(1, 6)])
    await close(store, *(closed(new_task(n), closed_at=START - n) for n in range(1, 5)))
    counts = []
    for _ in range(3):
        async with store.batch() as batch:
            counts.append(await batch.trim_closed(START - 1, 2))
        if len(counts) == 1:
            assert set(await store.read([task_id(n) for n in range(1, 6)])) == {task_id(n) for n in (1, 2, 5)}
    assert counts == [2, 1, 0]
    assert set(await store.read([task_id(n) for n in range(1, 6)])) == {task_id(1), task_id(5)}
    assert [a.task_id for a in await store.attempts([task_id(n) for n in range(1, 6)])] == [task_id(1), task_id(5)]


async def test_migrate_may_be_repeated(store: Store) -> None:
    await insert(store, new_task(1))
    assert await store.migrate() == []
    assert len(await store.read([task_id(1)])) == 1
