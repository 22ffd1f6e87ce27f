"""What a fault of one row, or of the database after a commit, costs: as little as can be."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from perdure.api.server import Server
from perdure.client.http import HttpService
from perdure.core import messages as m
from perdure.core.errors import NotFound
from perdure.engine.engine import Engine
from perdure.store.base import StoreFault
from perdure.store.sqlite import SqliteStore
from tests.api.calls import Rest, enqueue, poll, task, until


async def test_a_row_that_cannot_be_read_is_left_out_of_polls_and_lists(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its neighbours are delivered; the log names it; its delivery lease ends by itself."""
    remote = HttpService(server.url)
    bad, good = await enqueue(remote, task("bad", headers={"a": "b"}), task())
    with sqlite3.connect(tmp_path / "jobs.db") as connection:
        connection.execute("update payloads set headers = x'c1' where headers is not null")
        connection.execute("update tasks set progress = x'c1' where type = 'bad'")
    connection.close()
    assert [delivery.task_id for delivery in await poll(remote)] == [good]
    assert f"task {bad} cannot be read" in caplog.text
    assert [view.task_id for view in (await remote.find(m.Find())).tasks] == [good]
    await remote.close()


async def test_an_accepted_task_is_answered_without_another_look(
    rest: Rest, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault after the commit would invite a client without a key to make a second task (IDEM-06)."""

    async def away(task_ids: Any) -> Any:
        raise StoreFault("away")

    body = {"type": "t", "payload": 1, "idempotency_key": "k", "delay": "1h"}
    with monkeypatch.context() as patched:
        patched.setattr(store, "read", away)
        made = await rest("POST", "/v1/tasks", body)
        again = await rest("POST", "/v1/tasks", body)
    assert (made.status, again.status) == (202, 503)
    job = (await rest("GET", f"/v1/jobs/{made.body['id']}")).body
    assert {name: made.body[name] for name in job if name != "result_url"} == {
        name: value for name, value in job.items() if name != "result_url"
    }
    again = await rest("POST", "/v1/tasks", body)
    assert (again.status, again.body["duplicate"], again.body["created_at"]) == (202, True, job["created_at"])


async def test_a_retry_is_answered_without_another_look(
    server: Server, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = HttpService(server.url)
    [closed] = await enqueue(remote)
    await remote.cancel(m.Cancel(closed))
    reads, read = [], store.read

    async def once(task_ids: Any) -> Any:
        reads.append(task_ids)
        return await read(task_ids)

    monkeypatch.setattr(store, "read", once)
    made = await remote.retry(m.Retry(closed))
    assert (made.state, len(reads)) == ("ENQUEUED", 1)
    assert await remote.retry(m.Retry(closed)) == made
    await remote.close()


async def test_a_wait_reads_once_and_another_namespace_learns_nothing_by_it(
    server: Server, engine: Engine, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SEC-05: a task of others and one that is not there are told at the same time."""
    blue, red = (HttpService(server.url, namespace=name) for name in ("blue", "red"))
    [ours] = await enqueue(blue)
    reads, read = [], store.read

    async def counted(task_ids: Any) -> Any:
        reads.append(task_ids)
        return await read(task_ids)

    monkeypatch.setattr(store, "read", counted)
    async with asyncio.timeout(5):
        for task_id in (ours, "01a22c60-3b9a-7000-9de6-012d84a3cb20"):
            with pytest.raises(NotFound):
                await red.get(m.Get(task_id, wait=20.0))
    assert len(reads) == 2
    waiting = asyncio.ensure_future(blue.get(m.Get(ours, wait=20.0, payload=False)))
    await until(lambda: len(reads) == 3)
    await blue.cancel(m.Cancel(ours))
    assert (await waiting).state == "CANCELED"
    assert len(reads) == 3
    await asyncio.gather(blue.close(), red.close())
