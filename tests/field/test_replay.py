"""Field cases on replay: code that must do the same again, and runs whose code does not."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from perdure import AsyncPerdure, FatalError, RetryPolicy, StepError, TaskFailed, TaskTerminated, workflow
from perdure.core.events import WorkflowTaskFailed
from perdure.core.workflow_messages import WorkflowView
from perdure.sdk.definition import Workflow
from perdure.worker.replay import Replayer
from tests.field.flows import found, names, one_store, shows, waits


def stuck(view: WorkflowView) -> bool:
    return view.stuck


@pytest.mark.parametrize("style", ["async", "plain"])
async def test_b041_a_finished_run_is_not_entered_again(app: AsyncPerdure, style: str) -> None:
    """The same id again, by each policy that allows no second run; by handles, and after a restart of the worker: the
    stored result, and no line of the code."""
    entered: list[str] = []

    @workflow(name="once")
    async def once(ctx: Any) -> str:
        entered.append("body")
        return await ctx.step("work", lambda: "result")

    @workflow(name="plain once")
    def plain_once(ctx: Any) -> str:
        entered.append("body")
        return ctx.step("work", lambda: "result")

    flow = once if style == "async" else plain_once
    async with app.worker():
        assert await app.execute_workflow(flow, id="one", timeout=10) == "result"
    entered.clear()
    async with app.worker():
        for reuse in ("reject_duplicate", "allow_duplicate_failed_only"):
            with pytest.raises(Exception, match="one") as caught:
                await app.start_workflow(flow, id="one", id_reuse=reuse)  # type: ignore[arg-type]
            assert type(caught.value).__name__ == "WorkflowAlreadyStarted"
        assert await app.get_workflow_handle("one").result(10) == "result"
    assert entered == []


@one_store
async def test_b088_an_update_is_handled_where_it_came(app: AsyncPerdure) -> None:
    """A signal starts a step, that one completes, an update starts a second one: another worker replays it in this
    order. With other histories: tests/replay/test_messages.py."""

    @workflow(name="ordered")
    async def ordered(ctx: Any) -> list[str]:
        seen: list[str] = []

        async def on_signal(value: str) -> None:
            seen.append(f"signal {value}")
            seen.append(await ctx.step("one", lambda: "first"))

        async def on_update(value: str) -> list[str]:
            seen.append(f"update {value}")
            seen.append(await ctx.step("two", lambda: "second"))
            return list(seen)

        ctx.on_signal("go", on_signal)
        ctx.on_update("set", on_update)
        await ctx.wait_for_signal("end")
        return seen

    expected = ["signal a", "first", "update b", "second"]
    run = await app.start_workflow(ordered)
    async with app.worker():
        await run.signal("go", "a")
        await waits(run)
        assert await run.update("set", "b", timeout=10) == expected
    async with app.worker():  # which has nothing in memory
        await run.signal("end")
        assert await run.result(10) == expected
    assert str(Replayer().replay(await run.history())).startswith("compatible")


@one_store
@pytest.mark.parametrize("style", ["async", "plain"])
async def test_b108_what_was_raised_is_what_everybody_sees(app: AsyncPerdure, style: str) -> None:
    """One of ten steps fails after its retries, a step raises in a `finally` block, the code itself raises: type and
    message reach the caller, whole, and no error of the engine takes their place."""
    no_pause = RetryPolicy(max_attempts=2, base=0.001)

    class CardDeclined(Exception):
        pass

    def charge(n: int) -> int:
        if n == 7:
            raise CardDeclined(f"card {n}")
        return n

    def clean() -> None:
        try:
            raise ValueError("in the block")
        finally:
            raise OSError("in finally")

    @workflow(name="b108")
    async def flow(ctx: Any, what: str) -> Any:
        if what == "fan":
            return await ctx.parallel("fan", [(charge, n) for n in range(10)], retries=no_pause)
        if what == "finally":
            return await ctx.step("clean", clean, retries=0)
        raise CardDeclined("by the code")

    @workflow(name="plain b108")
    def plain_flow(ctx: Any, what: str) -> Any:
        if what == "fan":
            return ctx.parallel("fan", [(charge, n) for n in range(10)], retries=no_pause)
        if what == "finally":
            return ctx.step("clean", clean, retries=0)
        raise CardDeclined("by the code")

    async with app.worker():
        for what, expected in (
            ("fan", [("StepError", "card 7"), ("CardDeclined", "card 7")]),
            ("finally", [("StepError", "in finally"), ("OSError", "in finally"), ("ValueError", "in the block")]),
            ("code", [("CardDeclined", "by the code")]),
        ):
            run = await app.start_workflow(flow if style == "async" else plain_flow, what)
            with pytest.raises(TaskFailed, match=expected[0][1]) as caught:
                await run.result(10)
            failure = caught.value.failure
            assert failure == (await run.describe()).failure
            for kind, message in expected:
                assert failure is not None
                assert failure.type == kind
                assert message in failure.message
                failure = failure.cause
            assert failure is None
            assert await found(run, WorkflowTaskFailed) == []


@one_store
async def test_b109_many_replays_at_once(app: AsyncPerdure) -> None:
    """50 open runs of 60 steps each meet a new worker at once: all go on, and none is taken for blocked. Three that do
    block meanwhile give their slots back."""
    block = threading.Event()

    async def nothing() -> None: ...

    @workflow(name="long")
    async def long(ctx: Any) -> str:
        for _ in range(60):
            await ctx.step("step", nothing)
        await ctx.wait_for_signal("go")
        return "done"

    @workflow(name="blocks")
    async def blocks(ctx: Any) -> str:
        await ctx.wait_for_signal("go")
        while not block.is_set():
            pass
        return "done"

    async with app.worker():
        runs = [await app.start_workflow(long) for _ in range(50)]
        blocked = [await app.start_workflow(blocks) for _ in range(3)]
        for run in (*runs, *blocked):
            await waits(run)
    async with app.worker(slots=4, deadlock_seconds=0.7):
        for run in (*blocked, *runs):
            await run.signal("go")
        assert await asyncio.gather(*(run.result(40) for run in runs)) == ["done"] * 50
        for run in blocked:
            view = await shows(run, stuck)
            assert view.failure is not None
            assert view.failure.code == "deadlock"
        for run in runs:
            assert await found(run, WorkflowTaskFailed) == []
        block.set()
        assert await asyncio.gather(*(run.result(40) for run in blocked)) == ["done"] * 3


@one_store
async def test_b110_a_run_that_cannot_go_on_is_parked_and_disturbs_nobody(app: AsyncPerdure) -> None:
    """One that diverges, one whose input cannot be read, one whose result is too big (B133): each is stuck with its
    reason, is tried again less and less often, and may be ended (B111) or goes on with mended code. 30 healthy ones do
    not notice."""

    async def before(ctx: Any, payload: Any) -> str:
        await ctx.step("one", lambda: 1)
        await ctx.wait_for_signal("go")
        return "before"

    async def diverges(ctx: Any, payload: Any) -> str:
        await ctx.step("other", lambda: 1)
        await ctx.wait_for_signal("go")
        return "never"

    async def reads(ctx: Any, payload: int) -> str:
        await ctx.wait_for_signal("go")
        return "never"

    async def answers(ctx: Any, payload: Any) -> str:
        await ctx.step("one", lambda: 1)
        await ctx.wait_for_signal("go")
        return "x" * 300_000

    async def healthy(ctx: Any) -> int:
        return await ctx.step("one", lambda: 1)

    poison = {"diverges": diverges, "reads": reads, "answers": answers}
    async with app.worker(workflows=[Workflow(before, name) for name in poison]):
        runs = {name: await app.start_workflow(name, "text") for name in poison}
        for run in runs.values():
            await waits(run)
    async with app.worker(workflows=[*(Workflow(code, name) for name, code in poison.items()), Workflow(healthy, "h")]):
        for run in runs.values():
            await run.signal("go")
        views = {name: await shows(run, stuck) for name, run in runs.items()}
        others = [await app.start_workflow("h") for _ in range(30)]
        assert await asyncio.gather(*(other.result(5) for other in others)) == [1] * 30
        reasons = {name: view.failure.message for name, view in views.items() if view.failure is not None}
        assert "expected StepStarted (name 'one', step_id 1), found StepStarted (name 'oth" in reasons["diverges"]
        assert "input: Expected `int`, got `str`" in reasons["reads"]
        assert "result has 300020 bytes; the limit is 262144 bytes" in reasons["answers"]
        for view in views.values():
            assert (view.status, view.state) == ("RUNNING", "RETRY_WAIT")
            assert "which failed 1 times in a row" in view.waiting_for
            assert view.next_event_at is not None
        await asyncio.gather(*(shows(run, lambda view: view.failed_turns == 2) for run in runs.values()))
        await runs["diverges"].terminate("hopeless")
        with pytest.raises(TaskTerminated, match="hopeless"):
            await runs["diverges"].result(5)
        assert len(await found(runs["diverges"], WorkflowTaskFailed)) == 1, (
            "the first of a row, for the others are alike"
        )
        assert (await names(runs["diverges"]))[-1] == "WorkflowExecutionTerminated"
    async with app.worker(workflows=[Workflow(before, name) for name in poison]):
        for name in ("reads", "answers"):
            assert await runs[name].result(20) == "before"


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
async def test_b120_a_run_waits_for_the_version_that_it_can_go_on_with(app: AsyncPerdure) -> None:
    """Its worker is gone, and the next one has other code: shown with the reason; a third one with the right code goes
    on by itself."""

    async def first(ctx: Any) -> str:
        bank = ctx.version("bank", 0, 1)
        await ctx.wait_for_signal("go")
        return f"bank {bank}"

    async def later(ctx: Any) -> str:
        bank = ctx.version("bank", 2, 3)
        await ctx.wait_for_signal("go")
        return f"bank {bank}"

    async with app.worker(workflows=[Workflow(first, "pay")]):
        run = await app.start_workflow("pay")
        await waits(run)
    async with app.worker(workflows=[Workflow(later, "pay")]):
        await run.signal("go")
        view = await shows(run, stuck)
        assert view.failure is not None
        assert "expected version 1 of 'bank', found code for versions 2 to 3" in view.failure.message
    async with app.worker(workflows=[Workflow(later, "another")]):
        view = await shows(run, lambda view: view.failure is not None and "no workflow" in view.failure.message)
        assert view.failure is not None
        assert "no workflow named 'pay'; it knows another" in view.failure.message
    async with app.worker(workflows=[Workflow(first, "pay")]):
        assert await run.result(20) == "bank 1"


@one_store
@pytest.mark.parametrize("where", ["step", "code", "handler"])
async def test_b134_exceptions_that_cannot_be_stored(app: AsyncPerdure, where: str) -> None:
    """Required arguments, a lock inside, a cycle of causes, a `str` that raises, five megabytes: the run ends, and says
    which type it was."""

    class Odd(Exception):
        def __init__(self, one: int, two: int, three: int) -> None:
            self.lock = threading.Lock()
            super().__init__("x" * 5_000_000)

        def __str__(self) -> str:
            if self.args[0].startswith("x"):
                raise RuntimeError("not even this")
            return ""

    def fail() -> None:
        error = Odd(1, 2, 3)
        other = FatalError("other")
        other.__cause__, error.__cause__ = error, other
        raise error

    @workflow(name="odd")
    async def odd(ctx: Any) -> None:
        if where == "step":
            await ctx.step("fail", fail, retries=0)
        if where == "code":
            fail()
        ctx.on_signal("go", lambda value: fail())
        await ctx.wait_for_signal("never")

    async with app.worker():
        run = await app.start_workflow(odd)
        await run.signal("go")
        with pytest.raises(TaskFailed) as caught:
            await run.result(10)
    failure = caught.value.failure
    if where == "step":
        assert failure.type == StepError.__name__
        assert failure.cause is not None
        failure = failure.cause
    assert failure.type == "Odd"
    assert len(failure.message) < 70_000
