"""The application as it was before a kind of job was removed from it."""

from __future__ import annotations

import asyncio
from typing import Any

from perdure import Context, task
from tests.field import jobs as jobs
from tests.worker.jobs import write


@task
async def field_retired(ctx: Context, payload: dict[str, Any]) -> None:
    write(payload["path"], ctx.task_id)
    await asyncio.Event().wait()
