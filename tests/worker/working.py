"""A worker on a fake server, and steps that workflows of several tests have."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from perdure.worker.worker import Worker
from tests.worker.fake_server import FakeServer


@asynccontextmanager
async def working(server: FakeServer, **options: Any) -> AsyncIterator[Worker]:
    async with asyncio.timeout(30), Worker(server, **options) as worker:  # type: ignore[arg-type]
        yield worker


async def add(a: int, b: int) -> int:
    return a + b


def multiply(a: int, b: int) -> int:
    return a * b
