"""A job that kills its worker, with real servers and workers (RETRY-09, RETRY-14)."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest

from perdure import AsyncPerdure, Breaker
from perdure.core.limit_messages import BreakerView
from tests.field.conftest import url  # noqa: F401  # a fixture
from tests.flow.poison import flow_harmless, flow_poison
from tests.worker.processes import running_server, running_worker

APP = Path(__file__).with_name("poison.py")


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other processes find `tests` too."""
    monkeypatch.setenv("PYTHONPATH", str(APP.parents[2]))


async def breaker(app: AsyncPerdure) -> BreakerView:
    [limit] = await app.limits()
    assert limit.breaker is not None
    return limit.breaker


async def test_a_poison_job_is_contained_and_all_else_goes_on(url: str, tmp_path: Path) -> None:  # noqa: F811
    """Two workers die of it, then nobody gets it any more; no attempt is spent by those that wait. Once it is cured and
    the breaker is closed, all of them succeed."""
    cure = tmp_path / "cure"
    async with asyncio.timeout(120):
        with running_server(url, tmp_path) as server:
            async with AsyncPerdure(server) as app:
                await app.set_limit("type", "flow_poison", breaker=Breaker(crashes=2, cool_down="1h"))
                poison = [await app.enqueue(flow_poison, str(cure)) for _ in range(4)]
                harmless = [await app.enqueue(flow_harmless, number) for number in range(5)]
                with running_worker(APP, server, "--slots", "1"):
                    assert [await job.result() for job in harmless] == list(range(5))
                    found = await breaker(app)
                    assert (found.state, found.reason) == ("open", "2 crashes in a row")
                    views = [await app.get(job.id) for job in poison]
                    attempts = [attempt for view in views for attempt in view.attempts]
                    assert len(attempts) == 2, attempts
                    assert "breaker of type 'flow_poison'" in views[-1].waiting_for
                    cure.touch()
                    await app.close_breaker("flow_poison", note="cured")
                    assert [await job.result() for job in poison] == ["well"] * 4
                    assert (await breaker(app)).state == "closed"


async def test_without_a_cure_workers_die_once_a_cool_down(url: str, tmp_path: Path) -> None:  # noqa: F811
    """And a job that was tried often enough has failed for good."""
    async with asyncio.timeout(120):
        with running_server(url, tmp_path) as server:
            async with AsyncPerdure(server) as app:
                await app.set_limit("type", "flow_poison", breaker=Breaker(crashes=1, cool_down="1s"))
                job = await app.enqueue(flow_poison, str(tmp_path / "cure"))
                with running_worker(APP, server, "--slots", "1"):
                    while (view := await app.get(job.id)).state != "FAILED":
                        await asyncio.sleep(0.05)
                    assert await app.execute(flow_harmless, 7) == 7
                starts = [attempt.started_at for attempt in view.attempts if attempt.started_at is not None]
                assert len(starts) == 4
                gaps = [(after - before).total_seconds() for before, after in pairwise(starts)]
                assert min(gaps) >= 1
