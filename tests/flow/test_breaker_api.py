"""Breakers over REST, the SDK and the command line; and what they say to values that cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from perdure import AsyncPerdure, Breaker, task
from perdure.cli.main import cli
from perdure.core.errors import FatalError, InvalidArgument, NotFound
from tests.api.calls import Rest
from tests.api.conftest import engine, rest, server, store  # noqa: F401
from tests.flow.test_api import until


@task(name="flow_breaker", queue="flow-breaker", breaker=Breaker(failure_rate=0.5, min_attempts=2, cool_down="1h"))
def watched(ctx: Any, payload: Any) -> Any:
    if payload == "bad":
        raise FatalError("it cannot be")
    return payload


async def test_rest_sets_opens_and_closes_a_breaker(rest: Rest) -> None:  # noqa: F811
    body = {"scope": "type", "name": "a/b", "breaker": {"crashes": 5, "cool_down": "1m"}}
    made = (await rest("PUT", "/v1/limits", body)).body["breaker"]
    assert made == {
        "crashes": 5, "failure_rate": None, "window": 60, "min_attempts": 20, "cool_down": 60, "probes": 1,
        "state": "closed", "since": None, "until": None, "reason": "", "in_a_row": 0, "attempts": 0, "failed": 0,
    }  # fmt: skip
    opened = await rest("PUT", "/v1/limits/breaker", {"type": "a/b", "open": True, "note": "down"})
    assert opened.status == 200
    assert (opened.body["breaker"]["state"], opened.body["breaker"]["reason"]) == ("open", "by hand: down")
    assert opened.body["breaker"]["until"] > opened.body["breaker"]["since"]
    [listed] = (await rest("GET", "/v1/limits")).body["limits"]
    assert listed["breaker"] == opened.body["breaker"]
    closed = await rest("PUT", "/v1/limits/breaker", {"type": "a/b", "open": False})
    assert (closed.body["breaker"]["state"], closed.body["breaker"]["until"]) == ("closed", None)
    assert (await rest("PUT", "/v1/limits/breaker", {"type": "other", "open": True})).status == 404


@pytest.mark.parametrize(
    ("breaker", "field"),
    [
        ({"crashes": 0}, "breaker.crashes"),
        ({"crashes": 101}, "breaker.crashes"),
        ({"crashes": 1, "cool_down": "0s"}, "breaker.cool_down"),
        ({"crashes": 1, "cool_down": "2d"}, "breaker.cool_down"),
        ({"crashes": 1, "cool_down": "soon"}, "breaker.cool_down"),
        ({"crashes": 1, "min_attempts": 0}, "breaker.min_attempts"),
        ({"crashes": 1, "probes": 0}, "breaker.probes"),
        ({"crashes": 1, "window": 0.5}, "breaker.window"),
        ({"failure_rate": 0}, "breaker.failure_rate"),
        ({"failure_rate": 1.01}, "breaker.failure_rate"),
        ({}, "breaker.crashes"),
    ],
)
async def test_bad_breakers_name_the_field(rest: Rest, breaker: dict[str, Any], field: str) -> None:  # noqa: F811
    answer = await rest("PUT", "/v1/limits", {"scope": "type", "name": "t", "breaker": breaker})
    assert (answer.status, answer.body["code"], answer.body["field"]) == (400, "invalid_argument", field)
    assert answer.body["limit"]
    with pytest.raises(InvalidArgument) as refused:
        task(name="flow_never", breaker=Breaker(**breaker))(lambda ctx, payload: None)
    assert refused.value.field == field


@pytest.mark.parametrize(
    "limit",
    [
        {"scope": "fairness", "name": "gold", "weight": 2},
        {"scope": "namespace"},
        {"scope": "queue", "name": "q", "max_running": 1},
    ],
)
async def test_only_a_type_has_a_breaker(rest: Rest, limit: dict[str, Any]) -> None:  # noqa: F811
    answer = await rest("PUT", "/v1/limits", {**limit, "breaker": {"crashes": 1}})
    assert (answer.status, answer.body["field"]) == (400, "weight" if limit["scope"] == "fairness" else "breaker")


@pytest.mark.parametrize("breaker", [3, {"crashes": 3}, float("nan")])
def test_a_decorator_takes_nothing_but_a_breaker(breaker: Any) -> None:
    given = Breaker(failure_rate=breaker) if isinstance(breaker, float) else breaker
    with pytest.raises(InvalidArgument):
        task(name="flow_never", breaker=given)(lambda ctx, payload: None)


async def test_a_declared_breaker_opens_and_says_so_where_people_look(tmp_path: Path) -> None:
    """OBS-22: the task that waits, the limit and the feed tell why and until when."""
    async with AsyncPerdure(f"sqlite:///{tmp_path}/jobs.db") as app:
        await app.record_events()
        async with app.worker(queues=["flow-breaker"], slots=1):
            for _ in range(2):
                job = await app.enqueue(watched, "bad")
                await until(app, lambda view: view.state == "FAILED", job.id)
            waiting = await app.enqueue(watched, "good")
            await until(app, lambda view: "breaker" in view.waiting_for, waiting.id)
            view = await app.get(waiting.id)
            words, _, reason = view.waiting_for.partition("Z: ")
            assert words.startswith("the breaker of type 'flow_breaker', which is open until 20")
            assert reason == "2 of 2 attempts failed within 60 s"
            [limit] = await app.limits()
            assert limit.breaker is not None
            assert (limit.breaker.state, limit.breaker.reason, limit.blocked) == ("open", reason, 1)
            assert limit.declared
            async for event in app.events("oldest", ["breaker.*"]):
                assert (event.type, event.subject, event.data.task_id) == ("breaker.opened", "flow_breaker", "")
                assert (event.data.type, event.data.state, event.data.reason) == ("flow_breaker", "OPEN", reason)
                break
            await app.close_breaker("flow_breaker")
            assert await waiting.result(timeout=30) == "good"
            with pytest.raises(NotFound):
                await app.open_breaker("other")


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_SERVER", f"sqlite:///{tmp_path}/jobs.db")

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(cli, arguments, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    run("limits", "set", "type", "charge", "--crashes", "5", "--failure-rate", "0.5", "--cool-down", "1m")
    assert run("limits", "open", "charge", "--note", "down") == "the breaker of type charge is open\n"
    [limit] = json.loads(run("limits", "list", "--json"))["limits"]
    assert (limit["breaker"]["state"], limit["breaker"]["cool_down"]) == ("open", 60)
    assert "open" in run("limits", "list")
    assert "by hand: down" in run("limits", "list")
    assert json.loads(run("limits", "close", "charge", "--json")) == {"type": "charge", "state": "closed"}
    assert "by hand" not in run("limits", "list")
    refused = CliRunner().invoke(cli, ["limits", "set", "type", "t", "--max-running", "1", "--cool-down", "1m"])
    assert refused.exit_code != 0, "a cool-down alone opens nothing"
