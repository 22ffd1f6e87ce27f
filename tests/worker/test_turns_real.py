"""Workflows of both styles in a worker, against the real engine in the same process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from perdure.app import AsyncPerdure
from perdure.client.base import Service
from perdure.core import workflow_messages as w
from perdure.core.errors import Unavailable
from perdure.core.events import Event, StepCompleted, StepStarted
from perdure.core.messages import CloseSession
from perdure.core.pages import unpack
from perdure.sdk.converter import from_payloads, to_payloads
from perdure.sdk.logs import RUNNING
from perdure.sdk.workflow import workflow
from perdure.worker.worker import Worker
from tests.worker.working import add, multiply


@pytest.fixture(params=["", "plain_"])
def style(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[AsyncPerdure]:
    async with AsyncPerdure(f"sqlite:///{tmp_path}/jobs.db") as app, asyncio.timeout(60):
        yield app


class Real:
    """What a test asks the service."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def start(self, type: str, input: Any = None, workflow_id: str = "w") -> None:
        await self.service.start_workflow(w.StartWorkflow(type, workflow_id, to_payloads(input, "input")))

    async def result(self, workflow_id: str = "w") -> Any:
        view = await self.service.result_workflow(w.ResultWorkflow(workflow_id, wait=25.0))
        assert view.result is not None, (
            view.state,
            view.failure,
            view.waiting_for,
            [e.attributes for e in (await self.events(workflow_id))[-12:]],
        )
        return from_payloads(view.result, "result")

    async def events(self, workflow_id: str = "w") -> list[Event]:
        found: list[Event] = []
        more = True
        while more:
            last = found[-1].id if found else 0
            reply = await self.service.history(w.History(workflow_id, after=last))
            found += [event for page in reply.pages for event in unpack(page)]
            more = reply.more
        return found

    async def until(self, kind: type[Any], workflow_id: str = "w") -> None:
        while not any(isinstance(event.attributes, kind) for event in await self.events(workflow_id)):
            await asyncio.sleep(0.005)

    async def signal(self, name: str, value: Any = None, workflow_id: str = "w") -> None:
        signal = w.Signal(name, to_payloads(value, "input"))
        await self.service.signal_workflow(w.SignalWorkflow(workflow_id, signal))

    async def query(self, name: str, workflow_id: str = "w") -> Any:
        reply = await self.service.query_workflow(w.QueryWorkflow(workflow_id, name))
        return from_payloads(reply.result, "result")


def attempts(events: Sequence[Event]) -> list[int]:
    return [event.attributes.attempt for event in events if isinstance(event.attributes, StepStarted)]


@workflow
async def order(ctx: Any, n: int) -> Any:
    status = ["new"]
    ctx.on_query("status", lambda: status[0])
    total = await ctx.step("add", add, n, 1)
    status[0] = "waits"
    answer = await ctx.wait_for_signal("approve")
    await ctx.sleep(0.02)
    rest = await ctx.parallel("fan", [(multiply, k, answer) for k in range(5)])
    return [total, *rest]


@workflow
def plain_order(ctx: Any, n: int) -> Any:
    status = ["new"]
    ctx.on_query("status", lambda: status[0])
    total = ctx.step("add", add, n, 1)
    status[0] = "waits"
    answer = ctx.wait_for_signal("approve")
    ctx.sleep(0.02)
    rest = ctx.parallel("fan", [(multiply, k, answer) for k in range(5)])
    return [total, *rest]


async def test_from_start_to_result(app: AsyncPerdure, style: str) -> None:
    real = Real(await app.service())
    async with app.worker():
        await real.start(style + "order", 3)
        await real.until(StepCompleted)
        assert await real.query("status") == "waits"
        await real.signal("approve", 10)
        assert await real.result() == [4, 0, 10, 20, 30, 40]
        assert await real.query("status") == "waits"
    assert attempts(await real.events()) == [1] * 6


async def test_another_worker_goes_on(app: AsyncPerdure, style: str) -> None:
    """STEP-03: what is committed does not run again."""
    real = Real(await app.service())
    async with app.worker():
        await real.start(style + "order", 3)
        await real.until(StepCompleted)
    async with app.worker():
        await real.signal("approve", 10)
        assert await real.result() == [4, 0, 10, 20, 30, 40]
    assert attempts(await real.events()) == [1] * 6


async def test_a_worker_that_dies_in_a_step(app: AsyncPerdure, style: str) -> None:
    """STEP-12, C/F1: its session is ended by the supervisor, and the next attempt knows its number."""
    seen: list[int] = []
    gate = threading.Event()

    def charge() -> str:
        ctx = RUNNING.get()
        assert ctx is not None
        seen.append(ctx.attempt)
        gate.wait(20)
        return f"attempt {ctx.attempt}"

    @workflow(name="charging")
    async def charging(ctx: Any) -> Any:
        return await ctx.step("charge", charge)

    @workflow(name="plain_charging")
    def plain_charging(ctx: Any) -> Any:
        return ctx.step("charge", charge)

    service = await app.service()
    real = Real(service)
    dead = Worker(service, drain_seconds=0.0)
    async with dead:
        await real.start(style + "charging")
        while seen != [1]:
            await asyncio.sleep(0.005)
        await service.close_session(CloseSession(dead.incarnation, "died"))
        dead._draining.set()
        async with app.worker():
            while seen != [1, 2]:
                await asyncio.sleep(0.005)
            gate.set()
            assert await real.result() == "attempt 2"
    assert attempts(await real.events()) == [1, 2]


class Forgetful:
    """A service whose answers to appends get lost now and then."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._count = 0

    async def append(self, body: w.Appends) -> w.AppendReply:
        self._count += 1
        reply = await self._service.append(body)
        if self._count % 2:
            raise Unavailable("the answer was lost")
        return reply

    def __getattr__(self, name: str) -> Any:
        return getattr(self._service, name)


@pytest.mark.usefixtures("no_pauses")
async def test_lost_answers_change_nothing(app: AsyncPerdure, style: str) -> None:
    service = await app.service()
    real = Real(service)
    async with Worker(Forgetful(service)):  # type: ignore[arg-type]
        await real.start(style + "order", 3)
        await real.until(StepCompleted)
        await real.signal("approve", 10)
        assert await real.result() == [4, 0, 10, 20, 30, 40]
    assert attempts(await real.events()) == [1] * 6
    ids = [event.id for event in await real.events()]
    assert ids == list(range(1, len(ids) + 1))


async def test_many_runs_at_once(app: AsyncPerdure, style: str) -> None:
    real = Real(await app.service())

    async def one(n: int) -> None:
        await real.start(style + "order", n, f"w{n}")
        await real.signal("approve", n, f"w{n}")
        assert await real.result(f"w{n}") == [n + 1, *(k * n for k in range(5))]

    async with app.worker(slots=20):
        await asyncio.gather(*(one(n) for n in range(100)))


async def test_a_drain_under_load_fails_nothing(app: AsyncPerdure, style: str) -> None:
    real = Real(await app.service())
    for n in range(50):
        await real.start(style + "order", n, f"w{n}")
        await real.signal("approve", n, f"w{n}")
    async with app.worker(slots=20):
        await real.until(StepStarted, "w0")
    async with app.worker(slots=20):
        for n in range(50):
            assert await real.result(f"w{n}") == [n + 1, *(k * n for k in range(5))]
    for n in range(50):
        names = {type(event.attributes).__name__ for event in await real.events(f"w{n}")}
        assert "WorkflowTaskFailed" not in names
