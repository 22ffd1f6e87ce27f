"""Changing some fields of a schedule: what stays, versions, and what is refused."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from perdure import AsyncPerdure, Perdure
from perdure.cli.main import cli
from perdure.core import schedule_messages as s
from perdure.core.errors import Conflict, InvalidArgument, NotFound
from perdure.core.model import RetryPolicy
from tests.api.calls import Rest
from tests.api.conftest import engine, rest, server, store  # noqa: F401

BODY = {
    "id": "nightly",
    "cron": "30 2 * * *",
    "timezone": "Europe/Berlin",
    "remaining": 9,
    "task_template": {"task_type": "report", "payload": {"a": 1}, "queue": "reports", "retry": {"max_attempts": 7}},
}


async def test_a_patch_changes_what_it_names_and_nothing_else(rest: Rest) -> None:  # noqa: F811
    await rest("POST", "/v1/schedules", BODY)
    before = (await rest("GET", "/v1/schedules/nightly")).body
    patch = {"cron": "45 2 * * *", "task_template": {"payload": {"b": [2.5, None]}, "retry": {"base": 2.0}}}
    done = await rest("PATCH", "/v1/schedules/nightly", patch)
    assert (done.status, done.body["did"]) == (200, "updated")
    after = (await rest("GET", "/v1/schedules/nightly")).body
    assert after["version"] != before["version"]
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"version", "cron", "task_template", "updated_at", "next_times", "next_firing_at"}
    template = after["task_template"]
    assert (template["payload"], template["queue"]) == ({"b": [2.5, None]}, "reports")
    assert (template["retry"]["max_attempts"], template["retry"]["base"]) == (7, 2.0)
    again = await rest("PATCH", "/v1/schedules/nightly", patch)
    assert again.body["did"] == "unchanged"


async def test_a_timing_of_another_sort_takes_the_place_of_the_one_before(rest: Rest) -> None:  # noqa: F811
    await rest("POST", "/v1/schedules", {"id": "x", "cron": "30 2 * * *", "task_template": {"type": "t"}})
    assert (await rest("PATCH", "/v1/schedules/x", {"interval": "10m"})).body["did"] == "updated"
    found = (await rest("GET", "/v1/schedules/x")).body
    assert (found["cron"], found["interval"]) == (None, 600.0)
    await rest("PATCH", "/v1/schedules/x", {"calendar": {"hour": "3"}})
    await rest("PATCH", "/v1/schedules/x", {"calendar": {"minute": "15"}, "jitter": 5})
    found = (await rest("GET", "/v1/schedules/x")).body
    assert (found["interval"], found["calendar"]["hour"], found["calendar"]["minute"]) == (None, "3", "15")
    await rest("PATCH", "/v1/schedules/x", {"jitter": None})
    assert (await rest("GET", "/v1/schedules/x")).body["jitter"] is None


async def test_a_version_that_is_not_the_current_one_is_a_conflict(rest: Rest) -> None:  # noqa: F811
    await rest("POST", "/v1/schedules", BODY)
    version = (await rest("GET", "/v1/schedules/nightly")).body["version"]
    first = await rest("PATCH", "/v1/schedules/nightly", {"version": version, "jitter": 1})
    assert first.status == 200
    second = await rest("PATCH", "/v1/schedules/nightly", {"version": version, "jitter": 2})
    assert (second.status, second.body["field"]) == (409, "version")
    await rest("POST", "/v1/schedules/nightly/pause")
    version = (await rest("GET", "/v1/schedules/nightly")).body["version"]
    assert (await rest("PATCH", "/v1/schedules/nightly", {"version": version, "jitter": 3})).status == 200
    assert (await rest("GET", "/v1/schedules/nightly")).body["state"] == "paused"


@pytest.mark.parametrize(
    ("patch", "status", "field"),
    [
        ({"cron": "nonsense"}, 400, "cron"),
        ({"cron": None}, 400, "cron"),
        ({"cron": "* * * * *", "interval": 5}, 400, "interval"),
        ({"overlap_policy": "never"}, 400, "overlap_policy"),
        ({"task_template": None}, 400, "task"),
        ({"task_template": {"colour": "red"}}, 400, "changes"),
        ({"task_template": {"priority": 9}}, 400, "task.priority"),
        ({"workflow_template": {"type": "w"}}, 400, "task"),
        ({"id": "other"}, 400, "id"),
    ],
    ids=["cron", "no timing", "two timings", "policy", "nothing", "unknown", "priority", "two templates", "id"],
)
async def test_what_cannot_be_is_refused_and_changes_nothing(
    rest: Rest,  # noqa: F811
    patch: dict[str, Any],
    status: int,
    field: str,
) -> None:
    await rest("POST", "/v1/schedules", BODY)
    before = (await rest("GET", "/v1/schedules/nightly")).body
    refused = await rest("PATCH", "/v1/schedules/nightly", patch)
    assert (refused.status, refused.body["field"]) == (status, field)
    assert (await rest("GET", "/v1/schedules/nightly")).body == before


async def test_an_unknown_schedule_is_not_made(rest: Rest) -> None:  # noqa: F811
    assert (await rest("PATCH", "/v1/schedules/none", {"jitter": 1})).status == 404
    assert (await rest("GET", "/v1/schedules")).body["schedules"] == []


def test_clients_change_schedules_one_argument_at_a_time(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/t.db"
    with Perdure(url) as app:
        made = app.create_schedule("s", task="report", cron="30 2 * * *", payload={"a": 1}, queue="reports")
        assert made.update(payload={"b": 2}, priority=1, retry=RetryPolicy(max_attempts=2)) == "updated"
        view = made.describe(0)
        assert view.task is not None and view.task.retry is not None
        assert (view.task.queue, view.task.priority, view.task.retry.max_attempts) == ("reports", 1, 2)
        assert json.loads(view.task.payload[0].data) == {"b": 2}
        assert made.update(priority=1, version=view.version) == "unchanged"
        assert made.update(queue="slow", version=view.version) == "updated"
        with pytest.raises(Conflict):
            made.update(queue="fast", version=view.version)
        with pytest.raises(TypeError, match="has no memo"):
            made.update(memo={})
        with pytest.raises(InvalidArgument):
            made.update(timezone="Nowhere/Town")
        flow = app.create_schedule("f", workflow="trip", interval="1h", memo={"x": 1})
        assert flow.update(payload=[1], memo={"y": 2, "x": None}, run_timeout="5m") == "updated"
        found = flow.describe(0).workflow
        assert found is not None and (sorted(found.memo), found.run_timeout) == (["x", "y"], 300.0)
        with pytest.raises(NotFound):
            app.get_schedule_handle("none").update(jitter=1)

    def run(*args: str, status: int = 0) -> str:
        done = CliRunner().invoke(cli, ["schedules", "change", *args, "--server", url])
        assert done.exit_code == status, done.output
        return done.stdout

    assert run("s", "cron=45 2 * * *", "jitter=30s", 'payload={"c": 3}') == "updated\n"
    assert json.loads(run("s", "jitter=30s", "--json")) == {"schedule_id": "s", "did": "unchanged"}
    run("s", "jitter", status=2)
    run("s", "colour=red", status=2)
    with Perdure(url) as app:
        view = app.get_schedule_handle("s").describe(0)
        assert (view.cron, view.jitter) == ("45 2 * * *", 30.0)


async def test_updates_at_once_lose_nothing(server: Any) -> None:  # noqa: F811
    """Each is made of what the one before has left."""
    async with AsyncPerdure(server.url) as app:
        made = await app.create_schedule("s", task="report", cron="30 2 * * *", headers={})
        await asyncio.gather(*(made.update(headers={f"h{n}": "x"}) for n in range(8)))
        found = (await made.describe(0)).task
        assert found is not None and sorted(found.headers) == [f"h{n}" for n in range(8)]
        body = s.UpdateSchedule("s", {"jitter": 1.0})
        service = await app.service()
        assert (await service.update_schedule(body)).did == "updated"
