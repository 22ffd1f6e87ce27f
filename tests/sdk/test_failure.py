"""Whatever a handler raises becomes a bounded failure (B134, B136)."""

from __future__ import annotations

import threading

from perdure.core.errors import FatalError
from perdure.core.model import Failure, pack, unpack
from perdure.sdk.failure import MAX_CAUSES, MAX_MESSAGE, MAX_STACK, to_failure


class NeedsThree(Exception):
    def __init__(self, a: int, b: int, c: int) -> None:
        super().__init__(f"{a} {b} {c}")
        self.lock = threading.Lock()


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        raise error from cause
    except BaseException as caught:  # noqa: BLE001 - whatever was given
        return caught


def test_type_message_and_innermost_frames() -> None:
    failure = to_failure(raised(NeedsThree(1, 2, 3)))
    assert (failure.type, failure.message, failure.code, failure.retryable) == (
        "NeedsThree",
        "1 2 3",
        "handler_error",
        True,
    )
    assert "in raised" in failure.stack


def test_fatal_error_says_so() -> None:
    failure = to_failure(raised(FatalError("enough")))
    assert (failure.code, failure.retryable) == ("fatal", False)


def test_long_messages_and_stacks_are_cut() -> None:
    def deep(n: int) -> None:
        if n == 0:
            raise ValueError("é" * 5_000_000)
        deep(n - 1)

    try:
        deep(800)
    except ValueError as error:
        failure = to_failure(error)
    assert len(failure.message.encode()) <= MAX_MESSAGE
    assert len(failure.stack.encode()) <= MAX_STACK
    assert len(pack(failure)) < 64 * 1024


def test_str_that_raises() -> None:
    assert to_failure(raised(Mute())).message == "<str() raised ValueError>"


def test_text_that_utf8_cannot_carry() -> None:
    failure = to_failure(raised(ValueError("\ud800 and \x00")))
    assert unpack(pack(failure), Failure).message == "\\ud800 and \x00"


def test_causes_are_kept_and_bounded() -> None:
    error: BaseException = ValueError("first")
    for number in range(30):
        error = raised(ValueError(str(number) * 4_000), error)
    failure = to_failure(error)
    depth = 0
    at: Failure | None = failure
    while at is not None and at.cause is not None:
        at, depth = at.cause, depth + 1
    assert depth == MAX_CAUSES
    assert len(pack(failure)) < 64 * 1024


def test_cycle_of_causes_ends() -> None:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    failure = to_failure(one)
    assert failure.cause is not None
    assert failure.cause.message == "two"
    assert failure.cause.cause is None


def test_a_group_shows_what_went_wrong_in_it() -> None:
    group = ExceptionGroup("tasks", [ValueError("first"), KeyError("second")])
    failure = to_failure(raised(group))
    assert failure.cause is not None
    assert (failure.type, failure.cause.type, failure.cause.message) == ("ExceptionGroup", "ValueError", "first")
    assert to_failure(raised(ExceptionGroup("tasks", [ValueError(), FatalError("enough")]))).retryable is False
    caused = to_failure(raised(group, OSError("why"))).cause
    assert caused is not None
    assert caused.type == "OSError"
