"""How a claimed step is run, and what its end says."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from perdure import Context, FatalError, RetryableError, task
from perdure.core.messages import Delivery
from perdure.core.model import RetryPolicy
from perdure.core.turn_commands import StartStep
from perdure.sdk.converter import from_payloads
from perdure.sdk.hints import ANY
from perdure.sdk.logs import RUNNING
from perdure.sdk.retry import AfterError
from perdure.sdk.steps import StepCall
from perdure.worker.execute import BARE
from perdure.worker.steps import Attempt, StepEnd, Steps
from perdure.worker.threads import Threads

PARENT = Delivery("run-1", b"lease", "order", "default", 1, 1)
ONCE = RetryPolicy(max_attempts=1)


class Runner:
    def __init__(self) -> None:
        self.steps = Steps(Threads(lambda *_: None))
        self.ends: asyncio.Queue[StepEnd] = asyncio.Queue()

    def start(
        self,
        function: Callable[..., Any],
        *args: Any,
        attempt: int = 1,
        retry: RetryPolicy = ONCE,
        timeout: float | None = None,
    ) -> Attempt:
        call = StepCall(7, "charge", function, args, retry, AfterError(), timeout, ANY)
        claim = StartStep(step_id=7, name="charge", attempt=attempt)
        started = Attempt(claim, call, PARENT, BARE, self.ends.put_nowait)
        self.steps.start(started)
        return started

    async def run(self, function: Callable[..., Any], *args: Any, **options: Any) -> StepEnd:
        self.start(function, *args, **options)
        async with asyncio.timeout(20):
            return await self.ends.get()


@pytest.fixture
async def runner() -> Runner:
    return Runner()


def result(end: StepEnd) -> Any:
    assert end.result is not None, end.failure
    return from_payloads(end.result, "result")


async def test_an_async_step_runs_on_the_loop_and_a_plain_one_in_a_thread(runner: Runner) -> None:
    async def on_loop(a: int, b: int) -> list[int]:
        return [a + b, threading.get_ident()]

    def in_thread(a: int, b: int) -> list[int]:
        return [a * b, threading.get_ident()]

    assert result(await runner.run(on_loop, 1, 2)) == [3, threading.get_ident()]
    product, thread = result(await runner.run(in_thread, 3, 4))
    assert product == 12
    assert thread != threading.get_ident()


@pytest.mark.parametrize("plain", [False, True])
async def test_a_step_can_see_its_attempt(runner: Runner, plain: bool) -> None:
    """STEP-12."""

    async def look() -> int:
        ctx = RUNNING.get()
        assert ctx is not None
        return ctx.attempt

    def look_plain() -> int:
        ctx = RUNNING.get()
        assert ctx is not None
        return ctx.attempt

    assert result(await runner.run(look_plain if plain else look, attempt=3)) == 3
    assert RUNNING.get() is None


@pytest.mark.parametrize("plain", [False, True])
async def test_a_task_as_a_step_has_a_ctx_of_its_own(runner: Runner, plain: bool) -> None:
    @task(name="charge_card")
    async def charge(ctx: Context, payload: dict[str, int]) -> Any:
        return [ctx.task_id, ctx.type, ctx.attempt, payload["amount"]]

    @task(name="charge_card_plain")
    def charge_plain(ctx: Context, payload: dict[str, int]) -> Any:
        return [ctx.task_id, ctx.type, ctx.attempt, payload["amount"]]

    chosen = charge_plain if plain else charge
    assert result(await runner.run(chosen, {"amount": 5}, attempt=2)) == ["run-1/7", chosen.name, 2, 5]


async def test_an_error_is_a_failure_with_the_stack_of_the_step(runner: Runner) -> None:
    async def boom() -> None:
        raise ValueError("no money")

    end = await runner.run(boom)
    assert end.failure is not None
    assert (end.failure.type, end.failure.message, end.retry_in) == ("ValueError", "no money", None)
    assert end.failure.stack.count("File") == 1
    assert "in boom" in end.failure.stack

    def boom_plain() -> None:
        raise ValueError("no money")

    end = await runner.run(boom_plain)
    assert end.failure is not None
    assert end.failure.stack.count("File") == 1


async def test_another_attempt_follows_as_the_policy_says(runner: Runner) -> None:
    policy = RetryPolicy(max_attempts=3, delays=(10.0, 100.0))

    async def boom() -> None:
        raise ValueError

    waits = [(await runner.run(boom, retry=policy, attempt=n)).retry_in for n in (1, 2, 3)]
    assert waits[0] is not None
    assert waits[1] is not None
    assert 10 <= waits[0] <= 11
    assert 100 <= waits[1] <= 110
    assert waits[2] is None


async def test_errors_that_decide_by_themselves(runner: Runner) -> None:
    policy = RetryPolicy(max_attempts=3)

    async def fatal() -> None:
        raise FatalError("never")

    async def later() -> None:
        raise RetryableError("soon", retry_after=42)

    end = await runner.run(fatal, retry=policy)
    assert end.failure is not None
    assert (end.failure.code, end.failure.retryable, end.retry_in) == ("fatal", False, None)
    assert (await runner.run(later, retry=policy)).retry_in == 42

    @task(name="never_again")
    async def never_again(ctx: Context, payload: Any) -> None:
        raise FatalError("never")

    end = await runner.run(never_again, retry=policy)
    assert end.failure is not None
    assert (end.failure.retryable, end.retry_in) == (False, None)


async def test_a_fatal_type_of_the_policy_ends_the_step(runner: Runner) -> None:
    def boom() -> None:
        raise KeyError("x")

    end = await runner.run(boom, retry=RetryPolicy(fatal_types=("KeyError",)))
    assert end.retry_in is None


async def test_a_result_that_cannot_be_stored_is_a_clear_failure(runner: Runner) -> None:
    """STEP-15."""
    end = await runner.run(object, retry=RetryPolicy(max_attempts=3))
    assert end.failure is not None
    assert (end.failure.code, end.retry_in) == ("unencodable_result", None)
    end = await runner.run(lambda: "x" * 300_000)
    assert end.failure is not None
    assert "are allowed" in end.failure.message


async def test_an_async_step_is_interrupted_when_its_time_is_over(runner: Runner) -> None:
    interrupted = asyncio.Event()

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            interrupted.set()

    end = await runner.run(slow, timeout=0.01, retry=RetryPolicy(max_attempts=2))
    assert end.failure is not None
    assert end.failure.code == "start_to_close_timeout"
    assert end.retry_in is not None
    await interrupted.wait()
    assert runner.ends.empty()


async def test_a_plain_step_that_is_out_of_time_ends_without_its_function(runner: Runner) -> None:
    """A thread cannot be interrupted: what it does after that counts for nothing."""
    gate = threading.Event()
    left = threading.Event()

    def slow() -> None:
        gate.wait()
        left.set()

    end = await runner.run(slow, timeout=0.01)
    assert end.failure is not None
    assert end.failure.code == "start_to_close_timeout"
    gate.set()
    await asyncio.to_thread(left.wait, 20)
    await asyncio.sleep(0.01)
    assert runner.ends.empty()


async def test_a_step_that_is_stopped_says_nothing(runner: Runner) -> None:
    seen = []

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append(RUNNING.get())

    attempt = runner.start(slow)
    await asyncio.sleep(0)
    attempt.stop("lost")
    await asyncio.sleep(0.01)
    assert seen[0].stop == "lost"
    assert runner.ends.empty()


async def test_whatever_a_step_raises_ends_its_attempt_only(runner: Runner) -> None:
    def leave() -> None:
        raise SystemExit(3)

    end = await runner.run(leave)
    assert end.failure is not None
    assert end.failure.type == "SystemExit"

    async def leave_async() -> None:
        raise KeyboardInterrupt

    end = await runner.run(leave_async)
    assert end.failure is not None
    assert end.failure.type == "KeyboardInterrupt"


async def test_a_task_takes_one_payload() -> None:
    @task(name="one_payload")
    async def one_payload(ctx: Context, payload: Any) -> None: ...

    call = StepCall(7, "x", one_payload, (1, 2), ONCE, AfterError(), None, ANY)
    with pytest.raises(Exception, match="takes one payload, not 2"):
        Attempt(StartStep(step_id=7, name="x"), call, PARENT, BARE, lambda _: None)
