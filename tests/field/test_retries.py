"""Field cases on retries and time-outs: real timers on both databases, and many attempts on the jumping clock."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

from perdure import AsyncPerdure, Context, Perdure, RetryableError, RetryPolicy, Task, task
from perdure.testing import jumping

START = datetime(2027, 3, 1, 12, tzinfo=UTC)
LATE = 0.5
"""Seconds that an attempt may begin after it is due: a look for alarms every 0.25 s, and a slow machine."""


async def test_b042_short_delays_are_as_long_as_they_say(url: str) -> None:
    """0.2 s and 1 s, by a fixed table, by the exception, and as a delay of the call."""
    begun: defaultdict[str, list[float]] = defaultdict(list)

    @task(retries=RetryPolicy(max_attempts=3, delays=(0.2, 1.0)))
    async def by_table(ctx: Context, payload: Any) -> None:
        begun["table"].append(time.monotonic())
        if ctx.attempt < 3:
            raise ValueError

    @task
    async def by_error(ctx: Context, payload: Any) -> None:
        begun["error"].append(time.monotonic())
        if ctx.attempt < 3:
            raise RetryableError(retry_after=(0.2, 1.0)[ctx.attempt - 1])

    @task
    async def by_call(ctx: Context, delay: float) -> None:
        begun["call"].append(time.monotonic() - delay)

    async with AsyncPerdure(url) as app, app.worker():
        enqueued = time.monotonic()
        jobs = [await app.enqueue(by_table), await app.enqueue(by_error)]
        jobs += [await app.enqueue(by_call, delay, delay=delay) for delay in (0.2, 1.0)]
        for job in jobs:
            await job.result(20)
    for name in ("table", "error"):
        first, second, third = begun[name]
        assert 0.2 <= second - first <= 0.22 + LATE, name
        assert 1.0 <= third - second <= 1.1 + LATE, name
    assert all(0 <= moment - enqueued <= LATE for moment in begun["call"])


def gaps_of(failing: Task[..., Any], jobs: int, **options: Any) -> list[list[float]]:
    """For each of many jobs, the seconds between its attempts on the jumping clock."""
    times: defaultdict[int, list[datetime]] = defaultdict(list)
    with jumping(start=START, slots=1) as env:
        MOMENTS[failing.name] = lambda payload: times[payload].append(env.now)
        env.app.enqueue_many(failing, range(jobs), **options)
        env.run(check=False)
        assert len(env.failures()) == jobs
    return [[(b - a).total_seconds() for a, b in pairwise(t)] for t in times.values()]


MOMENTS: dict[str, Any] = {}


async def fails(ctx: Context, payload: int) -> None:
    MOMENTS[ctx.type](payload)
    raise ConnectionError


def test_b043_back_off_without_a_base_spreads_the_attempts() -> None:
    """Nothing set but the number of attempts; a base of 0 or -1 is refused (tests/api/test_bad_values.py)."""
    gaps = gaps_of(task(name="unset", retries=RetryPolicy(max_attempts=6))(fails), 40)
    assert {len(each) for each in gaps} == {5}
    for number in range(5):
        drawn = [each[number] for each in gaps]
        assert 0.6 * 2**number < max(drawn) <= 2**number
        assert len({round(gap, 3) for gap in drawn}) > 10  # jitter is on
    assert sum(map(sum, gaps)) / 40 > 10


@pytest.mark.parametrize("place", ["decorator", "call", "class of the error"])
def test_b044_interval_and_factor_are_not_swapped(place: str) -> None:
    """Base 2 s, factor 3, 4 attempts: waits of up to 2, 6 and 18 s. The stored policy by way in: test_options.py."""
    policy = RetryPolicy(max_attempts=4, base=2, factor=3)
    places: dict[str, dict[str, Any]] = {
        "decorator": {"retries": policy},
        "call": {},
        "class of the error": {"retries": 3, "retries_for": {OSError: policy}},
    }
    options: dict[str, Any] = {"retry": policy} if place == "call" else {}
    gaps = gaps_of(task(name="steps", **places[place])(fails), 40, **options)
    for number, bound in enumerate((2, 6, 18)):
        assert 0.6 * bound < max(each[number] for each in gaps) <= bound


def test_b045_the_last_failure_is_the_end() -> None:
    """Two attempts 30 s apart; nothing waits after the second."""
    failing = task(name="twice", retries=RetryPolicy(max_attempts=2, delays=(30,)))(fails)
    MOMENTS["twice"] = lambda payload: None
    with jumping(start=START) as env:
        job = env.app.enqueue(failing, 1)
        env.run(check=False)
        assert 30 <= (env.now - START).total_seconds() <= 33
        view = job.status()
        assert view.closed_at == env.now
        assert view.next_event_at is None


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_b023_only_the_attempt_in_time_goes_on_to_the_next_step(kind: str, tmp_path: Any) -> None:
    """The first attempt is deaf for three times its time-out, then goes on: its follow-up is not made, and its end
    changes nothing."""
    ended: list[str] = []

    @task
    async def follow_up(ctx: Context, payload: int) -> None:
        ended.append(f"followed {payload}")

    def plain(ctx: Context, payload: None) -> int:
        if ctx.attempt == 1:
            time.sleep(1.2)
        ended.append(f"slept {ctx.attempt}")
        key = ctx.idempotency_key("follow up")
        app.enqueue(follow_up, ctx.attempt, idempotency_key=key)
        ended.append(f"returned {ctx.attempt}")
        return ctx.attempt

    async def asynchronous(ctx: Context, payload: None) -> int:
        if ctx.attempt == 1:
            try:
                await asyncio.sleep(30)
            finally:
                ended.append("slept 1")
        await asyncio.to_thread(app.enqueue, follow_up, ctx.attempt)
        return ctx.attempt

    body: Any = plain if kind == "plain" else asynchronous
    late = task(name="late", timeout="0.4s", retries=RetryPolicy(max_attempts=3, base=0.01))(body)
    with Perdure(f"sqlite:///{tmp_path}/jobs.db") as app, app.worker(slots=5):
        job = app.enqueue(late)
        assert job.result(20) == 2
        assert ended.count("slept 1") == (1 if kind == "async" else 0)
        while "slept 1" not in ended:
            time.sleep(0.01)
        time.sleep(0.2)
        view = job.status()
        assert [app.job(item.task_id).result(20) for item in app.find(type="follow_up").tasks] == [None]
    assert ended.count("followed 2") == 1
    assert {"followed 1", "returned 1"}.isdisjoint(ended)
    first, second = view.attempts
    assert first.failure is not None
    assert first.failure.code == "start_to_close_timeout"
    assert (first.attempt, second.attempt, second.outcome) == (1, 2, "succeeded")
