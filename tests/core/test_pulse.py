"""When expiry is held back: after an outage and after a jump of the clock (B008, B052)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core import pulse
from perdure.core.model import SECOND, Pulse
from tests.clock import START


@given(st.lists(st.integers(-5 * SECOND, 5 * SECOND), max_size=50))
def test_nothing_is_held_while_servers_reach_the_database(steps: list[int]) -> None:
    now, held = START, Pulse(alive_at=START, hold_until=0)
    for step in steps:
        now += step
        held = pulse.take(held, now)
        assert held == Pulse(alive_at=now, hold_until=0)


@pytest.mark.parametrize("jump", [6 * SECOND, 3600 * SECOND, -6 * SECOND, -3600 * SECOND])
def test_a_gap_or_a_jump_holds_for_a_heartbeat_interval_and_a_half(jump: int) -> None:
    held = pulse.take(Pulse(alive_at=START, hold_until=0), START + jump)
    assert held == Pulse(alive_at=START + jump, hold_until=START + jump + 15 * SECOND)


def test_a_hold_is_not_forgotten_by_the_next_pulse() -> None:
    held = pulse.take(Pulse(alive_at=1, hold_until=0), START)
    assert pulse.take(held, START + SECOND).hold_until == held.hold_until == START + 15 * SECOND


def test_a_new_database_has_nobody_to_hold_for() -> None:
    assert pulse.take(Pulse(alive_at=0, hold_until=0), START) == Pulse(alive_at=START, hold_until=0)


def test_who_only_fell_silent_in_an_outage_is_held_as_leases_are() -> None:
    before = Pulse(alive_at=START, hold_until=0)
    assert pulse.silent(before, START + SECOND) == START + SECOND
    back = START + 60 * SECOND
    ends_at = pulse.silent(before, back)
    assert ends_at == back + 15 * SECOND
    alive = Pulse(alive_at=ends_at - SECOND, hold_until=pulse.take(before, back).hold_until)
    assert not pulse.may_end(alive, ends_at, ends_at - 1)
    assert pulse.may_end(alive, ends_at, ends_at)


def test_what_was_noted_before_an_outage_waits_for_the_end_of_its_hold() -> None:
    before, back = Pulse(alive_at=START, hold_until=0), START + 60 * SECOND
    assert pulse.may_end(before, START, START + SECOND)
    assert not pulse.may_end(before, START + SECOND, back)  # also where nobody has taken the pulse since
    held = pulse.take(before, back)
    assert not pulse.may_end(held, START + SECOND, back + SECOND)
    assert pulse.may_end(held, back + SECOND, back + SECOND)  # somebody knows that it is gone
    alive = Pulse(alive_at=back + 14 * SECOND, hold_until=held.hold_until)
    assert pulse.may_end(alive, START + SECOND, back + 15 * SECOND)
