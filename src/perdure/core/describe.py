"""Why an open task is not running, in words, and what happens to it next and when: every wait has a reason."""

from __future__ import annotations

from perdure.core.model import Task
from perdure.core.states import State


def waiting_for(task: Task) -> str:
    """One sentence for the owner; empty for a closed task."""
    match task.state:
        case State.ENQUEUED if task.place is None:
            return "its start time"
        case State.ENQUEUED:
            return f"a free worker on queue {task.queue!r}"
        case State.RETRY_WAIT:
            return f"the back-off after attempt {task.attempt} of {task.max_attempts}"
        case State.LEASED if task.cancel_requested_at is not None:
            return f"worker {task.worker} to end it (cancel requested)"
        case State.LEASED if not task.received:
            return f"worker {task.worker} to acknowledge receipt"
        case State.LEASED:
            return f"worker {task.worker}, which runs it"
        case State.WAITING:
            return "children or messages"
        case _:
            return ""


def attempts_begun(task: Task) -> int:
    """Attempts as people count them: the running one included."""
    return task.attempt + (1 if task.state == State.LEASED else 0)
