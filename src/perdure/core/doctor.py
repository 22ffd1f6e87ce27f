"""Standing checks: what must always be true of the rows, and what somebody should look at (OPS-01 to 03, OPS-07).

Every check has a name, a sentence that says what it found, and what to do about it. Those here look at one row each and
know nothing of the database; engine/doctor.py asks for the rows, and adds what is not about rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from perdure.core import ids
from perdure.core.compensations import Owed, owed
from perdure.core.describe import is_stuck
from perdure.core.doctor_messages import Finding
from perdure.core.model import SECOND, Task
from perdure.core.run import Run
from perdure.core.states import Kind, State

SILENT = 120 * SECOND
"""Microseconds after which an attempt should have told how far it is (OPS-07)."""
IDLE = 7 * 86_400 * SECOND
"""Microseconds after which a run should not wait for nothing but a message any more, nor a dead letter for a reader."""
EXAMPLES = 5
"""Ids that a finding names."""
REPORT = "This must not happen: please report it, with `perdure tasks get --json` of an example."
_PLACED = (Kind.JOB, Kind.ACTIVITY, Kind.WORKFLOW)
_RUNG = (Kind.TIMER, Kind.MESSAGE, Kind.SWEEP, Kind.BULK)

Check = tuple[str, Callable[[Task, Run | None, int], bool], str, str]
"""Name; whether a row is one; what a number of rows of a type means; what to do."""


def is_lost(task: Task, run: Run | None, now: int) -> bool:
    """Nothing would ever make it go on: it is in no lane, nobody has it, no alarm is set, and no limit holds it."""
    if task.place is not None or task.session is not None or task.wake_at is not None or task.blocked_on is not None:
        return False
    if task.state in (State.ENQUEUED, State.RETRY_WAIT):
        return task.kind in _PLACED and (run is None or not run.paused)
    return task.state == State.WAITING and task.kind in _RUNG


def turns_fail(task: Task, run: Run | None, now: int) -> bool:
    return run is not None and is_stuck(task, run)


def has_unseen_messages(task: Task, run: Run | None, now: int) -> bool:
    """A run that waits has seen all messages, else it would have a turn to see them in."""
    return run is not None and task.state == State.WAITING and not run.paused and run.inbox_count > run.inbox_taken


def is_idle(task: Task, run: Run | None, now: int) -> bool:
    """It waits for a message, and none has come for long."""
    if run is None or task.state != State.WAITING or run.paused:
        return False
    return run.children == 0 and now - task.updated_at >= IDLE


def has_failed_compensations(task: Task, run: Run | None, now: int) -> bool:
    return run is not None and owed(run) == Owed.FAILED


def is_silent(task: Task, run: Run | None, now: int) -> bool:
    """At work for long without progress or checkpoint: if its worker dies, all of it is done again. What somebody
    outside will end by its token has no worker."""
    if task.state != State.LEASED or task.kind not in (Kind.JOB, Kind.ACTIVITY) or task.session is None:
        return False
    return task.progress is None and task.checkpoint is None and now - (task.attempt_started_at or now) >= SILENT


ROW_CHECKS: tuple[Check, ...] = (
    (
        "lost",
        is_lost,
        "{count} of type {type} that nothing will ever make go on: no place in a lane, no owner, no alarm",
        f"{REPORT} Canceling one, or `perdure tasks retry` once it is closed, helps the one.",
    ),
    (
        "unseen_messages",
        has_unseen_messages,
        "{count} of type {type} that wait although messages lie in their inboxes",
        f"{REPORT} A signal to one, whatever its name, helps the one.",
    ),
    (
        "failing_turns",
        turns_fail,
        "{count} of type {type} whose code cannot go on: their turns fail",
        "Read why with `perdure workflows show`; deploy mended code, which they go on with by themselves, or "
        "`perdure workflows reset` them to a point before the fault (docs/workflow-operations.md).",
    ),
    (
        "idle_runs",
        is_idle,
        "{count} of type {type} that wait for nothing but a message, and have not moved for 7 days",
        "Find out who should have sent it; then signal, cancel or reset them. A `timeout` on the wait ends such waits.",
    ),
    (
        "compensations_failing",
        has_failed_compensations,
        "{count} of type {type} that are open, and of which compensations have failed",
        "Read why with `perdure workflows get`, and see that a later pass of their code can succeed; what it cannot "
        "undo is for people once the run has closed (docs/workflow-operations.md).",
    ),
    (
        "no_checkpoint",
        is_silent,
        "{count} of type {type} at work for more than 2 minutes without progress or checkpoint",
        "Let the handler call `ctx.checkpoint()` or `ctx.progress()` at least every 60 s, so that an attempt which is "
        "lost does not begin from the start (docs/handlers.md).",
    ),
)


MUST_NOT = ("lost", "unseen_messages", "children")
"""Checks by which nothing may ever be found. A row and its run are read one after the other, so what these find is
looked at once more."""


def looked(task: Task, run: Run | None, now: int) -> list[str]:
    """Names of the checks that find something about a row."""
    return [name for name, is_one, _, _ in ROW_CHECKS if is_one(task, run, now)]


class Findings:
    """Collects what checks say of rows: one finding for each check, namespace and type."""

    def __init__(self) -> None:
        self._found: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
        self._counts: defaultdict[tuple[str, str, str], int] = defaultdict(int)
        self._words: dict[str, tuple[str, str]] = {name: words for name, _, *words in ROW_CHECKS}  # type: ignore[misc]

    def add(self, name: str, task: Task) -> None:
        key = (name, task.namespace, task.type)
        self._counts[key] += 1
        if len(self._found[key]) < EXAMPLES:
            self._found[key].append(ids.text(task.id))

    def name(self, name: str, detail: str, advice: str) -> None:
        """The words of a check that is not in ROW_CHECKS; `detail` holds {count} and {type}."""
        self._words[name] = (detail, advice)

    def all(self) -> list[Finding]:
        """Those of each check together, the largest first."""
        order = list(self._words)
        keys = sorted(self._counts, key=lambda key: (order.index(key[0]), -self._counts[key], key))
        return [
            Finding(
                check=name,
                detail=self._words[name][0].format(count=self._counts[name, namespace, type_], type=repr(type_)),
                advice=self._words[name][1],
                count=self._counts[name, namespace, type_],
                namespace=namespace,
                examples=self._found[name, namespace, type_],
            )
            for name, namespace, type_ in keys
        ]
