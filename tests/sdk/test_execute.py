"""`execute`: enqueue and wait in one request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from perdure import AsyncPerdure, InvalidArgument, RetryPolicy, TaskCanceled, TaskFailed, WaitTimeout, task
from perdure.core import messages as m
from perdure.core.model import Payload

NUMBER = (Payload({"encoding": "json/plain"}, b"1"),)


@task
async def doubled(ctx: Any, number: int) -> int:
    return 2 * number


@task(retries=RetryPolicy(max_attempts=2, base=0.001))
async def break_twice(ctx: Any, payload: Any) -> None:
    raise ValueError(f"attempt {ctx.attempt}")


@task
async def ask_again(ctx: Any, payload: Any) -> int:
    if ctx.attempt == 1:
        raise TimeoutError("come back")
    return int(ctx.attempt)


@task
async def last_for(ctx: Any, seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "done"


@pytest.fixture
async def app() -> AsyncIterator[AsyncPerdure]:
    async with AsyncPerdure("sqlite:///:memory:") as app:
        yield app


@pytest.fixture
async def working(app: AsyncPerdure) -> AsyncIterator[AsyncPerdure]:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(app.worker(tasks=[doubled, break_twice, ask_again, last_for]))
        yield app


async def test_it_returns_what_the_task_returns(working: AsyncPerdure) -> None:
    assert await working.execute(doubled, 21) == 42
    assert await asyncio.gather(*(working.execute("doubled", n) for n in range(50))) == [2 * n for n in range(50)]


async def test_it_raises_as_the_task_ends(working: AsyncPerdure) -> None:
    with pytest.raises(TaskFailed, match="attempt 2"):
        await working.execute(break_twice)


async def test_retries_happen_within_it(working: AsyncPerdure) -> None:
    assert await working.execute(ask_again, retry=RetryPolicy(base=0.001)) == 2


async def test_a_job_outlives_its_caller(working: AsyncPerdure) -> None:
    """JOB-14: the wait ends, the job does not."""
    with pytest.raises(WaitTimeout):
        await working.execute(last_for, 0.5, timeout=0.05, idempotency_key="k")
    assert await working.execute(last_for, 0.5, idempotency_key="k") == "done"
    assert len((await working.find(type="last_for")).tasks) == 1


async def test_a_key_finds_a_job_that_has_closed(working: AsyncPerdure) -> None:
    """IDEM-01."""
    assert await working.execute(doubled, 1, idempotency_key="k") == 2
    assert await working.execute(doubled, 1, idempotency_key="k") == 2
    assert len((await working.find(type="doubled")).tasks) == 1


async def test_it_hears_of_a_cancel(app: AsyncPerdure) -> None:
    waiting = asyncio.create_task(app.execute("nobody", 1))
    while not (found := (await app.find(type="nobody")).tasks):
        await asyncio.sleep(0)
    await app.cancel(found[0].task_id, "not needed")
    with pytest.raises(TaskCanceled, match="not needed"):
        await waiting


async def test_options_are_those_of_enqueue(app: AsyncPerdure) -> None:
    with pytest.raises(WaitTimeout):
        await app.execute("nobody", {"a": 1}, timeout=0.01, queue="mail", priority=1)
    (view,) = (await app.find(type="nobody")).tasks
    assert (view.queue, view.priority, view.state) == ("mail", 1, "ENQUEUED")
    with pytest.raises(InvalidArgument) as caught:
        await app.execute("nobody", timeout=-1)
    assert caught.value.field == "timeout"


async def test_only_a_single_task_can_be_waited_for(app: AsyncPerdure) -> None:
    service = await app.service()
    with pytest.raises(InvalidArgument) as caught:
        await service.enqueue(m.Enqueue([m.NewTask("t", NUMBER), m.NewTask("t", NUMBER)], wait=1.0))
    assert caught.value.field == "tasks"
    with pytest.raises(InvalidArgument) as caught:
        await service.enqueue(m.Enqueue([m.NewTask("t", NUMBER)], wait=26.0))
    assert caught.value.field == "wait"
    assert (await app.find()).tasks == []
    refused = await service.enqueue(m.Enqueue([m.NewTask("", NUMBER)], wait=1.0))
    assert refused.tasks[0].error is not None
