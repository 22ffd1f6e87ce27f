"""The SDK's calls, asynchronous and blocking; what handlers see; and a real worker behind a real alarm."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from perdure import AsyncPerdure, Context, Job, Perdure, WorkflowHandle, task, workflow
from perdure.testing import jumping


@task(queue="reports", priority=2)
def scheduled_report(ctx: Context, payload: dict[str, int]) -> list[Any]:
    return [payload["n"], ctx.scheduled_at.isoformat() if ctx.scheduled_at else None]


@workflow(queue="flows")
def scheduled_flow(ctx: Any, payload: int) -> int:
    assert ctx.info.scheduled_at is not None
    return (ctx.info.last_result or 0) + payload


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[AsyncPerdure]:
    async with AsyncPerdure(f"sqlite:///{tmp_path / 'jobs.db'}") as app:
        yield app


async def test_options_of_the_task_hold(app: AsyncPerdure) -> None:
    made = await app.create_schedule("s", task=scheduled_report, payload={"n": 1}, calendar={"hour": "9"})
    view = await made.describe()
    assert (made.did, made.id, repr(made)) == ("created", "s", "<schedule s>")
    assert view.task is not None
    assert (view.task.type, view.task.queue, view.task.priority) == ("scheduled_report", "reports", 2)
    assert view.calendar is not None
    assert view.calendar.hour == "9"
    await app.put_schedule("s", task="scheduled_report", payload={"n": 1}, queue="q", interval=5, headers={"a": "b"})
    view = await app.get_schedule_handle("s").describe()
    assert view.task is not None
    assert (view.task.queue, view.task.headers, view.interval) == ("q", {"a": "b"}, 5.0)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "give one of them"),
        ({"task": "t", "workflow": "w"}, "give one of them"),
        ({"task": "t", "memo": {}}, "a schedule of a task has no option memo"),
        ({"workflow": "w", "timeouts": None}, "a schedule of a workflow has no option timeouts"),
        ({"task": "t", "every": 5}, "no option every"),
        ({"task": "t", "calendar": {"hours": "9"}}, "a calendar has no field hours"),
    ],
    ids=str,
)
async def test_misspelled_options_are_errors(app: AsyncPerdure, given: dict[str, Any], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        await app.create_schedule("s", **given)


async def test_handlers_know_the_nominal_time(app: AsyncPerdure) -> None:
    """A real worker, and a schedule of every second."""
    async with app.worker(queues=["reports", "flows"]):
        ticks = await app.create_schedule("ticks", task=scheduled_report, payload={"n": 1}, interval=1, remaining=1)
        flows = await app.create_schedule("flows", workflow=scheduled_flow, payload=2, interval="1h")
        started = await (await flows.trigger()).result(30)
        assert started == 2
        while not (view := await ticks.describe()).counts:
            await asyncio.sleep(0.05)
        [firing] = view.recent
        assert await app.job(firing.task_id).result(30) == [1, firing.scheduled_at.isoformat()]
        assert firing.at >= firing.scheduled_at
        assert view.state == "finished"
        assert (await app.enqueue(scheduled_report, {"n": 3})).id
        plain = await app.enqueue(scheduled_report, {"n": 3})
        assert await plain.result(30) == [3, None]


def test_blocking_calls(tmp_path: Path) -> None:
    with Perdure(f"sqlite:///{tmp_path / 'jobs.db'}") as app:
        made = app.create_schedule("s", task=scheduled_report, payload={"n": 1}, cron="@yearly", paused=True, note="n")
        assert (made.did, made.id, repr(made)) == ("created", "s", "<schedule s>")
        assert app.put_schedule("s", task=scheduled_report, payload={"n": 1}, cron="@yearly").did == "unchanged"
        assert made.describe().note == "n"
        made.resume()
        made.pause("again")
        assert app.get_schedule_handle("s").describe().state == "paused"
        assert isinstance(made.trigger(), Job)
        assert isinstance(
            app.create_schedule("w", workflow=scheduled_flow, payload=1, interval=9).trigger(), WorkflowHandle
        )
        moment = datetime.now(UTC) - timedelta(days=1)
        made.backfill(moment, moment)
        assert [view.schedule_id for view in app.list_schedules().schedules] == ["w", "s"]
        [planned] = app.preview_schedule(1, datetime(2026, 1, 1, tzinfo=UTC), interval="1h", phase="1s")
        assert planned.local == "2026-01-01T00:00:01+00:00"
        made.delete()
        assert len(app.list_schedules().schedules) == 1


def test_schedules_in_tests_of_applications() -> None:
    """On a clock that jumps they fire, too."""
    app = Perdure("sqlite:///never.db")
    with jumping(app, start=datetime(2026, 1, 1, tzinfo=UTC)) as env:
        app.create_schedule("s", task=scheduled_report, payload={"n": 1}, cron="0 6 * * *")
        env.advance(days=3)
        assert app.get_schedule_handle("s").describe().counts == {"started": 3}
        flows = app.create_schedule("w", workflow=scheduled_flow, payload=5, cron="0 7 * * *")
        env.advance(days=3)
        runs = app.list_workflows().workflows
        assert [app.get_workflow_handle(run.workflow_id).result(5) for run in runs] == [15, 10, 5]
        app.enqueue(scheduled_report, {"n": 2}, delay="2d")
        env.run()
        assert env.now < datetime(2026, 1, 10, tzinfo=UTC)
        assert app.get_schedule_handle("s").describe().counts == {"started": 8}
        flows.delete()
        app.get_schedule_handle("s").delete()
        env.run()
