"""Field cases on how workflow runs end and what everybody hears of it, on files that others lock, and on what a worker
keeps of runs that wait."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from perdure import AsyncPerdure, AsyncWorkflowHandle, Context, TaskCanceled, TaskFailed, TaskTerminated, task, workflow
from perdure.api.service import Caller, Service
from perdure.client.embedded import EmbeddedService
from perdure.core import turn_commands as t
from perdure.core import workflow_messages as w
from perdure.core.errors import WorkflowClosed
from perdure.core.events import StepStarted
from perdure.core.ids import text
from perdure.core.model import Failure
from perdure.engine.engine import Engine
from perdure.sdk.client import AsyncClient
from perdure.store.base import Store
from perdure.worker import instances
from perdure.worker.async_code import AsyncCode
from tests.engine.drive import running
from tests.engine.faulty import FaultyStore
from tests.engine.runs import DONE, Flows, child
from tests.field.flows import found, waits
from tests.field.test_databases import HOLDER

ENDS: dict[str, tuple[t.TurnCommand, str]] = {
    "COMPLETED": (DONE, "ChildWorkflowExecutionCompleted"),
    "FAILED": (t.FailWorkflow(failure=Failure(message="no")), "ChildWorkflowExecutionFailed"),
    "CANCELLED": (t.CancelWorkflow(), "ChildWorkflowExecutionCanceled"),
}


@pytest.fixture
def faulty(store: Store) -> FaultyStore:
    return FaultyStore(store)


@pytest.fixture
async def flows(faulty: FaultyStore) -> AsyncIterator[Flows]:
    async with running(faulty) as driving:  # type: ignore[arg-type]
        yield Flows(driving)


async def views(engine: Engine, run_id: bytes) -> set[str]:
    """The status of a closed run by every way to look at it: by id, in lists, by waiting for it, and by a cancel and a
    termination that come too late."""
    service = Service(engine, Caller("default"))
    statuses = [(await service.describe_workflow(w.DescribeWorkflow("child"))).status]
    for filter in (w.FindWorkflows(), w.FindWorkflows(status=statuses[0]), w.FindWorkflows(workflow_id="child")):
        listed = (await service.find_workflows(filter)).workflows
        statuses += [view.status for view in listed if view.run_id == text(run_id)] or ["not listed"]
    still_open = (await service.find_workflows(w.FindWorkflows(open=True))).workflows
    statuses += ["open" for view in still_open if view.run_id == text(run_id)]
    handle = AsyncWorkflowHandle(AsyncClient(EmbeddedService(service)), "child")
    with pytest.raises(WorkflowClosed):
        await handle.cancel()
    assert (await handle.terminate()).state != "TERMINATED"
    try:
        assert await handle.result(5) == 5
        statuses.append("COMPLETED")
    except TaskFailed:
        statuses.append("FAILED")
    except TaskCanceled:
        statuses.append("CANCELLED")
    return set(statuses)


@pytest.mark.parametrize("commit", ["unknown-kept", "unknown-lost"])
@pytest.mark.parametrize("status", sorted(ENDS))
async def test_b115_one_truth_about_a_run_whose_last_write_broke(
    flows: Flows, faulty: FaultyStore, status: str, commit: str
) -> None:
    """For the server that was cut off at that moment, and for one that comes after it; parents and callers are
    released."""
    ending, event = ENDS[status]
    wanted = child()
    await flows.start("parent")
    await (await flows.turn()).append(wanted)
    turns = {turn.run.workflow_id: turn for turn in await flows.turns()}
    await turns["parent"].append()
    waiting = asyncio.create_task(flows.drive.engine.watch(wanted.task_id, 20, namespace="default"))
    await asyncio.sleep(0.05)
    faulty.commits, faulty.asked = [commit], 0
    done = await turns["child"].append(ending)
    assert not faulty.commits
    closed = await asyncio.wait_for(waiting, 10)
    assert closed is not None and closed.state == done.state
    parent = await flows.turn()
    assert parent.names[0] == event, "the parent is released, once"
    assert await views(flows.drive.engine, wanted.task_id) == {status}
    async with running(faulty, seed=2) as later:  # type: ignore[arg-type]
        assert await views(later.engine, wanted.task_id) == {status}
        assert (await Flows(later).names(wanted.task_id)).count("WorkflowExecutionStarted") == 1


async def test_b138_another_process_that_holds_the_file_fails_no_workflow(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Write locks of up to 2.5 s, longer than a statement waits, at any moment of many runs: none fails, and no step
    runs twice."""
    path = tmp_path / "flows.db"
    ran: Counter[str] = Counter()

    async def note(name: str) -> str:
        ran[name] += 1
        await asyncio.sleep(0.01)
        return name

    @task(name="locked-activity")
    async def elsewhere(ctx: Context, name: str) -> str:
        return await note(name)

    @workflow(name="locked-async")
    async def waiting(ctx: Any, n: int) -> list[str]:
        first = await ctx.step("a", note, f"async {n} a")
        await ctx.sleep(0.2)
        return [first, await ctx.execute_activity(elsewhere, f"async {n} b"), await ctx.step("c", note, f"async {n} c")]

    @workflow(name="locked-plain")
    def plain(ctx: Any, n: int) -> list[str]:
        return [ctx.step("a", note, f"plain {n} a"), ctx.execute_activity(elsewhere, f"plain {n} b")]

    async with AsyncPerdure(f"sqlite:///{path}") as app, app.worker(slots=20):
        holder = await asyncio.create_subprocess_exec(
            sys.executable, "-c", HOLDER, str(path), "0.2", "2.5", "0.1", stdout=asyncio.subprocess.PIPE
        )
        assert holder.stdout is not None
        runs: list[Any] = []
        while await holder.stdout.readline():  # at each lock, and at the end
            flows = enumerate((waiting, plain) * 8, len(runs))
            runs += await asyncio.gather(*(app.start_workflow(flow, n) for n, flow in flows))
        assert await holder.wait() == 0
        results = [await run.result(60) for run in runs]
        assert len(results) == 48
        assert [name for result in results for name in result if name not in ran] == []
        starts = [step for run in runs for step in await found(run, StepStarted)]
        assert {step.attempt for step in starts} == {1}
    assert set(ran.values()) == {1}
    assert "database is locked" not in caplog.text
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def in_memory() -> int:
    """Runs of async code that are in memory."""
    gc.collect()
    return sum(isinstance(one, AsyncCode) for one in gc.get_objects())


