"""What goes wrong, when, and for how long: drawn from the seed, one kind after another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import TYPE_CHECKING

from tests.sim.plan import SILENT
from tests.sim.processes import Process, ServerProcess, WorkerProcess

if TYPE_CHECKING:
    from tests.sim.world import World

EVERYBODY = "*"


class Faults:
    """Makes faults until `heal`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._source = world.plan.stream("faults")
        self._over = False
        self._open: set[asyncio.Task[None]] = set()
        self._kinds: dict[str, Callable[[Random], Awaitable[None]]] = {
            "crash server": self._crash_server,
            "crash worker": self._crash_worker,
            "crash client": self._crash_client,
            "restart server": self._restart_server,
            "restart worker": self._restart_worker,
            "freeze server": self._freeze_server,
            "freeze worker": self._freeze_worker,
            "block loop": self._block_loop,
            "cut": self._cut,
            "cut all": self._cut_all,
            "unheard": self._unheard,
            "deaf": self._deaf,
            "bad network": self._bad_network,
            "outage": self._outage,
            "partial outage": self._partial_outage,
            "statements": self._statements,
            "commits": self._commits,
            "slow": self._slow,
            "stall": self._stall,
            "clock": self._clock,
            "hints": self._hints,
        }

    async def run(self) -> None:
        """Faults, one after another and some at once."""
        plan = self._world.plan
        end = self._world.loop.now + plan.chaos
        number = 0 if self._source.random() < 0.5 else 1  # one may happen as everybody starts
        while plan.faults and not self._over:
            if number:
                await asyncio.sleep(self._source.expovariate(1 / plan.every))
            if self._world.loop.now >= end:
                return
            number += 1
            kind = plan.faults[int(self._source.random() * len(plan.faults))]
            self._world.trace(f"fault: {kind}")
            self._world.checker.counts[f"fault {kind}"] += 1
            if kind not in SILENT:
                self._blame(
                    EVERYBODY if kind in ("bad network", "statements", "slow", "stall", "partial outage") else ""
                )
            task = asyncio.create_task(self._make(kind, plan.stream(f"fault/{number}")), name=kind)
            self._open.add(task)
            task.add_done_callback(self._open.discard)

    async def _make(self, kind: str, source: Random) -> None:
        await self._kinds[kind](source)

    @property
    def going_on(self) -> bool:
        """Whether there are any, or may be."""
        return bool(self._world.plan.faults) and not self._over

    def under_way(self) -> set[str]:
        """The kinds that go on at this moment."""
        return {task.get_name() for task in self._open}

    async def heal(self) -> None:
        """Everything works again, and everybody is there."""
        world = self._world
        self._over = True
        for task in list(self._open):
            task.cancel()
        for socket in list(world.network.sockets):
            socket.doom = None
            if socket.mute:
                world.network.cut(socket)
        await asyncio.gather(*self._open, return_exceptions=True)
        world.network.heal()
        world.database.weather.heal()
        for process in world.processes:
            for part in process.parts:
                part.doom = None
            process.thaw()
        self.revive()

    def revive(self) -> None:
        """Start what is dead, as whatever runs these programs does."""
        for process in self._world.processes:
            if not process.alive:
                process.start()

    def _blame(self, host: str) -> None:
        if host:
            self._world.blamed[host] = self._world.loop.now

    def _pick(self, source: Random, processes: list[Process]) -> Process | None:
        alive = [process for process in processes if process.alive]
        return alive[int(source.random() * len(alive))] if alive else None

    # ------------------------------------------------------------------------------------------------------- processes
    async def _crash(self, source: Random, processes: list[Process]) -> None:
        """At one of the next awaits of one of its parts."""
        process = self._pick(source, processes)
        if process is None:
            return
        part = process.parts[int(source.random() * len(process.parts))]
        part.doom = int(source.random() * source.choice((3, 30, 300)))
        patience = self._world.loop.now + 2.0
        while process.alive and self._world.loop.now < patience:
            await asyncio.sleep(0.05)
        process.kill()
        self._blame(EVERYBODY if isinstance(process, ServerProcess) else process.host)
        if isinstance(process, WorkerProcess) and source.random() < 0.4:
            process.report_death()
        await asyncio.sleep(source.random() * source.choice((0.1, 5.0, 40.0)))
        if not process.alive:
            process.thaw()
            process.start()

    async def _crash_server(self, source: Random) -> None:
        await self._crash(source, self._world.servers)

    async def _crash_worker(self, source: Random) -> None:
        await self._crash(source, self._world.workers)

    async def _crash_client(self, source: Random) -> None:
        await self._crash(source, self._world.clients)

    async def _restart(self, source: Random, processes: list[Process]) -> None:
        process = self._pick(source, processes)
        if process is None:
            return
        self._blame(EVERYBODY if isinstance(process, ServerProcess) else process.host)
        starts = process.starts
        process.stop()  # type: ignore[attr-defined]
        limit = self._world.loop.now + 30.0  # then the platform kills it
        while process.alive and self._world.loop.now < limit and process.starts == starts:
            await asyncio.sleep(0.1)
        if process.starts != starts:
            return
        process.kill()
        self._blame(EVERYBODY if isinstance(process, ServerProcess) else process.host)
        process.thaw()
        process.start()

    async def _restart_server(self, source: Random) -> None:
        await self._restart(source, self._world.servers)

    async def _restart_worker(self, source: Random) -> None:
        await self._restart(source, self._world.workers)

    async def _freeze(self, process: Process | None, seconds: float, parts: int | None = None) -> None:
        if process is None:
            return
        host = EVERYBODY if isinstance(process, ServerProcess) else process.host
        starts = process.starts
        self._blame(host)
        process.freeze(parts)
        await asyncio.sleep(seconds)
        if process.starts == starts:
            process.thaw()
        self._blame(host)

    async def _freeze_server(self, source: Random) -> None:
        await self._freeze(self._pick(source, self._world.servers), source.random() * source.choice((1.0, 20.0)))

    async def _freeze_worker(self, source: Random) -> None:
        seconds = source.random() * source.choice((2.0, 60.0, 240.0))
        await self._freeze(self._pick(source, self._world.workers), seconds)

    async def _block_loop(self, source: Random) -> None:
        """A handler blocks the worker's loop; its heartbeat thread lives on."""
        await self._freeze(
            self._pick(source, self._world.workers), source.random() * source.choice((2.0, 40.0)), parts=1
        )

    # --------------------------------------------------------------------------------------------------------- network
    async def _cut(self, source: Random) -> None:
        sockets = self._world.network.sockets
        if sockets:
            socket = sockets[int(source.random() * len(sockets))]
            socket.doom = int(source.random() * source.choice((1, 5, 20)))
            await asyncio.sleep(1.0)
            self._world.network.cut(socket)

    async def _cut_all(self, source: Random) -> None:
        """Of a server, or of all."""
        server = self._pick(source, self._world.servers) if source.random() < 0.5 else None
        for socket in list(self._world.network.sockets):
            if server is None or socket.server is server.node:
                self._world.network.cut(socket)
        await asyncio.sleep(1.0)

    async def _unheard(self, source: Random) -> None:
        """A worker hears nothing of what its server says, such as the answers to both of its polls, and then comes to
        another server, maybe."""
        process = self._pick(source, self._world.workers)
        sockets = [s for s in self._world.network.sockets if process is not None and s.client is process.node]
        for socket in sockets:
            self._blame(socket.client.name.partition("/")[0])
            socket.mute = True
        await asyncio.sleep(source.random() * source.choice((0.5, 3.0)))
        for socket in sockets:
            self._world.network.cut(socket)

    async def _deaf(self, source: Random) -> None:
        """Nothing reaches or leaves a process."""
        process = self._pick(source, self._world.processes)
        if process is None:
            return
        host = EVERYBODY if isinstance(process, ServerProcess) else process.host
        self._blame(host)
        self._world.network.trouble.deaf.add(process.host)
        await asyncio.sleep(source.random() * source.choice((1.0, 10.0, 60.0)))
        self._world.network.trouble.deaf.discard(process.host)
        self._world.network.hear_again()
        self._blame(host)

    async def _bad_network(self, source: Random) -> None:
        trouble = self._world.network.trouble
        trouble.lost = source.choice((0.0, 0.1, 0.4))
        trouble.doubled = source.choice((0.0, 0.1, 0.4))
        trouble.delayed = source.choice((0.0, 0.05, 0.3))
        trouble.longest = source.choice((0.1, 2.0, 20.0))
        await asyncio.sleep(source.random() * source.choice((2.0, 20.0)))
        trouble.lost = trouble.doubled = trouble.delayed = 0.0
        self._blame(EVERYBODY)

    # -------------------------------------------------------------------------------------------------------- database
    async def _outage(self, source: Random) -> None:
        await self._away(EVERYBODY, source)

    async def _partial_outage(self, source: Random) -> None:
        process = self._pick(source, self._world.servers)
        if process is not None:
            await self._away(process.host, source)
            self._blame(EVERYBODY)

    async def _away(self, host: str, source: Random) -> None:
        database = self._world.database
        database.weather.away.add(host)
        database.break_connections(host)
        alone = set(self._world.plan.faults) <= set(SILENT)
        await asyncio.sleep(source.random() * source.choice((0.5, 5.0, 10.0, 140.0 if alone else 60.0)))
        database.weather.away.discard(host)

    async def _statements(self, source: Random) -> None:
        weather = self._world.database.weather
        weather.faults = source.choice((0.01, 0.1))
        await asyncio.sleep(source.random() * 10.0)
        weather.faults = 0.0
        self._blame(EVERYBODY)

    async def _commits(self, source: Random) -> None:
        weather = self._world.database.weather
        weather.unknown = source.choice((0.05, 0.3))
        await asyncio.sleep(source.random() * 10.0)
        weather.unknown = 0.0

    async def _slow(self, source: Random) -> None:
        weather = self._world.database.weather
        weather.slow, weather.longest = source.choice((0.02, 0.2)), source.choice((0.1, 3.0))
        await asyncio.sleep(source.random() * 20.0)
        weather.slow = 0.0
        self._blame(EVERYBODY)

    async def _stall(self, source: Random) -> None:
        """All statements wait, as for a checkpoint on a slow disk."""
        for _ in range(source.choice((1, 1, 5))):
            seconds = source.random() * source.choice((1.0, 5.0, 5.0, 15.0))
            self._world.database.weather.stalled_until = self._world.loop.now + seconds
            await asyncio.sleep(seconds + source.random() * 2.0)
        self._blame(EVERYBODY)

    async def _clock(self, source: Random) -> None:
        step = source.choice((-1, 1)) * source.random() * source.choice((0.5, 10.0, 60.0))
        self._world.wall.step(step)
        self._world.set_back += max(0.0, -step)
        await asyncio.sleep(1.0)

    async def _hints(self, source: Random) -> None:
        weather = self._world.database.weather
        weather.deaf = source.choice((0.3, 1.0))
        await asyncio.sleep(source.random() * 20.0)
        weather.deaf = 0.0
