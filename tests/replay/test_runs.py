"""Other workflows, versions, and what a run is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure.core import events as e
from perdure.core import turn_commands as c
from perdure.sdk.definition import Workflow
from perdure.sdk.workflow import workflow
from perdure.sdk.workflow_errors import (
    ChildWorkflowError,
    NonDeterminismError,
)
from tests.replay.history import values
from tests.replay.outcome import Ctx, charge, failure, result
from tests.replay.server import NO, Server


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


# ------------------------------------------------------------------------------------------------------------- versions
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


def test_a_handler_that_is_canceled_answers_so_and_ends_nothing_else() -> None:
    @workflow
    async def flow(ctx: Ctx) -> Any:
        async def cancels(value: object) -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await ctx.sleep(1)

        ctx.on_update("cancels", cancels)
        ctx.on_signal("cancels", cancels)
        await ctx.wait_for_signal("end")

    server = Server(flow).update("cancels").signal("cancels").turn()
    answer = next(
        event.attributes
        for event in server.history.events
        if isinstance(event.attributes, e.WorkflowExecutionUpdateCompleted)
    )
    assert answer.failure is not None and answer.failure.type == "CancelledError"
    assert result(server.signal("end").turn()) is None


def test_RPLY_26_a_long_history_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    @workflow
    async def flow(ctx: Ctx) -> Any:
        while True:
            await ctx.parallel("many", [(charge, "x")] * 5_000)
            await ctx.wait_for_signal("go")

    server = Server(flow).turn()
    for step_id in list(server.running):
        server.end_step(step_id, "")
    server.append().signal("other").turn().signal("other").turn()
    assert [record.message for record in caplog.records] == [
        "workflow flow w1: its history has 10007 events: it should continue as new"
    ]
    server.lose()
