"""Actions on many workflow runs over REST, the command line and a client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from perdure import Perdure, workflow
from perdure.cli.main import cli
from tests.api.calls import Rest
from tests.api.conftest import engine, rest, server, store  # noqa: F401

FIVE = [f"r{n}" for n in range(5)]


@workflow(name="bulk.waits")
def waits(ctx: Any, payload: Any) -> None:
    ctx.sleep(days=1)


async def test_rest_counts_begins_and_refuses(rest: Rest) -> None:  # noqa: F811
    for name in FIVE:
        await rest("POST", "/v1/workflows", {"type": "bulk.rest", "workflow_id": name})
    about = {"filter": {"type": "bulk.rest"}}
    counted = await rest("POST", "/v1/workflows:terminate", about | {"dry_run": True})
    assert (counted.status, counted.body) == (200, {"action": "terminate_runs", "total": 5, "at_least": False})
    begun = await rest("POST", "/v1/workflows:terminate", about | {"request_id": "once", "reason": "why"})
    assert (begun.status, begun.body["action"]) == (202, "terminate_runs")
    again = await rest("POST", "/v1/workflows:terminate", about | {"request_id": "once", "reason": "why"})
    assert again.body["id"] == begun.body["id"]
    ended = await rest("GET", f"/v1/bulk/{begun.body['id']}?wait=20s")
    assert (ended.body["state"], ended.body["done"]) == ("SUCCEEDED", 5)
    listed = (await rest("GET", "/v1/workflows?type=bulk.rest")).body["workflows"]
    assert {run["status"] for run in listed} == {"TERMINATED"}
    for path, body, field in (
        ("/v1/workflows:cancel", {}, "filter"),
        ("/v1/workflows:cancel", {"filter": {"state": "FAILED"}}, "filter.state"),
        ("/v1/workflows:terminate", {"filter": {"error": "ValueError"}}, "filter.error"),
    ):
        refused = await rest("POST", path, body)
        assert (refused.status, refused.body["field"]) == (400, field)


def test_the_command_line_and_a_client_end_many_runs(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/t.db"

    def run(*args: str, status: int = 0) -> str:
        done = CliRunner().invoke(cli, [*args, "--server", url])
        assert done.exit_code == status, done.output
        return done.stdout

    with Perdure(url) as app:
        for name in FIVE:
            app.start_workflow(waits, id=name)
    where = ("--where", "type=bulk.waits")
    assert run("workflows", "cancel", *where, "--dry-run") == "5 runs would be asked to end\n"
    run("workflows", "cancel", *where, status=2)
    run("workflows", "cancel", "r0", *where, status=2)
    run("workflows", "terminate", *where, "--run-id", "x", status=2)
    run("workflows", "terminate", "r0")
    assert json.loads(run("workflows", "terminate", *where, "--yes", "--json"))["done"] == 4
    with Perdure(url) as app:
        assert app.count_runs("cancel", type="bulk.waits").total == 0
        app.start_workflow(waits, id="one more")
        view = app.cancel_workflows("why", type="bulk.waits").result(timeout=60)
        assert (view.done, view.failed) == (1, 0)
        assert app.get_workflow_handle("one more").describe().status == "CANCELLED"
        assert app.terminate_workflows(type="bulk.waits").result(timeout=60).done == 0
