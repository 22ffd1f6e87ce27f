"""The Replayer: compatible, or the exact place (RPLY-38, RPLY-48)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perdure.core.errors import InvalidArgument, NotFound
from perdure.core.events import (
    Event,
    WorkflowExecutionTerminated,
    WorkflowTaskFailed,
    WorkflowTaskScheduled,
    WorkflowTaskStarted,
)
from perdure.sdk.definition import WORKFLOWS
from perdure.sdk.history import WorkflowHistory
from perdure.sdk.workflow import workflow
from perdure.sdk.workflow_context import WorkflowContext
from perdure.sdk.workflow_errors import NonDeterminismError
from perdure.worker.replay import Replayer
from tests.replay.server import Server

FOLDER = Path(__file__).parent


def charge(card: str) -> str: ...  # type: ignore[empty-body]


async def old(ctx: WorkflowContext) -> Any:
    ctx.on_query("where", lambda: where)
    where = await ctx.step("charge", charge, "visa")
    await ctx.sleep("cool_off", days=1)
    return where


async def new(ctx: WorkflowContext) -> Any:
    await ctx.sleep("cool_off", days=1)
    return await ctx.step("charge", charge, "visa")


def plain(ctx: WorkflowContext) -> Any:
    """The same as `old`, in the other style: one history serves both (X-01)."""
    ctx.on_query("where", lambda: where)
    where = ctx.step("charge", charge, "visa")
    ctx.sleep("cool_off", days=1)
    return where


def history() -> WorkflowHistory:
    return Server(workflow(old, name="flow")).turn().step(1, "there").recorded()


@pytest.mark.parametrize("code", [old, plain])
def test_a_compatible_history_gives_its_state_in_both_styles(code: Any) -> None:
    recorded = history()
    WORKFLOWS.clear()
    replayed = Replayer({"flow": workflow(code, name="flow")}).replay(recorded).check()
    assert replayed.compatible and str(replayed) == f"compatible: flow w1, {len(recorded.events)} events"
    assert replayed.query("where") == "there"


@pytest.mark.parametrize("code", [old, plain])
@pytest.mark.parametrize("turns", [0, 1])
def test_a_run_that_never_came_to_anything_fits_any_code(code: Any, turns: int) -> None:
    """It was terminated before its first turn, or that failed until then: there is nothing to replay."""
    started = history().events[0]
    failed: list[Any] = [WorkflowTaskScheduled(task_queue="default"), WorkflowTaskStarted(scheduled_event_id=2)]
    news = [*failed, WorkflowTaskFailed(scheduled_event_id=2, started_event_id=3, cause="bug")] * turns
    events = [started, *(Event(n, started.time, attributes) for n, attributes in enumerate(news, 2))]
    WORKFLOWS.clear()
    replayer = Replayer({"flow": workflow(code, name="flow")})
    for closed in (events, [*events, Event(len(events) + 1, started.time, WorkflowExecutionTerminated())]):
        assert replayer.replay(WorkflowHistory("w1", "", closed)).check().compatible


def test_a_divergence_is_told_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "history.json"
    file.write_bytes(history().to_json())
    WORKFLOWS.clear()
    replayed = Replayer({"flow": workflow(new, name="flow")}).replay(file)
    error = replayed.error
    assert not replayed.compatible and isinstance(error, NonDeterminismError)
    assert (error.event_id, error.file, error.line) == (5, __file__, new.__code__.co_firstlineno + 1)
    assert "expected StepStarted (name 'charge', step_id 1), found TimerStarted" in str(replayed)
    with pytest.raises(NonDeterminismError):
        replayed.check()


def test_histories_survive_json() -> None:
    recorded = history()
    assert WorkflowHistory.from_json(recorded.to_json()) == recorded


def test_what_is_no_history_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="this is no history"):
        (tmp_path / "x").write_text("{}")
        Replayer().replay(tmp_path / "x")
    with pytest.raises(InvalidArgument, match="begins with"):
        Replayer().replay(WorkflowHistory("w1", "", []))
    recorded = history()
    WORKFLOWS.clear()
    with pytest.raises(NotFound, match="no workflow is named 'flow'; there are: none"):
        Replayer().replay(recorded)
