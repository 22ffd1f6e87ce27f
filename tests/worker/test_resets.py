"""Runs that are stuck or went wrong, and what an operator does about them: reset, pause, resume, and the question which
runs still need old code. In both styles, with a real worker on the embedded engine (RPLY-20, RPLY-39, OPS-13)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from perdure.app import AsyncPerdure
from perdure.core.errors import TaskTerminated
from perdure.core.events import StepStarted
from perdure.core.workflow_messages import WorkflowView
from perdure.sdk.definition import WORKFLOWS
from perdure.sdk.run_handle import AsyncWorkflowHandle
from perdure.sdk.workflow import workflow

STYLES = pytest.mark.parametrize("style", ["plain", "async"])
Steps = list[str]


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[AsyncPerdure]:
    async with AsyncPerdure(f"sqlite:///{tmp_path}/jobs.db") as app, asyncio.timeout(60):
        yield app


def in_style(style: str, code: Callable[[Any, Any], Any]) -> Any:
    """`code` is a generator that yields what each style waits for in its own way."""

    def plain(ctx: Any, given: Any) -> Any:
        going, value = code(ctx, given), None
        while True:
            try:
                value = going.send(value)()
            except StopIteration as end:
                return end.value

    async def in_async(ctx: Any, given: Any) -> Any:
        going, value = code(ctx, given), None
        while True:
            try:
                value = await going.send(value)()
            except StopIteration as end:
                return end.value

    return plain if style == "plain" else in_async


@asynccontextmanager
async def deployed(app: AsyncPerdure, style: str, code: Callable[[Any, Any], Any]) -> AsyncIterator[None]:
    """A worker that has this code as the workflow "order", and nothing of what was deployed before."""
    WORKFLOWS.pop("order", None)
    mended = workflow(name="order")(in_style(style, code))
    async with app.worker(workflows=[mended]):
        yield


async def until(run: AsyncWorkflowHandle, seen: Callable[[WorkflowView], bool]) -> WorkflowView:
    while not seen(view := await run.describe()):
        await asyncio.sleep(0.005)
    return view


async def claims(run: AsyncWorkflowHandle) -> list[str]:
    events = (await run.history()).events
    return [event.attributes.name for event in events if isinstance(event.attributes, StepStarted)]


def step(ctx: Any, done: Steps, name: str) -> Callable[[], Any]:
    return lambda: ctx.step(name, done.append, name)


@STYLES
async def test_a_wrong_branch_is_taken_back(app: AsyncPerdure, style: str) -> None:
    """OPS-13, EX-34: mended code is deployed, and the run begins again before the step that should not have been."""
    done: Steps = []

    def wrong(ctx: Any, total: int) -> Any:
        yield step(ctx, done, "count")
        yield step(ctx, done, "refuse" if total > 10 else "ship")
        yield lambda: ctx.wait_for_signal("close")
        return "closed"

    def right(ctx: Any, total: int) -> Any:
        yield step(ctx, done, "count")
        yield step(ctx, done, "ship" if total > 10 else "refuse")
        yield lambda: ctx.wait_for_signal("close")
        return "closed"

    async with deployed(app, style, wrong):
        run = await app.start_workflow("order", 11, id="o1")
        await until(run, lambda view: view.state == "WAITING" and "refuse" in done)
    async with deployed(app, style, right):
        again = await app.get_workflow_handle("o1").reset(step="refuse", reason="the branches were swapped")
        await again.signal("close")
        assert await again.result(30) == "closed"
    assert done == ["count", "refuse", "ship"]
    assert await claims(again) == ["count", "ship"]
    with pytest.raises(TaskTerminated, match="the branches were swapped"):
        await run.result(0)
    assert (await app.get_workflow_handle("o1").describe()).run_id == again.run_id


@STYLES
async def test_a_stuck_run_goes_on_with_mended_code(app: AsyncPerdure, style: str) -> None:
    """FAIL-25: the third way out of a bad deploy. What was signaled while it was stuck is not lost."""
    done: Steps = []

    def before(ctx: Any, _: Any) -> Any:
        yield step(ctx, done, "a")
        yield step(ctx, done, "b")
        return (yield lambda: ctx.wait_for_signal("go"))

    def after(ctx: Any, _: Any) -> Any:
        yield step(ctx, done, "a")
        yield step(ctx, done, "c")
        return (yield lambda: ctx.wait_for_signal("go"))

    async with deployed(app, style, before):
        run = await app.start_workflow("order", id="o1")
        await until(run, lambda view: view.state == "WAITING" and "b" in done)
    async with deployed(app, style, after):
        await run.signal("go", 42)
        view = await until(run, lambda view: view.stuck)
        assert view.failure is not None and view.failure.code == "non_determinism"
        events = (await run.history()).events
        [claim] = [e for e in events if isinstance(e.attributes, StepStarted) and e.attributes.name == "b"]
        again = await run.reset(event_id=claim.id - 1)
        assert await again.result(30) == 42
    assert done == ["a", "b", "c"]


@STYLES
async def test_a_restart_runs_a_step_and_what_follows_and_nothing_before(app: AsyncPerdure, style: str) -> None:
    """Of a run that has ended, too; what was claimed together begins together; of one name the last step is meant."""
    done: Steps = []

    def code(ctx: Any, _: Any) -> Any:
        yield step(ctx, done, "a")
        yield step(ctx, done, "b")
        yield lambda: ctx.parallel("fan", [(done.append, "p"), (done.append, "q")])
        yield step(ctx, done, "b")
        yield lambda: ctx.sleep(0.01)
        yield step(ctx, done, "c")
        return len(done)

    async with deployed(app, style, code):
        run = await app.start_workflow("order", id="o1")
        assert await run.result(30) == 6
        for name, expected in (("c", ["c"]), ("b", ["b", "c"]), ("fan[1]", ["p", "q", "b", "c"])):
            done.clear()
            again = await app.get_workflow_handle("o1").reset(step=name)
            assert await again.result(30) == len(expected)
            assert sorted(done[:2]) + done[2:] == expected
            assert await claims(again) == ["a", "b", "fan[0]", "fan[1]", "b", "c"]
            assert (await again.describe()).first_run_id == run.run_id


@STYLES
async def test_a_paused_run_waits_for_somebody(app: AsyncPerdure, style: str) -> None:
    """What comes meanwhile is kept; the view says what it waits for."""

    def code(ctx: Any, _: Any) -> Any:
        return (yield lambda: ctx.wait_for_signal("go"))

    async with deployed(app, style, code):
        run = await app.start_workflow("order", id="o1")
        await until(run, lambda view: view.state == "WAITING")
        for _ in range(2):
            assert (await run.pause()).state == "WAITING"
        view = await run.describe()
        assert (view.paused, view.waiting_for) == (True, "somebody to resume it: it is paused")
        await run.signal("go", "once")
        view = await run.describe()
        assert (view.state, view.paused, view.pending_signals) == ("ENQUEUED", True, 1)
        assert view.waiting_for == "somebody to resume it: it is paused"
        for _ in range(2):
            await run.resume()
        assert await run.result(30) == "once"
        assert not (await run.describe()).paused


@STYLES
async def test_which_open_runs_lack_a_marker(app: AsyncPerdure, style: str) -> None:
    """RPLY-20, API-26: as soon as nothing is listed, the code from before the patch can go."""

    def old(ctx: Any, _: Any) -> Any:
        yield lambda: ctx.wait_for_signal("go")
        return "old"

    def new(ctx: Any, _: Any) -> Any:
        patched = ctx.patched("fräud")
        ctx.version("bank", 0, 2)
        yield lambda: ctx.wait_for_signal("go")
        return "new" if patched else "old"

    async def lacking(version: str) -> list[str]:
        page = await app.list_workflows(type="order", lacks_version=version)
        assert page.next is None
        return sorted(view.workflow_id for view in page.workflows)

    async with deployed(app, style, old):
        runs = [await app.start_workflow("order", id=f"old {n}") for n in range(3)]
        for run in runs:
            await until(run, lambda view: view.state == "WAITING")
        assert await lacking("fräud") == ["old 0", "old 1", "old 2"]
    async with deployed(app, style, new):
        young = await app.start_workflow("order", id="new")
        await until(young, lambda view: view.state == "WAITING")
        assert await lacking("fräud") == ["old 0", "old 1", "old 2"]
        assert await lacking("bank") == ["old 0", "old 1", "old 2"]
        assert "new" in await lacking("no such")
        await runs[0].signal("go")
        assert await runs[0].result(30) == "old"
        again = await runs[1].reset(event_id=1)
        await until(again, lambda view: view.state == "WAITING")
        assert await lacking("fräud") == ["old 2"], "what has closed, or was begun again, needs no old code"
        await runs[2].terminate()
        assert await lacking("fräud") == []


@STYLES
async def test_a_run_that_hurries_is_reset_all_the_same(app: AsyncPerdure, style: str) -> None:
    """Its history is read beside the batch, so it goes on meanwhile; what is new is read, and it is tried again."""
    done: Steps = []

    def code(ctx: Any, _: Any) -> Any:
        for _ in range(1000):
            yield step(ctx, done, "a")
        return "over"

    async with deployed(app, style, code):
        run = await app.start_workflow("order", id="o1")
        while len(done) < 20:
            await asyncio.sleep(0.001)
        again = await run.reset(event_id=8)
        with pytest.raises(TaskTerminated):
            await run.result(0)
        await until(again, lambda view: view.history_length > 20)
        await again.terminate()
