"""Random plain workflows, driven live with steps that fail, workers that die at any append and messages at any moment.
After each turn a replay of the history gives what the code has seen, and no other command; and so does async code that
does the same: one history serves both styles (X-01, RPLY-01, RPLY-35, B084)."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Callable
from typing import Any

import pytest

from perdure import Cancelled
from perdure.core import events as e
from perdure.core import turn_commands as c
from perdure.core.model import Failure
from perdure.core.turn_commands import StartStep, TurnCommand
from perdure.sdk.converter import from_payloads
from perdure.sdk.definition import Workflow
from perdure.sdk.task import Task
from perdure.sdk.workflow_errors import Dropped, OperationError
from perdure.worker.async_code import AsyncCode
from perdure.worker.plain import PlainCode
from perdure.worker.steps import StepEnd
from tests.fuzz.effort import times
from tests.replay.history import values
from tests.replay.server import NO, Server

Program = list[list[Any]]

elsewhere: Task[..., Any] = Task(lambda ctx, payload: None, "elsewhere")


def work(value: Any = None) -> Any: ...


# ------------------------------------------------------------------------------------------------------- the programs
def parallel(ctx: Any, count: int, policy: str) -> Any:
    return ctx.parallel("many", [((work, elsewhere)[index % 2], index) for index in range(count)], policy=policy)


def ask(ctx: Any) -> Any:
    ctx.upsert_memo({"asked": True})
    return [ctx.version("v", 0, 2), ctx.patched("p"), ctx.random().random(), str(ctx.uuid4()), ctx.side_effect(int)]


def saga(ctx: Any) -> Any:
    found = ctx.saga()
    found.add_compensation(work, 1)
    found.add_compensation(elsewhere, 2)
    return found.compensate()


DO: dict[str, Callable[..., Any]] = {
    "step": lambda ctx, name: ctx.step(name, work, name),
    "activity": lambda ctx, name: ctx.execute_activity(name, name, start_to_close=10),
    "parallel": parallel,
    "sleep": lambda ctx, seconds: ctx.sleep("nap", seconds),
    "signal": lambda ctx, name, timeout: ctx.wait_for_signal(name, timeout),
    "child": lambda ctx, policy: ctx.execute_child("child", parent_close_policy=policy),
    "ask": ask,
    "saga": saga,
}
"""What a line of a program does; in async code it is awaited where that can be."""


def plain(ctx: Any, program: Program) -> Any:
    trace: list[Any] = []
    ctx.on_query("trace", lambda: trace)
    try:
        for kind, *parts in program:
            try:
                found = DO[kind](ctx, *parts)
            except OperationError as error:
                found = type(error).__name__
            trace.append([kind, str(found), ctx.now().timestamp()])
    except Cancelled:
        with ctx.shielded():
            trace.append(["cleaned", ctx.step("clean", work)])
        raise
    return len(trace)


async def waiting(ctx: Any, program: Program) -> Any:
    trace: list[Any] = []
    ctx.on_query("trace", lambda: trace)
    try:
        for kind, *parts in program:
            try:
                found = DO[kind](ctx, *parts)
                if inspect.isawaitable(found):
                    found = await found
            except OperationError as error:
                found = type(error).__name__
            trace.append([kind, str(found), ctx.now().timestamp()])
    except asyncio.CancelledError:
        with ctx.shielded():
            trace.append(["cleaned", await ctx.step("clean", work)])
        raise
    return len(trace)


def handling(ctx: Any, program: Program) -> Any:
    """The same with handlers, which come in wherever the code waits."""
    heard: list[Any] = []
    ctx.on_query("heard", lambda: heard)
    ctx.on_signal("bump", lambda value: heard.append(["bump", value, ctx.step("in signal", work)]))
    ctx.on_update("change", lambda value: heard.append(["change", value]) or len(heard))
    return plain(ctx, program)


def new_program(rng: random.Random) -> Program:
    lines: list[Callable[[], list[Any]]] = [
        lambda: ["step", f"s{rng.randint(0, 3)}"],
        lambda: ["step", f"s{rng.randint(0, 3)}"],
        lambda: ["activity", f"a{rng.randint(0, 3)}"],
        lambda: ["parallel", rng.randint(0, 5), rng.choice(["fail_fast", "collect"])],
        lambda: ["sleep", rng.randint(1, 20)],
        lambda: ["signal", rng.choice("xy"), rng.choice([None, 30])],
        lambda: ["child", rng.choice(["terminate", "abandon"])],
        lambda: ["ask"],
        lambda: ["saga"],
    ]
    return [rng.choice(lines)() for _ in range(rng.randint(1, 12))]


# ----------------------------------------------------------------------------------------------------------- the world
class PlainServer(Server):
    """One run of plain code; it is the worker as well, whose steps end, fail or die with it as chance has it."""

    def __init__(self, code: Callable[..., Any], program: Program, rng: random.Random) -> None:
        super().__init__(Workflow(code, "plain"), program)
        self.rng = rng
        self.spared: list[StepEnd] = []

    def turn(self) -> PlainServer:
        self.taken, self.inbox = self.inbox, []
        self.before = self.history.last
        self.history.prepare(*self.taken)
        self.started_id = self.history.last
        self.first = True
        self.running = {}
        self.shown, self.updates = self.updates, []
        code = PlainCode(self.workflow, port=self)
        code.machine.feed(self.history.events[:], self.shown)
        last = code.run()
        if last is None:  # the worker died
            self.undo()
        elif self.is_early(last[1]):
            self.settle(last[1])
        else:
            self.extend(*last)
        return self

    def undo(self) -> None:
        """A turn of which nothing was written leaves no trace."""
        if self.first:
            del self.history.events[self.before :]
            self.inbox = self.taken + self.inbox
            self.updates = self.shown + self.updates

    def settle(self, commands: list[TurnCommand]) -> None:
        """The code would close the run over a signal: only the ends of steps are kept."""
        ends = [i for i, one in enumerate(commands) if isinstance(one, (c.CompleteStep, c.FailStep))]
        if self.first and not ends:
            return self.undo()
        if not ends:
            return None
        self.extend(self.history.last, commands[: ends[-1] + 1])
        failed = e.WorkflowTaskFailed(
            scheduled_event_id=self.started_id - 1, started_event_id=self.started_id, cause="unhandled_messages"
        )
        self.history.add(failed)
        return None

    def extend(self, after: int, commands: list[TurnCommand]) -> None:
        assert after == self.history.last
        if self.first:
            frame = e.WorkflowTaskCompleted(scheduled_event_id=self.started_id - 1, started_event_id=self.started_id)
            self.history.add(frame)
            self.first = False
        for command in commands:
            self.write(command)

    # as the code's port
    def append(self, after: int = 0, commands: list[TurnCommand] = []) -> Any:  # noqa: B006 - never changed
        if self.rng.random() < 0.04:
            raise Dropped
        self.extend(after, commands)
        if self.rng.random() < 0.04:
            raise Dropped

    def next_end(self, claims: list[StartStep]) -> StepEnd:
        if self.rng.random() < 0.06:
            raise Dropped
        if self.rng.random() < 0.1:
            self.signal(self.rng.choice("xy"), 1)
        step_id = self.rng.choice(sorted(self.running))
        del self.running[step_id]
        luck = self.rng.random()
        if luck < 0.1:
            return StepEnd(step_id, None, NO)
        if luck < 0.25:
            return StepEnd(step_id, None, Failure(message="again"), self.rng.choice([0.5, 20.0]))
        return StepEnd(step_id, values(f"step {step_id}"))

    def is_running(self) -> bool:
        return bool(self.running)

    def has_messages(self) -> bool:
        return bool(self.inbox)

    def swallowed(self, error: Exception) -> None:
        raise AssertionError(error)


def happen(server: PlainServer, rng: random.Random, number: int) -> None:
    """Something of what may come in."""
    for event_id, command in list(server.open.items()):
        match command:
            case c.ScheduleActivity() if rng.random() < 0.5:
                (server.fail if rng.random() < 0.2 else server.complete)(event_id)
            case c.StartTimer() if rng.random() < 0.4:
                server.fire(event_id)
            case c.StartChildWorkflow() if rng.random() < 0.5:
                server.child_started(event_id)
                server.child_completed(event_id, "child")
    for name in ("x", "y", "bump"):
        if rng.random() < 0.2:
            server.signal(name, rng.randint(1, 3))
    if rng.random() < 0.2:
        server.update("change", number, f"u{number}")
    if rng.random() < 0.02:
        server.cancel()


def seen(code: PlainCode | AsyncCode, query: str = "trace") -> Any:
    return from_payloads(code.query(query, ()), query)


def replayed(server: PlainServer, code: PlainCode | AsyncCode) -> PlainCode | AsyncCode:
    code.machine.feed(server.history.events[:])
    if isinstance(code, AsyncCode):
        code.run()
    return code


@pytest.mark.parametrize("seed", range(times(120)))
def test_a_replay_sees_what_the_run_saw_and_async_code_sees_the_same(seed: int) -> None:
    rng = random.Random(seed)
    handles = seed % 3 == 0
    server = PlainServer(handling if handles else plain, new_program(rng), rng)
    before: list[Any] = []
    for number in range(300):
        if number:
            happen(server, rng, number)
        if number == 200:
            server.cancel()
        server.turn()
        if not any(isinstance(event.attributes, e.WorkflowTaskCompleted) for event in server.history.events):
            continue
        now = seen(replayed(server, PlainCode(server.workflow)))
        assert now[: len(before)] == before, "what the code has seen does not change"
        before = now
        canceled = any(isinstance(one.attributes, e.WorkflowExecutionCancelRequested) for one in server.history.events)
        if not handles and not canceled:  # async code hears of a cancel where it goes on, plain code where it waits
            other = replayed(server, AsyncCode(Workflow(waiting, "plain")))
            assert seen(other) == now
            other.drop()  # type: ignore[union-attr]
        if server.closed is not None:
            break
    assert server.closed is not None
