"""Async workflows: each operation with the commands and events that it makes, warm and cold."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from perdure.core import events as e
from perdure.core import turn_commands as c
from perdure.core.errors import InvalidArgument, NotFound
from perdure.core.model import Failure
from perdure.sdk.converter import from_payloads
from perdure.sdk.definition import Workflow
from perdure.sdk.task import task
from perdure.sdk.workflow import workflow
from perdure.sdk.workflow_context import WorkflowContext
from perdure.sdk.workflow_errors import (
    ActivityError,
    ChildWorkflowError,
    ForbiddenError,
    NonDeterminismError,
    StepError,
)
from tests.replay.history import values
from tests.replay.server import NO, Server

Ctx = WorkflowContext


def result(server: Server) -> Any:
    assert isinstance(server.closed, c.CompleteWorkflow), server.closed
    server.cold()
    return from_payloads(server.closed.result, "result")


def failure(server: Server) -> Failure:
    assert isinstance(server.closed, c.FailWorkflow), server.closed
    server.cold()
    return server.closed.failure


def kinds(server: Server, after: int = 0) -> list[str]:
    return [type(event.attributes).__name__ for event in server.history.events[after:]]


async def charge(card: str) -> str: ...  # type: ignore[empty-body]


# ----------------------------------------------------------------------------------------------- steps and activities
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


# ----------------------------------------------------------------------------------------------------- asyncio's own
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


# --------------------------------------------------------------------------------------------------------------- time
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


# ------------------------------------------------------------------------------------------------------------ messages
def test_SIG_04_signals_that_come_early_are_kept_in_order() -> None:
    @workflow
    async def flow(ctx: Ctx) -> Any:
        await ctx.sleep(1)
        return [await ctx.wait_for_signal("a"), await ctx.wait_for_signal("b"), await ctx.wait_for_event("a")]

    server = Server(flow).signal("a", 1).signal("a", 2).turn()
    server.signal("b").turn().fire().turn()
    assert result(server) == [1, True, 2]


def test_SIG_07_a_wait_that_timed_out_gives_none_and_the_next_signal_is_not_lost() -> None:
    @workflow
    async def flow(ctx: Ctx) -> Any:
        first = await ctx.wait_for_signal("go", timeout="24h")
        return [first, await ctx.wait_for_signal("go", timeout=10), await ctx.wait_for_signal("go", timeout=0)]

    server = Server(flow).turn()
    timer = server.find(c.StartTimer)
    server.fire(timer).signal("go", 1).turn()
    assert result(server) == [None, 1, None]
    other = Server(flow).turn()
    timer = other.find(c.StartTimer)
    other.signal("go", 2).fire(timer).turn().signal("go", 3).turn()
    assert result(other) == [2, 3, None]


def test_B092_the_initialiser_runs_first_then_handlers_then_the_main_function() -> None:
    @workflow
    class Flow:
        def __init__(self) -> None:
            self.seen: list[Any] = ["init"]

        async def run(self, ctx: Ctx, payload: str) -> Any:
            self.seen.append(payload)
            await ctx.wait_condition(lambda: len(self.seen) > 6)
            return self.seen

        @workflow.signal
        def plain(self, value: int) -> None:
            self.seen.append(value)

        @workflow.signal(name="async")
        async def waits(self) -> None:
            self.seen.append("async")

        @workflow.update
        def change(self, value: int) -> int:
            self.seen.append(value)
            return value * 2

        @change.validator
        def check(self, value: int) -> None:
            if value < 0:
                raise ValueError("negative")

        @workflow.query
        def state(self) -> list[Any]:
            return self.seen

    server = Server(Flow, "main").signal("plain", 1).signal("async").signal("plain", 2)
    server.update("change", 3, "u1").update("change", -1, "u2").update("other", 0, "u3").turn()
    assert server.instance is not None
    assert from_payloads(server.instance.query("state", ()), "") == ["init", 1, 2, 3, "async", "main"]
    assert server.rejected["u2"].message == "negative" and server.rejected["u2"].code == "update_rejected"
    assert "change" in server.rejected["u3"].message
    answer = server.history.events[-1].attributes
    assert isinstance(answer, e.WorkflowExecutionUpdateCompleted) and answer.result == values(6)
    assert result(server.signal("plain", 4).turn()) == ["init", 1, 2, 3, "async", "main", 4]


def test_functions_register_their_handlers_and_get_what_came_before() -> None:
    @workflow
    async def flow(ctx: Ctx) -> Any:
        seen: list[Any] = []

        async def change(value: int) -> int:
            seen.append(await ctx.execute_activity("double", value))
            return len(seen)

        ctx.on_signal("add", seen.append)
        ctx.on_query("seen", lambda: seen)
        ctx.on_update("change", change)
        await ctx.wait_for_signal("end")
        await ctx.wait_condition(ctx.all_handlers_finished)
        return seen

    server = Server(flow).signal("add", 1).update("change", 2).turn()
    assert kinds(server)[-2:] == ["WorkflowExecutionUpdateAccepted", "ActivityTaskScheduled"]
    server.cold()
    server.signal("end").turn()
    assert server.closed is None
    assert result(server.complete(result=4).turn()) == [1, 4]
    assert "WorkflowExecutionUpdateCompleted" in kinds(server)


def test_B088_messages_and_completions_are_replayed_in_their_order() -> None:
    @workflow
    async def flow(ctx: Ctx) -> Any:
        seen: list[str] = []

        async def on_signal(value: int) -> None:
            seen.append(f"signal {value}")
            seen.append(await ctx.step("one", charge, "a"))

        async def on_update(value: int) -> str:
            seen.append(f"update {value}")
            seen.append(await ctx.step("two", charge, "b"))
            return "done"

        ctx.on_signal("go", on_signal)
        ctx.on_update("set", on_update)
        await ctx.sleep(60)
        await ctx.wait_condition(ctx.all_handlers_finished)
        return seen

    server = Server(flow).turn()
    timer = server.find(c.StartTimer)
    server.signal("go", 1).turn().step(1, "A")
    server.update("set", 2).turn()
    server.lose().turn()
    server.step(2, "B").fire(timer).turn()
    assert result(server) == ["signal 1", "A", "update 2", "B"]


def test_B091_handlers_that_the_end_leaves_behind_are_named_in_the_history() -> None:
    @workflow
    async def flow(ctx: Ctx) -> Any:
        async def slow(value: int) -> None:
            await ctx.sleep(3600)

        ctx.on_update("slow", slow)
        await ctx.wait_for_signal("end")

    server = Server(flow).update("slow", 1).update("slow", 2).turn().signal("end").turn()
    marker = server.history.events[-2].attributes
    assert isinstance(marker, e.MarkerRecorded) and marker.marker_name == "unfinished_handlers"
    assert from_payloads(marker.details["handlers"], "") == {"slow": 2}
    assert result(server) is None


def test_a_handler_that_the_last_act_of_the_code_wakes_still_answers() -> None:
    @workflow
    async def flow(ctx: Ctx) -> Any:
        state = {"done": False}

        async def when_done() -> str:
            await ctx.wait_condition(lambda: state["done"])
            return "yes"

        ctx.on_update("when_done", when_done)
        await ctx.wait_for_signal("end")
        state["done"] = True

    server = Server(flow).update("when_done").turn().signal("end").turn()
    assert kinds(server)[-2:] == ["WorkflowExecutionUpdateCompleted", "WorkflowExecutionCompleted"]


def test_errors_of_handlers_go_to_the_caller_of_an_update_and_end_the_run_in_a_signal() -> None:
    @workflow
    async def flow(ctx: Ctx) -> Any:
        def bad(value: object) -> None:
            raise KeyError("bad")

        ctx.on_update("bad", bad)
        ctx.on_signal("worse", bad)
        await ctx.sleep(60)

    server = Server(flow).update("bad").turn()
    answer = server.history.events[-1].attributes
    assert isinstance(answer, e.WorkflowExecutionUpdateCompleted)
    assert answer.failure is not None and answer.failure.type == "KeyError"
    assert failure(server.signal("worse").turn()).type == "KeyError"


def test_B097_queries_change_nothing_and_cannot() -> None:
    @workflow
    async def flow(ctx: Ctx) -> Any:
        ctx.on_query("length", lambda: ctx.history_length)
        ctx.on_query("bad", lambda: ctx.start_activity("pay"))
        ctx.on_query("worse", lambda: ctx.side_effect(dict))
        await ctx.sleep(60)

    server = Server(flow).turn()
    instance = server.instance
    assert instance is not None
    length = server.history.last
    for _ in range(3):
        assert from_payloads(instance.query("length", ()), "") == 3
    for bad in ("bad", "worse"):
        with pytest.raises(ForbiddenError, match="a query only reads"):
            instance.query(bad, ())
    with pytest.raises(NotFound, match="bad, length, worse"):
        instance.query("none", ())
    assert instance.machine.take() == (length, [])
    server.fire().turn()
    assert from_payloads(server.cold().query("length", ()), "") == server.instance.machine.activation  # type: ignore[union-attr]


def test_conditions_that_raise_do_so_where_they_are_waited_for() -> None:
    @workflow
    async def flow(ctx: Ctx) -> Any:
        state: dict[str, int] = {}
        ctx.on_signal("set", lambda value: state.update(value))
        timed_out = await ctx.wait_condition(lambda: bool(state), timeout=5)
        met = await ctx.wait_condition(lambda: bool(state), timeout=5)
        try:
            await ctx.wait_condition(lambda: state["b"] and 1 / (state["b"] - 1) if "b" in state else False)
        except ZeroDivisionError:
            return [timed_out, met]

    server = Server(flow).turn().fire().turn().signal("set", {"a": 1}).turn()
    assert result(server.signal("set", {"b": 1}).turn()) == [False, True]


# --------------------------------------------------------------------------------------------------------------- cancel
def test_CANC_10_a_cancel_is_raised_where_the_code_waits_and_cancels_what_it_waits_for() -> None:
    @workflow
    async def flow(ctx: Ctx) -> Any:
        try:
            await ctx.execute_activity("pay")
        except asyncio.CancelledError:
            await ctx.step("clean", charge, "up")
            raise

    server = Server(flow).turn()
    before = server.history.last
    server.cancel().cancel().turn()
    assert kinds(server, before + 5) == ["ActivityTaskCancelRequested", "StepStarted"]
    server.step(1, "clean")
    assert isinstance(server.closed, c.CancelWorkflow)
    server.cold()


def test_a_cancel_may_be_refused_by_the_code() -> None:
    @workflow
    async def flow(ctx: Ctx) -> str:
        try:
            await ctx.sleep(60)
        except asyncio.CancelledError:
            return "stayed"
        return ""

    server = Server(flow).turn().cancel().turn()
    assert "TimerCanceled" in kinds(server)
    assert result(server) == "stayed"


def test_B103_a_cancel_before_the_first_turn_lets_the_code_begin() -> None:
    @workflow
    async def flow(ctx: Ctx) -> Any:
        try:
            await ctx.step("work", charge, "x")
        except asyncio.CancelledError:
            ctx.upsert_memo({"cleaned": True})
            raise

    server = Server(flow).cancel().turn()
    assert kinds(server)[-3:] == ["StepStarted", "WorkflowPropertiesModified", "WorkflowExecutionCanceled"]
    server.cold()


def test_a_shield_holds_a_cancel_back_until_its_end() -> None:
    @workflow
    async def flow(ctx: Ctx) -> Any:
        done = []
        try:
            with ctx.shielded():
                done.append(await ctx.step("one", charge, "x"))
                done.append(await ctx.step("two", charge, "x"))
            await ctx.sleep(60)
        except asyncio.CancelledError:
            return done

    server = Server(flow).turn().cancel()
    server.step(1, "a").lose().turn().step(2, "b")
    assert result(server) == ["a", "b"]


def test_children_are_canceled_with_the_code_that_waits_for_them_unless_abandoned() -> None:
    """B099."""

    @workflow
    async def flow(ctx: Ctx) -> Any:
        child = ctx.execute_child("child", workflow_id="c1")
        other = ctx.execute_child("child", workflow_id="c2", parent_close_policy="abandon")
        await asyncio.gather(child, other)

    server = Server(flow).turn()
    for workflow_id in ("c1", "c2"):
        server.child_started(server.find(c.StartChildWorkflow, workflow_id=workflow_id))
    server.turn().cancel().turn()
    canceled = [
        event.attributes.workflow_id
        for event in server.history.events
        if isinstance(event.attributes, e.RequestCancelExternalWorkflowExecutionInitiated)
    ]
    assert canceled == ["c1"] and isinstance(server.closed, c.CancelWorkflow)
    server.cold()


# ------------------------------------------------------------------------------------------------------ other workflows
def test_children_and_signals_to_other_workflows() -> None:
    @workflow(name="child", queue="kids")
    async def child(ctx: Ctx, payload: int) -> int: ...  # type: ignore[empty-body]

    @workflow
    async def flow(ctx: Ctx) -> Any:
        handle = await ctx.start_child(child, 3)
        await handle.signal("hurry", 1)
        return [handle.workflow_id, handle.run_id, await handle]

    server = Server(flow).turn()
    begun: Any = server.open[server.find(c.StartChildWorkflow)]
    assert begun.task_queue == "kids" and len(begun.workflow_id) == 36
    server.child_started().turn().told().turn()
    assert result(server.child_completed(result=9).turn()) == [
        begun.workflow_id,
        "00010203-0405-0607-0809-0a0b0c0d0e0f",
        9,
    ]


@pytest.mark.parametrize("how", ["ChildWorkflowExecutionCanceled", "ChildWorkflowExecutionTerminated", "Failed"])
def test_B102_a_child_that_is_canceled_terminated_or_fails_is_told_apart(how: str) -> None:
    @workflow
    async def flow(ctx: Ctx) -> Any:
        try:
            await ctx.execute_child("child", workflow_id="c1")
        except ChildWorkflowError as error:
            return error.failure.code

    server = Server(flow).turn().child_started().turn()
    event_id = server.find(c.StartChildWorkflow)
    if how == "Failed":
        server.tell(
            e.ChildWorkflowExecutionFailed(workflow_id="c1", run_id=b"", initiated_event_id=event_id, failure=NO)
        )
    else:
        server.tell(getattr(e, how)(workflow_id="c1", run_id=b"", initiated_event_id=event_id))
    expected = {"Failed": "handler_error", "ChildWorkflowExecutionCanceled": "canceled"}.get(how, "terminated")
    assert result(server.turn()) == expected


def test_a_child_that_cannot_start() -> None:
    @workflow
    async def flow(ctx: Ctx) -> Any:
        try:
            await ctx.start_child("child", workflow_id="c1")
        except ChildWorkflowError as error:
            return error.failure.code

    server = Server(flow).turn()
    event = e.StartChildWorkflowExecutionFailed(
        workflow_id="c1", workflow_type="child", initiated_event_id=server.find(c.StartChildWorkflow)
    )
    assert result(server.tell(event).turn()) == "workflow_already_exists"


def test_RPLY_23_continue_as_new_ends_the_run_also_from_within_a_group() -> None:
    @workflow
    async def flow(ctx: Ctx, count: int) -> Any:
        async with asyncio.TaskGroup():
            await ctx.sleep(1)
            ctx.continue_as_new(count + 1, memo={"n": count})

    server = Server(flow, 1).turn().fire().turn()
    assert isinstance(server.closed, c.ContinueAsNew)
    assert server.closed.input == values(2) and server.closed.memo == {"n": values(1)}
    server.cold()


# ----------------------------------------------------------------------------------------------------------- versions
def test_EX_19_each_run_keeps_its_path_through_patches() -> None:
    """RPLY-18, RPLY-19, STEP-10."""

    async def v1(ctx: Ctx) -> Any:
        await ctx.execute_activity("one")
        await ctx.execute_activity("two")
        return "v1"

    async def v2(ctx: Ctx) -> Any:
        await ctx.execute_activity("one")
        if ctx.patched("fraud-check"):
            await ctx.execute_activity("fraud")
        await ctx.execute_activity("two")
        return "v2"

    async def v3(ctx: Ctx) -> Any:
        await ctx.execute_activity("one")
        if ctx.patched("fraud-check"):
            await ctx.execute_activity("fraud")
        await ctx.execute_activity("two")
        if ctx.version("receipt") == 1:
            await ctx.execute_activity("receipt")
        return "v3"

    def names(server: Server) -> list[str]:
        return [
            event.attributes.activity_type
            for event in server.history.events
            if isinstance(event.attributes, e.ActivityTaskScheduled)
        ]

    def begin(code: Any, turns: int) -> Server:
        server = Server(Workflow(code, "flow")).turn()
        for _ in range(turns):
            server.complete().turn()
        return server

    def deploy(server: Server, code: Any) -> Server:
        server.lose().workflow = Workflow(code, "flow")
        while server.closed is None:
            server.complete().turn()
        server.cold()
        return server

    assert names(deploy(begin(v1, 0), v3)) == ["one", "fraud", "two", "receipt"], "it had not come that far"
    assert names(deploy(begin(v1, 1), v3)) == ["one", "two", "receipt"]
    assert names(deploy(begin(v2, 2), v3)) == ["one", "fraud", "two", "receipt"]
    assert names(deploy(begin(v3, 0), v3)) == ["one", "fraud", "two", "receipt"]


def test_a_version_whose_code_is_gone_fails_the_turn() -> None:
    @workflow
    async def flow(ctx: Ctx) -> Any:
        await ctx.sleep(1)

    @workflow(name="flow2")
    async def newer(ctx: Ctx) -> Any:
        ctx.version("x", min=2, max=3)
        await ctx.sleep(1)

    server = Server(flow).turn().lose()
    server.workflow = newer
    with pytest.raises(NonDeterminismError, match="version 0 of 'x', found code for versions 2 to 3"):
        server.fire().turn()


def test_divergence_cannot_be_swallowed_by_the_code() -> None:
    @workflow
    async def flow(ctx: Ctx) -> Any:
        await ctx.sleep(1)

    @workflow(name="flow2")
    async def newer(ctx: Ctx) -> Any:
        try:
            await ctx.execute_activity("pay")
        except BaseException:  # noqa: BLE001 - what is tested
            return "swallowed"

    server = Server(flow).turn().lose()
    server.workflow = newer
    with pytest.raises(NonDeterminismError) as caught:
        server.fire().turn()
    assert caught.value.file == __file__


# ------------------------------------------------------------------------------------------------------------- the rest
def test_dropping_a_run_unwinds_its_code_without_effect() -> None:
    seen: list[str] = []

    @workflow
    async def flow(ctx: Ctx) -> Any:
        try:
            await ctx.sleep(1)
        finally:
            seen.append("unwound")
            ctx.start_activity("never")
            seen.append("never")

    server = Server(flow).turn()
    instance = server.instance
    server.lose()
    assert seen == ["unwound"] and instance is not None
    assert instance.machine.take()[1] == []


def test_info_memo_and_search_attributes() -> None:
    @workflow
    async def flow(ctx: Ctx) -> Any:
        ctx.upsert_memo({"b": 2})
        workflow.upsert_search_attributes({"city": "Bern"})
        info = ctx.info
        return [info.workflow_id, info.type, info.attempt, info.last_result, ctx.memo, ctx.search_attributes]

    server = Server(flow, memo={"a": values(1)}, search_attributes={"x": 1}, last_result=values(5), attempt=2).turn()
    assert result(server) == ["w1", "flow", 2, 5, {"a": 1, "b": 2}, {"x": 1, "city": "Bern"}]


def test_the_log_is_silent_on_replay(caplog: pytest.LogCaptureFixture) -> None:
    @workflow
    async def flow(ctx: Ctx) -> Any:
        ctx.logger.warning("one")
        await ctx.sleep(1)
        ctx.logger.warning("two")

    server = Server(flow).turn().lose()
    server.fire().turn()
    server.cold()
    assert [record.message for record in caplog.records] == ["one", "two"]
    assert caplog.records[0].workflow_id == "w1"  # type: ignore[attr-defined]


def test_B119_a_result_that_was_not_awaited_fails_the_run() -> None:
    made: list[Any] = []

    @workflow
    async def flow(ctx: Ctx) -> Any:
        made.append(ctx.sleep(1))
        return made[-1]

    server = Server(flow).turn()
    assert "await" in failure(server).message
    for coroutine in made:
        coroutine.close()


def test_workflow_attributes_need_a_running_workflow() -> None:
    with pytest.raises(AttributeError, match="none is running here"):
        workflow.now()
