"""Async workflows: steps, activities, asyncio and time, with the commands and events that they make, warm and cold."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from perdure.core import events as e
from perdure.core import turn_commands as c
from perdure.core.errors import InvalidArgument
from perdure.sdk.task import task
from perdure.sdk.workflow import workflow
from perdure.sdk.workflow_errors import (
    ActivityError,
    ForbiddenError,
    StepError,
)
from tests.replay.outcome import Ctx, charge, failure, kinds, result
from tests.replay.server import NO, Server


# ------------------------------------------------------------------------------------------------- steps and activities
def test_STEP_02_steps_are_claimed_run_and_recorded_with_the_next_claim() -> None:
    @workflow
    async def flow(ctx: Ctx, card: str) -> str:
        first = await ctx.step("charge", charge, card)
        second = await ctx.step("again", charge, first)
        return f"{first} {second}"

    server = Server(flow, "visa").turn()
    assert server.instance is not None
    call = server.instance.step(1)
    assert (call.name, call.function, call.args) == ("charge", charge, ("visa",))
    assert call.result.type is str
    before = server.history.last
    server.step(1, "one")
    assert kinds(server, before) == ["StepCompleted", "StepStarted"]
    server.step(2, "two")
    assert kinds(server)[-2:] == ["StepCompleted", "WorkflowExecutionCompleted"]
    assert result(server) == "one two"
    assert server.instance.closed


def test_a_step_that_fails_raises_step_error_with_the_failure() -> None:
    """B108."""

    @workflow
    async def flow(ctx: Ctx) -> str:
        try:
            await ctx.step("charge", charge, "visa")
        except StepError as error:
            return f"{error} / {error.failure.type} / {error.cause}"
        return ""

    assert (
        result(Server(flow).turn().step(1, failure=NO)) == "step charge: ValueError: no / ValueError / ValueError: no"
    )


def test_a_failure_that_is_not_caught_closes_the_run_with_the_original_type_and_message() -> None:
    """B108."""

    @workflow
    async def flow(ctx: Ctx) -> None:
        try:
            await ctx.step("charge", charge, "visa")
        finally:
            raise RuntimeError("in finally")

    found = failure(Server(flow).turn().step(1, failure=NO))
    assert (found.type, found.message) == ("RuntimeError", "in finally")
    assert found.cause is not None and found.cause.type == "StepError"
    assert found.cause.cause == NO


def test_activities_have_what_their_task_declares_unless_the_call_says_otherwise() -> None:
    @task(queue="cards", timeout="30s", retries=2, priority=2)
    def pay(ctx: object, card: str) -> int: ...  # type: ignore[empty-body]

    @workflow
    async def flow(ctx: Ctx) -> Any:
        first = await workflow.execute_activity(pay, "visa")
        second = await ctx.execute_activity("other", {"a": 1}, start_to_close="1m", heartbeat=5, queue="q", retries=0)
        return [first, second]

    server = Server(flow).turn()
    first: Any = server.open[server.find(c.ScheduleActivity)]
    assert (first.activity_type, first.task_queue, first.start_to_close, first.priority) == ("pay", "cards", 30.0, 2)
    assert first.retry.max_attempts == 3 and first.activity_id == "1"
    server.complete(result=7).turn()
    second: Any = server.open[server.find(c.ScheduleActivity)]
    assert (second.activity_id, second.start_to_close, second.heartbeat, second.task_queue) == ("2", 60.0, 5.0, "q")
    assert second.retry.max_attempts == 1
    assert result(server.complete(result=8).turn()) == [7, 8]


def test_RPLY_09_a_failed_activity_raises_the_recorded_error() -> None:
    @workflow
    async def flow(ctx: Ctx) -> str:
        try:
            await ctx.execute_activity("pay")
        except ActivityError as error:
            return f"{error.failure.type} {error.retry_state}"
        return ""

    assert result(Server(flow).turn().fail().turn()) == "ValueError maximum_attempts_reached"


def test_a_local_activity_is_a_step() -> None:
    @task(timeout=3)
    def pay(ctx: object, card: str) -> int: ...  # type: ignore[empty-body]

    @workflow
    async def flow(ctx: Ctx) -> Any:
        return await ctx.execute_activity(pay, "visa", local=True)

    server = Server(flow).turn()
    assert server.instance is not None and server.instance.step(1).timeout == 3.0
    assert result(server.step(1, 5)) == 5


def test_handles_are_started_now_and_awaited_later() -> None:
    @workflow
    async def flow(ctx: Ctx) -> Any:
        one, two = ctx.start_activity("a"), ctx.start_activity("b")
        return [await two, await one]

    server = Server(flow).turn()
    one, two = list(server.open)
    assert result(server.complete(one, 1).complete(two, 2).turn()) == [2, 1]


def test_STEP_28_parallel_keeps_the_order_and_takes_steps_and_tasks() -> None:
    @task
    def pay(ctx: object, card: str) -> str: ...  # type: ignore[empty-body]

    @workflow
    async def flow(ctx: Ctx) -> Any:
        assert await ctx.parallel("none", []) == []  # STEP-35
        return await ctx.parallel("all", [(charge, "a"), (pay, "b"), (charge, "c")])

    server = Server(flow).turn()
    assert [step.name for step in server.running.values()] == ["all[0]", "all[2]"]
    server.step(2, "C").step(1, "A")
    assert result(server.complete(result="B").turn()) == ["A", "B", "C"]


def test_STEP_25_fail_fast_raises_the_first_error_and_cancels_the_rest() -> None:
    @task
    def pay(ctx: object, card: str) -> int: ...  # type: ignore[empty-body]

    @workflow
    async def flow(ctx: Ctx) -> Any:
        await ctx.parallel("all", [(pay, "a"), (charge, "b")])

    server = Server(flow).turn()
    before = server.history.last
    server.step(1, failure=NO)
    assert kinds(server, before) == ["StepFailed", "ActivityTaskCancelRequested", "WorkflowExecutionFailed"]
    assert failure(server).cause == NO


def test_STEP_26_collect_has_errors_in_their_places() -> None:
    @workflow
    async def flow(ctx: Ctx) -> Any:
        found = await ctx.parallel("all", [(charge, "a"), (charge, "b")], policy="collect")
        return [str(item) for item in found]

    assert result(Server(flow).turn().step(1, failure=NO).step(2, "B")) == ["step all[0]: ValueError: no", "B"]


# -------------------------------------------------------------------------------------------------------- asyncio's own
def test_asyncio_sleep_and_time_outs_are_durable_timers() -> None:
    @workflow
    async def flow(ctx: Ctx) -> Any:
        await asyncio.sleep(3600)
        try:
            async with asyncio.timeout(60):
                await ctx.wait_for_signal("go")
        except TimeoutError:
            pass
        return await asyncio.wait_for(ctx.wait_for_signal("go"), 60)

    server = Server(flow).turn()
    assert [command.start_to_fire for command in server.open.values()] == [3600.0]  # type: ignore[union-attr]
    server.fire().turn()
    assert [command.start_to_fire for command in server.open.values()] == [60.0]  # type: ignore[union-attr]
    server.fire().turn()
    before = server.history.last
    assert result(server.signal("go", 5).turn()) == 5
    assert "TimerCanceled" in kinds(server, before)
    assert server.open == {}


def test_B084_gather_tasks_and_groups_give_each_result_to_its_call() -> None:
    @workflow
    async def flow(ctx: Ctx) -> Any:
        gathered = await asyncio.gather(*(ctx.step(f"s{i}", charge, str(i)) for i in range(3)))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ctx.execute_activity(f"t{i}")) for i in range(3)]
        done, _ = await asyncio.wait([asyncio.create_task(ctx.execute_activity(f"w{i}")) for i in range(3)])
        return [gathered, [t.result() for t in tasks], [t.result() for t in done]]

    server = Server(flow).turn()
    server.end_step(3, "c")
    server.end_step(1, "a")
    server.append()
    server.lose().turn()
    assert [command.attempt for command in server.running.values()] == [2]
    server.step(2, "b")
    for name in ("t1", "t0", "t2"):
        server.complete(server.find(c.ScheduleActivity, activity_type=name), name)
    server.turn()
    for name in ("w2", "w1", "w0"):
        server.complete(server.find(c.ScheduleActivity, activity_type=name), name).turn()
    found = result(server)
    assert found[:2] == [["a", "b", "c"], ["t0", "t1", "t2"]]
    assert sorted(found[2]) == ["w0", "w1", "w2"]


def test_the_winner_of_a_race_is_the_recorded_one() -> None:
    @workflow
    async def flow(ctx: Ctx) -> Any:
        tasks = [asyncio.create_task(ctx.execute_activity(name)) for name in "ab"]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for one in pending:
            one.cancel()
        return [one.result() for one in done]

    server = Server(flow).turn()
    _, b = list(server.open)
    server.complete(b, "b").turn()
    assert result(server) == ["b"]
    assert any(isinstance(event.attributes, e.ActivityTaskCancelRequested) for event in server.history.events)


def test_events_and_queues_join_tasks() -> None:
    @workflow
    async def flow(ctx: Ctx) -> Any:
        queue: asyncio.Queue[Any] = asyncio.Queue(1)
        stop = asyncio.Event()

        async def produce() -> None:
            for i in range(3):
                await queue.put(await ctx.execute_activity("make", i))
            stop.set()

        producer = asyncio.create_task(produce())
        got = [await queue.get() for _ in range(3)]
        await stop.wait()
        await producer
        return got

    server = Server(flow).turn()
    for i in range(3):
        server.complete(result=i).turn()
    assert result(server) == [0, 1, 2]


def test_as_completed_of_coroutines_is_refused_with_advice_and_of_tasks_works() -> None:
    @workflow
    async def flow(ctx: Ctx) -> Any:
        coroutines = [ctx.execute_activity("a"), ctx.execute_activity("b")]
        try:
            next(iter(asyncio.as_completed(coroutines)))
        except ForbiddenError as error:
            assert "give it tasks" in str(error)
        for one in coroutines:
            one.close()
        tasks = [asyncio.create_task(ctx.execute_activity(name)) for name in "ab"]
        return [await one for one in asyncio.as_completed(tasks)]

    server = Server(flow).turn()
    a, b = list(server.open)
    server.complete(b, "b").turn()
    assert result(server.complete(a, "a").turn()) == ["b", "a"]


@pytest.mark.parametrize("reach", ["run_in_executor", "create_connection", "add_reader", "call_soon_threadsafe"])
def test_the_loop_reaches_nothing_outside(reach: str) -> None:
    @workflow
    async def flow(ctx: Ctx) -> Any:
        getattr(asyncio.get_running_loop(), reach)(None, None)

    with pytest.raises(ForbiddenError, match="step or an activity"):
        Server(flow).turn()


async def test_an_activation_inside_of_another_loop_leaves_that_alone() -> None:
    @workflow
    async def flow(ctx: Ctx) -> Any:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        await ctx.sleep(1)
        return [loop is asyncio.get_running_loop(), task is asyncio.current_task()]

    outer, task = asyncio.get_running_loop(), asyncio.current_task()
    server = Server(flow).turn()
    assert asyncio.get_running_loop() is outer and asyncio.current_task() is task
    await asyncio.sleep(0)
    assert result(server.fire().turn()) == [True, True]


# ----------------------------------------------------------------------------------------------------------------- time
def test_sleeps_by_name_and_length() -> None:
    @workflow
    async def flow(ctx: Ctx) -> Any:
        began = ctx.now()
        await ctx.sleep("cool_off", days=1)
        await ctx.sleep("cool_off", "30s")
        await ctx.sleep(timedelta(minutes=1))
        await ctx.sleep("90s")
        await ctx.sleep(0)
        with pytest.raises(InvalidArgument):
            ctx.sleep("step:1", days=1).send(None)
        for wrong in ((), ("name", "3s", 5)):
            with pytest.raises(InvalidArgument):
                ctx.sleep(*wrong)
        return (ctx.now() - began).total_seconds()

    server = Server(flow).turn()
    seen = []
    while server.closed is None:
        (timer,) = server.open.values()
        assert isinstance(timer, c.StartTimer)
        seen.append((timer.timer_id, timer.start_to_fire))
        server.fire().turn()
    assert seen == [("cool_off#1", 86400.0), ("cool_off#2", 30.0), ("1", 60.0), ("2", 90.0)]
    assert result(server) == sum(length for _, length in seen) + 4


def test_random_and_ids_and_side_effects_are_the_same_on_replay() -> None:
    """RPLY-12, RPLY-13."""
    calls: list[int] = []
    seen: list[Any] = []

    @workflow
    async def flow(ctx: Ctx) -> Any:
        values = [ctx.random().random(), str(ctx.uuid4()), ctx.side_effect(lambda: calls.append(1) or len(calls))]
        await ctx.sleep(1)
        values += [ctx.random().random(), ctx.side_effect(lambda: calls.append(1) or len(calls))]
        seen.append(values)
        return values

    server = Server(flow).turn().fire().turn()
    assert calls == [1, 1]
    assert result(server) == seen[0] == seen[1]
    assert calls == [1, 1]
