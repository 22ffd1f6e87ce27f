"""How an attempt ends is what is reported, whatever a handler does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Any

import pytest

from perdure import Cancelled, Context, FatalError, RetryableError, task
from perdure.core.model import Payload
from perdure.worker.worker import Worker
from tests.worker.fake import FakeService


@pytest.fixture
async def service() -> FakeService:
    return FakeService()


@pytest.fixture
async def worker(service: FakeService) -> AsyncIterator[Worker]:
    async with Worker(service, slots=10, drain_seconds=0.0) as worker:
        yield worker


@task
async def raises(ctx: Context, payload: str) -> None:
    raise ERRORS[payload]()


@task
def raises_plain(ctx: Context, payload: str) -> None:
    raise ERRORS[payload]()


class Odd(BaseException):
    pass


ERRORS: dict[str, Callable[[], BaseException]] = {
    "value": lambda: ValueError("bad"),
    "fatal": lambda: FatalError("enough"),
    "later": lambda: RetryableError("busy", retry_after=7),
    "cancelled": lambda: Cancelled("by itself"),
    "exit": lambda: SystemExit(3),
    "interrupt": lambda: KeyboardInterrupt(),
    "odd": lambda: Odd("odd"),
    "cancel": lambda: asyncio.CancelledError(),
    "generator": lambda: GeneratorExit(),
}
both = pytest.mark.parametrize("kind", ["", "_plain"])
pytestmark = pytest.mark.usefixtures("worker")


@both
async def test_a_result(service: FakeService, kind: str) -> None:
    lease = await service.give("echo" + kind, {"a": [1, None]})
    assert await service.result(lease) == {"a": [1, None]}


@both
@pytest.mark.parametrize("name", ERRORS)
async def test_whatever_is_raised_ends_the_attempt_and_not_the_worker(
    service: FakeService, kind: str, name: str
) -> None:
    report = await service.reported(await service.give("raises" + kind, name))
    assert (report.outcome, report.failure is not None) == ("failed", True)
    assert report.failure is not None
    assert report.failure.type == type(ERRORS[name]()).__name__
    assert report.failure.code == ("fatal" if name == "fatal" else "handler_error")
    assert report.failure.retryable is (name != "fatal")
    assert report.retry_after == (7 if name == "later" else None)
    assert "execute.py" not in report.failure.stack
    assert await service.result(await service.give("echo" + kind, "next")) == "next"


async def test_unknown_handler_is_a_dead_letter(service: FakeService) -> None:
    """TASK-18."""
    report = await service.reported(await service.give("nobody_knows"))
    assert report.failure is not None
    assert (report.outcome, report.failure.code, report.failure.retryable) == ("failed", "unknown_handler", False)


@both
async def test_a_payload_that_cannot_be_read(service: FakeService, kind: str) -> None:
    raw = (Payload({"encoding": "json/encrypted"}, b"?"),)
    report = await service.reported(await service.give("echo" + kind, raw=raw))
    assert report.failure is not None
    assert (report.failure.code, report.failure.retryable) == ("undecodable_payload", False)


async def _answer() -> int:
    return 42


RESULTS = {"set": {1}, "nan": float("nan"), "tuple": {"a": (1,)}, "large": "x" * 300_000}


@task
def odd_result(ctx: Context, payload: str) -> Any:
    return RESULTS[payload]


@task
def forgot_await(ctx: Context, payload: Any) -> Any:
    coroutine = _answer()
    coroutine.close()
    return coroutine


@pytest.mark.parametrize("name", RESULTS)
async def test_a_result_that_cannot_be_sent(service: FakeService, name: str) -> None:
    """B130, B133, B135: a terminal failure that names the task and the path."""
    report = await service.reported(await service.give("odd_result", name))
    assert report.failure is not None
    assert (report.failure.code, report.failure.retryable) == ("unencodable_result", False)
    assert report.failure.message.startswith("task odd_result: result")


async def test_a_forgotten_await_names_the_handler(service: FakeService) -> None:
    """B119."""
    report = await service.reported(await service.give("forgot_await"))
    assert report.failure is not None
    assert "forgot_await" in report.failure.message
    assert "await" in report.failure.message


# ------------------------------------------------------------------------------------------------------------ stopping
seen: list[str] = []


@task
async def waits(ctx: Context, payload: str) -> str:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        seen.append(ctx.stop)
        if payload == "returns":
            return "anyway"
        raise
    return ""


@task
def waits_plain(ctx: Context, payload: str) -> str:
    while not ctx.cancelled():
        time.sleep(0.001)
    seen.append(ctx.stop)
    if payload == "returns":
        return "anyway"
    ctx.raise_if_cancelled()
    return ""


@both
async def test_cancel_is_heard_with_a_heartbeat(service: FakeService, kind: str) -> None:
    """CANC-02, B121."""
    lease = await service.give("waits" + kind, "")
    service.actions[lease] = "cancel"
    report = await service.reported(lease)
    assert report.outcome == "canceled"


@both
async def test_a_handler_that_returns_in_spite_of_a_cancel_has_succeeded(service: FakeService, kind: str) -> None:
    """CANC-08."""
    lease = await service.give("waits" + kind, "returns")
    service.actions[lease] = "cancel"
    assert await service.result(lease) == "anyway"


@both
@pytest.mark.parametrize("payload", ["", "returns"])
async def test_nothing_is_reported_once_the_lease_is_lost(service: FakeService, kind: str, payload: str) -> None:
    """TASK-24."""
    seen.clear()
    lease = await service.give("waits" + kind, payload)
    service.actions[lease] = "lost"
    await service.beaten_for(lease)
    assert await service.result(await service.give("echo")) is None
    while not seen:
        await asyncio.sleep(0.001)
    assert await service.result(await service.give("echo")) is None
    assert seen == ["lost"]
    assert lease not in service.reports


@both
@pytest.mark.parametrize("payload", ["", "returns"])
async def test_start_to_close(service: FakeService, kind: str, payload: str) -> None:
    """TMO-01, B023: an async handler is cancelled, a plain one told."""
    report = await service.reported(await service.give("waits" + kind, payload, start_to_close=0.05))
    assert report.failure is not None
    assert (report.outcome, report.failure.code) == ("failed", "start_to_close_timeout")
    assert report.failure.retryable


async def test_a_handler_that_ends_in_time_is_not_timed_out(service: FakeService) -> None:
    assert await service.result(await service.give("echo", 1, start_to_close=0.05)) == 1


async def test_a_stop_before_the_first_step_keeps_the_handler_from_starting(service: FakeService) -> None:
    """B103: the time-out is over before the loop gets to the handler."""
    seen.clear()
    report = await service.reported(await service.give("waits", "", start_to_close=0.0))
    assert report.failure is not None
    assert report.failure.code == "start_to_close_timeout"


class Exits(Exception):
    def __str__(self) -> str:
        raise SystemExit


class NoTruth(Exception):
    def __bool__(self) -> bool:
        raise ValueError("no truth")


class OddKey:
    def __repr__(self) -> str:
        raise ValueError("no repr")


class ExitingDict(dict[str, Any]):
    def __eq__(self, other: object) -> bool:
        raise SystemExit

    __hash__ = None  # type: ignore[assignment]


@dataclass
class Lazy:
    value: int

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("no attribute")


def odd_outcome(name: str) -> Any:
    error = ValueError("boom")
    match name:
        case "text" | "timedelta" | "nan":
            after: Any = {"text": "7s", "timedelta": timedelta(seconds=7), "nan": float("nan")}[name]
            raise RetryableError(retry_after=after)
        case "mutated":
            later = RetryableError()
            later.retry_after = "soon"  # type: ignore[assignment]
            raise later
        case "str":
            raise Exits
        case "cause":
            raise error from NoTruth()
        case "bool":
            raise NoTruth
    values = {
        "dataclass": Lazy(1),
        "zone": datetime(2026, 1, 1, tzinfo=tzinfo()),
        "key": {OddKey(): 1},
        "exit": ExitingDict(a=1),
    }
    return values[name]


@task
async def ends_oddly(ctx: Context, payload: str) -> Any:
    return odd_outcome(payload)


@task
def ends_oddly_plain(ctx: Context, payload: str) -> Any:
    return odd_outcome(payload)


ODD = {
    "text": "RetryableError",
    "timedelta": "RetryableError",
    "nan": "TypeError",
    "mutated": "UnreadableOutcome",
    "str": "Exits",
    "cause": "ValueError",
    "bool": "NoTruth",
    "dataclass": "InvalidArgument",
    "zone": "InvalidArgument",
    "key": "InvalidArgument",
    "exit": "UnreadableOutcome",
}


@both
@pytest.mark.parametrize("name", ODD)
async def test_no_outcome_is_lost(service: FakeService, kind: str, name: str) -> None:
    """B134, SDK-19: what cannot be looked at is reported as that; else the task stays leased for ever."""
    async with asyncio.timeout(20):
        report = await service.reported(await service.give("ends_oddly" + kind, name))
        assert await service.result(await service.give("echo" + kind, 1)) == 1
    assert (report.outcome, report.failure is not None and report.failure.type) == ("failed", ODD[name])
    assert report.retry_after == (7 if name in ("text", "timedelta") else None)


@both
@pytest.mark.parametrize(("attempt", "level"), [(2, "WARNING"), (5, "ERROR")])
async def test_a_failed_attempt_is_logged(
    service: FakeService, caplog: pytest.LogCaptureFixture, kind: str, attempt: int, level: str
) -> None:
    """With the stack when it was the last one."""
    lease = await service.give("raises" + kind, "value", attempt=attempt)
    await service.reported(lease)
    (record,) = (record for record in caplog.records if record.name == "perdure.worker")
    text = f"task raises{kind} (task-1) attempt {attempt} of 5 failed: ValueError: bad"
    assert (record.levelname, record.getMessage()) == (level, text)
    assert ("Traceback" in caplog.text) is (level == "ERROR")


@pytest.mark.parametrize("name", ["raises", "nobody_knows"])
async def test_what_is_not_tried_again_is_logged_as_an_error(
    service: FakeService, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    await service.reported(await service.give(name, "fatal"))
    assert [record.levelname for record in caplog.records if "attempt 1 of 5" in record.getMessage()] == ["ERROR"]
