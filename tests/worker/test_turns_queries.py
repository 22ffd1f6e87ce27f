"""Questions to workflow code: answered by the run in memory or by a replay; nothing of it becomes history (SIG-08)."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from perdure.sdk.workflow import workflow
from tests.worker.fake_server import FakeServer
from tests.worker.working import add, multiply, working

pytestmark = pytest.mark.usefixtures("no_pauses")


@workflow(name="async_asked")
async def async_asked(ctx: Any) -> Any:
    status = ["new"]
    ctx.on_query("status", lambda: status[0])
    ctx.on_query("fail", lambda: 1 / 0)
    ctx.on_query("charge", lambda: ctx.start_activity("charge", 1))
    try:
        total = await ctx.step("total", add, 1, 2)
        status[0] = f"total {total}"
        await ctx.wait_for_signal("go")
        return "over"
    finally:
        status[0] = "left"


@workflow(name="plain_asked")
def plain_asked(ctx: Any) -> Any:
    status = ["new"]
    ctx.on_query("status", lambda: status[0])
    ctx.on_query("fail", lambda: 1 / 0)
    ctx.on_query("charge", lambda: ctx.start_activity("charge", 1))
    try:
        total = ctx.step("total", multiply, 1, 3)
        status[0] = f"total {total}"
        ctx.wait_for_signal("go")
        return "over"
    finally:
        status[0] = "left"


both = pytest.mark.parametrize("kind", ["async_asked", "plain_asked"])


@both
async def test_a_run_that_waits_shows_its_state(server: FakeServer, kind: str) -> None:
    async with working(server):
        run = await server.start(kind)
        await server.in_state(run, "WAITING")
        events = len(run.events)
        assert await server.result(await server.query(run, "status")) == "total 3"
        assert len(run.events) == events
        assert bool(server.history_requests) == (kind == "plain_asked")
        await server.signal(run, "go")
        assert (await server.done(run)).result == "over"


@both
async def test_a_run_that_is_not_in_memory_is_replayed(server: FakeServer, kind: str) -> None:
    """SIG-09; the replay is kept for the next question."""
    server.page = 2
    async with working(server):
        run = await server.start(kind)
        await server.in_state(run, "WAITING")
    async with working(server):
        assert await server.result(await server.query(run, "status")) == "total 3"
        asked = len(server.history_requests)
        assert asked > 1
        assert await server.result(await server.query(run, "status")) == "total 3"
        assert (len(server.history_requests) > asked) == (kind == "plain_asked")
        await server.signal(run, "go")
        assert (await server.done(run)).result == "over"
        assert run.names().count("StepStarted") == 1


@both
async def test_a_closed_run_shows_how_it_ended(server: FakeServer, kind: str) -> None:
    """SIG-10."""
    async with working(server):
        run = await server.start(kind)
        await server.in_state(run, "WAITING")
        await server.signal(run, "go")
        await server.done(run)
        assert await server.result(await server.query(run, "status")) == "left"


@both
async def test_an_unknown_question_is_answered_with_those_that_are_known(server: FakeServer, kind: str) -> None:
    async with working(server):
        run = await server.start(kind)
        await server.in_state(run, "WAITING")
        report = await server.reported(await server.query(run, "colour"))
    assert report.failure is not None
    assert (report.outcome, report.failure.code) == ("failed", "unknown_query")
    assert "charge, fail, status" in report.failure.message


@both
async def test_a_handler_that_raises_or_wants_to_change_something(server: FakeServer, kind: str) -> None:
    async with working(server):
        run = await server.start(kind)
        await server.in_state(run, "WAITING")
        report = await server.reported(await server.query(run, "fail"))
        assert report.failure is not None
        assert (report.failure.code, report.failure.type) == ("query_failed", "ZeroDivisionError")
        report = await server.reported(await server.query(run, "charge"))
        assert report.failure is not None
        assert report.failure.type == "ForbiddenError"
        assert await server.result(await server.query(run, "status")) == "total 3"
        await server.signal(run, "go")
        assert (await server.done(run)).result == "over"
        assert not run.failures


async def test_a_question_while_a_step_runs(server: FakeServer) -> None:
    gate = threading.Event()

    @workflow(name="busy")
    async def busy(ctx: Any) -> None:
        status = ["working"]
        ctx.on_query("status", lambda: status[0])
        await ctx.step("slow", gate.wait, 20)

    async with working(server):
        run = await server.start("busy")
        await server.until(lambda: "StepStarted" in run.names())
        assert await server.result(await server.query(run, "status")) == "working"
        gate.set()
        await server.done(run)


async def test_what_is_not_committed_is_not_shown(server: FakeServer) -> None:
    """The result of the step is on its way, and may come to nothing."""
    async with working(server):
        server.gate.clear()
        run = await server.start("async_asked")
        await server.until(lambda: len(server.append_requests) == 1)
        lease = await server.query(run, "status")
        await server.until(lambda: not server._ready)
        assert lease not in server.reports
        server.gate.set()
        assert await server.result(lease) in ("new", "total 3")


async def test_what_the_code_does_just_now_is_not_shown_before_it_counts(server: FakeServer) -> None:
    """SIG-08: a question that came while the code ran was answered by what it did, although that was refused then."""
    computing, gate = threading.Event(), threading.Event()

    @workflow(name="computes")
    async def computes(ctx: Any) -> None:
        status = ["new"]
        ctx.on_query("status", lambda: status[0])
        await ctx.wait_for_signal("go")
        computing.set()
        gate.wait(20)
        status[0] = "gone"
        await ctx.wait_for_signal("never")

    async with working(server, deadlock_seconds=20) as worker:
        run = await server.start("computes")
        await server.in_state(run, "WAITING")
        await server.signal(run, "go")
        await server.until(computing.is_set)
        lease = await server.query(run, "status")
        await server.until(lambda: worker.status().running == 2)
        server.leased.pop(run.lease)  # somebody else has the turn by now
        gate.set()
        assert await server.result(lease) == "new"


async def test_a_question_about_a_workflow_that_nobody_knows(server: FakeServer) -> None:
    run = await server.start("stranger")
    server._ready.clear()
    async with working(server):
        report = await server.reported(await server.query(run, "status"))
    assert report.failure is not None
    assert "no workflow named 'stranger'" in report.failure.message


async def test_a_run_that_has_not_begun_says_so(server: FakeServer) -> None:
    for kind in ("async_asked", "plain_asked"):
        run = await server.start(kind)
        server._ready.clear()
        async with working(server):
            report = await server.reported(await server.query(run, "status"))
        assert report.failure is not None
        assert "has not begun" in report.failure.message


async def test_a_handler_that_hangs(server: FakeServer) -> None:
    @workflow(name="stuck_handler")
    async def stuck_handler(ctx: Any) -> Any:
        def spin() -> None:
            while True:
                pass

        ctx.on_query("spin", spin)
        ctx.on_query("status", lambda: "fine")
        return await ctx.wait_for_signal("go")

    async with working(server, deadlock_seconds=0.2):
        run = await server.start("stuck_handler")
        await server.in_state(run, "WAITING")
        report = await server.reported(await server.query(run, "spin"))
        assert report.failure is not None
        assert report.failure.code == "deadlock"
        assert await server.result(await server.query(run, "status")) == "fine"
        await server.signal(run, "go", 1)
        assert (await server.done(run)).result == 1


async def test_a_handler_of_plain_code_that_hangs(server: FakeServer) -> None:
    @workflow(name="stuck_plain_handler")
    def stuck_plain_handler(ctx: Any) -> Any:
        def spin() -> None:
            while True:
                pass

        ctx.on_query("spin", spin)
        return ctx.wait_for_signal("go")

    async with working(server, deadlock_seconds=0.2) as worker:
        run = await server.start("stuck_plain_handler")
        await server.in_state(run, "WAITING")
        report = await server.reported(await server.query(run, "spin"))
        assert report.failure is not None
        assert report.failure.code == "deadlock"
        await server.until(lambda: worker._threads._busy == 0)
        assert worker.status().running == 0


async def test_a_question_whose_lease_is_lost_is_not_answered(server: FakeServer) -> None:
    gate = threading.Event()

    @workflow(name="slow_handler")
    def slow_handler(ctx: Any) -> Any:
        ctx.on_query("slow", lambda: gate.wait(20))
        return ctx.wait_for_signal("go")

    async with working(server, deadlock_seconds=20) as worker:
        run = await server.start("slow_handler")
        await server.in_state(run, "WAITING")
        lease = await server.query(run, "slow")
        server.actions[lease] = "lost"
        await server.until(lambda: not server._ready)
        await server.until(lambda: worker.status().running == 0)
        gate.set()
        await server.until(lambda: worker._threads._busy == 0)
    assert lease not in server.reports
