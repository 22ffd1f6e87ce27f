"""A database that fails while a schedule fires: before any statement, and at the commit with either outcome. The
nominal time fires once in any case (IDEM-12, CRON-07, B034)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perdure.core import schedule_messages as s
from perdure.core.messages import Find
from perdure.core.states import Kind
from perdure.store.base import Filter, StoreFault
from perdure.store.sqlite import SqliteStore
from tests.clock import SteppedClock
from tests.engine.drive import running
from tests.engine.faulty import FaultyStore
from tests.schedules.flow import Flow, payload
from tests.store.conftest import opened

START = "2026-01-01T00:00:00+00:00"
WORKFLOW = s.ScheduleOptions(
    schedule_id="s", workflow=s.WorkflowTemplate("flow", payload()), interval=60, overlap_policy="allow"
)


async def _counts(flow: Flow) -> tuple[dict[str, int], int]:
    """Outcomes, and what was started."""
    tasks = (await flow.service.find(Find())).tasks
    return (await flow.view()).counts, len(tasks)


@pytest.mark.parametrize("commit", ["unknown-kept", "unknown-lost"])
async def test_a_commit_of_unknown_outcome(commit: str, clock: SteppedClock, tmp_path: Path) -> None:
    async with opened(SqliteStore(tmp_path / "jobs.db", clock=clock.now)) as real:
        store = FaultyStore(real)
        async with running(store) as drive:  # type: ignore[arg-type]
            flow = Flow(drive, clock, START)
            await flow.put(interval=60)
            flow.clock.advance(60)
            store.commits = [commit]
            await flow.drive.ring()
            await flow.drive.ring()
            assert await _counts(flow) == ({"started": 1}, 1)


@pytest.mark.parametrize("kind", [Kind.JOB, Kind.WORKFLOW])
async def test_any_statement_may_fail(kind: Kind, clock: SteppedClock, tmp_path: Path) -> None:
    """Each in turn, in a firing of its own; the batch is tried again."""
    async with opened(SqliteStore(tmp_path / "jobs.db", clock=clock.now)) as real:
        store = FaultyStore(real)
        async with running(store) as drive:  # type: ignore[arg-type]
            flow = Flow(drive, clock, START)
            if kind is Kind.JOB:
                await flow.put(interval=60, overlap_policy="allow")
            else:
                await flow.service.put_schedule(s.PutSchedule(WORKFLOW))
            flow.clock.advance(60)
            store.verbs.clear()
            await flow.drive.ring()
            whole = list(store.verbs)
            for position in range(len(whole)):
                left = position

                def fail(verb: str, args: tuple[Any, ...]) -> None:
                    nonlocal left
                    left -= 1
                    if left == -1:
                        raise StoreFault(f"before {verb}")

                flow.clock.advance(60)
                store.before = fail
                await flow.drive.ring()
                store.before = lambda verb, args: None
            assert (await flow.view()).counts == {"started": 1 + len(whole)}
            assert len(await store.find(Filter(namespace="default", limit=100, kind=kind))) == 1 + len(whole)
