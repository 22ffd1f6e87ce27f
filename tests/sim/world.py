"""One run of the simulation: builds everything, lets it go wrong, heals it, and looks whether all promises were
kept."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest.mock import patch

import msgspec

from perdure.app import AsyncPerdure
from perdure.core import ids
from perdure.core.errors import PerdureError, Unavailable
from perdure.core.messages import Delivery, TaskView
from perdure.core.model import Payload, Task
from perdure.core.states import Kind, State
from tests.sim import bulk, events, flows, limits, schedules, stories, workload
from tests.sim.admin import Admin
from tests.sim.answers import Answers
from tests.sim.clocks import WallClock, simulated
from tests.sim.database import Database, WatchedTransaction
from tests.sim.faults import Faults
from tests.sim.invariants import Broken, Checker, Token, token
from tests.sim.loop import NODE, Node, SimLoop, Stuck
from tests.sim.moves import OPEN
from tests.sim.network import Aiohttp, Network
from tests.sim.plan import Plan
from tests.sim.processes import ClientProcess, Process, ServerProcess, SimHeartbeats, WorkerProcess
from tests.sim.reading import ASKING, lease_in, short, show
from tests.sim.replays import Replays, SimInstances
from tests.sim.tables import Change
from tests.sim.threads import SimActivations, SimQueue, Strand

CLOSES = 240.0
"""Virtual seconds within which everything closes once faults have stopped."""
SETTLED = 45.0
"""Seconds until nobody waits any more for what the network has swallowed: a poll's 25, and 15 for its answer."""
RINGS = 8.0
"""Seconds after which an alarm that is due must have rung, when all is well."""
PROMPT = 4.0
"""Seconds that a small job may take, when all is well."""
STICKY = 6.0
"""Seconds that a turn may wait longer, for the worker that has its run in memory."""
MOST_STEPS = 1_000_000
CODES = ("a batch of", "failed; it goes on in a second", "a request failed", "cannot be handled", "cannot be read",
         "the heartbeat thread ended", "requests failed", "cannot be kept")  # fmt: skip
"""Parts of lines that tell of a bug."""


@dataclass
class Result:
    """What came of a run."""

    plan: Plan
    rule: str = ""  #: the invariant that was broken; empty if none
    detail: str = ""
    digest: str = ""
    steps: int = 0
    seconds: float = 0.0  #: virtual ones
    counts: dict[str, int] = field(default_factory=dict)
    story: list[str] = field(default_factory=list)  #: what happened last


