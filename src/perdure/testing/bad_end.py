"""Jobs and workflows that ended badly, as the errors of a test that did not expect it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from perdure.core.errors import TaskExpired, TaskFailed
from perdure.core.messages import TaskView
from perdure.core.model import Failure
from perdure.core.workflow_messages import WorkflowView


class BadEnd(NamedTuple):
    """What has failed, or came too late."""

    id: str  #: of the job, or of the run
    what: str  #: in words
    state: str
    failure: Failure | None

    @classmethod
    def of_job(cls, view: TaskView) -> BadEnd:
        what = f"task {view.type} ({view.task_id}), after {view.attempt} attempts"
        return cls(view.task_id, what, view.state, view.failure)

    @classmethod
    def of_run(cls, view: WorkflowView) -> BadEnd:
        return cls(view.run_id, f"workflow {view.type} ({view.workflow_id})", view.status, view.failure)


def error_of(failed: Sequence[BadEnd]) -> TaskFailed | TaskExpired:
    """For the first of them; the others are named in its notes."""
    first, *others = failed
    error: TaskFailed | TaskExpired = TaskExpired()
    if first.state != "EXPIRED":
        error = TaskFailed(first.failure or Failure(message="no reason is known"))
    error.add_note(f"of {first.what}")
    if first.failure is not None and first.failure.stack:
        error.add_note(f"In its code, innermost call last:\n{first.failure.stack}")
    for other in others:
        error.add_note(f"{other.state} as well: {other.what}")
    return error
