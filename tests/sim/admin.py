"""Somebody who sees to it that all ends: asks an engine what the REST interface asks, in one of the servers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from perdure.core import commands as c
from perdure.core.errors import PerdureError
from perdure.store.base import StoreFault
from tests.sim.processes import ServerProcess

if TYPE_CHECKING:
    from tests.sim.world import World

_PATIENCE = 30.0


class Admin:
    """A call whose server dies is given up after a while: nobody knows whether it happened."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def wind_up(self) -> None:
        """Once all is well nothing stays paused, and nothing is repeated by cron or by a schedule any more."""
        runs = self._world.runs
        for workflow_id in runs.paused():
            await self._ask(c.Pause(namespace="default", workflow_id=workflow_id, paused=False))
        for workflow_id in runs.repeated():
            await self._ask(c.Terminate(namespace="default", workflow_id=workflow_id, reason="wound up"))
        for schedule_id in self._world.schedules.open():
            await self._ask(c.DeleteSchedule(namespace="default", schedule_id=schedule_id))

    async def _ask(self, command: c.Command) -> None:
        """One of the servers does it, or not: it is asked again soon."""
        servers = [s for s in self._world.servers if isinstance(s, ServerProcess) and s.alive and s.engine is not None]
        if not servers:
            return
        server = servers[int(self._world.chance.random() * len(servers))]
        engine = server.engine
        assert engine is not None
        done: asyncio.Future[None] = self._world.loop.create_future()

        async def run() -> None:
            try:
                [outcome] = await engine.apply([command])
            except (PerdureError, StoreFault) as error:
                outcome = error
            self._world.trace(f"wound up: {outcome!r}")
            if not done.done():
                done.set_result(None)

        server.node.spawn(run())
        await asyncio.wait([done], timeout=_PATIENCE)
