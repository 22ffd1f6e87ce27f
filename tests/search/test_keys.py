"""Keys of search attributes: their order is that of the values, and equal values have equal keys."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from perdure.core import search_keys as keys

texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=60)
numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
moments = st.datetimes(timezones=st.just(UTC))


@given(texts, texts)
def test_texts_sort_by_code_points(one: str, other: str) -> None:
    assert (keys.text(one) < keys.text(other)) == (one < other)


@given(numbers, numbers)
def test_numbers_sort_by_size_whole_or_not(one: float, other: float) -> None:
    assert (keys.number(one) < keys.number(other)) == (float(one) < float(other))
    assert (keys.number(one) == keys.number(other)) == (float(one) == float(other))


@given(moments, moments)
def test_times_sort_by_time_in_whatever_zone_they_are_written(one: datetime, other: datetime) -> None:
    first, second = (keys.moment_of(moment.isoformat()) for moment in (one, other))
    assert first is not None and second is not None
    assert (keys.time(first) < keys.time(second)) == (one < other)


@given(texts, texts)
def test_a_prefix_bounds_what_begins_with_it(start: str, text: str) -> None:
    low, below = keys.prefix(start)
    assert (low <= keys.text(text) < below) == text.startswith(start)
    assert low <= keys.text(start + text) < below


@given(st.text(st.characters(codec="utf-8"), min_size=300, max_size=2_000))
def test_long_texts_have_short_keys_that_are_still_their_own(text: str) -> None:
    assert len(keys.text(text)) <= keys.MAX_TEXT_KEY + 1
    assert keys.text(text) != keys.text(text + "x")


def test_a_value_has_all_its_keys() -> None:
    assert keys.keys(True) == [keys.truth(True)]
    assert keys.keys(-0.0) == keys.keys(0)
    assert keys.keys("Gold fish") == [keys.text("Gold fish"), b"wgold", b"wfish"]
    assert keys.keys("gold") == [keys.text("gold")]
    assert keys.keys(["b", "a"]) == [keys.text("b"), keys.text("a")]
    moment = "2026-11-30T09:00:00+01:00"
    assert keys.time(keys.moment_of(moment) or 0) in keys.keys(moment)
    assert keys.keys({"no": "value"}) == []
    assert keys.entries({"b": "x", "a": ["y", "y"]}) == [("a", b"sy"), ("b", b"sx")]


def test_what_only_looks_like_a_time_is_a_text() -> None:
    for text in ("2026-02-30T09:00:00Z", "2026-11-30", "2026-11-30T09:00:00", "9999-99-99T99:99:99Z"):
        assert keys.moment_of(text) is None


def test_numbers_beyond_doubles_are_the_largest() -> None:
    assert keys.number(10**400) == keys.number(math.inf)
