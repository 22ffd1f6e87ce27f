"""Field cases on children, and on cancel, terminate and their difference."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import (
    AsyncPerdure,
    Cancelled,
    ChildWorkflowError,
    Context,
    TaskCanceled,
    TaskFailed,
    TaskTerminated,
    task,
    workflow,
)
from tests.field.flows import names, one_store, shows, waits


@pytest.mark.parametrize("style", ["async", "plain"])
async def test_b019_a_parent_that_waits_holds_no_slot(app: AsyncPerdure, style: str) -> None:
    """One slot for all: a parent and its child, a parent of ten, one that goes five deep, and an activity in each."""

    @task(name="b019 leaf")
    async def leaf(ctx: Context, payload: None) -> int:
        return 1

    @workflow(name="deep")
    async def deep(ctx: Any, depth: int) -> int:
        below = await ctx.execute_child("deep", depth - 1) if depth else 0
        return below + await ctx.execute_activity(leaf)

    @workflow(name="wide")
    async def wide(ctx: Any, width: int) -> int:
        return sum(await asyncio.gather(*(ctx.execute_child("deep", 0) for _ in range(width))))

    @workflow(name="plain deep")
    def plain_deep(ctx: Any, depth: int) -> int:
        below = ctx.execute_child("plain deep", depth - 1) if depth else 0
        return below + ctx.execute_activity(leaf)

    @workflow(name="plain wide")
    def plain_wide(ctx: Any, width: int) -> int:
        handles = [ctx.start_child("plain deep", 0) for _ in range(width)]
        return sum(handle.result() for handle in handles)

    of_style = (deep, wide) if style == "async" else (plain_deep, plain_wide)
    async with app.worker(slots=1):
        for flow, size, expected in ((of_style[0], 1, 2), (of_style[1], 10, 10), (of_style[0], 5, 6)):
            assert await app.execute_workflow(flow, size, timeout=20) == expected


@pytest.mark.parametrize("end", ["cancel", "terminate"])
async def test_b099_children_end_as_their_policy_says(app: AsyncPerdure, end: str) -> None:
    """One child of each policy, and a grandchild below the one that is terminated."""

    @workflow(name="sits")
    async def sits(ctx: Any, child: bool) -> str:
        if child:
            await ctx.start_child("sits", False, workflow_id="grandchild")
        await ctx.wait_for_signal("end")
        return "went on"

    @workflow(name="parent")
    async def parent(ctx: Any) -> None:
        for policy in ("abandon", "request_cancel", "terminate"):
            await ctx.start_child("sits", policy == "terminate", workflow_id=policy, parent_close_policy=policy)
        await ctx.wait_for_signal("never")

    async with app.worker():
        run = await app.start_workflow(parent, id="parent")
        children = {id: app.get_workflow_handle(id) for id in ("abandon", "request_cancel", "terminate", "grandchild")}
        await shows(run, lambda view: len(view.pending_children) == 3)
        await shows(run, lambda view: view.state == "WAITING")
        for child in children.values():
            await waits(child)
        await (run.cancel("enough") if end == "cancel" else run.terminate("enough"))
        with pytest.raises(TaskCanceled if end == "cancel" else TaskTerminated):
            await run.result(10)
        with pytest.raises(TaskCanceled):
            await children["request_cancel"].result(10)
        for child in ("terminate", "grandchild"):
            with pytest.raises(TaskTerminated):
                await children[child].result(10)
        await children["abandon"].signal("end")
        assert await children["abandon"].result(10) == "went on"


ENDS = {
    "cancel": ("CANCELLED", "canceled", "ChildWorkflowExecutionCanceled"),
    "terminate": ("TERMINATED", "terminated", "ChildWorkflowExecutionTerminated"),
    "fail": ("FAILED", "handler_error", "ChildWorkflowExecutionFailed"),
    "time out": ("TIMED_OUT", "timed_out", "ChildWorkflowExecutionTimedOut"),
}


@one_store
@pytest.mark.parametrize("end", ENDS)
async def test_b102_each_end_of_a_child_is_told_from_the_others(app: AsyncPerdure, end: str) -> None:
    """Its own status, the code of the error that its parent gets, and the event in the parent's history. The parent,
    which does not catch it, fails, whatever became of the child."""
    status, code, event = ENDS[end]

    @workflow(name="child")
    async def child(ctx: Any) -> None:
        await ctx.wait_for_signal("fail")
        raise ValueError("by itself")

    @workflow(name="catches")
    async def catches(ctx: Any, limit: float | None) -> str:
        try:
            await ctx.execute_child(child, workflow_id="caught", run_timeout=limit)
        except ChildWorkflowError as error:
            return error.failure.code
        return ""

    @workflow(name="passes on")
    def passes_on(ctx: Any, limit: float | None) -> None:
        ctx.execute_child(child, workflow_id="passed on", run_timeout=limit)

    limit = 0.3 if end == "time out" else None
    async with app.worker():
        for flow, id in ((catches, "caught"), (passes_on, "passed on")):
            run = await app.start_workflow(flow, limit)
            below = app.get_workflow_handle(id)
            await shows(run, lambda view: view.pending_children)
            if end == "cancel":
                await below.cancel()
            elif end == "terminate":
                await below.terminate()
            elif end == "fail":
                await below.signal("fail")
            if flow is catches:
                assert await run.result(10) == code
            else:
                with pytest.raises(TaskFailed) as caught:
                    await run.result(10)
                assert caught.value.failure.type == "ChildWorkflowError"
                assert caught.value.failure.cause is not None
                assert caught.value.failure.cause.code == code
            assert (await below.describe()).status == status
            assert [name for name in await names(run) if name.startswith("ChildWorkflowExecution")][1:] == [event]


@one_store
@pytest.mark.parametrize("style", ["async", "plain"])
@pytest.mark.parametrize("worker_before", [False, True])
async def test_b103_a_cancel_before_the_first_turn(app: AsyncPerdure, style: str, worker_before: bool) -> None:
    """With no worker up, or while it is delayed: canceled at once, its code never runs, and nothing hangs."""
    entered: list[str] = []

    @workflow(name="never")
    async def never(ctx: Any) -> None:
        entered.append("code")

    @workflow(name="plain never")
    def plain_never(ctx: Any) -> None:
        entered.append("code")

    @workflow(name="after")
    async def after(ctx: Any) -> str:
        return "it had its chance"

    flow = never if style == "async" else plain_never

    async def cancel() -> None:
        run = await app.start_workflow(flow, start_delay="1h" if worker_before else None)
        await run.cancel("changed my mind")
        with pytest.raises(TaskCanceled):
            await run.result(5)
        assert (await run.describe()).status == "CANCELLED"
        assert (await names(run))[-1] == "WorkflowExecutionCanceled"

    if worker_before:
        async with app.worker():
            await cancel()
    else:
        await cancel()
        async with app.worker():
            assert await app.execute_workflow(after, timeout=10) == "it had its chance"
    assert entered == []


@one_store
@pytest.mark.parametrize("style", ["async", "plain"])
async def test_b121_a_cancel_reaches_what_the_run_waits_for(app: AsyncPerdure, style: str) -> None:
    """An activity in a thread, which looks at its ctx; a child; the clean-up behind them runs to its end in spite of a
    second cancel."""
    cleaned: list[str] = []

    @task(name="b121 loop")
    async def loop(ctx: Context, payload: None) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append("activity")

    async def clean() -> None:
        await asyncio.sleep(0.2)
        cleaned.append("run")

    @workflow(name="cancelable")
    async def cancelable(ctx: Any) -> None:
        try:
            await ctx.execute_activity(loop)
        except asyncio.CancelledError:
            with ctx.shielded():
                await ctx.step("clean", clean)
            raise

    @workflow(name="plain cancelable")
    def plain_cancelable(ctx: Any) -> None:
        try:
            ctx.execute_activity(loop)
        except Cancelled:
            with ctx.shielded():
                ctx.step("clean", clean)
            raise

    async with app.worker():
        run = await app.start_workflow(cancelable if style == "async" else plain_cancelable)
        await shows(run, lambda view: any(activity.state == "LEASED" for activity in view.pending_activities))
        await run.cancel()
        await run.cancel()
        with pytest.raises(TaskCanceled):
            await run.result(10)
        async with asyncio.timeout(5):
            while len(cleaned) < 2:
                await asyncio.sleep(0.005)
    assert sorted(cleaned) == ["activity", "run"]
