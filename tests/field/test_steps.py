"""Field cases on steps, activities and their joins."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from perdure import (
    ActivityError,
    AsyncPerdure,
    Context,
    FatalError,
    InvalidArgument,
    PayloadTooLarge,
    RetryPolicy,
    StepError,
    TaskFailed,
    task,
    workflow,
)
from perdure.core.events import StepCompleted
from perdure.testing import jumping
from tests.field.flows import die, found, one_store, waits


@pytest.mark.parametrize("style", ["async", "plain"])
async def test_b014_a_run_whose_worker_died_between_two_steps_blocks_nobody(app: AsyncPerdure, style: str) -> None:
    """One slot and five runs of three steps. Worker after worker is killed right after a commit: the first right after
    the start of a step is recorded and before it begins, the next one commit later, and so on. Nothing that was
    recorded runs again, and all runs finish."""
    ran: list[str] = []

    def work(label: str) -> str:
        ran.append(label)
        return label

    if style == "async":

        @workflow(name="three")
        async def three(ctx: Any, run: int) -> list[str]:
            return [await ctx.step(f"step {n}", work, f"{run}.{n}") for n in range(3)]
    else:

        @workflow(name="three")
        def plain_three(ctx: Any, run: int) -> list[str]:
            return [ctx.step(f"step {n}", work, f"{run}.{n}") for n in range(3)]

    runs = [await app.start_workflow("three", n, id=f"run-{n}") for n in range(5)]
    for deadly in (1, 2, 3, 4, 1, 2, 1):
        async with asyncio.timeout(10):
            await die(app, deadly, slots=1)
    async with app.worker(slots=1):
        for n, run in enumerate(runs):
            assert await run.result(20) == [f"{n}.{k}" for k in range(3)]
    assert Counter(ran) == Counter({f"{n}.{k}": 1 for n in range(5) for k in range(3)})
    for run in runs:
        assert len(await found(run, StepCompleted)) == 3


@pytest.mark.parametrize("style", ["async", "plain"])
async def test_b023_a_step_that_timed_out_has_no_say_any_more(app: AsyncPerdure, style: str) -> None:
    """The first attempt goes on beside the second one, and comes to an end later: one success, one step after it."""
    attempts: list[str] = []
    followed: list[str] = []
    late = asyncio.Event()

    async def slow() -> str:
        attempts.append("begun")
        number = len(attempts)
        if number == 1:
            try:
                await asyncio.sleep(30)
            finally:
                late.set()
        return f"attempt {number}"

    def slow_plain() -> str:
        attempts.append("begun")
        number = len(attempts)
        if number == 1:
            time.sleep(0.5)
        return f"attempt {number}"

    def follow(value: str) -> str:
        followed.append(value)
        return f"after {value}"

    retry = RetryPolicy(max_attempts=3, base=0.001)

    @workflow
    async def limited(ctx: Any) -> str:
        return await ctx.step("follow", follow, await ctx.step("slow", slow, timeout=0.2, retries=retry))

    @workflow
    def plain_limited(ctx: Any) -> str:
        return ctx.step("follow", follow, ctx.step("slow", slow_plain, timeout=0.2, retries=retry))

    async with app.worker():
        run = await app.start_workflow(limited if style == "async" else plain_limited)
        assert await run.result(20) == "after attempt 2"
        if style == "async":
            await asyncio.wait_for(late.wait(), 5)  # it was canceled at its limit
        await asyncio.sleep(0.5)
    assert (len(attempts), followed) == (2, ["attempt 2"])
    assert len(await found(run, StepCompleted)) == 2


@pytest.mark.parametrize("call", ["step", "activity"])
def test_b044_b045_the_gaps_are_as_the_policy_says_and_the_end_comes_at_once(call: str) -> None:
    """Interval 2 s, factor 3, for steps and activities as for jobs: 2, 6 and 18 s at most, with full jitter, or from a
    table with a tenth more at most. No pause behind the last failure."""
    table, growing = RetryPolicy(max_attempts=4, delays=(2, 6, 18)), RetryPolicy(max_attempts=4, base=2, factor=3)
    times: list[float] = []

    @task
    def fail(ctx: Context, payload: None) -> None:
        times.append(env.now.timestamp())
        raise ConnectionError("no")

    @workflow
    def flow(ctx: Any, policy: str) -> str:
        retries = table if policy == "table" else growing
        try:
            if call == "step":
                ctx.step("fail", fail, None, retries=retries)
            else:
                ctx.execute_activity(fail, retries=retries)
        except (StepError, ActivityError) as error:
            return type(error).__name__
        return ""

    with jumping() as env:
        for policy in ("table", "growing"):
            times.clear()
            assert env.app.execute_workflow(flow, policy) == ("StepError" if call == "step" else "ActivityError")
            gaps = [later - earlier for earlier, later in pairwise(times)]
            assert len(gaps) == 3
            for gap, delay in zip(gaps, (2, 6, 18), strict=True):
                least, most = (delay, 1.1 * delay) if policy == "table" else (0, delay)
                assert least - 0.01 <= gap <= most + 0.01, gaps
            assert env.now.timestamp() - times[-1] < 0.1


async def test_b042_short_delays_are_kept(app: AsyncPerdure) -> None:
    """Between attempts of a step, between those of an activity, and as a sleep: 0.2 s are 0.2 s."""
    times: list[float] = []

    @task
    async def once_more(ctx: Context, payload: None) -> None:
        times.append(time.monotonic())
        if ctx.attempt == 1:
            raise ConnectionError("no")

    retry = RetryPolicy(max_attempts=2, delays=(0.2,))

    @workflow
    async def flow(ctx: Any) -> None:
        await ctx.step("step", once_more, None, retries=retry)
        await ctx.execute_activity(once_more, retries=retry)
        await ctx.sleep(0.2)
        await ctx.step("end", once_more, None, retries=retry)

    async with app.worker():
        await app.execute_workflow(flow, timeout=20)
    gaps = [times[1] - times[0], times[3] - times[2], times[4] - times[3]]
    assert all(0.19 <= gap < 0.7 for gap in gaps), gaps


@pytest.mark.parametrize("length", [-1, float("nan"), float("inf"), 10**12, 1e30, "", "1.5x", "5 minutes", True, [1]])
def test_b046_b047_odd_durations_are_an_error_at_the_call(length: Any) -> None:
    """The code may catch it; the run goes on."""
    said: list[str] = []

    @workflow
    def flow(ctx: Any) -> str:
        for ask in (lambda: ctx.sleep("nap", length), lambda: ctx.step("s", print, timeout=length)):
            try:
                ask()
            except (InvalidArgument, TypeError) as error:
                said.append(str(error))
        return "goes on"

    with jumping() as env:
        assert env.app.execute_workflow(flow) == "goes on"
    assert len(said) == 2


def test_b046_ten_years_are_ten_years() -> None:
    @workflow
    def decade(ctx: Any) -> float:
        began = ctx.now()
        ctx.sleep("decade", days=3650)
        passed: float = (ctx.now() - began).total_seconds()
        return passed

    with jumping() as env:
        assert env.app.execute_workflow(decade) == pytest.approx(3650 * 86_400, abs=1)


@pytest.mark.parametrize("style", ["async", "plain"])
async def test_b049_hundreds_of_steps_one_after_the_other_and_at_once(app: AsyncPerdure, style: str) -> None:
    """200 in a row, 500 at once with a join, a chain of 20 runs: no limit of recursion, of a request or of a row.
    That 50,000 events of one run are the limit, and what it says: tests/core/test_run_life.py."""

    async def same(n: int) -> int:
        return n

    @workflow
    async def many(ctx: Any, runs: int) -> Any:
        if runs:
            ctx.continue_as_new(runs - 1)
        for n in range(200):
            assert await ctx.step("row", same, n) == n
        return sum(await asyncio.gather(*(ctx.step("join", same, n) for n in range(500))))

    @workflow
    def plain_many(ctx: Any, runs: int) -> Any:
        if runs:
            ctx.continue_as_new(runs - 1)
        for n in range(200):
            assert ctx.step("row", same, n) == n
        return sum(ctx.parallel("join", [(same, n) for n in range(500)]))

    async with app.worker(slots=100):
        run = await app.start_workflow(many if style == "async" else plain_many, 20, id="many")
        assert await run.result(50) == sum(range(500))
    assert (await run.describe()).first_run_id
    assert len(await found(app.get_workflow_handle("many"), StepCompleted)) == 700


@pytest.mark.parametrize("branch", ["steps", "activities", "group"])
async def test_b126_a_join_hears_of_every_end(app: AsyncPerdure, branch: str) -> None:
    """A member that fails for good reaches it, by either policy; a member whose worker is killed is run again; and a
    fan-out of nothing joins at once. Killed processes: test_kills.py."""
    ran: list[int] = []

    def even(n: int) -> int:
        ran.append(n)
        if n % 2:
            raise FatalError(f"{n} is odd")
        return n

    @task(name="b126_even")
    async def even_task(ctx: Context, n: int) -> int:
        return even(n)

    function = even if branch == "steps" else even_task
    window = 4 if branch == "group" else None

    @workflow
    def join(ctx: Any, numbers: list[int]) -> Any:
        both = ctx.parallel("all", [(function, n) for n in numbers], policy="collect", window=window)
        said = [each if isinstance(each, int) else each.failure.message for each in both]
        try:
            ctx.parallel("all", [(function, n) for n in numbers], window=window)
        except (StepError, ActivityError) as error:
            return [said, type(error).__name__, error.failure.message]
        return [said]

    async with app.worker():
        assert await app.execute_workflow(join, [], timeout=10) == [[]]
        assert await app.execute_workflow(join, [0, 2, 4], timeout=10) == [[0, 2, 4]]
        kind = "StepError" if branch == "steps" else "ActivityError"
        assert await app.execute_workflow(join, [0, 1, 2], timeout=10) == [[0, "1 is odd", 2], kind, "1 is odd"]
    ran.clear()
    run = await app.start_workflow(join, list(range(0, 20, 2)))
    async with asyncio.timeout(10):
        await die(app, 1, slots=20)
    async with app.worker():
        assert await run.result(20) == [list(range(0, 20, 2))]
    assert Counter(ran) == Counter(dict.fromkeys(range(0, 20, 2), 2))  # both joins, each member once


@one_store
async def test_b133_what_is_too_big_is_an_error_at_the_call(app: AsyncPerdure) -> None:
    """A result of a step, a signal, an update, a query, an input: an error with both numbers, and the run goes on. A
    run whose own result is too big: test_replay.py."""
    big = "x" * (256 * 1024)

    async def fetch() -> str:
        return big

    @workflow(name="fetching")
    async def fetching(ctx: Any) -> str:
        ctx.on_query("look", lambda value: 1)
        ctx.on_update("put", lambda value: 1)
        try:
            await ctx.step("fetch", fetch)
        except StepError as error:
            await ctx.wait_for_signal("go")
            return str(error)
        return ""

    async with app.worker():
        run = await app.start_workflow(fetching, id="fetching")
        await waits(run)
        for call in (run.signal, run.update, run.query):
            with pytest.raises(PayloadTooLarge, match=r"262\d\d\d bytes") as caught:
                await call("put", big)
            assert caught.value.limit == "262144 bytes"
        with pytest.raises(PayloadTooLarge, match=r"262\d\d\d bytes"):
            await app.start_workflow(fetching, big)
        await run.signal("go")
        assert "result has 262" in await run.result(10)
        assert "262144 are allowed" in await run.result(10)


@pytest.mark.parametrize("where", ["step", "signal", "memo", "error", "result"])
async def test_b128_nul_comes_back_or_is_refused(app: AsyncPerdure, where: str) -> None:
    """In values on their way through a run: the same on both stores."""
    nul = "a\0b"

    def echo(value: str) -> str:
        return value

    @workflow
    async def flow(ctx: Any, value: str) -> Any:
        if where == "step":
            return await ctx.step("echo", echo, value)
        if where == "signal":
            return await ctx.wait_for_signal("go")
        if where == "memo":
            ctx.upsert_memo({"text": value})
            return ctx.memo["text"]
        if where == "error":
            raise ValueError(value)
        return {value: [value]}

    async with app.worker():
        run = await app.start_workflow(flow, nul)
        await run.signal("go", nul)
        if where == "error":
            with pytest.raises(TaskFailed, match=r"a.b"):
                await run.result(10)
        else:
            assert await run.result(10) == ({nul: [nul]} if where == "result" else nul)
