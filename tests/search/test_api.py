"""Queries over every transport, REST, the SDK, bulk actions and the command line."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from typer.testing import CliRunner

from perdure import AsyncPerdure, task, workflow
from perdure.api.server import Server
from perdure.cli.main import cli
from perdure.client.base import Service
from perdure.core import messages as m
from perdure.core import search_messages as s
from perdure.core import workflow_messages as w
from perdure.core.errors import Conflict, InvalidArgument, NotFound, TaskFailed
from tests.api.calls import Rest
from tests.api.conftest import engine, rest, server, service, store  # noqa: F401


@task(name="search_flaky", queue="search", retries=0)
def flaky(ctx: Any, payload: Any) -> Any:
    if payload < 0:
        raise ValueError(f"{payload} is too small")
    return payload


@workflow(name="search_order")
async def order(ctx: Any, tier: str) -> str:
    ctx.upsert_search_attributes({"stage": "packing"})
    await workflow.wait_for_signal("go")
    ctx.upsert_search_attributes({"stage": "done", "shipped": True})
    return tier


async def started(app: AsyncPerdure, count: int) -> list[str]:
    """So many runs, every third of a premium customer."""
    ids = []
    for n in range(count):
        tier = "basic" if n % 3 else "premium"
        attributes = {"customer_tier": tier, "total": n * 10.5, "note": "Handle with care"}
        handle = await app.start_workflow(order, tier, id=f"order-{n}", search_attributes=attributes)
        ids.append(handle.id)
    return ids


async def registered(app: AsyncPerdure) -> None:
    await app.add_search_attribute("customer_tier", "Keyword")
    await app.add_search_attribute("total", "Double")
    await app.add_search_attribute("stage", "Keyword")
    await app.add_search_attribute("shipped", "Bool")


async def test_queries_find_runs_by_type_status_and_attributes(tmp_path: Path) -> None:
    """VIS-01, VIS-02, VIS-04, VIS-08: the query of the requirement, on open runs and on closed ones."""
    async with AsyncPerdure(f"sqlite:///{tmp_path}/jobs.db") as app:
        await registered(app)
        await started(app, 9)
        query = "WorkflowType = 'search_order' AND ExecutionStatus = 'Running' AND customer_tier = 'premium'"
        found = await app.list_workflows(query=f"{query} ORDER BY StartTime DESC")
        assert [run.workflow_id for run in found.workflows] == ["order-6", "order-3", "order-0"]
        assert (await app.count_workflows(query=query)).count == 3
        assert (await app.count_workflows(query="total >= 21", type="search_order")).count == 7
        assert (await app.count_workflows(query="stage = 'packing'")).count == 0
        async with app.worker(workflows=[order], queues=["default"]):
            async with asyncio.timeout(30):
                while (await app.count_workflows(query="stage = 'packing'")).count < 9:
                    await asyncio.sleep(0.01)
            handle = app.get_workflow_handle("order-3")
            await handle.signal("go")
            await handle.result(timeout=60)
        closed = await app.list_workflows(query="shipped = true AND stage = 'done' AND customer_tier = 'premium'")
        assert [run.workflow_id for run in closed.workflows] == ["order-3"]
        by_end = await app.list_workflows(query="CloseTime IS NOT NULL ORDER BY CloseTime")
        assert [run.status for run in by_end.workflows] == ["COMPLETED"]
        assert (await app.count_workflows(query="ExecutionStatus != 'Running'")).count == 1


async def test_pages_of_a_query_hold_everything_once(tmp_path: Path) -> None:
    """VIS-03."""
    async with AsyncPerdure(f"sqlite:///{tmp_path}/jobs.db") as app:
        await registered(app)
        await started(app, 10)
        for order_by in ("", "ORDER BY StartTime ASC"):
            seen: list[str] = []
            cursor: str | None = None
            while True:
                page = await app.list_workflows(query=f"total > 15 {order_by}", limit=3, cursor=cursor)
                seen += [run.workflow_id for run in page.workflows]
                cursor = page.next
                if cursor is None:
                    break
            wanted = [f"order-{n}" for n in range(2, 10)]
            assert seen == (wanted if order_by else wanted[::-1])


async def test_every_transport_takes_the_same_queries(service: Service) -> None:  # noqa: F811
    for payload in range(3):
        await service.enqueue(m.Enqueue([m.NewTask(type="search_flaky", queue=f"q{payload}")]))
    page = await service.find(m.Find(query="TaskQueue IN ('q0', 'q2') ORDER BY EnqueueTime ASC"))
    assert [view.queue for view in page.tasks] == ["q0", "q2"]
    assert await service.count(s.Count(query="State = 'ENQUEUED'", queue="q1")) == s.CountReply(1)
    assert await service.count_workflows(s.CountWorkflows(query="WorkflowId = 'none'")) == s.CountReply(0)
    await service.add_search_attribute(s.AddSearchAttribute("customer_tier", "Keyword"))
    await service.add_search_attribute(s.AddSearchAttribute("customer_tier", "Keyword"))
    known = (await service.search_attributes(s.ListSearchAttributes())).attributes
    assert s.SearchAttribute("customer_tier", "Keyword") in known
    with pytest.raises(Conflict):
        await service.add_search_attribute(s.AddSearchAttribute("customer_tier", "Int"))
    await service.remove_search_attribute(s.RemoveSearchAttribute("customer_tier"))
    with pytest.raises(NotFound):
        await service.remove_search_attribute(s.RemoveSearchAttribute("customer_tier"))
    with pytest.raises(InvalidArgument) as refused:
        await service.find_workflows(w.FindWorkflows(query="customer_tier = 'premium'"))
    assert refused.value.field == "query" and "character 1" in refused.value.detail


@pytest.mark.parametrize("name", ["WorkflowType", "", "x" * 256, "a\x00b"])
async def test_names_that_no_search_attribute_can_have(service: Service, name: str) -> None:  # noqa: F811
    with pytest.raises(InvalidArgument) as refused:
        await service.add_search_attribute(s.AddSearchAttribute(name, "Int"))
    assert refused.value.field == "name"


def _asked(path: str, query: str) -> str:
    return f"{path}{quote(query)}"


async def test_rest_takes_queries(rest: Rest) -> None:  # noqa: F811
    await rest("POST", "/v1/tasks", {"task_type": "search_flaky"})
    found = (await rest("GET", _asked("/v1/tasks?query=", "TaskType STARTS_WITH 'search'"))).body
    assert [one["type"] for one in found["tasks"]] == ["search_flaky"]
    assert (await rest("GET", _asked("/v1/tasks:count?query=", "Attempt = 0"))).body == {"count": 1, "at_least": False}
    assert (await rest("GET", "/v1/workflows:count?status=RUNNING")).body == {"count": 0, "at_least": False}
    refused = await rest("GET", _asked("/v1/workflows?query=", "WorkflwType = 'x'"))
    assert (refused.status, refused.body["field"]) == (400, "query")
    assert "did you mean WorkflowType?" in refused.body["detail"]
    added = await rest("POST", "/v1/search-attributes", {"name": "customer_tier", "type": "Keyword"})
    assert added.body == {"name": "customer_tier", "type": "Keyword"}
    listed = (await rest("GET", "/v1/search-attributes")).body["search_attributes"]
    assert {"name": "customer_tier", "type": "Keyword"} in listed
    assert (await rest("DELETE", "/v1/search-attributes/customer_tier")).status == 200
    assert (await rest("DELETE", "/v1/search-attributes/customer_tier")).status == 404


async def test_actions_on_many_jobs_take_queries(tmp_path: Path) -> None:
    """RETRY-07: the filter of lists is that of actions; the query goes on by itself with the action."""
    async with AsyncPerdure(f"sqlite:///{tmp_path}/jobs.db") as app:
        jobs = await app.enqueue_many(flaky, [1, 2, 3, 4])
        last = jobs[-1].id
        query = f"TaskId != '{last}' AND TaskQueue = 'search'"
        assert (await app.count_tasks("cancel", query=query)).total == 3
        view = await (await app.cancel_tasks("no need", query=query)).result(timeout=30)
        assert (view.done, view.failed, view.filter.query) == (3, 0, query)
        assert (await app.count(query="ExecutionStatus = 'Canceled'")).count == 3
        assert (await app.get(last)).state == "ENQUEUED"
        with pytest.raises(InvalidArgument, match="order"):
            await app.cancel_tasks(query="Attempt = 0 ORDER BY CloseTime")


async def test_actions_retry_dead_letters_by_query(tmp_path: Path) -> None:
    async with AsyncPerdure(f"sqlite:///{tmp_path}/jobs.db") as app:
        async with app.worker(tasks=[flaky], queues=["search"]):
            for payload in (-1, -2, 3):
                job = await app.enqueue(flaky, payload)
                if payload > 0:
                    await job.result(timeout=30)
                    continue
                with pytest.raises(TaskFailed, match="too small"):
                    await job.result(timeout=30)
        assert (await app.count(query="ErrorType = 'ValueError' AND Retried = false")).count == 2
        view = await (await app.retry_tasks(query="ErrorType = 'ValueError' AND Attempt = 1")).result(timeout=30)
        assert view.done == 2
        assert (await app.count(query="ErrorType = 'ValueError' AND Retried = true")).count == 2


async def test_commands_take_queries(server: Server) -> None:  # noqa: F811
    runner = CliRunner()

    async def run(*arguments: str) -> str:
        done = await asyncio.to_thread(runner.invoke, cli, [*arguments, "--server", server.url])
        assert done.exit_code == 0, done.output
        return done.output

    await run("tasks", "enqueue", "search_flaky", "1")
    await run("search-attributes", "add", "customer_tier", "Keyword")
    assert "customer_tier" in await run("search-attributes", "list")
    assert (await run("tasks", "count", "--query", "TaskType = 'search_flaky'")).strip() == "1"
    assert (await run("workflows", "count", "--query", "customer_tier = 'premium'")).strip() == "0"
    found = json.loads(await run("tasks", "list", "--query", "ExecutionStatus = 'Running'", "--json"))
    assert len(found["tasks"]) == 1
    found = json.loads(await run("workflows", "list", "--query", "customer_tier IS NULL", "--json"))
    assert found["workflows"] == []
    await run("search-attributes", "remove", "customer_tier")
