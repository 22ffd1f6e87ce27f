"""What applications ask for, and what handlers do: everything that clients can do, with random policies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING, Any

from perdure.app import AsyncPerdure
from perdure.core import ids
from perdure.core.errors import (
    FatalError,
    Gone,
    IdempotencyConflict,
    IllegalMove,
    InvalidArgument,
    NotFound,
    RetryableError,
    TaskCanceled,
    TaskExpired,
    TaskFailed,
    Unavailable,
    WaitTimeout,
)
from perdure.core.messages import TimeoutOptions
from perdure.core.model import RetryPolicy
from perdure.core.model import Task as Row
from perdure.core.states import Kind, State
from perdure.sdk.handle import AsyncJob
from perdure.sdk.task import Task
from tests.sim.database import POISON
from tests.sim.limits import WEIGHTS
from tests.sim.plan import Plan
from tests.sim.reading import ASKING, short

if TYPE_CHECKING:
    from tests.sim.world import World

QUEUES = ("default", "mail")
LONGEST_RETRY_AFTER = 5.0
_KEYS = ("k0", "k1", "k2")
_ENDS = {TaskFailed: State.FAILED, TaskCanceled: State.CANCELED, TaskExpired: State.EXPIRED}


# ------------------------------------------------------------------------------------------------------------ handlers
def handlers(world: World) -> list[Task[..., Any]]:
    """The tasks of the workload; `payload` says what a run does."""

    def begin(ctx: Any) -> int:
        return world.began(ctx._delivery)

    def end(ctx: Any, payload: Any, number: int) -> dict[str, Any]:
        world.ended(ctx)
        if ctx.attempt <= payload["flaky"]:
            if payload["later"]:
                raise RetryableError("later", retry_after=payload["later"])
            raise ValueError("flaky")
        if payload["fatal"]:
            raise FatalError("fatal")
        value = {"n": payload["n"], "lease": number}
        if payload["handed"]:
            world.hand_over(ctx.task_token, payload["handed"], value)
            ctx.complete_later()
        return value

    async def work(ctx, payload):  # type: ignore[no-untyped-def]  # hints would be read as types of payloads
        number = begin(ctx)
        try:
            for step, seconds in enumerate(payload["sleeps"]):
                await asyncio.sleep(seconds)
                if payload["notes"]:
                    ctx.checkpoint({"lease": number, "step": step})
                    ctx.progress(step + 1)
        except asyncio.CancelledError:
            if not payload["stubborn"]:
                raise
            await asyncio.sleep(payload["stubborn"])
        return end(ctx, payload, number)

    def plain(ctx, payload):  # type: ignore[no-untyped-def]
        number = begin(ctx)
        if payload["notes"]:
            ctx.checkpoint({"lease": number, "step": 0})
        return end(ctx, payload, number)

    return [Task(work, "work"), Task(plain, "plain")]


def quick(number: int, **changes: Any) -> dict[str, Any]:
    """What a run does that does nothing."""
    plain = {"n": number, "sleeps": [0.01], "notes": False, "flaky": 0, "later": 0, "fatal": False, "stubborn": 0}
    return plain | {"handed": 0} | changes


def drawn(number: int, source: Random) -> dict[str, Any]:
    """What a run does."""
    length = source.choice((0.001, 0.001, 0.05, 0.5, 2.0, 8.0, 20.0, 40.0))
    steps = source.choice((1, 1, 3))
    return quick(
        number,
        sleeps=[round(source.random() * length / steps, 6) for _ in range(steps)],
        notes=source.random() < 0.4,
        flaky=source.choice((0, 0, 0, 1, 2, 9)),
        later=source.choice((0, 0, 0, round(source.random() * LONGEST_RETRY_AFTER, 3))),
        fatal=source.random() < 0.05,
        stubborn=source.choice((0, 0, 1.0, 40.0)),
    )


def _is_listed(row: Row) -> bool:
    """Questions to workflows are no jobs of anybody."""
    return row.kind == Kind.JOB and row.type != ASKING


def handed(source: Random) -> float:
    """Seconds until somebody else ends an attempt that its handler has left open."""
    return round(0.001 + source.random() * source.choice((0.01, 3.0, 30.0)), 3)


def options(source: Random, plan: Plan) -> dict[str, Any]:
    """Random policies."""

    def some(*values: float) -> float | None:
        return None if source.random() < 0.8 else round(source.uniform(*values), 3)

    times = TimeoutOptions(
        schedule_to_start=some(1, 60),
        start_to_close=some(0.5, 20),
        schedule_to_close=some(2, 100),
        heartbeat=some(3, 20),
        lease=plan.lease or some(2, 6) or some(2, 40),
    )
    weight = {"weight": source.choice(WEIGHTS)} if plan.limits else {}
    found: dict[str, Any] = {"queue": source.choice(QUEUES[: plan.queues]), "priority": source.choice((3, 3, 3, 1, 5))}
    found |= weight
    if source.random() < 0.6 or plan.lease:
        found["timeouts"] = times
    if source.random() < 0.6:
        attempts = source.choice((1, 2, 3, 5))
        base, cap = source.choice(((0.01, 0.5), (0.5, 0.5), (0.01, 5.0), (0.5, 5.0), (5.0, 5.0)))
        found["retry"] = RetryPolicy(max_attempts=attempts, base=base, cap=cap)
    else:
        found["retry"] = RetryPolicy(max_attempts=3, base=0.5, cap=8.0)
    if source.random() < 0.25:
        later = round(source.random() * source.choice((0.2, 5.0, 20.0)), 3)
        if source.random() < 0.7:
            found["delay"] = later
        else:  # by the clock of the application's machine, as it was at the start: mostly over
            found["run_at"] = datetime.fromtimestamp(plan.begins + later, UTC)
    if source.random() < 0.2:
        found["headers"] = {"trace": str(source.random())}
    if source.random() < 0.3:
        found["fairness_key"] = source.choice(("a", "b"))
    return found


# ------------------------------------------------------------------------------------------------------------- clients
class Script:
    """What the clients do: action number n at its time, by itself."""

    def __init__(self, world: World) -> None:
        self._world = world

    def of(self, client: int) -> Callable[[AsyncPerdure], Awaitable[None]]:
        """The part of one client."""
        plan = self._world.plan
        numbers = [number for number in range(plan.tasks) if number % plan.clients == client]

        async def run(app: AsyncPerdure) -> None:
            tasks = [asyncio.create_task(self._act(app, number)) for number in numbers]
            await asyncio.gather(*tasks)

        return run

    async def _act(self, app: AsyncPerdure, number: int) -> None:
        world = self._world
        source = world.plan.stream(f"action/{number}")
        at = source.random() * world.plan.chaos + 1000.0
        if at < world.loop.now:
            return  # this client was started again
        await asyncio.sleep(at - world.loop.now)
        world.acting.add(number)
        actions = (self._enqueue, self._enqueue, self._enqueue, self._keyed, self._many, self._execute, self._poison)
        try:
            await source.choices(actions, (4, 4, 4, 4, 2, 3, 1))[0](app, number, source)
        except Unavailable as error:
            world.trace(f"action {number}: {error}")
        world.acting.discard(number)

    async def _enqueue(self, app: AsyncPerdure, number: int, source: Random) -> None:
        type_ = source.choice(("work", "work", "work", "plain", "plain", "nobody" if source.random() < 0.1 else "work"))
        body, chosen = self._payload(number, source), options(source, self._world.plan)
        if source.random() < 0.15:
            body["handed"] = handed(source)
            chosen["timeouts"] = TimeoutOptions(start_to_close=sum(body["sleeps"]) + 20.0)
        job = await app.enqueue(type_, body, **chosen)
        self._world.acknowledged(job.id, None)
        await self._after(app, job, number, source)

    async def _keyed(self, app: AsyncPerdure, number: int, source: Random) -> None:
        key = source.choice(_KEYS)
        body = quick(10_000 + source.choice((0, 0, 1)) + 10 * _KEYS.index(key), sleeps=[45.0 if key == "k2" else 0.01])
        self._world.specs[body["n"]] = body
        try:
            job = await app.enqueue("work", body, idempotency_key=key)
        except IdempotencyConflict:
            self._world.conflicted(key, body["n"])
            return
        self._world.acknowledged(job.id, key, body["n"])
        await self._after(app, job, number, source)

    async def _many(self, app: AsyncPerdure, number: int, source: Random) -> None:
        numbers = range(number * 100 + 1_000_000, number * 100 + 1_000_000 + source.choice((2, 8, 30)))
        bodies = [self._payload(one, source) | {"sleeps": [source.choice((0.001, 0.1, 1.0))]} for one in numbers]
        self._world.specs.update({body["n"]: body for body in bodies})
        jobs = await app.enqueue_many("work", bodies, **options(source, self._world.plan))
        for job in jobs:
            self._world.acknowledged(job.id, None)
        if source.random() < 0.5:
            await self._result(jobs[-1])

    async def _execute(self, app: AsyncPerdure, number: int, source: Random) -> None:
        body = self._payload(number, source)
        try:
            value = await app.execute("work", body, **options(source, self._world.plan))
        except (TaskFailed, TaskCanceled, TaskExpired, WaitTimeout):
            return
        if value["n"] != number:
            self._world.checker.fail("results", f"{value} is the result of {number}")

    async def _poison(self, app: AsyncPerdure, number: int, source: Random) -> None:
        """The database refuses one of the tasks; the others must not suffer."""
        body = self._payload(number, source) | {"poison": POISON.decode()}
        try:
            job = await app.enqueue("work", body)
        except InvalidArgument:
            return
        self._world.checker.fail("results", f"what cannot be stored was acknowledged: {job.id}")

    def _payload(self, number: int, source: Random) -> dict[str, Any]:
        spec = self._world.specs[number] = drawn(number, source)
        return spec

    async def _after(self, app: AsyncPerdure, job: AsyncJob, number: int, source: Random) -> None:
        """What follows an enqueue."""
        world = self._world
        chance = source.random()
        try:
            if chance < 0.3:
                await asyncio.sleep(source.random() * source.choice((0.05, 10.0)))
                world.canceling.add(ids.parse(job.id))
                await app.cancel(job.id, "why")
                await self._result(job)
            elif chance < 0.45:
                await asyncio.sleep(source.random() * 10.0)
                world.hurrying.add(ids.parse(job.id))
                again = await app.retry(job.id)
                world.acknowledged(again.id, None)
                await self._result(again)
            elif chance < 0.85:
                await self._result(job)
            else:
                view = await app.get(job.id)
                world.looked(view)
                await self._list(app, source)
                await app.queues()
                await app.workers()
        except IllegalMove:
            world.trace(f"action {number}: nothing to retry")
        except (NotFound, Gone):
            world.gone(ids.parse(job.id))

    async def _list(self, app: AsyncPerdure, source: Random) -> None:
        """Page by page: what is known before is listed, and nothing twice."""
        checker = self._world.checker
        known = {i for rows in (checker.tasks, checker.closed) for i, row in rows.items() if _is_listed(row)}
        size, cursor = source.choice((5, 50)), None
        listed: set[bytes] = set()
        while True:
            page = await app.find(limit=size, cursor=cursor)
            for view in page.tasks:
                self._world.looked(view)
                if ids.parse(view.task_id) in listed:
                    checker.fail("lists", f"{view.task_id} is listed twice")
                listed.add(ids.parse(view.task_id))
            if page.next is None:
                break
            cursor = page.next
        if missing := known - listed - checker.trimmed:
            checker.fail("lists", f"{short(min(missing))} is not listed")

    async def _result(self, job: AsyncJob) -> None:
        world = self._world
        task_id = ids.parse(job.id)
        try:
            value = await job.result()
        except (TaskFailed, TaskCanceled, TaskExpired) as error:
            world.told(task_id, _ENDS[type(error)], None)
        else:
            world.told(task_id, State.SUCCEEDED, value)
