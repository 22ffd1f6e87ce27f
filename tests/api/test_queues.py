"""Queues and workers as people look at them, by REST and by the wire, on both databases."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure.api.server import Server
from perdure.client.base import Service
from perdure.client.http import HttpService
from perdure.core import messages as m
from perdure.core.errors import InvalidArgument
from perdure.core.model import Failure
from perdure.store.base import Store
from tests.api.calls import INCARNATION, Rest, enqueue, new_rest, poll, task
from tests.api.stores import STORES, opened


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    async with opened(request, tmp_path) as store:
        yield store


async def session(service: Service, *queues: str, incarnation: int = INCARNATION) -> None:
    await service.open_session(m.OpenSession(incarnation, 1, "host:1", list(queues), 4, "v7"))


async def test_queues_show_what_waits_and_what_runs(server: Server, rest: Rest) -> None:
    """B157: two run, the others are queued, in every view."""
    worker = HttpService(server.url)
    await session(worker, "default", "idle")
    await enqueue(worker, *(task() for _ in range(10)), task(delay="1h"), task(queue="unattended"))
    failing, *_ = await poll(worker, capacity=3)
    failed = m.Completion(failing.lease, "failed", failure=Failure(message="no"), retry_after=600.0)
    await worker.complete(m.Complete([failed]))
    found = (await rest("GET", "/v1/queues")).body["queues"]
    ages = [queue.pop("oldest_ready_seconds") for queue in found]
    nobody = {"owner": "", "alert_depth": None}
    assert found == [
        nobody
        | {"name": "default", "ready": 7, "running": 2, "delayed": 1, "retrying": 1, "workers": 1, "at_least": []},
        nobody | {"name": "idle", "ready": 0, "running": 0, "delayed": 0, "retrying": 0, "workers": 1, "at_least": []},
        nobody
        | {"name": "unattended", "ready": 1, "running": 0, "delayed": 0, "retrying": 0, "workers": 0, "at_least": []},
    ]
    assert ages[1] is None
    assert all(age is not None and 0 <= age < 60 for age in (ages[0], ages[2]))
    listed = (await rest("GET", "/v1/tasks")).body["tasks"]
    assert sorted(task["job_state"] for task in listed) == ["QUEUED"] * 9 + ["RUNNING"] * 3
    await worker.close()


async def test_queues_of_a_namespace_are_its_own(server: Server) -> None:
    """SEC-05."""
    for namespace in ("a", "a b"):
        service = HttpService(server.url, namespace=namespace)
        await enqueue(service, task(queue=f"of {namespace}"))
        await session(service, f"of {namespace}", incarnation=len(namespace))
        assert [queue.name for queue in (await service.queues(m.ListQueues())).queues] == [f"of {namespace}"]
        assert [worker.queues for worker in (await service.workers(m.ListWorkers())).workers] == [[f"of {namespace}"]]
        await service.close()
    async with new_rest(server.url, **{"Perdure-Namespace": "c"}) as rest:
        assert (await rest("GET", "/v1/queues")).body == {"queues": []}
        assert (await rest("GET", "/v1/workers")).body == {"workers": []}


async def test_every_way_to_ask_shows_the_same(service: Service) -> None:
    await session(service, "default")
    await enqueue(service, task(), task(queue="Ω_задача"))
    names = [(queue.name, queue.ready, queue.workers) for queue in (await service.queues(m.ListQueues())).queues]
    assert names == [("default", 1, 1), ("Ω_задача", 1, 0)]
    [worker] = (await service.workers(m.ListWorkers())).workers
    assert (worker.identity, worker.queues, worker.slots, worker.build) == ("host:1", ["default"], 4, "v7")


async def test_workers_are_listed(server: Server, rest: Rest) -> None:
    worker = HttpService(server.url)
    await session(worker, "default", "slow")
    [shown] = (await rest("GET", "/v1/workers")).body["workers"]
    assert (shown["identity"], shown["queues"]) == ("host:1", ["default", "slow"])
    assert (shown["slots"], shown["build"], shown["ending"]) == (4, "v7", False)
    await worker.close()


async def test_workers_are_listed_with_what_they_hold(server: Server, service: Service, rest: Rest) -> None:
    """Field case B163: what each runs, since when, and when it was last heard of."""
    await service.open_session(m.OpenSession(INCARNATION, 1, "host:1", ["default"], 4))
    jobs = await enqueue(service, task("a"), task("b"), task("c"))
    leases = await poll(service, capacity=3)
    await service.heartbeat(m.Heartbeat(INCARNATION, [m.Beat(leases[0].lease)]))
    [worker] = (await service.workers(m.ListWorkers(2))).workers
    assert [one.task_id for one in worker.running] == jobs[:2] and worker.more_running
    assert [(one.kind, one.type, one.attempt) for one in worker.running] == [("job", "a", 1), ("job", "b", 1)]
    assert worker.running[0].heard_at is not None
    [shown] = (await rest("GET", "/v1/workers?running=100")).body["workers"]
    assert [one["task_id"] for one in shown["running"]] == jobs and not shown["more_running"]
    for wrong in (-1, 101):
        with pytest.raises(InvalidArgument) as refused:
            await service.workers(m.ListWorkers(wrong))
        assert refused.value.field == "running"
