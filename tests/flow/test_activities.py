"""Limits count the activities of workflows as they count jobs: by key and by weight (QUOTA-06, B018)."""

from __future__ import annotations

from typing import Any

from perdure.core import turn_commands as t
from perdure.core.model import pack
from perdure.sdk.task import task
from perdure.sdk.workflow import workflow
from perdure.sdk.workflow_context import WorkflowContext
from tests.engine.drive import Drive
from tests.engine.runs import MINT, Flows, activity, payload
from tests.flow.limited import occupied, poll_all, put
from tests.replay.server import Server


@task(name="flow.heavy", weight=3)
def heavy(ctx: Any, payload: Any) -> None: ...


@workflow(name="flow.schedules")
async def schedules(ctx: WorkflowContext) -> None:
    ctx.start_activity(heavy)
    ctx.start_activity(heavy, concurrency_key="customer:1", weight=2)
    await ctx.execute_activity("flow.by_name")


def test_an_activity_has_the_weight_of_its_task_and_what_the_call_says() -> None:
    server = Server(schedules).turn()
    commands = [one for one in server.open.values() if isinstance(one, t.ScheduleActivity)]
    assert [(one.concurrency_key, one.weight) for one in commands] == [("", 3), ("customer:1", 2), ("", 1)]


async def test_each_value_of_a_key_limits_activities(drive: Drive) -> None:
    flows = Flows(drive)
    await put(drive, "key", "customer", max_running=1)
    await flows.start()
    keys = ("customer:1", "customer:1", "customer:2", "")
    await (await flows.turn()).append(
        *(activity(str(n), concurrency_key=key, schedule_to_close=60.0) for n, key in enumerate(keys))
    )
    first = await poll_all(drive)
    assert [task.idempotency_key for task in first] == ["0", "2", "3"]
    await drive.complete(first[0], "succeeded", result=pack(()))
    assert [task.idempotency_key for task in await poll_all(drive)] == ["1"]


async def test_the_weight_of_activities_and_of_the_calls_of_a_group_counts(drive: Drive) -> None:
    flows = Flows(drive)
    await put(drive, "type", "work", max_running=5)
    await flows.start()
    calls = t.StartGroup(
        task_id=MINT.task_id(drive.engine.now()), group_id="g", activity_type="work", task_queue="default", weight=2,
        inputs=[payload("1")] * 4,
    )  # fmt: skip
    await (await flows.turn()).append(activity("a", weight=2), calls)
    while await drive.ring():
        pass
    first = await poll_all(drive)
    assert [task.weight for task in first] == [2, 2]
    assert sum((await occupied(drive)).values()) == 4
