"""Random workflows, driven live with steps that fail, workers that die and messages at any moment: after every append a
cold replay of the history gives the same state, and never another command (RPLY-01, RPLY-35, B084)."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from perdure.core import turn_commands as c
from perdure.sdk.converter import from_payloads
from perdure.sdk.definition import Workflow
from perdure.sdk.task import Task
from perdure.sdk.workflow_context import WorkflowContext
from perdure.sdk.workflow_errors import OperationError
from perdure.worker.async_code import AsyncCode
from tests.replay.server import NO, Server

ROUNDS = 120

Program = list[Any]


def work(value: Any = None) -> Any: ...


dispatched: Task[..., Any] = Task(lambda ctx, payload: None, "dispatched")


class Interpreter:
    """Runs a program, and notes all that it sees."""

    def __init__(self, ctx: WorkflowContext) -> None:
        self.ctx = ctx
        self.trace: list[Any] = []
        self.bumps = 0
        ctx.on_query("trace", lambda: self.trace)
        ctx.on_signal("bump", self.bump)
        ctx.on_signal("work", lambda: self.run(["step", "in signal"]))
        ctx.on_update("change", self.change, self.check)

    def bump(self, value: int) -> None:
        self.bumps += value

    def check(self, value: int) -> None:
        if value % 5 == 0:
            raise ValueError("five")

    async def change(self, value: int) -> int:
        self.bumps += value
        await self.run(["all", ["step", "in update"], ["activity", "in update"]])
        return self.bumps

    async def run(self, program: Program) -> Any:
        kind, *parts = program
        try:
            found = await getattr(self, f"do_{kind}")(*parts)
        except (OperationError, TimeoutError, ExceptionGroup) as error:
            found = type(error).__name__
        except asyncio.CancelledError:
            self.trace.append([kind, "canceled"])
            raise
        self.trace.append([kind, found, self.ctx.now().timestamp(), self.bumps])
        return found

    async def do_all(self, *programs: Program) -> Any:
        return await asyncio.gather(*map(self.run, programs))

    async def do_one_by_one(self, *programs: Program) -> Any:
        return [await self.run(program) for program in programs]

    async def do_race(self, *programs: Program) -> Any:
        tasks = [asyncio.create_task(self.run(program)) for program in programs]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        return [str(task.exception()) if task.exception() else task.result() for task in done if not task.cancelled()]

    async def do_group(self, *programs: Program) -> Any:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.run(program)) for program in programs]
        return [task.result() for task in tasks]

    async def do_within(self, seconds: float, program: Program) -> Any:
        async with asyncio.timeout(seconds):
            return await self.run(program)

    async def do_shield(self, program: Program) -> Any:
        with self.ctx.shielded():
            return await self.run(program)

    async def do_saga(self, program: Program) -> Any:
        saga = self.ctx.saga()
        saga.add_compensation(work, 1)
        saga.add_compensation(dispatched, 2)
        found = await self.run(program)
        return [found, len((await saga.compensate()).compensations_failed)]

    async def do_step(self, name: str) -> Any:
        return await self.ctx.step(name, work, name)

    async def do_activity(self, name: str) -> Any:
        return await self.ctx.execute_activity(name, name, start_to_close=10)

    async def do_parallel(self, count: int, policy: str) -> Any:
        branches = [((work, dispatched)[index % 2], index) for index in range(count)]
        found = await self.ctx.parallel("many", branches, policy=policy)
        return [str(item) if isinstance(item, Exception) else item for item in found]

    async def do_sleep(self, seconds: float) -> Any:
        await (self.ctx.sleep(seconds) if seconds > 5 else asyncio.sleep(seconds))

    async def do_signal(self, name: str, timeout: float | None) -> Any:
        return await self.ctx.wait_for_signal(name, timeout)

    async def do_condition(self, count: int, timeout: float | None) -> Any:
        return await self.ctx.wait_condition(lambda: self.bumps >= count, timeout)

    async def do_child(self, policy: str) -> Any:
        handle = await self.ctx.start_child("child", parent_close_policy=policy)
        await handle.signal("hello")
        return await handle

    async def do_queue(self, count: int) -> Any:
        queue: asyncio.Queue[Any] = asyncio.Queue(1)

        async def produce() -> None:
            for index in range(count):
                await queue.put(await self.run(["activity", f"p{index}"]))

        async with asyncio.TaskGroup() as group:
            group.create_task(produce())
            return [await queue.get() for _ in range(count)]

    async def do_ask(self) -> Any:
        ctx = self.ctx
        ctx.upsert_memo({"at": len(self.trace)})
        return [ctx.version("v", 0, 2), ctx.patched("p"), ctx.random().random(), str(ctx.uuid4()), ctx.side_effect(int)]


async def interpret(ctx: WorkflowContext, program: Program) -> Any:
    return await Interpreter(ctx).run(program)


def program(rng: random.Random, depth: int = 3) -> Program:
    several = ["all", "one_by_one", "race", "group"]
    if depth and rng.random() < 0.75:
        kind = rng.choice([*several, *several, "within", "shield", "saga"])
        if kind in several:
            return [kind, *(program(rng, depth - 1) for _ in range(rng.randint(1, 4)))]
        inner = program(rng, depth - 1)
        return ["within", rng.randint(1, 60), inner] if kind == "within" else [kind, inner]
    return rng.choice(
        [
            ["step", f"s{rng.randint(0, 3)}"],
            ["step", f"s{rng.randint(0, 3)}"],
            ["activity", f"a{rng.randint(0, 3)}"],
            ["activity", f"a{rng.randint(0, 3)}"],
            ["parallel", rng.randint(0, 5), rng.choice(["fail_fast", "collect"])],
            ["sleep", rng.randint(0, 20)],
            ["signal", rng.choice("xy"), rng.choice([None, 0, 30])],
            ["condition", rng.randint(0, 6), rng.choice([None, 30])],
            ["child", rng.choice(["terminate", "abandon"])],
            ["queue", rng.randint(1, 3)],
            ["ask"],
        ]
    )


def trace(code: AsyncCode) -> Any:
    return from_payloads(code.query("trace", ()), "trace")


def compare(server: Server) -> None:
    warm, cold = server.instance, server.cold()
    assert warm is not None
    assert trace(warm) == trace(cold)
    assert warm.ctx._counts == cold.ctx._counts
    assert warm.ctx._random.getstate() == cold.ctx._random.getstate()
    assert warm.ctx._versions == cold.ctx._versions
    one, other = warm.machine, cold.machine
    assert (one.last_event_id, one.now, one.activation) == (other.last_event_id, other.now, other.activation)
    assert one._open.keys() == other._open.keys() and one._steps.keys() == other._steps.keys()
    assert one._step_timers == other._step_timers
    cold.drop()


def happen(server: Server, rng: random.Random, number: int) -> None:
    """Something of what may come in."""
    for event_id, command in list(server.open.items()):
        match command:
            case c.ScheduleActivity():
                if rng.random() < 0.4:
                    (server.fail if rng.random() < 0.2 else server.complete)(event_id)
            case c.StartTimer():
                if rng.random() < 0.3:
                    server.fire(event_id)
            case c.StartChildWorkflow():
                if rng.random() < 0.5:
                    server.child_started(event_id)
                    if rng.random() < 0.5:
                        server.child_completed(event_id, "child")
                elif event_id in server.open and rng.random() < 0.3:
                    server.child_completed(event_id, "child")
            case c.SignalExternalWorkflow():
                server.told(event_id)
    for name in ("x", "y", "bump", "bump", "work"):
        if rng.random() < 0.2:
            server.signal(name, rng.randint(1, 3))
    if rng.random() < 0.2:
        server.update("change", number, f"u{number}")
    if rng.random() < 0.02:
        server.cancel()
    rng.shuffle(server.inbox) if server.history.last and rng.random() < 0.2 and not _ordered(server) else None


def _ordered(server: Server) -> bool:
    """Events of one activity or child follow each other."""
    return any(hasattr(one, "scheduled_event_id") or hasattr(one, "initiated_event_id") for one in server.inbox)


def go_on(server: Server, rng: random.Random) -> None:
    """Steps run to an end, fail, are tried again, or die with their worker."""
    while server.running and server.closed is None:
        if rng.random() < 0.1:
            server.lose().turn()
            compare(server)
            continue
        for step_id in rng.sample(sorted(server.running), k=min(len(server.running), rng.randint(1, 2))):
            luck = rng.random()
            if luck < 0.1:
                server.end_step(step_id, failure=NO)
            elif luck < 0.25:
                server.end_step(step_id, failure=NO, again=rng.choice([0.5, 20.0]))
            else:
                server.end_step(step_id, f"step {step_id}")
        if rng.random() < 0.2:
            server.signal(rng.choice(["x", "bump", "work"]), 1)
        server.append()
        compare(server)


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_a_cold_replay_is_the_warm_run(seed: int) -> None:
    rng = random.Random(seed)
    server = Server(Workflow(interpret, "interpret"), program(rng))
    for number in range(200):
        if number:
            happen(server, rng, number)
        if number == 150:
            server.cancel()
        if rng.random() < 0.2:
            server.lose()
        server.turn()
        compare(server)
        go_on(server, rng)
        if server.closed is not None:
            break
    server.lose()
