"""The table of moves is all there is (TASK-02, TASK-03)."""

from __future__ import annotations

import pytest

from perdure.core.errors import IllegalMove
from perdure.core.states import MOVES, Cause, State, is_closed, job_state, move

EVERY = [(state, cause) for state in State for cause in Cause]


@pytest.mark.parametrize(("state", "cause"), EVERY, ids=lambda value: value.name)
def test_a_move_is_in_the_table_or_illegal(state: State, cause: Cause) -> None:
    if (state, cause) in MOVES:
        assert move(state, cause) is MOVES[state, cause]
    else:
        with pytest.raises(IllegalMove, match=f"{state.name} cannot {cause.name}"):
            move(state, cause)


def test_a_closed_state_is_never_left() -> None:
    assert not [(state, cause) for state, cause in MOVES if is_closed(state)]


def test_every_cause_moves_something() -> None:
    assert {cause for _, cause in MOVES} == set(Cause)


def test_every_move_goes_somewhere_else() -> None:
    assert all(state is not to for (state, _), to in MOVES.items())


def test_a_task_that_never_started_expires_and_never_one_that_runs() -> None:
    assert [state for (state, _), to in MOVES.items() if to is State.EXPIRED] == [State.ENQUEUED]


def test_closed_states_are_those_behind_the_mark() -> None:
    open_states = {State.ENQUEUED, State.LEASED, State.WAITING, State.RETRY_WAIT}
    assert {state for state in State if not is_closed(state)} == open_states


@pytest.mark.parametrize("state", State)
def test_every_state_has_a_job_view(state: State) -> None:
    """X-06: cancelling shows while the task is open, and no longer once it has closed."""
    view = job_state(state, cancel_requested=False)
    assert view in {"QUEUED", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED"}
    assert job_state(state, cancel_requested=True) == (view if is_closed(state) else "CANCELLING")
