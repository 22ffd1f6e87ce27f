"""Watches: answered by what is committed, in time, whatever hints do (JOB-14, B116, B159)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure.core.errors import Unavailable
from perdure.core.states import State
from perdure.engine.watches import Watches
from perdure.store.base import Store, StoreFault
from tests.engine.drive import Drive, running


@pytest.mark.parametrize("whole", [True, False])
async def test_a_closed_task_answers_its_watch(drive: Drive, whole: bool) -> None:
    task_id = await drive.enqueue(payload=b"in")
    watching = asyncio.create_task(drive.engine.watch(task_id, 20, namespace="default", whole=whole))
    await asyncio.sleep(0)
    await drive.succeed(await drive.lease())
    task = await asyncio.wait_for(watching, 5)
    assert task is not None
    assert (task.state, task.result, task.attempt) == (State.SUCCEEDED, b"result", 1)
    if whole:
        assert task.payload == b"in"


async def test_a_task_of_another_namespace_is_not_there(drive: Drive) -> None:
    """SEC-05: told at once, as for an id that nobody has; a later end of the task tells nothing either."""
    task_id = await drive.enqueue()
    assert await asyncio.wait_for(drive.engine.watch(task_id, 20, namespace="other"), 5) is None
    await drive.succeed(await drive.lease())
    assert await drive.engine.watch(task_id, 0, namespace="other") is None


async def test_another_server_closes_the_task(store: Store) -> None:
    """No hint at all: it is seen within the repeat."""
    async with running(store, seed=1, incarnation=1) as one, running(store, seed=2, incarnation=2) as other:
        task_id = await one.enqueue()
        watching = asyncio.create_task(one.engine.watch(task_id, 20, namespace="default"))
        await asyncio.sleep(0)
        await other.succeed(await other.lease())
        task = await asyncio.wait_for(watching, 5)
        assert task is not None
        assert task.state == State.SUCCEEDED


class _Away:
    async def read(self, task_ids: Any) -> Any:
        raise StoreFault("away")


async def test_a_watch_ends_in_time_while_the_database_is_away() -> None:
    watches = Watches(_Away())  # type: ignore[arg-type]
    async with asyncio.timeout(5):
        with pytest.raises(Unavailable):
            await watches.watch(b"\x01" * 16, 0.1, namespace="default", whole=True)
    assert not watches
