"""Field cases on calls that are made twice: one job, one run, one answer for all who ask."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

from perdure import AsyncPerdure, Context, Perdure, task
from perdure.database import opened
from tests.field.soundness import assert_sound


async def test_b040_50_parallel_calls_of_five_servers_run_it_once(url: str) -> None:
    """All of them get the same job and the same result, while it runs and afterwards."""
    ran: list[int] = []

    @task
    async def asked_50_times(ctx: Context, payload: int) -> str:
        ran.append(ctx.attempt)
        await asyncio.sleep(1)
        return "once"

    async with AsyncExitStack() as stack:
        apps = [await stack.enter_async_context(AsyncPerdure(url)) for _ in range(5)]
        await stack.enter_async_context(apps[0].worker())

        async def call(number: int) -> tuple[str, bool, Any]:
            job = await apps[number % 5].enqueue(asked_50_times, 7, idempotency_key="one")
            return job.id, job.duplicate, await job.result(20)

        answers = await asyncio.gather(*(call(number) for number in range(50)))
        assert {(id, result) for id, _, result in answers} == {(answers[0][0], "once")}
        assert sorted(duplicate for _, duplicate, _ in answers) == [False] + [True] * 49
        assert await apps[3].execute(asked_50_times, 7, idempotency_key="one") == "once"
    assert ran == [1]
    async with opened(url) as store:
        assert len(await assert_sound(store)) == 1


async def test_b041_what_has_finished_is_not_entered_again(url: str) -> None:
    """By the same key at once, by another client, and after a restart of server and worker."""
    entered: list[str] = []

    def plain(ctx: Context, payload: Any) -> int:
        entered.append(ctx.task_id)
        return len(entered)

    async def asynchronous(ctx: Context, payload: Any) -> int:
        entered.append(ctx.task_id)
        return len(entered)

    kinds: list[Any] = [task(plain), task(asynchronous)]
    for _ in range(2):
        async with AsyncPerdure(url) as app, app.worker():
            for number, once in enumerate(kinds, 1):
                for _ in range(3):
                    job = await app.enqueue(once, "x", idempotency_key=once.name)
                    assert await job.result(20) == number
                    assert await app.execute(once, "x", idempotency_key=once.name) == number
    assert len(entered) == 2


def test_b041_by_the_blocking_client_too(tmp_path: Any) -> None:
    entered: list[int] = []

    @task
    def once(ctx: Context, payload: Any) -> int:
        entered.append(1)
        return len(entered)

    for _ in range(2):
        with Perdure(f"sqlite:///{tmp_path}/jobs.db") as app, app.worker():
            assert [app.enqueue(once, 1, idempotency_key="k").result(20) for _ in range(3)] == [1, 1, 1]
    assert entered == [1]
