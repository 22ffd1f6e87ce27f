"""An application with all extensions, for the process tests."""

from __future__ import annotations

import logging
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from perdure import Context, DataConverter, Middleware, Perdure, task

log = logging.getLogger("extended")


class Compressed(DataConverter):
    encoding = "binary/zlib"

    def encode(self, data: bytes) -> bytes:
        return zlib.compress(data)

    def decode(self, data: bytes) -> bytes:
        return zlib.decompress(data)


class Logged(Middleware):
    def after(self, ctx: Context, result: Any) -> None:
        log.info("returned")


@asynccontextmanager
async def lifespan(app: Any) -> AsyncIterator[dict[str, Any]]:
    log.info("enter")
    yield {"greeting": "hello"}
    log.info("leave")


@task
def extended(ctx: Context, payload: UUID) -> tuple[str, UUID]:
    log.info("inside")
    return ctx.state["greeting"], payload


app = Perdure("http://127.0.0.1:7400", converter=Compressed(), middleware=[Logged()], lifespan=lifespan)
