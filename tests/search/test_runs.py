"""What becomes of a run is seen by searches at once: ends, next runs, children, resets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from perdure import AsyncPerdure, workflow


@workflow(name="search_waits")
async def waits(ctx: Any, payload: Any) -> Any:
    return await workflow.wait_for_signal("go")


@workflow(name="search_goes_on")
async def goes_on(ctx: Any, round: int) -> int:
    if round == 0:
        ctx.upsert_search_attributes({"round": "first", "left": True, "dropped": True})
        ctx.continue_as_new(1)
    ctx.upsert_search_attributes({"round": "second", "dropped": None})
    assert ctx.search_attributes == {"round": "second", "left": True}
    await workflow.wait_for_signal("go")
    return round


@workflow(name="search_parent")
async def parent(ctx: Any, payload: Any) -> Any:
    attributes = {"tier": "silver"}
    return await ctx.execute_child("search_waits", workflow_id="child", search_attributes=attributes)


async def until(app: AsyncPerdure, query: str, count: int = 1) -> None:
    async with asyncio.timeout(60):
        while (await app.count_workflows(query=query)).count != count:
            await asyncio.sleep(0.01)


async def counts(app: AsyncPerdure, *queries: str) -> list[int]:
    return [(await app.count_workflows(query=query)).count for query in queries]


async def test_every_end_is_found(tmp_path: Path) -> None:
    """VIS-04, VIS-07: nothing lags, because it is written by what ends the run."""
    async with AsyncPerdure(f"sqlite:///{tmp_path}/jobs.db") as app:
        await app.add_search_attribute("tier", "Keyword")
        for n in range(3):
            await app.start_workflow(waits, None, id=f"run-{n}", search_attributes={"tier": "gold"})
        await app.get_workflow_handle("run-0").terminate("no need")
        assert await counts(
            app,
            "tier = 'gold'",
            "tier = 'gold' AND ExecutionStatus = 'Terminated'",
            "tier = 'gold' AND ExecutionStatus = 'Running'",
            "tier = 'gold' AND CloseTime IS NOT NULL",
        ) == [3, 1, 2, 1]
        async with app.worker(workflows=[waits], queues=["default"]):
            handle = app.get_workflow_handle("run-1")
            await handle.signal("go", 1)
            await handle.result(timeout=60)
            assert await counts(app, "tier = 'gold' AND ExecutionStatus = 'Completed'") == [1]
            await app.get_workflow_handle("run-2").cancel()
            await until(app, "tier = 'gold' AND ExecutionStatus = 'Canceled'")


async def test_the_next_run_of_a_chain_has_what_the_last_one_had(tmp_path: Path) -> None:
    async with AsyncPerdure(f"sqlite:///{tmp_path}/jobs.db") as app:
        await app.add_search_attribute("round", "Keyword")
        await app.add_search_attribute("left", "Bool")
        await app.add_search_attribute("dropped", "Bool")
        await app.start_workflow(goes_on, 0, id="chain")
        async with app.worker(workflows=[goes_on], queues=["default"]):
            await until(app, "round = 'second'")
        assert await counts(
            app,
            "round = 'first' AND ExecutionStatus = 'ContinuedAsNew'",
            "round = 'second' AND ExecutionStatus = 'Running'",
            "left = true",
            "dropped = true",
            "round IN ('first', 'second') AND WorkflowId = 'chain'",
        ) == [1, 1, 2, 1, 2]


async def test_children_are_found_by_their_parent(tmp_path: Path) -> None:
    async with AsyncPerdure(f"sqlite:///{tmp_path}/jobs.db") as app:
        await app.add_search_attribute("tier", "Keyword")
        await app.start_workflow(parent, None, id="parent")
        async with app.worker(workflows=[parent, waits], queues=["default"]):
            await until(app, "tier = 'silver' AND ParentWorkflowId = 'parent' AND RootWorkflowId = 'parent'")


async def test_other_namespaces_find_nothing(tmp_path: Path) -> None:
    """VIS-05: neither rows nor registered names."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with AsyncPerdure(url) as app, AsyncPerdure(url, namespace="other") as other:
        await app.add_search_attribute("tier", "Keyword")
        await app.start_workflow(waits, None, id="run", search_attributes={"tier": "gold"})
        assert list(await other.search_attributes()) == ["perdure_compensations"]
        await other.add_search_attribute("tier", "Keyword")
        assert await counts(other, "tier = 'gold'", "WorkflowId = 'run'", "") == [0, 0, 0]
        assert await counts(app, "tier = 'gold'", "WorkflowId = 'run'", "") == [1, 1, 1]


async def test_names_and_values_of_every_kind_are_kept(tmp_path: Path) -> None:
    """What is odd about a value is no reason to find another one."""
    values: dict[str, Any] = {"x": "a'b", "y": "ä\u2028\U0001f600", "z": "%", "n": 2**53 + 1, "f": -0.0, "l": ["", "b"]}
    async with AsyncPerdure(f"sqlite:///{tmp_path}/jobs.db") as app:
        for name in ("x", "y", "z"):
            await app.add_search_attribute(name, "Keyword")
        await app.add_search_attribute("n", "Int")
        await app.add_search_attribute("f", "Double")
        await app.add_search_attribute("l", "KeywordList")
        await app.start_workflow(waits, None, id="odd", search_attributes=values)
        assert await counts(
            app, "x = 'a''b'", "y = 'ä\u2028\U0001f600'", "z = '%'", f"n = {2**53 + 1}", "f = 0", "l = ''", "z = 'x'"
        ) == [1, 1, 1, 1, 1, 1, 0]
