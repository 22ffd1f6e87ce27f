"""Field cases on options that get lost on their way: by every way in, read back from what is stored."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from perdure import Context, RetryPolicy, task
from perdure.api.service import Caller, Service
from perdure.client.embedded import EmbeddedService
from perdure.core import ids
from perdure.core import messages as m
from perdure.core.model import SECOND, Timeouts, unpack
from perdure.core.model import Task as Row
from perdure.core.policy import retry_policy, timeouts
from perdure.engine.engine import Engine
from perdure.sdk.client import AsyncClient
from perdure.sdk.task import Task
from tests.api.calls import Rest
from tests.api.conftest import engine, rest, server, service, store  # noqa: F401  # fixtures

STEPS = RetryPolicy(max_attempts=4, base=2, factor=3)
RUN_AT = datetime(2030, 1, 1, tzinfo=UTC)


async def handler(ctx: Context, payload: Any) -> None: ...


async def row(engine: Engine, task_id: str) -> Row:  # noqa: F811
    key = ids.parse(task_id)
    return (await engine.store.read([key]))[key]


async def test_b044_every_way_in_stores_the_same_policy(engine: Engine, service: Any, rest: Rest) -> None:  # noqa: F811
    """By four transports and REST, alone and in bulk."""
    client = AsyncClient(service)
    declared = task(name="steps", retries=STEPS)(handler)
    retry = {"max_attempts": 4, "base": 2, "factor": 3}
    made = [
        (await client.enqueue(declared)).id,
        (await client.enqueue("steps_elsewhere", retry=STEPS)).id,
        *[job.id for job in await client.enqueue_many(declared, [1, 2])],
        *[job.id for job in await client.enqueue_many("steps_elsewhere", [1], retry=STEPS)],
        (await rest("POST", "/v1/tasks", {"type": "s", "retry": retry})).body["id"],
        (await rest("POST", "/v1/tasks:batch", {"tasks": [{"type": "s", "retry": retry}]})).body["tasks"][0]["task_id"],
    ]
    for task_id in made:
        stored = await row(engine, task_id)
        assert (retry_policy(stored), stored.max_attempts) == (STEPS, 4)


DECLARED: dict[str, Any] = {
    "queue": "declared", "retries": STEPS, "timeout": "1m", "schedule_to_start": "2m", "schedule_to_close": "3m",
    "heartbeat_timeout": "4s", "lease": "5s", "priority": 2,
}  # fmt: skip
LIMITS = Timeouts(start_to_close=60, schedule_to_start=120, schedule_to_close=180, heartbeat=4, lease=5)
CALLED: dict[str, Any] = {
    "queue": "called", "retry": RetryPolicy(max_attempts=9), "priority": 5, "fairness_key": "f",
    "headers": {"a": "b"}, "run_at": RUN_AT, "timeouts": m.TimeoutOptions(start_to_close="7m"),
}  # fmt: skip


def effective(stored: Row) -> dict[str, Any]:
    return {
        "queue": stored.queue,
        "retry": retry_policy(stored),
        "timeouts": timeouts(stored),
        "priority": stored.priority,
        "lease": stored.lease_length,
        "fairness_key": stored.fairness_key,
        "headers": unpack(stored.headers, dict[str, str]) if stored.headers else {},
        "run_at": stored.run_at,
    }


async def test_b048_the_effective_option_is_the_calls_then_the_tasks_then_the_default(
    engine: Engine,  # noqa: F811
    service: Any,  # noqa: F811
) -> None:
    """Every option of @task and of enqueue."""
    client = AsyncClient(service)
    bare = task(name="bare")(handler)
    rich: Task[..., Any] = task(name="rich", **DECLARED)(handler)
    default = {
        "queue": "default", "retry": RetryPolicy(), "timeouts": Timeouts(), "priority": 3, "lease": 30 * SECOND,
        "fairness_key": "", "headers": {}, "run_at": None,
    }  # fmt: skip
    declared = default | {"queue": "declared", "retry": STEPS, "timeouts": LIMITS, "priority": 2, "lease": 5 * SECOND}
    called = {
        "queue": "called", "retry": RetryPolicy(max_attempts=9), "timeouts": Timeouts(start_to_close=420),
        "priority": 5, "lease": 30 * SECOND, "fairness_key": "f", "headers": {"a": "b"},
        "run_at": round(RUN_AT.timestamp()) * SECOND,
    }  # fmt: skip
    for kind, options, expected in ((bare, {}, default), (rich, {}, declared), (rich, CALLED, called)):
        by_one = (await client.enqueue(kind, 1, **options)).id
        by_name = (await client.enqueue(kind.name, 1, **options)).id
        [in_bulk] = await client.enqueue_many(kind, [1], **options)
        for task_id in (by_one, by_name, in_bulk.id):
            assert effective(await row(engine, task_id)) == expected, (kind, options)


@pytest.mark.parametrize("option", [name for name in CALLED if name != "headers"])
async def test_b048_one_option_of_a_call_leaves_the_others_to_the_task(
    engine: Engine,  # noqa: F811
    option: str,
) -> None:
    client = AsyncClient(EmbeddedService(Service(engine, Caller("default"))))
    rich: Task[..., Any] = task(name="rich", **DECLARED)(handler)
    plain = effective(await row(engine, (await client.enqueue(rich)).id))
    other: dict[str, Any] = {option: CALLED[option]}
    changed = effective(await row(engine, (await client.enqueue(rich, **other)).id))
    differs = {name for name in plain if plain[name] != changed[name]}
    assert differs == ({"timeouts", "lease"} if option == "timeouts" else {option})
