"""Short forms for driving an engine in tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from perdure.core import commands as c
from perdure.core.errors import PerdureError
from perdure.core.ids import Mint
from perdure.core.lanes import lane
from perdure.core.model import Failure, RetryPolicy, Task, Timeouts, pack
from perdure.core.states import State
from perdure.engine.dispatch import PollRequest
from perdure.engine.engine import Engine
from perdure.store.base import Store
from tests.clock import SteppedClock

LANE = lane("default", "default")


def enqueue(
    type_: str = "t",
    *,
    namespace: str = "default",
    queue: str = "default",
    key: str | None = None,
    digest: bytes = b"digest",
    minted: bytes | None = None,
    delay: float = 0,
    retry: RetryPolicy | None = None,
    timeouts: Timeouts | None = None,
    payload: bytes = b"payload",
    **draft: Any,
) -> c.Enqueue:
    def micros(seconds: float | None) -> int | None:
        return None if seconds is None else int(seconds * 1_000_000)

    fields: dict[str, Any] = {
        "payload": payload,
        "retry_policy": None if retry is None else pack(retry),
        "timeouts": None if timeouts is None else pack(timeouts),
        "max_attempts": 5 if retry is None else retry.max_attempts,
    }
    if timeouts is not None and timeouts.lease is not None:
        fields["lease_length"] = micros(timeouts.lease)
    task = Task(b"", namespace, type_, State.ENQUEUED, lane(namespace, queue), 0, 0, queue=queue, **(fields | draft))
    return c.Enqueue(
        draft=task,
        delay=micros(delay) or 0,
        schedule_to_start=micros(timeouts.schedule_to_start) if timeouts else None,
        schedule_to_close=micros(timeouts.schedule_to_close) if timeouts else None,
        key=key,
        key_life=24 * 3600 * 1_000_000,
        digest=digest,
        size=len(payload),
        task_id=minted,
        minted=minted is not None,
    )


class Drive:
    """An engine without services on a stepped clock, and the sequence of polls of one worker."""

    def __init__(self, engine: Engine, incarnation: int = 1) -> None:
        self.engine = engine
        self.incarnation = incarnation
        self._polls = 0

    async def one(self, command: c.Command) -> Any:
        """The outcome of one command; raises it when it is an error."""
        (outcome,) = await self.engine.apply([command])
        if isinstance(outcome, PerdureError):
            raise outcome
        return outcome

    async def enqueue(self, *args: Any, **kwargs: Any) -> bytes:
        outcome: c.Enqueued = await self.one(enqueue(*args, **kwargs))
        return outcome.task_id

    def request(self, capacity: int = 10, wait: float = 0.0, *queues: str, poll: int | None = None) -> PollRequest:
        self._polls += 1
        lanes = tuple(lane("default", queue) for queue in queues or ("default",))
        number = self._polls if poll is None else poll
        return PollRequest(lanes, capacity, self.incarnation, f"w{self.incarnation}", number, wait, lambda: True)

    async def poll(self, capacity: int = 10, *queues: str, wait: float = 0.0) -> list[Task]:
        return await self.engine.poll(self.request(capacity, wait, *queues))

    async def lease(self) -> Task:
        (task,) = await self.poll(1)
        return task

    async def lease_new(self) -> Task:
        await self.enqueue()
        return await self.lease()

    async def beat(self, task: Task, **fields: Any) -> bool:
        alive: c.Alive = await self.one(c.Heartbeat(lease=task.lease, **fields))
        return alive.cancel

    async def succeed(self, task: Task) -> State:
        return await self.complete(task, "succeeded", result=b"result")

    async def fail(self, task: Task, message: str = "boom", **fields: Any) -> State:
        return await self.complete(task, "failed", failure=pack(Failure(message=message)), **fields)

    async def complete(self, task: Task, outcome: str, **fields: Any) -> State:
        changed: c.Changed = await self.one(c.Complete(lease=task.lease, outcome=outcome, **fields))
        return State(changed.state)

    async def cancel(self, task_id: bytes, namespace: str = "default") -> c.Changed:
        changed: c.Changed = await self.one(c.Cancel(namespace=namespace, task_id=task_id))
        return changed

    async def ring(self) -> int:
        did: c.Did = await self.one(c.Ring(limit=100))
        return did.count

    async def elapse(self, clock: SteppedClock, seconds: float) -> None:
        """Time passes while a server lives: it takes the pulse and rings what is due."""
        await self.ring()
        while seconds > 0:
            clock.advance(min(seconds, 4))
            seconds -= 4
            await self.ring()

    async def read(self, task_id: bytes) -> Task:
        return (await self.engine.store.read([task_id]))[task_id]

    async def state(self, task_id: bytes) -> State:
        return State((await self.read(task_id)).state)


@asynccontextmanager
async def running(store: Store, *, seed: int = 1, incarnation: int = 1) -> AsyncIterator[Drive]:
    """An engine over an open store, stopped at the end."""
    engine = Engine(store, mint=Mint(Random(seed)))
    await engine.start(services=False)
    try:
        yield Drive(engine, incarnation)
    finally:
        await asyncio.wait_for(engine.stop(), 10)
