"""Somebody who administers runs: what the REST interface asks of an engine, by one of the servers."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from perdure.core import commands as c
from perdure.core import ids, pages
from perdure.core.errors import InvalidArgument, NotFound, PerdureError, Unavailable
from perdure.engine.engine import Engine
from perdure.store.base import StoreFault
from tests.sim.processes import ServerProcess

if TYPE_CHECKING:
    from tests.sim.world import World

T = TypeVar("T")
_PATIENCE = 30.0


class Admin:
    """A call whose server dies is given up after a while: nobody knows whether it happened."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def _on_a_server(self, call: Any) -> Any:
        """The outcome of `call(engine)`, which runs in a server."""
        servers = [s for s in self._world.servers if isinstance(s, ServerProcess) and s.alive and s.engine is not None]
        if not servers:
            raise Unavailable("nobody listens")
        server = servers[int(self._world.chance.random() * len(servers))]
        done: asyncio.Future[Any] = self._world.loop.create_future()

        async def run() -> None:
            try:
                outcome = await call(server.engine)
            except (PerdureError, StoreFault) as error:
                outcome = error
            if not done.done():
                done.set_result(outcome)

        server.node.spawn(run())
        try:
            async with asyncio.timeout(_PATIENCE):
                outcome = await done
        except TimeoutError:
            raise Unavailable("no answer") from None
        if isinstance(outcome, StoreFault):
            raise Unavailable(str(outcome))
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def pause(self, workflow_id: str, *, paused: bool) -> None:
        command = c.Pause(namespace="default", workflow_id=workflow_id, paused=paused)
        await self._on_a_server(lambda engine: _one(engine.apply([command])))

    async def reset(self, workflow_id: str, run_id: str | None, source: Random) -> None:
        """To some event of its past."""
        chance = source.random()

        async def begin_again(engine: Engine) -> Any:
            target = None if run_id is None else ids.parse(run_id)
            if target is None:
                key = await engine.store.find_key(("default", "", "workflow", workflow_id))
                target = None if key is None else key.task_id
            if target is None:
                raise NotFound("no such workflow")
            task = (await engine.store.read([target])).get(target)
            run = (await engine.store.run_rows([target])).get(target)
            found = (await engine.store.histories({target: 0}, 1_000)).get(target)
            if task is None or run is None or not found:
                raise NotFound("no such run")
            history = [event for page in found for event in pages.unpack(page.data)]
            command = c.Reset(
                namespace="default", workflow_id=workflow_id, run_id=target,
                event_id=1 + int(chance * len(history)), history=history, task=task, run=run,
                new_run_id=self._world.mint.task_id(engine.now()),
            )  # fmt: skip
            return await _one(engine.apply([command]))

        try:
            await self._on_a_server(begin_again)
        except InvalidArgument as error:
            self._world.trace(f"no reset of {workflow_id}: {error}")

    async def resume_all(self) -> None:
        """Nothing stays paused once all is well."""
        for workflow_id in self._world.runs.paused():
            try:
                await self.pause(workflow_id, paused=False)
            except PerdureError as error:
                self._world.trace(f"{workflow_id} is not resumed: {error!r}")


async def _one(work: Coroutine[Any, Any, list[Any]]) -> Any:
    [outcome] = await work
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
