"""What is around a handler: types, retries, time-outs, middleware, data converters, log records."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import date
from typing import Any
from uuid import UUID

import pytest

from perdure import (
    Cancelled,
    Context,
    DataConverter,
    FatalError,
    Middleware,
    RetryableError,
    RetryPolicy,
    TaskLogFilter,
    task,
)
from perdure.core.model import Payload
from perdure.sdk.converter import Converter
from perdure.worker.execute import BARE, Environment
from perdure.worker.worker import Worker
from tests.worker.fake import FakeService

both = pytest.mark.parametrize("kind", ["", "_plain"])


@asynccontextmanager
async def working(environment: Environment = BARE) -> AsyncIterator[FakeService]:
    service = FakeService()
    async with Worker(service, slots=10, drain_seconds=0.0, environment=environment):
        yield service


@pytest.fixture
async def service() -> AsyncIterator[FakeService]:
    async with working() as service:
        yield service


async def failure(service: FakeService, lease: bytes) -> tuple[str, bool, str]:
    """Code, whether another attempt may follow, and message."""
    report = await service.reported(lease)
    assert report.outcome == "failed", report
    assert report.failure is not None
    return report.failure.code, report.failure.retryable, report.failure.message


# ---------------------------------------------------------------------------------------------------------------- types
@dataclass
class Resize:
    id: UUID
    until: date
    sizes: set[int] = field(default_factory=set)


@task
async def resizes(ctx: Context, payload: Resize) -> dict[UUID, date]:
    assert isinstance(payload, Resize)
    return {payload.id: payload.until}


@task
def resizes_plain(ctx: Context, payload: Resize) -> dict[UUID, date]:
    assert isinstance(payload, Resize)
    return {payload.id: payload.until}


@task
async def breaks_its_word(ctx: Context, payload: Any) -> list[int]:
    return [1, "2"]  # type: ignore[list-item]


ID = "00000000-0000-0000-0000-000000000001"


@both
async def test_b135_a_handler_gets_and_returns_what_it_is_annotated_with(service: FakeService, kind: str) -> None:
    lease = await service.give("resizes" + kind, {"id": ID, "until": "2026-01-02"})
    assert await service.result(lease) == {ID: "2026-01-02"}


@both
@pytest.mark.parametrize(
    ("payload", "path"),
    [
        ({"id": ID, "until": "soon"}, "payload.until"),
        ({"id": ID, "until": "2026-01-02", "sizes": [1, "x"]}, "payload.sizes[1]"),
        ({"id": 1}, "payload.id"),
        (None, "payload"),
        ("text", "payload"),
    ],
    ids=str,
)
async def test_b135_a_payload_that_does_not_fit_is_a_final_failure_with_the_path(
    service: FakeService, kind: str, payload: Any, path: str
) -> None:
    """TASK-19: it surfaces as the error of an attempt, and another one would not help."""
    code, again, message = await failure(service, await service.give("resizes" + kind, payload))
    assert (code, again) == ("undecodable_payload", False)
    assert message.startswith(f"task resizes{kind}: {path}: ")


async def test_b135_a_result_that_does_not_fit_is_a_final_failure_with_the_path(service: FakeService) -> None:
    code, again, message = await failure(service, await service.give("breaks_its_word"))
    assert (code, again) == ("unencodable_result", False)
    assert message.startswith("task breaks_its_word: result[1]: ")


async def test_a_worker_does_not_start_with_an_annotation_that_nobody_can_read() -> None:
    """It must not fail the tasks that wait for it."""

    @task
    def unreadable(ctx: Context, payload: Nowhere) -> None: ...  # type: ignore[name-defined] # noqa: F821

    with pytest.raises(TypeError, match="'unreadable' cannot be read"):
        async with Worker(FakeService(), tasks=[unreadable]):
            pass


# -------------------------------------------------------------------------------------------------------------- retries
class Busy(Exception):
    pass


class VeryBusy(Busy):
    pass


ERRORS: dict[str, Callable[[], BaseException]] = {
    "busy": Busy,
    "very busy": VeryBusy,
    "value": lambda: ValueError("bad"),
    "key": lambda: KeyError("k"),
    "fatal": lambda: FatalError("f"),
    "later": lambda: RetryableError(retry_after="1m"),
    "fatal in a group": lambda: ExceptionGroup("g", [ValueError(), ExceptionGroup("h", [FatalError("f")])]),
    "later in a group": lambda: ExceptionGroup("g", [ValueError(), RetryableError(retry_after=60)]),
}


def judge(error: BaseException) -> bool:
    return not isinstance(error, ValueError) and "k" not in error.args


@task(
    retries=9,
    retry_if=judge,
    retries_for={Busy: RetryPolicy(delays=(100, 200, 300), max_attempts=4), LookupError: 0},
)
async def struggles(ctx: Context, payload: str) -> None:
    raise ERRORS[payload]()


@pytest.mark.parametrize(
    ("error", "attempt", "again", "wait"),
    [
        ("busy", 1, True, 100),
        ("very busy", 2, True, 200),
        ("busy", 3, True, 300),
        ("busy", 4, False, None),
        ("value", 1, False, None),
        ("key", 1, False, None),
        ("fatal", 1, False, None),
        ("later", 1, True, 60),
        ("later", 9, True, 60),
        ("fatal in a group", 1, False, None),
        ("later in a group", 1, True, 60),
    ],
)
async def test_b044_what_follows_an_error_is_for_its_class_to_say(
    service: FakeService, error: str, attempt: int, again: bool, wait: float | None
) -> None:
    """RETRY-02, RETRY-03: subclasses too; a fixed delay is made longer by a tenth at most."""
    report = await service.reported(await service.give("struggles", error, attempt=attempt))
    assert report.failure is not None
    assert report.failure.retryable is again
    if wait is None:
        assert report.retry_after is None
    else:
        assert report.retry_after is not None
        assert wait <= report.retry_after <= wait * 1.1


# ------------------------------------------------------------------------------------------------------------ time-outs
CALLS: dict[str, Callable[[Context], object]] = {
    "checkpoint": lambda ctx: ctx.checkpoint(1),
    "progress": lambda ctx: ctx.progress(1),
    "idempotency_key": lambda ctx: ctx.idempotency_key("charge"),
    "raise_if_cancelled": lambda ctx: ctx.raise_if_cancelled(),
}
ended = threading.Event()


@task
def calls_on(ctx: Context, payload: str) -> None:
    try:
        while True:
            CALLS[payload](ctx)
            time.sleep(0.001)
    finally:
        ended.set()


@task
def looks(ctx: Context, payload: str) -> None:
    while not ctx.cancelled():
        time.sleep(0.001)
    if payload == "raises":
        raise ValueError("half done")


@pytest.mark.parametrize("call", CALLS)
async def test_b023_a_time_out_ends_a_plain_handler_at_its_next_call(service: FakeService, call: str) -> None:
    """TMO-01, TMO-03: and the failure says where it was."""
    ended.clear()
    report = await service.reported(await service.give("calls_on", call, start_to_close=0.05))
    assert await asyncio.to_thread(ended.wait, 10)
    assert report.failure is not None
    assert (report.outcome, report.failure.code) == ("failed", "start_to_close_timeout")
    assert report.failure.message.startswith("the start-to-close time-out of 0.05 s is over; the handler was stopped")
    assert "in calls_on" in report.failure.stack
    assert report.failure.retryable


@pytest.mark.parametrize(
    ("payload", "how"), [("returns", "the handler returned after it"), ("raises", "the handler then raised ValueError")]
)
async def test_b023_how_a_handler_ends_after_its_time_out_is_told(service: FakeService, payload: str, how: str) -> None:
    report = await service.reported(await service.give("looks", payload, start_to_close=0.05))
    assert report.failure is not None
    assert how in report.failure.message
    assert (report.failure.cause.message if report.failure.cause else None) == (
        "half done" if payload == "raises" else None
    )


@pytest.mark.parametrize("call", CALLS)
async def test_a_lost_lease_ends_a_plain_handler_at_its_next_call(service: FakeService, call: str) -> None:
    """TASK-24: and nothing is reported."""
    ended.clear()
    lease = await service.give("calls_on", call)
    service.actions[lease] = "lost"
    assert await asyncio.to_thread(ended.wait, 10)
    assert await service.result(await service.give("echo")) is None
    assert lease not in service.reports


# ----------------------------------------------------------------------------------------------------------- middleware
seen: list[str] = []
request: ContextVar[str] = ContextVar("request", default="none")


class Noted(Middleware):
    def __init__(self, name: str, *, before: BaseException | None = None, after: BaseException | None = None) -> None:
        self.name, self.raises = name, {"before": before, "after": after}

    def _note(self, what: str, value: object) -> None:
        seen.append(f"{self.name} {what} {value}")
        error = self.raises.get(what)
        if error is not None:
            raise error

    def before(self, ctx: Context, payload: Any) -> None:
        request.set(ctx.task_id)
        self._note("before", payload)

    def after(self, ctx: Context, result: Any) -> None:
        self._note("after", result)

    def error(self, ctx: Context, error: BaseException) -> None:
        self._note("error", type(error).__name__)
        raise LookupError("of the middleware itself")


@task
async def inside(ctx: Context, payload: str) -> str:
    seen.append("handler")
    if payload in ERRORS:
        raise ERRORS[payload]()
    if payload == "waits":
        await asyncio.Event().wait()
    return request.get()


@task
def inside_plain(ctx: Context, payload: str) -> str:
    seen.append("handler")
    if payload in ERRORS:
        raise ERRORS[payload]()
    if payload == "waits":
        while not ctx.cancelled():
            time.sleep(0.001)
        ctx.raise_if_cancelled()
    return request.get()


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    seen.clear()


def around(*middleware: Middleware) -> Environment:
    return Environment(middleware=middleware)


@both
async def test_middleware_is_around_the_handler_in_order(kind: str) -> None:
    """And shares its context variables, which the next run of the thread does not see."""
    async with working(around(Noted("1"), Noted("2"))) as service:
        lease = await service.give("inside" + kind, "p")
        assert (await service.result(lease)).startswith("task-")
    results = [line for line in seen if "after" not in line]
    assert results == ["1 before p", "2 before p", "handler"]
    assert [line.split()[:2] for line in seen[3:]] == [["2", "after"], ["1", "after"]]


@both
async def test_middleware_hears_of_errors_and_cannot_mend_them(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async with working(around(Noted("1"), Noted("2"))) as service:
        code, _, message = await failure(service, await service.give("inside" + kind, "value"))
    assert (code, message) == ("handler_error", "bad")
    assert seen[2:] == ["handler", "2 error ValueError", "1 error ValueError"]
    assert sum("which changes nothing" in record.getMessage() for record in caplog.records) == 2


@both
async def test_middleware_may_refuse_before_the_handler(kind: str) -> None:
    """RetryableError and FatalError mean there what they mean in handlers."""
    later = RetryableError("too many", retry_after=9)
    async with working(around(Noted("1"), Noted("2", before=later), Noted("3"))) as service:
        report = await service.reported(await service.give("inside" + kind, "p"))
    assert (report.outcome, report.retry_after) == ("failed", 9)
    assert seen == ["1 before p", "2 before p", "1 error RetryableError"]


@both
async def test_middleware_that_fails_after_the_handler_fails_the_attempt(kind: str) -> None:
    async with working(around(Noted("1"), Noted("2", after=ValueError("no commit")))) as service:
        _, _, message = await failure(service, await service.give("inside" + kind, "p"))
    assert message == "no commit"
    assert seen[-1] == "1 error ValueError"


@both
@pytest.mark.parametrize(("action", "outcome"), [("cancel", "canceled"), ("lost", None)])
async def test_middleware_swallows_neither_cancel_nor_a_lost_lease(kind: str, action: str, outcome: str | None) -> None:
    """TASK-24, CANC-02."""
    async with working(around(Noted("1"))) as service:
        lease = await service.give("inside" + kind, "waits")
        service.actions[lease] = action
        if outcome is None:
            while len(seen) < 3:
                await asyncio.sleep(0.001)
            assert (await service.result(await service.give("echo"))) is None
            assert lease not in service.reports
        else:
            assert (await service.reported(lease)).outcome == outcome
    assert seen[2].startswith("1 error C")


# --------------------------------------------------------------------------------------------------------------- codecs
class Mirror(DataConverter):
    encoding = "binary/mirrored"

    def encode(self, data: bytes) -> bytes:
        return data[::-1]

    def decode(self, data: bytes) -> bytes:
        return data[::-1]


class Broken(Mirror):
    def encode(self, data: bytes) -> bytes:
        raise SystemError("no key")


@task
def checkpoints(ctx: Context, payload: Any) -> list[Any]:
    before = ctx.last_checkpoint
    ctx.checkpoint({"at": payload})
    return [before, payload, ctx.last_checkpoint]


async def test_a_data_converter_holds_for_payloads_results_and_checkpoints() -> None:
    """SDK-10."""
    converter = Converter([Mirror()])
    async with working(Environment(converter)) as service:
        old = converter.to_payloads("before", "checkpoint")
        lease = await service.give("checkpoints", raw=converter.to_payloads([1], "payload"), checkpoint=old)
        report = await service.reported(lease)
    assert report.checkpoint is not None
    for payloads in (report.result, report.checkpoint):
        assert payloads[0].metadata == {"encoding": "binary/mirrored"}
    assert converter.from_payloads(report.result, "") == ["before", [1], {"at": [1]}]
    assert converter.from_payloads(report.checkpoint, "") == {"at": [1]}


@pytest.mark.parametrize(
    ("converter", "payload"),
    [
        (Converter(), Converter([Mirror()]).to_payloads(1, "")),
        (Converter([Mirror()]), (Payload({"encoding": "binary/mirrored"}, b"of another key"),)),
    ],
    ids=["no codec", "wrong key"],
)
async def test_a_worker_that_cannot_decode_fails_the_task_and_lives(converter: Converter, payload: Any) -> None:
    """SDK-10, B136."""
    async with working(Environment(converter)) as service:
        code, again, message = await failure(service, await service.give("echo", raw=payload))
        assert (code, again) == ("undecodable_payload", False)
        assert "binary/mirrored" in message
        raw = converter.to_payloads(2, "")
        report = await service.reported(await service.give("echo_plain", raw=raw))
        assert converter.from_payloads(report.result, "") == 2


@both
async def test_b136_with_a_converter_the_errors_of_handlers_are_what_they_were(kind: str) -> None:
    async with working(Environment(Converter([Mirror()]))) as service:
        raw = Converter([Mirror()]).to_payloads("value", "")
        code, again, message = await failure(service, await service.give("inside" + kind, raw=raw))
    assert (code, again, message) == ("handler_error", True, "bad")


async def test_a_converter_that_cannot_encode_fails_the_task_and_lives() -> None:
    async with working(Environment(Converter([Broken()]))) as service:
        code, again, message = await failure(service, await service.give("echo", 1))
        assert (code, again) == ("unencodable_result", False)
        assert "no key" in message


# ----------------------------------------------------------------------------------------------------------------- logs
@task
async def logs(ctx: Context, payload: Any) -> None:
    logging.getLogger("app").warning("hello")
    await asyncio.to_thread(logging.getLogger("app").warning, "from a thread")


@task
def logs_plain(ctx: Context, payload: Any) -> None:
    logging.getLogger("app").warning("hello")


@both
async def test_log_records_of_a_handler_carry_its_task(
    service: FakeService, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.filtering(TaskLogFilter()):
        for attempt in (1, 2):
            await service.result(await service.give("logs" + kind, attempt=attempt))
        logging.getLogger("app").warning("outside")
    records: list[Any] = [record for record in caplog.records if record.name == "app"]
    marks = [(record.task_id, record.task_type, record.attempt) for record in records]
    each = 1 if kind else 2
    name = "logs" + kind
    assert marks == [("task-1", name, 1)] * each + [("task-2", name, 2)] * each + [("", "", 0)]
    assert records[0].task == f"{name} task-1 attempt 1: "
    assert records[-1].task == ""


async def test_what_the_worker_logs_names_its_task_once(service: FakeService, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.filtering(TaskLogFilter()):
        await failure(service, await service.give("struggles", "value"))
    [record] = [record for record in caplog.records if record.name == "perdure.worker"]
    assert (getattr(record, "task", None), getattr(record, "task_type", None)) == ("", "struggles")
    assert record.getMessage().startswith("task struggles (task-1) attempt 1 of 5 failed")


# ----------------------------------------------------------------------------------------------------------- exceptions
class Unpicklable(Exception):
    def __init__(self, a: int, *, b: int) -> None:
        super().__init__()
        self.lock = threading.Lock()


def cyclic() -> BaseException:
    one, two, three = ValueError("one"), ValueError("two"), ValueError("three")
    one.__cause__, two.__cause__, three.__cause__ = two, three, one
    return one


HARD: dict[str, Callable[[], BaseException]] = {
    "unpicklable": lambda: Unpicklable(1, b=2),
    "no message": ValueError,
    "10 MB": lambda: ValueError("é" * 5_000_000),
    "no arguments at all": Exception,
    "odd arguments": lambda: ValueError(b"\xff", "\ud800", object()),
    "cycle": cyclic,
    "its own cause": lambda: _itself(ValueError("me")),
    "group": lambda: BaseExceptionGroup("g", [KeyboardInterrupt(), SystemExit()]),
    "huge group": lambda: ExceptionGroup("g", [ValueError("x" * 1_000_000) for _ in range(50)]),
    "recursion": RecursionError,
    "memory": MemoryError,
    "stop": StopIteration,
    "exit": lambda: SystemExit("bye"),
    "interrupt": KeyboardInterrupt,
    "cancelled": asyncio.CancelledError,
    "ours": lambda: Cancelled("by hand"),
}


def _itself(error: BaseException) -> BaseException:
    error.__context__ = error.__cause__ = error
    return error


@task
async def hard(ctx: Context, payload: str) -> None:
    raise HARD[payload]()


@task
def hard_plain(ctx: Context, payload: str) -> None:
    raise HARD[payload]()


@both
@pytest.mark.parametrize("name", HARD)
async def test_b134_any_exception_is_a_failure_that_can_be_stored(service: FakeService, kind: str, name: str) -> None:
    from perdure.api.drafts import completion  # what a server makes of the report

    report = await service.reported(await service.give("hard" + kind, name))
    assert (report.outcome, report.failure is not None) == ("failed", True)
    assert report.failure is not None
    assert len(report.failure.message.encode()) <= 8 * 1024
    assert report.failure.type
    report.lease = bytes(28)
    assert len(completion(report).failure or b"") < 64 * 1024
    assert await service.result(await service.give("echo" + kind, "next")) == "next"


@pytest.mark.parametrize("name", ["10 MB", "huge group", "cycle", "recursion"])
async def test_b134_the_line_in_the_log_is_bounded_too(
    service: FakeService, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """With the stack of the last attempt, and no megabytes of message."""
    await service.reported(await service.give("hard", name, attempt=5))
    [record] = [record for record in caplog.records if record.name == "perdure.worker"]
    text = logging.Formatter().format(record)
    assert len(text.encode()) < 100_000
    assert "in hard\n    raise HARD[payload]()" in text


async def test_what_went_wrong_in_a_group_is_shown(service: FakeService) -> None:
    report = await service.reported(await service.give("struggles", "later in a group"))
    assert report.failure is not None
    assert report.failure.cause is not None
    assert (report.failure.type, report.failure.cause.type) == ("ExceptionGroup", "ValueError")
