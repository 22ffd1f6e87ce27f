"""GET /metrics of a server and of workers: every name with its labels, and what they say (OBS-10 to OBS-14, OBS-24)."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from perdure.api.keys import hash_key, new_key
from perdure.api.server import Server
from perdure.app import AsyncPerdure
from perdure.client.http import HttpService
from perdure.core.compensations import ATTRIBUTE, NOTHING, PENDING, Owed
from perdure.core.errors import Unavailable
from perdure.core.figures import Names
from perdure.core.lanes import TURNS, lane
from perdure.core.model import SECOND, RetryPolicy, WorkerSession, pack
from perdure.engine.engine import Engine
from perdure.observe import metrics
from perdure.observe.state import Snapshot
from perdure.sdk.task import task
from perdure.sdk.workflow import workflow
from perdure.store.base import StoreFault
from perdure.store.census import LaneCount, OpenRun
from perdure.store.sqlite import SqliteStore
from perdure.worker import metrics as worker_metrics
from perdure.worker.health import health_server
from perdure.worker.status import Health, ProcessHealth, WorkerFigures, WorkerStatus
from tests.api.calls import enqueue
from tests.api.calls import task as new_task
from tests.observe.pages import read

DEFAULT = {"namespace": "default"}


@task(name="metrics_flaky", retries=RetryPolicy(max_attempts=2, base=0.001, cap=0.001))
def flaky(ctx: Any, payload: int) -> int:
    if ctx.attempt == 1:
        raise ValueError("the first time")
    return payload


@workflow(name="metrics_flow")
async def flow(ctx: Any, payload: int) -> Any:
    await ctx.sleep(0.02)
    return await ctx.execute_activity(flaky, payload)


@workflow(name="metrics_awaiting")
async def awaiting(ctx: Any, payload: None) -> str:
    await ctx.wait_for_signal("go")
    return "went"


@workflow(name="metrics_plain")
def plain(ctx: Any, payload: None) -> str:
    ctx.sleep(0.02)
    return "rested"


async def test_a_server_that_has_worked_shows_what_it_did(server: Server) -> None:
    """OBS-10, OBS-11, OBS-12, OBS-24: a job and a workflow with a timer and an activity, both with a retry."""
    async with (
        AsyncPerdure(server.url) as app,
        app.worker(tasks=[flaky], workflows=[flow]) as worker,
        asyncio.timeout(60),
    ):
        job = await app.enqueue(flaky, 7)
        assert await job.result() == 7
        assert await app.execute_workflow(flow, 8) == 8
        page = await read(server.url)
        status = worker.status()
    assert page.value("perdure_jobs_enqueued_total", **DEFAULT, job_type="metrics_flaky") == 1
    assert page.value("jobs_completed_total", **DEFAULT, job_type="metrics_flaky", status="SUCCEEDED") == 1
    assert page.value("perdure_job_retries_total", **DEFAULT, job_type="metrics_flaky") == 1
    assert page.value("jobs_receive_count_bucket", **DEFAULT, job_type="metrics_flaky", le="1.0") == 0
    assert page.value("jobs_receive_count_bucket", **DEFAULT, job_type="metrics_flaky", le="2.0") == 1
    assert page.value("workflow_started_total", **DEFAULT, workflow_type="metrics_flow") == 1
    ended = {"workflow_type": "metrics_flow", "status": "COMPLETED"}
    assert page.value("workflow_completed_total", **DEFAULT, **ended) == 1
    assert page.value("activity_retry_total", **DEFAULT, activity_type="metrics_flaky") == 1
    assert page.value("activity_task_latency_seconds_count", **DEFAULT, activity_type="metrics_flaky") == 2
    assert page.value("workflow_task_latency_seconds_count", **DEFAULT, task_queue="default") == 3
    assert page.value("perdure_schedule_to_start_seconds_count", **DEFAULT, queue="default") == 4
    assert page.value("history_size_events_count", **DEFAULT, workflow_type="metrics_flow") == 3
    assert page.value("timer_fire_latency_seconds_count", **DEFAULT) == 1
    assert page.value("shard_lock_latency_seconds_count", shard_id="0") > 0
    assert 0 <= page.value("matching_sync_match_ratio", **DEFAULT, task_queue="default") <= 1
    assert page.value("perdure_worker_slots", **DEFAULT) == 100
    assert page.value("worker_utilization", **DEFAULT) == 0
    assert page.value("transfer_queue_depth", shard_id="0") >= 0
    assert page.value("perdure_database_away_seconds") == 0
    assert (status.figures.cache_hits, status.figures.cache_misses) == (2, 0)
    assert status.figures.namespace == "default"
    declared = {series.name: tuple(sorted(series.labels)) for series in metrics.ALL}
    for name, labels in page.labels().items():
        assert name.startswith("process_") or labels == {declared[name]}, name


def test_every_name_that_others_know_is_there() -> None:
    """OBS-10, OBS-11, OBS-12, OBS-14: names and labels, of servers and of workers."""
    named = {series.name: set(series.labels) for series in metrics.ALL}
    named |= {name: set(labels) for name, labels in worker_metrics.LABELS.items()}
    wanted = {
        "workflow_started_total": "namespace workflow_type",
        "workflow_completed_total": "namespace workflow_type status",
        "activity_retry_total": "namespace activity_type",
        "workflow_task_latency_seconds": "namespace task_queue",
        "activity_task_latency_seconds": "namespace activity_type",
        "workflow_task_replay_latency": "namespace",
        "history_size_events": "namespace workflow_type",
        "timer_fire_latency_seconds": "namespace",
        "shard_lock_latency_seconds": "shard_id",
        "sticky_cache_hit_ratio": "worker_id",
        "transfer_queue_depth": "shard_id",
        "matching_sync_match_ratio": "namespace task_queue",
        "jobs_duplicate_start_total": "namespace job_type",
        "jobs_receive_count": "namespace job_type",
        "jobs_completed_total": "namespace job_type status",
        "worker_utilization": "namespace",
        "workflow_task_failures_total": "namespace workflow_type type",
        "workflow_stuck_count": "namespace workflow_type",
        "saga_incomplete_age_p99": "namespace workflow_type",
    }
    assert {name: set(labels.split()) for name, labels in wanted.items()}.items() <= named.items()


async def test_a_key_shows_its_namespace_alone(store: SqliteStore, server: Server) -> None:
    """SEC-05: names of queues and types of a tenant are nobody else's business; nor is there a page without a key."""
    keys = {namespace: new_key() for namespace in ("blue", "red")}
    for namespace, key in keys.items():
        await store.add_api_key(hash_key(key), namespace, "test")
    async with asyncio.timeout(30):
        while True:  # until the server has read its keys again
            async with aiohttp.ClientSession() as session, session.get(f"{server.url}/metrics") as response:
                if response.status == 401:
                    break
    for namespace, key in keys.items():
        service = HttpService(server.url, api_key=key)
        await enqueue(service, new_task(queue=f"of {namespace}"))
        await service.close()
    page = await read(server.url, Authorization=f"Bearer {keys['red']}")
    assert page.namespaces() == {"red"}
    assert page.value("perdure_jobs_enqueued_total", namespace="red") == 1
    assert page.value("shard_lock_latency_seconds_count") > 0


