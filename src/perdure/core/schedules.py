"""What happens to a schedule: its row and a command in, effects out.

    create     the row, its alarm set to the first firing
    update     as replace, of one that nobody has changed meanwhile
    replace    another definition, in one write: what fires next is the new one's
    pause      no firing until it is resumed; nominal times that pass meanwhile are skipped
    trigger    one firing now
    backfill   firings for past nominal times, some with each alarm
    ring       its alarm: the nominal times that are due, by the policies for misfires and overlaps
    delete     nothing is left

A firing is decided in two steps, because between them keys are reserved: `Firings.starts` is what the schedule wants
to start, `Firings.settle` takes what became of that and gives the effects. A nominal time has a key, so it starts one
thing however often it fires: after a recovery, or by a back-fill (IDEM-12, CRON-07). The next nominal time follows from
the timing and the one before, never from when that really fired (CRON-04).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from perdure.core import decide
from perdure.core.calendar import latest, missed_in_gap, next_after, stamp, upcoming
from perdure.core.effects import Change, Effect, Insert, PassOn
from perdure.core.errors import Conflict, InvalidArgument
from perdure.core.ids import Mint, slot_of
from perdure.core.lanes import lane
from perdure.core.model import SECOND, Key, Payloads, Task, pack, unpack
from perdure.core.policy import wake_at
from perdure.core.rounds import Rounds
from perdure.core.schedule import (
    BUFFERED,
    KEPT,
    STARTED,
    Definition,
    Firing,
    Ran,
    Schedule,
    Standing,
    Start,
    WorkflowAction,
    digest,
)
from perdure.core.schedule_actions import begin, lane_of
from perdure.core.schedule_commands import (
    BackfillSchedule,
    PauseSchedule,
    PutSchedule,
    TriggerSchedule,
    UpdateSchedule,
)
from perdure.core.states import Cause, Kind, State, is_closed
from perdure.core.turn_effects import KEY_LIFE
from perdure.core.turn_effects import key_of as workflow_key

FOR_EVER = 4_102_444_800 * SECOND
"""When the key of a schedule expires: it goes with its schedule."""
FIRING_LIFE = 24 * 3600 * SECOND
"""Microseconds that the key of a firing is kept."""
PORTION_PAUSE = SECOND
"""Microseconds between two portions of missed or back-filled firings."""
LOOK_AGAIN = (SECOND, 60 * SECOND)
"""Microseconds until a firing that waits for what runs looks at it again: a twentieth of what it has waited, within
these bounds."""
PORTION = 60  #: missed or back-filled firings with one alarm
COUNTED = 1_000  #: missed times that are counted one by one
MAX_BACKFILL = 1_000  #: nominal times of a back-fill
MAX_BACKFILLS = 10  #: back-fills that wait
_WINDOWS: dict[str, int | None] = {"once": None, "skip": 60 * SECOND, "all": 86_400 * SECOND}
"""How late a nominal time may fire unless the definition says so."""


def key_of(namespace: str, schedule_id: str) -> tuple[str, str, str, str]:
    """The name of the key that a schedule holds."""
    return (namespace, "", "schedule", schedule_id)


def firing_key(namespace: str, key: str) -> tuple[str, str, str, str]:
    """The name of the key of a firing. Not that of an enqueue: nobody else's key may suppress a firing."""
    return (namespace, "", "firing", key)


def read(row: Task) -> Schedule:
    """What a row of kind SCHEDULE holds."""
    schedule: Schedule = unpack(row.checkpoint or b"", Schedule)
    return schedule


def reservation(command: PutSchedule) -> Key:
    return Key(*key_of(command.namespace, command.schedule_id), command.task_id, command.digest, FOR_EVER)


def create(command: PutSchedule, now: int) -> list[Effect]:
    definition = command.definition
    standing = Standing(
        paused=command.paused, note=command.note, next=next_after(definition.timing, now), last=now,
        left=definition.remaining,
    )  # fmt: skip
    row = Task(
        command.task_id, command.namespace, "schedule", State.WAITING, lane(command.namespace, "default"), now, now,
        app="", kind=Kind.SCHEDULE, idempotency_key=command.schedule_id, identity=command.identity,
    )  # fmt: skip
    _write(row, Schedule(definition=definition, standing=standing), now)
    return [Insert(row)]


