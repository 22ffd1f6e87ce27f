"""Events out (OBS-01): programs that read the feed, and endpoints that webhooks send to, in a run. What must hold is
written from the requirements: an event for each change that has one and for no other; no reader misses one or gets one
twice; an endpoint gets them in order, none before all that come before it were taken."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from perdure.app import AsyncPerdure
from perdure.core.errors import Unavailable
from perdure.core.model import Task
from perdure.core.outbox import OutboxEvent, parse
from perdure.core.states import Kind, State
from perdure.core.webhooks import SECRET_PREFIX, Webhook
from tests.sim.plan import EPOCH
from tests.sim.reading import short
from tests.sim.tables import Change

if TYPE_CHECKING:
    from tests.sim.processes import ServerProcess
    from tests.sim.world import World

NOUNS = {Kind.JOB: "task", Kind.WORKFLOW: "workflow"}
FILTERS = ("", "task.*", "task.failed,workflow.*")
"""Of endpoints and readers, in turn."""
_SECOND = 1_000_000
_CAUGHT_UP = 15.0
"""Seconds within which a reader has everything, when all is well."""
_LEASE = 35.0
"""The same for an endpoint, from the moment at which it may be sent to; one that a dead server had waits for that."""
_ANSWER = 10.0
"""Seconds that a sender waits for an answer."""


class Events:
    """The readers, the endpoints, and the judge of what they get."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._log: list[OutboxEvent] = []
        self._begun: set[bytes] = set()  #: runs
        self._read: Counter[str] = Counter()  #: of what a reader wants, how much it has
        self._cursors: dict[str, str] = {}
        self._taken: Counter[str] = Counter()  #: the same of an endpoint
        self._source = world.plan.stream("endpoints")

    async def begin(self) -> None:
        """Before any server is there, so that none learns of it late."""
        store, count = self._world.database.inner, self._world.plan.events
        if count:
            await store.record_events("default", True)
        for number in range(count):
            hook = Webhook(
                f"hook{number}", "default", f"https://{number}.example", SECRET_PREFIX, _filter(number),
                EPOCH * _SECOND, 0, 0,
            )  # fmt: skip
            await store.add_webhook(hook)

    # --------------------------------------------------------------------------------------------------------- commits
    def committed(self, changes: Sequence[Change]) -> None:
        if not self._world.plan.events:
            return
        found: Counter[tuple[str, bytes]] = Counter()
        for change in changes:
            if change.table == "outbox" and change.after.type.partition(".")[0] in NOUNS.values():
                self._log.append(change.after)
                found[change.after.type, change.after.task_id] += 1
        expected, possible = self._expected(changes)
        if missing := expected - found:
            self._fail(f"there is none: {_shown(missing)}")
        if more := found - expected - possible:
            self._fail(f"it tells of what did not happen: {_shown(more)}")

    def _expected(self, changes: Sequence[Change]) -> tuple[Counter[tuple[str, bytes]], Counter[tuple[str, bytes]]]:
        """What there must be, and what there may be besides: a job that is put off and hurried in one commit."""
        expected: Counter[tuple[str, bytes]] = Counter()
        possible: Counter[tuple[str, bytes]] = Counter()
        for change in changes:
            before: Task | None = change.before
            after: Task | None = change.after
            if change.table not in ("tasks", "closed"):
                continue
            known = after or before
            assert known is not None
            if known.kind not in NOUNS:
                continue
            if known.kind == Kind.WORKFLOW and known.id not in self._begun:
                self._begun.add(known.id)
                expected["workflow.started", known.id] += 1
            if after is not None and change.table == "closed":
                expected[f"{NOUNS[after.kind]}.{after.state.name.lower()}", after.id] += 1
            elif before is not None and before.state == State.LEASED and before.kind == Kind.JOB:
                waits = after is not None and after.state == State.RETRY_WAIT
                (expected if waits else possible)["task.retry_scheduled", before.id] += 1
        return expected, possible

    def _fail(self, detail: str) -> None:
        self._world.checker.fail("events", detail)

    # --------------------------------------------------------------------------------------------------------- readers
    def of(self, client: int) -> Callable[[AsyncPerdure], Awaitable[None]]:
        """The readers of a client. They keep what they have, and where they are, through its crashes."""
        plan = self._world.plan
        numbers = [number for number in range(plan.events) if number % plan.clients == client]

        async def run(app: AsyncPerdure) -> None:
            await asyncio.gather(*(self._follow(app, number) for number in numbers))

        return run

    async def _follow(self, app: AsyncPerdure, number: int) -> None:
        name, types = f"reader{number}", _filter(number)
        while True:
            try:
                async for event in app.events(self._cursors.get(name, "oldest"), tuple(filter(None, types.split(",")))):
                    self._got(name, types, event.id)
            except Unavailable as error:
                self._world.trace(f"{name}: {error}")

    def _got(self, name: str, types: str, event_id: str) -> None:
        wanted, had = self._wanted(types), self._read[name]
        expected = wanted[had] if had < len(wanted) else "none"
        if event_id != expected:
            self._fail(f"{name} got {event_id} after {self._cursors.get(name)}, and {expected} is next")
        self._read[name] += 1
        self._cursors[name] = event_id
        self._world.checker.count("event read")

    def _wanted(self, types: str) -> list[str]:
        """The ids of what a filter lets pass, in order."""
        names = types.split(",")
        return [
            event.cursor.text
            for event in self._log
            if not types or event.type in names or f"{event.type.partition('.')[0]}.*" in names
        ]

    # ------------------------------------------------------------------------------------------------------- endpoints
    async def send(self, server: ServerProcess, hook_id: str, event_id: str) -> str:
        """A server sends an event to an endpoint: the way there, the endpoint, and the way back, on each of which it
        may be lost as long as there are faults."""
        chance = self._source.random() if self._world.faults.going_on else 1.0
        await asyncio.sleep(self._source.random() * 0.05)
        if chance < 0.1:
            await asyncio.sleep(_ANSWER)
            return "it did not arrive"
        refused = chance < 0.2
        await self._arrived(server, hook_id, event_id, refused=refused)
        await asyncio.sleep(self._source.random() * 0.05)
        if chance < 0.3 and not refused:
            await asyncio.sleep(_ANSWER)
            return "its answer was lost"
        return "status 503" if refused else ""

    async def _arrived(self, server: ServerProcess, hook_id: str, event_id: str, *, refused: bool) -> None:
        hook = self._world.database.webhook(hook_id)
        wanted, taken = self._wanted(hook.types), self._taken[hook_id]
        self._world.trace(f"{server.host} sends {event_id} to {hook_id}{' in vain' if refused else ''}")
        self._world.checker.count("event sent")
        if event_id not in wanted:
            self._fail(f"{hook_id} got {event_id}, which is none of its events")
        number = wanted.index(event_id)
        if number > taken:
            self._fail(f"{hook_id} got {event_id} before it had taken {wanted[taken]}")
        assert server.engine is not None
        holds = hook.lease_owner == server.engine.webhooks._owner
        if holds and parse(event_id) <= hook.cursor:
            self._fail(f"{hook_id} got {event_id}, and its cursor is {hook.cursor.text}")
        if not holds and not self._world.plan.faults:
            self._fail(f"{hook_id} got {event_id} from {server.host}, which has no lease on it")
        if number == taken and not refused:
            self._taken[hook_id] += 1

    # --------------------------------------------------------------------------------------------------------- the end
    async def settle(self) -> None:
        """Everybody gets all there is."""
        begun = self._world.loop.now
        while late := self._late():
            await asyncio.sleep(0.5)
            waited = self._world.loop.now - begun
            for name, (patience, detail) in late.items():
                if waited > patience:
                    self._fail(f"{name} waits: {detail}")

    def _late(self) -> dict[str, tuple[float, str]]:
        """Who has not everything yet: for how long that may be so, and what it has."""
        found: dict[str, tuple[float, str]] = {}
        for number in range(self._world.plan.events):
            reader, count = f"reader{number}", len(self._wanted(_filter(number)))
            if self._read[reader] < count:
                found[reader] = (_CAUGHT_UP, f"it has {self._read[reader]} of {count}")
            hook = self._world.database.webhook(f"hook{number}")
            if self._taken[hook.id] < count:
                pause = max(0, (hook.retry_at or 0) - self._world.database.inner.now()) / _SECOND
                patience = self._world.set_back + _LEASE + pause
                found[hook.id] = (patience, f"it has taken {self._taken[hook.id]} of {count}")
        return found


def _filter(number: int) -> str:
    return FILTERS[number % len(FILTERS)]


def _shown(events: Counter[tuple[str, bytes]]) -> str:
    return ", ".join(sorted(f"{type_} of {short(task_id)}" for type_, task_id in events))


class SimSender:
    """Takes the place of a server's Sender."""

    def __init__(self, events: Events, server: ServerProcess) -> None:
        self._events = events
        self._server = server

    async def send(self, url: str, secret: str, id: str, body: bytes, at: int) -> str:
        number = url.removeprefix("https://").partition(".")[0]
        return await self._events.send(self._server, f"hook{number}", id)

    async def close(self) -> None:
        """There is no connection."""
