"""Durations are read in full or refused (B046, B047)."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.durations import MAX_SECONDS, seconds
from perdure.core.errors import InvalidArgument


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("90", 90.0),
        ("1.5", 1.5),
        ("1h30m", 5_400.0),
        ("42m30s", 2_550.0),
        ("1.5h", 5_400.0),
        ("1d", 86_400.0),
        ("1w2d", 777_600.0),
        ("250ms", 0.25),
        ("1m1ms", 60.001),
        ("PT1H30M", 5_400.0),
        ("P1D", 86_400.0),
        ("PT0.5S", 0.5),
        ("0", 0.0),
        (0, 0.0),
        (1e-9, 1e-9),
        (90, 90.0),
        (3650 * 86_400, 315_360_000.0),
        ("3650d", 315_360_000.0),
    ],
)
def test_b047_read_in_full(written: float | str, meant: float) -> None:
    assert seconds(written, "delay") == pytest.approx(meant)


@pytest.mark.parametrize(
    "written",
    [
        "", " ", " 5m ", "5M", "5 minutes", "5m ", "m", "1h30", "1h 30m", "1,5h", "-1", "-5m", "+5", "1e3", "0x10",
        "1_000", "inf", "nan", "NaN", "Infinity", "P", "PT", "P1", "1h30mx", "١٢", "5\u00a0m", "\x00", "1m\n",
        "5µs", "1y", "P99999999999999999999D", "PT-5M", "-PT5M", "9" * 400, "1s" * 75, "0" * 200 + "5",
    ],
)  # fmt: skip
def test_b047_or_refused_with_the_name_of_the_field(written: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        seconds(written, "timeouts.lease")
    assert refused.value.field == "timeouts.lease"
    assert len(refused.value.detail) < 300


@pytest.mark.parametrize(
    "written",
    [-1, -1e-9, 10**12, 10**30, -(10**30), float("nan"), float("inf"), float("-inf"), True, False, None, b"5", [5], 1j],
)
def test_b046_odd_values_are_refused(written: object) -> None:
    with pytest.raises(InvalidArgument) as refused:
        seconds(written, "delay")  # type: ignore[arg-type]
    assert refused.value.field == "delay"


def test_b046_bounds_are_part_of_the_range() -> None:
    assert seconds(MAX_SECONDS, "delay") == MAX_SECONDS
    assert seconds(0.001, "delay", least=0.001, most=1.0) == 0.001
    for outside in (MAX_SECONDS * 1.001, 10**12):
        with pytest.raises(InvalidArgument):
            seconds(outside, "delay")
    with pytest.raises(InvalidArgument):
        seconds("1ms", "delay", least=0.002)


@given(st.text(alphabet="0123456789.hmsdwPTHMS -+e", max_size=120))
def test_never_a_crash(written: str) -> None:
    try:
        found = seconds(written, "delay")
    except InvalidArgument:
        return
    assert 0 <= found <= MAX_SECONDS


UNITS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}


@given(st.lists(st.tuples(st.integers(0, 400), st.sampled_from(sorted(UNITS))), min_size=1, max_size=6))
def test_sums_are_the_sum_of_their_parts(parts: list[tuple[int, str]]) -> None:
    total = sum(amount * UNITS[unit] for amount, unit in parts) / 1000
    written = "".join(f"{amount}{unit}" for amount, unit in parts)
    if total <= MAX_SECONDS:
        assert seconds(written, "delay") == pytest.approx(total)


@given(st.timedeltas(timedelta(0), timedelta(days=3_000)))
def test_numbers_mean_seconds(span: timedelta) -> None:
    assert seconds(span.total_seconds(), "delay") == span.total_seconds()
