"""Workflows whose histories were recorded once, and are replayed for good: a change of ours that breaks one of them
breaks the runs of users. `python -m tests.replay.golden` records those that have no file yet; never again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perdure.core import turn_commands as c
from perdure.sdk.definition import Workflow
from perdure.sdk.workflow import workflow
from perdure.sdk.workflow_context import WorkflowContext
from perdure.sdk.workflow_errors import StepError
from tests.replay.server import NO, Server

Ctx = WorkflowContext
FOLDER = Path(__file__).parent


def work(value: Any = None) -> Any: ...


# ------------------------------------------------------------------------------------------------------------ workflows
def order(ctx: Ctx, item: str) -> Any:
    reserved = ctx.step("reserve", work, item)
    shipped = ctx.parallel("ship", [(work, "a"), (work, "b")])
    ctx.sleep("cool_off", days=3)
    approved = ctx.wait_for_signal("approve", timeout="24h")
    return [reserved, shipped, approved, ctx.step("close", work)]


async def fan(ctx: Ctx) -> Any:
    gathered = await asyncio.gather(*(ctx.execute_activity(f"a{number}") for number in range(3)))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ctx.step(f"s{number}", work)) for number in range(2)]
    return [gathered, [task.result() for task in tasks]]


async def race(ctx: Ctx) -> Any:
    tasks = [asyncio.create_task(ctx.execute_activity(name)) for name in ("slow", "fast")]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED, timeout=60)
    for task in pending:
        task.cancel()
    return [task.result() for task in done]


class Cart:
    def __init__(self) -> None:
        self.items: list[str] = []
        self.paid = False

    async def run(self, ctx: Ctx) -> Any:
        await ctx.wait_condition(lambda: self.paid, timeout="1h")
        await ctx.wait_condition(ctx.all_handlers_finished)
        return self.items

    @workflow.update
    async def pay(self, card: str) -> str:
        self.paid = True
        return str(await workflow.step("pay", work, card))

    @workflow.signal
    def add(self, item: str) -> None:
        self.items.append(item)


async def parent(ctx: Ctx) -> Any:
    child = await ctx.start_child("child", 1)
    await ctx.signal_workflow("other", "hello", 2)
    return [await child, await ctx.execute_child("child", 2, parent_close_policy="abandon")]


async def trip(ctx: Ctx) -> Any:
    saga = ctx.saga()
    try:
        saga.add_compensation(work, "flight", name="cancel_flight")
        await ctx.step("flight", work)
        saga.add_compensation(work, "hotel", name="cancel_hotel")
        await ctx.step("hotel", work)
    except StepError:
        outcome = await saga.compensate()
        return [len(outcome.compensations_succeeded), len(outcome.compensations_failed)]


async def poll(ctx: Ctx, cursor: int) -> Any:
    await ctx.step("poll", work, cursor)
    await ctx.sleep(minutes=1)
    ctx.continue_as_new(cursor + 1)


async def patched(ctx: Ctx) -> Any:
    """Today's code; the history "patched_before" is of a run that is older than "fraud-check"."""
    await ctx.execute_activity("one")
    if ctx.patched("fraud-check"):
        await ctx.execute_activity("fraud")
    await ctx.execute_activity("two")
    return [ctx.version("receipt", 0, 3), ctx.side_effect(lambda: 7), ctx.random().random(), str(ctx.uuid4())]


async def before(ctx: Ctx) -> Any:
    await ctx.execute_activity("one")
    await ctx.execute_activity("two")


async def canceled(ctx: Ctx) -> Any:
    try:
        await asyncio.gather(ctx.execute_activity("long"), ctx.sleep(days=30))
    finally:
        with ctx.shielded():
            await ctx.step("clean_up", work)
        ctx.upsert_memo({"cleaned": True})
        ctx.upsert_search_attributes({"state": "canceled"})


