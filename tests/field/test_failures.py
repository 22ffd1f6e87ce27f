"""Field cases on dead letters, on actions on many jobs, and on the standing checks: B140, B159, B160, RETRY-06 to 08,
OPS-03, with real processes and both databases."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from perdure import AsyncPerdure, FatalError, RetryPolicy, TaskFailed, WorkflowContext, task, workflow
from perdure.core import bulk
from perdure.core import commands as c
from perdure.core.bulk import Action, Selection
from perdure.core.errors import NotFound
from perdure.engine import bulk as driver
from perdure.store.postgres import PostgresStore
from tests.engine.drive import Drive, running
from tests.worker.processes import running_server_process

JOBS = 1_500


@task(name="field_failing", retries=RetryPolicy(max_attempts=1))
async def failing(ctx: Any, number: int) -> None:
    raise FatalError(f"order {number} is not there")


async def dead_letters(app: AsyncPerdure, count: int) -> list[str]:
    jobs = await app.enqueue_many(failing, range(count))
    async with app.worker(slots=50):
        for job in jobs:
            with pytest.raises(TaskFailed):
                await job.result(120)
    return [job.id for job in jobs]


async def all_tasks(app: AsyncPerdure, **filter: Any) -> list[Any]:
    found: list[Any] = []
    cursor: str | None = None
    while True:
        page = await app.find(limit=1000, cursor=cursor, **filter)
        found += page.tasks
        if page.next is None:
            return found
        cursor = page.next


async def test_a_server_that_is_killed_in_the_middle_of_a_retry_of_many(url: str, tmp_path: Path) -> None:
    """RETRY-08: another one goes on where it was; each dead letter is retried once, and the counts are right."""
    async with AsyncPerdure(url) as app:
        old = await dead_letters(app, JOBS)
    with running_server_process(url, tmp_path) as (server, pid):
        async with AsyncPerdure(server) as app:
            [group] = await app.failures()
            assert (group.count, group.message) == (JOBS, "order <n> is not there")
            action = await app.retry_tasks(failure_group=group.group)
            async with asyncio.timeout(60):
                while not (await action.status()).done:
                    await asyncio.sleep(0.005)
            os.kill(pid, signal.SIGKILL)
    with running_server_process(url, tmp_path) as (server, _):
        async with AsyncPerdure(server) as app:
            half = await app.bulk(action.id).status()
            assert (half.state, 0 < half.done < JOBS) == ("RUNNING", True)
            ended = await app.bulk(action.id).result(180)
            assert (ended.state, ended.done, ended.failed) == ("SUCCEEDED", JOBS, 0)
            new = await all_tasks(app, state="ENQUEUED")
            assert Counter(view.retry_of for view in new) == Counter(old)
            assert await app.failures() == []


async def test_b140_many_who_delete_mark_and_trim_at_once(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three servers retry, delete and trim the same dead letters: no deadlock, and none is retried twice."""
    monkeypatch.setattr(bulk, "STEP", 20)
    monkeypatch.setattr(driver, "BREATH", 0.0)
    stores = [PostgresStore(postgres_database) for _ in range(3)]
    await stores[0].migrate()
    for store in stores:
        await store.open()
    try:
        async with (
            running(stores[0], seed=1) as one,
            running(stores[1], seed=2) as two,
            running(stores[2], seed=3) as three,
        ):
            for _ in range(300):
                await one.enqueue(retry=RetryPolicy(max_attempts=1))
            for leased in await one.poll(300):
                await one.fail(leased)
            actions = [await begin(one, "retry"), await begin(two, "delete"), await begin(three, "retry")]
            drives = (one, two, three)
            await asyncio.gather(*(ring(drive) for drive in drives), trim(three))
            for action_id in actions:
                await end(one, action_id)
            ready = await one.poll(400)
            assert max(Counter(leased.retry_of for leased in ready).values(), default=1) == 1
            assert await stores[0].failure_groups("default", -(2**63), 10) == []
    finally:
        for store in stores:
            await store.close()


