"""Turns of plain workflows in a worker."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from perdure.core import events as e
from perdure.core.errors import Unavailable
from perdure.core.model import RetryPolicy
from perdure.core.run import UpdateRequest
from perdure.sdk.converter import from_payloads, to_payloads
from perdure.sdk.logs import RUNNING
from perdure.sdk.workflow import workflow
from tests.worker.fake_server import FakeServer
from tests.worker.working import add, multiply, working

pytestmark = pytest.mark.usefixtures("no_pauses")

threads: list[int] = []


def note(a: int) -> int:
    threads.append(threading.get_ident())
    return a


@workflow
def plain_arithmetic(ctx: Any, n: int) -> int:
    threads.append(threading.get_ident())
    a = ctx.step("add", add, n, 1)
    b = ctx.step("multiply", multiply, a, 10)
    return int(ctx.step("note", note, b)) + 5


@workflow
def plain_approval(ctx: Any) -> Any:
    before = ctx.step("before", multiply, 1, 3)
    answer = ctx.wait_for_signal("approve")
    after = ctx.step("after", multiply, before, answer)
    ctx.sleep("1h")
    return after


async def test_steps_run_in_the_thread_of_the_code(server: FakeServer) -> None:
    """STEP-02, STEP-11: the previous result and the next claim go together."""
    threads.clear()
    async with working(server):
        run = await server.done(await server.start("plain_arithmetic", 3))
    assert run.result == 45
    assert run.names() == [
        "WorkflowExecutionStarted",
        *["StepStarted", "StepCompleted"] * 3,
        "WorkflowExecutionCompleted",
    ]
    assert [len(append.commands) for append in run.appends] == [1, 2, 2, 2]
    assert len(set(threads)) == 1
    assert threads[0] != threading.get_ident()


async def test_many_runs_share_requests(server: FakeServer) -> None:
    async with working(server, slots=100):
        server.gate.clear()
        runs = [await server.start("plain_arithmetic", n) for n in range(50)]
        await server.until(lambda: bool(server.append_requests) and not server._ready)
        server.gate.set()
        for n, run in enumerate(runs):
            assert (await server.done(run)).result == (n + 1) * 10 + 5
    assert len(server.append_requests) < 150


async def test_a_run_that_waits_has_no_thread_and_no_slot(server: FakeServer) -> None:
    """STEP-16, STEP-17, STEP-03: it runs from the top again, and what it did is in the history."""
    async with working(server, slots=1) as worker:
        run = await server.start("plain_approval")
        await server.in_state(run, "WAITING")
        await server.until(lambda: worker._threads._busy == 0)
        assert worker.status().running == 0
        await server.done(await server.start("plain_arithmetic", 1))
        run.known = False
        await server.signal(run, "approve", 4)
        await server.until(lambda: "TimerStarted" in run.names() and run.state == "WAITING")
        await server.fire(run)
        assert (await server.done(run)).result == 12
    assert run.names().count("StepStarted") == 2


async def test_a_server_that_leaves_out_what_it_thinks_known_is_asked(server: FakeServer) -> None:
    async with working(server):
        run = await server.start("plain_approval")
        await server.in_state(run, "WAITING")
        await server.signal(run, "approve", 4)
        await server.until(lambda: "TimerStarted" in run.names() and run.state == "WAITING")
        await server.fire(run)
        assert (await server.done(run)).result == 12
    assert len(server.history_requests) == 2


async def test_except_exception_does_not_catch_the_suspension(server: FakeServer) -> None:
    left: list[str] = []

    @workflow(name="careful")
    def careful(ctx: Any) -> str:
        try:
            ctx.sleep("1d")
        except Exception:  # noqa: BLE001
            return "caught"
        finally:
            left.append("unwound")
        return "slept"

    async with working(server):
        run = await server.start("careful")
        await server.in_state(run, "WAITING")
        assert left == ["unwound"]
        await server.fire(run)
        assert (await server.done(run)).result == "slept"


@pytest.mark.parametrize("how", ["returns", "raises", "goes_on", "finally"])
async def test_code_that_swallows_the_suspension_fails_its_turn(server: FakeServer, how: str) -> None:
    @workflow(name="careless")
    def careless(ctx: Any) -> str:
        try:
            ctx.sleep("1d")
        except:  # noqa: E722
            if how == "raises":
                raise ValueError("something") from None
            if how == "goes_on":
                ctx.step("more", multiply, 1, 1)
        finally:
            if how == "finally":
                return "left"  # noqa: B012
        return "done"

    async with working(server):
        run = await server.start("careless")
        await server.until(lambda: run.state in ("STUCK", "WAITING"))
        if how == "goes_on":  # the next wait unwound it
            assert run.state == "WAITING"
            return
        failure = run.failures[0].failure
        assert failure is not None
        assert failure.code == "turn_failed"
        assert failure.type == "SwallowedError"
        assert "never a bare `except`" in failure.message
    assert not run.appends


async def test_code_that_never_stops_swallowing_fails_its_turn_too(server: FakeServer) -> None:
    @workflow(name="hopeless")
    def hopeless(ctx: Any) -> None:
        while True:
            try:
                ctx.sleep("1d")
            except BaseException:  # noqa: BLE001
                continue

    async with working(server):
        run = await server.start("hopeless")
        await server.in_state(run, "STUCK")
        failure = run.failures[0].failure
        assert failure is not None
        assert failure.type == "SwallowedError"


async def test_a_step_whose_worker_died_is_tried_again_with_its_number(server: FakeServer) -> None:
    """STEP-12."""
    attempts: list[int] = []
    gate = threading.Event()

    def charge() -> str:
        ctx = RUNNING.get()
        assert ctx is not None
        attempts.append(ctx.attempt)
        gate.wait(20)
        return "charged"

    @workflow(name="plain_charging")
    def charging(ctx: Any) -> Any:
        return ctx.step("charge", charge)

    async with working(server):
        run = await server.start("plain_charging")
        await server.until(lambda: attempts == [1])
        await server.take_away(run)
        await server.until(lambda: attempts == [1, 2])
        gate.set()
        assert (await server.done(run)).result == "charged"
    assert [started.attempt for started in run.of(e.StepStarted)] == [1, 2]
    assert len(run.of(e.StepCompleted)) == 1


async def test_lost_answers_change_nothing(server: FakeServer) -> None:
    async with working(server):
        server.lost_answers = 1
        server.append_faults = [Unavailable("away")]
        run = await server.start("plain_arithmetic", 3)
        await server.until(lambda: not server.lost_answers)
        server.lost_answers = 2
        assert (await server.done(run)).result == 45
    assert run.names().count("StepStarted") == 3


async def test_a_failed_step_is_tried_again_after_its_timer(server: FakeServer) -> None:
    def flaky() -> str:
        ctx = RUNNING.get()
        assert ctx is not None
        if ctx.attempt < 2:
            raise ValueError("not yet")
        return "done"

    @workflow(name="plain_flaking")
    def flaking(ctx: Any) -> Any:
        return ctx.step("flaky", flaky, retries=RetryPolicy(max_attempts=3, delays=(5.0,)))

    async with working(server):
        run = await server.start("plain_flaking")
        await server.in_state(run, "WAITING")
        await server.fire(run)
        assert (await server.done(run)).result == "done"
    assert [started.attempt for started in run.of(e.StepStarted)] == [1, 2]


@pytest.mark.parametrize("function", [add, multiply])
async def test_parallel_steps_run_at_once_and_keep_their_order(server: FakeServer, function: Any) -> None:
    """STEP-28."""

    @workflow(name="fanning")
    def fanning(ctx: Any) -> Any:
        return ctx.parallel("fan", [(function, n, 2) for n in range(10)])

    async with working(server):
        run = await server.done(await server.start("fanning"))
    assert run.result == [n + 2 if function is add else n * 2 for n in range(10)]
    assert len(run.appends[0].commands) == 10


async def test_a_step_with_a_time_out(server: FakeServer) -> None:
    gate = threading.Event()

    @workflow(name="timing")
    def timing(ctx: Any) -> Any:
        try:
            ctx.step("slow", gate.wait, 20, timeout=0.02, retries=0)
        except Exception as error:  # noqa: BLE001
            return str(error)

    async with working(server):
        run = await server.done(await server.start("timing"))
        assert "time-out of 0.02 s" in run.result
        gate.set()


async def test_a_cancel_comes_as_an_exception(server: FakeServer) -> None:
    """CANC-10."""

    @workflow(name="plain_cleaning")
    def cleaning(ctx: Any) -> None:
        try:
            ctx.sleep("1d")
        finally:
            ctx.step("clean up", multiply, 1, 1)

    async with working(server):
        run = await server.start("plain_cleaning")
        await server.in_state(run, "WAITING")
        assert "StepStarted" not in run.names()
        await server.post(run, e.WorkflowExecutionCancelRequested(cause="enough"))
        await server.done(run)
    assert run.state == "CANCELED"
    assert run.names()[-5:] == [
        "WorkflowExecutionCancelRequested",
        "TimerCanceled",
        "StepStarted",
        "StepCompleted",
        "WorkflowExecutionCanceled",
    ]


async def test_handlers_are_called_where_the_code_waits(server: FakeServer) -> None:
    @workflow(name="plain_cart")
    class Cart:
        def __init__(self) -> None:
            self.items: list[str] = []

        def run(self, ctx: Any) -> Any:
            ctx.wait_condition(lambda: len(self.items) == 3)
            return self.items

        @workflow.signal
        def put(self, item: str) -> None:
            self.items.append(item)

        @workflow.update
        def take(self, item: str) -> int:
            self.items.append(item)
            return len(self.items)

        @take.validator  # type: ignore[untyped-decorator]
        def check(self, item: str) -> None:
            if item == "bomb":
                raise ValueError("no bombs")

    def update(id: str, item: str) -> UpdateRequest:
        return UpdateRequest(update_id=id, task_id=id.encode(), name="take", input=to_payloads(item, "input"))

    async with working(server):
        run = await server.start("plain_cart")
        await server.in_state(run, "WAITING")
        await server.signal(run, "put", "a")
        await server.in_state(run, "WAITING")
        await server.post(run, update("u1", "bomb"), update("u2", "b"))
        await server.until(lambda: bool(run.of(e.WorkflowExecutionUpdateCompleted)) and run.state == "WAITING")
        await server.signal(run, "put", "c")
        assert (await server.done(run)).result == ["a", "b", "c"]
    (completed,) = run.of(e.WorkflowExecutionUpdateCompleted)
    assert from_payloads(completed.result, "result") == 2


async def test_messages_that_arrive_while_it_closes_are_seen_first(server: FakeServer) -> None:
    """unhandled_messages, and the step that ended last does not run again."""

    @workflow(name="plain_listening")
    def listening(ctx: Any) -> Any:
        seen: list[Any] = []
        ctx.on_signal("tell", seen.append)
        ctx.step("one", multiply, 1, 1)
        return seen

    async with working(server):
        server.gate.clear()
        run = await server.start("plain_listening")
        await server.until(lambda: bool(server.append_requests))
        await server.signal(run, "tell", "late")
        server.gate.set()
        assert (await server.done(run)).result == ["late"]
    assert run.turns == 2
    assert [started.attempt for started in run.of(e.StepStarted)] == [1]


async def test_code_that_hangs_fails_its_turn(server: FakeServer) -> None:
    hang = [True]

    @workflow(name="plain_hanging")
    def hanging(ctx: Any) -> str:
        while hang[0]:
            pass
        return "free"

    async with working(server, deadlock_seconds=0.2) as worker:
        run = await server.start("plain_hanging")
        await server.in_state(run, "STUCK")
        failure = run.failures[0].failure
        assert failure is not None
        assert failure.code == "deadlock"
        assert "in hanging" in failure.message
        await server.until(lambda: worker._threads._busy == 0)  # it was ended in its thread
        hang[0] = False
        await server.retry_turn(run)
        assert (await server.done(run)).result == "free"


async def test_a_step_that_takes_long_is_no_hanging_code(server: FakeServer) -> None:
    @workflow(name="patient")
    def patient(ctx: Any) -> Any:
        return ctx.step("slow", threading.Event().wait, 0.5)

    async with working(server, deadlock_seconds=0.1):
        assert (await server.done(await server.start("patient"))).result is False


async def test_code_that_differs_from_the_history_fails_the_turn(server: FakeServer) -> None:
    """STEP-05, STEP-06: before anything runs."""
    name = ["before"]
    ran: list[str] = []

    @workflow(name="plain_changing")
    def changing(ctx: Any) -> Any:
        ctx.step(name[0], ran.append, name[0])
        return ctx.wait_for_signal("go")

    async with working(server):
        run = await server.start("plain_changing")
        await server.in_state(run, "WAITING")
        name[0] = "after"
        await server.signal(run, "go", 1)
        await server.in_state(run, "STUCK")
        failure = run.failures[0].failure
        assert failure is not None
        assert failure.code == "non_determinism"
        assert __file__ in failure.message
        assert ran == ["before"]


async def test_a_workflow_that_raises_fails_its_run(server: FakeServer) -> None:
    @workflow(name="plain_raising")
    def raising(ctx: Any) -> None:
        raise ValueError("no such order")

    async with working(server):
        run = await server.done(await server.start("plain_raising"))
    assert run.state == "FAILED"
    assert run.outcome.failure.message == "no such order"
    assert "in raising" in run.outcome.failure.stack
    assert "perdure/worker" not in run.outcome.failure.stack


async def test_sleeping_for_real_is_refused(server: FakeServer) -> None:
    import time

    @workflow(name="plain_sleeper")
    def sleeper(ctx: Any) -> None:
        time.sleep(1)

    @workflow(name="step_sleeper")
    def step_sleeper(ctx: Any) -> Any:
        return ctx.step("nap", time.sleep, 0.001)

    async with working(server):
        run = await server.start("plain_sleeper")
        await server.in_state(run, "STUCK")
        assert (await server.done(await server.start("step_sleeper"))).result is None


async def test_a_drain_lets_the_step_end_and_hands_the_turn_back(server: FakeServer) -> None:
    inside, gate = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slow() -> str:
        loop.call_soon_threadsafe(inside.set)
        gate.wait(20)
        return "slow"

    @workflow(name="plain_leaving")
    def leaving(ctx: Any) -> Any:
        first = ctx.step("slow", slow)
        return [first, ctx.step("next", multiply, 2, 2)]

    async with working(server) as worker:
        run = await server.start("plain_leaving")
        await inside.wait()
        worker.drain()
        gate.set()
        await server.in_state(run, "RELEASED")
    assert [completion.outcome for completion in run.failures] == ["released"]
    assert len(run.of(e.StepCompleted)) == 1
    async with working(server):
        await server._enqueue(run)
        assert (await server.done(run)).result == ["slow", 4]
    assert len(run.of(e.StepCompleted)) == 2
