"""Field cases on signals, updates and queries."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any

import pytest

from perdure import (
    AsyncPerdure,
    Context,
    NotFound,
    NoWorker,
    QueryFailed,
    TaskTerminated,
    UpdateFailed,
    WaitTimeout,
    WorkflowClosed,
    task,
    workflow,
)
from perdure.core.events import MarkerRecorded
from perdure.sdk.definition import Workflow
from perdure.worker import instances
from tests.field.flows import found, names, one_store, shows, waits


async def test_b089_updates_meet_runs_that_roll_over(app: AsyncPerdure) -> None:
    """200 updates from 20 callers to a workflow that continues as new after each ten: each caller hears of a result, or
    that the run had closed; what is answered was applied once, and nothing else."""

    @workflow(name="ledger")
    async def ledger(ctx: Any, done: list[int]) -> list[int]:
        begun = len(done)
        ended: list[bool] = []

        async def book(n: int) -> int:
            await ctx.step("book", lambda: None)
            done.append(n)
            return n

        ctx.on_update("book", book)
        ctx.on_signal("end", lambda value: ended.append(True))
        await ctx.wait_condition(lambda: len(done) >= begun + 10 or ended)
        await ctx.wait_condition(ctx.all_handlers_finished)
        return done if ended else ctx.continue_as_new(done)

    answers: list[int] = []
    refused: list[str] = []

    async def caller(first: int) -> None:
        for n in range(first, first + 10):
            try:
                answers.append(await app.get_workflow_handle("ledger").update("book", n, timeout=20))
            except WorkflowClosed as error:
                refused.append(error.code)
            except UpdateFailed as error:
                refused.append(error.failure.code)

    async with app.worker():
        run = await app.start_workflow(ledger, [], id="ledger")
        await asyncio.gather(*(caller(10 * n) for n in range(20)))
        await app.get_workflow_handle("ledger").signal("end")
        done = await run.result(20)
    assert Counter(done) == Counter(answers)
    assert max(Counter(done).values()) == 1
    assert len(answers) + len(refused) == 200
    assert set(refused) <= {"workflow_closed"}
    assert len(answers) > 150


@one_store
@pytest.mark.parametrize("ends", ["returns", "fails", "continues", "terminated"])
async def test_b091_callers_of_handlers_that_are_left_behind_hear_of_it_at_once(app: AsyncPerdure, ends: str) -> None:
    """The workflow ends while two updates wait for an activity; the history names them. With `all_handlers_finished`
    the end waits for them."""
    gate = asyncio.Event()

    @task(name="slow-answer")
    async def slow(ctx: Context, payload: None) -> str:
        await gate.wait()
        return "done"

    @workflow(name="hasty")
    async def hasty(ctx: Any, patient: bool) -> str:
        async def change(value: int) -> str:
            return await ctx.execute_activity(slow)

        ctx.on_update("change", change)
        await ctx.wait_for_signal("end")
        if patient:
            await ctx.wait_condition(ctx.all_handlers_finished)
        elif ends == "fails":
            raise ValueError("end")
        elif ends == "continues":
            ctx.continue_as_new(True)
        return "returned"

    async with app.worker(drain_seconds=0.1):
        run = await app.start_workflow(hasty, False, id="hasty")
        updates = [await run.start_update("change", n, timeout=10) for n in range(2)]
        asking = [asyncio.create_task(update.result(10)) for update in updates]
        begun = time.monotonic()
        await (run.terminate("enough") if ends == "terminated" else run.signal("end"))
        for ended in await asyncio.gather(*asking, return_exceptions=True):
            assert isinstance(ended, UpdateFailed)
            assert ended.failure.code == "workflow_closed"
        assert time.monotonic() - begun < 3
        markers = [marker.marker_name for marker in await found(run, MarkerRecorded)]
        assert markers == ([] if ends == "terminated" else ["unfinished_handlers"])
        if ends == "returns":
            other = await app.start_workflow(hasty, True)
            update = await other.start_update("change", 1, timeout=10)
            await other.signal("end")
            await shows(other, lambda view: view.pending_signals == 0)
            gate.set()
            assert [await update.result(10), await other.result(10)] == ["done", "returned"]
            assert await found(other, MarkerRecorded) == []


@one_store
async def test_b091_an_end_does_not_wait_for_steps_of_handlers(app: AsyncPerdure) -> None:
    """The same with handlers that are in the middle of a step in the worker that runs the code."""
    stopped = asyncio.Event()

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    @workflow(name="hasty")
    async def hasty(ctx: Any) -> str:
        async def change(value: int) -> None:
            await ctx.step("slow", slow)

        ctx.on_update("change", change)
        await ctx.step("quick", lambda: None)
        return "returned"

    run = await app.start_workflow(hasty)
    asking = [asyncio.create_task(run.update("change", n, timeout=10)) for n in range(2)]
    await shows(run, lambda view: view.pending_signals == 2)
    async with app.worker(drain_seconds=0.1):
        assert await run.result(5) == "returned"
        for ended in await asyncio.gather(*asking, return_exceptions=True):
            assert isinstance(ended, UpdateFailed)
            assert ended.failure.code == "workflow_closed"
        await asyncio.wait_for(stopped.wait(), 5)
    assert [marker.marker_name for marker in await found(run, MarkerRecorded)] == ["unfinished_handlers"]


@pytest.mark.parametrize("style", ["async", "plain"])
async def test_b092_messages_before_the_first_turn(app: AsyncPerdure, style: str) -> None:
    """Three signals and an update while no worker is up: the initialiser runs first, then the handlers, then the code,
    which sees all; also when it returns at once. 20 signal-with-start at once make one run."""

    @workflow(name="early")
    class Early:
        def __init__(self) -> None:
            self.seen: list[Any] = ["init"]

        async def run(self, ctx: Any) -> list[Any]:
            return [*self.seen, "run"]

        @workflow.signal
        def add(self, value: int) -> None:
            self.seen.append(value)

        @workflow.update
        def put(self, value: str) -> int:
            self.seen.append(value)
            return len(self.seen)

    @workflow(name="plain early")
    def plain_early(ctx: Any) -> list[Any]:
        seen: list[Any] = ["init"]

        def put(value: str) -> int:
            seen.append(value)
            return len(seen)

        ctx.on_signal("add", seen.append)
        ctx.on_update("put", put)
        ctx.sleep(0.001)
        return [*seen, "run"]

    flow = Early if style == "async" else plain_early
    run = await app.start_workflow(flow, id="early")
    for n in range(3):
        await run.signal("add", n)
    asking = asyncio.create_task(run.update("put", "update", timeout=20))
    await shows(run, lambda view: view.pending_signals == 4)
    many = [
        app.signal_with_start(flow, id="many", signal="add", signal_input=n) for n in range(20)
    ]  # fmt: skip
    runs = await asyncio.gather(*many)
    assert len({run.run_id for run in runs}) == 1
    assert sum(run.started for run in runs) == 1
    async with app.worker():
        assert await run.result(10) == ["init", 0, 1, 2, "update", "run"]
        assert await asking == 5
        seen = await runs[0].result(10)
    assert (seen[0], sorted(seen[1:-1]), seen[-1]) == ("init", list(range(20)), "run")


@pytest.mark.parametrize("style", ["async", "plain"])
async def test_b093_no_signal_is_lost_between_two_runs(app: AsyncPerdure, style: str) -> None:
    """300 by workflow id from 10 senders, while it continues as new after every few: all arrive, once, in order of each
    sender."""

    @workflow(name="rolls")
    async def rolls(ctx: Any, seen: list[list[int]]) -> list[list[int]]:
        begun = len(seen)
        ctx.on_signal("item", seen.append)
        await ctx.wait_condition(lambda: len(seen) >= min(begun + 7, 300))
        return seen if len(seen) == 300 else ctx.continue_as_new(seen)

    @workflow(name="plain rolls")
    def plain_rolls(ctx: Any, seen: list[list[int]]) -> list[list[int]]:
        begun = len(seen)
        ctx.on_signal("item", seen.append)
        ctx.wait_condition(lambda: len(seen) >= min(begun + 7, 300))
        return seen if len(seen) == 300 else ctx.continue_as_new(seen)

    async with app.worker():
        run = await app.start_workflow(rolls if style == "async" else plain_rolls, [], id="rolls")

        async def sender(number: int) -> None:
            for n in range(30):
                await app.get_workflow_handle("rolls").signal("item", [number, n])

        await asyncio.gather(*(sender(number) for number in range(10)))
        seen = await run.result(30)
    assert len(seen) == 300
    for number in range(10):
        assert [n for sender, n in seen if sender == number] == list(range(30))


@pytest.mark.parametrize("style", ["async", "plain"])
async def test_b094_a_signal_right_behind_the_start_is_heard(app: AsyncPerdure, style: str) -> None:
    """150 times without a pause. One that comes before the code waits for it is kept, whatever the code does meanwhile;
    one before there is a run is an error, for which signal-with-start is the cure."""

    @workflow(name="hears")
    async def hears(ctx: Any, busy: bool) -> Any:
        if busy:
            await ctx.sleep(0.1)
        return await ctx.wait_for_signal("event", timeout=20)

    @workflow(name="plain hears")
    def plain_hears(ctx: Any, busy: bool) -> Any:
        if busy:
            ctx.sleep(0.1)
        return ctx.wait_for_signal("event", timeout=20)

    flow = hears if style == "async" else plain_hears

    async def trial(n: int) -> Any:
        run = await app.start_workflow(flow, n % 10 == 0)
        await run.signal("event", n)
        return await run.result(20)

    async with app.worker():
        for first in range(0, 150, 10):
            numbers = range(first, first + 10)
            assert await asyncio.gather(*map(trial, numbers)) == list(numbers)
        with pytest.raises(NotFound):
            await app.get_workflow_handle("later").signal("event", 1)
        run = await app.signal_with_start(flow, False, id="later", signal="event", signal_input=2)
        assert await run.result(10) == 2


@one_store
async def test_b096_a_query_that_nobody_can_answer_says_why(app: AsyncPerdure) -> None:
    """No worker, a worker of another queue, a workflow that the worker does not know or cannot load. In time, and not
    "deadline exceeded"."""

    async def fine(ctx: Any) -> None:
        ctx.on_query("state", lambda: "fine")
        await ctx.wait_for_signal("end")

    async def broken(ctx: Any) -> None:
        await ctx.step("what was never there", lambda: 1)

    run = await app.start_workflow("queried", queue="orders")
    with pytest.raises(NoWorker, match="it waits for a free worker on queue 'orders'"):
        await run.query("state", timeout=0.2)
    async with app.worker(queues=["orders"], workflows=[Workflow(fine, "queried", "orders")]):
        await waits(run)
        assert await run.query("state") == "fine"
        with pytest.raises(QueryFailed, match=r"other.*state"):
            await run.query("other")
    async with app.worker(workflows=[Workflow(fine, "queried")]):
        with pytest.raises(NoWorker, match="no worker is registered for queue 'orders'"):
            await run.query("state", timeout=0.2)
    begun = time.monotonic()
    async with app.worker(queues=["orders"], workflows=[Workflow(broken, "queried", "orders")]):
        with pytest.raises(QueryFailed, match="the code differs from the history at event"):
            await run.query("state")
    async with app.worker(queues=["orders"], workflows=[Workflow(fine, "unrelated", "orders")]):
        with pytest.raises(QueryFailed, match="no workflow named 'queried'"):
            await run.query("state")
    assert time.monotonic() - begun < 10


async def test_b097_queries_of_all_runs_at_once(app: AsyncPerdure, monkeypatch: pytest.MonkeyPatch) -> None:
    """200 at once of an open, a closed and a rolled-over run, with room for one run in the worker's memory: right
    answers, and no event. One that would change something is refused."""
    monkeypatch.setattr(instances.Instances.__init__, "__defaults__", (1, instances.MOST_BYTES))

    @workflow(name="counts")
    async def counts(ctx: Any, total: int) -> int:
        count = [total]
        ctx.on_query("count", lambda: count[0])
        ctx.on_query("change", lambda: ctx.start_activity("pay"))
        ctx.on_query("step", lambda: ctx.step("pay", lambda: 1).send(None))
        for _ in range(3):
            count[0] += await ctx.step("one", lambda: 1)
        if total == 20:
            ctx.continue_as_new(100)
        if total == 0:
            await ctx.wait_for_signal("end")
        return count[0]

    async with app.worker():
        runs = {3: await app.start_workflow(counts, 0), 13: await app.start_workflow(counts, 10)}
        rolled = await app.start_workflow(counts, 20, id="rolled")
        assert [await runs[13].result(10), await rolled.result(10)] == [13, 103]
        runs |= {23: app.get_workflow_handle("rolled", rolled.run_id), 103: app.get_workflow_handle("rolled")}
        await waits(runs[3])
        before = {count: await names(run) for count, run in runs.items()}
        asked = [count for _ in range(50) for count in runs]
        answers = await asyncio.gather(*(runs[count].query("count", timeout=20) for count in asked))
        assert answers == asked
        for run in runs.values():
            for name in ("change", "step"):
                with pytest.raises(QueryFailed, match="a query only reads"):
                    await run.query(name)
        assert {count: await names(run) for count, run in runs.items()} == before
        await runs[3].signal("end")
        assert await runs[3].result(10) == 3


@one_store
@pytest.mark.parametrize(("timeout", "least", "most"), [(0, 0.0, 1.0), (0.3, 0.3, 1.5)])
async def test_b116_waits_for_a_run_end_on_time(app: AsyncPerdure, timeout: float, least: float, most: float) -> None:
    """For a run and for an update that nobody takes; a time that is none is an error."""
    run = await app.start_workflow("nobody")
    for wait in (run.result, lambda limit: run.update("u", timeout=limit)):
        begun = time.monotonic()
        with pytest.raises(WaitTimeout, match=r"RUNNING|admitted"):
            await wait(timeout)
        assert least <= time.monotonic() - begun < most
        for bad in (-1, 10**30, float("nan")):
            with pytest.raises(Exception, match="timeout") as caught:
                await wait(bad)
            assert type(caught.value).__name__ == "InvalidArgument"
    waiting = asyncio.create_task(run.result(10**8))
    await asyncio.sleep(0.05)
    await run.terminate("end")
    with pytest.raises(TaskTerminated, match="end"):
        await asyncio.wait_for(waiting, 5)