# ---------------------------------------------------------------------------------------------------------- recordings
def _order() -> Server:
    server = Server(Workflow(twin, "order"), "chair").turn()
    server.step(1, "r").step(3, failure=NO, again=5.0).lose().turn()
    server.step(2, "A").fire(server.find(c.StartTimer, timer_id="step:3:1")).turn().step(3, "B")
    server.fire(server.find(c.StartTimer, timer_id="cool_off#1")).signal("approve", "yes").turn()
    return server.step(4, "done")


async def twin(ctx: Ctx, item: str) -> Any:
    """`order` in the other style: it was recorded with this one, because the server of the tests drives async code."""
    reserved = await ctx.step("reserve", work, item)
    shipped = await ctx.parallel("ship", [(work, "a"), (work, "b")])
    await ctx.sleep("cool_off", days=3)
    approved = await ctx.wait_for_signal("approve", timeout="24h")
    return [reserved, shipped, approved, await ctx.step("close", work)]


def _fan() -> Server:
    server = Server(Workflow(fan, "fan")).turn()
    for name in ("a2", "a0", "a1"):
        server.complete(server.find(c.ScheduleActivity, activity_type=name), name).turn()
    return server.step(2, "S2").step(1, "S1")


def _race() -> Server:
    server = Server(Workflow(race, "race")).turn()
    return server.complete(server.find(c.ScheduleActivity, activity_type="fast"), "fast").turn()


def _cart() -> Server:
    server = Server(Workflow(Cart, "cart")).signal("add", "book").update("pay", "visa", "u1").turn()
    return server.signal("add", "pen").step(1, "paid").lose().turn()


def _parent() -> Server:
    server = Server(Workflow(parent, "parent")).turn().child_started().turn().told().turn()
    server.child_completed(result=1).turn().child_started().turn()
    return server.child_completed(result=2).turn()


def _trip() -> Server:
    return Server(Workflow(trip, "trip")).turn().step(1).step(2, failure=NO).step(3, failure=NO).step(4)


def _poll() -> Server:
    return Server(Workflow(poll, "poll"), 5).turn().step(1).fire().turn()


def _patched() -> Server:
    server = Server(Workflow(patched, "patched")).turn()
    while server.closed is None:
        server.complete().turn()
    return server


def _patched_before() -> Server:
    return Server(Workflow(before, "patched")).turn().complete().turn()


def _canceled() -> Server:
    return Server(Workflow(canceled, "canceled")).turn().cancel().turn().step(1)


def _open() -> Server:
    """A run that is still open, with a turn that failed."""
    server = Server(Workflow(twin, "order"), "chair").turn().step(1, "r")
    server.lose().history.failed_turn()
    return server.turn().step(2, "A").step(3, "B")


RECORDINGS: dict[str, tuple[Callable[[], Server], Callable[[], list[Workflow]]]] = {
    "order": (_order, lambda: [Workflow(order, "order"), Workflow(twin, "order")]),
    "order_open": (_open, lambda: [Workflow(order, "order"), Workflow(twin, "order")]),
    "fan": (_fan, lambda: [Workflow(fan, "fan")]),
    "race": (_race, lambda: [Workflow(race, "race")]),
    "cart": (_cart, lambda: [Workflow(Cart, "cart")]),
    "parent": (_parent, lambda: [Workflow(parent, "parent")]),
    "trip": (_trip, lambda: [Workflow(trip, "trip")]),
    "poll": (_poll, lambda: [Workflow(poll, "poll")]),
    "patched": (_patched, lambda: [Workflow(patched, "patched")]),
    "patched_before": (_patched_before, lambda: [Workflow(patched, "patched")]),
    "canceled": (_canceled, lambda: [Workflow(canceled, "canceled")]),
}
"""Name of the file -> how it was recorded, and the code that it must replay with."""

if __name__ == "__main__":
    for name, (record, _) in RECORDINGS.items():
        file = FOLDER / f"{name}.json"
        if not file.exists():
            file.write_bytes(record().recorded().to_json() + b"\n")
