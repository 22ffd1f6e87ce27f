"""Exit statuses of `perdure`, one for each kind of outcome, so that scripts need not read text.

 0  done
 1  the task failed; a history does not replay; something was found, or left
 2  the command line is wrong, or a module or a history cannot be loaded
 3  not found
 4  the task is still open after the wait
 5  the task was canceled, or the workflow terminated
 6  the task expired before it started
 7  the state of things forbids it (a conflict)
 8  a value is refused
 9  not allowed: no valid API key
10  no server or database answers
11  anything else
128 + n  ended by the second signal n
"""

from __future__ import annotations

from perdure.core.errors import (
    Conflict,
    InvalidArgument,
    NotFound,
    PerdureError,
    PermissionDenied,
    ResourceExhausted,
    TaskCanceled,
    TaskExpired,
    TaskFailed,
    TaskTerminated,
    Unauthenticated,
    Unavailable,
    WaitTimeout,
)

TABLE = "Exit statuses:\n\n" + (__doc__ or "").partition("\n\n")[2].strip("\n")
"""For --help."""
USAGE = 2
REFUSED = 8
NOT_ALLOWED = 9
OTHER = 11

_STATUSES: dict[type[PerdureError], int] = {
    TaskFailed: 1,
    NotFound: 3,
    WaitTimeout: 4,
    TaskCanceled: 5,
    TaskTerminated: 5,
    TaskExpired: 6,
    Conflict: 7,
    InvalidArgument: REFUSED,
    Unauthenticated: NOT_ALLOWED,
    PermissionDenied: NOT_ALLOWED,
    ResourceExhausted: 10,
    Unavailable: 10,
}

HOPELESS = frozenset({USAGE, REFUSED, NOT_ALLOWED})
"""What a worker process need not be started again after."""


def status(error: PerdureError) -> int:
    """The exit status for an error."""
    return next((code for kind, code in _STATUSES.items() if isinstance(error, kind)), OTHER)
