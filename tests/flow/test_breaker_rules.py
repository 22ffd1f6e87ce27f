"""The state machine of a breaker as values: core/breaker.py (RETRY-09, RETRY-10, RETRY-14)."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perdure.core import breaker
from perdure.core.breaker import (
    MOVES,
    PARTS,
    Cause,
    Circuit,
    Ending,
    Stage,
    Verdict,
    configured,
    ending,
    free,
    judge,
    lately,
    probe,
    switch,
)
from perdure.core.errors import IllegalMove
from perdure.core.limits import MAX_CRASHES
from perdure.core.model import SECOND, Failure, Task, pack
from perdure.core.states import Kind, State
from tests.store.rows import changed, leased, new_task

NOW = 1_000_000 * SECOND
CLOSED = Circuit(
    crashes=3, failure_rate=0.5, window=10 * SECOND, min_attempts=4, cool_down=30 * SECOND, probes=2
)  # fmt: skip
SUCCESS, FAILURE, CRASH = (Ending(verdict, NOW) for verdict in Verdict)
OPEN = switch(CLOSED, True, "", NOW)
DUE = OPEN.until
PROBE_1, PROBE_2 = (b"1" * 16, 1), (b"2" * 16, 4)
HALF_OPEN = probe(OPEN, [], [PROBE_1], DUE)
BY_STAGE = {Stage.CLOSED: CLOSED, Stage.OPEN: OPEN, Stage.HALF_OPEN: HALF_OPEN}


def crash_of(session: int) -> Ending:
    return Ending(Verdict.CRASHED, NOW, session)


def at(one: Ending, started_at: int) -> Ending:
    return one._replace(started_at=started_at)


@pytest.mark.parametrize(("stage", "cause"), sorted(product(Stage, Cause)))
def test_what_is_not_in_the_table_is_an_error_and_changes_nothing(stage: Stage, cause: Cause) -> None:
    circuit = BY_STAGE[stage]
    if (stage, cause) in MOVES:
        assert breaker._move(circuit, cause, NOW, "why").stage is MOVES[stage, cause]
    else:
        with pytest.raises(IllegalMove):
            breaker._move(circuit, cause, NOW, "why")


@pytest.mark.parametrize(
    ("before", "endings", "stage", "reason"),
    [
        (CLOSED, [CRASH] * 2, Stage.CLOSED, ""),
        (CLOSED, [CRASH] * 3, Stage.OPEN, "3 crashes in a row"),
        (CLOSED, [CRASH, CRASH, SUCCESS, CRASH], Stage.OPEN, "3 of 4 attempts failed within 10 s"),
        (CLOSED, [FAILURE] * 3, Stage.CLOSED, ""),
        (CLOSED, [SUCCESS, FAILURE, SUCCESS, FAILURE], Stage.OPEN, "2 of 4 attempts failed within 10 s"),
        (CLOSED, [SUCCESS] * 5 + [FAILURE], Stage.CLOSED, ""),
        (OPEN, [SUCCESS, CRASH, FAILURE], Stage.OPEN, "by hand"),
        (HALF_OPEN, [at(FAILURE, DUE)], Stage.OPEN, "a probe failed"),
        (HALF_OPEN, [at(CRASH, DUE)], Stage.OPEN, "a probe crashed"),
        (HALF_OPEN, [at(SUCCESS, DUE)], Stage.HALF_OPEN, "by hand"),
        (HALF_OPEN, [at(SUCCESS, DUE)] * 2, Stage.CLOSED, "2 probes succeeded"),
        (HALF_OPEN, [SUCCESS, FAILURE, CRASH], Stage.HALF_OPEN, "by hand"),
    ],
)
def test_endings_move_it(before: Circuit, endings: list[Ending], stage: Stage, reason: str) -> None:
    after = judge(before, endings, DUE)
    assert (after.stage, after.reason) == (stage, reason)
    if stage is Stage.OPEN and before is not OPEN:
        assert (after.since, after.until) == (DUE, DUE + 30 * SECOND)


def test_the_death_of_a_worker_counts_once_whatever_it_had_in_hand() -> None:
    assert judge(CLOSED, [crash_of(1)] * 50, NOW).in_a_row == 1
    assert judge(CLOSED, [crash_of(1), crash_of(2)] * 50, NOW).in_a_row == 2
    assert judge(CLOSED, [crash_of(1)] * 50, NOW).parts[-1][1:] == (1, 1)
    assert judge(CLOSED, [crash_of(1), crash_of(2), crash_of(3)], NOW).stage is Stage.OPEN


def test_an_attempt_whose_worker_survived_ends_the_row() -> None:
    """Also one that failed."""
    assert judge(replace(CLOSED, failure_rate=None), [CRASH, CRASH, FAILURE, CRASH, CRASH], NOW).in_a_row == 2


def test_what_failed_longer_ago_than_the_window_is_forgotten() -> None:
    circuit = judge(replace(CLOSED, crashes=None), [FAILURE] * 3, NOW)
    assert lately(circuit) == (3, 3)
    later = judge(circuit, [SUCCESS], NOW + 10 * SECOND)
    assert (lately(later), later.stage) == ((1, 0), Stage.CLOSED)
    assert judge(circuit, [SUCCESS], NOW + 8 * SECOND).stage is Stage.OPEN


def test_probes_start_when_the_cool_down_is_over_and_no_more_than_are_wanted() -> None:
    assert free(OPEN, 0, DUE - 1) == 0
    assert free(OPEN, 0, DUE) == 2
    assert HALF_OPEN.probing == (PROBE_1,)
    assert (free(HALF_OPEN, 1, DUE), free(HALF_OPEN, 2, DUE), free(HALF_OPEN, 3, DUE)) == (1, 0, 0)
    passed = judge(HALF_OPEN, [at(SUCCESS, DUE)], DUE)
    assert (free(passed, 0, DUE), free(passed, 1, DUE)) == (1, 0)
    assert probe(HALF_OPEN, [PROBE_1], [PROBE_2], DUE).probing == (PROBE_1, PROBE_2)


def test_every_state_begins_with_nothing_counted() -> None:
    tripped = judge(CLOSED, [CRASH] * 3, NOW)
    recovered = judge(probe(tripped, [], [PROBE_1], DUE), [at(SUCCESS, DUE)] * 2, DUE)
    assert recovered == replace(CLOSED, since=DUE, reason="2 probes succeeded")
    assert judge(recovered, [CRASH] * 9, DUE + 1) == recovered, "they began before it closed"


def test_new_settings_keep_the_state() -> None:
    wanted = replace(CLOSED, cool_down=60 * SECOND, crashes=7)
    assert configured(None, wanted) == wanted
    assert configured(OPEN, None) is None
    opened = configured(OPEN, wanted)
    assert opened is not None
    assert (opened.stage, opened.crashes, opened.until) == (Stage.OPEN, 7, NOW + 60 * SECOND)
    counted = judge(CLOSED, [CRASH] * 2, NOW)
    assert configured(counted, CLOSED) == counted
    narrower = configured(counted, replace(CLOSED, window=SECOND))
    assert narrower is not None
    assert (narrower.in_a_row, narrower.parts) == (2, ())


@pytest.mark.parametrize("probes", [1, 2])
def test_fewer_probes_than_have_succeeded_leave_one_to_start(probes: int) -> None:
    """Else nothing would start, and nothing could close it."""
    tripped = replace(OPEN, probes=3)
    passed = judge(probe(tripped, [], [PROBE_1, PROBE_2], DUE), [at(SUCCESS, DUE)] * 2, DUE)
    fewer = configured(passed, replace(CLOSED, probes=probes))
    assert fewer is not None
    assert free(fewer, 0, DUE) == 1
    assert judge(fewer, [at(SUCCESS, DUE)], DUE).stage is Stage.CLOSED


def test_somebody_opens_and_closes_it() -> None:
    again = switch(OPEN, True, "still down", NOW + 1)
    assert (again.until, again.reason) == (NOW + 1 + 30 * SECOND, "by hand: still down")
    assert again.moved(OPEN)
    assert switch(HALF_OPEN, False, "", NOW).stage is Stage.CLOSED


RUNNING = leased(new_task(1), session=7)


@pytest.mark.parametrize(
    ("before", "fields", "found"),
    [
        (RUNNING, {"state": State.SUCCEEDED, "attempt": 1}, Verdict.SUCCEEDED),
        (RUNNING, {"state": State.RETRY_WAIT, "attempt": 1}, Verdict.FAILED),
        (RUNNING, {"state": State.FAILED, "attempt": 1, "failure": b"\xc1 of another version"}, Verdict.FAILED),
        (RUNNING, {"state": State.RETRY_WAIT, "attempt": 1, "failure": "start_to_close_timeout"}, Verdict.FAILED),
        (RUNNING, {"state": State.RETRY_WAIT, "attempt": 1, "failure": "process_died"}, Verdict.CRASHED),
        (RUNNING, {"state": State.FAILED, "attempt": 1, "failure": "lease_lost"}, Verdict.CRASHED),
        (RUNNING, {"state": State.ENQUEUED}, None),
        (RUNNING, {"state": State.CANCELED, "attempt": 1, "failure": "lease_lost"}, None),
        (changed(RUNNING, kind=Kind.ACTIVITY), {"state": State.SUCCEEDED, "attempt": 1}, Verdict.SUCCEEDED),
        (changed(RUNNING, kind=Kind.WORKFLOW), {"state": State.SUCCEEDED, "attempt": 1}, None),
    ],
)
def test_what_the_end_of_a_lease_says(before: Task, fields: dict[str, Any], found: Verdict | None) -> None:
    """RETRY-14: only what spent an attempt; canceled work says nothing."""
    if isinstance(code := fields.get("failure"), str):
        fields = {**fields, "failure": pack(Failure(message="", code=code))}
    one = ending(before, changed(before, **fields))
    assert (None if one is None else one.verdict) == found
    if one is not None:
        assert one.started_at == before.attempt_started_at
        assert one.session == (7 if code == "lease_lost" else None)


ENDINGS = st.builds(
    Ending, st.sampled_from(Verdict), st.integers(NOW - SECOND, NOW + SECOND), st.none() | st.integers(1, 4)
)
SETTINGS = st.builds(
    Circuit,
    crashes=st.none() | st.integers(1, MAX_CRASHES),
    failure_rate=st.none() | st.floats(0.01, 1),
    window=st.integers(SECOND, 60 * SECOND),
    min_attempts=st.integers(1, 50),
    cool_down=st.integers(SECOND, 60 * SECOND),
    probes=st.integers(1, 5),
)


@given(SETTINGS, st.lists(st.tuples(st.lists(ENDINGS, max_size=40), st.integers(0, 5 * SECOND)), max_size=40))
def test_whatever_ends_it_stays_small_and_within_its_settings(
    circuit: Circuit, rounds: list[tuple[list[Ending], int]]
) -> None:
    now = NOW
    for endings, pause in rounds:
        now += pause
        before, circuit = circuit, judge(circuit, [at(one, one.started_at + now - NOW) for one in endings], now)
        assert len(circuit.parts) <= PARTS
        assert len(circuit.dead) <= min(circuit.in_a_row, MAX_CRASHES)
        assert circuit.settings == before.settings
        if circuit.stage is Stage.CLOSED and circuit.crashes is not None:
            assert circuit.in_a_row < circuit.crashes
        if circuit.stage is Stage.OPEN and now >= circuit.until:
            circuit = probe(circuit, [], [PROBE_1] * free(circuit, 0, now), now)
            assert len(circuit.probing) == circuit.probes
        assert circuit.stage is not Stage.OPEN or circuit.until == circuit.since + circuit.cool_down