def update(row: Task, command: UpdateSchedule, now: int) -> list[Effect]:
    """Conflict when it is not what the caller has changed a copy of."""
    if digest(read(row).definition) != command.expects:
        raise Conflict("the schedule has been changed meanwhile", field="version", limit="the version that it has")
    return replace(row, command, now)


def replace(row: Task, command: PutSchedule | UpdateSchedule, now: int) -> list[Effect]:
    """Nominal times go on where the timing stays, and begin anew where it does not."""
    row, now = decide.own(row, now)
    schedule = read(row)
    old, new, standing = schedule.definition, command.definition, schedule.standing
    if new.remaining != old.remaining:
        standing.left = new.remaining
    if new.timing != old.timing:
        standing.buffered = None
    if new.timing != old.timing or (standing.next is None and standing.left != 0):
        standing.next, standing.last = next_after(new.timing, now), now
    _write(row, Schedule(definition=new, standing=standing), now)
    key = Key(*key_of(command.namespace, command.schedule_id), row.id, command.digest, FOR_EVER)
    return [Change(row), PassOn(key, key)]


def pause(row: Task, command: PauseSchedule, now: int) -> list[Effect]:
    """Harmless when repeated; the note is that of the last one."""
    row, now = decide.own(row, now)
    schedule = read(row)
    standing = schedule.standing
    if command.paused and standing.buffered is not None:
        _note(standing, Firing(standing.buffered, now, "paused"))
        standing.buffered = None
    if standing.paused and not command.paused and standing.left != 0:
        standing.next, standing.last = next_after(schedule.definition.timing, now), now
    standing.paused, standing.note = command.paused, command.note
    _write(row, schedule, now)
    return [Change(row)]


def backfill(row: Task, command: BackfillSchedule, now: int) -> list[Effect]:
    """InvalidArgument for too many nominal times, Conflict while too many back-fills wait."""
    row, now = decide.own(row, now)
    schedule = read(row)
    times = upcoming(schedule.definition.timing, command.start_at - 1, MAX_BACKFILL + 1)
    if len(times) > MAX_BACKFILL and times[-1] <= command.end_at:
        detail = f"more than {MAX_BACKFILL} nominal times lie between start_at and end_at"
        raise InvalidArgument(detail, field="end_at", limit=f"{MAX_BACKFILL} nominal times")
    if len(schedule.standing.backfills) >= MAX_BACKFILLS:
        raise Conflict(f"{MAX_BACKFILLS} back-fills of this schedule wait already", field="schedule_id")
    schedule.standing.backfills.append((command.start_at, command.end_at))
    _write(row, schedule, now)
    return [Change(row)]


def delete(row: Task, now: int) -> list[Effect]:
    """Its key expires with it."""
    row, now = decide.own(row, now)
    name = key_of(row.namespace, row.idempotency_key or "")
    held, over = Key(*name, row.id, b"", FOR_EVER), Key(*name, row.id, b"", now)
    return [decide.close(row, Cause.CANCEL, now), PassOn(held, over)]


def fires_at(definition: Definition, schedule_id: str, scheduled_at: int) -> int:
    """A nominal time and its jitter, which is the same whoever computes it and whenever."""
    jitter = definition.timing.jitter
    if not jitter:
        return scheduled_at
    digest = hashlib.blake2b(f"{schedule_id}/{scheduled_at}".encode(), digest_size=8).digest()
    return scheduled_at + int.from_bytes(digest, "big") % (jitter + 1)


class Due(msgspec.Struct):
    """Nominal times to fire, how many were passed over, and the first one that is not done with. `full`: that one is
    due too."""

    times: list[int]
    passed_over: int
    next: int | None
    full: bool = False


