"""A steady stream of jobs."""

from __future__ import annotations

import asyncio

from perdure import AsyncJob, AsyncPerdure
from tests.faults import application


async def load(app: AsyncPerdure, ends: asyncio.Event) -> list[AsyncJob]:
    """Some in bulk, some alone, some with a key; none is enqueued twice whatever dies under the calls. Returns those
    that were acknowledged, which are all: every call waits an outage out."""
    jobs: list[AsyncJob] = []
    number = 0
    while not ends.is_set():
        number += 1
        jobs += await app.enqueue_many(application.quick, [number] * 20)
        jobs.append(await app.enqueue(application.threaded, number))
        jobs.append(await app.enqueue(application.quick, number, idempotency_key=f"load {number}"))
        await asyncio.sleep(0.1)
    return jobs
