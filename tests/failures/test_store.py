"""What store/failures.py promises, held against all three stores."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.core.bulk import Selection
from perdure.core.failures import fingerprint
from perdure.core.model import SECOND, Failure, Task, pack
from perdure.core.states import Kind, State
from perdure.store.base import Filter, Store
from perdure.store.failures import FailureCount
from tests.clock import START
from tests.store.rows import (
    blocked,
    changed,
    close,
    closed,
    insert,
    leased,
    new_attempt,
    new_session,
    new_task,
    task_id,
)
from tests.store.runs import insert_runs, new_run

BOOM = pack(Failure(message="boom 1", type="ValueError"))
FIRST = -(2**63)
OTHER = pack(Failure(message="no 'x'", type="KeyError"))


async def fail(store: Store, n: int, failure: bytes = BOOM, *, at: int = START, **fields: Any) -> Task:
    """A dead letter."""
    await insert(store, new_task(n, **fields))
    task = closed(new_task(n, **fields), State.FAILED, failure=failure, closed_at=at)
    async with store.batch() as batch:
        await batch.lock([task.id])
        await batch.close([task])
        await batch.mark_failed([task])
    return task


async def retry(store: Store, old: int, new: int) -> None:
    await insert(store, new_task(new, retry_of=task_id(old)))
    async with store.batch() as batch:
        await batch.mark_retried({task_id(old): task_id(new)})


async def groups(store: Store, most: int = 100, namespace: str = "default") -> dict[int, bytes]:
    return {number: task.id for number, task in await store.failure_groups(namespace, FIRST, most)}


def selection(among: str, **fields: Any) -> Selection:
    return Selection(namespace="default", among=among, **fields)


async def picked(store: Store, wanted: Selection, window: int = 100) -> list[int]:
    """Numbers of all jobs of a selection, looked for in windows."""
    found: list[int] = []
    before: bytes | None = None
    while True:
        part = await store.pick(wanted, window, before)
        assert len(part.ids) <= window
        found += [int.from_bytes(i, "big") for i in part.ids]
        if part.last is None:
            return found
        before = part.last


async def test_dead_letters_are_grouped_and_counted(store: Store) -> None:
    one, two = fingerprint(await fail(store, 1, at=START + 5)).group, fingerprint(await fail(store, 2, OTHER)).group
    await fail(store, 3, at=START + 3)
    await fail(store, 4, at=START + 9)
    assert await groups(store) == {one: task_id(4), two: task_id(2)}
    found = await store.count_failures("default", [one, two, 77], 100)
    assert sorted(found, key=lambda f: f.newest) == [
        FailureCount(two, 1, START, START, task_id(2)),
        FailureCount(one, 3, START + 3, START + 9, task_id(4)),
    ]
    assert await store.count_failures("default", [one], 2) == [FailureCount(one, 2, START + 3, START + 9, task_id(4))]
    assert await store.count_failures("default", [], 2) == []


async def test_groups_are_brief_and_of_one_namespace(store: Store) -> None:
    task = await fail(store, 1)
    await fail(store, 2, namespace="other")
    [(number, found)] = await store.failure_groups("default", FIRST, 10)
    assert found == changed(task, payload=None, headers=None, result=None, lease_bits=0, rowid=0)
    assert number == fingerprint(task).group
    assert await groups(store, namespace="other") == {number: task_id(2)}
    assert await groups(store, namespace="third") == {}


async def test_groups_stop_at_a_bound(store: Store) -> None:
    for n in range(1, 6):
        await fail(store, n, pack(Failure(message="x" * n)))
    numbers = list(await groups(store, 5))
    assert numbers == sorted(numbers) and len(numbers) == 5
    assert list(await groups(store, 3)) == numbers[:3]
    later = await store.failure_groups("default", numbers[2] + 1, 9)
    assert [number for number, _ in later] == numbers[3:]
    assert [number for number, _ in await store.failure_groups("default", numbers[4], 9)] == numbers[4:]


async def test_what_was_retried_is_not_counted_any_more(store: Store) -> None:
    """X-51."""
    group = fingerprint(await fail(store, 1)).group
    await fail(store, 2)
    await retry(store, 1, 9)
    assert await store.retried_by([task_id(1), task_id(2), task_id(3)]) == {task_id(1): task_id(9)}
    [counted] = await store.count_failures("default", [group], 10)
    assert counted.count == 1
    assert [task.id for task in await store.find(Filter(namespace="default", limit=10, group=group))] == [task_id(2)]
    await retry(store, 2, 10)
    assert await groups(store) == {}
    await retry(store, 77, 11)


async def test_a_run_that_people_have_resolved_is_no_dead_letter_any_more(store: Store) -> None:
    """OPS-14."""
    await fail(store, 1, kind=Kind.WORKFLOW)
    assert await store.resolve(task_id(1), b"done by hand")
    assert await groups(store) == {}
    assert await store.old_failures(START + 9, 10) == []


async def test_a_group_is_listed_newest_first(store: Store) -> None:
    group = fingerprint(await fail(store, 1)).group
    await fail(store, 2, OTHER)
    await fail(store, 3, queue="slow")
    await fail(store, 4)
    await fail(store, 5, kind=Kind.WORKFLOW)

    async def found(**fields: Any) -> list[int]:
        filter = Filter(namespace="default", **({"limit": 10, "group": group} | fields))
        return [int.from_bytes(task.id, "big") for task in await store.find(filter)]

    assert await found() == [5, 4, 3, 1]
    assert await found(limit=2) == [5, 4]
    assert await found(before=task_id(4)) == [3, 1]
    assert await found(kind=Kind.JOB, queue="slow") == [3]
    assert await found(group=-1) == []


async def test_jobs_are_picked_in_windows(store: Store) -> None:
    await insert(store, *(new_task(n, queue="slow" if n % 3 else "fast") for n in range(1, 11)))
    await insert(store, new_task(11, namespace="other"), new_task(12, kind=Kind.ACTIVITY))
    assert await picked(store, selection("open")) == list(range(10, 0, -1))
    assert await picked(store, selection("open", queue="fast"), 2) == [9, 6, 3]
    assert await picked(store, selection("open", type="email", state=State.ENQUEUED, since=START), 3) == [
        *range(10, 0, -1)
    ]
    assert await picked(store, selection("open", since=START + 1)) == []
    assert await picked(store, selection("closed")) == []
    first = await store.pick(selection("open", queue="fast"), 4)
    assert (first.ids, first.last) == ([task_id(9)], task_id(9))


async def test_closed_jobs_are_picked_by_state_and_failure(store: Store) -> None:
    await insert(store, new_task(1), new_task(2))
    await close(store, closed(new_task(1)), closed(new_task(2), State.CANCELED))
    group = fingerprint(await fail(store, 3)).group
    await fail(store, 4, OTHER)
    await fail(store, 5)
    await retry(store, 5, 9)
    assert await picked(store, selection("closed"), 2) == [5, 4, 3, 2, 1]
    assert await picked(store, selection("closed", state=State.CANCELED)) == [2]
    assert await picked(store, selection("closed", state=State.FAILED, fresh=True)) == [4, 3]
    assert await picked(store, selection("dead"), 1) == [4, 3]
    assert await picked(store, selection("dead", group=group)) == [3]
    assert await picked(store, selection("dead", error="KeyError")) == [4]
    assert await picked(store, selection("dead", error="KeyError", type="sms")) == []


async def test_deleted_jobs_leave_nothing(store: Store) -> None:
    await fail(store, 1)
    await insert(store, new_task(2))
    await close(store, closed(new_task(2)))
    async with store.batch() as batch:
        await batch.record([new_attempt(1, 1), new_attempt(2, 1)])
    async with store.batch() as batch:
        assert await batch.delete_closed([task_id(1), task_id(3)]) == 1
        assert await batch.delete_closed([]) == 0
    assert list(await store.read([task_id(1), task_id(2)])) == [task_id(2)]
    assert [attempt.task_id for attempt in await store.attempts([task_id(1), task_id(2)])] == [task_id(2)]
    assert await groups(store) == {}
    assert (await store.read([task_id(2)]))[task_id(2)].payload == b"payload"


async def test_retention_takes_groups_along(store: Store) -> None:
    await fail(store, 1)
    async with store.batch() as batch:
        assert await batch.trim_closed(START + 1, 10) == 1
    assert await groups(store) == {}
    assert await picked(store, selection("dead")) == []


async def test_a_row_that_is_being_deleted_is_not_marked(shared: Store) -> None:
    """B140: whoever marks never waits, whoever deletes waits in order of id."""
    await fail(shared, 1)
    async with shared.batch() as deleting:
        await deleting.delete_closed([task_id(1)])
        async with shared.batch() as marking:
            await marking.mark_retried({task_id(1): task_id(2)})
    assert await shared.retried_by([task_id(1)]) == {}
    await fail(shared, 3)
    async with shared.batch() as deleting:
        async with shared.batch() as marking:
            await marking.mark_retried({task_id(3): task_id(4)})
            waiting = await blocked(deleting.delete_closed([task_id(3)]))
        assert await waiting == 1
    assert await shared.read([task_id(3)]) == {}


async def test_rows_that_somebody_should_look_at(store: Store) -> None:
    at = START - 100 * SECOND
    await insert(
        store,
        new_task(1),
        new_task(2, place=None),
        new_task(3, place=None, wake_at=START + 1),
        leased(new_task(4)),
        new_task(6, place=None, state=State.WAITING, kind=Kind.TIMER),
    )
    async with store.batch() as batch:
        held = await batch.lock([task_id(4)])
        task = leased(held[task_id(4)])
        task.attempt_started_at = at
        await batch.change([task])
    await insert_runs(store, new_run(5))
    tasks, last = await store.suspects(b"", 10, START)
    assert [int.from_bytes(task.id, "big") for task in tasks] == [2, 4, 5, 6]
    assert last is None
    assert all(task.payload is None for task in tasks)
    tasks, last = await store.suspects(b"", 3, at)
    assert ([int.from_bytes(task.id, "big") for task in tasks], last) == ([2], task_id(3))
    tasks, last = await store.suspects(task_id(3), 3, at)
    assert ([int.from_bytes(task.id, "big") for task in tasks], last) == ([5, 6], task_id(6))


async def test_old_failures_and_sessions_of_all_namespaces(store: Store) -> None:
    await fail(store, 1)
    await fail(store, 2, namespace="other", at=START + 5)
    await fail(store, 3, at=START - 5)
    await retry(store, 3, 9)
    assert await store.old_failures(START + 1, 10) == [("default", "email", task_id(1))]
    assert len(await store.old_failures(START + 9, 10)) == 2
    assert len(await store.old_failures(START + 9, 1)) == 1
    async with store.batch() as batch:
        await batch.put_session(new_session(1))
        await batch.put_session(new_session(2, namespace="other"))
    assert sorted(session.incarnation for session in await store.every_session(10)) == [1, 2]
    assert len(await store.every_session(1)) == 1


@pytest.mark.parametrize("name", ["fsync", "journal_mode", "synchronous", "synchronous_commit"])
async def test_settings_are_those_of_a_database_that_keeps_what_it_was_given(store: Store, name: str) -> None:
    good = {"fsync": "on", "journal_mode": "wal", "synchronous": "2", "synchronous_commit": "on"}
    assert (await store.settings()).get(name, good[name]) == good[name]
