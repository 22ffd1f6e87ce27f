"""`@task`: names, options, and what it refuses at once."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import Context, InvalidArgument, RetryPolicy, task
from perdure.sdk.task import REGISTRY


def test_bare_and_still_callable() -> None:
    @task
    def double(ctx: Any, payload: int) -> int:
        """Twice."""
        return 2 * payload

    assert double(None, 4) == 8
    assert (double.name, double.queue, double.__doc__) == ("double", "default", "Twice.")
    assert REGISTRY["double"] is double
    assert not double.is_async


def test_options_are_taken_over() -> None:
    """B048: the effective value is the one that was set."""

    @task(
        name="mail",
        queue="slow",
        retries=RetryPolicy(max_attempts=2),
        timeout="10m",
        schedule_to_start=5,
        schedule_to_close="1h30m",
        heartbeat_timeout=1.5,
        lease="60s",
        priority=1,
    )
    async def send(ctx: Context, payload: Any) -> None: ...

    assert (send.name, send.queue, send.priority, send.is_async) == ("mail", "slow", 1, True)
    assert send.retry == RetryPolicy(max_attempts=2)
    assert send.timeouts is not None
    assert (send.timeouts.start_to_close, send.timeouts.schedule_to_start) == (600, 5)
    assert (send.timeouts.schedule_to_close, send.timeouts.heartbeat, send.timeouts.lease) == (5400, 1.5, 60)


@pytest.mark.parametrize(("retries", "attempts"), [(0, 1), (4, 5)])
def test_number_of_retries_is_what_follows_the_first_attempt(retries: int, attempts: int) -> None:
    """B044."""

    @task(retries=retries)
    def once(ctx: Any, payload: Any) -> None: ...

    assert once.retry == RetryPolicy(max_attempts=attempts)


@pytest.mark.parametrize(
    "options",
    [{"timeout": "5 minutes"}, {"timeout": -1}, {"timeout": 0}, {"priority": 0}, {"priority": True}, {"retries": -1}],
    ids=str,
)
def test_bad_options_name_the_field(options: dict[str, Any]) -> None:
    """B046, B047."""
    with pytest.raises(InvalidArgument) as caught:
        task(**options)
    assert caught.value.field == next(iter(options))


def test_one_name_twice_is_an_error_that_names_both_places() -> None:
    @task(name="same")
    def first(ctx: Any, payload: Any) -> None: ...

    with pytest.raises(ValueError, match=r"'same': at .*test_task\.py:\d+ and at .*test_task\.py:\d+"):

        @task(name="same")
        def second(ctx: Any, payload: Any) -> None: ...


def test_the_same_function_loaded_twice_is_none() -> None:
    for _ in range(2):

        @task
        def again(ctx: Any, payload: Any) -> None: ...


def test_functions_that_are_no_handlers_are_refused() -> None:
    with pytest.raises(TypeError, match=r"'one' at .* must take \(ctx, payload\)"):

        @task
        def one(ctx: Any) -> None: ...

    with pytest.raises(TypeError, match="generator"):

        @task
        def stream(ctx: Any, payload: Any) -> Any:
            yield 1

    with pytest.raises(TypeError, match="generator"):

        @task
        async def stream_async(ctx: Any, payload: Any) -> Any:
            yield 1
