"""The jobs of the application, and its one client. `perdure worker jobs.py` runs them."""

from __future__ import annotations

import asyncio
import os
from typing import TypedDict

from perdure import AsyncPerdure, Context, FatalError, RetryPolicy, task

app = AsyncPerdure(os.environ.get("PERDURE_URL", "sqlite:///jobs.db"))


class Report(TypedDict):
    """What a report is asked for with."""

    name: str
    pages: int


@task(retries=RetryPolicy(max_attempts=5), timeout="10m")
async def write_report(ctx: Context, payload: Report) -> dict[str, str]:
    if payload["pages"] > 100:
        raise FatalError("nobody reads more than 100 pages")
    for page in range(payload["pages"]):
        await asyncio.sleep(0.01)  # the work
        ctx.progress(page + 1, payload["pages"])
    return {"text": f"{payload['name']}, {payload['pages']} pages"}
