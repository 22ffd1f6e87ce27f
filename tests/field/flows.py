"""What the tests of workflows share: to look at runs, and a worker that is killed in the middle."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from perdure import AsyncPerdure, AsyncWorkflowHandle, LeaseLost
from perdure.client.base import Service
from perdure.core.messages import CloseSession
from perdure.core.workflow_messages import Appended, AppendReply, Appends, WorkflowView
from perdure.worker.worker import Worker

Look = Callable[[WorkflowView], object]

one_store = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
"""For cases of the worker and the SDK, which no store knows of."""


async def until(condition: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(20):
        while not await condition():
            await asyncio.sleep(0.005)


async def shows(run: AsyncWorkflowHandle, look: Look) -> WorkflowView:
    """The run once it looks like that."""
    async with asyncio.timeout(20):
        while not look(view := await run.describe()):
            await asyncio.sleep(0.005)
        return view


async def waits(run: AsyncWorkflowHandle) -> WorkflowView:
    """The run once its code waits for something."""
    return await shows(run, lambda view: view.state == "WAITING")


async def names(run: AsyncWorkflowHandle) -> list[str]:
    """The types of its events."""
    return [type(event.attributes).__name__ for event in (await run.history()).events]


async def found(run: AsyncWorkflowHandle, kind: type[Any]) -> list[Any]:
    """The attributes of its events of that type."""
    return [event.attributes for event in (await run.history()).events if isinstance(event.attributes, kind)]


class Mortal:
    """The service of a worker that is killed right after its `deadly`-th append was committed, before it hears of it:
    from then on nothing passes in either direction. Once it is buried, what it still says is for the server to
    refuse."""

    def __init__(self, service: Service, deadly: int) -> None:
        self._service = service
        self._left = deadly
        self.dead = asyncio.Event()
        self.buried = asyncio.Event()

    async def append(self, body: Appends) -> AppendReply:
        await self._pass()
        reply = await self._service.append(body)
        self._left -= 1
        if not self._left:
            self.dead.set()
        if self.dead.is_set():
            await self.buried.wait()
            return AppendReply([Appended(error=LeaseLost().problem()) for _ in body.appends])
        return reply

    async def _pass(self) -> None:
        if self.dead.is_set():
            await self.buried.wait()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._service, name)

        async def call(*arguments: Any) -> Any:
            await self._pass()
            return await method(*arguments)

        return call


async def die(app: AsyncPerdure, deadly: int, **options: Any) -> None:
    """A worker lives until its `deadly`-th append, and its supervisor tells of its death."""
    service = await app.service()
    mortal = Mortal(service, deadly)
    worker = Worker(mortal, drain_seconds=0.0, **options)  # type: ignore[arg-type]
    async with worker:
        await mortal.dead.wait()
        await service.close_session(CloseSession(worker.incarnation, "died"))
        worker.drain()
        mortal.buried.set()
