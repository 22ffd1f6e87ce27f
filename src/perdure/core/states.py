"""The state machine of a task: every legal move, each with its cause.

Two rules. Everything about moves lives in this file; nothing else assigns a state. This file does not know why a cause
arises: `decide.py` does. A move that is not in MOVES raises IllegalMove and changes nothing (TASK-02, TASK-03).

    ENQUEUED   has a place in its queue, or waits for its alarm to give it one (a delay)
    LEASED     one worker owns it; every write of that worker carries the lease
    WAITING    a workflow run that waits for children or messages; a timer that waits for its alarm
    RETRY_WAIT an attempt failed; the alarm gives the task its place back
    the rest   closed: absorbing, seen by the owner, moved out of the table of open tasks (children of a run: deleted)

`lease`, `attempt` and `lost_deliveries` are three counts. Any end of a lease after the worker acknowledged receipt
spends an attempt; a release never does; a lease that ends without receipt does from the third in a row on.

The diagram in docs/states.md is drawn from MOVES by scripts/state_diagram.py; a test compares them.
"""

from __future__ import annotations

from enum import IntEnum

from perdure.core.errors import IllegalMove


class State(IntEnum):
    """States as stored. Open states are below CLOSED_FROM."""

    ENQUEUED = 1
    LEASED = 2
    WAITING = 3
    RETRY_WAIT = 4
    SUCCEEDED = 10
    FAILED = 11
    CANCELED = 12
    EXPIRED = 13
    TERMINATED = 14
    TIMED_OUT = 15
    CONTINUED_AS_NEW = 16


class Kind(IntEnum):
    """What a task is; see DESIGN section 1."""

    JOB = 1
    ACTIVITY = 2
    WORKFLOW = 3
    TIMER = 4
    MESSAGE = 5  #: a signal or a cancel request on its way to another run; a child like the next two
    UPDATE = 6  #: waits for what the code of a run answers to an update
    SWEEP = 7  #: closes the children of a closed run, some at a time
    SCHEDULE = 8  #: waits for its next firing (schedules.py)
    BULK = 9  #: an action on many jobs, some at a time (bulk.py)
    GROUP = 10  #: many activities that a run waits for together; it is their parent (groups.py)


class Cause(IntEnum):
    """Why a task moves."""

    CLAIM = 1  #: a worker's poll got it
    SUCCEED = 2  #: the worker reported a result
    FAIL = 3  #: the attempt failed and another one follows
    EXHAUST = 4  #: the attempt failed and none follows: fatal error, no attempts or no time left
    RELEASE = 5  #: the worker handed it back (drain)
    UNDELIVERED = 6  #: the lease ended and its receipt was never acknowledged
    LOSE = 7  #: the lease ended after receipt and another attempt follows
    RETRY = 8  #: the back-off is over, or an operator cut it short
    CANCEL = 9  #: nobody ran it, so it was canceled at once
    YIELD = 10  #: the worker ended it because it was asked to cancel
    FORCE = 11  #: the worker did not end it within the grace period
    EXPIRE = 12  #: it waited longer than schedule-to-start allows, and never started
    OVERRUN = 13  #: schedule-to-close is over
    WAIT = 14  #: the turn is over, and the run waits for children or messages
    GO_ON = 15  #: the turn is over, and messages came meanwhile: the next one is due
    WAKE = 16  #: something that it may wait for has happened
    ANSWER = 17  #: it need not wait any more: a timer that rang, an update that was answered
    REFUSE = 18  #: an update that was answered with a failure
    TERMINATE = 19  #: closed from outside
    TIME_OUT = 20  #: the run or execution time-out of a workflow is over
    CONTINUE = 21  #: the code asked for a fresh history


CLOSED_FROM = State.SUCCEEDED

_S, _C = State, Cause
MOVES: dict[tuple[State, Cause], State] = {
    (_S.ENQUEUED, _C.CLAIM): _S.LEASED,
    (_S.ENQUEUED, _C.CANCEL): _S.CANCELED,
    (_S.ENQUEUED, _C.EXPIRE): _S.EXPIRED,
    (_S.ENQUEUED, _C.OVERRUN): _S.FAILED,
    (_S.LEASED, _C.SUCCEED): _S.SUCCEEDED,
    (_S.LEASED, _C.FAIL): _S.RETRY_WAIT,
    (_S.LEASED, _C.EXHAUST): _S.FAILED,
    (_S.LEASED, _C.RELEASE): _S.ENQUEUED,
    (_S.LEASED, _C.UNDELIVERED): _S.ENQUEUED,
    (_S.LEASED, _C.LOSE): _S.RETRY_WAIT,
    (_S.LEASED, _C.YIELD): _S.CANCELED,
    (_S.LEASED, _C.FORCE): _S.CANCELED,
    (_S.LEASED, _C.OVERRUN): _S.FAILED,
    (_S.RETRY_WAIT, _C.RETRY): _S.ENQUEUED,
    (_S.RETRY_WAIT, _C.CANCEL): _S.CANCELED,
    (_S.RETRY_WAIT, _C.OVERRUN): _S.FAILED,
    (_S.LEASED, _C.WAIT): _S.WAITING,
    (_S.LEASED, _C.GO_ON): _S.ENQUEUED,
    (_S.LEASED, _C.CONTINUE): _S.CONTINUED_AS_NEW,
    (_S.WAITING, _C.WAKE): _S.ENQUEUED,
    (_S.WAITING, _C.ANSWER): _S.SUCCEEDED,
    (_S.WAITING, _C.REFUSE): _S.FAILED,
    (_S.WAITING, _C.CANCEL): _S.CANCELED,
    **{(state, _C.TERMINATE): _S.TERMINATED for state in (_S.ENQUEUED, _S.LEASED, _S.WAITING, _S.RETRY_WAIT)},
    **{(state, _C.TIME_OUT): _S.TIMED_OUT for state in (_S.ENQUEUED, _S.LEASED, _S.WAITING, _S.RETRY_WAIT)},
}


def is_closed(state: State) -> bool:
    """True for the states that a task never leaves."""
    return state >= CLOSED_FROM


def move(state: State, cause: Cause) -> State:
    """The state after `cause`; IllegalMove when the table has no such move."""
    to = MOVES.get((state, cause))
    if to is None:
        raise IllegalMove(f"a task that is {state.name} cannot {cause.name}")
    return to


def job_state(state: State, cancel_requested: bool) -> str:
    """The job-resource view of a task state (X-06): one table for all front ends."""
    if not is_closed(state) and cancel_requested:
        return "CANCELLING"
    return _JOB_STATES[state]


_JOB_STATES = {
    _S.ENQUEUED: "QUEUED",
    _S.LEASED: "RUNNING",
    _S.WAITING: "RUNNING",
    _S.RETRY_WAIT: "RUNNING",
    _S.SUCCEEDED: "SUCCEEDED",
    _S.FAILED: "FAILED",
    _S.EXPIRED: "FAILED",
    _S.TIMED_OUT: "FAILED",
    _S.CANCELED: "CANCELLED",
    _S.TERMINATED: "CANCELLED",
    _S.CONTINUED_AS_NEW: "RUNNING",
}
