"""`GET /live`, `GET /ready` and `GET /metrics` over the processes of a supervisor, for orchestrators and people.

The first two answer 200 or 503 and JSON: `live` or `ready`, and the status of each process. Live means that every
process was heard of lately: an event loop that a handler blocks, or a process that is stopped, is not. Ready means that
a process at least is connected to a server and takes tasks. A worker whose slots are all taken is ready: nothing is
wrong with it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
from aiohttp import web

from perdure.core.errors import Unavailable
from perdure.worker.metrics import CONTENT_TYPE, page
from perdure.worker.status import Health


@asynccontextmanager
async def health_server(host: str, port: int, look: Callable[[], Health]) -> AsyncIterator[int]:
    """Answers until the context is left; gives the port (0 takes a free one). Raises Unavailable when the address
    cannot be taken."""

    async def live(_: web.Request) -> web.Response:
        health = look()
        return _answer("live", health.live, health)

    async def ready(_: web.Request) -> web.Response:
        health = look()
        return _answer("ready", health.ready, health)

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=page(look()), headers={"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"})

    app = web.Application()
    app.add_routes([web.get("/live", live), web.get("/ready", ready), web.get("/metrics", metrics)])
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.5)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        try:
            await site.start()
        except OSError as error:
            raise Unavailable(f"the health endpoint cannot listen on {host}:{port}: {error.strerror}") from error
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def _answer(name: str, good: bool, health: Health) -> web.Response:
    body = {name: good, "stopping": health.stopping, "processes": health.processes}
    return web.Response(
        status=200 if good else 503, body=msgspec.json.encode(body) + b"\n", content_type="application/json",
        headers={"Cache-Control": "no-store"},
    )  # fmt: skip