async def test_counts_are_shown_while_the_database_is_away(
    engine: Engine, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OBS-21: that is when somebody looks."""

    async def away(*_: object) -> list[LaneCount]:
        raise StoreFault("away")

    await enqueue(HttpService(server.url), new_task())
    monkeypatch.setattr(engine.store, "count_lanes", away)
    engine.outage.fault(StoreFault("away"))
    page = await read(server.url)
    assert page.value("perdure_database_away_seconds") > 0
    assert page.value("perdure_jobs_enqueued_total", **DEFAULT) == 1
    assert "perdure_queue_tasks" not in page.families


def test_a_snapshot_adds_up_what_was_read() -> None:
    """OBS-13, OBS-14, OBS-20, OBS-22: utilization, stuck runs, sagas by age, long histories, what is owed."""
    now = 1_000 * SECOND
    found = Snapshot(Names())
    mail, turns = lane("a", "mail"), lane("a", "mail", TURNS)
    found.lanes([LaneCount(mail, ready=3, running=2, ready_since=now - 9 * SECOND), LaneCount(turns, running=1)], now)
    found.sessions(
        [
            WorkerSession(1, 1, "a", "w1", "mail", 4, "", 0, 0),
            WorkerSession(2, 1, "a", "w2", "mail", 8, "", 0, 0),
            WorkerSession(3, 1, "a", "gone", "mail", 8, "", 0, 0, ends_at=1),
        ]
    )
    saga = pack({ATTRIBUTE: PENDING})
    found.runs(
        [
            OpenRun("a", "order", now - 100 * SECOND, 12, 0, False, saga),
            OpenRun("a", "order", now - 50 * SECOND, 10_001, 3, True, saga),
            OpenRun("a", "order", now, 5, 1, False, pack({ATTRIBUTE: NOTHING})),
        ],
        now,
    )
    found.owes([("a", "order", b"1", Owed.FAILED), ("a", "order", b"2", Owed.NOT_RUN)])
    order = ("a", "order")
    assert found.tasks["a", "mail", "work", "ready"] == 3
    assert found.oldest == {("a", "mail", "work"): 9.0}
    assert found.utilization() == {("a",): 0.25}
    assert (found.open_runs[order], found.stuck[order], found.long_histories[order]) == (3, 1, 1)
    assert found.saga_ages == {order: [100.0, 50.0]}
    assert found.owing == {(*order, "failed"): 1, (*order, "not_run"): 1}


async def test_a_worker_shows_its_processes() -> None:
    """OBS-12: with the share of turns that found their run in memory, and how long replays took."""
    figures = WorkerFigures("default", cache_hits=3, cache_misses=1)
    for outcome in ("succeeded", "succeeded", "failed"):
        figures.ended(outcome)
    for seconds in (0.004, 0.2, 99.0):
        figures.replayed(seconds)
    status = WorkerStatus(
        pid=1, identity="host:1", slots=10, free=7, running=3, stuck=0, connected=True, draining=False, poll_age=0.5,
        heartbeat_age=None, figures=figures,
    )  # fmt: skip
    health = Health(False, [ProcessHealth(1, 0.1, status), ProcessHealth(2, 0.1)])
    async with health_server("127.0.0.1", 0, lambda: health) as port:
        page = await read(f"http://127.0.0.1:{port}")
    worker = {"worker_id": "host:1"}
    assert page.value("perdure_process_slots_free", **worker) == 7
    assert page.value("perdure_process_ready", **worker) == 1
    assert page.value("sticky_cache_hit_ratio", **worker) == 0.75
    assert page.value("perdure_process_tasks_total", **worker, outcome="succeeded") == 2
    assert page.value("workflow_task_replay_latency_bucket", **DEFAULT, le="0.5") == 2
    assert page.value("workflow_task_replay_latency_count", **DEFAULT) == 3
    assert page.value("workflow_task_replay_latency_sum", **DEFAULT) == pytest.approx(99.204)
    for name, labels in page.labels().items():
        assert labels == {tuple(sorted(worker_metrics.LABELS[name]))}, name


async def test_the_address_of_a_worker_may_be_taken() -> None:
    async with health_server("127.0.0.1", 0, lambda: Health(False, [])) as port:
        with pytest.raises(Unavailable):
            async with health_server("127.0.0.1", port, lambda: Health(False, [])):
                pass


async def test_replays_are_counted_where_a_run_is_not_in_memory(server: Server) -> None:
    """OBS-11: by a worker that goes through the history before it computes anything new. A run's first turn is no
    replay."""
    async with AsyncPerdure(server.url) as app, asyncio.timeout(60):
        handle = await app.start_workflow(awaiting, id="replayed")
        async with app.worker(workflows=[awaiting]) as first:
            while (await handle.describe()).state != "WAITING":
                await asyncio.sleep(0)
            assert (first.status().figures.cache_misses, sum(first.status().figures.replays)) == (0, 0)
        async with app.worker(workflows=[awaiting]) as second:
            await handle.signal("go")
            assert await handle.result() == "went"
            figures = second.status().figures
    assert (figures.cache_misses, sum(figures.replays)) == (1, 1)
    assert figures.replay_seconds > 0


async def test_plain_workflows_go_through_their_history_at_every_turn(server: Server) -> None:
    """OBS-11: until they wait for something new."""
    async with AsyncPerdure(server.url) as app, app.worker(workflows=[plain]) as worker, asyncio.timeout(60):
        assert await app.execute_workflow(plain) == "rested"
        figures = worker.status().figures
    assert sum(figures.replays) == 1
