"""Field cases on payloads, results and errors that other systems lose, change or choke on, from end to end on both
databases."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from perdure import AsyncPerdure, Context, FatalError, InvalidArgument, PayloadTooLarge, RetryPolicy, TaskFailed, task
from perdure.core.limits import MAX_PAYLOAD
from perdure.testing import jumping


# ----------------------------------------------------------------------------------------------------------------- NUL
async def test_b128_a_nul_anywhere_keeps_no_job_from_its_end(url: str) -> None:
    """Kept in payload, header, checkpoint, result and error; shown as a replacement in a progress message; refused by
    name in a key, a type, a queue and a reason. The same on both databases."""

    @task(retries=RetryPolicy(max_attempts=2, base=0.001))
    async def nul(ctx: Context, payload: Any) -> Any:
        ctx.progress(ctx.attempt, 2, "a\x00b")
        if ctx.attempt == 1:
            ctx.checkpoint({"c\x00": "\x00"})
            raise ValueError("first \x00")
        return [payload, ctx.last_checkpoint, ctx.headers["h"]]

    @task
    async def broken(ctx: Context, payload: Any) -> None:
        raise FatalError("last \x00")

    async with AsyncPerdure(url) as app, app.worker():
        job = await app.enqueue(nul, {"p\x00": ["\x00"]}, headers={"h": "\x00"})
        assert await job.result(20) == [{"p\x00": ["\x00"]}, {"c\x00": "\x00"}, "\x00"]
        view = await job.status()
        assert [attempt.failure and attempt.failure.message for attempt in view.attempts] == ["first \x00", None]
        assert view.progress is not None
        assert view.progress.message == "a\N{REPLACEMENT CHARACTER}b"
        with pytest.raises(TaskFailed) as caught:
            await (await app.enqueue(broken)).result(20)
        assert caught.value.failure.message == "last \x00"
        refused: dict[str, Callable[[], Any]] = {
            "idempotency_key": lambda: app.enqueue(nul, idempotency_key="a\x00"),
            "queue": lambda: app.enqueue(nul, queue="a\x00"),
            "fairness_key": lambda: app.enqueue(nul, fairness_key="a\x00"),
            "type": lambda: app.enqueue("a\x00"),
            "reason": lambda: job.cancel("a\x00"),
        }
        for field, call in refused.items():
            with pytest.raises(InvalidArgument) as refusal:
                await call()
            assert refusal.value.field == field


# ---------------------------------------------------------------------------------------------------------------- size
LARGEST = MAX_PAYLOAD - 64
"""Bytes of JSON that always fit, as docs and limits say: the name of the encoding counts too."""


def text_of(size: int) -> str:
    """Text whose JSON has so many bytes."""
    return "x" * (size - 2)


def assert_says(said: str, given: int, limit: int) -> None:
    """Both numbers; metadata counts."""
    assert str(limit) in said, said
    assert any(str(number) in said for number in range(given, given + 65)), said


async def test_b133_sizes_up_to_the_limit_pass_and_all_others_are_errors_at_the_call(url: str) -> None:
    """With both numbers. As input, result, checkpoint and error text; no run loops, and a smaller one follows."""

    @task
    async def size(ctx: Context, payload: dict[str, int]) -> Any:
        if "checkpoint" in payload:
            try:
                ctx.checkpoint(text_of(payload["checkpoint"]))
            except PayloadTooLarge as error:
                return f"{error} ({error.limit})"
            return "kept"
        if "error" in payload:
            raise FatalError(text_of(payload["error"]))
        return text_of(payload["result"])

    @task
    async def length(ctx: Context, payload: str) -> int:
        return len(payload)

    sizes = (MAX_PAYLOAD + 1, 1 << 20, 50 << 20)
    async with AsyncPerdure(url) as app, app.worker():
        assert await app.execute(length, text_of(LARGEST)) == LARGEST - 2
        for given in sizes:
            with pytest.raises(PayloadTooLarge) as caught:
                await app.enqueue(length, text_of(given))
            assert_says(f"{caught.value.detail} {caught.value.limit}", given, MAX_PAYLOAD)
        assert len(await app.execute(size, {"result": LARGEST})) == LARGEST - 2
        assert await app.execute(size, {"checkpoint": LARGEST}) == "kept"
        for given in sizes:
            job = await app.enqueue(size, {"result": given})
            with pytest.raises(TaskFailed) as failed:
                await job.result(20)
            assert_says(failed.value.failure.message, given, MAX_PAYLOAD)
            assert (failed.value.failure.code, failed.value.failure.retryable) == ("unencodable_result", False)
            assert (await job.status()).attempt == 1
            assert_says(await app.execute(size, {"checkpoint": given}), given, LARGEST)
            with pytest.raises(TaskFailed) as failed:
                await app.execute(size, {"error": given})
            assert failed.value.failure.code == "fatal"
            assert len(failed.value.failure.message) <= 8 * 1024
        assert len(await app.execute(size, {"result": 100})) == 98


# ---------------------------------------------------------------------------------------------------- forgotten awaits
async def _number() -> int:
    return 1


def _numbers() -> Any:
    yield 1


async def _later() -> Any:
    yield 1


def _future() -> asyncio.Future[int]:
    loop = asyncio.new_event_loop()
    future = loop.create_future()
    loop.close()
    return future


FORGOTTEN: dict[str, Callable[[], Any]] = {
    "coroutine": _number, "generator": _numbers, "async generator": _later, "future": _future,
}  # fmt: skip


@pytest.mark.parametrize("name", FORGOTTEN)
@pytest.mark.parametrize("nested", [False, True])
def test_b119_a_forgotten_await_is_named(name: str, nested: bool) -> None:
    """As a result of a handler, by itself or within; and as a payload: what a call of the async client without `await`
    gives."""
    made: list[Any] = []

    def forgotten() -> Any:
        made.append(FORGOTTEN[name]())
        return {"value": [made[-1]]} if nested else made[-1]

    @task(retries=0)
    def forgets(ctx: Context, payload: Any) -> Any:
        return forgotten()

    with jumping() as env:
        with pytest.raises(TaskFailed, match=r"(?s)forgets.*result.*await") as caught:
            env.app.enqueue(forgets).result()
        assert caught.value.failure.code == "unencodable_result"
        with pytest.raises(InvalidArgument, match=r"payload.*await"):
            env.app.enqueue(forgets, forgotten())
    for value in made:
        if name == "coroutine":
            value.close()


# ------------------------------------------------------------------------------------------------ the error that counts
def test_b108_an_error_of_the_clean_up_hides_nothing() -> None:
    """A handler that raises within `finally`: the caller gets that error, with the one before it as its cause."""

    @task(retries=0)
    def cleans_up(ctx: Context, payload: Any) -> None:
        try:
            raise LookupError("the real one")
        finally:
            raise OSError("of the clean-up")

    with jumping() as env, pytest.raises(TaskFailed) as caught:
        env.app.enqueue(cleans_up).result()
    failure = caught.value.failure
    assert (failure.type, failure.message, failure.code) == ("OSError", "of the clean-up", "handler_error")
    assert failure.cause is not None
    assert (failure.cause.type, failure.cause.message) == ("LookupError", "the real one")
