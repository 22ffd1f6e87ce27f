"""Takes the pictures of docs/dashboard.md: a server with a shop's work on it, looked at with a real browser.

python scripts/dashboard_pictures.py            all of them, into docs/images
"""

from __future__ import annotations

import asyncio
import io
import logging
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from PIL import Image  # noqa: E402
from tests.dashboard.browser import Tab, chromium  # noqa: E402

from perdure import AsyncPerdure, FatalError, RetryPolicy, task, workflow  # noqa: E402
from perdure.app import running_server  # noqa: E402
from perdure.dashboard.site import invite  # noqa: E402

IMAGES = ROOT / "docs" / "images"
WIDTH, HEIGHT = 1180, 720
COLOURS = 48  #: of a picture; text stays clear, and the file is a third
ZONE = "Europe/Berlin"


@task(name="charge_card", retries=RetryPolicy(max_attempts=4, delays=(0.05,)))
async def charge_card(ctx: Any, order: dict[str, Any]) -> dict[str, Any]:
    await asyncio.sleep(0.02)
    if order["n"] % 4 == 0:
        raise FatalError(f"card {4000 + order['n']} was declined")
    if order["n"] % 3 == 0 and ctx.attempt < 3:
        raise ConnectionError("the bank did not answer")
    return {"receipt": f"R-{order['n']:05}", "amount": 19.9}


@task(name="render_invoice")
async def render_invoice(ctx: Any, order: dict[str, Any]) -> str:
    for page in range(1, 40):
        ctx.progress(page, 40, f"page {page}")
        await asyncio.sleep(3)
    return "invoice.pdf"


@task(name="reserve_stock")
async def reserve_stock(ctx: Any, item: str) -> str:
    await asyncio.sleep(0.1 if item == "lamp" else 0.25)
    return f"{item}: shelf {len(item)}"


@workflow(name="fulfil_order")
async def fulfil_order(ctx: Any, order: dict[str, Any]) -> str:
    ctx.on_query("stage", lambda: "under way")
    await ctx.step("check_address", lambda: "ok")
    held = [ctx.start_activity(reserve_stock, item) for item in order["items"]]
    for one in held:
        await one
    await ctx.execute_activity(charge_card, {"n": 7})
    if not await ctx.step("needs_approval", lambda: order["n"] % 2 == 0):
        await ctx.wait_for_signal("approved")
    return "sent"


async def main() -> None:
    logging.disable(logging.ERROR)  # what fails here fails on purpose
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/shop.db"
        async with (
            running_server(store, "127.0.0.1", 0, invite()) as url,
            AsyncPerdure(url) as app,
            app.worker(queues=["default"], slots=20, drain_seconds=0.1),
            chromium(Path(folder)) as tab,
        ):
            await take_all(app, url, tab)


async def take_all(app: AsyncPerdure, url: str, tab: Tab) -> None:
    retried, run = await work(app)
    await tab.resize(WIDTH, HEIGHT)
    await tab.zone(ZONE)
    running = (await app.find(type="render_invoice", state="LEASED")).tasks[0].task_id
    group = (await app.failures())[0].group
    order = f"workflow?id={run}"
    pages = {
        "overview": "", "tasks": "tasks", "task": f"task?id={retried}", "task-running": f"task?id={running}",
        "bulk": "bulk?action=retry&state=FAILED", "workflows": "workflows", "workflow": order,
        "workflow-graph": f"{order}&view=graph#views", "workflow-timeline": f"{order}&view=timeline#views",
        "workflow-replay": f"{order}&view=replay&event=12#views", "failures": "failures",
        "dead-letters": f"failures?group={group}", "schedules": "schedules", "schedule": "schedule?id=nightly-report",
        "queues": "queues", "workers": "workers",
    }  # fmt: skip
    for name, page in pages.items():
        await take(tab, f"{url}/{page}", name)
    await tab.scheme("dark")
    await take(tab, f"{url}/{order}&view=graph#views", "dark")


async def take(tab: Tab, address: str, name: str) -> None:
    await tab.go(address)
    if "bulk" not in name:
        await tab.until("document.getElementById('live').textContent === 'Live'")
    if name == "workers":
        await tab.run("document.querySelector('details').open = true")
    if name == "overview":
        await tab.until("document.querySelector('polyline').points.length > 4")
    picture = Image.open(io.BytesIO(await tab.picture())).convert("RGB")
    picture.quantize(COLOURS).save(IMAGES / f"{name}.png", optimize=True)


async def work(app: AsyncPerdure) -> tuple[str, str]:
    """Something of everything; gives a task of some attempts, and a workflow."""
    jobs = [await app.enqueue(charge_card, {"n": number}, queue="default") for number in range(1, 25)]
    for job in jobs:
        with suppress(Exception):
            await job.result(timeout=30)
    for number in range(3):
        await app.enqueue(render_invoice, {"n": number})
    await app.enqueue_many(charge_card, [{"n": number} for number in range(6)], queue="mail")
    await app.enqueue(charge_card, {"n": 1}, queue="default", delay="2h")
    await app.set_limit("queue", "mail", max_running=5, rate="10/s")
    await app.pause("queue", "mail", note="the mail server moves")
    await app.create_schedule(
        "nightly-report", task=charge_card, payload={"n": 1}, cron="30 3 * * *", timezone="America/New_York"
    )
    await app.create_schedule("stock-check", task=charge_card, payload={"n": 1}, interval="6h")
    await (await app.create_schedule("mondays", task=charge_card, payload={"n": 1}, cron="@weekly")).pause("on leave")
    for number in range(4, 8):
        order = {"n": number, "items": ["lamp", "desk", "chair"]}
        await app.start_workflow(fulfil_order, order, id=f"order-{number}")
    run = app.get_workflow_handle("order-7")
    while "signal" not in (await run.describe()).waiting_for:
        await run.query("stage")
    return jobs[8].id, run.id


if __name__ == "__main__":
    asyncio.run(main())
