"""The golden signals by every way to ask for them (OBS-13)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from perdure.api.server import Server
from perdure.app import AsyncPerdure, Perdure
from perdure.client.http import HttpService
from perdure.core import messages as m
from perdure.core.signal_messages import GoldenSignals
from perdure.sdk.task import task
from tests.api.calls import INCARNATION, Rest, enqueue, poll, succeed
from tests.api.calls import task as new_task
from tests.api.conftest import service  # noqa: F401
from tests.worker.processes import perdure, running_server


@task(name="signals_greet")
def greet(ctx: Any, payload: str) -> str:
    return payload


async def test_nothing_is_told_where_nothing_happened(service: Any) -> None:  # noqa: F811
    found = await service.golden_signals(GoldenSignals())
    assert (found.queues, found.started, found.leases_lost) == ([], 0, 0)
    assert (found.alarm_lag_p99, found.dispatch_share, found.utilization) == (None, None, None)
    assert found.seconds >= 0


async def test_a_namespace_sees_its_own_queues_and_its_share(server: Server, rest: Rest) -> None:
    """SEC-05, OBS-13: of what others do only how much of the whole it is."""
    for namespace, jobs in (("default", 1), ("other", 3)):
        worker = HttpService(server.url, namespace=namespace)
        await worker.open_session(m.OpenSession(INCARNATION + jobs, 1, namespace, ["default"], 4))
        await enqueue(worker, *(new_task() for _ in range(jobs)))
        taken = (await worker.poll(m.Poll(INCARNATION + jobs, 1, ["default"], jobs, 5.0))).tasks
        assert len(taken) == jobs
        if namespace == "other":
            await succeed(worker, taken[0])
        await worker.close()
    body = (await rest("GET", "/v1/golden-signals")).body
    [queue] = body["queues"]
    assert (queue["name"], queue["started"], body["started"]) == ("default", 1, 1)
    assert 0 <= queue["schedule_to_start_p50"] <= queue["schedule_to_start_p99"] < 60
    assert body["dispatch_share"] == 0.25
    assert body["utilization"] == 0.25
    assert body["leases_lost"] == 0


async def test_a_worker_that_died_shows_in_the_leases_that_were_lost(server: Server, rest: Rest) -> None:
    worker = HttpService(server.url)
    await worker.open_session(m.OpenSession(INCARNATION, 1, "w", ["default"], 4))
    await enqueue(worker)
    [taken] = await poll(worker)
    await worker.heartbeat(m.Heartbeat(INCARNATION, [m.Beat(taken.lease)]))
    await worker.close_session(m.CloseSession(INCARNATION, "died"))
    async with asyncio.timeout(30):
        while (body := (await rest("GET", "/v1/golden-signals")).body)["leases_lost"] == 0:
            await asyncio.sleep(0.01)
    assert body["leases_lost"] == 1
    await worker.close()


async def test_embedded(tmp_path: Path) -> None:
    async with AsyncPerdure(f"sqlite:///{tmp_path}/jobs.db") as app, app.worker(tasks=[greet]), asyncio.timeout(30):
        await app.execute(greet, "you")
        [queue] = (await app.golden_signals()).queues
    assert (queue.name, queue.started) == ("default", 1)


def test_without_an_event_loop(tmp_path: Path) -> None:
    with Perdure(f"sqlite:///{tmp_path}/jobs.db") as app:
        assert app.golden_signals().started == 0


def test_on_the_command_line(tmp_path: Path) -> None:
    with running_server("sqlite:///jobs.db", tmp_path) as url:
        with Perdure(url) as app, app.worker(tasks=[greet]):
            app.execute(greet, "you")
        shown = perdure("golden-signals", folder=tmp_path, server=url).stdout.splitlines()
        assert shown[0].split()[:2] == ["default", "1"]
        assert shown[1].endswith("1 started, 0 leases lost")
        assert shown[-1] == "utilization     -"
        found = json.loads(perdure("golden-signals", "--json", folder=tmp_path, server=url).stdout)
    assert found["queues"][0]["name"] == "default"
    assert found["dispatch_share"] == pytest.approx(1.0)
