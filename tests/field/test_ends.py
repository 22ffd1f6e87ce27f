"""Field cases on how a job ends and what everybody hears of it: one truth in all views, and no wait without end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from perdure import AsyncPerdure, TaskCanceled, TaskFailed, Unavailable, WaitTimeout
from perdure.api.server import App, Server
from perdure.api.service import Caller, Service
from perdure.client.embedded import EmbeddedService
from perdure.core import messages as m
from perdure.core.ids import text
from perdure.core.model import Payload, RetryPolicy, pack
from perdure.engine.engine import Engine
from perdure.sdk import handle
from perdure.sdk.client import AsyncClient
from perdure.store.base import Store
from perdure.store.sqlite import SqliteStore
from tests.api.calls import new_rest
from tests.engine.drive import Drive, running
from tests.engine.faulty import FaultyStore
from tests.field.soundness import assert_sound

RESULT = (Payload({"encoding": "json/plain"}, b"42"),)


@pytest.fixture
def faulty(store: Store) -> FaultyStore:
    return FaultyStore(store)


@pytest.fixture
async def drive(faulty: FaultyStore) -> AsyncIterator[Drive]:
    async with running(faulty) as driving:
        yield driving


async def views(engine: Engine, task_id: bytes) -> set[str]:
    """The state of a task by every way to look at it: by id, in lists, as a job, by a cancel that comes too late, and
    by waiting for it."""
    service = Service(engine, Caller("default"))
    name = text(task_id)
    found = [(await service.get(m.Get(name))).state]
    for state in (None, found[0]):
        listed = (await service.find(m.Find(state=state))).tasks
        found += [view.state for view in listed if view.task_id == name] or ["not listed"]
    found.append((await service.cancel(m.Cancel(name))).state)
    try:
        assert await AsyncClient(EmbeddedService(service)).job(name).result(5) == 42
        found.append("SUCCEEDED")
    except TaskFailed:
        found.append("FAILED")
    except TaskCanceled:
        found.append("CANCELED")
    return set(found)


async def test_b115_one_truth_after_a_break_at_the_terminal_write(drive: Drive, faulty: FaultyStore) -> None:
    """For the server that was cut off at that moment and for one that comes after it; whoever waits is released.
    Servers that are killed there: tests/faults/test_kills.py."""
    for outcome in ("succeeded", "failed", "canceled"):
        for commit in ("unknown-kept", "unknown-lost"):
            await break_at_the_end(drive, faulty, outcome, commit)
    assert {task.attempt for task in await assert_sound(drive.engine.store)} == {1}


async def break_at_the_end(drive: Drive, faulty: FaultyStore, outcome: str, commit: str) -> None:
    task_id = await drive.enqueue(retry=RetryPolicy(max_attempts=1), payload=pack(RESULT))
    task = await drive.lease()
    await drive.beat(task)
    if outcome == "canceled":
        await drive.cancel(task_id)
    waiting = asyncio.create_task(drive.engine.watch(task_id, 20, namespace="default"))
    await asyncio.sleep(0.05)
    faulty.commits, faulty.asked = [commit], 0
    fields: dict[str, Any] = {"succeeded": {"result": pack(RESULT)}, "failed": {"failure": b"\x81\xa7message\xa1x"}}
    state = await drive.complete(task, outcome, **fields.get(outcome, {}))
    assert not faulty.commits
    seen = await asyncio.wait_for(waiting, 5)
    assert seen is not None
    assert seen.state == state
    assert await views(drive.engine, task_id) == {state.name}
    async with running(faulty, seed=2) as later:
        assert await views(later.engine, task_id) == {state.name}


@pytest.mark.parametrize("timeout", [None, 10**9, "10y"])
async def test_b116_a_long_wait_ends_with_the_job(timeout: Any) -> None:
    async with AsyncPerdure("sqlite:///:memory:") as app:
        job = await app.enqueue("nobody")
        if timeout == "10y":
            timeout = "3650d"
        waiting = asyncio.create_task(job.result(timeout))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await job.cancel()
        with pytest.raises(TaskCanceled):
            await asyncio.wait_for(waiting, 5)


@pytest.mark.parametrize(("timeout", "least", "most"), [(0, 0.0, 0.5), (0.3, 0.3, 1.5), ("300ms", 0.3, 1.5)])
async def test_b116_a_short_wait_ends_on_time_with_the_state(timeout: Any, least: float, most: float) -> None:
    async with AsyncPerdure("sqlite:///:memory:") as app:
        job = await app.enqueue("nobody")
        begin = time.monotonic()
        with pytest.raises(WaitTimeout, match="ENQUEUED"):
            await job.result(timeout)
        assert least <= time.monotonic() - begin < most


async def test_b116_a_server_that_stops_during_the_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait without limit goes on when the server comes back soon, and ends as Unavailable when it does not."""
    monkeypatch.setattr(handle, "OUTAGE_SECONDS", 1.0)
    monkeypatch.setattr("perdure.client.http.RETRY_SECONDS", 0.5)
    monkeypatch.setattr("perdure.client.websocket.CONNECT_SECONDS", 0.3)
    store = SqliteStore(tmp_path / "jobs.db")
    await store.migrate()
    await store.open()
    engine = Engine(store)
    await engine.start()
    server = Server(App(engine), port=0)
    await server.start()
    port = int(server.url.rpartition(":")[2])
    async with AsyncPerdure(server.url) as app:
        job = await app.enqueue("nobody")
        waiting = asyncio.create_task(job.result())
        await asyncio.sleep(0.1)
        await server.stop()
        server = Server(App(engine), port=port)
        await server.start()
        await asyncio.sleep(0.3)
        assert not waiting.done()
        async with new_rest(server.url) as rest:
            assert (await rest("POST", f"/v1/tasks/{job.id}/cancel")).status == 202
        with pytest.raises(TaskCanceled):
            await asyncio.wait_for(waiting, 10)
        other = await app.enqueue("nobody")
        waiting = asyncio.create_task(other.result())
        await asyncio.sleep(0.1)
        await server.stop()
        with pytest.raises(Unavailable):
            await asyncio.wait_for(waiting, 15)
    await engine.stop()
    await store.close()
