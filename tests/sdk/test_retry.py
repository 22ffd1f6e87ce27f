"""What a task declares about errors of its handler, and what its retry policy makes of an attempt."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import FatalError, InvalidArgument, RetryableError, RetryPolicy, task
from perdure.core import limits
from perdure.core.model import DEFAULT_RETRY
from perdure.sdk.retry import AfterError, Verdict, retry_policy


@given(st.lists(st.floats(0.001, 31 * 86_400.0), min_size=1, max_size=100), st.integers(1, 10_000), st.floats(0, 1))
def test_b042_a_fixed_delay_is_the_one_of_the_table_and_the_last_one_repeats(
    delays: list[float], spent: int, fraction: float
) -> None:
    """B042, B044; RETRY-04: made longer by a tenth at most, so that what failed together spreads."""
    policy = limits.retry_policy(RetryPolicy(delays=tuple(delays)))
    delay = delays[min(spent, len(delays)) - 1]
    assert delay <= policy.wait(spent, fraction) <= delay * 1.1000001


@pytest.mark.parametrize(
    ("delays", "field"),
    [
        ((1, 0), "retry.delays[1]"),
        ((-1,), "retry.delays[0]"),
        ((float("nan"),), "retry.delays[0]"),
        ((float("inf"),), "retry.delays[0]"),
        ((32 * 86_400,), "retry.delays[0]"),
        (("1",), "retry.delays[0]"),
        ((True,), "retry.delays[0]"),
        ((1,) * 101, "retry.delays"),
        (5, "retry.delays"),
    ],
    ids=str,
)
def test_b046_a_table_that_nobody_can_keep_is_refused(delays: Any, field: str) -> None:
    """B043, B046."""
    with pytest.raises(InvalidArgument) as caught:
        limits.retry_policy(RetryPolicy(delays=delays))
    assert caught.value.field == field
    assert caught.value.limit


@pytest.mark.parametrize("retries", [-1, 10_000, True, "3", 1.5, RetryPolicy(max_attempts=0)], ids=repr)
def test_b046_bad_policies_are_refused_where_they_are_written(retries: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^retries"):
        task(retries=retries)
    with pytest.raises(InvalidArgument, match=r"^retries_for\[OSError\]"):
        task(retries_for={OSError: retries})


def test_more_attempts_than_the_task_has_are_refused() -> None:
    """B048: a number that could never take effect is no silent default."""
    with pytest.raises(InvalidArgument, match="allows 20 attempts, the task itself 5"):
        task(retries_for={OSError: 19})
    with pytest.raises(InvalidArgument, match="allows 3 attempts, the task itself 2"):
        task(retries=1, retries_for={OSError: 2})
    task(retries=1, retries_for={OSError: RetryPolicy(delays=(1,))})  # which leaves the number to the task


@pytest.mark.parametrize(
    "options", [{"retries_for": {"OSError": 1}}, {"retries_for": {int: 1}}, {"retry_if": 1}], ids=str
)
def test_what_is_no_exception_class_or_predicate_is_refused(options: Any) -> None:
    with pytest.raises(TypeError, match="retr"):
        task(**options)


def test_a_predicate_must_answer_at_once() -> None:
    async def later(error: BaseException) -> bool:
        return True

    with pytest.raises(TypeError, match="plain function"):
        task(retry_if=later)  # type: ignore[arg-type]


def test_the_first_class_that_fits_decides() -> None:
    after = AfterError.of(None, {ConnectionResetError: 0, OSError: RetryPolicy(delays=(7,))}, DEFAULT_RETRY)
    assert after.verdict(ConnectionResetError(), 1) == Verdict(again=False)
    verdict = after.verdict(TimeoutError(), 1)
    assert verdict.again and verdict.wait is not None and 7 <= verdict.wait <= 7.7
    assert after.verdict(ValueError(), 1) == Verdict()


def test_what_a_handler_raises_to_steer_goes_before_the_declarations() -> None:
    def never(error: BaseException) -> bool:
        raise AssertionError("is not asked")

    after = AfterError.of(never, {Exception: 0}, DEFAULT_RETRY)
    assert after.verdict(RetryableError(), 1) == Verdict()
    assert after.verdict(RetryableError(retry_after="2m"), 4) == Verdict(wait=120)
    assert after.verdict(FatalError(), 1) == Verdict(again=False)


def test_a_predicate_that_raises_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def broken(error: BaseException) -> bool:
        raise LookupError

    assert AfterError.of(broken, {}, DEFAULT_RETRY).verdict(ValueError(), 1) == Verdict()
    assert "retry_if raised" in caplog.text


def test_a_number_of_retries_follows_the_first_attempt() -> None:
    assert retry_policy(3, "retries").max_attempts == 4
