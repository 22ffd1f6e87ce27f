"""What callers may send: accepted whole, or refused with the field, the limit and the kind (B015, B046, B128)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core import limits, messages
from perdure.core.errors import InvalidArgument, PayloadTooLarge
from perdure.core.model import Payload, RetryPolicy, Timeouts


@pytest.mark.parametrize(
    "value",
    ["a", "..", "a/b", "a%2Fb", "Ω_задача_任务", "📦", "e\u0301tape", "x" * 255, "a b", "'; drop table tasks; --"],
)
def test_b015_names_that_work(value: str) -> None:
    assert limits.name(value, "queue") == value


@pytest.mark.parametrize(
    "value",
    [
        "",
        "   ",
        " a",
        "a ",
        "\u00a0",
        "\u0000",
        "a\u0000b",
        "a\nb",
        "x" * 256,
        "x" * 10_000,
        "\u202eabc",
        "\ud800",
        "a\u2028",
    ],
)
def test_b015_names_that_are_refused(value: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        limits.name(value, "queue")
    assert (refused.value.field, refused.value.kind) == ("queue", "str")
    assert refused.value.limit


def test_an_empty_name_only_where_it_is_allowed() -> None:
    assert limits.name("", "fairness_key", empty=True) == ""


@given(st.text(st.characters(exclude_categories=()), max_size=300))
def test_a_name_that_passes_can_be_shown_and_stored(value: str) -> None:
    try:
        limits.name(value, "type")
    except InvalidArgument:
        return
    assert value == value.strip() and value.isprintable() and value.encode().decode() == value


@pytest.mark.parametrize("value", ["\x00", "a\x00b", "\ud800", "x" * 2_001])
def test_b128_free_text(value: str) -> None:
    assert limits.text("two\nlines\t\u202e", "reason") == "two\nlines\t\u202e"
    with pytest.raises(InvalidArgument) as refused:
        limits.text(value, "reason")
    assert refused.value.field == "reason"


def test_the_payload_cap_counts_data_and_metadata() -> None:
    """TASK-11."""
    fits = (Payload({"k": "v"}, bytes(limits.MAX_PAYLOAD - 2)),)
    assert limits.payload(fits, "payload") is fits
    for large in ((Payload({"k": "vv"}, fits[0].data),), (*fits, Payload({}, b"1"))):
        with pytest.raises(PayloadTooLarge) as refused:
            limits.payload(large, "payload")
        assert refused.value.field == "payload" and str(limits.MAX_PAYLOAD) in str(refused.value.limit)


def test_headers_are_bounded() -> None:
    assert limits.headers({"a": "b"}, "headers") == {"a": "b"}
    with pytest.raises(PayloadTooLarge):
        limits.headers({"a": "b" * limits.MAX_HEADERS}, "headers")


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        ({"max_attempts": 0}, "retry.max_attempts"),
        ({"max_attempts": 10_001}, "retry.max_attempts"),
        ({"base": 0.0}, "retry.base"),
        ({"base": float("nan")}, "retry.base"),
        ({"factor": 0.5}, "retry.factor"),
        ({"factor": float("inf")}, "retry.factor"),
        ({"base": 10.0, "cap": 9.0}, "retry.cap"),
        ({"cap": 1e30}, "retry.cap"),
        ({"fatal_types": ("",)}, "retry.fatal_types"),
    ],
)
def test_retry_policies_that_are_refused(policy: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        limits.retry_policy(RetryPolicy(**policy))
    assert refused.value.field == field


def test_retry_policies_at_their_bounds() -> None:
    for policy in (
        RetryPolicy(),
        RetryPolicy(max_attempts=1, base=0.001, factor=1.0, cap=0.001),
        RetryPolicy(max_attempts=10_000, base=86_400.0, factor=100.0, cap=31 * 86_400.0, fatal_types=("ValueError",)),
    ):
        assert limits.retry_policy(policy) is policy


def test_timeouts_are_read() -> None:
    options = messages.TimeoutOptions(schedule_to_start="1h30m", start_to_close=5, heartbeat="250ms", lease="1m")
    assert limits.timeouts(options) == Timeouts(
        schedule_to_start=5_400.0, start_to_close=5.0, heartbeat=0.25, lease=60.0
    )


@pytest.mark.parametrize("value", [0, -1, 1e-9, 10**12, 10**30, float("nan"), float("inf"), "", True])
@pytest.mark.parametrize("which", ["schedule_to_start", "start_to_close", "schedule_to_close", "heartbeat", "lease"])
def test_b046_timeouts_that_are_refused(which: str, value: Any) -> None:
    with pytest.raises(InvalidArgument) as refused:
        limits.timeouts(messages.TimeoutOptions(**{which: value}))
    assert refused.value.field == f"timeouts.{which}"


def test_b046_ten_years_work() -> None:
    options = messages.TimeoutOptions(schedule_to_close=3650 * 86_400)
    assert limits.timeouts(options).schedule_to_close == 3650 * 86_400


@given(
    st.datetimes(
        datetime(1970, 1, 2), datetime(2109, 1, 1), timezones=st.sampled_from([UTC, timezone(timedelta(hours=5))])
    )
)
def test_moments_keep_their_microsecond(moment: datetime) -> None:
    micros = limits.microseconds(moment, "run_at")
    assert datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros) == moment


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2027, 1, 1),
        datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=timezone(timedelta(hours=14))),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))),
        datetime(2120, 1, 1, tzinfo=UTC),
    ],
)
def test_moments_that_are_refused(moment: datetime) -> None:
    with pytest.raises(InvalidArgument) as refused:
        limits.microseconds(moment, "run_at")
    assert refused.value.field == "run_at"


@pytest.mark.parametrize(
    ("item", "field"),
    [
        ({"type": ""}, "type"),
        ({"queue": ""}, "queue"),
        ({"app": "\x00"}, "app"),
        ({"idempotency_key": ""}, "idempotency_key"),
        ({"fairness_key": " x"}, "fairness_key"),
        ({"priority": 0}, "priority"),
        ({"priority": 6}, "priority"),
        ({"payload": (Payload({}, bytes(limits.MAX_PAYLOAD + 1)),)}, "payload"),
        ({"headers": {"k": "v" * limits.MAX_HEADERS}}, "headers"),
        ({"delay": -1}, "delay"),
        ({"delay": 1, "run_at": datetime(2027, 1, 1, tzinfo=UTC)}, "run_at"),
        ({"run_at": datetime(2027, 1, 1)}, "run_at"),
        ({"retry": RetryPolicy(max_attempts=0)}, "retry.max_attempts"),
        ({"timeouts": messages.TimeoutOptions(lease=0.5)}, "timeouts.lease"),
    ],
)
def test_a_task_is_refused_at_its_first_fault(item: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        limits.new_task(messages.NewTask(**({"type": "email"} | item)))
    assert refused.value.field == field


def test_a_task_with_everything_passes() -> None:
    limits.new_task(
        messages.NewTask(
            type="email", payload=(Payload({"encoding": "json/plain"}, b"{}"),), idempotency_key="k", delay="1h",
            priority=5, fairness_key="tenant", retry=RetryPolicy(), timeouts=messages.TimeoutOptions(lease=30),
            headers={"a": "b"},
        )
    )  # fmt: skip


@pytest.mark.parametrize("value", [-0.1, 25.1, float("nan")])
def test_waits_are_bounded(value: float) -> None:
    """JOB-14."""
    assert limits.wait(25.0) == 25.0
    with pytest.raises(InvalidArgument) as refused:
        limits.wait(value)
    assert refused.value.field == "wait"
