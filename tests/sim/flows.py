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
    InvalidArgument,
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
CRONS = {"*/10 * * * * *": 10, "* * * * *": 60}
"""Expressions, and the seconds from one time to the next."""
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
            other = self.style() if self._source.random() < 0.3 else None
            found.append(["again", self.ops(self._source.choice((1, 3)), depth + 1), other])
        elif chance < 0.25:
            found.append(["fail"])
        return found

    def _op(self, depth: int) -> list[Any]:
        kinds: dict[str, float] = {
            "work": 5,
            "act": 3,
            "sleep": 3,
            "many": 1,
            "fan": 1,
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
            handed=workload.handed(self._source) if self._source.random() < 0.1 else 0,
        )
        self._world.specs[number] = spec
        self.longest += (flaky + 1) * (sum(spec["sleeps"]) + 1.0) + spec["stubborn"] + 4 * spec["handed"]
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
        spec = self._spec() | {"type": source.choice(("work", "work", "plain"))}
        if spec["handed"]:
            options["start_to_close"] = sum(spec["sleeps"]) + 20.0
        return spec, options

    def _call_off(self, depth: int) -> tuple[Any, ...]:
        spec = self._spec() | {"sleeps": [30.0], "stubborn": 0, "handed": 0}
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
        target = self._source.choice((*_IDS, ""))  # the last one is the run's own workflow, which may just close
        return target, self._source.choice(("s", "s", "w")), self._number()

    def _stop(self, depth: int) -> tuple[Any, ...]:
        return (self._source.choice(_IDS),)

    def _many(self, depth: int) -> tuple[Any, ...]:
        numbers = [self._number() for _ in range(self._source.choice((2, 3, 8)))]
        return [4 * n for n in numbers] if self._alone else numbers, self._source.choice(("fail_fast", "collect"))

    def _fan(self, depth: int) -> tuple[Any, ...]:
        """Calls of one task at once: a group, if they are many or have a window."""
        source, specs = self._source, []
        for _ in range(source.choice((1, 3, 6, 15))):
            flaky = source.choice((0, 0, 0, 0, 1, 9))
            spec = workload.quick(self._number(), sleeps=[self._seconds(0.01, 0.01, 0.5, 4.0)], flaky=flaky)
            self._world.specs[spec["n"]] = spec
            self.longest += (min(flaky, 1) + 1) * (sum(spec["sleeps"]) + 1.0)
            specs.append(spec)
        policy = "collect" if self._alone else source.choice(("fail_fast", "collect"))
        return specs, policy, source.choice((None, None, 1, 3))

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
        if source.random() < 0.35 and not self._alone:
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
    if source.random() < 0.1:
        found["cron"] = source.choice([*CRONS])
    elif source.random() < 0.2:
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
        self._kinds = {
            self._tell: 8.0, self._ask: 3.0, self._update: 5.0, self._cancel: 1.0, self._terminate: 0.7,
            self._pause: 1.5, self._reset: 1.5, self._look: 2.0,
        }  # fmt: skip
        """What others do about a run, and how often."""

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
        except (Unavailable, WaitTimeout, NotFound, Gone, WorkflowClosed) as error:
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
            handle = await self._begin(app, number, source, workflow_id, (draft.style(), given), chosen)
        except WorkflowAlreadyStarted:
            handle = app.get_workflow_handle(workflow_id)
        if handle is None:
            return
        others = []
        if company:
            kinds, often = [*self._kinds], [*self._kinds.values()]
            for part in range(source.choice((0, 1, 3, 6))):
                kind = source.choices(kinds, often)[0]
                own = Random(f"{world.plan.seed}/flow/{number}/{part}")
                others.append(asyncio.create_task(self._later(kind, app, handle, own)))
        await self._result(handle.id, handle.result())
        await asyncio.gather(*others)

    async def _begin(
        self, app: AsyncPerdure, number: int, source: Random, workflow_id: str, what: Any, chosen: dict[str, Any]
    ) -> AsyncWorkflowHandle | None:
        """In one of the ways in which a run begins; None if there is nothing more to do."""
        world = self._world
        way = source.choices(("start", "signal", "update", "execute"), (6, 2.5, 1, 1))[0]
        if way == "start" or not world.plan.company:
            handle = await app.start_workflow(*what, id=workflow_id, **chosen)
        elif way == "signal":
            text = self._signal(number)
            chosen.pop("id_conflict", None)
            handle = await app.signal_with_start(*what, id=workflow_id, signal="s", signal_input=text, **chosen)
            world.runs.acknowledged(text)
        elif way == "update":
            value = int(source.random() * 1000)
            chosen.pop("id_conflict", None)
            call = app.update_with_start(*what, id=workflow_id, update="add", update_input=value, **chosen)
            await self._updated(value, call)
            return app.get_workflow_handle(workflow_id)
        else:
            await self._result(workflow_id, app.execute_workflow(*what, id=workflow_id, **chosen))
            return None
        world.runs.begun(ids.parse(handle.run_id or ""))
        return handle

    def _signal(self, number: int) -> str:
        self._number += 1
        return f"{number}/{self._number}"

    async def _later(self, kind: Any, app: AsyncPerdure, handle: AsyncWorkflowHandle, source: Random) -> None:
        await asyncio.sleep(source.random() * source.choice((0.1, 3.0, 20.0)))
        if source.random() < 0.3:
            handle = app.get_workflow_handle(source.choice((handle.id, *_IDS)))  # whatever its run
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
        await self._updated(value, handle.update("add", value))

    async def _updated(self, value: int, call: Awaitable[Any]) -> None:
        try:
            answer = await call
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
        await handle.pause()
        await asyncio.sleep(source.random() * 10.0)
        await handle.resume()

    async def _reset(self, app: AsyncPerdure, handle: AsyncWorkflowHandle, source: Random) -> None:
        """To some event of its past, or to a step."""
        chance = source.random()
        try:
            if source.random() < 0.2:
                new = await handle.reset(step=f"work{int(chance * 3)}")
            else:
                history = await handle.history()
                new = await handle.reset(event_id=1 + int(chance * len(history.events)))
        except InvalidArgument as error:
            self._world.trace(f"no reset of {handle.id}: {error}")
        else:
            self._world.runs.begun(ids.parse(new.run_id or ""))

    async def _look(self, app: AsyncPerdure, handle: AsyncWorkflowHandle, source: Random) -> None:
        """What everybody is shown was so at some time."""
        runs = self._world.runs
        runs.looked(await handle.describe())
        history = await handle.history()
        runs.read_back(ids.parse(history.run_id), history.events)
        for view in (await app.list_workflows(limit=20)).workflows:
            runs.looked(view)

    # --------------------------------------------------------------------------------------------------------- the end
    async def _result(self, workflow_id: str, call: Awaitable[Any]) -> None:
        world = self._world
        try:
            value = await call
        except (TaskFailed, TaskCanceled, TaskTerminated) as error:
            world.trace(f"told {workflow_id} {error!r}")
            world.runs.told(workflow_id, _ENDS[type(error)], None)
        else:
            world.runs.told(workflow_id, (State.SUCCEEDED,), value)
