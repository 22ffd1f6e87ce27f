"""What applications do with workflows: the code of each is drawn (stories.py), and so is what they tell it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import TYPE_CHECKING, Any

from perdure.app import AsyncPerdure
from perdure.core import ids
from perdure.core.errors import (
    Gone,
    NotFound,
    NoWorker,
    QueryFailed,
    TaskCanceled,
    TaskFailed,
    TaskTerminated,
    Unavailable,
    UpdateFailed,
    WaitTimeout,
    WorkflowAlreadyStarted,
    WorkflowClosed,
)
from perdure.core.model import RetryPolicy
from perdure.core.states import State
from perdure.sdk.run_handle import AsyncWorkflowHandle
from tests.sim import workload
from tests.sim.plan import Plan

if TYPE_CHECKING:
    from tests.sim.world import World

NUMBERS = 2_000_000
"""Where those of the activities begin."""
_IDS = ("x0", "x1", "x2")
_POLICIES = ("terminate", "request_cancel", "abandon")
_ENDS = {TaskFailed: (State.FAILED, State.TIMED_OUT), TaskCanceled: (State.CANCELED,),
         TaskTerminated: (State.TERMINATED,)}  # fmt: skip


class Draft:
    """Draws the code of runs. `alone`: nothing in it depends on anybody else, or on which of two things is first."""

    def __init__(self, world: World, number: int, source: Random) -> None:
        self._world = world
        self._next = NUMBERS + 10_000 * number
        self._source = source
        self._alone = not world.plan.company
        self._racing = 0  #: in what may be thrown away, with the faults that it has
        self.longest = 0.0  #: seconds that it may take, failures of the world aside

    def given(self, depth: int = 0) -> dict[str, Any]:
        return {
            "n": self._number(),
            "ops": self.ops(self._source.choice((1, 2, 4, 7)), depth),
            "seen": [],
            "stubborn": self._source.random() < 0.2,
        }

    def _number(self) -> int:
        self._next += 1
        return self._next

    def _seconds(self, *most: float) -> float:
        seconds = round(self._source.random() * self._source.choice(most), 3)
        self.longest += seconds
        return seconds

    def ops(self, count: int, depth: int) -> list[Any]:
        found = [self._op(depth) for _ in range(count)]
        chance = self._source.random()
        if chance < 0.15 and depth < 2:
            found.append(["again", self.ops(self._source.choice((1, 3)), depth + 1)])
        elif chance < 0.25:
            found.append(["fail"])
        return found

    def _op(self, depth: int) -> list[Any]:
        kinds: dict[str, float] = {
            "work": 5,
            "act": 3,
            "sleep": 3,
            "many": 1,
            "notes": 1,
            "crash": 1,
            "call_off": 1,
            "until": 1,
        }
        if not self._alone:
            kinds |= {"hear": 2, "tell": 3, "stop": 0.3, "together": 2, "race": 1}
        if depth < 2:
            kinds |= {"child": 2} if self._alone else {"child": 2, "begin": 1}
        if self._racing:
            del kinds["crash"]
        kind = self._source.choices([*kinds], [*kinds.values()])[0]
        made = getattr(self, f"_{kind}", None)
        return [kind, *(made(depth) if made is not None else ())]

    def _work(self, depth: int) -> tuple[Any, ...]:
        return self._number(), self._source.choice((0, 0, 0, 1, 2, 5)), self._seconds(0.0, 0.01, 1.0, 10.0)

    def _spec(self) -> dict[str, Any]:
        number = self._number()
        flaky = self._source.choice((0, 0, 0, 1, 2, 9))
        spec = workload.quick(
            number,
            sleeps=[self._seconds(0.01, 0.5, 8.0)],
            flaky=flaky,
            fatal=self._source.random() < 0.1,
            stubborn=self._source.choice((0, 0, 1.0, 20.0)),
        )
        self._world.specs[number] = spec
        self.longest += (flaky + 1) * (sum(spec["sleeps"]) + 1.0) + spec["stubborn"]
        return spec

    def _act(self, depth: int) -> tuple[Any, ...]:
        source = self._source
        options: dict[str, Any] = {"retries": source.choice((1, 2, 4))}
        for name, least, most in (
            ("start_to_close", 0.5, 20.0),
            ("schedule_to_start", 1.0, 60.0),
            ("schedule_to_close", 2.0, 60.0),
            ("heartbeat", 3.0, 20.0),
        ):
            if source.random() < 0.2 and not self._alone:
                options[name] = round(source.uniform(least, most), 3)
        options.setdefault("start_to_close", 60.0)
        if source.random() < 0.5:
            options["queue"] = source.choice(workload.QUEUES[: self._world.plan.queues])
        return self._spec() | {"type": source.choice(("work", "work", "plain"))}, options

    def _call_off(self, depth: int) -> tuple[Any, ...]:
        spec = self._spec() | {"sleeps": [30.0], "stubborn": 0}
        self._world.specs[spec["n"]] = spec
        self.longest += 60.0
        return spec, 0.5 if self._alone else self._seconds(0.01, 5.0)

    def _sleep(self, depth: int) -> tuple[Any, ...]:
        return (self._seconds(0.1, 3.0, 20.0),)

    def _hear(self, depth: int) -> tuple[Any, ...]:
        return (self._seconds(1.0, 20.0),)

    def _until(self, depth: int) -> tuple[Any, ...]:
        return self._source.choice((1, 2)), self._seconds(1.0, 10.0)

    def _tell(self, depth: int) -> tuple[Any, ...]:
        return self._source.choice(_IDS), self._source.choice(("s", "s", "w")), self._number()

    def _stop(self, depth: int) -> tuple[Any, ...]:
        return (self._source.choice(_IDS),)

    def _many(self, depth: int) -> tuple[Any, ...]:
        numbers = [self._number() for _ in range(self._source.choice((2, 3, 8)))]
        return [4 * n for n in numbers] if self._alone else numbers, self._source.choice(("fail_fast", "collect"))

    def _together(self, depth: int) -> tuple[Any, ...]:
        return ([[self._op(depth + 1) for _ in range(2)] for _ in range(self._source.choice((2, 3)))],)

    def _race(self, depth: int) -> tuple[Any, ...]:
        self._racing += 1
        parts = [[self._op(depth + 1)] for _ in range(2)]
        self._racing -= 1
        return (parts,)

    def _child(self, depth: int) -> tuple[Any, ...]:
        source = self._source
        options: dict[str, Any] = {"parent_close_policy": source.choice(_POLICIES)}
        if source.random() < 0.2 and not self._alone:
            options["workflow_id"] = source.choice(_IDS)
        if source.random() < 0.1 and not self._alone:
            options["run_timeout"] = round(source.uniform(0.5, 20.0), 3)
        if source.random() < 0.2:
            options["queue"] = source.choice(workload.QUEUES[: self._world.plan.queues])
        return self.style(), self.given(depth + 1), options

    _begin = _child

    def _notes(self, depth: int) -> tuple[Any, ...]:
        return (self._number(),)

    def _crash(self, depth: int) -> tuple[Any, ...]:
        self.longest += 10.0
        return self._number(), self._source.choice((1, 1, 2, 3))

    def style(self) -> str:
        return self._source.choice(("waits", "blocks"))


def options(source: Random, plan: Plan) -> dict[str, Any]:
    """Of a run that a client starts."""
    found: dict[str, Any] = {"queue": source.choice(workload.QUEUES[: plan.queues])}
    if not plan.company:
        return found
    if source.random() < 0.15:
        found["run_timeout"] = round(source.uniform(1.0, 60.0), 3)
    if source.random() < 0.1:
        found["execution_timeout"] = round(source.uniform(2.0, 80.0), 3)
    if source.random() < 0.2:
        found["start_delay"] = round(source.random() * 5.0, 3)
    if source.random() < 0.2:
        found["retry"] = RetryPolicy(max_attempts=2, base=0.1, cap=1.0)
    if source.random() < 0.5:
        found["id_conflict"] = source.choice(("fail", "use_existing", "terminate_existing"))
    if source.random() < 0.2:
        found["id_reuse"] = source.choice(("allow_duplicate_failed_only", "reject_duplicate"))
    return found


class Flows:
    """What the clients do about workflows: number n begins at its time, by itself."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._number = 0

    def of(self, client: int) -> Callable[[AsyncPerdure], Awaitable[None]]:
        plan = self._world.plan
        numbers = [number for number in range(plan.flows) if number % plan.clients == client]

        async def run(app: AsyncPerdure) -> None:
            await asyncio.gather(*(asyncio.create_task(self._act(app, number)) for number in numbers))

        return run

    async def _act(self, app: AsyncPerdure, number: int) -> None:
        world = self._world
        source = world.plan.stream(f"flow/{number}")
        at = source.random() * world.plan.chaos * 0.8 + 1000.0
        if at < world.loop.now:
            return  # this client was started again
        await asyncio.sleep(at - world.loop.now)
        acting = number + world.plan.clients * 1_000_000  # of the same client
        world.acting.add(acting)
        try:
            await self._flow(app, number, source)
        except (Unavailable, WaitTimeout, NotFound, Gone) as error:
            world.trace(f"flow {number}: {error!r}")
        world.acting.discard(acting)

    async def _flow(self, app: AsyncPerdure, number: int, source: Random) -> None:
        world = self._world
        draft = Draft(world, number, source)
        given = draft.given()
        world.bound += draft.longest
        company = world.plan.company
        workflow_id = source.choice(_IDS) if company and source.random() < 0.6 else f"own{number}"
        chosen = options(source, world.plan)
        try:
            if company and source.random() < 0.25:
                text = self._signal(number)
                chosen.pop("id_conflict", None)
                handle = await app.signal_with_start(
                    draft.style(), given, id=workflow_id, signal="s", signal_input=text, **chosen
                )
                world.runs.acknowledged(text)
            else:
                handle = await app.start_workflow(draft.style(), given, id=workflow_id, **chosen)
        except WorkflowAlreadyStarted:
            handle = app.get_workflow_handle(workflow_id)
        else:
            world.runs.begun(ids.parse(handle.run_id or ""))
        others = []
        if company:
            for part in range(source.choice((0, 1, 3, 6))):
                kind = source.choices(
                    (self._tell, self._ask, self._update, self._cancel, self._terminate, self._pause, self._reset),
                    (8, 3, 5, 1, 0.7, 1.5, 1.5),
                )[0]
                own = Random(f"{world.plan.seed}/flow/{number}/{part}")
                others.append(asyncio.create_task(self._later(kind, app, handle, own)))
        await self._result(handle, chosen)
        await asyncio.gather(*others)

    def _signal(self, number: int) -> str:
        self._number += 1
        return f"{number}/{self._number}"

    async def _later(self, kind: Any, app: AsyncPerdure, handle: AsyncWorkflowHandle, source: Random) -> None:
        await asyncio.sleep(source.random() * source.choice((0.1, 3.0, 20.0)))
        if source.random() < 0.3:
            handle = app.get_workflow_handle(handle.id)  # whatever its run
        try:
            await kind(app, handle, source)
        except (NotFound, Gone, WorkflowClosed, WaitTimeout, Unavailable, NoWorker, WorkflowAlreadyStarted) as error:
            self._world.trace(f"{kind.__name__} {handle.id}: {error!r}")

    # ------------------------------------------------------------------------------------------------- what it is told
    async def _tell(self, app: AsyncPerdure, handle: AsyncWorkflowHandle, source: Random) -> None:
        for _ in range(source.choice((1, 1, 4))):
            text = self._signal(0)
            await handle.signal(source.choice(("s", "s", "w")), text)
            self._world.runs.acknowledged(text)

    async def _ask(self, app: AsyncPerdure, handle: AsyncWorkflowHandle, source: Random) -> None:
        async def ask() -> None:
            try:
                shown = await handle.query("state")
            except QueryFailed as error:
                if error.failure.code not in ("unknown_query", "query_failed"):
                    self._world.checker.fail("queries", f"{error!r}")
            else:
                self._world.runs.shown(shown)

        for _ in range(source.choice((1, 4))):
            await handle.signal("s", text := self._signal(0))  # so that its code runs about now
            self._world.runs.acknowledged(text)
            await asyncio.sleep(source.random() * 0.02)
            await ask()

    async def _update(self, app: AsyncPerdure, handle: AsyncWorkflowHandle, source: Random) -> None:
        value = int(source.random() * 1000)
        try:
            answer = await handle.update("add", value)
        except UpdateFailed as error:
            if value % 5 and error.failure.code == "update_rejected":
                self._world.checker.fail("updates", f"{value} was rejected: {error!r}")
            return
        if answer != {"n": value} or value % 5 == 0:
            self._world.checker.fail("updates", f"{value} was answered by {answer}")

    async def _cancel(self, app: AsyncPerdure, handle: AsyncWorkflowHandle, source: Random) -> None:
        await handle.cancel("why")

    async def _terminate(self, app: AsyncPerdure, handle: AsyncWorkflowHandle, source: Random) -> None:
        await handle.terminate("why")

    async def _pause(self, app: AsyncPerdure, handle: AsyncWorkflowHandle, source: Random) -> None:
        await self._world.admin.pause(handle.id, paused=True)
        await asyncio.sleep(source.random() * 10.0)
        await self._world.admin.pause(handle.id, paused=False)

    async def _reset(self, app: AsyncPerdure, handle: AsyncWorkflowHandle, source: Random) -> None:
        await self._world.admin.reset(handle.id, handle.run_id, source)

    # --------------------------------------------------------------------------------------------------------- the end
    async def _result(self, handle: AsyncWorkflowHandle, chosen: dict[str, Any]) -> None:
        world = self._world
        try:
            value = await handle.result()
        except (TaskFailed, TaskCanceled, TaskTerminated) as error:
            world.trace(f"told {handle.id} {error!r}")
            world.runs.told(handle.id, _ENDS[type(error)], None)
        else:
            world.runs.told(handle.id, (State.SUCCEEDED,), value)
