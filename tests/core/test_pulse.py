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
