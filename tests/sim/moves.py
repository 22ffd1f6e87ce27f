"""Which states tasks may go to, written once more from docs/states.md."""

from __future__ import annotations

from perdure.core.states import State

S = State
OPEN = (S.ENQUEUED, S.LEASED, S.RETRY_WAIT)
MOVES = {
    S.ENQUEUED: {S.LEASED, S.CANCELED, S.EXPIRED, S.FAILED},
    S.LEASED: {S.SUCCEEDED, S.RETRY_WAIT, S.FAILED, S.ENQUEUED, S.CANCELED},
    S.RETRY_WAIT: {S.ENQUEUED, S.CANCELED, S.FAILED},
}
"""States that a job may go to, by the diagram in docs/states.md."""
CLOSED_BY_OTHERS = {S.TERMINATED, S.TIMED_OUT}
RUN_MOVES = {
    S.ENQUEUED: {S.LEASED, S.CANCELED, *CLOSED_BY_OTHERS},
    S.LEASED: {S.ENQUEUED, S.RETRY_WAIT, S.WAITING, S.SUCCEEDED, S.FAILED, S.CANCELED, S.CONTINUED_AS_NEW,
               *CLOSED_BY_OTHERS},
    S.RETRY_WAIT: {S.ENQUEUED, *CLOSED_BY_OTHERS},
    S.WAITING: {S.ENQUEUED, *CLOSED_BY_OTHERS},
}  # fmt: skip
"""The same of workflow runs."""
