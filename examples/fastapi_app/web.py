"""Two endpoints: one accepts work and answers at once, one says how far it is. `uvicorn web:web` serves them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import jobs
from fastapi import FastAPI, Header, HTTPException, Request, Response
from pydantic import BaseModel, Field

from perdure import IdempotencyConflict, InvalidArgument, NotFound


@asynccontextmanager
async def lifespan(web: FastAPI) -> AsyncIterator[None]:
    async with jobs.app:  # connects at the first call, lets go here
        yield


web = FastAPI(lifespan=lifespan)


class ReportRequest(BaseModel):
    name: str = Field(max_length=100)
    pages: int = Field(ge=1)


@web.post("/reports", status_code=202)
async def order_report(
    order: ReportRequest,
    request: Request,
    response: Response,
    idempotency_key: Annotated[str | None, Header()] = None,
) -> dict[str, Any]:
    """Committed when it is answered. A client that repeats the request with its key gets the same report."""
    try:
        job = await jobs.app.enqueue(jobs.write_report, order.model_dump(), idempotency_key=idempotency_key)
    except IdempotencyConflict as error:
        raise HTTPException(409, "this key was used for another report") from error
    response.headers["Location"] = str(request.url_for("report", id=job.id))
    response.headers["Retry-After"] = "1"
    return {"id": job.id}


@web.get("/reports/{id}")
async def report(id: str, response: Response) -> dict[str, Any]:
    """The state of a report: QUEUED, RUNNING, SUCCEEDED, FAILED, CANCELLING or CANCELLED, and what became of it."""
    job = jobs.app.job(id)
    try:
        status = await job.status()
    except (NotFound, InvalidArgument) as error:
        raise HTTPException(404, "there is no such report") from error
    answer: dict[str, Any] = {"id": id, "state": status.job_state}
    if status.progress is not None:
        answer["progress"] = {"done": status.progress.done, "total": status.progress.total}
    if status.state == "SUCCEEDED":
        answer["report"] = await job.result()
    elif status.closed_at is None:
        response.headers["Retry-After"] = "1"
    elif status.failure is not None:
        answer["error"] = {"code": status.failure.code, "message": status.failure.message}
    return answer
