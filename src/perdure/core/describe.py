"""Why an open task is not running, in words, and what happens to it next and when: every wait has a reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from perdure.core.breaker import Circuit, Stage
from perdure.core.groups import group_of
from perdure.core.limit_rules import Limit, words_of
from perdure.core.model import SECOND, Failure, Task, unpack
from perdure.core.run import Run
from perdure.core.states import Kind, State


def waiting_for(task: Task, pollers: int | None = None, standing: Standing | None = None) -> str:
    """One sentence for the owner; empty for a closed task. `pollers`: how many worker processes poll its queue, if that
    is known; `standing`: how the limit stands that it is blocked on."""
    match task.state:
        case State.ENQUEUED if task.blocked_on is not None and task.place is None:
            return _limited(task.blocked_on, standing)
        case State.ENQUEUED if task.place is None:
            return "its start time"
        case State.ENQUEUED if pollers == 0:
            return f"a worker: none is registered for queue {task.queue!r}"
        case State.ENQUEUED:
            return f"a free worker on queue {task.queue!r}"
        case State.RETRY_WAIT:
            return f"the back-off after attempt {task.attempt} of {task.max_attempts}"
        case State.LEASED if task.cancel_requested_at is not None:
            return f"worker {task.worker} to end it (cancel requested)"
        case State.LEASED if task.session is None:
            return "somebody outside to end it by its token"
        case State.LEASED if not task.received:
            return f"worker {task.worker} to acknowledge receipt"
        case State.LEASED:
            return f"worker {task.worker}, which runs it"
        case State.WAITING:
            return "children or messages"
        case _:
            return ""


class Standing(NamedTuple):
    """A limit, and the slots that are taken of it."""

    limit: Limit
    running: int


def _limited(subject: str, standing: Standing | None) -> str:
    words = words_of(subject)
    if standing is None:
        return f"the limit of {words}"
    limit, running = standing
    if limit.paused:
        return f"somebody to resume {words}: it is paused" + (f" ({limit.note})" if limit.note else "")
    if limit.circuit is not None and limit.circuit.stage is not Stage.CLOSED:
        return _tripped(words, limit.circuit)
    if limit.max_running is not None and running >= limit.max_running:
        return f"a slot of {words}: {running} of {limit.max_running} are taken"
    if limit.rate is not None and limit.per is not None:
        return f"the rate of {words}: {limit.rate} starts in {limit.per / SECOND:g} s"
    if limit.max_running is not None:
        return f"slots of {words}: {running} of {limit.max_running} are taken, and it needs more than are free"
    return f"its turn under the limit of {words}"


def _tripped(words: str, circuit: Circuit) -> str:
    if circuit.stage is Stage.HALF_OPEN:
        return f"the probes of the breaker of {words}, which opened: {circuit.reason}"
    until = datetime.fromtimestamp(circuit.until // SECOND, UTC)
    return f"the breaker of {words}, which is open until {until:%Y-%m-%dT%H:%M:%SZ}: {circuit.reason}"


_CHILDREN = {
    Kind.ACTIVITY: "activity",
    Kind.TIMER: "timer",
    Kind.WORKFLOW: "child workflow",
    Kind.MESSAGE: "message",
    Kind.GROUP: "group",
}
"""Those that the code of a run waits for."""
_NAMED = 3  #: children that are named; of more there is only the number


def run_waits_for(task: Task, run: Run, children: Sequence[Task], pollers: int | None = None) -> str:
    """The same for a workflow run, given its open children. `pollers`: how many worker processes poll its queue."""
    if run.paused and task.state in (State.ENQUEUED, State.RETRY_WAIT, State.WAITING):
        return "somebody to resume it: it is paused"
    match task.state:
        case State.RETRY_WAIT:
            return f"the next try of its turn, which failed {run.failures} times in a row"
        case State.LEASED if task.received:
            return f"worker {task.worker}, which runs its code"
        case State.WAITING:
            return _awaited(children)
        case _:
            return waiting_for(task, pollers)


def _awaited(children: Sequence[Task]) -> str:
    children = [child for child in children if child.kind in _CHILDREN and not _is_told(child)]
    counts = Counter(child.kind for child in children)
    if not counts:
        return "a signal, an update or a cancel request"
    parts: list[str] = []
    for kind, count in counts.items():
        word = _CHILDREN[kind]
        if count > _NAMED:
            parts.append(f"{count} {word.removesuffix('y')}{'ies' if word.endswith('y') else 's'}")
        else:
            parts.extend(f"{word} {_named(child)}" for child in children if child.kind == kind)
    return ", ".join(parts)


def _is_told(child: Task) -> bool:
    """Whether a group stays for its results only."""
    return child.kind == Kind.GROUP and group_of(child).told


def _named(child: Task) -> str:
    if child.kind == Kind.GROUP:
        group = group_of(child)
        return f"{child.idempotency_key!r} ({group.done} of {group.count} calls have ended)"
    return repr(child.idempotency_key or "" if child.kind == Kind.TIMER else child.type)


def is_stuck(task: Task, run: Run) -> bool:
    """Whether the turns of an open run fail: its code does not go on until somebody mends it."""
    return run.failures > 0 and task.failure is not None and task.closed_at is None


def is_ready(task: Task) -> bool:
    """Whether nothing but a worker is missing for it to run."""
    return task.state == State.ENQUEUED and task.place is not None


def last_outcome(task: Task) -> str:
    """How the last lease of a task ended or, while it lasts, "running"; for a lease that no attempt was recorded of,
    because it ended the task. What its worker did not report itself is told from the failure."""
    match task.state:
        case State.LEASED:
            return "running"
        case State.FAILED if task.done_number == task.lease_number:
            return "failed"
        case State.FAILED if task.failure is not None:
            code = unpack(task.failure, Failure).code
            return "timed_out" if code.endswith("_timeout") else "lost" if code == "lease_lost" else "failed"
        case state:
            return state.name.lower()


def attempts_begun(task: Task) -> int:
    """Attempts as people count them: the running one included."""
    return task.attempt + (1 if task.state == State.LEASED else 0)
