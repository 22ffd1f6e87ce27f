"""The workflows of the processes that these tests kill and measure."""

from __future__ import annotations

from typing import Any

from perdure import RetryPolicy, task, workflow
from tests.worker.jobs import write

AGAIN = RetryPolicy(max_attempts=10, base=0.05)


@task(retries=AGAIN)
async def groups_note(ctx: Any, payload: list[Any]) -> int:
    path, number = payload
    if path:
        write(path, str(number))
    return int(number)


@workflow
def groups_noted(ctx: Any, payload: dict[str, Any]) -> Any:
    calls = [(groups_note, [payload["path"], n]) for n in range(payload["count"])]
    return _sorted(ctx.parallel("note", calls, window=payload["window"]))


@workflow
async def groups_noted_async(ctx: Any, payload: dict[str, Any]) -> Any:
    calls = [(groups_note, [payload["path"], n]) for n in range(payload["count"])]
    return _sorted(await ctx.parallel("note", calls, window=payload["window"], policy="collect"))


def _sorted(found: list[Any]) -> list[Any]:
    """How many there are, and whether each is in its place."""
    return [len(found), found == list(range(len(found)))]
