"""What must hold after every commit; answers.py holds the servers to it. Nothing here uses the code of core/ that it
judges: rules are written once more, from the requirements."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.core.model import Failure, Lease, RetryPolicy, Task
from perdure.core.states import Kind, State
from tests.sim import limits
from tests.sim.group_rules import Groups
from tests.sim.moves import CLOSED_BY_OTHERS, MOVES, OPEN, RUN_MOVES
from tests.sim.reading import ASKING, done_in, lease_in, limits_of, short, show
from tests.sim.run_rules import Runs
from tests.sim.tables import Change

if TYPE_CHECKING:
    from tests.sim.world import World

SECOND = 1_000_000
S = State
MAKESHIFT = (Kind.TIMER, Kind.MESSAGE, Kind.UPDATE, Kind.SWEEP, Kind.SCHEDULE, Kind.GROUP,
             Kind.BULK)  # fmt: skip
"""Rows that no worker gets."""
LONGEST_PAUSE = 60 * SECOND
"""Microseconds until a turn that failed comes again, at most."""
ASKED = ("request", "start")
"""Kinds of keys by which messages to runs are told apart; they name the run."""
NAMELESS = ("doctor",)
"""Kinds of keys that name nothing: whoever has one does what is to be done once."""
HEALTHY = 60.0
"""Seconds after which a fault no longer explains that a worker lost its work."""
SPIN = 20
"""Times that a task may be handed back within a second."""

Token = tuple[bytes, int, int]
"""A lease: task, number, bits."""


class Broken(AssertionError):
    """An invariant does not hold. `rule` is its short name."""

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(f"{rule}: {detail}")
        self.rule = rule


def token(lease: Lease) -> Token:
    return (lease.task_id, lease.number, lease.bits)


class Granted:
    """A lease: when it was given, and when it ended, in commits."""

    def __init__(self, at: int, task: Task) -> None:
        self.at = at
        self.session = task.session
        self.poll = task.poll
        self.done = done_in(task)  #: the progress with which it began
        self.ended: int | None = None
        self.received = False
        self.beaten = 0  #: the commit of the last heartbeat
        self.silenced = False  #: it ended because its worker was not heard
        self.handed = False  #: somebody else is to end it
        self.closed_as: State | None = None  #: the state that its completion led to
        self.vanished = False  #: its row was deleted as it ended
        self.after: State | None = None  #: the state of the task once it ended


class Checker:
    """Sees every commit."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.commits = 0
        self.tasks: dict[bytes, Task] = {}
        self.closed: dict[bytes, Task] = {}
        self.sessions: dict[int, Any] = {}
        self.keys: dict[Any, Any] = {}
        self.hold_until = 0
        self.trimmed: set[bytes] = set()
        self.leases: dict[Token, Granted] = {}
        self.numbers: dict[bytes, int] = {}  #: the highest lease number of each task
        self.history: dict[bytes, list[tuple[int, State]]] = defaultdict(list)
        self.winners: dict[bytes, Token] = {}  #: the lease whose completion closed a task
        self.repeats: dict[bytes, bytes] = {}  #: closed task -> the one that repeats it
        self.releases: dict[bytes, list[float]] = defaultdict(list)
        self.runs = Runs(self)
        self.groups = Groups(self)
        self.made: dict[int, bytes] = {}  #: what a payload says it is -> its task
        self.counts: dict[str, int] = defaultdict(int)  #: how often each thing happened, for the reports

    def fail(self, rule: str, detail: str) -> None:
        raise Broken(rule, f"{detail} (commit {self.commits}, at {self.world.loop.now:.3f})")

    def count(self, name: str) -> None:
        """Something happened, and this went wrong just then."""
        self.counts[name] += 1
        for fault in self.world.faults.under_way():
            self.counts[f"{name} x {fault}"] += 1

    # --------------------------------------------------------------------------------------------------------- commits
    def committed(self, changes: Sequence[Change], server: str) -> None:
        """The observer of the database."""
        self.commits += 1
        self.world.trace_commit(changes, server)
        by_table: dict[str, list[Change]] = defaultdict(list)
        for change in changes:
            by_table[change.table].append(change)
        for change in by_table["pulse"]:
            self.hold_until = max(self.hold_until, change.after.hold_until)
        for change in by_table["sessions"]:
            self._session(change)
        self.runs.read(by_table["runs"])
        closing = {change.key: change for change in by_table["closed"]}
        opening = {change.key for change in by_table["tasks"] if change.before is None}
        attempts = {change.key: change.after for change in by_table["attempts"] if change.after is not None}
        for change in by_table["tasks"]:
            self._task(change, closing.get(change.key), attempts)
        for change in by_table["closed"]:
            self._closed(change)
        for change in by_table["keys"]:
            self._key(change, opening)
        self.groups.committed(by_table)
        self.runs.committed(by_table)
        if self.world.plan.limits:
            limits.check(self, self.tasks.values())

    def _task(self, change: Change, closing: Change | None, attempts: dict[Any, Any]) -> None:
        before: Task | None = change.before
        after: Task | None = change.after
        task_id: bytes = change.key
        if before is not None and self.tasks.get(task_id) != before:
            self.fail("rows", f"a row changed without a commit: {show(self.tasks.get(task_id))} != {show(before)}")
        if after is None:
            del self.tasks[task_id]
            assert before is not None
            if closing is None and before.kind != Kind.JOB:
                self._child_deleted(before)
                return
            if closing is None or closing.after is None:
                self.fail("acknowledged", f"an open task vanished: {show(before)}")
            after = closing.after
        else:
            self.tasks[task_id] = after
            self._row(after)
        if before is None:
            self._new(after)
        else:
            self._moved(before, after, attempts)
        if not self.history[task_id] or self.history[task_id][-1][1] != after.state:
            self.history[task_id].append((self.commits, after.state))
            self.counts[after.state.name] += 1

    def _new(self, task: Task) -> None:
        if task.id in self.closed or task.id in self.trimmed or self.history[task.id]:
            self.fail("forks", f"a task was made twice: {show(task)}")
        if task.state not in ((S.WAITING,) if task.kind in MAKESHIFT else (S.ENQUEUED, S.LEASED)):
            self.fail("table", f"a task begins as {task.state.name}")
        spec = self.world.spec_of(task) if task.kind == Kind.JOB else None
        if spec is not None and task.retry_of is None and task.idempotency_key is None:
            other = self.made.setdefault(spec["n"], task.id)
            if other != task.id:
                self.fail("doubled", f"one enqueue made {short(other)} and {short(task.id)}")
        if task.retry_of is not None:
            if task.retry_of in self.repeats and self.world.plan.key_life > 1_000:
                self.fail("keys", f"{short(task.retry_of)} is repeated twice")
            self.repeats[task.retry_of] = task.id
        if task.state == S.LEASED:
            self._granted(task, 0)

    def _moved(self, before: Task, after: Task, attempts: dict[Any, Any]) -> None:
        if after.updated_at < before.updated_at:
            self.fail("time", f"a row's time went back: {show(before)} -> {show(after)}")
        if before.state != after.state and not self._may_move(before, after):
            self.fail("table", f"{show(before)} -> {show(after)}")
        leased = before.state == S.LEASED
        if after.lease_number != before.lease_number:
            if leased:
                self.fail("twice", f"leased again under a lease: {show(before)} -> {show(after)}")
            self._granted(after, before.lease_number)
        elif leased and after.state == S.LEASED and after.lease_bits != before.lease_bits:
            self.fail("leases", f"a lease changed: {show(before)} -> {show(after)}")
        elif not leased and after.state == S.LEASED:
            self.fail("leases", f"a lease repeats: {show(before)} -> {show(after)}")
        if not leased:
            if after.kind in (Kind.JOB, Kind.ACTIVITY):
                self._outside(before, after)
            elif after.state == S.LEASED and self.runs.is_paused(after.id):
                self.fail("paused", f"a turn of a paused run began: {show(after)}")
            return
        granted = self.leases[before.id, before.lease_number, before.lease_bits]
        granted.received = granted.received or after.received
        if after.heartbeat_at != before.heartbeat_at and after.state == S.LEASED:
            granted.beaten = self.commits
        if after.kind == Kind.WORKFLOW:
            self._turn(before, after, granted)
            return
        if after.state != S.LEASED:
            self._ended(before, after, granted, attempts.get((before.id, before.lease_number)))
        self._spent(before, after, granted)
        self._written(before, after)

    def _may_move(self, before: Task, after: Task) -> bool:
        match after.kind:
            case Kind.WORKFLOW:
                return after.state in RUN_MOVES[before.state]
            case Kind.UPDATE:
                return after.state in (S.SUCCEEDED, S.FAILED)
            case Kind.BULK:
                return after.state == S.SUCCEEDED
            case Kind.GROUP:
                return after.state in (S.SUCCEEDED, S.TERMINATED)
        return after.state in MOVES[before.state]

    def _child_deleted(self, before: Task) -> None:
        """What a run has waited for is over."""
        if before.kind in (Kind.WORKFLOW, Kind.UPDATE, Kind.GROUP):
            self.fail("acknowledged", f"it vanished: {show(before)}")
        if before.state == S.LEASED:
            granted = self.leases[before.id, before.lease_number, before.lease_bits]
            granted.ended, granted.vanished = self.commits, True

    def _turn(self, before: Task, after: Task, granted: Granted) -> None:
        """A run whose turn is in hand, or was."""
        if after.state == S.LEASED:
            return
        granted.ended, granted.after = self.commits, after.state
        if (after.done_number, after.done_bits) == (before.lease_number, before.lease_bits):
            granted.closed_as = S(after.done_state)
            if after.state == S.SUCCEEDED:
                self.winners[before.id] = (before.id, before.lease_number, before.lease_bits)
        elif after.state not in CLOSED_BY_OTHERS:
            session = self.sessions.get(before.session)
            granted.silenced = session is not None and session.ends_at is None
            self._taken_away(before, after)
        if after.state == S.RETRY_WAIT and not 0 <= (after.ready_at or 0) - after.updated_at <= LONGEST_PAUSE:
            self.fail("back-off", f"too long: {show(after)}")

    def _granted(self, task: Task, number_before: int) -> None:
        lease = (task.id, task.lease_number, task.lease_bits)
        if lease in self.leases or task.lease_number <= self.numbers.get(task.id, 0):
            self.fail("leases", f"a lease repeats: {show(task)}")
        if task.lease_number != number_before + 1:
            self.fail("leases", f"a lease number was left out: {show(task)}")
        self.numbers[task.id] = task.lease_number
        self.leases[lease] = Granted(self.commits, task)

    def _outside(self, before: Task, after: Task) -> None:
        """A change of a task that nobody runs."""
        if after.checkpoint != before.checkpoint or after.progress != before.progress:
            self.fail("fence", f"written without a lease: {show(before)} -> {show(after)}")
        if after.state in (S.SUCCEEDED,):
            self.fail("fence", f"completed without a lease: {show(before)}")
        if after.attempt != before.attempt:
            self.fail("attempts", f"an attempt without a lease: {show(before)} -> {show(after)}")
        again = before.state == S.RETRY_WAIT and after.state == S.ENQUEUED and before.ready_at is not None
        if again and after.updated_at < (before.ready_at or 0) and not self.world.may_hurry(before.id):
            self.fail("back-off", f"cut short by nobody: {show(before)} -> {show(after)}")

    def _ended(self, before: Task, after: Task, granted: Granted, attempt: Any) -> None:
        world = self.world
        granted.ended = self.commits
        granted.after = after.state
        lease = (before.id, before.lease_number, before.lease_bits)
        if (after.done_number, after.done_bits) == lease[1:] and before.done_number != after.done_number:
            granted.closed_as = S(after.done_state)
            waits = after.done_state in (S.RETRY_WAIT, S.ENQUEUED)  # and then the same batch may move it on
            hurried = waits and after.state == S.ENQUEUED and world.may_hurry(before.id)
            canceled = waits and after.state == S.CANCELED and world.may_cancel(before.id)
            if after.done_state != after.state and not hurried and not canceled:
                self.fail("answers", f"recorded {after.done_state}, is {show(after)}")
        if after.state == S.SUCCEEDED:
            if granted.closed_as is None:
                self.fail("fence", f"succeeded by nobody: {show(before)}")
            self.winners[before.id] = lease
        outcome = None if attempt is None else (attempt[2] if isinstance(attempt, tuple) else attempt.outcome)
        if after.state in (S.ENQUEUED, S.RETRY_WAIT) and outcome is None:
            self.fail("attempts", f"no record of how a lease ended: {show(before)} -> {show(after)}")
        if outcome == "released":
            self._released(before)
        self.counts[f"attempt {outcome}" if outcome else f"closed {after.state.name}"] += 1
        asked = before.cancel_requested_at is not None
        if after.state == S.CANCELED and not asked and granted.closed_as is None:
            self.fail("cancel", f"a running task was canceled without grace: {show(before)} -> {show(after)}")
        if granted.closed_as is None and not self._deadline_over(before, after):
            if granted.handed and before.heartbeat_deadline is None:
                self.fail("handed", f"nobody was to be heard, and it was lost: {show(before)} -> {show(after)}")
            session = self.sessions.get(before.session)
            granted.silenced = session is not None and session.ends_at is None
            free = not granted.received and before.lost_deliveries < 2 and not asked
            if free and after.state != S.ENQUEUED:
                self.fail("attempts", f"lost delivery {before.lost_deliveries + 1}: {show(before)} -> {show(after)}")
            self._taken_away(before, after)

    def _released(self, task: Task) -> None:
        """Nobody hands a task back again and again."""
        now = self.world.loop.now
        recent = self.releases[task.id] = [at for at in self.releases[task.id] if at > now - 1.0] + [now]
        if len(recent) > SPIN:
            self.fail("spin", f"handed back {len(recent)} times within a second: {show(task)}")

    def _deadline_over(self, before: Task, after: Task) -> bool:
        """Whether a limit of the task, and not silence, ended the lease."""
        now = after.updated_at
        return any(time is not None and time <= now for time in (before.attempt_deadline, before.deadline,
                                                                  before.cancel_deadline))  # fmt: skip

    def _taken_away(self, before: Task, after: Task) -> None:
        """A lease ended by itself: its worker was silent, or its session ended."""
        world = self.world
        self.counts["taken away"] += 1
        if before.session in world.dead or before.session not in world.incarnations:
            return
        if before.lease_length < 10 * SECOND or before.heartbeat_deadline is not None:
            return  # an outage that is too short to be noticed may be too long for these
        host = world.incarnations[before.session].partition("/")[0]
        blamed = world.blamed.get(host, -1e9)
        longest = HEALTHY + world.set_back  # a lease that was lost then ends by the clock of the database
        if world.loop.now - max(blamed, world.blamed.get("*", -1e9)) > longest:
            self.fail("living", f"{host} lost its work, and nothing was wrong with it: {show(before)} -> {show(after)}")

    def _spent(self, before: Task, after: Task, granted: Granted) -> None:
        spent = after.attempt - before.attempt
        if after.state == S.LEASED:
            if spent:
                self.fail("attempts", f"spent while it runs: {show(before)} -> {show(after)}")
            return
        if not 0 <= spent <= 1:
            self.fail("attempts", f"{spent} spent: {show(before)} -> {show(after)}")
        if after.attempt > after.max_attempts:
            self.fail("attempts", f"more than {after.max_attempts}: {show(after)}")
        if after.state == S.RETRY_WAIT:
            self._back_off(after)
            if spent != 1:
                self.fail("attempts", f"none spent: {show(after)}")
        if after.state == S.ENQUEUED and spent and not self.world.may_hurry(after.id):
            self.fail("attempts", f"handed back and spent: {show(before)} -> {show(after)}")

    def _back_off(self, task: Task) -> None:
        policy = (
            RetryPolicy() if task.retry_policy is None else msgspec.msgpack.decode(task.retry_policy, type=RetryPolicy)
        )
        assert task.ready_at is not None
        longest = min(policy.cap, policy.base * policy.factor ** (task.attempt - 1)) * SECOND + 1
        asked = self.world.longest_retry_after * SECOND
        if not 0 <= task.ready_at - task.updated_at <= max(longest, asked):
            self.fail("back-off", f"too long: {show(task)}")

    def _written(self, before: Task, after: Task) -> None:
        """What a worker wrote was written under the lease that held."""
        for name in ("checkpoint", "result"):
            value = getattr(after, name)
            if (
                value != getattr(before, name)
                and (number := lease_in(value)) is not None
                and number != before.lease_number
            ):
                self.fail("fence", f"{name} of lease {number} was written: {show(before)} -> {show(after)}")
        done, begun = done_in(after), self.leases[before.id, before.lease_number, before.lease_bits].done
        if done < begun:  # within a lease two heartbeats under way at once may be written in either order
            self.fail("progress", f"{begun} -> {done}: {show(after)}")

    def _row(self, task: Task) -> None:
        """An open row that does not run has an alarm or a place; every limit that counts has an alarm before it."""
        waits = task.kind in MAKESHIFT or (task.kind == Kind.WORKFLOW and task.state == S.WAITING)
        if task.closed_at is not None or (task.state not in OPEN and not waits):
            self.fail("table", f"open, and {show(task)}")
        times = [task.deadline]
        hold = 0
        match task.state:
            case S.ENQUEUED:
                waits = task.blocked_on is not None and task.blocked_place is not None
                if task.place is None and task.ready_at is None and not waits and not self.runs.is_paused(task.id):
                    self.fail("reasons", f"neither ready nor going to be: {show(task)}")
                times += [task.ready_at if task.place is None else None]
                times += [task.expires_at if task.started_at is None else None]
            case S.RETRY_WAIT:
                if task.ready_at is None:
                    self.fail("reasons", f"waits for nothing: {show(task)}")
                times += [task.ready_at]
            case S.WAITING:
                times += [task.ready_at]
            case _:
                if (task.lease_until is None or task.session is None) and not self._may_be_handed(task):
                    self.fail("reasons", f"leased to nobody: {show(task)}")
                if task.kind != Kind.WORKFLOW and (task.cancel_requested_at is None) != (task.cancel_deadline is None):
                    self.fail("cancel", f"asked for without a grace, or the other way round: {show(task)}")
                times += [task.lease_until, task.attempt_deadline, task.cancel_deadline, task.heartbeat_deadline]
                hold = max(self.hold_until, task.updated_at + SECOND)  # or another server had the pulse
        limit = min((time for time in times if time is not None), default=None)
        if limit is not None and (task.wake_at is None or task.wake_at > max(limit, hold)):
            self.fail("alarms", f"no alarm before {limit}: {show(task)}")
        if task.state != S.ENQUEUED and task.place is not None:
            self.fail("reasons", f"has a place and is not in its queue: {show(task)}")

    def _may_be_handed(self, task: Task) -> bool:
        """Whether an attempt of which no worker is in charge is one that its handler left to somebody else."""
        spec = self.world.spec_of(task)
        return spec is not None and bool(spec["handed"]) and (task.lease_until, task.session) == (None, None)

    def _closed(self, change: Change) -> None:
        before, after = change.before, change.after
        if after is None:
            del self.closed[change.key]
            self.trimmed.add(change.key)
            least = (self.world.plan.retention - self.world.set_back - 1.0) * SECOND
            if self.world.database.inner.now() - before.closed_at < least:
                self.fail("retention", f"trimmed too early: {show(before)}")
            return
        if before is not None or change.key in self.closed:
            self.fail("absorbing", f"a closed task changed: {show(before)} -> {show(after)}")
        if change.key in self.tasks:
            self.fail("forks", f"open and closed: {show(after)}")
        if after.state in (*OPEN, S.WAITING) or after.closed_at is None:
            self.fail("table", f"closed, and {show(after)}")
        self.closed[change.key] = after
        if after.kind == Kind.JOB and after.type != ASKING:
            self._reason(after)

    def _reason(self, task: Task) -> None:
        """A task ended as it did because of something that happened."""
        spec = self.world.spec_of(task)
        limits = limits_of(task)
        failure = None if task.failure is None else msgspec.msgpack.decode(task.failure, type=Failure)
        if task.state == S.EXPIRED:
            limit = min((t for t in (task.expires_at, task.deadline) if t is not None), default=None)
            if task.started_at is not None or limit is None or task.updated_at < limit:
                self.fail("reasons", f"expired without cause: {show(task)}")
        if task.state == S.CANCELED and not self.world.may_cancel(task.id):
            self.fail("reasons", f"nobody canceled it: {show(task)}")
        if task.state == S.FAILED:
            code = "" if failure is None else failure.code
            over = code == "schedule_to_close_timeout" and task.deadline is not None
            late = code == "start_to_close_timeout" and limits.start_to_close is not None
            silent = code == "heartbeat_timeout" and limits.heartbeat is not None
            bad = code in ("handler_error", "fatal") and spec is not None and (spec["flaky"] or spec["fatal"])
            lost = code in ("lease_lost", "unknown_handler")
            if not (over or late or silent or bad or lost):
                self.fail("reasons", f"failed without cause, {code}: {show(task)}")
            final = over or (spec is not None and spec["fatal"]) or code == "unknown_handler"
            if not final and task.attempt < task.max_attempts and limits.schedule_to_close is None:
                self.fail("attempts", f"gave up after {task.attempt} of {task.max_attempts}, {code}: {show(task)}")

    def _session(self, change: Change) -> None:
        before, after = change.before, change.after
        if after is None:
            self.sessions.pop(change.key, None)
            self.world.epochs.pop(change.key, None)  # it is forgotten, and so is what it was
            return
        if before is not None and after.epoch < before.epoch:
            self.fail("epochs", f"{before} -> {after}")
        self.sessions[change.key] = after

    def _key(self, change: Change, opening: set[bytes]) -> None:
        before, after = change.before, change.after
        now = self.world.database.inner.now()
        if before is not None and (after is None or after.task_id != before.task_id):
            if before.task_id in self.tasks:
                self.fail("keys", f"the key {before.key!r} of an open task was given away")
            if before.expires_at > now and before.kind != "workflow":
                self.fail("keys", f"the key {before.key!r} was given away before its time")
        if after is None:
            self.keys.pop(change.key, None)
            return
        self.keys[change.key] = after
        made = before is None or before.task_id != after.task_id
        if made and before is not None and before.digest == after.digest and after.digest.startswith(b"reset "):
            self.fail("resets", f"one reset of {after.key!r} made {short(before.task_id)} and {short(after.task_id)}")
        if after.kind == "update" and bytes.fromhex(after.key[:32]) in self.closed:
            return  # its run has closed in this very commit, so it was refused
        if (
            made
            and after.kind not in NAMELESS
            and after.task_id not in opening
            and not (after.kind in ASKED and self.exists(after.task_id))
        ):
            self.fail("keys", f"the key {after.key!r} names a task that is not there")

    # ------------------------------------------------------------------------------------------------------- questions
    def known(self, lease: Lease, what: str) -> Granted:
        """What became of a lease."""
        granted = self.leases.get(token(lease))
        if granted is None:
            self.fail("fence", f"{what} under a lease that was never given: {short(lease.task_id)} {lease.number}")
        assert granted is not None
        return granted

    def exists(self, task_id: bytes) -> bool:
        return task_id in self.tasks or task_id in self.closed or task_id in self.trimmed

    def overdue(self, now: int, patience: float) -> list[Task]:
        """Open rows whose alarm should have rung."""
        late = now - int(patience * SECOND)
        return [task for task in self.tasks.values() if task.wake_at is not None and task.wake_at < late]
