"""What the batches of this server have come to, in numbers for people: metrics and golden signals.

It is told of each batch once that is committed and counts from what the batch knows anyway, so it reads nothing, locks
nothing, and delays nobody: one to two microseconds for a job from its enqueue to its end. Counts are those of this
server since it started; who wants those of all servers adds them up.

A job that its worker reports as succeeded is closed without a look at its row, so its type is the one that it was
handed out with; of those that another server, or this one before it started, had handed out it is not known.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from perdure.core.figures import OTHER, Histogram, Labels, Names, Totals
from perdure.core.lanes import namespace_of
from perdure.core.model import SECOND, Attempt, Failure, Task, unpack
from perdure.core.states import Kind, State
from perdure.engine.ledger import Write

if TYPE_CHECKING:
    from perdure.engine.batch import Batch

log = logging.getLogger("perdure.engine")

MOST_BEGUN = 50_000
"""Jobs handed out here whose type is remembered until their end."""
EPOCH = 60 * SECOND
"""Microseconds between two states of the figures that are kept."""
EPOCHS = 5
"""How many are: recent figures are those of the last five minutes, about."""
ATTEMPTS = (1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0)
EVENTS = (10.0, 50.0, 100.0, 500.0, 1_000.0, 5_000.0, 10_000.0, 20_000.0, 50_000.0)
LOCKS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_KINDS = {Kind.JOB: "job", Kind.ACTIVITY: "activity", Kind.WORKFLOW: "turn"}
_TURN_FAILURES = frozenset({"non_determinism", "deadlock", "turn_failed", "unknown_workflow"})
"""Codes of failed turns that are a label; there are many more, and workers may report any."""
NONDETERMINISM = "nondeterminism"
_NOWHERE: Labels = ()


class Start:
    """Tasks of one lane, type and number of leases that a batch handed out: `matched` counts those that the batch
    itself made ready, `waits` has for the others the seconds since they were. A job is known by it until its end."""

    __slots__ = ("at", "kind", "matched", "number", "queue", "type", "waits")

    def __init__(self, queue: Labels, type_: Labels, kind: Kind, number: int, at: int) -> None:
        self.queue = queue
        self.type = type_
        self.kind = kind
        self.number = number
        self.at = at
        self.matched = 0
        self.waits: list[float] = []


class Epoch(NamedTuple):
    """The figures as they were once."""

    at: int
    schedule_to_start: Histogram
    alarm_lag: Histogram
    dispatched: Totals
    leases_lost: Totals


class Tally:
    """The figures; labels are (namespace, type), (namespace, queue) or what stands with them. To be used on the
    engine's loop."""

    def __init__(self, now: Callable[[], int]) -> None:
        self.jobs_enqueued: Totals = Counter()  #: by type
        self.jobs_completed: Totals = Counter()  #: by type and state
        self.job_retries: Totals = Counter()  #: by type
        self.duplicate_starts: Totals = Counter()  #: by type: begun again although the lease before was lost
        self.receive_count = Histogram(ATTEMPTS)  #: by type: leases that a job took
        self.job_seconds = Histogram()  #: by type: the attempt that ended it
        self.workflows_started: Totals = Counter()  #: by type
        self.workflows_completed: Totals = Counter()  #: by type and state
        self.turn_failures: Totals = Counter()  #: by type and code
        self.history_events = Histogram(EVENTS)  #: by type, at the beginning of each turn
        self.activities_completed: Totals = Counter()  #: by type and state
        self.activity_retries: Totals = Counter()  #: by type
        self.activity_wait = Histogram()  #: by type
        self.turn_wait = Histogram()  #: by queue
        self.schedule_to_start = Histogram()  #: by queue: jobs and activities
        self.dispatched: Totals = Counter()  #: by queue and kind
        self.matched: Totals = Counter()  #: by queue: handed out by the batch that made them ready
        self.leases_lost: Totals = Counter()  #: by queue and how: after receipt, or before
        self.timer_lag = Histogram()  #: by namespace
        self.alarm_lag = Histogram()  #: without labels
        self.transactions = Histogram(LOCKS)  #: without labels; seconds
        self._types = Names()
        self._queues = Names()
        self._begun: dict[bytes, Start] = {}
        self._now = now
        self._epochs: deque[Epoch] = deque(maxlen=EPOCHS)

    def settled(self, batch: Batch) -> None:
        """A batch was committed. An error here is a bug, and costs figures, not the batch."""
        try:
            self._settled(batch, self._now())
        except Exception:
            log.exception("a batch could not be counted")

    def transacted(self, seconds: float) -> None:
        """How long the transaction of a batch took, with all waits for the database."""
        self.transactions.add(_NOWHERE, (seconds,))

    def recent(self) -> Epoch:
        """The figures as they were at the beginning of the last minutes, for who wants what came since."""
        if not self._epochs:
            self._keep(self._now())
        return self._epochs[0]

    def _keep(self, now: int) -> None:
        self._epochs.append(
            Epoch(
                now,
                self.schedule_to_start.copy(),
                self.alarm_lag.copy(),
                self.dispatched.copy(),
                self.leases_lost.copy(),
            )
        )

    def _settled(self, batch: Batch, now: int) -> None:
        if not self._epochs or now - self._epochs[-1].at >= EPOCH:
            self._keep(now)
        if batch.succeeded:
            self._jobs_succeeded(batch.succeeded, now)
        starts: dict[tuple[str, str, Kind, int], Start] = {}
        made: dict[tuple[str, str, Kind], int] = {}
        runs, begun = batch.ledger.runs, self._begun
        for write, before, task in batch.ledger.changes():
            if task.state is State.LEASED and (before is None or before.lease_number < task.lease_number):
                key = (task.lane, task.type, task.kind, task.lease_number)
                start = starts.get(key)
                if start is None:
                    number, at = task.lease_number, task.updated_at
                    start = starts[key] = Start(self._queue(task), self._type(task), task.kind, number, at)
                if before is None or (before.place is None and before.blocked_on is None):
                    start.matched += 1  # it became ready in this batch
                else:
                    start.waits.append((task.updated_at - before.updated_at) / SECOND)
                if start.kind is Kind.JOB:
                    begun[task.id] = start
                elif start.kind is Kind.WORKFLOW and (run := runs.get(task.id)) is not None:
                    self.history_events.add(start.type, (run.event_count,))
            elif before is not None and before.wake_at is not None and before.wake_at <= task.updated_at:
                self.alarm_lag.add(_NOWHERE, ((task.updated_at - before.wake_at) / SECOND,))
            if write is Write.INSERT:
                what = (task.namespace, task.type, task.kind)
                made[what] = made.get(what, 0) + 1
            elif write is Write.CLOSE or write is Write.DELETE:
                self._ended(before, task)
        for start in starts.values():
            self._handed_out(start)
        if claimed := batch.ledger.claimed:
            self._exchanged(claimed, batch.ledger.rows[claimed[0].id].updated_at)
        for (namespace, type_, kind), number in made.items():
            self._made(self._types.labels((namespace, type_)), kind, number)
        for attempt in batch.ledger.attempts:
            self._put_off(attempt, batch.ledger.rows[attempt.task_id])

    # ------------------------------------------------------------------------------------------------------- events
    def _made(self, labels: Labels, kind: Kind, number: int) -> None:
        if kind is Kind.JOB:
            self.jobs_enqueued[labels] += number
        elif kind is Kind.WORKFLOW:
            self.workflows_started[labels] += number

    def _exchanged(self, claimed: Sequence[Task], at: int) -> None:
        """Tasks of one lane that were leased at full speed, as they were before. Nothing else is looked at here: what
        has to come from memory is most of what counting costs."""
        starts: dict[tuple[str, Kind, int], Start] = {}
        begun, job = self._begun, Kind.JOB
        for task in claimed:
            key = (task.type, task.kind, task.lease_number)
            start = starts.get(key)
            if start is None:
                queue, type_ = self._queue(task), self._type(task)
                start = starts[key] = Start(queue, type_, task.kind, task.lease_number + 1, at)
            start.waits.append(max(0, at - task.updated_at) / SECOND)
            if start.kind is job:
                begun[task.id] = start
        for start in starts.values():
            self._handed_out(start)

    def _handed_out(self, start: Start) -> None:
        self.dispatched[(*start.queue, _KINDS[start.kind])] += len(start.waits) + start.matched
        if start.matched:
            self.matched[start.queue] += start.matched
            start.waits += [0.0] * start.matched
        if start.kind is Kind.WORKFLOW:
            self.turn_wait.add(start.queue, start.waits)
        else:
            self.schedule_to_start.add(start.queue, start.waits)
        if start.kind is Kind.ACTIVITY:
            self.activity_wait.add(start.type, start.waits)
        start.waits = []  # jobs keep it until their end
        if len(self._begun) > MOST_BEGUN:  # their ends were reported elsewhere, or will not be
            for task_id in list(islice(self._begun, MOST_BEGUN // 2)):
                del self._begun[task_id]

    def _jobs_succeeded(self, task_ids: Iterable[bytes], now: int) -> None:
        """Jobs closed by nothing but their leases."""
        ended: dict[Start | None, int] = {}
        for task_id in task_ids:
            start = self._begun.pop(task_id, None)
            ended[start] = ended.get(start, 0) + 1
        for start, number in ended.items():
            labels = _UNKNOWN if start is None else start.type
            self.jobs_completed[(*labels, "SUCCEEDED")] += number
            if start is not None:
                self.receive_count.add(labels, (start.number,), number)
                self.job_seconds.add(labels, (max(0, now - start.at) / SECOND,), number)

    def _ended(self, before: Task | None, task: Task) -> None:
        state = task.state.name
        match task.kind:
            case Kind.JOB:
                labels = self._type(task)
                self._begun.pop(task.id, None)
                self.jobs_completed[(*labels, state)] += 1
                if task.lease_number:
                    self.receive_count.add(labels, (task.lease_number,))
                if before is not None and before.state is State.LEASED and before.attempt_started_at is not None:
                    self.job_seconds.add(labels, (max(0, task.updated_at - before.attempt_started_at) / SECOND,))
                self._lost_for_good(before, task)
            case Kind.ACTIVITY:
                self.activities_completed[(*self._type(task), state)] += 1
                self._lost_for_good(before, task)
            case Kind.WORKFLOW:
                self.workflows_completed[(*self._type(task), state)] += 1
            case Kind.TIMER if task.state is State.SUCCEEDED and before is not None and before.wake_at is not None:
                labels = (self._queue(task)[0],)
                self.timer_lag.add(labels, (max(0, task.updated_at - before.wake_at) / SECOND,))

    def _lost_for_good(self, before: Task | None, task: Task) -> None:
        """A lease that was lost with the last attempt is told by nothing but the failure of its task."""
        if task.state is State.FAILED and before is not None and before.state is State.LEASED:
            failure = None if task.failure is None else unpack(task.failure, Failure)
            if failure is not None and failure.code == "lease_lost":
                self.leases_lost[(*self._queue(task), "received" if before.received else "undelivered")] += 1

    def _put_off(self, attempt: Attempt, task: Task) -> None:
        """An attempt that did not end its task."""
        lost = attempt.outcome in ("lost", "undelivered")
        if lost:
            received = "received" if attempt.outcome == "lost" else "undelivered"
            self.leases_lost[(*self._queue(task), received)] += 1
        if task.kind is Kind.WORKFLOW:
            if lost or attempt.outcome == "failed":
                self.turn_failures[(*self._type(task), "timeout" if lost else _turn_failure(attempt))] += 1
        elif attempt.outcome in ("failed", "lost", "timed_out"):
            labels = self._type(task)
            retries = self.job_retries if task.kind is Kind.JOB else self.activity_retries
            retries[labels] += 1
            if attempt.outcome == "lost" and task.kind is Kind.JOB:
                self.duplicate_starts[labels] += 1

    # ------------------------------------------------------------------------------------------------------- labels
    def _type(self, task: Task) -> Labels:
        return self._types.labels((task.namespace, task.type))

    def _queue(self, task: Task) -> Labels:
        return self._queues.labels((namespace_of(task.lane), task.queue))


_UNKNOWN = (OTHER, OTHER)


def _turn_failure(attempt: Attempt) -> str:
    """Why a turn failed, in a word of a few."""
    code = "" if attempt.failure is None else unpack(attempt.failure, Failure).code
    if code == "non_determinism":
        return NONDETERMINISM
    return code if code in _TURN_FAILURES else OTHER
