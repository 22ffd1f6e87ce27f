"""The same random commands, in the same order and on the same clock, to an engine over each store: every reply and all
that is stored must be equal after every step, until each kind of command has succeeded.

The engines mint the same ids; jitter is fixed and every moment is used once, so that nothing depends on the order of
rows that a store may return in any order.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Any

import pytest

from perdure.core import commands as c
from perdure.core import decide
from perdure.core.bulk import Selection
from perdure.core.errors import PerdureError
from perdure.core.ids import Mint
from perdure.core.model import SECOND, Failure, Lease, Progress, RetryPolicy, Timeouts, pack
from perdure.core.states import State
from perdure.engine.engine import Engine
from perdure.store.base import Filter, Store
from tests.clock import SteppedClock
from tests.engine.drive import Drive, enqueue
from tests.store.rows import changed, plain

LEAST_STEPS = 250
MOST_STEPS = 3_000
KEYS = ("k0", "k1", "k2")

Step = Callable[["World"], Awaitable[Any]]


class EvenMint(Mint):
    """The jitter of two rows that are decided upon in one batch must not depend on which comes first."""

    def fraction(self) -> float:
        return 0.5


class World:
    """One store and its engine."""

    def __init__(self, store: Store, engine: Engine) -> None:
        self.store = store
        self.drive = Drive(engine)

    async def do(self, step: Step) -> Any:
        """The reply of a step; a typed error is one, too."""
        try:
            return await step(self)
        except PerdureError as error:
            return (type(error).__name__, error.detail)

    async def snapshot(self, ids: list[bytes]) -> dict[str, Any]:
        """Everything that is stored, row by row."""
        whole = await self.store.read(ids)
        listed = await self.store.find(Filter(namespace="default", limit=len(ids) + 1))
        found: dict[str, Any] = {f"task {task_id.hex()}": plain(task) for task_id, task in whole.items()}
        found["list"] = [changed(task, rowid=0) for task in listed]
        found["attempts"] = await self.store.attempts(ids)
        found["sessions"] = await self.store.sessions("default")
        found["next alarm"] = await self.store.next_alarm()
        groups = await self.store.failure_groups("default", -(2**63), 10)
        found["groups"] = [(number, plain(task)) for number, task in groups]
        found["counts"] = await self.store.count_failures("default", [number for number, _ in groups], 5)
        found["retried"] = await self.store.retried_by(ids)
        for among in ("open", "closed", "dead"):
            selection = Selection(namespace="default", among=among, queue="mail", fresh=among == "closed")
            found[among] = await self.store.pick(selection, 7, ids[-1] if ids else None)
        suspects, last = await self.store.suspects(b"", 5, self.store.now())
        found["suspects"] = ([plain(task) for task in suspects], last)
        async with self.store.batch() as batch:
            found["keys"] = await batch.read_keys([("default", "default", "task", key) for key in KEYS])
            found["pulse"] = await batch.lock_pulse()
        return found


class Script:
    """Draws the next step. It knows what the replies told: ids and leases, also such as do not hold any more."""

    def __init__(self, random: Random, clock: SteppedClock) -> None:
        self.random = random
        self.clock = clock
        self.ids: list[bytes] = []
        self.leases: list[Lease] = []
        self.polls = 0

    def next(self) -> tuple[str, Step]:
        name = self.random.choices(list(STEPS), [weight for weight, _ in STEPS.values()])[0]
        return name, STEPS[name][1](self)

    def learn(self, reply: Any) -> None:
        if isinstance(reply, c.Enqueued) and reply.task_id not in self.ids:
            self.ids.append(reply.task_id)
        if isinstance(reply, list):
            self.leases += [task.lease for task in reply]

    def some_id(self) -> bytes:
        ran = [lease.task_id for lease in self.leases[-4:]]
        return self.random.choice(self.ids[-8:] + ran or [bytes(16)])

    def some_lease(self) -> Lease:
        lease = self.random.choice(self.leases[-6:] or [Lease(bytes(16), 1, 1)])
        if self.random.random() < 0.1:
            return Lease(lease.task_id, lease.number, lease.bits ^ 1)
        return lease

    # steps -----------------------------------------------------------------------------------------------------
    def enqueue(self) -> Step:
        fields = self._options()
        return lambda world: world.drive.one(enqueue(**fields))

    def enqueue_keyed(self) -> Step:
        fields = self._options()
        fields["key"] = self.random.choice(KEYS)
        fields["digest"] = self.random.choice([b"d0", b"d0", b"d1"])

        def step(world: World) -> Awaitable[Any]:
            command = enqueue(**fields)
            command.key_life = 20 * SECOND
            return world.drive.one(command)

        return step

    def enqueue_delayed(self) -> Step:
        fields = self._options()
        fields["delay"] = self.random.uniform(0.5, 10)
        return lambda world: world.drive.one(enqueue(**fields))

    def _options(self) -> dict[str, Any]:
        random = self.random
        base = 20 + len(self.ids) / 1000  # no two tasks back off for the same time
        return {
            "retry": RetryPolicy(max_attempts=random.randint(1, 3), base=base, cap=600.0),
            "timeouts": Timeouts(
                schedule_to_start=random.choice([None, None, 20.0]),
                start_to_close=random.choice([None, None, 15.0]),
                schedule_to_close=random.choice([None, None, 40.0]),
                heartbeat=random.choice([None, None, 6.0]),
                lease=random.choice([None, 5.0]),
            ),
            "payload": random.randbytes(random.choice([0, 10, 3_000])),
            "headers": random.choice([None, b"headers"]),
            "priority": random.randint(1, 5),
            "fairness_key": random.choice(["", "a", "b"]),
            "queue": random.choice(["default", "mail"]),
        }

    def poll(self) -> Step:
        self.polls += self.random.random() < 0.9
        number, incarnation = self.polls, self.random.randint(1, 2)
        queues = self.random.sample(["default", "mail"], 2)

        def step(world: World) -> Awaitable[Any]:
            world.drive.incarnation = incarnation
            return world.drive.engine.poll(world.drive.request(1, 0.0, *queues, poll=number))

        return step

    def heartbeat(self) -> Step:
        lease = self.some_lease()
        progress = self.random.choice([None, pack(Progress(0.5, 1.0, "half"))])
        checkpoint = self.random.choice([None, b"checkpoint"])
        return lambda world: world.drive.one(c.Heartbeat(lease=lease, progress=progress, checkpoint=checkpoint))

    def complete(self, outcome: str) -> Step:
        lease = self.some_lease()
        fields: dict[str, Any] = {
            "retryable": self.random.random() < 0.9,
            "checkpoint": self.random.choice([None, b"c"]),
        }
        if outcome == "succeeded":
            fields["result"] = self.random.randbytes(10)
        elif outcome == "failed":
            fields["failure"] = pack(Failure(message="boom" + "!" * (len(self.leases) % 3), type="Boom"))
        return lambda world: world.drive.one(c.Complete(lease=lease, outcome=outcome, **fields))

    def cancel(self) -> Step:
        task_id = self.some_id()
        namespace = self.random.choice(["default", "default", "other"])
        return lambda world: world.drive.one(c.Cancel(namespace=namespace, task_id=task_id, reason="why"))

    def retry(self) -> Step:
        task_id = self.some_id()
        return lambda world: world.drive.one(c.Retry(namespace="default", task_id=task_id))

    def repeat(self) -> Step:
        task_id = self.some_id()

        async def step(world: World) -> Any:
            task = (await world.store.read([task_id])).get(task_id)
            if task is None or task.closed_at is None:
                return None
            return await world.drive.one(decide.repeat(task))

        return step

    def erase(self) -> Step:
        """As an action does that deletes many."""
        task_id = self.some_id()

        async def step(world: World) -> Any:
            task = (await world.store.read([task_id])).get(task_id)
            if task is None or task.closed_at is None:
                return None
            return await world.drive.one(c.Erase(task_ids=[task_id]))

        return step

    def open_session(self) -> Step:
        incarnation, epoch = self.random.randint(1, 2), self.random.randint(1, 1_000)
        fields: dict[str, Any] = {"namespace": "default", "identity": "host", "queues": "default", "slots": 3}
        return lambda world: world.drive.one(c.OpenSession(incarnation=incarnation, epoch=epoch, **fields))

    def close_session(self) -> Step:
        incarnation, epoch = self.random.randint(1, 2), self.random.choice([None, None, 7])
        return lambda world: world.drive.one(c.CloseSession(incarnation=incarnation, epoch=epoch))

    def ring(self) -> Step:
        return lambda world: world.drive.one(c.Ring(limit=100))

    def reap(self) -> Step:
        return lambda world: world.drive.one(c.Reap(limit=100))

    def trim(self) -> Step:
        before = self.clock.now() - 30 * SECOND
        return lambda world: world.drive.one(c.Trim(closed_before=before, limit=1_000))


STEPS: dict[str, tuple[int, Callable[[Script], Step]]] = {
    "enqueue": (8, Script.enqueue),
    "enqueue keyed": (5, Script.enqueue_keyed),
    "enqueue delayed": (3, Script.enqueue_delayed),
    "poll": (16, Script.poll),
    "heartbeat": (12, Script.heartbeat),
    "complete: succeeded": (4, lambda script: script.complete("succeeded")),
    "complete: failed": (8, lambda script: script.complete("failed")),
    "complete: canceled": (4, lambda script: script.complete("canceled")),
    "complete: released": (3, lambda script: script.complete("released")),
    "cancel": (4, Script.cancel),
    "retry": (5, Script.retry),
    "repeat": (2, Script.repeat),
    "open session": (3, Script.open_session),
    "close session": (1, Script.close_session),
    "ring": (14, Script.ring),
    "reap": (3, Script.reap),
    "trim": (1, Script.trim),
    "erase": (1, Script.erase),
}
"""Kinds of steps, how often each is drawn, and what makes it."""


def succeeded(reply: Any) -> bool:
    """Whether a step did something: no error, and not an empty answer."""
    if isinstance(reply, c.Did):
        return reply.count > 0
    return bool(reply) and not isinstance(reply, tuple)


def comparable(reply: Any) -> Any:
    return [plain(task) for task in reply] if isinstance(reply, list) else reply


@asynccontextmanager
async def worlds(stores: dict[str, Store], seed: int) -> AsyncIterator[dict[str, World]]:
    """Engines that neither do anything by themselves nor look at lanes from marks, which depend on real time."""
    async with AsyncExitStack() as stack:
        made = {}
        for kind, store in stores.items():
            store.dead_entries = False
            engine = Engine(store, mint=EvenMint(Random(seed)))
            await engine.start(services=False)
            stack.push_async_callback(engine.stop)
            made[kind] = World(store, engine)
        yield made


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.timeout(300)
async def test_all_stores_are_equal(every_store: dict[str, Store], clock: SteppedClock, seed: int) -> None:
    script = Script(Random(seed), clock)
    missing = set(STEPS)
    reached: set[State] = set()
    async with worlds(every_store, seed) as made:
        for number in range(MOST_STEPS):
            clock.advance(script.random.choice([0.1, 0.1, 1.0, 1.0, 4.0, 12.0]) + script.random.random() / 1000)
            name, step = script.next()
            replies = {kind: await world.do(step) for kind, world in made.items()}
            expected = replies["memory"]
            script.learn(expected)
            snapshots = {kind: await world.snapshot(script.ids) for kind, world in made.items()}
            for kind in made:
                where = f"seed {seed}, step {number}, {name}, {kind}"
                assert comparable(replies[kind]) == comparable(expected), where
                for row, value in snapshots["memory"].items():
                    assert snapshots[kind].get(row) == value, f"{where}: {row}"
                assert snapshots[kind].keys() == snapshots["memory"].keys(), where
            reached |= {task.state for task in snapshots["memory"]["list"]}
            if succeeded(expected):
                missing.discard(name)
            if not missing and number >= LEAST_STEPS:
                break
    assert not missing, f"never succeeded: {missing}"
    assert {State.ENQUEUED, State.LEASED, State.RETRY_WAIT, State.SUCCEEDED, State.FAILED, State.CANCELED} <= reached
