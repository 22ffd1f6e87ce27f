"""Turns of async workflows in a worker, against a server that a test can hold and break."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure.core import events as e
from perdure.core import turn_commands as t
from perdure.core.errors import InvalidArgument, Unavailable
from perdure.core.model import RetryPolicy
from perdure.sdk.converter import from_payloads
from perdure.sdk.logs import RUNNING
from perdure.sdk.task import task
from perdure.sdk.workflow import workflow
from perdure.sdk.workflow_errors import StepError
from tests.worker.fake_server import FakeServer
from tests.worker.working import add, multiply, working

pytestmark = pytest.mark.usefixtures("no_pauses")


@workflow
async def arithmetic(ctx: Any, n: int) -> int:
    a = await ctx.step("add", add, n, 1)
    b = await ctx.step("multiply", multiply, a, 10)
    return await ctx.step("add again", add, b, 5)


@workflow
async def approval(ctx: Any, _: Any) -> Any:
    before = await ctx.step("before", add, 1, 2)
    answer = await ctx.wait_for_signal("approve")
    after = await ctx.step("after", add, before, answer)
    await ctx.sleep("1h")
    return after


async def test_steps_run_here_and_each_costs_one_append(server: FakeServer) -> None:
    """STEP-02, STEP-11: the previous result and the next claim go together."""
    async with working(server):
        run = await server.done(await server.start("arithmetic", 3))
    assert run.result == 45
    assert run.names() == [
        "WorkflowExecutionStarted",
        *["StepStarted", "StepCompleted"] * 3,
        "WorkflowExecutionCompleted",
    ]
    assert [len(append.commands) for append in run.appends] == [1, 2, 2, 2]
    assert [append.final for append in run.appends] == [False, False, False, True]
    assert all(poll.turns for poll in server.polls)


async def test_many_runs_share_requests(server: FakeServer) -> None:
    async with working(server, slots=100):
        server.gate.clear()
        runs = [await server.start("arithmetic", n) for n in range(50)]
        await server.until(lambda: bool(server.append_requests) and not server._ready)
        server.gate.set()
        for n, run in enumerate(runs):
            assert (await server.done(run)).result == (n + 1) * 10 + 5
    assert len(server.append_requests) < 80


async def test_a_run_that_waits_is_kept_and_sees_only_what_is_new(server: FakeServer) -> None:
    async with working(server, slots=1) as worker:
        run = await server.start("approval")
        await server.in_state(run, "WAITING")
        other = await server.start("arithmetic", 1)  # a run that waits takes no slot
        await server.done(other)
        await server.signal(run, "approve", 4)
        await server.until(lambda: "TimerStarted" in run.names())
        await server.in_state(run, "WAITING")
        await server.fire(run)
        assert (await server.done(run)).result == 7
        assert worker.status().running == 0
    assert run.turns == 3
    assert server.history_requests == []


@pytest.mark.parametrize("lazy", [False, True])
async def test_without_the_run_in_memory_it_is_replayed(server: FakeServer, lazy: bool) -> None:
    """RPLY: from the history in the delivery, or, when that is long, read page by page."""
    server.lazy, server.page = lazy, 2
    async with working(server):
        run = await server.start("approval")
        await server.in_state(run, "WAITING")
    server.actions.clear()
    run.known = False
    async with working(server):
        await server.signal(run, "approve", 4)
        await server.until(lambda: "TimerStarted" in run.names())
        await server.in_state(run, "WAITING")
        await server.fire(run)
        assert (await server.done(run)).result == 7
    assert bool(server.history_requests) == lazy
    assert run.names().count("StepStarted") == 2


async def test_a_server_that_believes_too_much_is_asked(server: FakeServer) -> None:
    """The run was dropped from memory, and the delivery holds only what is new."""
    async with working(server):
        run = await server.start("approval")
        await server.in_state(run, "WAITING")
    async with working(server):
        await server.signal(run, "approve", 4)
        await server.until(lambda: "TimerStarted" in run.names())
        await server.in_state(run, "WAITING")
        await server.fire(run)
        assert (await server.done(run)).result == 7
    assert len(server.history_requests) == 1


async def test_lost_answers_change_nothing(server: FakeServer) -> None:
    """C/F1: an append that was committed and not answered is sent again, and recognized."""
    async with working(server):
        server.lost_answers = 1
        run = await server.start("arithmetic", 3)
        await server.until(lambda: not server.lost_answers)
        server.lost_answers = 2
        server.append_faults = [Unavailable("away"), Unavailable("away")]
        assert (await server.done(run)).result == 45
    assert run.names().count("StepStarted") == 3
    assert len(server.append_requests) > len(run.appends)


async def test_a_step_whose_worker_died_is_tried_again_with_its_number(server: FakeServer) -> None:
    """STEP-12: the claim by the dead lease is there, and no result."""
    attempts: list[int] = []
    gate = asyncio.Event()

    async def charge() -> str:
        ctx = RUNNING.get()
        assert ctx is not None
        attempts.append(ctx.attempt)
        await gate.wait()
        return "charged"

    @workflow(name="charging")
    async def charging(ctx: Any) -> Any:
        return await ctx.step("charge", charge)

    async with working(server):
        run = await server.start("charging")
        await server.until(lambda: attempts == [1])
        await server.take_away(run)
        await server.until(lambda: attempts == [1, 2])
        gate.set()
        assert (await server.done(run)).result == "charged"
    assert [started.attempt for started in run.of(e.StepStarted)] == [1, 2]
    assert len(run.of(e.StepCompleted)) == 1


async def test_a_failed_step_is_tried_again_after_its_timer(server: FakeServer) -> None:
    seen: list[int] = []

    def flaky() -> str:
        ctx = RUNNING.get()
        assert ctx is not None
        seen.append(ctx.attempt)
        if ctx.attempt < 3:
            raise ValueError("not yet")
        return "done"

    @workflow(name="flaking")
    async def flaking(ctx: Any) -> Any:
        return await ctx.step("flaky", flaky, retries=RetryPolicy(max_attempts=3, delays=(5.0,)))

    async with working(server):
        run = await server.start("flaking")
        for _ in range(2):
            await server.in_state(run, "WAITING")
            await server.fire(run)
        assert (await server.done(run)).result == "done"
    assert seen == [1, 2, 3]
    assert [timer.timer_id for timer in run.of(e.TimerStarted)] == ["step:1:1", "step:1:2"]
    assert [(failed.attempt, failed.retry_in is not None) for failed in run.of(e.StepFailed)] == [(1, True), (2, True)]


async def test_steps_at_once_and_results_in_their_order(server: FakeServer) -> None:
    gates = [asyncio.Event() for _ in range(3)]

    async def wait_for(n: int) -> int:
        await gates[n].wait()
        return n

    order: list[int] = []

    @workflow(name="three")
    async def three(ctx: Any) -> Any:
        async def one(n: int) -> int:
            found: int = await ctx.step(f"s{n}", wait_for, n)
            order.append(found)
            return found

        return await asyncio.gather(*(one(n) for n in range(3)))

    async with working(server):
        run = await server.start("three")
        for n in (2, 0, 1):
            await server.until(lambda n=n: len(run.of(e.StepCompleted)) == [2, 0, 1].index(n))  # type: ignore[misc]
            gates[n].set()
        assert (await server.done(run)).result == [0, 1, 2]
    assert order == [2, 0, 1]
    assert len(run.appends[0].commands) == 3
    assert len(run.appends) == 4


async def test_steps_that_end_together_are_all_seen(server: FakeServer) -> None:
    @workflow(name="crowd")
    async def crowd(ctx: Any) -> Any:
        return await ctx.parallel("fan", [(multiply, n, 2) for n in range(200)])

    async with working(server):
        run = await server.done(await server.start("crowd"))
    assert run.result == [n * 2 for n in range(200)]
    assert len(run.appends) < 100


@pytest.mark.parametrize("kind", ["misfit", "plain_misfit"])
async def test_a_step_that_cannot_begin_fails(server: FakeServer, kind: str) -> None:
    """A payload that cannot be encoded is the fault of the step, and not of the turn."""

    @task(name="takes_json")
    async def takes_json(ctx: Any, payload: Any) -> None: ...

    @workflow(name="misfit")
    async def misfit(ctx: Any) -> Any:
        bad = [ctx.step(f"s{n}", takes_json, object(), retries=0) for n in range(2)]
        errors = await asyncio.gather(*bad, return_exceptions=True)
        return [error.failure.code for error in errors]

    @workflow(name="plain_misfit")
    def plain_misfit(ctx: Any) -> Any:
        codes = []
        for n in range(2):
            try:
                ctx.step(f"s{n}", takes_json, object())
            except StepError as error:
                codes.append(error.failure.code)
        return codes

    async with working(server):
        run = await server.done(await server.start(kind))
    assert run.result == ["unencodable_payload"] * 2


async def test_activities_are_left_to_others(server: FakeServer) -> None:
    @workflow(name="shipping")
    async def shipping(ctx: Any, city: str) -> Any:
        return await ctx.execute_activity("ship", city)

    async with working(server):
        run = await server.start("shipping", "Ulm")
        await server.in_state(run, "WAITING")
        (scheduled,) = run.of(e.ActivityTaskScheduled)
        assert from_payloads(scheduled.input, "input") == "Ulm"
        await server.complete_activity(run, scheduled.activity_id, "sent")
        assert (await server.done(run)).result == "sent"


async def test_a_workflow_that_raises_fails_its_run(server: FakeServer) -> None:
    @workflow(name="raising")
    async def raising(ctx: Any) -> None:
        raise ValueError("no such order")

    async with working(server):
        run = await server.done(await server.start("raising"))
    assert run.state == "FAILED"
    assert run.outcome.failure.message == "no such order"
    assert not run.failures


async def test_a_cancel_comes_as_an_exception(server: FakeServer) -> None:
    """CANC-10."""

    @workflow(name="cleaning")
    async def cleaning(ctx: Any) -> None:
        try:
            await ctx.sleep("1d")
        finally:
            await ctx.step("clean up", add, 1, 1)

    async with working(server):
        run = await server.start("cleaning")
        await server.in_state(run, "WAITING")
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


async def test_an_unknown_workflow_fails_the_turn_and_not_the_run(server: FakeServer) -> None:
    async with working(server):
        run = await server.start("nobody_knows_it")
        await server.in_state(run, "STUCK")
    (completion,) = run.failures
    assert completion.failure is not None
    assert completion.failure.code == "unknown_workflow"
    assert "arithmetic" in completion.failure.message


async def test_code_that_differs_from_the_history_fails_the_turn(server: FakeServer) -> None:
    """RPLY-10: the run stays open, and goes on when the code was mended."""
    name = ["before"]

    @workflow(name="changing")
    async def changing(ctx: Any) -> Any:
        await ctx.step(name[0], add, 1, 1)
        return await ctx.wait_for_signal("go")

    async with working(server):
        run = await server.start("changing")
        await server.in_state(run, "WAITING")
        run.known = False
        name[0] = "after"
    async with working(server):
        await server.signal(run, "go", 1)
        await server.in_state(run, "STUCK")
        failure = run.failures[0].failure
        assert failure is not None
        assert failure.code == "non_determinism"
        assert __file__ in failure.message
        assert len(run.of(e.StepStarted)) == 1
        name[0] = "before"
        await server.retry_turn(run)
        assert (await server.done(run)).result == 1


async def test_messages_that_arrive_while_it_closes_are_seen_first(server: FakeServer) -> None:
    """unhandled_messages: the run is not closed, its code sees them. The step that ended last does not run again."""
    seen: list[Any] = []

    @workflow(name="listening")
    async def listening(ctx: Any) -> Any:
        ctx.on_signal("tell", seen.append)
        await ctx.step("one", add, 1, 1)
        return list(seen)

    async with working(server):
        server.gate.clear()
        run = await server.start("listening")
        await server.until(lambda: bool(server.append_requests))
        await server.signal(run, "tell", "late")
        server.gate.set()
        assert (await server.done(run)).result == ["late"]
    assert run.turns == 2
    assert len(run.of(e.StepStarted)) == 1


async def test_an_append_that_the_server_refuses_fails_the_turn(server: FakeServer) -> None:
    async with working(server):
        server.append_faults = [InvalidArgument("too many commands", field="commands")]
        run = await server.start("arithmetic", 1)
        await server.in_state(run, "STUCK")
        failure = run.failures[0].failure
        assert failure is not None
        assert (failure.code, failure.message) == ("invalid_argument", "too many commands")
        await server.retry_turn(run)
        assert (await server.done(run)).result == 25


async def test_code_that_hangs_fails_its_turn_and_no_other(server: FakeServer) -> None:
    """The deadlock detector: file and line, and the other runs go on."""
    hang = [True]

    @workflow(name="hanging")
    async def hanging(ctx: Any) -> str:
        while hang[0]:
            pass
        return "free"

    async with working(server, deadlock_seconds=0.2):
        run = await server.start("hanging")
        other = await server.start("arithmetic", 1)
        assert (await server.done(other)).result == 25
        await server.in_state(run, "STUCK")
        failure = run.failures[0].failure
        assert failure is not None
        assert failure.code == "deadlock"
        assert f"{__file__}:" in failure.message
        assert "in hanging" in failure.message
        hang[0] = False
        await server.retry_turn(run)
        assert (await server.done(run)).result == "free"


async def test_longest_unused_runs_leave_the_memory(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async with working(server) as worker:
        worker._turns.instances._most = 2
        runs = [await server.start("approval") for _ in range(4)]
        for run in runs:
            await server.in_state(run, "WAITING")
        assert len(worker._turns.instances) == 2
        for run in runs:
            await server.signal(run, "approve", 1)
            await server.until(lambda run=run: "TimerStarted" in run.names())  # type: ignore[misc]
            await server.in_state(run, "WAITING")
    assert len({request.run_id for request in server.history_requests}) >= 2


async def test_continue_as_new_ends_the_run(server: FakeServer) -> None:
    @workflow(name="counting")
    async def counting(ctx: Any, n: int) -> None:
        await ctx.step("one", add, n, 1)
        ctx.continue_as_new(n + 1)

    async with working(server):
        run = await server.done(await server.start("counting", 1))
    assert run.state == "CONTINUED_AS_NEW"
    assert from_payloads(run.outcome.input, "input") == 2
    assert type(run.appends[-1].commands[-1]) is t.ContinueAsNew


async def test_a_drain_lets_steps_end_and_hands_the_turn_back(server: FakeServer) -> None:
    """No failure, no lost result; the next worker sees the step that was claimed last as one that may have run."""
    inside, gate = asyncio.Event(), asyncio.Event()

    async def slow() -> str:
        inside.set()
        await gate.wait()
        return "slow"

    @workflow(name="leaving")
    async def leaving(ctx: Any) -> Any:
        first = await ctx.step("slow", slow)
        return [first, await ctx.step("next", add, 2, 2)]

    async with working(server) as worker:
        run = await server.start("leaving")
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


async def test_a_drain_interrupts_steps_that_take_longer(server: FakeServer) -> None:
    seen: list[str] = []

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("interrupted")

    @workflow(name="enduring")
    async def enduring(ctx: Any) -> Any:
        await ctx.step("endless", endless)

    async with working(server, drain_seconds=0.05):
        run = await server.start("enduring")
        await server.until(lambda: "StepStarted" in run.names())
    assert run.state == "RELEASED"
    assert seen == ["interrupted"]


async def test_a_turn_that_began_before_the_drain_is_finished(server: FakeServer) -> None:
    async with working(server) as worker:
        server.gate.clear()
        run = await server.start("approval")
        other = await server.start("resting")
        await server.until(lambda: bool(server.append_requests) and not server._ready)
        worker.drain()
        server.gate.set()
        await server.in_state(other, "WAITING")
        await server.in_state(run, "RELEASED")


@workflow
async def resting(ctx: Any) -> None:
    await ctx.sleep("1d")
