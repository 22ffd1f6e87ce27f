"""Tasks and workflows that the tests of the dashboard run, with what a page has to show of them."""

from __future__ import annotations

import asyncio
from typing import Any

from perdure import FatalError, task, workflow

ORDER = "order/7 & co"
"""A workflow id that an address has to quote."""


@task(name="dashboard_ok")
async def ok(ctx: Any, payload: Any) -> Any:
    ctx.progress(1, 2, "half of it")
    return {"paid": payload}


@task(name="dashboard_talks")
async def talks(ctx: Any, payload: Any) -> None:
    ctx.stream.write("first <b>words</b>")
    ctx.stream.write({"n": payload})


@task(name="dashboard_bad")
async def bad(ctx: Any, payload: Any) -> None:
    raise FatalError(str(payload))


@task(name="dashboard_hangs")
async def hangs(ctx: Any, payload: Any) -> None:
    await asyncio.Event().wait()


@workflow(name="dashboard_waiting")
async def waiting(ctx: Any, payload: Any) -> None:
    await ctx.execute_activity(hangs, payload)


@workflow(name="dashboard_order")
class Order:
    """Two activities at once, a step, and then somebody's word."""

    def __init__(self) -> None:
        self.city = "Bonn"

    async def run(self, ctx: Any, order: Any) -> Any:
        one, two = ctx.start_activity(ok, 1), ctx.start_activity(ok, 2)
        first = [await one, await two]
        await ctx.step("reserve", lambda: "shelf 4")
        said = await ctx.wait_for_signal("approve")
        if said == "never":
            raise ValueError("not approved")
        return {"order": order, "first": first, "said": said, "city": self.city}

    @workflow.query
    def where(self) -> str:
        return self.city

    @workflow.update
    async def move(self, city: str) -> str:
        self.city = city
        return f"moved to {city}"