class Firings:
    """What a schedule does in one batch."""

    def __init__(self, row: Task, now: int, mint: Mint) -> None:
        self.row, self.now = decide.own(row, now)
        self.schedule = read(self.row)
        self.starts: list[Start] = []
        self.cancels: list[Ran] = []  #: to be asked to cancel
        self._id = row.idempotency_key or ""
        self._mint = mint
        self._full = False

    @property
    def lane(self) -> str:
        """Where it makes tasks ready."""
        return lane_of(self.schedule.definition.action, self.row.namespace)

    @property
    def watched(self) -> list[Ran]:
        """What it has to know the fate of."""
        definition = self.schedule.definition
        if definition.overlap == "allow" and not isinstance(definition.action, WorkflowAction):
            return []
        return self.schedule.standing.running

    def keys(self, start: Start) -> list[Key]:
        """That of the firing, and that of the workflow id. Held for a while after what was started has closed."""
        namespace, until = self.row.namespace, self.now + FIRING_LIFE
        found = [Key(*firing_key(namespace, start.key), start.task_id, b"", until)]
        if start.workflow_id:
            name = workflow_key(namespace, start.workflow_id)
            found.append(Key(*name, start.task_id, b"", self.now + KEY_LIFE))
        return found

    def trigger(self, command: TriggerSchedule) -> None:
        self._start(self.now, f"{self._id}/{command.request_id}" if command.request_id else "")

    def ring(self, seen: Mapping[Ran, Task | None]) -> None:
        """`seen`: what has become of what is `watched`."""
        definition, standing = self.schedule.definition, self.schedule.standing
        self._forget_ended(seen)
        self._fill_back()
        if standing.paused:
            return
        busy = bool(standing.running) and definition.overlap != "allow"
        if standing.buffered is not None:
            if not busy:
                self._fire(standing.buffered)
                standing.buffered, busy = None, True
            elif definition.overlap == "cancel_previous":
                self.cancels = list(standing.running)
        if standing.next is None or standing.left == 0:
            return
        if fires_at(definition, self._id, standing.next) > self.now:
            return
        due = self._due()
        self._note_missed(due)
        for at in due.times:
            if standing.left == 0:
                break
            busy = self._serve(at, busy)
        standing.last = due.times[-1] if due.times else standing.next
        standing.next = None if standing.left == 0 else due.next
        self._full = due.full

    def _forget_ended(self, seen: Mapping[Ran, Task | None]) -> None:
        """But for the last workflow that completed: the next one gets its result."""
        standing = self.schedule.standing
        running: list[Ran] = []
        for ran in standing.running:
            task = seen.get(ran)
            if ran not in seen or (task is not None and not is_closed(task.state)):
                running.append(ran)
            elif task is not None and task.state == State.SUCCEEDED and ran.workflow_id:
                standing.completed = Ran(task.id, ran.workflow_id)
        standing.running = running

    def _serve(self, at: int, busy: bool) -> bool:
        """By the overlap policy; whether something runs now."""
        standing = self.schedule.standing
        match self.schedule.definition.overlap:
            case "allow":
                self._fire(at)
                return False
            case _ if not busy:
                self._fire(at)
            case "cancel_previous":
                if standing.buffered is not None:
                    self._note(standing.buffered, "overlap")
                standing.buffered = at
                self.cancels = list(standing.running)
                self._note(at, BUFFERED)
            case "buffer_one" if standing.buffered is None:
                standing.buffered = at
                self._note(at, BUFFERED)
            case _:
                self._note(at, "overlap")
        return True

    def _fill_back(self) -> None:
        """A portion of the back-fills that wait, whatever else runs."""
        timing, standing = self.schedule.definition.timing, self.schedule.standing
        while standing.backfills and len(self.starts) < PORTION:
            start, end = standing.backfills.pop(0)
            at = next_after(timing, start - 1)
            while at is not None and at <= end and len(self.starts) < PORTION:
                self._start(at)
                start, at = at + 1, next_after(timing, at)
            if at is not None and at <= end:
                standing.backfills.insert(0, (start, end))
                self._full = True

    def _due(self) -> Due:
        """By the misfire policy. What was passed over is counted up to a bound, because millions may lie between."""
        definition, standing = self.schedule.definition, self.schedule.standing
        assert standing.next is not None
        window = _WINDOWS[definition.misfire] if definition.window is None else definition.window
        due = self._all_due if definition.misfire == "all" else self._last_due
        return due(standing.next, window)

    def _last_due(self, first: int, window: int | None) -> Due:
        """All that is due is one firing: that of the latest time, unless it is too late for it."""
        timing = self.schedule.definition.timing
        last, passed_over = first, 0
        at = next_after(timing, last)
        while self._is_due(at) and passed_over < COUNTED:
            assert at is not None
            last, passed_over = at, passed_over + 1
            at = next_after(timing, last)
        if self._is_due(at):
            last = latest(timing, last, self.now - timing.jitter)
            at = next_after(timing, last)
        if window is not None and self.now - self._fires_at(last) > window:
            return Due([], passed_over + 1, at)
        return Due([last], passed_over, at)

    def _all_due(self, first: int, window: int | None) -> Due:
        """A portion of those that are due, and not too late."""
        timing = self.schedule.definition.timing
        oldest = 0 if window is None else self.now - window
        at: int | None = first
        passed_over = 0
        while at is not None and self._is_due(at) and self._fires_at(at) < oldest:
            passed_over += 1
            at = next_after(timing, at if passed_over < COUNTED else max(at, oldest - timing.jitter - 1))
        times: list[int] = []
        while at is not None and self._is_due(at) and len(times) < PORTION:
            times.append(at)
            at = next_after(timing, at)
        return Due(times, passed_over, at, full=self._is_due(at))

    def _is_due(self, at: int | None) -> bool:
        return at is not None and self._fires_at(at) <= self.now

    def _fires_at(self, at: int) -> int:
        return fires_at(self.schedule.definition, self._id, at)

    def _note_missed(self, due: Due) -> None:
        standing = self.schedule.standing
        assert standing.next is not None
        gap = missed_in_gap(self.schedule.definition.timing, standing.last, standing.next)
        if gap is not None:
            self._note(gap, "gap")
        if due.passed_over:
            self._note(standing.next, "missed")
            standing.counts["missed"] += due.passed_over - 1

    def _fire(self, at: int) -> None:
        """One that counts."""
        standing = self.schedule.standing
        if standing.left is not None:
            standing.left -= 1
            if standing.left == 0:
                standing.next = None
        self._start(at)

    def _start(self, at: int, key: str = "") -> None:
        action, namespace = self.schedule.definition.action, self.row.namespace
        key = key or f"{self._id}/{stamp(at)}"
        if isinstance(action, WorkflowAction):
            workflow_id = f"{action.workflow_id}-{stamp(at)}"
            slot = slot_of(namespace, workflow_id)
        else:
            workflow_id, slot = "", slot_of(namespace, action.app, key)
        self.starts.append(Start(at, key, self._mint.task_id(self.now, slot), workflow_id))

    def _note(self, at: int, outcome: str) -> None:
        _note(self.schedule.standing, Firing(at, self.now, outcome))

    def settle(self, taken: Mapping[bytes, bytes | None], last_result: Payloads, rounds: Rounds) -> list[Effect]:
        """`taken` are starts, by task id, that cannot be: what was started for them before, None where somebody else's
        run has the workflow id. `last_result`: of the last workflow that completed."""
        standing, action = self.schedule.standing, self.schedule.definition.action
        effects: list[Effect] = []
        for start in self.starts:
            outcome, task_id = STARTED, taken.get(start.task_id, start.task_id)
            if start.task_id not in taken:
                effects += begin(action, self.row.namespace, self._id, start, last_result, self.now, rounds)
            elif task_id is None:
                outcome = "workflow_id_taken"
            else:
                outcome = "started_before"
            _note(standing, Firing(start.scheduled_at, self.now, outcome, task_id or b"", start.workflow_id))
            ran = Ran(task_id or b"", start.workflow_id)
            if task_id is not None and ran not in standing.running:
                standing.running = [*standing.running, ran][-KEPT:]
        _write(self.row, self.schedule, self.now, full=self._full)
        return [*effects, Change(self.row)]


def _note(standing: Standing, firing: Firing) -> None:
    standing.recent = [firing, *standing.recent][:KEPT]
    standing.counts[firing.outcome] = standing.counts.get(firing.outcome, 0) + 1


def _write(row: Task, schedule: Schedule, now: int, *, full: bool = False) -> None:
    """Into the row, with the alarm that follows. `full`: a portion was done, and the next one is due in a second."""
    standing = schedule.standing
    if standing.left == 0:
        standing.next = None
    alarms: list[int] = []
    if standing.backfills:
        alarms.append(now + PORTION_PAUSE if full else now)
    if not standing.paused:
        if standing.next is not None:
            at = fires_at(schedule.definition, row.idempotency_key or "", standing.next)
            alarms.append(max(at, now + PORTION_PAUSE) if full else at)
        if standing.buffered is not None:
            shortest, longest = LOOK_AGAIN
            alarms.append(now + min(max((now - standing.buffered) // 20, shortest), longest))
    row.checkpoint = pack(schedule)
    row.ready_at = min(alarms, default=None)
    row.wake_at = wake_at(row)
