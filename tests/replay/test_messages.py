"""Signals, updates, queries and cancels, with the commands and events that they make, warm and cold."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure.core import events as e
from perdure.core import turn_commands as c
from perdure.core.errors import NotFound
from perdure.sdk.converter import from_payloads
from perdure.sdk.workflow import workflow
from perdure.sdk.workflow_errors import (
    ForbiddenError,
)
from tests.replay.history import values
from tests.replay.outcome import Ctx, charge, failure, kinds, result
from tests.replay.server import Server


# ------------------------------------------------------------------------------------------------------------- messages
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
