"""Fair order inside a lane (QUOTA-14, X-57, B055)."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core import rounds as rounds_module
from perdure.core.rounds import Rounds


def lane(highest: int = 0) -> Rounds:
    rounds = Rounds()
    rounds.learn("lane", 0, highest)
    return rounds


def drain(rounds: Rounds, queued: list[tuple[int, int, str]]) -> list[str]:
    """Serve (place, id, key) in the order of claims; the keys in order of service."""
    served = []
    for place, _, key in sorted(queued):
        rounds.serve("lane", place)
        served.append(key)
    return served


def test_b055_ten_tasks_behind_ten_thousand_are_served_within_ten_rounds() -> None:
    rounds = lane()
    queued = [(rounds.next("lane", "A"), n, "A") for n in range(10_000)]
    queued += [(rounds.next("lane", "B"), 10_000 + n, "B") for n in range(10)]
    order = drain(rounds, queued)
    assert order[:20].count("B") == 10


def test_b055_also_when_the_queue_is_half_served() -> None:
    rounds = lane()
    queued = [(rounds.next("lane", "A"), n, "A") for n in range(10_000)]
    drain(rounds, queued[:5_000])
    queued = queued[5_000:] + [(rounds.next("lane", "B"), 10_000 + n, "B") for n in range(10)]
    assert drain(rounds, queued)[:20].count("B") == 10


def test_a_key_that_was_idle_gets_no_credit() -> None:
    rounds = lane()
    rounds.next("lane", "B")
    rounds.serve("lane", 500)
    assert rounds.next("lane", "B") == 501
    assert rounds.next("lane", "C") == 501


@given(st.lists(st.booleans(), max_size=200))
def test_one_key_alone_is_first_in_first_out(steps: list[bool]) -> None:
    """B054: every task gets a later round than the one before, however many were served in between."""
    rounds = lane()
    given_out: list[int] = []
    waiting: list[int] = []
    for enqueue in steps:
        if enqueue:
            given_out.append(rounds.next("lane", "A"))
            waiting.append(given_out[-1])
        elif waiting:
            rounds.serve("lane", waiting.pop(0))
    assert given_out == sorted(set(given_out))


@given(st.lists(st.sampled_from("ABCDE"), min_size=1, max_size=300))
def test_keys_take_turns(keys: list[str]) -> None:
    """Of what waits, no key is served a second time before each other one was served once."""
    rounds = lane()
    queued = [(rounds.next("lane", key), n, key) for n, key in enumerate(keys)]
    order = drain(rounds, queued)
    for key in set(keys):
        firsts = order[: len(set(keys))]
        assert key in firsts


def test_a_restart_keeps_the_order_of_what_is_queued() -> None:
    rounds = lane()
    before = [rounds.next("lane", "A") for _ in range(50)]
    restarted = lane(highest=before[-1])
    assert restarted.next("lane", "A") == before[-1] + 1
    assert restarted.next("lane", "B") == before[-1] + 1


def test_a_lane_is_learned_once() -> None:
    rounds = Rounds()
    assert set(rounds.unknown({"lane", "other"})) == {"lane", "other"}
    rounds.learn("lane", 0, 7)
    rounds.learn("lane", 0, 1)
    assert rounds.unknown({"lane", "other"}) == ["other"]
    assert rounds.next("lane", "A") == 8


def test_lanes_do_not_know_of_each_other() -> None:
    rounds = lane()
    rounds.learn("other", 0, 0)
    rounds.serve("other", 100)
    rounds.serve("unseen", 100)
    assert rounds.next("lane", "A") == 1


def test_a_task_that_was_handed_back_is_served_next() -> None:
    rounds = lane()
    waiting = [rounds.next("lane", "A") for _ in range(10)]
    rounds.serve("lane", waiting[2])
    assert rounds.front("lane") <= min(waiting[3:])


def test_time_never_goes_back() -> None:
    rounds = lane()
    rounds.serve("lane", 10)
    rounds.serve("lane", 3)
    assert rounds.front("lane") == 10


def test_keys_that_were_served_are_forgotten_without_losing_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds_module, "MAX_TAGS", 10)
    rounds = lane()
    rounds.serve("lane", 5)
    late = [rounds.next("lane", "A") for _ in range(3)]
    for n in range(100):
        rounds.next("lane", f"key-{n}")
    assert rounds.next("lane", "A") > late[-1]


def test_very_many_waiting_keys_are_bounded_and_cost_each_task_the_same() -> None:
    """Keys that are too many to remember start behind all that wait: order is kept, and so is memory."""
    rounds = lane()
    started = time.process_time()
    given = [rounds.next("lane", f"key-{n}") for n in range(200_000)]
    assert given == sorted(given)
    assert given[-1] < 50
    assert len(rounds._lanes["lane"].tags) <= rounds_module.MAX_TAGS
    assert time.process_time() - started < 20


def test_servers_do_not_drift_apart() -> None:
    """One that serves no polls learns from the store how far the others are; else its new tasks would pass all
    theirs."""
    one, other = lane(), lane()
    for _ in range(1000):
        one.serve("lane", one.next("lane", ""))
    waits = one.next("lane", "")
    other.learn("lane", waits, waits)
    assert other.next("lane", "") >= waits
