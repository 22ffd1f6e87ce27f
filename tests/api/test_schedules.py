"""Schedules over every transport and over REST."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure.client.base import Service
from perdure.core import messages as m
from perdure.core import schedule_messages as s
from perdure.core.errors import Conflict, InvalidArgument, NotFound
from tests.api.calls import Rest, payload

OPTIONS = s.ScheduleOptions(schedule_id="a/b c", task=s.TaskTemplate("t", payload()), cron="0 0 1 1 *")
SCHEDULE: dict[str, Any] = {
    "id": "a/b c",
    "cron": "0 0 1 1 *",
    "task_template": {"task_type": "t", "payload": {"n": 12345678901234567890, "x": 1.10}},
}
PATH = "/v1/schedules/a%2Fb%20c"


async def test_every_transport_has_every_call(service: Service) -> None:
    """CRON-01, CRON-11."""
    assert (await service.put_schedule(s.PutSchedule(OPTIONS))).did == "created"
    assert (await service.put_schedule(s.PutSchedule(OPTIONS))).did == "unchanged"
    view = await service.get_schedule(s.GetSchedule("a/b c", 2))
    assert view.task is not None
    assert (view.task.payload, view.cron, len(view.next_times)) == (payload(), "0 0 1 1 *", 2)
    assert [one.schedule_id for one in (await service.find_schedules(s.FindSchedules())).schedules] == ["a/b c"]
    await service.pause_schedule(s.PauseSchedule("a/b c", note="why"))
    assert (await service.get_schedule(s.GetSchedule("a/b c"))).note == "why"
    started = (await service.trigger_schedule(s.TriggerSchedule("a/b c", "r"))).firing
    assert (await service.get(m.Get(started.task_id))).type == "t"
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    await service.backfill_schedule(s.BackfillSchedule("a/b c", moment, moment))
    planned = await service.preview_times(s.PreviewTimes(s.TimingOptions(interval=60), 3, moment))
    assert [one.at for one in planned.times] == [moment + timedelta(minutes=n) for n in (1, 2, 3)]
    with pytest.raises(Conflict):
        await service.put_schedule(
            s.PutSchedule(s.ScheduleOptions(schedule_id="a/b c", task=s.TaskTemplate("u"), interval=1))
        )
    with pytest.raises(InvalidArgument) as refused:
        await service.preview_times(s.PreviewTimes(s.TimingOptions(cron="x")))
    assert refused.value.field == "cron"
    await service.delete_schedule(s.DeleteSchedule("a/b c"))
    with pytest.raises(NotFound):
        await service.get_schedule(s.GetSchedule("a/b c"))


async def test_rest_makes_changes_and_deletes(rest: Rest) -> None:
    created = await rest("POST", "/v1/schedules", SCHEDULE)
    assert (created.status, created.body["did"]) == (201, "created")
    assert created.headers["Location"] == PATH == created.body["links"]["self"]
    again = await rest("POST", "/v1/schedules", SCHEDULE)
    assert (again.status, again.body["did"]) == (200, "unchanged")
    other = await rest("POST", "/v1/schedules", SCHEDULE | {"cron": "@daily"})
    assert (other.status, other.body["code"]) == (409, "conflict")

    body = {name: value for name, value in SCHEDULE.items() if name != "id"}
    changed = await rest("PUT", PATH, body | {"timezone": "Asia/Tokyo", "remaining": 3})
    assert (changed.status, changed.body["did"]) == (200, "updated")
    assert (await rest("PUT", "/v1/schedules/new", body)).status == 201

    found = (await rest("GET", f"{PATH}?times=2")).body
    assert (found["timezone"], found["remaining"], found["state"]) == ("Asia/Tokyo", 3, "active")
    assert found["task_template"]["payload"] == {"n": 12345678901234567890, "x": 1.1}
    assert len(found["next_times"]) == 2
    assert found["next_times"][0]["local"].endswith("-01-01T00:00:00+09:00")

    assert (await rest("POST", f"{PATH}/pause", {"note": "why"})).body["did"] == "updated"
    assert (await rest("GET", PATH)).body["note"] == "why"
    assert (await rest("POST", f"{PATH}/resume")).status == 200
    assert (await rest("GET", PATH)).body["state"] == "active"
    listed = (await rest("GET", "/v1/schedules?limit=1")).body
    assert [one["id"] for one in listed["schedules"]] == ["new"]
    assert [one["id"] for one in (await rest("GET", f"/v1/schedules?cursor={listed['next']}")).body["schedules"]] == [
        "a/b c"
    ]
    assert (await rest("DELETE", PATH)).body["did"] == "deleted"
    assert (await rest("GET", PATH)).status == 404


async def test_rest_starts_and_looks_ahead(rest: Rest) -> None:
    await rest("POST", "/v1/schedules", SCHEDULE)
    one = await rest("POST", f"{PATH}/trigger", {"request_id": "r"})
    two = await rest("POST", f"{PATH}/trigger", headers={"Idempotency-Key": "r"})
    assert (one.status, one.body["firing"]["outcome"], two.body["firing"]["outcome"]) == (
        202,
        "started",
        "started_before",
    )
    assert one.headers["Location"] == f"/v1/tasks/{one.body['firing']['task_id']}"
    assert (await rest("GET", one.headers["Location"])).body["payload"] == {"n": 12345678901234567890, "x": 1.1}
    moments = {"start_at": "2026-01-01T00:00:00Z", "end_at": "2026-01-01T00:00:00+00:00"}
    assert (await rest("POST", f"{PATH}/backfill", moments)).status == 202
    asked = {"cron": "30 2 * * *", "timezone": "America/New_York", "after": "2026-03-07T00:00:00Z", "count": 2}
    assert (await rest("POST", "/v1/schedules:preview", asked)).body["times"] == [
        {"at": "2026-03-07T07:30:00Z", "local": "2026-03-07T02:30:00-05:00"},
        {"at": "2026-03-08T07:00:00Z", "local": "2026-03-08T03:00:00-04:00"},
    ]


async def test_rest_starts_workflows(rest: Rest) -> None:
    """CRON-12."""
    template = {"workflow_type": "w", "input": [1], "memo": {"a": {"b": 1}}, "workflow_id": "nightly/run"}
    made = await rest("POST", "/v1/schedules", {"id": "s", "interval": "1h", "workflow_template": template})
    assert made.status == 201
    shown = (await rest("GET", "/v1/schedules/s")).body["workflow_template"]
    assert (shown["input"], shown["memo"], shown["workflow_id"]) == ([1], {"a": {"b": 1}}, "nightly/run")
    started = await rest("POST", "/v1/schedules/s/trigger")
    run = (await rest("GET", started.headers["Location"])).body
    assert run["workflow_id"] == started.body["firing"]["workflow_id"]
    assert run["workflow_id"].startswith("nightly/run-2")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"cron": "0 0 30 2 *"}, "cron"),
        ({"cron": None}, "cron"),
        ({"cron": 5}, "cron"),
        ({"interval": "5m"}, "interval"),
        ({"timezone": "Mars/Olympus"}, "timezone"),
        ({"task_template": {}}, "task_template.task_type"),
        ({"task_template": {"type": ""}}, "task.type"),
        ({"task_template": None}, "task"),
        ({"id": ""}, "schedule_id"),
        ({"start_at": "2026-01-01T00:00:00"}, "start_at"),
        ({"surprise": 1}, None),
    ],
    ids=str,
)
async def test_rest_refuses_what_is_wrong(rest: Rest, change: dict[str, Any], field: str | None) -> None:
    answer = await rest("POST", "/v1/schedules", SCHEDULE | change)
    assert answer.status == 400
    assert answer.body["code"] == "invalid_argument"
    if field is not None:
        assert answer.body["field"] == field
    assert (await rest("GET", "/v1/schedules")).body["schedules"] == []
