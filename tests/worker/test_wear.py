"""When a worker leaves to be replaced, and what it does about its handlers then."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from perdure import Context, InvalidArgument, task
from perdure.worker import wear, worker
from perdure.worker.memory import resident
from perdure.worker.process import Lifeline, ProcessReport
from perdure.worker.receipts import Receipts
from perdure.worker.worker import Worker
from tests.worker.fake import FakeService, Gate

pytestmark = pytest.mark.usefixtures("no_pauses")


class Supervisor:
    """The other end of a lifeline."""

    def __init__(self) -> None:
        self.reading, writing = os.pipe()
        os.set_blocking(self.reading, False)
        with Receipts.file() as file:
            self.lifeline = Lifeline(1, writing, file.fileno())
        self._writing = writing

    def reports(self) -> list[ProcessReport]:
        try:
            lines = os.read(self.reading, 1 << 16).splitlines()
        except BlockingIOError:
            return []
        return [msgspec.json.decode(line, type=ProcessReport) for line in lines]

    def close(self) -> None:
        os.close(self.reading)
        os.close(self._writing)


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    supervisor = Supervisor()
    yield supervisor
    supervisor.close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wear, "STUCK_SECONDS", 0.05)
    monkeypatch.setattr(worker, "_WATCH_SECONDS", 0.01)


@pytest.fixture
def stubborn() -> Iterator[Callable[[], int]]:
    """A plain handler that never looks at `ctx`; how many of them run."""
    inside: list[int] = []
    end = threading.Event()

    @task(name="stubborn")
    def stubborn(ctx: Context, payload: Any) -> None:
        inside.append(1)
        end.wait()

    yield lambda: len(inside)
    end.set()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)


async def test_it_leaves_after_exactly_so_many_tasks(service: FakeService, supervisor: Supervisor) -> None:
    """What came with the last one is handed back in order, and who ran may end."""
    gate = Gate()
    async with Worker(service, slots=10, max_tasks=3, lifeline=supervisor.lifeline) as leaving:
        leases = await service.give_many("at_gate", 5)
        await asyncio.wait_for(leaving.draining(), 20)
        await gate.holds(3)
        assert [(await service.reported(lease)).outcome for lease in leases[3:]] == ["released"] * 2
        assert [c.lease for request in service.requests for c in request.completions] == leases[:2:-1]
        assert any(report.leaving for report in supervisor.reports())
        gate.open.set()
    assert [service.reports[lease].outcome for lease in leases[:3]] == ["succeeded"] * 3


async def test_handlers_of_a_worn_process_have_time(service: FakeService, supervisor: Supervisor) -> None:
    """Longer than a drain gives: another process is at work already. Until it is told to drain as well."""
    gate = Gate()
    options: Any = {"max_tasks": 1, "drain_seconds": 0.0, "lifeline": supervisor.lifeline}
    async with Worker(service, **options):
        first = await service.give("at_gate")
        await gate.holds(1)
        asyncio.get_running_loop().call_later(0.3, gate.open.set)
    assert service.reports[first].outcome == "succeeded"
    gate.open.clear()
    async with Worker(service, **options) as told:
        second = await service.give("at_gate")
        await gate.holds(2)
        asyncio.get_running_loop().call_later(0.1, told.drain)
    assert service.reports[second].outcome == "released"


async def test_without_a_supervisor_it_drains_as_it_always_does(service: FakeService) -> None:
    gate = Gate()
    async with Worker(service, max_tasks=1, drain_seconds=0.0):
        lease = await service.give("at_gate")
        await gate.holds(1)
    assert service.reports[lease].outcome == "released"


async def test_it_leaves_with_too_much_memory(
    service: FakeService, supervisor: Supervisor, quick: None, caplog: pytest.LogCaptureFixture
) -> None:
    """B149: the ceiling is on what is in memory, not on what was."""
    kept = []
    options: Any = {"max_memory": resident() + (64 << 20), "lifeline": supervisor.lifeline}
    async with Worker(service, **options) as leaving:
        assert await service.result(await service.give("echo", 1)) == 1
        await asyncio.sleep(0.05)
        assert not leaving.status().draining
        kept.append(os.urandom(1 << 20) * 128)
        await asyncio.wait_for(leaving.draining(), 20)
    assert "MB of memory" in caplog.text


async def test_a_ceiling_below_what_there_is_from_the_start_is_an_error(service: FakeService) -> None:
    with pytest.raises(InvalidArgument, match="from the start"):
        Worker(service, max_memory=1 << 20)
    with pytest.raises(InvalidArgument, match="max_tasks"):
        Worker(service, max_tasks=0)


async def test_handlers_that_do_not_stop_cost_the_process_once_they_hold_half_the_slots(
    service: FakeService,
    supervisor: Supervisor,
    quick: None,
    stubborn: Callable[[], int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """B123, B023: their time is over, and they hold their slots for ever."""
    gate = Gate()
    async with Worker(service, slots=4, lifeline=supervisor.lifeline) as leaving:
        first = await service.give("stubborn", start_to_close=0.05)
        await until(lambda: leaving.status().stuck == 1)
        assert not leaving.status().draining
        good = await service.give("at_gate")
        await gate.holds(1)
        second = await service.give("stubborn", start_to_close=0.05)
        await asyncio.wait_for(leaving.draining(), 20)
        asyncio.get_running_loop().call_later(0.2, gate.open.set)
    assert service.reports[good].outcome == "succeeded"
    for lease in (first, second):
        assert (failure := service.reports[lease].failure) is not None
        assert failure.code == "start_to_close_timeout"
        assert failure.message.endswith("the handler did not stop")
    assert "2 of its 4 slots are held by handlers that do not stop (2 of stubborn)" in caplog.text
    assert stubborn() == 2


async def test_without_a_supervisor_that_is_only_said(
    service: FakeService, quick: None, stubborn: Callable[[], int], caplog: pytest.LogCaptureFixture
) -> None:
    async with Worker(service, slots=2) as stays:
        await service.give("stubborn", start_to_close=0.05)
        await until(lambda: "cannot be replaced, but should be" in caplog.text)
        await asyncio.sleep(0.05)
        assert not stays.status().draining
        assert await service.result(await service.give("echo", 1)) == 1
    assert caplog.text.count("cannot be replaced") == 1


async def test_what_a_worker_tells_about_itself(service: FakeService, supervisor: Supervisor, quick: None) -> None:
    """B163: the last poll and the last heartbeat are there for those who watch."""
    gate = Gate()
    async with Worker(service, slots=5, identity="me", lifeline=supervisor.lifeline):
        await service.give("at_gate")
        await gate.holds(1)
        reports: list[ProcessReport] = []

        def is_told() -> bool:
            reports.extend(supervisor.reports())
            status = reports[-1].status if reports else None
            return status is not None and status.heartbeat_age is not None

        await until(is_told)
        gate.open.set()
    status = reports[-1].status
    assert status is not None
    assert (status.pid, status.identity, status.slots, status.running) == (os.getpid(), "me", 5, 1)
    assert (status.connected, status.draining, status.ready, status.stuck) == (True, False, True, 0)
    assert status.poll_age is not None
    assert 0 <= status.poll_age < 20
