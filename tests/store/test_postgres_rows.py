"""Writes whose rows share their columns, and writes whose rows share none."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from perdure.core.states import State
from perdure.store.postgres import PostgresStore
from tests.store.rows import changed, close, closed, insert, leased, new_key, new_task


@pytest.fixture
async def store(migrated_database: str) -> AsyncIterator[PostgresStore]:
    found = PostgresStore(migrated_database)
    await found.open()
    yield found
    await found.close()


async def test_rows_of_one_write_may_differ_in_every_column(store: PostgresStore) -> None:
    """What rows have in common travels once; rows that have nothing in common are written as well as equal ones."""
    numbers = range(1, 41)
    new = [
        new_task(n, worker=f"w{n}" if n % 3 == 0 else None, failure=b"f" * n if n % 2 else None, heartbeat_at=n)
        for n in numbers
    ]
    await insert(store, *new)
    assert list((await store.read([t.id for t in new])).values()) == new
    claims = [
        changed(
            leased(task, number=n, bits=-n, session=n), worker=f"w{n}", poll=n, wake_at=n, lease_until=n,
            received=n % 2 == 0, attempt_deadline=n if n % 4 else None, failure=task.failure,
        )
        for n, task in zip(numbers, new, strict=True)
    ]  # fmt: skip
    async with store.batch() as batch:
        await batch.lease(claims)
    assert list((await store.read([t.id for t in new])).values()) == claims
    ends = [
        closed(
            task, State.FAILED if n % 2 else State.SUCCEEDED, attempt=n, failure=b"e" * n if n % 2 else None,
            result=b"r" * n if n % 4 else None, done_bits=n, done_number=n, cancel_reason=f"c{n}" if n % 5 else None,
        )
        for n, task in zip(numbers, claims, strict=True)
    ]  # fmt: skip
    await close(store, *ends)
    found = await store.read([t.id for t in new])
    for end in ends:
        got = found[end.id]
        assert (got.state, got.attempt, got.failure, got.result) == (end.state, end.attempt, end.failure, end.result)
        for name in ("done_bits", "done_number", "cancel_reason", "worker", "lease_number"):
            assert getattr(got, name) == getattr(end, name), name


async def test_of_lost_keys_the_others_are_named(store: PostgresStore) -> None:
    """IDEM-01: also when keys of several namespaces have the same text."""
    async with store.batch() as batch:
        assert await batch.reserve_keys([new_key("a", 1)]) == {("default", "default", "task", "a")}
    other = new_key("a", 2, namespace="other")
    async with store.batch() as batch:
        assert await batch.reserve_keys([new_key("b", 3), other, new_key("a", 4)]) == {other.name, new_key("b", 3).name}
    async with store.batch() as batch:
        assert await batch.reserve_keys([other, new_key("a", 5)]) == set()
