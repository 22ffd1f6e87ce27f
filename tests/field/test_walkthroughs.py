"""Failures as they are told in the field, from their beginning to the way out: FAIL-25, FAIL-26, FAIL-31, FAIL-32,
FAIL-33. Those in which processes die: test_kills.py."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from perdure import AsyncPerdure, Context, NonDeterminismError, TaskFailed, TaskTerminated, task, workflow
from perdure.core.events import ActivityTaskScheduled
from perdure.lint.findings import findings
from perdure.sdk.definition import Workflow
from perdure.testing import jumping
from perdure.worker.replay import Replayer
from tests.field.flows import found, one_store, shows, waits


def stuck(view: Any) -> bool:
    return bool(view.stuck)


# --------------------------------------------------------------------------------------------------- a bad deploy
async def order_v1(ctx: Any) -> str:
    address = await ctx.execute_activity("validate-address")
    await ctx.wait_for_signal("paid")
    return f"{address}, {await ctx.execute_activity('charge-card')}"


async def order_v2(ctx: Any) -> str:
    await ctx.execute_activity("check-inventory")
    await ctx.wait_for_signal("paid")
    return await ctx.execute_activity("charge-card")


async def order_v2_patched(ctx: Any) -> str:
    if ctx.patched("remove-validate-address"):
        done = await ctx.execute_activity("check-inventory")
    else:
        done = await ctx.execute_activity("validate-address")
    await ctx.wait_for_signal("paid")
    return f"{done}, {await ctx.execute_activity('charge-card')}"


@one_store
@pytest.mark.parametrize("way_out", ["roll back", "patch", "reset", "terminate"])
async def test_fail_25_an_activity_was_removed(app: AsyncPerdure, way_out: str) -> None:
    """B§20-4: the signal meets code without the activity that the history begins with. The turn fails and says so, the
    run stays open, and each of the four ways out works. What had run does not run again but where the run is reset to
    before it."""
    ran: list[str] = []

    def note(name: str) -> Any:
        @task(name=name)
        def activity(ctx: Context, payload: None) -> str:
            ran.append(name)
            return name

        return activity

    tasks = [note(name) for name in ("validate-address", "check-inventory", "charge-card")]

    def deployed(code: Any) -> Any:
        return app.worker(workflows=[Workflow(code, "order")], tasks=tasks)

    async with deployed(order_v1):
        run = await app.start_workflow("order", id="order-12345")
        await shows(run, lambda view: view.state == "WAITING" and not view.pending_activities)
    async with deployed(order_v2):
        await run.signal("paid")
        view = await shows(run, stuck)
        assert (view.status, view.failure.code) == ("RUNNING", "non_determinism")
        for part in ("at event 5", "validate-address", "check-inventory", "test_walkthroughs.py:"):
            assert part in view.failure.message
        assert ran == ["validate-address"], "nothing new happened"
        if way_out == "reset":
            run = await run.reset(event_id=4, reason="validate-address is gone")
            assert await run.result(20) == "charge-card"
        if way_out == "terminate":
            await run.terminate("the code is gone")
            with pytest.raises(TaskTerminated, match="the code is gone"):
                await run.result(5)
            run = await app.signal_with_start("order", id="order-12345-again", signal="paid")
            assert await run.result(20) == "charge-card"
    if way_out in ("roll back", "patch"):
        async with deployed(order_v1 if way_out == "roll back" else order_v2_patched):
            assert await run.result(20) == "validate-address, charge-card"
            assert ran == ["validate-address", "charge-card"]
    else:
        assert ran == ["validate-address", "check-inventory", "charge-card"]


# --------------------------------------------------------------------------------- a change that was not gated
async def shop_v1(ctx: Any) -> str:
    await ctx.step("charge", lambda: "charged")
    await ctx.step("reserve", lambda: "reserved")
    picked = await ctx.wait_for_signal("picked_up", timeout="72h")
    return "shipped" if picked else "not picked up"


async def shop_v2(ctx: Any) -> str:
    await ctx.step("charge", lambda: "charged")
    await ctx.step("fraud_check", lambda: "clean")
    await ctx.step("reserve", lambda: "reserved")
    picked = await ctx.wait_for_signal("picked_up", timeout="72h")
    return "shipped" if picked else "not picked up"


async def shop_v2_gated(ctx: Any) -> str:
    version = ctx.version("fraud-check", max=2)
    await ctx.step("charge", lambda: "charged")
    if version >= 2:
        await ctx.step("fraud_check", lambda: "clean")
    await ctx.step("reserve", lambda: "reserved")
    picked = await ctx.wait_for_signal("picked_up", timeout="72h")
    return "shipped" if picked else "not picked up"


@one_store
async def test_fail_32_a_fraud_check_was_inserted_while_orders_are_in_flight(app: AsyncPerdure) -> None:
    """C/F2, scaled to 30: the replay gate refuses the deploy, and lets the gated code pass. Forced, each order that
    wakes is stuck, and shows it at once, while new ones look fine; the roll-back heals all; old ones keep their
    path."""
    async with app.worker(workflows=[Workflow(shop_v1, "shop")]):
        runs = [await app.start_workflow("shop", id=f"order-{n}") for n in range(30)]
        for run in runs:
            await waits(run)
    histories = [await run.history() for run in runs[::10]]
    for history in histories:
        with pytest.raises(NonDeterminismError, match="fraud_check"):
            Replayer({"shop": Workflow(shop_v2, "shop")}).replay(history).check()
        Replayer({"shop": Workflow(shop_v2_gated, "shop")}).replay(history).check()
    async with app.worker(workflows=[Workflow(shop_v2, "shop")]):
        for run in runs[:20]:
            await run.signal("picked_up")
        for run in runs[:20]:
            assert (await shows(run, stuck)).failure.code == "non_determinism"
        new = await app.signal_with_start("shop", id="new", signal="picked_up")
        assert await new.result(10) == "shipped"
        page = await app.list_workflows(type="shop", status="RUNNING", limit=100)
        assert sum(view.stuck for view in page.workflows) == 20
    async with app.worker(workflows=[Workflow(shop_v1, "shop")]):
        assert await asyncio.gather(*(run.result(20) for run in runs[:20])) == ["shipped"] * 20
    async with app.worker(workflows=[Workflow(shop_v2_gated, "shop")]):
        for run in runs[20:]:
            await run.signal("picked_up")
        assert await asyncio.gather(*(run.result(20) for run in runs[20:])) == ["shipped"] * 10
        newest = await app.signal_with_start("shop", id="newest", signal="picked_up")
        assert await newest.result(10) == "shipped"
    steps = [len([e for e in (await run.history()).events if "Step" in type(e.attributes).__name__]) for run in runs]
    assert set(steps) == {4}
    assert any("fraud_check" in str(event.attributes) for event in (await newest.history()).events)


# ------------------------------------------------------------------------------------------------------------ sagas
def test_fail_26_compensations_fail_too(caplog: pytest.LogCaptureFixture) -> None:
    """B§20-5, EX-03: hotel, flight and car are booked, the card is declined. The car's cancel fails once, the flight's
    times out twice, the hotel's fails three times: FAILED with the details, to be found by an attribute, and an error
    in the log."""
    tries: Counter[str] = Counter()
    times: list[tuple[str, float]] = []
    failing = {"car": (1, OSError), "flight": (2, TimeoutError), "hotel": (3, OSError)}

    def cancel(what: str, reservation_id: str) -> None:
        tries[what] += 1
        times.append((what, env.now.timestamp()))
        failures, error = failing[what]
        if tries[what] <= failures:
            raise error("Internal Server Error")

    def charge() -> None:
        raise ValueError("card declined")

    @workflow(name="book trip")
    def book_trip(ctx: Any) -> None:
        saga = ctx.saga()
        try:
            for what, reservation in (("hotel", "H-123"), ("flight", "F-456"), ("car", "C-789")):
                saga.add_compensation(cancel, what, reservation, name=f"cancel-{what}")
                ctx.step(f"reserve {what}", lambda: None)
            ctx.step("charge", charge, retries=0)
        except Exception as error:
            outcome = saga.compensate()
            attributes = {"compensation_failed": outcome.requires_manual_intervention}
            ctx.upsert_search_attributes(attributes)
            ctx.upsert_memo({"compensations": msgspec.to_builtins(outcome)})
            raise RuntimeError("the trip was not booked") from error

    with jumping() as env:
        run = env.app.start_workflow(book_trip, id="trip")
        with pytest.raises(TaskFailed, match="the trip was not booked") as caught:
            run.result()
        view = run.describe()
        outcome = env.async_app.converter.from_payloads(view.memo["compensations"], "memo")
    failure = caught.value.failure
    assert failure.cause is not None
    assert failure.cause.message.endswith("ValueError: card declined")
    assert view.status == "FAILED"
    assert view.search_attributes == {"compensation_failed": True, "perdure_compensations": "failed"}
    assert [each["name"] for each in outcome["compensations_succeeded"]] == ["cancel-car", "cancel-flight"]
    assert outcome["compensations_failed"] == [
        {
            "name": "cancel-hotel",
            "arguments": ["hotel", "H-123"],
            "error": "OSError: Internal Server Error",
            "attempts": 3,
        }
    ]
    assert [what for what, _ in times] == ["car"] * 2 + ["flight"] * 3 + ["hotel"] * 3
    gaps = [later - earlier for (a, earlier), (b, later) in pairwise(times) if a == b]
    assert all(2 <= gap <= 2.3 for gap in gaps), gaps
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert any("compensation cancel-hotel failed: OSError: Internal Server Error" in text for text in errors)


CHECKED = """
from perdure import workflow

