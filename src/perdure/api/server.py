"""The HTTP server of a process: one ASGI app out of REST and wire protocol, on uvicorn."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Protocol

import uvicorn
from litestar import Litestar

from perdure.api import rest, rest_limits, rest_schedules, rest_workflows
from perdure.api.auth import Gate
from perdure.api.door import Door
from perdure.api.guard import Guard, Http, WebSocket
from perdure.api.naming import named
from perdure.api.parking import Parking
from perdure.api.wire import Receive, Scope, Send, Wire, refuse
from perdure.core.errors import Conflict, PermissionDenied
from perdure.core.limits import MAX_BODY
from perdure.engine.engine import Engine

DEFAULT_PORT = 7400
_WITH_IDS = (rest_workflows.PREFIX, rest_schedules.PREFIX, rest_limits.PREFIX)
"""Paths whose handlers decode them, because ids may hold a slash."""
GRACE_SECONDS = 10
"""How long answers under way may take once the server stops."""


class Guest(Protocol):
    """An ASGI app that a server carries beside its own interfaces: it has the paths that it `owns`."""

    def owns(self, path: str) -> bool: ...

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    def stop(self) -> None:
        """End answers that go on by themselves."""
        ...


Invite = Callable[[Door], Guest]


class App:
    """The ASGI app of a server: the wire protocol by its paths, a guest's paths to the guest, everything else to REST.
    The dispatch is done here and not by a mount inside Litestar, because that costs a quarter of the time of a wire
    request."""

    def __init__(self, engine: Engine, invite: Invite | None = None) -> None:
        self.gate = Gate(engine.store, engine.outage)
        self._parking = Parking()
        self._wire = Wire(engine, self.gate, self._parking)
        self._engine = engine
        self._guest = None if invite is None else invite(Door(engine, self.gate, self._parking))

    @cached_property
    def _rest(self) -> Litestar:
        """Made for the first request: it takes 70 ms, and most servers start for workers and the SDK's clients."""
        return rest.build(self._engine, self.gate, self._parking)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self.gate.locked and (why := _lured(scope)):
            if scope["type"] == "websocket":
                await receive()  # websocket.connect
            await refuse(scope, receive, send, why)
        elif scope["type"] == "websocket" or (
            scope["type"] == "http" and scope["path"].startswith(("/wire", "/worker/"))
        ):
            await self._wire(scope, receive, send)
        elif scope["type"] == "http":
            await named(self._for_people, scope, receive, send)
        else:
            await self._for_people(scope, receive, send)

    async def _for_people(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._guest is not None and scope["type"] == "http" and self._guest.owns(scope["path"]):
            await self._guest(scope, receive, send)
        else:
            if scope["type"] == "http" and scope["method"] == "HEAD":
                scope = {**scope, "method": "GET"}  # its head is that of GET; uvicorn sends no body
            if scope["type"] == "http" and scope["path"].startswith(_WITH_IDS):
                scope = {**scope, "path": scope["raw_path"].decode("ascii")}
            await self._rest(scope, receive, send)  # type: ignore[arg-type]  # the same protocol by other names

    def stop(self) -> None:
        """End parked requests; the server waits for all requests before it stops."""
        self._wire.stop()
        if self._guest is not None:
            self._guest.stop()


class _Uvicorn(uvicorn.Server):
    """Says when it listens, and leaves signals to the process, which has more to stop than this server."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self.listening.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Server:
    """Serves an App on one address. `start` returns when requests are accepted, `stop` when all are answered.

    A host that others can reach needs API keys: PermissionDenied without. An address in use is a Conflict.
    """

    def __init__(self, app: App, host: str = "127.0.0.1", port: int = DEFAULT_PORT) -> None:
        self._app = app
        self._host = host
        self._port = port
        self._uvicorn: _Uvicorn | None = None
        self._task: asyncio.Task[None] | None = None
        self._guard: Guard | None = None
        self.url = ""

    async def start(self) -> None:
        await self._app.gate.start()
        try:
            if not self._app.gate.locked and not is_loopback(self._host):
                raise PermissionDenied(f"{self._host} can be reached by others; make an API key first", field="host")
            listener = self._bind()
        except Exception:
            await self._app.gate.stop()
            raise
        port = listener.getsockname()[1]
        self.url = f"http://[{self._host}]:{port}" if ":" in self._host else f"http://{self._host}:{port}"
        config = uvicorn.Config(
            self._app,
            loop="uvloop",
            http=Http,
            ws=WebSocket,
            ws_max_size=MAX_BODY + 1024,
            ws_per_message_deflate=False,
            ws_ping_interval=20.0,
            # A worker whose event loop is busy answers no ping but lives, and its heartbeats come from a thread. So a
            # missing pong ends nothing; what a dead peer holds ends with its lease.
            ws_ping_timeout=None,
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
        self._uvicorn = _Uvicorn(config)
        self._task = asyncio.create_task(self._uvicorn.serve(sockets=[listener]))
        await self._uvicorn.listening.wait()
        self._guard = Guard(self._uvicorn.server_state)

    async def stop(self) -> None:
        """Parked requests end first. Safe to repeat, and before start."""
        if self._uvicorn is not None and self._task is not None:
            self._app.stop()
            self._uvicorn.should_exit = True
            await self._task
            self._task = None
            if self._guard is not None:
                self._guard.stop()
            await self._app.gate.stop()

    def _bind(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            listener = socket.create_server((self._host, self._port), family=family, backlog=2048)
        except OSError as fault:
            why = os.strerror(fault.errno) if fault.errno else str(fault)
            raise Conflict(f"cannot listen on {self._host} port {self._port}: {why}", field="port") from fault
        listener.setblocking(False)
        # Accepted sockets inherit it. asyncio sets it only where it made the socket itself, and without it an answer in
        # two pieces waits 40 ms for the peer's delayed acknowledgement.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener


def _lured(scope: Scope) -> PermissionDenied | None:
    """Why a server that trusts whoever reaches it does not take a request: a page of another site may have made the
    browser send it. Without a body a browser sends a POST across sites without asking first."""
    if host := _elsewhere(scope):
        text = f"a server without API keys answers to names of this machine only, and not to {host!r}"
        return PermissionDenied(text[:200], field="host")
    if scope["type"] == "http" and scope["method"] not in ("GET", "HEAD", "OPTIONS"):
        site = next((value for name, value in scope["headers"] if name == b"sec-fetch-site"), b"none")
        if site in (b"cross-site", b"same-site"):
            return PermissionDenied("pages of other sites change nothing here", field="sec-fetch-site")
    return None


def _elsewhere(scope: Scope) -> str:
    """The host that a request names, if that is none of this machine: a page of any site may have let its own name
    stand for 127.0.0.1, and a browser lets it talk to us then (field case B162)."""
    named = next((value for name, value in scope.get("headers", ()) if name == b"host"), b"").decode("latin-1")
    host = named.partition("]")[0][1:] if named.startswith("[") else named.partition(":")[0]
    return "" if not named or is_loopback(host) or host.endswith(".localhost") else named


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server on `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