async def begin(drive: Drive, name: str) -> bytes:
    action = Action(action=name, selection=Selection(namespace="default", among="dead"), total=300)
    made: c.Enqueued = await drive.one(bulk.draft(action, "", "", b""))
    return made.task_id


async def ring(drive: Drive) -> None:
    for _ in range(20):
        await drive.ring()
        await asyncio.sleep(0.01)


async def trim(drive: Drive) -> None:
    for _ in range(20):
        await drive.one(c.Trim(closed_before=drive.engine.now(), limit=7))
        await asyncio.sleep(0.005)


async def end(drive: Drive, action_id: bytes) -> None:
    async with asyncio.timeout(60):
        while not (found := await drive.engine.store.read([action_id])) or found[action_id].closed_at is None:
            if not found:
                return  # retention took the action itself
            await asyncio.sleep(0.01)


async def test_workflow_runs_that_failed_are_dead_letters_until_somebody_has_resolved_them(app: AsyncPerdure) -> None:
    """RETRY-06, OPS-14; a run that its retry policy repeats is none."""

    @workflow(name="field_fails", retries=RetryPolicy(max_attempts=3, delays=(0.01,)))
    async def fails(ctx: WorkflowContext, number: int) -> None:
        raise ValueError(f"no stock of {number}")

    async with app.worker():
        run = await app.start_workflow(fails, 7, id="w1")
        with pytest.raises(TaskFailed):
            await run.result(60)
        [group] = await app.failures()
        assert (group.kind, group.type, group.count, group.message) == ("workflow", "field_fails", 1, "no stock of <n>")
        counted = await app.count_tasks("retry")
        assert counted.total == 0, "jobs only"


async def test_b159_b160_a_list_of_failures_names_the_reason(app: AsyncPerdure) -> None:
    """And what the queue waits for is found by the checks."""
    await dead_letters(app, 2)
    await app.enqueue("field_unknown", queue="field_nobody")
    [group] = await app.failures()
    assert (group.error, group.message) == ("FatalError", "order <n> is not there")
    view = await app.get(group.last_task_id)
    assert view.failure is not None and view.failure.type == "FatalError" and "FatalError" in view.failure.stack
    found = [one.detail for one in (await app.doctor()).findings if one.check != "no_owner"]
    assert ["field_nobody" in detail for detail in found] == [True]


async def test_an_edited_job_runs_with_its_new_payload(app: AsyncPerdure) -> None:
    [old] = await dead_letters(app, 1)
    again = await app.retry(old, payload=8)
    view = await again.status()
    assert (view.retry_of, view.type) == (old, "field_failing")
    cleared = await app.cancel_tasks("not needed", type="field_failing")
    assert (await cleared.result(60)).done == 1
    gone = await app.delete_tasks(type="field_failing", state="FAILED")
    assert (await gone.result(60)).done == 1
    with pytest.raises(NotFound):
        await app.get(old)
    assert (await again.status()).cancel_reason == "not needed"


async def test_many_retries_run_to_their_end(app: AsyncPerdure) -> None:
    """RETRY-07: with the code that is deployed by then."""

    @task(name="field_was_broken", retries=RetryPolicy(max_attempts=1))
    async def broken(ctx: Any, number: int) -> int:
        if not fixed:
            raise FatalError("not yet")
        return number

    fixed = False
    jobs = await app.enqueue_many(broken, range(50))
    async with app.worker():
        for job in jobs:
            with pytest.raises(TaskFailed):
                await job.result(60)
        fixed = True
        ended = await (await app.retry_tasks(type="field_was_broken", error="FatalError")).result(60)
        assert ended.done == 50
        new = [view for view in await all_tasks(app, type="field_was_broken") if view.retry_of]
        assert sorted([await app.job(view.task_id).result(60) for view in new]) == list(range(50))