async def test_b149_a_worker_keeps_so_many_runs_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """300 runs wait, of which a worker has 20 in memory; the others are replayed when their signal comes. Afterwards it
    keeps nothing."""
    monkeypatch.setattr(instances.Instances.__init__, "__defaults__", (20, instances.MOST_BYTES))

    @workflow(name="patient")
    async def patient(ctx: Any, n: int) -> int:
        await ctx.step("step", lambda: None)
        return n + int(await ctx.wait_for_signal("go"))

    before = in_memory()
    async with AsyncPerdure("sqlite:///:memory:") as app, app.worker(slots=10):
        runs = await asyncio.gather(*(app.start_workflow(patient, n) for n in range(300)))
        for run in runs:
            await waits(run)
        assert 0 < in_memory() - before <= 20 + 40, "its threads remember what they ran last"
        await asyncio.gather(*(run.signal("go", 1) for run in runs))
        assert [await run.result(60) for run in runs] == list(range(1, 301))
        assert in_memory() - before <= 20 + 40
    assert in_memory() - before <= 10


async def test_b115_a_run_that_is_terminated_while_it_closes(flows: Flows) -> None:
    """Whichever comes first, there is one end."""
    run_id = await flows.start("child")
    turn = await flows.turn()
    async with running(flows.drive.engine.store, seed=3) as other:
        service = Service(other.engine, Caller("default"))
        handle = AsyncWorkflowHandle(AsyncClient(EmbeddedService(service)), "child")
        done, ended = await asyncio.gather(turn.append(DONE), handle.terminate("stop"), return_exceptions=True)
        assert not isinstance(ended, BaseException)
        try:
            assert await handle.result(5) == 5
            assert ended.state == "SUCCEEDED" and not isinstance(done, BaseException)
        except TaskTerminated:
            assert ended.state == "TERMINATED" and isinstance(done, BaseException)
        names = await flows.names(run_id)
        assert sum(name in ("WorkflowExecutionCompleted", "WorkflowExecutionTerminated") for name in names) == 1
