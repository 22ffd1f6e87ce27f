"""What the simulation has found so far, each as small as it could be made. A seed runs something else once the code
has changed; so each finding is a test here, and a mutant that brings it back (mutants.py) and must be found again."""

from __future__ import annotations

import asyncio
import gc
import time
from typing import Any

import pytest

from perdure.core.commands import Complete
from perdure.core.messages import Delivery
from perdure.store.base import Demand, Order, StoreFault
from perdure.store.memory import MemoryStore
from perdure.worker.suspension import Suspension
from tests.clock import SteppedClock
from tests.engine.drive import LANE, running


@pytest.fixture
async def untaken() -> list[str]:
    """Messages of errors that nobody took, in the loop of this test."""
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(str(context["message"])))
    return told


async def test_a_look_that_nobody_waits_for_any_more_may_fail(untaken: list[str]) -> None:
    """The server's log had a traceback, "Task exception was never retrieved"."""
    async with running(MemoryStore(clock=SteppedClock().now)) as drive:
        failing = asyncio.Event()

        async def read(task_ids: Any) -> Any:
            await failing.wait()
            raise StoreFault("away")

        drive.engine.store.read = read  # type: ignore[method-assign]
        watching = asyncio.create_task(drive.engine.watch(bytes(16), 5.0, namespace="default"))
        await asyncio.sleep(0.01)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        failing.set()
        await asyncio.sleep(0.01)
    gc.collect()
    assert untaken == []


async def test_a_release_that_nobody_waits_for_may_be_refused(untaken: list[str]) -> None:
    """A server that stops hands back what it leased to a poll that is gone."""
    async with running(MemoryStore(clock=SteppedClock().now)) as drive:
        task = await drive.lease_new()
        drive.engine._stopping = True
        drive.engine._take_back([task])
        await asyncio.sleep(0.01)
        drive.engine._stopping = False
    gc.collect()
    assert untaken == []


def test_what_was_asked_for_after_a_suspension_is_not_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """B122; it was handed back, asked for and handed back, a hundred times in the second after it."""
    now = 1_000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    suspension = Suspension(1.0)
    delivery = Delivery("", b"", "t", "default", 1, 1)
    asked_before, now = now, now + 20.0
    assert suspension.look() > 10
    assert suspension.outlasted(delivery, asked_before)
    assert not suspension.outlasted(delivery, now + 0.001)


async def test_the_memory_store_exchanges_in_one_statement() -> None:
    """In a batch of a single statement it was two, and the second came after the end."""
    store = MemoryStore(clock=SteppedClock().now)
    async with running(store) as drive:
        task = await drive.lease_new()
        new = await drive.enqueue()
        done = [Complete(lease=task.lease, outcome="succeeded", result=b"")]
        async with store.batch(single=True) as rows:
            order = Order(Demand(LANE, 1), session=1, worker="w", poll=1, bits=[1])
            succeeded, claimed, timed = await rows.exchange(done, order)
        assert (succeeded, [row.id for row in claimed], timed) == ({task.id}, [new], False)
