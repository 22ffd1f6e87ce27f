"""A server in this process: calls go straight to its Service, from whichever thread they come."""

from __future__ import annotations

import asyncio
from typing import Any

from perdure.client.base import Service
from perdure.client.calls import Calls
from perdure.core import messages as m


class EmbeddedService(Calls):
    """Passes calls to `service`, which runs on the event loop that this object is made on. Calls from another thread's
    event loop, such as that of a heartbeat thread, are carried over to it and their answers back."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._loop = asyncio.get_running_loop()

    async def _ask(self, op: str, body: m.Body) -> Any:
        call = getattr(self._service, op)(body)
        if asyncio.get_running_loop() is self._loop:
            return await call
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, self._loop))

    async def close(self) -> None:
        """End the open waits of the Service."""
        await self._service.close()