class World:
    """Everything of a run."""

    def __init__(self, plan: Plan, *, story: bool = False) -> None:
        self.plan = plan
        self.loop = SimLoop(plan.stream("order"), shuffle=plan.shuffle)
        self.wall = WallClock(self.loop, plan.begins)
        self.set_back = 0.0  #: seconds that the database's clock was set back, in all
        self.checker = Checker(self)
        self.answers = Answers(self)
        self.database = Database(self.loop, plan.stream("database"), plan.store, self.wall, self._committed)
        self.network = Network(self.loop, plan.stream("network"), self.blame)
        self.faults = Faults(self)
        self.story: list[str] | None = [] if story else None
        self.blamed: dict[str, float] = {}  #: host -> when something was last done to it
        self.incarnations: dict[int, str] = {}
        self.dead: set[int] = set()
        self.epochs: dict[int, set[int]] = {}
        self.specs: dict[int, dict[str, Any]] = {}
        self.acting: set[int] = set()
        self.canceling: set[bytes] = set()
        self.hurrying: set[bytes] = set()
        self.keyed: dict[str, list[tuple[float, bytes, int]]] = {}
        self.ends: dict[bytes, tuple[State, Any]] = {}
        self.longest_retry_after = workload.LONGEST_RETRY_AFTER
        self.tasks = workload.handlers(self)
        self.runs = self.checker.runs
        self.schedules = schedules.Schedules(self)
        self.events = events.Events(self)
        self.bulk = bulk.Bulk(self)
        self.steps = stories.Steps(self)
        self.workflows = stories.workflows(self)
        self.replays = Replays(self)
        self.strands: list[Strand] = []
        self.chance = plan.stream("admin")
        self.admin = Admin(self)
        self.bound = 0.0  #: seconds that all workflows may take, one after another
        self.unreported: dict[Token, tuple[Node, Any]] = {}  #: who ran what no server was told the end of yet
        self.busy_at: dict[str, float] = {}  #: worker -> when it had no free slot last
        self.ready_at: dict[bytes, float] = {}  #: since when a task waits although a worker is free
        self.done = False
        self.broken: Broken | None = None
        jobs, runs = workload.Script(self), flows.Flows(self)
        self.servers: list[Process] = [ServerProcess(self, f"s{n}") for n in range(plan.servers)]
        self.workers: list[Process] = [WorkerProcess(self, f"w{n}") for n in range(plan.workers)]
        self.clients: list[Process] = []
        for number in range(plan.clients):
            client = ClientProcess(self, f"c{number}")
            parts = [each.of(number) for each in (jobs, runs, self.schedules, self.events, self.bulk)]  # type: ignore[attr-defined]
            client.script = both(*parts)  # type: ignore[assignment]
            self.clients.append(client)
        self.processes = [*self.servers, *self.workers, *self.clients]

    # -------------------------------------------------------------------------------------------------- what parts ask
    def blame(self, node: Node) -> None:
        host = node.name.partition("/")[0]
        self.blamed["*" if host.startswith("s") else host] = self.loop.now

    def process_of(self, node: Node) -> Any:
        return next(process for process in self.processes if node in process.parts)

    def queues_of(self, host: str) -> list[str]:
        queues = list(workload.QUEUES[: self.plan.queues])
        match host:
            case "w0":
                return queues
            case "w1":
                return queues[::-1]
        return queues[-1:]

    def may_hurry(self, task_id: bytes) -> bool:
        return task_id in self.hurrying

    def may_cancel(self, task_id: bytes) -> bool:
        return task_id in self.canceling or self.bulk.may_cancel(task_id)

    def spec_of(self, task: Task) -> dict[str, Any] | None:
        """What its handler does."""
        if task.payload is None or task.type == ASKING:
            return None
        value = msgspec.json.decode(msgspec.msgpack.decode(task.payload, type=tuple[Payload, ...])[0].data)
        return self.specs.get(value["n"])

    def trace(self, line: str) -> None:
        self.loop.trace.update(line.encode())
        if self.story is not None:
            self.story.append(f"{self.loop.now - 1000:9.3f} {line}")

    def _committed(self, changes: Sequence[Change], server: str) -> None:
        """The observer of the database. What it finds ends the run, and is nothing that a server could catch."""
        if self.broken is not None:
            return
        try:
            self.checker.committed(changes, server)
            self.schedules.committed(changes)
            self.events.committed(changes)
            self.bulk.committed(changes)
        except Broken as broken:
            self.find(broken)

    def trace_commit(self, changes: Sequence[Change], server: str) -> None:
        rows = (msgspec.msgpack.encode((change.table, change.key, change.after)) for change in changes)
        self.loop.trace.update(b"".join(sorted(rows)))  # a commit has no order
        for change in changes:
            if self.story is not None and change.table in ("tasks", "closed", "attempts", "sessions"):
                after = change.after
                shown = show(after) if isinstance(after, Task) or after is None else repr(after)
                self.story.append(f"{self.loop.now - 1000:9.3f} {server} {change.table}: {shown}")

    async def guard(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        """A program that must not end by an error."""
        try:
            await work()
        except Broken as broken:
            self.find(broken)
        except Exception as error:  # noqa: BLE001 - any is a finding
            self.find(Broken("programs", f"{name} ended: {error!r}"))

    def find(self, broken: Broken) -> None:
        """The first finding counts; what is torn down at the end finds nothing."""
        if self.broken is None and not self.loop.over:
            self.broken = broken

    # ------------------------------------------------------------------------------------------ what clients were told
    def acknowledged(self, job_id: str, key: str | None, body: int = 0) -> None:
        task_id = ids.parse(job_id)
        self.trace(f"acknowledged {short(task_id)} {key or ''}")
        if not self.checker.exists(task_id):
            self.checker.fail("acknowledged", f"{short(task_id)} was acknowledged and does not exist")
        if key is None:
            return
        known = self.keyed.setdefault(key, [])
        for at, other, other_body in known:
            lives = self.loop.now - at < self.plan.key_life - self.set_back - 130.0 and self.plan.key_life > 1_000
            if lives and (other != task_id or other_body != body):
                self.checker.fail("keys", f"{key!r} was {short(other)} and is {short(task_id)}")
        known.append((self.loop.now, task_id, body))

    def conflicted(self, key: str, body: int) -> None:
        bodies = {other for _, _, other in self.keyed.get(key, [])}
        if self.plan.key_life > 1_000 and bodies == {body}:
            self.checker.fail("keys", f"{key!r} conflicts with itself")

    def told(self, task_id: bytes, state: State, value: Any) -> None:
        """A client was told how a task ended."""
        self.trace(f"told {short(task_id)} {state.name}")
        closed = self.checker.closed.get(task_id)
        if closed is None and task_id not in self.checker.trimmed:
            self.checker.fail("committed", f"{short(task_id)} is said to be {state.name}, and is open")
        if closed is not None and closed.state != state:
            self.checker.fail("answers", f"told {state.name}: {show(closed)}")
        before = self.ends.setdefault(task_id, (state, value))
        if before != (state, value):
            self.checker.fail("answers", f"{short(task_id)} ended as {before} and as {(state, value)}")
        spec = None if closed is None else self.spec_of(closed)
        if value is not None and spec is not None and value["n"] != spec["n"]:
            self.checker.fail("results", f"{value} is not of {show(closed)}")
        if closed is not None and value is not None and value["lease"] != closed.done_number:
            self.checker.fail(
                "once", f"the result of lease {value['lease']}: {show(closed)}, {lease_in(closed.result)}"
            )

    def looked(self, view: TaskView) -> None:
        """A client was shown a task: as it was at some time, and why it does not run."""
        task_id, state = ids.parse(view.task_id), State[view.state]
        if state not in [before for _, before in self.checker.history[task_id]]:
            self.checker.fail("committed", f"{short(task_id)} is shown as {view.state}, which it never was")
        if (state in OPEN) != bool(view.waiting_for):
            self.checker.fail("reasons", f"{short(task_id)}, {view.state}, waits for {view.waiting_for!r}")
        others = any(word in view.waiting_for for word in ("worker", "slot", "limit"))  # somebody else's work
        if state in OPEN and view.next_event_at is None and not others:
            self.checker.fail("reasons", f"nothing will happen to {short(task_id)}, {view.waiting_for!r}")

    def gone(self, task_id: bytes) -> None:
        if task_id in self.checker.tasks or task_id in self.checker.closed:
            self.checker.fail("acknowledged", f"{short(task_id)} is called unknown")

    def began(self, delivery: Delivery) -> int:
        """A handler begins; the number of its lease."""
        lease = ids.parse_lease(delivery.lease)
        granted = self.checker.known(lease, "a run")
        node = NODE.get().name.replace("/t", "")
        if self.incarnations.get(granted.session or 0) != node:
            self.checker.fail("twice", f"{node} runs what was leased to {self.incarnations.get(granted.session or 0)}")
        return lease.number

    def ended(self, ctx: Any) -> None:
        """A handler ends, and its worker is to report it."""
        self.unreported[token(ids.parse_lease(ctx._delivery.lease))] = NODE.get(), ctx

    def hand_over(self, lease: bytes, seconds: float, value: Any) -> None:
        """Somebody who never fails ends an attempt, a while after its handler did."""

        async def end() -> None:
            await asyncio.sleep(seconds)
            app = AsyncPerdure("http://perdure")
            for _ in range(10):
                try:
                    await app.get_activity_handle(token=lease).complete(value)
                except Unavailable:
                    await asyncio.sleep(1.0)
                    continue
                except PerdureError as error:
                    self.trace(f"what was handed over has ended: {error!r}")
                break
            await app.close()

        self.loop.node("other").spawn(self.guard(end, "other"))

    # --------------------------------------------------------------------------------------------------------- the run
    async def live(self) -> None:
        """The whole run, on the root node."""
        await self.database.inner.migrate()
        await self.database.inner.open()
        await limits.begin(self.database.inner, self.plan)
        await self.events.begin()
        for process in self.processes:
            process.start()
        chaos = asyncio.create_task(self.guard(self.faults.run, "faults"))
        await asyncio.sleep(self.plan.chaos)
        await chaos
        await self.faults.heal()
        self.trace("calm")
        settled = self.loop.now + (SETTLED if self.plan.faults else 0.0) + self.set_back
        await self._close_all(settled)
        await self._probe(settled)
        await self.events.settle()
        self.replays.all()
        for lease, (node, ctx) in self.unreported.items():
            if node.alive and ctx.stop != "lost":
                self.checker.fail("reports", f"{node.name} forgot to tell how {short(lease[0])} ended")
        self.done = True

    async def _close_all(self, settled: float) -> None:
        """Every task closes, every client is answered, and no alarm is late."""
        begun = self.loop.now
        bound = begun + CLOSES + self.set_back + self._work() + self.bound
        while self.checker.tasks or self.acting:
            await asyncio.sleep(0.5)
            self.faults.revive()
            if self.loop.now > settled:
                await self.admin.wind_up()
            now = self.database.inner.now()
            late = self.checker.overdue(now, RINGS) if self.loop.now > settled else []
            if late:
                self.checker.fail("alarms", f"due for {RINGS} s: {show(late[0])}, now {now}")
            if self.loop.now > settled:
                self._look_for_idlers()
                self.runs.look_for_orphans(self.loop.now)
            if self.loop.now > bound:
                rows = "; ".join(show(task) for task in self.checker.tasks.values())
                self.checker.fail("closes", f"still open: {rows}; still acting: {sorted(self.acting)}")

    def _work(self) -> float:
        """Seconds that all handlers may take, one after another."""
        specs = [spec for task in self.checker.tasks.values() if (spec := self.spec_of(task)) is not None]
        return sum(
            (sum(spec["sleeps"]) + spec["stubborn"] + spec["handed"]) * min(spec["flaky"] + 1, 5) for spec in specs
        )

    def _is_busy(self, process: Process) -> bool:
        """Whether a worker takes no tasks now, because it has enough or is not there."""
        worker = process.worker if isinstance(process, WorkerProcess) and process.alive else None
        if worker is None:
            return True
        status = worker.status()
        return status.free == 0 or status.draining or status.poll_age is None

    def _look_for_idlers(self) -> None:
        """Nobody waits beside a task that is ready."""
        now = self.loop.now
        free: set[str] = set()
        for process in self.workers:
            if self._is_busy(process):
                self.busy_at[process.host] = now
            elif now - self.busy_at.setdefault(process.host, now) > PROMPT:
                free.update(self.queues_of(process.host))
        for task in self.checker.tasks.values():
            if task.place is None or task.queue not in free:
                self.ready_at.pop(task.id, None)
            elif now - self.ready_at.setdefault(task.id, now) > PROMPT + (STICKY if task.kind == Kind.WORKFLOW else 0):
                self.checker.fail("idle", f"a worker is free, and nobody takes {show(task)}")

    async def _probe(self, settled: float) -> None:
        """Small jobs while nothing else happens: nobody may be asleep."""
        while self.loop.now < settled or any(self._is_busy(process) for process in self.workers):
            await asyncio.sleep(1.0)
            self.faults.revive()
        await asyncio.sleep(3.0)
        node = self.loop.node("probe")
        for number in range(2 * self.plan.servers):
            done: asyncio.Future[float] = self.loop.create_future()
            node.spawn(self.guard(partial(self._prompt, done, number), "probe"))
            await done

    async def _prompt(self, done: asyncio.Future[float], number: int) -> None:
        delay = 1.0 if number % 2 else 0.0
        self.specs[9_000 + number] = workload.quick(9_000 + number)
        app = AsyncPerdure("http://perdure")
        begun = self.loop.now
        try:
            job = await app.enqueue(
                "work", workload.quick(9_000 + number), delay=delay, queue=workload.QUEUES[number % self.plan.queues]
            )
            value = await job.result(60.0)
            if value["n"] != 9_000 + number:
                self.checker.fail("results", f"{value} is the result of a probe")
            if self.loop.now - begun - delay > PROMPT:
                self.checker.fail("prompt", f"a small job took {self.loop.now - begun - delay:.1f} s")
        except PerdureError as error:
            self.checker.fail("prompt", f"a small job ended by {error!r}")
        finally:
            await app.close()
            done.set_result(0.0)


def both(*scripts: Callable[[AsyncPerdure], Awaitable[None]]) -> Callable[[AsyncPerdure], Awaitable[None]]:
    """Scripts that one client carries out at once."""

    async def run(app: AsyncPerdure) -> None:
        await asyncio.gather(*(script(app) for script in scripts))

    return run


class _Lines(logging.Handler):
    """Lines of the log that tell of a bug."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.INFO if world.story is not None else logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            line += f" [{record.exc_info[1]!r}]"
        if self._world.story is not None:
            self._world.story.append(f"{self._world.loop.now - 1000:9.3f} {NODE.get().name} log: {line}")
        error = record.exc_info[1] if record.exc_info else None
        known = isinstance(error, Broken) or "poison" in line
        if isinstance(error, Broken):
            self._world.find(error)
        elif record.levelno >= logging.ERROR and any(part in line for part in CODES) and not known:
            self._world.find(Broken("bugs", line))


@contextlib.contextmanager
def _around(world: World) -> Iterator[None]:
    """Perdure's modules see the simulated network, threads and database."""
    lines = _Lines(world)
    log = logging.getLogger("perdure")
    before = log.level, log.propagate
    log.addHandler(lines)
    log.setLevel(lines.level)
    log.propagate = False
    fake = Aiohttp(world.network)
    heartbeats = type("Heartbeats", (SimHeartbeats,), {"world": world})
    activations = type("Activations", (SimActivations,), {"world": world})
    instances = type("Instances", (SimInstances,), {"world": world})
    transaction = type("Transaction", (WatchedTransaction,), {"database": world.database})
    collecting = gc.isenabled()
    gc.disable()
    try:
        with (
            patch("perdure.client.websocket.aiohttp", fake),
            patch("perdure.client.http.aiohttp", fake),
            patch("perdure.worker.worker.Heartbeats", heartbeats),
            patch("perdure.worker.turns.Activations", activations),
            patch("perdure.worker.turns.Instances", instances),
            patch("perdure.worker.plain_turn.SimpleQueue", SimQueue),
            patch("perdure.store.memory.Transaction", transaction),
            # Groups of a few calls, and actions on a few jobs, are large ones here.
            patch("perdure.core.bulk.STEP", 3),
            patch("perdure.core.bulk.HELD", 5_000_000),
            patch("perdure.engine.bulk.BREATH", 1.0),
            patch("perdure.sdk.groups.GROUP_FROM", 5),
            patch("perdure.core.groups.PAGE_INPUTS", 4),
            patch("perdure.engine.groups.STOPPED", 4),
            # One slow look makes a lane rest for so many times as long, and hides what lies before its mark meanwhile.
            patch("perdure.engine.marks.REST", 0),
            patch("perdure.api.drafts.KEY_LIFE", int(world.plan.key_life * 1_000_000)),
            simulated(world.loop, world.plan.stream("chance"), world.plan.begins),
        ):
            try:
                yield
            finally:
                world.loop.finish()
                for strand in world.strands:
                    strand.end()
    finally:
        log.removeHandler(lines)
        log.setLevel(before[0])
        log.propagate = before[1]
        if collecting:
            gc.enable()


def run(plan: Plan, *, story: bool = False) -> Result:
    """One run from start to end."""
    world = World(plan, story=story)
    loop = world.loop

    def over() -> bool:
        if loop.faults:
            message, error = loop.faults[0]
            world.find(error if isinstance(error, Broken) else Broken("bugs", f"{message}: {error!r}"))
        return world.done or world.broken is not None or loop.steps > MOST_STEPS

    with _around(world):
        loop.root.spawn(world.guard(world.live, "the run"))
        try:
            loop.run(over)
        except Stuck:
            world.broken = Broken("stuck", "nothing is left to happen")
        if loop.steps > MOST_STEPS and world.broken is None:
            world.broken = Broken("endless", f"{loop.steps} callbacks")
    result = Result(plan, digest=loop.trace.hexdigest(), steps=loop.steps, seconds=loop.now - 1000.0)
    result.counts = dict(world.checker.counts)
    result.story = world.story or []
    if world.broken is not None:
        result.rule, result.detail = world.broken.rule, str(world.broken)
    return result
