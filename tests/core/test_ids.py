"""Ids sort in order of arrival, carry their slot, and come back from their text; slots never change."""

from __future__ import annotations

import random
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core import ids
from perdure.core.errors import InvalidArgument
from perdure.core.model import Lease
from tests.clock import START

SIGNED_64 = st.integers(-(2**63), 2**63 - 1)


def mint() -> ids.Mint:
    return ids.Mint(random.Random(7))


@given(st.lists(st.integers(-10_000_000, 10_000_000), min_size=2, max_size=50))
def test_ids_rise_strictly_whatever_the_clock_does(steps: list[int]) -> None:
    """B054: also within a millisecond, and while the clock is set back."""
    source, now, made = mint(), START, []
    for step in steps:
        now += step
        made.append(source.task_id(now))
    assert made == sorted(set(made))


def test_a_burst_within_a_millisecond_stays_in_order() -> None:
    source = mint()
    made = [source.task_id(START) for _ in range(10_000)]
    assert made == sorted(set(made))


def test_an_id_is_a_uuid_of_version_7_that_begins_with_its_time() -> None:
    value = uuid.UUID(bytes=mint().task_id(START))
    assert (value.version, value.variant) == (7, uuid.RFC_4122)
    assert value.int >> 80 == START // 1000


@given(st.integers(0, ids.SLOTS - 1))
def test_an_id_carries_its_slot(slot: int) -> None:
    assert ids.slot(mint().task_id(START, slot)) == slot


def test_ids_without_a_slot_spread_over_all_of_them() -> None:
    source = mint()
    slots = {ids.slot(source.task_id(START)) for _ in range(4_000)}
    assert len(slots) > 3_000
    assert max(slots) < ids.SLOTS


@pytest.mark.parametrize(
    ("parts", "slot"),
    [
        ((), 12980),
        (("",), 2206),
        (("", ""), 3096),
        (("default", "order-1"), 11930),
        (("default", "default", "invoice-7"), 5632),
        (("a", "bc"), 11571),
        (("ab", "c"), 3139),
        (("Ω", "任务 🎉"), 1845),
    ],
)
def test_slots_are_the_same_for_ever(parts: tuple[str, ...], slot: int) -> None:
    """SHARD-12, X-14: test vectors; a change of one of these would lose every row."""
    assert ids.slot_of(*parts) == slot


@given(st.lists(st.text(), max_size=4))
def test_a_slot_is_in_range(parts: list[str]) -> None:
    assert 0 <= ids.slot_of(*parts) < ids.SLOTS


@given(st.binary(min_size=16, max_size=16))
def test_text_comes_back(task_id: bytes) -> None:
    assert ids.text(task_id) == str(uuid.UUID(bytes=task_id))
    assert ids.parse(ids.text(task_id)) == ids.parse(ids.text(task_id).upper()) == task_id


@pytest.mark.parametrize(
    "value",
    [
        "",
        "x",
        "0" * 32,
        "0" * 36,
        "{" + "0" * 36 + "}",
        "00000000-0000-0000-0000-00000000000g",
        "00000000-0000-0000-0000-0000-0000000",
        "00000000-0000-0000-0000-00000000000\u0661",
        "../../etc/passwd",
    ],
)
def test_what_is_no_id_is_refused(value: str) -> None:
    """B015."""
    with pytest.raises(InvalidArgument) as refused:
        ids.parse(value, "task")
    assert refused.value.field == "task"


@given(st.binary(min_size=16, max_size=16), st.integers(0, 2**31 - 1), SIGNED_64, st.booleans())
def test_lease_tokens_come_back(task_id: bytes, number: int, bits: int, job: bool) -> None:
    lease = Lease(task_id, number, bits, job)
    assert ids.parse_lease(ids.lease_token(lease)) == lease


@given(st.binary(max_size=40).filter(lambda token: len(token) != 28))
def test_other_tokens_are_refused(token: bytes) -> None:
    with pytest.raises(InvalidArgument):
        ids.parse_lease(token)


def test_lease_bits_use_all_64_bits() -> None:
    source = mint()
    bits = [source.lease_bits() for _ in range(1_000)]
    assert len(set(bits)) == 1_000
    assert min(bits) < -(2**62) < 2**62 < max(bits)
    assert all(-(2**63) <= value < 2**63 for value in bits)


def test_a_seeded_mint_repeats_itself() -> None:
    one, other = mint(), mint()
    assert [one.task_id(START), one.lease_bits(), one.fraction()] == [
        other.task_id(START),
        other.lease_bits(),
        other.fraction(),
    ]
