"""Servers, workers and clients as processes of the simulation: the real ones, on nodes that may die."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from perdure.api.auth import Gate
from perdure.api.parking import Parking
from perdure.api.wire import Wire
from perdure.app import AsyncPerdure
from perdure.client.http import HttpService
from perdure.core.errors import PerdureError, Unavailable
from perdure.core.ids import Mint
from perdure.core.messages import CloseSession
from perdure.engine.engine import Engine
from perdure.worker.heartbeat import _JOIN_SECONDS, Heartbeats
from perdure.worker.worker import Worker
from tests.sim.database import SimStore
from tests.sim.events import SimSender
from tests.sim.loop import NODE, Node, SimTask
from tests.sim.network import Server
from tests.sim.threads import SimThreads

if TYPE_CHECKING:
    from tests.sim.world import World

URL = "http://perdure"


class Process:
    """A program on a host, that is started again and again. `parts` are its nodes: its loop, and what are threads in
    reality."""

    def __init__(self, world: World, host: str) -> None:
        self.world = world
        self.host = host
        self.starts = 0
        self.parts: list[Node] = []

    @property
    def alive(self) -> bool:
        return bool(self.parts) and self.parts[0].alive

    @property
    def node(self) -> Node:
        return self.parts[0]

    def start(self) -> None:
        self.starts += 1
        self.parts = []
        self.part()
        self.node.spawn(self.world.guard(self.main, self.host))

    def part(self, suffix: str = "") -> Node:
        node = self.world.loop.node(f"{self.host}/{self.starts}{suffix}")
        node.on_death = self._died
        self.parts.append(node)
        return node

    async def main(self) -> None:
        raise NotImplementedError

    def kill(self) -> None:
        if self.alive:
            self.node.kill()

    def _died(self, node: Node) -> None:
        """One part is dead: so are all."""
        for part in self.parts:
            if part.alive:
                part.alive = False
                part.queue.clear()
            self.world.network.died(part)
            self.world.database.died(part)
        self.after_death()

    def after_death(self) -> None:
        self.world.trace(f"{self.host}/{self.starts} is dead")

    def freeze(self, parts: int | None = None) -> None:
        for part in self.parts[:parts]:
            part.freeze()

    def thaw(self) -> None:
        for part in self.parts:
            part.thaw()


class ServerProcess(Process):
    """A server with all its services."""

    engine: Engine | None = None

    async def main(self) -> None:
        world, node = self.world, self.node
        store = SimStore(world.database, node)
        mint = Mint(world.plan.stream(f"mint/{node.name}"))
        engine = Engine(store, mint=mint, retention=world.plan.retention)  # type: ignore[arg-type]
        engine.webhooks.sender = SimSender(world.events, self)  # type: ignore[assignment]
        world.answers.attend(engine)
        self.engine = engine
        self.stopping = asyncio.Event()
        await engine.start()
        gate = Gate(store, engine.outage)  # type: ignore[arg-type]
        while True:
            try:
                await gate.start()
                break
            except Unavailable:
                await asyncio.sleep(1.0)
        wire = Wire(engine, gate, Parking())
        self.listener = Server(node, wire)
        world.network.servers.append(self.listener)
        await self.stopping.wait()
        self.listener.listening = False
        wire.stop()
        await asyncio.sleep(0.2)
        await gate.stop()
        await engine.stop()
        node.kill()

    def stop(self) -> None:
        """As on a deploy."""
        if self.alive and hasattr(self, "listener"):
            self.world.loop.call_soon(self.stopping.set, context=self.node.context)

    def after_death(self) -> None:
        super().after_death()
        servers = self.world.network.servers
        servers[:] = [server for server in servers if server.node.alive]


class WorkerProcess(Process):
    """A worker; its handlers are those of the workload."""

    worker: Worker | None = None

    async def main(self) -> None:
        world, node = self.world, self.node
        source = world.plan.stream(f"worker/{node.name}")
        self.incarnation = source.getrandbits(62)
        self.thread = self.part("/t")
        world.incarnations[self.incarnation] = node.name
        options: dict[str, Any] = {
            "tasks": world.tasks,
            "workflows": world.workflows if world.plan.flows else [],  # with some no poll is of one lane only
            "queues": world.queues_of(self.host),
            "slots": source.choice((1, 3, 10)),
            "identity": node.name,
            "incarnation": self.incarnation,
            "drain_seconds": source.choice((1.0, 10.0)),
            "threads": lambda ended: SimThreads(ended, self),
        }
        async with self._posting(options) if world.plan.posting else AsyncPerdure(URL).worker(**options) as worker:
            self.worker = worker
            await worker.draining()
        node.kill()

    def _posting(self, options: dict[str, Any]) -> Worker:
        """A worker for which proxies leave nothing but plain requests."""
        service, heartbeats = HttpService(URL, transport="http"), HttpService(URL, transport="http")
        return Worker(service, heartbeat_service=heartbeats, **options)

    def stop(self) -> None:
        """As on a deploy."""
        if self.alive and self.worker is not None:
            self.world.loop.call_soon(self.worker.drain, context=self.node.context)

    def after_death(self) -> None:
        super().after_death()
        self.world.dead.add(getattr(self, "incarnation", 0))

    def report_death(self) -> None:
        """What a supervisor does."""
        incarnation = getattr(self, "incarnation", None)
        if incarnation is None:
            return

        async def report() -> None:
            app = AsyncPerdure(URL)
            try:
                await (await app.service()).close_session(CloseSession(incarnation, "died"))
            except PerdureError as error:
                self.world.trace(f"no report of a death: {error}")
            await app.close()

        self.world.loop.node(f"{self.host}/supervisor").spawn(self.world.guard(report, "supervisor"))


class ClientProcess(Process):
    """An application; `script` is what it does."""

    script: Callable[[AsyncPerdure], Coroutine[Any, Any, None]]

    async def main(self) -> None:
        app = AsyncPerdure(URL)
        await self.script(app)
        await app.close()

    def after_death(self) -> None:
        super().after_death()
        index = self.world.clients.index(self)
        self.world.acting = {n for n in self.world.acting if n % self.world.plan.clients != index}


class _Thread:
    """What the heartbeat thread is here: a node of the worker's process."""

    def __init__(self, heartbeats: SimHeartbeats) -> None:
        self._heartbeats = heartbeats
        self.ident: int | None = None
        self.task: SimTask | None = None

    def start(self) -> None:
        self.ident = 1
        process = self._heartbeats.process
        self.task = process.part("/h").spawn(self._run())

    async def _run(self) -> None:
        try:
            await self._heartbeats._run()
        except Exception as error:  # noqa: BLE001 - the worker is told, as by the thread
            self._heartbeats._worker_loop.call_soon_threadsafe(self._heartbeats._died, error)

    def is_alive(self) -> bool:
        return self.task is not None and not self.task.done()


class _WorkerLoop:
    """The worker's loop, as another thread has it."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def call_soon_threadsafe(self, callback: Any, *args: Any) -> None:
        self._node.loop.call_soon(callback, *args, context=self._node.context)


class SimHeartbeats(Heartbeats):
    """Takes the place of Heartbeats in worker.py: the same, without a thread."""

    world: World

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        node = NODE.get()
        self.process = self.world.process_of(node)
        self._thread: Any = _Thread(self)
        self._worker_loop: Any = _WorkerLoop(node)

    async def stop(self) -> None:
        self._ending = True
        self._hasten(0.0)
        if self._thread.is_alive():
            await asyncio.wait([self._thread.task], timeout=_JOIN_SECONDS)
