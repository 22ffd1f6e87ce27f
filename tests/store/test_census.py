"""Bounded counts of what lanes hold: the same on every store."""

from __future__ import annotations

from perdure.core.lanes import lane, lanes_of, queue_of
from perdure.core.model import SECOND
from perdure.core.states import State
from perdure.store.base import Store
from perdure.store.census import LaneCount, OpenRun
from tests.clock import START
from tests.store.rows import changed, leased, new_task
from tests.store.runs import new_run, new_workflow

MAIL, PHOTOS, OTHER = lane("default", "mail"), lane("default", "photos"), lane("default2", "mail")


async def insert(store: Store, *tasks: object) -> None:
    async with store.batch() as batch:
        await batch.insert(tasks)  # type: ignore[arg-type]


def waiting(n: int, lane: str, state: State, seconds: int = 60) -> object:
    at = START + seconds * SECOND
    return new_task(n, lane=lane, place=None, state=state, ready_at=at, wake_at=at)


async def count(store: Store, most: int = 100) -> list[LaneCount]:
    return await store.count_lanes(*lanes_of("default"), most)


async def test_an_empty_database_has_no_lanes(store: Store) -> None:
    assert await count(store) == []


async def test_lanes_are_counted_by_what_their_tasks_wait_for(store: Store) -> None:
    """B157: what is queued is not shown as running."""
    await insert(
        store,
        *(new_task(n, lane=MAIL, updated_at=START + n) for n in range(1, 4)),
        waiting(10, MAIL, State.ENQUEUED),
        waiting(11, MAIL, State.RETRY_WAIT),
        waiting(12, PHOTOS, State.RETRY_WAIT),
        leased(new_task(13, lane=PHOTOS)),
        new_task(14, lane=OTHER),
        waiting(15, OTHER, State.ENQUEUED),
        leased(new_task(16, lane=OTHER), session=8),
    )
    assert await count(store) == [
        LaneCount(MAIL, ready=3, delayed=1, retrying=1, ready_since=START + 1),
        LaneCount(PHOTOS, running=1, retrying=1),
    ]


async def test_the_oldest_ready_one_is_looked_for_in_every_priority(store: Store) -> None:
    """B055: what a stream of higher priority blocks is seen."""
    tasks = [new_task(n, lane=MAIL, priority=1, place=n, updated_at=START + 50 + n) for n in range(1, 5)]
    await insert(store, *tasks, new_task(9, lane=MAIL, priority=5, place=1, updated_at=START + 7))
    [found] = await count(store)
    assert found.ready_since == START + 7


async def test_counts_stop_at_their_bound(store: Store) -> None:
    """And say so: each count that reached it is a lower bound."""
    await insert(store, *(new_task(n, lane=MAIL) for n in range(1, 8)))
    await insert(store, *(leased(new_task(n, lane=PHOTOS)) for n in range(10, 13)))
    mail, photos = await count(store, 5)
    assert (mail.ready, mail.at_least) == (5, ["ready"])
    assert (photos.running, photos.at_least) == (3, [])
    photos = (await count(store, 3))[1]
    assert (photos.running, photos.at_least) == (3, ["running", "delayed", "retrying"])  # three alarms were looked at
    assert [found.lane for found in await count(store, 1)] == [MAIL, PHOTOS]


async def test_alarms_of_others_use_up_the_bound_too(store: Store) -> None:
    """The one approximation: a lane with nothing but far delays may be missing, and then nothing is claimed of it."""
    await insert(store, *(waiting(n, OTHER, State.ENQUEUED, seconds=n) for n in range(1, 6)))
    await insert(store, waiting(20, MAIL, State.ENQUEUED, seconds=100), new_task(21, lane=PHOTOS))
    assert [(found.lane, found.delayed) for found in await count(store)] == [(MAIL, 1), (PHOTOS, 0)]
    [photos] = await count(store, 5)
    assert (photos.lane, photos.at_least) == (PHOTOS, ["delayed", "retrying"])


async def test_a_thousand_lanes(store: Store) -> None:
    await insert(store, *(new_task(n, lane=lane("default", f"q{n:04}")) for n in range(1, 1_003)))
    found = await count(store)
    assert [queue_of(lane.lane) for lane in found] == [f"q{n:04}" for n in range(1, 1_001)]


async def test_what_was_claimed_is_not_ready(store: Store) -> None:
    task = new_task(1, lane=MAIL)
    await insert(store, task)
    async with store.batch() as batch:
        await batch.lock([task.id])
        await batch.lease([leased(task)])
    assert [(found.ready, found.running) for found in await count(store)] == [(0, 1)]
    async with store.batch() as batch:
        await batch.lock([task.id])
        await batch.change([changed(task, place=4)])
    assert [(found.ready, found.running) for found in await count(store)] == [(1, 0)]


def test_lanes_of_a_namespace_lie_between_two_names() -> None:
    first, last = lanes_of("a")
    ours, theirs = (
        [lane("a", queue) for queue in ("\x7e", "Ω", "a")],
        [lane(name, "q") for name in ("a ", "a!", "aa", "A")],
    )
    assert all(first < name < last for name in ours)
    assert not any(first < name < last for name in theirs)
    assert queue_of(lane("a", "q", "t")) is None


async def test_api_keys_are_listed_and_removed(store: Store) -> None:
    await store.add_api_key(b"a" * 32, "shop", "ann")
    await store.add_api_key(b"b" * 32, "default", "")
    assert [(key.hash, key.namespace, key.label) for key in await store.list_api_keys()] == [
        (b"a" * 32, "shop", "ann"), (b"b" * 32, "default", ""),
    ]  # fmt: skip
    assert await store.remove_api_key(b"a" * 32)
    assert not await store.remove_api_key(b"a" * 32)
    assert await store.api_keys() == {b"b" * 32: "default"}


async def test_open_runs_are_read_with_what_tells_how_they_go(store: Store) -> None:
    """OBS-14: of all namespaces, in one order on every store, and not more than were asked for."""
    tasks = [new_workflow(n, namespace=namespace) for n, namespace in ((1, "b"), (2, "a"), (3, "a"))]
    tasks[1].failure = b"why"
    runs = [new_run(n, f"wf{n}", event_count=n, failures=n - 1) for n in (1, 2, 3)]
    runs[2].search_attributes = b"attributes"
    async with store.batch() as batch:
        await batch.insert([*tasks, new_task(4)])
        await batch.put_runs(runs)
    found = await store.open_runs(10)
    at = tasks[0].created_at
    assert found == [
        OpenRun("a", "email", at, 2, 1, True), OpenRun("a", "email", at, 3, 2, False, b"attributes"),
        OpenRun("b", "email", at, 1, 0, False),
    ]  # fmt: skip
    assert await store.open_runs(2) == found[:2]
