"""Limits over REST, the SDK and the command line; and what they say to values that cannot be."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from perdure import AsyncPerdure, task
from perdure.cli.main import cli
from perdure.core.errors import InvalidArgument, NotFound
from perdure.core.messages import TaskView
from tests.api.calls import Rest
from tests.api.conftest import engine, rest, server, store  # noqa: F401


@task(name="flow_declared", queue="flow-declared", concurrency=2, rate="100/m")
def declared(ctx: Any, payload: Any) -> Any:
    return payload


async def until(app: AsyncPerdure, holds: Callable[[TaskView], bool], task_id: str) -> None:
    """A view of a task that tells it, before long."""
    async with asyncio.timeout(30):
        while not holds(await app.get(task_id)):
            await asyncio.sleep(0.01)


async def test_rest_sets_lists_and_deletes_limits(rest: Rest) -> None:  # noqa: F811
    body = {"scope": "queue", "name": "mail", "max_running": 5, "rate": "600/m", "note": "why"}
    made = await rest("PUT", "/v1/limits", body)
    assert (made.status, made.body["burst"], made.body["rate"]) == (200, 600, "600/m")
    [listed] = (await rest("GET", "/v1/limits")).body["limits"]
    assert (listed["max_running"], listed["running"], listed["blocked"], listed["declared"]) == (5, 0, 0, False)
    assert (await rest("DELETE", "/v1/limits?scope=queue&name=mail")).status == 200
    assert (await rest("DELETE", "/v1/limits?scope=queue&name=mail")).status == 404


async def test_rest_pauses_and_resumes_a_queue(rest: Rest) -> None:  # noqa: F811
    paused = await rest("POST", "/v1/queues/a%2Fb/pause", {"note": "down"})
    assert (paused.status, paused.body) == (200, {"queue": "a/b", "paused": True, "note": "down"})
    body = {"task_type": "t", "queue": "a/b", "concurrency_key": "c:1", "weight": 2}
    accepted = await rest("POST", "/v1/tasks", body)
    shown = (await rest("GET", f"/v1/tasks/{accepted.body['task_id']}")).body
    assert (shown["concurrency_key"], shown["weight"]) == ("c:1", 2)
    assert (await rest("POST", "/v1/queues/a%2Fb/resume")).body["paused"] is False
    assert (await rest("GET", "/v1/limits")).body == {"limits": []}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"scope": "fairness", "name": "gold", "max_running": 1, "weight": 2}, "weight"),
        ({"scope": "key", "name": "a:b", "max_running": 1}, "name"),
        ({"scope": "namespace", "name": "x", "max_running": 1}, "name"),
        ({"scope": "nothing", "name": "x", "max_running": 1}, "scope"),
        ({"scope": "queue", "name": "", "max_running": 1}, "name"),
        ({"scope": "queue", "name": "q"}, "max_running"),
        ({"scope": "queue", "name": "q", "burst": 1, "max_running": 1}, "burst"),
        ({"scope": "queue", "name": "q", "max_running": -1}, "max_running"),
        ({"scope": "queue", "name": "q", "max_running": 1, "weight": 2}, "weight"),
        ({"scope": "queue", "name": "q", "rate": "0/s"}, "rate"),
        ({"scope": "queue", "name": "q", "rate": "10"}, "rate"),
        ({"scope": "queue", "name": "q", "rate": "10/0s"}, "rate"),
        ({"scope": "queue", "name": "q", "rate": "10/fortnight"}, "rate"),
    ],
)
async def test_bad_limits_name_the_field(rest: Rest, body: dict[str, Any], field: str) -> None:  # noqa: F811
    answer = await rest("PUT", "/v1/limits", body)
    assert (answer.status, answer.body["code"], answer.body["field"]) == (400, "invalid_argument", field)
    assert answer.body["limit"]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"singleton": "a", "debounce": "b", "delay": 1}, "singleton"),
        ({"singleton": "a", "idempotency_key": "b"}, "singleton"),
        ({"throttle": {"key": "a", "period": 0}}, "throttle.period"),
        ({"throttle": {"key": "", "period": 1}}, "throttle.key"),
        ({"debounce": "a"}, "debounce"),
    ],
)
async def test_bad_paces_name_the_field(rest: Rest, fields: dict[str, Any], field: str) -> None:  # noqa: F811
    answer = await rest("POST", "/v1/tasks", {"task_type": "t", **fields})
    assert (answer.status, answer.body["field"]) == (400, field)


async def test_rest_takes_paces(rest: Rest) -> None:  # noqa: F811
    for fields in ({"singleton": "a"}, {"throttle": {"key": "a", "period": "1h"}}):
        first = await rest("POST", "/v1/tasks", {"task_type": "t", **fields})
        again = await rest("POST", "/v1/tasks", {"task_type": "u", **fields})
        assert (again.status, again.body["task_id"], again.body["duplicate"]) == (202, first.body["task_id"], True)
    batch = [{"task_type": "t", "debounce": "a", "delay": 60}] * 2
    made = (await rest("POST", "/v1/tasks:batch", {"tasks": batch})).body["tasks"]
    states = [(await rest("GET", f"/v1/tasks/{item['task_id']}")).body["state"] for item in made]
    assert sorted(states) == ["CANCELED", "ENQUEUED"]


@pytest.mark.parametrize(("field", "value"), [("concurrency_key", ":1"), ("concurrency_key", "a\x00"), ("weight", 0)])
async def test_bad_fields_of_a_task_are_refused(rest: Rest, field: str, value: Any) -> None:  # noqa: F811
    answer = await rest("POST", "/v1/tasks", {"task_type": "t", field: value})
    assert (answer.status, answer.body["field"]) == (400, field)


async def test_a_waiting_task_says_which_limit_it_waits_for(tmp_path: Path) -> None:
    """Every wait has a reason, with numbers."""
    async with AsyncPerdure(f"sqlite:///{tmp_path}/jobs.db") as app:
        await app.set_limit("queue", "flow-declared", max_running=0)
        job = await app.enqueue(declared, {})
        async with app.worker(queues=["flow-declared"], slots=1):
            await until(app, lambda view: "slot" in view.waiting_for, job.id)
            view = await app.get(job.id)
            assert view.waiting_for == "a slot of queue 'flow-declared': 0 of 0 are taken"
            await app.pause("queue", "flow-declared", note="stock-taking")
            view = await app.get(job.id)
            assert view.waiting_for == "somebody to resume queue 'flow-declared': it is paused (stock-taking)"
            await app.resume("queue", "flow-declared")
            await app.delete_limit("queue", "flow-declared")
            assert await job.result(timeout=30) == {}
            with pytest.raises(NotFound):
                await app.delete_limit("queue", "flow-declared")


async def test_a_worker_declares_the_limits_of_its_tasks_and_an_operator_wins(tmp_path: Path) -> None:
    async with AsyncPerdure(f"sqlite:///{tmp_path}/jobs.db") as app:
        async with app.worker(queues=["flow-declared"], slots=1):
            await app.execute(declared, {}, timeout=30)
            [limit] = await app.limits()
            assert (limit.scope, limit.name, limit.max_running, limit.rate) == ("type", "flow_declared", 2, "100/m")
            assert limit.declared
        await app.set_limit("type", "flow_declared", max_running=9)
        async with app.worker(queues=["flow-declared"], slots=1):
            await app.execute(declared, {}, timeout=30)
            [limit] = await app.limits()
            assert (limit.max_running, limit.declared) == (9, False)


@pytest.mark.parametrize(("options", "field"), [({"concurrency": 0}, "concurrency"), ({"rate": "fast"}, "rate")])
def test_a_decorator_refuses_bad_limits(options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        task(name="flow_never", **options)(lambda ctx, payload: None)
    assert refused.value.field == field


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_SERVER", f"sqlite:///{tmp_path}/jobs.db")

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(cli, arguments, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    made = run("limits", "set", "queue", "mail", "--max-running", "5", "--rate", "10/s")
    assert made == "set the limit of queue mail\n"
    assert run("queues", "pause", "mail", "--note", "down") == "paused queue mail\n"
    [limit] = json.loads(run("limits", "list", "--json"))["limits"]
    assert (limit["name"], limit["paused"], limit["note"]) == ("mail", True, "down")
    assert "paused" in run("limits", "list")
    assert run("queues", "resume", "mail") == "resumed queue mail\n"
    assert run("limits", "delete", "queue", "mail") == "deleted the limit of queue mail\n"
    assert json.loads(run("limits", "list", "--json")) == {"limits": []}
