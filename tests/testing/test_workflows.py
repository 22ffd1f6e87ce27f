"""Workflows on the jumping clock, in both styles: SDK-14, and what the time-skipping kits of others get wrong."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure import (
    ActivityError,
    Context,
    NoWorker,
    RetryPolicy,
    TaskFailed,
    UpdateFailed,
    WaitTimeout,
    WorkflowContext,
    task,
    workflow,
)
from perdure.core.errors import InvalidArgument, TaskCanceled
from perdure.sdk.definition import WORKFLOWS, Workflow
from perdure.testing import jumping

START = datetime(2027, 3, 1, 12, tzinfo=UTC)
Ctx = WorkflowContext


@pytest.fixture(autouse=True)
def forgotten() -> Any:
    before = dict(WORKFLOWS)
    yield
    WORKFLOWS.clear()
    WORKFLOWS.update(before)


def in_both_styles(plain: Callable[..., Any], in_async: Callable[..., Any]) -> Any:
    return pytest.mark.parametrize("code", [plain, in_async], ids=["plain", "async"])


# ------------------------------------------------------------------------------------------------------------- time
def cool_off(ctx: Ctx, user: str) -> list[Any]:
    begun = ctx.step("greet", str.upper, user)
    ctx.sleep("cool_off", days=30)
    return [begun, ctx.now().isoformat()]


async def cool_off_async(ctx: Ctx, user: str) -> list[Any]:
    begun = await ctx.step("greet", str.upper, user)
    await ctx.sleep("cool_off", days=30)
    return [begun, ctx.now().isoformat()]


@in_both_styles(cool_off, cool_off_async)
def test_a_sleep_of_30_days_takes_milliseconds(code: Any) -> None:
    flow = workflow(code)
    with jumping(start=START) as env:
        began = time.monotonic()
        assert env.app.execute_workflow(flow, "ann") == ["ANN", (START + timedelta(days=30)).isoformat()]
        assert env.now == START + timedelta(days=30)
        assert time.monotonic() - began < 1.0


@in_both_styles(cool_off, cool_off_async)
def test_time_stands_still_until_it_is_advanced(code: Any) -> None:
    flow = workflow(code)
    with jumping(start=START) as env:
        run = env.app.start_workflow(flow, "ann")
        env.run(0)
        [timer] = run.describe().pending_timers
        assert (timer.timer_id, timer.fires_at) == ("cool_off#1", START + timedelta(days=30))
        env.advance(days=29)
        assert run.describe().status == "RUNNING" and env.now == START + timedelta(days=29)
        env.advance(days=2, hours=1)
        assert run.describe().status == "COMPLETED" and env.now == START + timedelta(days=31, hours=1)
        assert run.result()[1] == (START + timedelta(days=30)).isoformat()


def approval_in_time(ctx: Ctx) -> Any:
    return [ctx.wait_for_signal("approve", timeout="72h"), ctx.wait_condition(lambda: False, timeout="1h")]


async def approval_in_time_async(ctx: Ctx) -> Any:
    approved = await ctx.wait_for_signal("approve", timeout="72h")
    return [approved, await ctx.wait_condition(lambda: False, timeout="1h")]


@in_both_styles(approval_in_time, approval_in_time_async)
def test_time_outs_of_waits_are_jumped_to(code: Any) -> None:
    flow = workflow(code)
    with jumping(start=START) as env:
        assert env.app.start_workflow(flow).result() == [None, False]
        assert env.now == START + timedelta(hours=73)


@in_both_styles(approval_in_time, approval_in_time_async)
def test_a_signal_in_time_is_seen_at_that_time(code: Any) -> None:
    flow = workflow(code)
    with jumping(start=START) as env:
        run = env.app.start_workflow(flow)
        env.advance(hours=71)
        run.signal("approve", {"by": "bob"})
        assert env.now == START + timedelta(hours=71)
        assert run.result() == [{"by": "bob"}, False]
        assert env.now == START + timedelta(hours=72)


def retrying(ctx: Ctx) -> Any:
    policy = RetryPolicy(max_attempts=3, delays=(3600.0,))
    attempts: list[int] = []
    return [ctx.execute_activity("flaky", retries=policy), ctx.step("flaky", flaky, retries=policy), attempts]


async def retrying_async(ctx: Ctx) -> Any:
    policy = RetryPolicy(max_attempts=3, delays=(3600.0,))
    return [await ctx.execute_activity("flaky", retries=policy), await ctx.step("flaky", flaky, retries=policy), []]


calls: list[int] = []


def flaky() -> int:
    calls.append(len(calls))
    if len(calls) % 3:
        raise ConnectionError("not yet")
    return len(calls)


@in_both_styles(retrying, retrying_async)
def test_retries_of_activities_and_steps_are_jumped_to(code: Any) -> None:
    """RETRY-01: two attempts fail, an hour apart, first of the activity and then of the step."""
    calls.clear()
    flow = workflow(code)
    with jumping(start=START) as env:
        env.replace("flaky", lambda ctx, payload: flaky())
        assert env.app.start_workflow(flow).result() == [3, 6, []]
        assert timedelta(hours=4) <= env.now - START <= timedelta(hours=5)  # with jitter


def test_a_start_may_be_delayed() -> None:
    @workflow
    def late(ctx: Ctx) -> str:
        return ctx.now().isoformat()

    with jumping(start=START) as env:
        run = env.app.start_workflow(late, start_delay="10d")
        with pytest.raises(NoWorker, match="has not begun"):
            run.query("anything")
        assert env.now == START
        assert run.result() == (START + timedelta(days=10)).isoformat()


def test_continue_as_new_is_followed_to_the_last_run() -> None:
    @workflow
    async def poll(ctx: Ctx, cursor: int) -> int:
        await ctx.sleep(hours=1)
        if cursor < 5:
            ctx.continue_as_new(cursor + 1)
        return cursor

    with jumping(start=START) as env:
        assert env.app.execute_workflow(poll, 0) == 5
        assert env.now == START + timedelta(hours=6)


# --------------------------------------------------------------------------------------------------------- messages
class Cart:
    def __init__(self) -> None:
        self.items: list[str] = []
        self.paid = False

    async def run(self, ctx: Ctx) -> list[str]:
        await ctx.wait_condition(lambda: self.paid, timeout="24h")
        return self.items

    @workflow.signal
    def add(self, item: str) -> None:
        self.items.append(item)

    @workflow.query
    def count(self) -> int:
        return len(self.items)

    @workflow.update
    async def pay(self, card: str) -> str:
        receipt = await workflow.execute_activity("charge", card)
        self.paid = True
        return str(receipt)

    @pay.validator
    def has_items(self, card: str) -> None:
        if not self.items:
            raise ValueError("the cart is empty")


class PlainCart(Cart):
    def run(self, ctx: Ctx) -> list[str]:  # type: ignore[override]
        ctx.wait_condition(lambda: self.paid, timeout="24h")
        return self.items

    @workflow.update
    def pay(self, card: str) -> str:  # type: ignore[override]
        receipt = workflow.execute_activity("charge", card)
        self.paid = True
        return str(receipt)

    @pay.validator
    def has_items(self, card: str) -> None:
        super().has_items(card)


@in_both_styles(PlainCart, Cart)
def test_signals_queries_and_updates_while_time_stands_still(code: Any) -> None:
    """SIG-01, SIG-08, SIG-11."""
    flow = workflow(name="cart")(code)
    with jumping(start=START) as env:
        env.replace("charge", lambda ctx, card: f"charged {card}")
        run = env.app.start_workflow(flow)
        assert run.query("count") == 0
        with pytest.raises(UpdateFailed, match="the cart is empty"):
            run.update("pay", "visa")
        run.signal("add", "book")
        run.signal("add", "pen")
        assert run.query("count") == 2
        accepted = run.start_update("pay", "visa", id="u1")
        assert accepted.result() == "charged visa" == run.update("pay", "visa", id="u1")
        assert run.result() == ["book", "pen"]
        assert run.query("count") == 2  # of a closed run
        assert env.now == START


def test_an_update_that_waits_is_jumped_to_its_end() -> None:
    @workflow(name="slow")
    class Slow:
        async def run(self, ctx: Ctx) -> None:
            await ctx.sleep(days=9)

        @workflow.update
        async def wait(self) -> str:
            await workflow.sleep(days=1)
            return "done"

    with jumping(start=START) as env:
        run = env.app.start_workflow(Slow)
        assert run.update("wait") == "done"
        assert env.now == START + timedelta(days=1)


def test_what_nothing_is_going_to_happen_to_is_an_error() -> None:
    @workflow
    def forever(ctx: Ctx) -> Any:
        return ctx.wait_for_signal("never")

    with jumping() as env:
        run = env.app.start_workflow(forever)
        with pytest.raises(WaitTimeout, match=r"nothing is left .* still RUNNING: it waits for a signal"):
            run.result()
        run.cancel("enough")
        with pytest.raises(TaskCanceled):
            run.result()


# ---------------------------------------------------------------------------------------------------- replacements
@task
def charge(ctx: Context, card: str) -> str:
    raise AssertionError("a test must not charge cards")


@task(process=True)
def render(ctx: Context, page: int) -> str:
    raise AssertionError("a test must not render")


def buy(ctx: Ctx, card: str) -> list[str]:
    paid = ctx.execute_activity(charge, card)
    here = [ctx.step("charge", charge, card), ctx.execute_activity(charge, card, local=True)]
    return [paid, *here, ctx.execute_child("ship", card), ctx.execute_activity(render, 1)]


async def buy_async(ctx: Ctx, card: str) -> list[str]:
    paid = await ctx.execute_activity(charge, card)
    here = [await ctx.step("charge", charge, card), await ctx.execute_activity(charge, card, local=True)]
    return [paid, *here, await ctx.execute_child("ship", card), await ctx.execute_activity(render, 1)]


@in_both_styles(buy, buy_async)
def test_activities_steps_and_children_are_replaced_by_functions(code: Any) -> None:
    @workflow
    def ship(ctx: Ctx, card: str) -> str:
        raise AssertionError("a test must not ship")

    flow = workflow(code)

    async def fake(ctx: Context, card: str) -> str:
        return f"{card} {ctx.attempt}"

    with jumping() as env:
        env.replace(charge, fake)
        env.replace(render, lambda ctx, page: "rendered")
        env.replace(ship, lambda ctx, card: "shipped")
        assert env.app.execute_workflow(flow, "visa") == ["visa 1", "visa 1", "visa 1", "shipped", "rendered"]
        env.replace(charge, lambda ctx, card: "other")
        assert env.app.enqueue(charge, "visa").result() == "other"
    assert not charge.is_async and render.process and WORKFLOWS["ship"] is ship
    with pytest.raises(AssertionError):
        charge(None, "visa")  # type: ignore[arg-type]


def test_a_name_that_is_unknown_here_is_replaced_too() -> None:
    @workflow
    async def elsewhere(ctx: Ctx) -> Any:
        return await ctx.execute_activity("audit", {"a": 1}, queue="audits")

    with jumping() as env:
        env.replace("audit", lambda ctx, payload: payload["a"])
        assert env.app.execute_workflow(elsewhere) == 1
    with jumping() as env:
        run = env.app.start_workflow(elsewhere)
        with pytest.raises(TaskFailed, match="no task named 'audit'"):
            run.result()


def test_what_has_no_name_cannot_be_replaced() -> None:
    with jumping() as env, pytest.raises(InvalidArgument, match="cannot be replaced"):
        env.replace(flaky, flaky)  # type: ignore[arg-type]


def test_a_replacement_that_fails_is_what_the_code_sees() -> None:
    def decline(ctx: Context, card: str) -> str:
        raise ValueError("declined")

    @workflow
    async def pays(ctx: Ctx) -> str:
        try:
            return str(await ctx.execute_activity(charge, "visa", retries=0))
        except ActivityError as error:
            return error.failure.message

    with jumping() as env:
        env.replace(charge, decline)
        assert env.app.execute_workflow(pays) == "declined"


# --------------------------------------------------------------------------------------------------------- failures
def test_a_failed_workflow_does_not_pass_in_silence() -> None:
    @workflow
    def child(ctx: Ctx) -> None:
        raise ValueError("of the child")

    @workflow
    async def parent(ctx: Ctx, fails: bool) -> str:
        try:
            await ctx.execute_child(child)
        except Exception as error:
            if fails:
                raise ValueError("of the parent") from error
        return "went on"

    with jumping() as env:
        run = env.app.start_workflow(parent, False)
        env.run()  # the child's failure was its parent's business
        assert run.result() == "went on"
        env.app.start_workflow(parent, True, id="p")
        with pytest.raises(TaskFailed, match="of the parent") as failed:
            env.run()
        assert failed.value.__notes__[0] == "of workflow parent (p)"
        assert "raise ValueError" in failed.value.__notes__[1]
        env.run()  # it is known
        env.app.start_workflow(parent, True)
        env.run(check=False)


def test_a_workflow_that_is_repeated_has_not_failed_yet() -> None:
    @workflow(retries=RetryPolicy(max_attempts=3, delays=(60.0,)))
    def third_time(ctx: Ctx) -> int:
        if ctx.info.attempt < 3:
            raise ValueError("not yet")
        return ctx.info.attempt

    with jumping(start=START) as env:
        run = env.app.start_workflow(third_time)
        env.run()
        assert run.result() == 3


def test_a_run_time_out_fails() -> None:
    @workflow(run_timeout="1h")
    def late(ctx: Ctx) -> None:
        ctx.sleep(days=1)

    with jumping(start=START) as env:
        env.app.start_workflow(late)
        with pytest.raises(TaskFailed, match="time-out is over"):
            env.run()
        assert timedelta(hours=1) <= env.now - START < timedelta(hours=2)


def test_code_that_does_not_do_the_same_again_is_found_at_once() -> None:
    """RPLY-10: in production such a run is stuck, and its turn tried again for ever."""
    here: list[int] = []

    @workflow
    def odd(ctx: Ctx) -> None:
        here.append(1)
        ctx.sleep(f"number {len(here)}", hours=1)

    with jumping(start=START) as env:
        run = env.app.start_workflow(odd, id="odd")
        with pytest.raises(
            TaskFailed, match=r"expected TimerStarted \(timer_id 'number 1#1'\), found .*'number 2#1'"
        ) as error:
            env.run()
        assert error.value.failure.code == "non_determinism"
        assert error.value.__notes__ == ["in a turn of workflow odd (odd), which goes on with mended code"]
        with pytest.raises(TaskFailed):
            run.result()
        before = run.describe().failed_turns
        env.advance(minutes=10, check=False)
        assert run.describe().stuck and run.describe().failed_turns > before

        mended = WORKFLOWS["odd"] = Workflow(lambda ctx: ctx.sleep("number 1", hours=1), "odd")
        assert mended.name == "odd"
        env.advance(minutes=1, check=False)
        assert run.describe().status == "COMPLETED"


def test_a_workflow_that_nobody_knows_is_an_error() -> None:
    WORKFLOWS.clear()
    with jumping() as env:
        run = env.app.start_workflow("nobody")
        env.run()  # a worker without workflows asks for none
        assert run.describe().status == "RUNNING"

    @workflow
    def known(ctx: Ctx) -> None: ...

    with jumping() as env:
        env.app.start_workflow("nobody")
        with pytest.raises(TaskFailed, match="no workflow named 'nobody'; it knows known"):
            env.run()


# ---------------------------------------------------------------------------------------------- around, and inside
def test_handlers_and_steps_may_wait_for_workflows() -> None:
    @workflow
    async def inner(ctx: Ctx, value: int) -> int:
        await ctx.sleep(hours=1)
        if value < 10:
            ctx.continue_as_new(value + 10)
        return value

    with jumping(start=START) as env:

        @task
        def outer(ctx: Context, value: int) -> int:
            return int(env.app.execute_workflow(inner, value))

        @workflow
        def whole(ctx: Ctx) -> list[int]:
            return [ctx.execute_activity(outer, 1), ctx.step("inner", env.app.execute_workflow, "inner", 2)]

        assert env.app.execute_workflow(whole) == [11, 12]
        assert env.now == START + timedelta(hours=4)


async def test_in_a_test_with_an_event_loop() -> None:
    @workflow
    async def nap(ctx: Ctx) -> str:
        await ctx.sleep(days=30)
        return str(await ctx.execute_activity("say", "hello"))

    async with jumping(start=START) as env:
        env.replace("say", lambda ctx, payload: payload.upper())
        run = await env.app.start_workflow(nap)
        await env.advance(days=29)
        assert (await run.describe()).status == "RUNNING"
        assert await run.result() == "HELLO"
        assert env.now == START + timedelta(days=30)
    assert "say" not in WORKFLOWS


def test_other_runs_go_on_while_one_is_waited_for() -> None:
    @workflow
    def ping(ctx: Ctx) -> Any:
        ctx.signal_workflow("pong", "ball", 1)
        return ctx.wait_for_signal("ball")

    @workflow
    async def pong(ctx: Ctx) -> None:
        ball = await ctx.wait_for_signal("ball")
        await ctx.signal_workflow("ping", "ball", ball + 1)

    with jumping() as env:
        other = env.app.start_workflow(pong, id="pong")
        assert env.app.execute_workflow(ping, id="ping") == 2
        assert other.result() is None


def test_a_history_of_the_environment_replays() -> None:
    """RPLY-38: the kit is no second implementation; what it records is a history like any other."""
    from perdure.worker.replay import Replayer

    flow = workflow(cool_off)
    with jumping() as env:
        run = env.app.start_workflow(flow, "ann")
        run.result()
        assert Replayer().replay(run.history()).compatible