@workflow
def order(ctx, sku):
    saga = ctx.saga()
    try:
        saga.add_compensation(refund, sku)
        ctx.step("capture", capture, sku)
        {removed}
        ctx.step("reserve", reserve, sku)
        ctx.step("ship", ship, sku)
    except Exception:
        saga.compensate()
        raise
"""


@one_store
async def test_fail_33_an_order_is_charged_and_not_shipped(app: AsyncPerdure) -> None:
    """C/F3: an article is discontinued. The refund is code of the same function, so no consumer can go missing; without
    it the check of the code fails. The invariant, nothing is charged, not shipped and not refunded, is one question."""
    events: dict[str, list[str]] = {}

    def do(what: str, order: str, sku: str) -> None:
        if (what, sku) == ("reserve", "discontinued"):
            raise LookupError("no such article")
        events.setdefault(order, []).append(what)

    @workflow(name="sells")
    def sells(ctx: Any, sku: str) -> None:
        id, saga = ctx.info.workflow_id, ctx.saga()
        try:
            saga.add_compensation(do, "refund", id, sku)
            ctx.step("capture", do, "capture", id, sku)
            ctx.step("reserve", do, "reserve", id, sku, retries=0)
            ctx.step("ship", do, "ship", id, sku)
        except Exception:
            ctx.upsert_search_attributes({"refunded": not saga.compensate().requires_manual_intervention})
            raise

    async with app.worker():
        runs = [
            await app.start_workflow(sells, "discontinued" if n % 3 else "lamp", id=f"order-{n}") for n in range(12)
        ]
        ends = await asyncio.gather(*(run.result(20) for run in runs), return_exceptions=True)
    assert Counter(type(end).__name__ for end in ends) == {"NoneType": 4, "TaskFailed": 8}
    assert sorted(map(tuple, events.values())) == [("capture", "refund")] * 8 + [("capture", "reserve", "ship")] * 4
    failed = (await app.list_workflows(type="sells", status="FAILED")).workflows
    assert [view.search_attributes for view in failed] == [{"refunded": True, "perdure_compensations": "none"}] * 8
    for removed, count in (("saga.add_compensation(release, sku)", 0), ("", 1)):
        said = findings(CHECKED.format(removed=removed), "order.py")
        assert [finding.rule for finding in said].count("no-compensation") == count


# ---------------------------------------------------------------------------------- longer than a lease
@one_store
async def test_fail_31_reports_that_take_longer_than_a_lease(app: AsyncPerdure) -> None:
    """C/F1, scaled: 40 reports of three leases each on two workers of ten slots. Each begins once, none is doubled, and
    the job of another tenant is served meanwhile."""
    begun: list[int] = []

    @task(name="report", lease="1s")
    async def report(ctx: Context, n: int) -> int:
        begun.append(n)
        await asyncio.sleep(3)
        return ctx.attempt

    @task(name="small", queue="others")
    async def small(ctx: Context, payload: None) -> str:
        return "served"

    @workflow(name="monthly")
    async def monthly(ctx: Any, reports: int) -> list[int]:
        return await ctx.parallel("report", [(report, n) for n in range(reports)])

    async with app.worker(slots=20), app.worker(slots=20):
        run = await app.start_workflow(monthly, 40)
        await shows(run, lambda view: len(begun) > 20)
        assert await app.execute(small, timeout=3) == "served"
        assert await run.result(20) == [1] * 40
    assert sorted(begun) == list(range(40))
    assert len(await found(run, ActivityTaskScheduled)) == 40
