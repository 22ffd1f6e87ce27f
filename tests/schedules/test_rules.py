"""What a schedule does, over every store: timing, triggers, back-fills, workflows, its row and its key."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from perdure import Conflict, InvalidArgument, NotFound
from perdure.api.service import Caller, Service
from perdure.core import commands as c
from perdure.core import messages as m
from perdure.core import pages
from perdure.core import schedule_messages as s
from perdure.core import turn_commands as t
from perdure.core import workflow_messages as w
from perdure.core.events import WorkflowExecutionStarted
from perdure.core.model import SECOND, Failure, pack
from perdure.core.schedules import read
from perdure.core.states import Kind
from perdure.store.base import Filter, Store
from tests.clock import SteppedClock
from tests.engine.drive import Drive
from tests.engine.runs import Flows
from tests.schedules.flow import Flow, options, payload, rfc

START = "2026-01-01T00:00:00+00:00"


@pytest.fixture
def flow(drive: Drive, clock: SteppedClock) -> Flow:
    return Flow(drive, clock, START)


async def test_intervals_have_a_phase(flow: Flow) -> None:
    await flow.put(interval="10m", phase="3m")
    await flow.until("2026-01-01T00:30:00+00:00")
    assert [at[11:16] for at in flow.times] == ["00:03", "00:13", "00:23"]


async def test_start_and_end_are_kept(flow: Flow) -> None:
    """Both included; what is over stays, without an alarm, until it is deleted."""
    start = datetime(2026, 1, 2, tzinfo=UTC)
    await flow.put(interval="1h", start_at=start, end_at=start + timedelta(hours=3))
    assert [rfc(one.at)[5:13] for one in (await flow.view()).next_times] == [
        "01-02T00",
        "01-02T01",
        "01-02T02",
        "01-02T03",
    ]
    await flow.until("2026-01-03T00:00:00+00:00")
    assert len(flow.times) == 4
    view = await flow.view()
    assert (view.state, view.next_times, view.next_firing_at) == ("finished", [], None)
    assert await flow.drive.engine.store.next_alarm() is None
    await flow.delete()


async def test_remaining_counts_down(flow: Flow) -> None:
    await flow.put(interval="1h", remaining=3)
    await flow.until("2026-01-01T01:30:00+00:00")
    view = await flow.view()
    assert (view.remaining, len(view.next_times)) == (2, 2)
    await flow.until("2026-01-02T00:00:00+00:00")
    assert len(flow.times) == 3
    assert (await flow.view()).state == "finished"
    assert await flow.put(interval="1h", remaining=1, replace=True) == "updated"
    await flow.until("2026-01-03T00:00:00+00:00")
    assert flow.times[3:] == ["2026-01-02T01:00:00Z"]


async def test_jitter_is_the_same_for_a_nominal_time(flow: Flow) -> None:
    """CRON-04: the nominal times do not drift by it."""
    await flow.put(interval="1h", jitter="10m")
    expected = (await flow.view()).next_firing_at
    assert expected is not None
    assert datetime(2026, 1, 1, 1, tzinfo=UTC) < expected <= datetime(2026, 1, 1, 1, 10, tzinfo=UTC)
    await flow.until("2026-01-01T05:30:00+00:00")
    firings = (await flow.view()).recent
    delays = [(firing.at - firing.scheduled_at).total_seconds() for firing in firings]
    assert firings[-1].at == expected
    assert [rfc(firing.scheduled_at)[11:13] for firing in firings] == ["05", "04", "03", "02", "01"]
    assert len(set(delays)) == 5
    assert all(0 <= delay <= 600 for delay in delays)


async def test_a_late_firing_does_not_move_the_next_one(flow: Flow) -> None:
    """CRON-04."""
    await flow.put(interval=60)
    flow.sleep(75)
    await flow.until("2026-01-01T00:02:00+00:00")
    assert flow.times == ["2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"]


async def test_trigger_starts_one_whatever_runs(flow: Flow) -> None:
    """CRON-11. The same request starts one, and it does not count."""
    await flow.put(interval="1h", remaining=5, paused=True)
    one = await flow.service.trigger_schedule(s.TriggerSchedule("s", "request"))
    again = await flow.service.trigger_schedule(s.TriggerSchedule("s", "request"))
    other = await flow.service.trigger_schedule(s.TriggerSchedule("s"))
    assert (one.firing.outcome, again.firing.outcome, other.firing.outcome) == ("started", "started_before", "started")
    assert one.firing.task_id == again.firing.task_id != other.firing.task_id
    assert (await flow.service.get(m.Get(one.firing.task_id))).state == "ENQUEUED"
    await flow.work()
    assert len(flow.ran) == 2
    assert (await flow.view()).remaining == 5


async def test_what_was_triggered_counts_for_the_overlap(flow: Flow) -> None:
    flow.lasts = 90
    await flow.put(interval=60)
    await flow.service.trigger_schedule(s.TriggerSchedule("s"))
    await flow.until("2026-01-01T00:02:10+00:00")
    assert [firing.outcome for firing in (await flow.view()).recent] == ["started", "overlap", "started"]


async def test_backfill_fires_once_for_each_time(flow: Flow) -> None:
    """CRON-07: what has fired is found by its key; the rest is started, a portion a second, also while paused."""
    await flow.put(interval=60, overlap_policy="allow")
    await flow.until("2026-01-01T02:00:00+00:00")
    await flow.pause()
    before = len(flow.ran)
    start = datetime(2025, 12, 31, 23, 0, tzinfo=UTC)
    await flow.service.backfill_schedule(s.BackfillSchedule("s", start, start + timedelta(hours=2)))
    assert (await flow.view()).backfilling
    await flow.until("2026-01-01T02:00:10+00:00")
    assert len(flow.ran) == before + 61
    assert len(set(flow.times)) == len(flow.times)
    view = await flow.view()
    assert not view.backfilling
    assert view.counts == {"started": 120 + 61, "started_before": 60}
    assert view.next_firing_at is None


@pytest.mark.parametrize(("start", "hours", "field"), [(0, -1, "end_at"), (-1, 2, "end_at"), (-2000, 1999, "end_at")])
async def test_a_backfill_is_of_the_past_and_bounded(flow: Flow, start: int, hours: int, field: str) -> None:
    await flow.put(interval=60)
    first = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=start)
    with pytest.raises(InvalidArgument) as refused:
        await flow.service.backfill_schedule(s.BackfillSchedule("s", first, first + timedelta(hours=hours)))
    assert refused.value.field == field


async def test_eleven_backfills_are_too_many(flow: Flow) -> None:
    await flow.put(interval=60)
    moment = datetime(2025, 12, 31, tzinfo=UTC)
    for _ in range(10):
        await flow.service.backfill_schedule(s.BackfillSchedule("s", moment, moment))
    with pytest.raises(Conflict):
        await flow.service.backfill_schedule(s.BackfillSchedule("s", moment, moment))


async def test_pausing_drops_what_waits(flow: Flow) -> None:
    flow.lasts = 1000
    await flow.put(interval=60, overlap_policy="buffer_one")
    await flow.until("2026-01-01T00:02:30+00:00")
    assert (await flow.view()).buffered is not None
    await flow.pause()
    view = await flow.view()
    assert (view.buffered, view.state, view.recent[0].outcome) == (None, "paused", "paused")
    await flow.until("2026-01-01T00:30:00+00:00")
    assert len(flow.ran) == 1


async def test_a_deleted_schedule_leaves_nothing_and_its_id_is_free(flow: Flow) -> None:
    await flow.put(interval=60)
    await flow.delete()
    with pytest.raises(NotFound):
        await flow.view()
    with pytest.raises(NotFound):
        await flow.delete()
    with pytest.raises(NotFound):
        await flow.pause()
    assert await flow.put(interval=30) == "created"
    await flow.delete()
    flow.clock.advance(1)
    await flow.drive.one(c.Trim(closed_before=0, limit=100))
    assert await flow.drive.engine.store.find_key(("default", "", "schedule", "s")) is None
    assert await flow.put(interval=30, replace=True) == "created"


async def test_namespaces_do_not_see_each_other(flow: Flow) -> None:
    other = Service(flow.drive.engine, Caller("other"))
    await flow.put(interval=60)
    with pytest.raises(NotFound):
        await other.get_schedule(s.GetSchedule("s"))
    with pytest.raises(NotFound):
        await other.trigger_schedule(s.TriggerSchedule("s"))
    await other.put_schedule(s.PutSchedule(options(interval=60, body='"theirs"')))
    flow.clock.advance(60)
    await flow.ring()
    assert [ran.body for ran in flow.ran] == ["1"]
    assert len((await other.find_schedules(s.FindSchedules())).schedules) == 1


async def test_lists_are_paged_and_show_nothing_else(flow: Flow) -> None:
    """CRON-11. Neither are schedules among tasks or workflows."""
    await flow.drive.enqueue()
    for number in range(5):
        await flow.put(f"s{number}", interval=60)
    first = await flow.service.find_schedules(s.FindSchedules(2))
    second = await flow.service.find_schedules(s.FindSchedules(2, first.next))
    third = await flow.service.find_schedules(s.FindSchedules(2, second.next))
    names = [view.schedule_id for page in (first, second, third) for view in page.schedules]
    assert names == ["s4", "s3", "s2", "s1", "s0"]
    assert third.next is None
    assert len((await flow.service.find(m.Find())).tasks) == 1
    assert (await flow.service.find_workflows(w.FindWorkflows())).workflows == []
    assert {
        queue.name: (queue.ready, queue.delayed) for queue in (await flow.service.queues(m.ListQueues())).queues
    } == {"default": (1, 0)}


async def test_another_definition_under_an_id_is_a_conflict(flow: Flow) -> None:
    assert await flow.put(interval=60) == "created"
    assert await flow.put(interval=60.0) == "unchanged"
    assert await flow.put(interval="1m") == "unchanged"
    with pytest.raises(Conflict) as refused:
        await flow.put(interval=60, body="2")
    assert refused.value.field == "schedule_id"
    assert await flow.put(interval=60, body="2", replace=True) == "updated"
    assert await flow.put(interval=60, body="2") == "unchanged"
    with pytest.raises(Conflict):
        await flow.put(interval=60)


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"schedule_id": ""}, "schedule_id"),
        ({"schedule_id": "x" * 181}, "schedule_id"),
        ({"overlap_policy": "sometimes"}, "overlap_policy"),
        ({"misfire_policy": "never"}, "misfire_policy"),
        ({"remaining": 0}, "remaining"),
        ({"remaining": True}, "remaining"),
        ({"catch_up_window": -1}, "catch_up_window"),
        ({"jitter": "2d"}, "jitter"),
        ({"start_at": datetime(2026, 1, 1)}, "start_at"),
        ({"task": None}, "task"),
        ({"task": s.TaskTemplate("")}, "task.type"),
        ({"task": s.TaskTemplate("t", priority=9)}, "task.priority"),
        ({"task": s.TaskTemplate("t", payload(f'"{"x" * 300_000}"'))}, "task.payload"),
        ({"task": None, "workflow": s.WorkflowTemplate("w", workflow_id="x" * 181)}, "workflow.workflow_id"),
        ({"workflow": s.WorkflowTemplate("w")}, "task"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(sorted(value)),
)
async def test_bad_values_name_their_field(flow: Flow, changed: dict[str, Any], field: str) -> None:
    whole = {"schedule_id": "s", "task": s.TaskTemplate("t"), "interval": 60, **changed}
    with pytest.raises(InvalidArgument) as refused:
        await flow.service.put_schedule(s.PutSchedule(s.ScheduleOptions(**whole)))
    assert refused.value.field == field
    assert (await flow.service.find_schedules(s.FindSchedules())).schedules == []


@pytest.mark.parametrize("fault", ["bytes", "zone"])
async def test_a_row_that_cannot_be_read_stops_no_other(flow: Flow, fault: str) -> None:
    """Nor does one whose time zone this machine does not have."""
    await flow.put("broken", cron="* * * * *")
    await flow.put("whole", interval=60)
    store = flow.drive.engine.store
    [broken] = [row for row in await store.schedules("default", 10) if row.idempotency_key == "broken"]
    async with store.batch() as rows:
        [row] = (await rows.lock([broken.id])).values()
        schedule = read(row)
        timing = replace(schedule.definition.timing, timezone="Mars/Olympus")
        schedule.definition = replace(schedule.definition, timing=timing)
        row.checkpoint = b"\xc1" if fault == "bytes" else pack(schedule)
        await rows.change([row])
    flow.clock.advance(60)
    await flow.ring()
    assert [ran.schedule for ran in flow.ran] == ["whole"]
    listed = [view.schedule_id for view in (await flow.service.find_schedules(s.FindSchedules())).schedules]
    assert listed == ["whole"]


# ---------------------------------------------------------------------------------------------------------- workflows
async def test_workflows_have_ids_of_their_time_and_the_last_result(flow: Flow) -> None:
    """CRON-08, CRON-12: a history for each, and the result of the last one that completed, whatever came between."""
    template = s.WorkflowTemplate("flow", payload("1"), workflow_id="report", headers={"a": "b"})
    await flow.service.put_schedule(
        s.PutSchedule(s.ScheduleOptions(schedule_id="s", workflow=template, interval=3600, overlap_policy="allow"))
    )
    flows = Flows(flow.drive)
    seen = []
    for number, ending in enumerate(("complete", "fail", "complete")):
        flow.clock.advance(3600)
        await flow.drive.ring()
        turn = await flows.turn()
        page = (await flow.drive.engine.store.histories({turn.task.id: 0}, 1))[turn.task.id][0]
        begun = pages.unpack(page.data)[0].attributes
        assert isinstance(begun, WorkflowExecutionStarted)
        seen.append((begun.workflow_id, [one.data for one in begun.last_result], begun.header["a"]))
        if ending == "complete":
            await turn.append(t.CompleteWorkflow(result=payload(f"{number}")))
        else:
            await turn.append(t.FailWorkflow(failure=Failure(message="no")))
    assert seen == [
        ("report-2026-01-01T01:00:00Z", [], "b"),
        ("report-2026-01-01T02:00:00Z", [b"0"], "b"),
        ("report-2026-01-01T03:00:00Z", [b"0"], "b"),
    ]
    view = await flow.service.describe_workflow(w.DescribeWorkflow("report-2026-01-01T01:00:00Z"))
    assert view.status == "COMPLETED"


async def test_a_workflow_that_runs_is_an_overlap(flow: Flow) -> None:
    template = s.WorkflowTemplate("flow")
    await flow.service.put_schedule(s.PutSchedule(s.ScheduleOptions(schedule_id="s", workflow=template, interval=60)))
    for _ in range(3):
        flow.clock.advance(60)
        await flow.drive.ring()
    assert (await flow.view()).counts == {"started": 1, "overlap": 2}
    await flow.service.terminate_workflow(w.TerminateWorkflow("s-2026-01-01T00:01:00Z"))
    flow.clock.advance(60)
    await flow.drive.ring()
    assert (await flow.view()).counts == {"started": 2, "overlap": 2}


async def test_cancel_previous_asks_a_workflow(flow: Flow) -> None:
    """One that never began is closed, and the next one starts a second later."""
    template = s.WorkflowTemplate("flow")
    schedule = s.ScheduleOptions(schedule_id="s", workflow=template, interval=60, overlap_policy="cancel_previous")
    await flow.service.put_schedule(s.PutSchedule(schedule))
    for seconds in (60, 60, 1):
        flow.clock.advance(seconds)
        await flow.drive.ring()
    runs = (await flow.service.find_workflows(w.FindWorkflows())).workflows
    assert [(run.workflow_id, run.status) for run in runs] == [
        ("s-2026-01-01T00:02:00Z", "RUNNING"),
        ("s-2026-01-01T00:01:00Z", "CANCELLED"),
    ]


async def test_a_workflow_id_that_somebody_has_is_left_alone(flow: Flow) -> None:
    await flow.service.start_workflow(w.StartWorkflow("flow", "s-2026-01-01T00:01:00Z"))
    template = s.WorkflowTemplate("flow")
    await flow.service.put_schedule(s.PutSchedule(s.ScheduleOptions(schedule_id="s", workflow=template, interval=60)))
    flow.clock.advance(60)
    await flow.drive.ring()
    assert (await flow.view()).counts == {"workflow_id_taken": 1}
    flow.clock.advance(60)
    await flow.drive.ring()
    assert (await flow.view()).counts == {"workflow_id_taken": 1, "started": 1}


async def test_two_schedules_do_not_make_one_run(flow: Flow) -> None:
    """Of the same workflow id and time, in one batch."""
    template = s.WorkflowTemplate("flow", workflow_id="same")
    for name in ("a", "b"):
        await flow.service.put_schedule(
            s.PutSchedule(s.ScheduleOptions(schedule_id=name, workflow=template, interval=60))
        )
    flow.clock.advance(60)
    await flow.drive.ring()
    counts = [(await flow.view(name)).counts for name in ("a", "b")]
    assert sorted(map(str, counts)) == ["{'started': 1}", "{'workflow_id_taken': 1}"]


# -------------------------------------------------------------------------------------------------------------- store
async def test_stores_list_schedules_and_nothing_else(store: Store, drive: Drive, clock: SteppedClock) -> None:
    flow = Flow(drive, clock, START)
    await drive.enqueue()
    for name in ("a", "b", "c"):
        await flow.put(name, interval=60)
    rows = await store.schedules("default", 10)
    assert [row.idempotency_key for row in rows] == ["c", "b", "a"]
    assert all(row.kind is Kind.SCHEDULE and row.checkpoint for row in rows)
    assert [row.id for row in await store.schedules("default", 1, rows[0].id)] == [rows[1].id]
    assert await store.schedules("other", 10) == []
    assert len(await store.find(Filter(namespace="default", limit=10, kind=Kind.JOB))) == 1


async def test_a_firing_that_was_made_before_is_not_made_again(flow: Flow) -> None:
    """IDEM-12, CRON-07: as after a database was restored to the moment before."""
    await flow.put(interval=60)
    store = flow.drive.engine.store
    [before] = await store.schedules("default", 1)
    flow.clock.advance(60)
    await flow.ring()
    async with store.batch() as rows:
        [row] = (await rows.lock([before.id])).values()
        row.checkpoint, row.ready_at, row.wake_at = before.checkpoint, before.ready_at, before.wake_at
        await rows.change([row])
    await flow.ring()
    assert flow.times == ["2026-01-01T00:01:00Z"]
    assert (await flow.view()).counts == {"started_before": 1}


async def test_a_customer_s_key_suppresses_no_firing(flow: Flow) -> None:
    await flow.drive.enqueue(key="s/2026-01-01T00:01:00Z", headers=pack({s.SCHEDULE_ID: "-", s.SCHEDULED_AT: "-"}),
                             payload=pack(payload()))  # fmt: skip
    await flow.put(interval=60)
    flow.clock.advance(60)
    await flow.ring()
    assert sorted(flow.times) == ["-", "2026-01-01T00:01:00Z"]


async def test_a_firing_key_expires(flow: Flow) -> None:
    await flow.put(interval=60, remaining=1)
    await flow.until("2026-01-01T00:02:00+00:00")
    flow.clock.advance(86_400)
    moment = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
    await flow.service.backfill_schedule(s.BackfillSchedule("s", moment, moment))
    await flow.ring()
    assert flow.times == ["2026-01-01T00:01:00Z"] * 2
    assert flow.clock.now() > 86_400 * SECOND
