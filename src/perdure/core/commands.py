"""Everything anyone may ask of the engine, as a closed union. A command is validated and names its namespace; what it
answers is in `Outcome`. Commands are made by api/service.py and by the engine's own services."""

from __future__ import annotations

import msgspec

from perdure.core.errors import PerdureError
from perdure.core.events import (
    Event,
    WorkflowExecutionCancelRequested,
    WorkflowExecutionSignaled,
    WorkflowExecutionStarted,
)
from perdure.core.limit_rules import Limit, LimitName
from perdure.core.model import Lease, Task
from perdure.core.run import Run, UpdateRequest
from perdure.core.schedule_commands import BackfillSchedule as BackfillSchedule
from perdure.core.schedule_commands import DeleteSchedule as DeleteSchedule
from perdure.core.schedule_commands import PauseSchedule as PauseSchedule
from perdure.core.schedule_commands import PutSchedule as PutSchedule
from perdure.core.schedule_commands import ScheduleCommand as ScheduleCommand
from perdure.core.schedule_commands import Scheduled as Scheduled
from perdure.core.schedule_commands import TriggerSchedule as TriggerSchedule
from perdure.core.schedule_commands import UpdateSchedule as UpdateSchedule
from perdure.core.states import State
from perdure.core.turn_commands import TurnCommand


class Start(msgspec.Struct, kw_only=True, gc=False):
    """What makes an Enqueue the start of a workflow run. `run` and `event` are drafts without ids."""

    run: Run
    event: WorkflowExecutionStarted
    id_reuse: str = "allow_duplicate"
    id_conflict: str = "fail"
    signal: WorkflowExecutionSignaled | None = None
    update: UpdateRequest | None = None  #: instead of a signal

    @property
    def tells(self) -> bool:
        """Whether it brings something for the open run of its workflow id."""
        return self.signal is not None or self.update is not None


class Enqueue(msgspec.Struct, kw_only=True, gc=False):
    """Make a task from `draft`; with a key, only if the key is free."""

    draft: Task  #: everything but id, times and place; `ready_at` holds a delay until `delay` has been added
    delay: int = 0  #: microseconds
    schedule_to_start: int | None = None
    schedule_to_close: int | None = None
    key: str | None = None
    key_kind: str = "task"
    key_life: int = 0  #: microseconds
    digest: bytes = b""
    size: int = 0  #: bytes, for the bounds of a batch
    task_id: bytes | None = None  #: minted at the first try and kept over the next ones
    minted: bool = False  #: by the caller, who may send it again: it may be there already
    place: int | None = None  #: given when a batch first takes it: batches in flight keep the order of arrival
    start: Start | None = None  #: of a workflow run; `key` is then the workflow id, `digest` the request id


class Cancel(msgspec.Struct, kw_only=True, gc=False):
    namespace: str
    task_id: bytes
    reason: str = ""


class Retry(msgspec.Struct, kw_only=True, gc=False):
    """Cut the back-off of an open task short. A closed one is repeated by an Enqueue (`decide.repeat`)."""

    namespace: str
    task_id: bytes


class NoteBulk(msgspec.Struct, kw_only=True, gc=False):
    """How far an action on many jobs is: what its row carries from here on. `number` names the driver; `over`: it
    ends."""

    namespace: str
    task_id: bytes
    number: int
    checkpoint: bytes
    over: bool = False


class Heartbeat(msgspec.Struct, kw_only=True, gc=False):
    """A sign of life; the first one acknowledges receipt. None leaves progress or checkpoint as it is."""

    lease: Lease
    progress: bytes | None = None
    checkpoint: bytes | None = None
    size: int = 0


class Complete(msgspec.Struct, kw_only=True, gc=False):
    """How an attempt ended. `outcome` is one of the OUTCOMES."""

    lease: Lease
    outcome: str
    result: bytes | None = None
    failure: bytes | None = None
    failure_type: str = ""
    retryable: bool = True
    retry_after: int | None = None  #: microseconds
    progress: bytes | None = None
    checkpoint: bytes | None = None
    size: int = 0


OUTCOMES = ("succeeded", "failed", "canceled", "released", "deferred")
"""The last one: the attempt goes on, and somebody else ends it by its lease."""


class Append(msgspec.Struct, kw_only=True, gc=False):
    """What the code of a run asked for in its turn. `after` is the last event that its worker knows; `final` ends the
    turn."""

    lease: Lease
    after: int
    commands: list[TurnCommand]
    final: bool
    sticky: bool = True  #: its worker has the run in memory
    completed_event_id: int = 0  #: the WorkflowTaskCompleted of the turn; 0 where its worker does not know one
    size: int = 0
    identity: str = ""
    build: str = ""


class Tell(msgspec.Struct, kw_only=True, gc=False):
    """A message for a run: the one of `run_id`, or the current one of the workflow id. With a `request_id` it arrives
    once; an update is told apart by its own id."""

    namespace: str
    workflow_id: str
    run_id: bytes | None = None
    message: WorkflowExecutionSignaled | WorkflowExecutionCancelRequested | UpdateRequest
    request_id: str = ""
    size: int = 0


class Terminate(msgspec.Struct, kw_only=True, gc=False):
    namespace: str
    workflow_id: str
    run_id: bytes | None = None
    reason: str = ""
    identity: str = ""


class OpenSession(msgspec.Struct, kw_only=True, gc=False):
    namespace: str
    incarnation: int
    epoch: int
    identity: str
    queues: str
    slots: int
    build: str = ""


class CloseSession(msgspec.Struct, kw_only=True, gc=False):
    """End the leases of an incarnation that is gone. With an epoch: its connection broke, so that they end only if no
    newer one is known, and not right after an outage of the database (pulse.py)."""

    incarnation: int
    epoch: int | None = None


class WriteStream(msgspec.Struct, kw_only=True, gc=False):
    """More of a task's stream: (kind, data) of each chunk, of which `first` is the number that the first one has among
    those of the lease."""

    lease: Lease
    first: int
    chunks: list[tuple[int, bytes]]
    size: int = 0


class Ring(msgspec.Struct, kw_only=True, gc=False):
    """Take the pulse, then ring at most `limit` due alarms, of those that go off after `after`."""

    limit: int
    after: int = 0


class Reap(msgspec.Struct, kw_only=True, gc=False):
    """End at most `limit` leases of worker processes that are gone."""

    limit: int


class Trim(msgspec.Struct, kw_only=True, gc=False):
    """Delete at most `limit` tasks that closed before `closed_before`, and at most `limit` expired keys."""

    closed_before: int
    limit: int


class TrimOutbox(msgspec.Struct, kw_only=True, gc=False):
    """Delete at most `limit` of the events from before `events_before`, and of the streams that nobody wrote to since
    `streams_before` and whose task has closed."""

    events_before: int
    streams_before: int
    limit: int


class Erase(msgspec.Struct, kw_only=True, gc=False):
    """Delete these closed jobs; harmless for those that are gone."""

    task_ids: list[bytes]


Chore = Ring | Reap | Trim | TrimOutbox | Erase


class Pause(msgspec.Struct, kw_only=True, gc=False):
    """Begin no turns of a run, or (`paused` False) begin them again."""

    namespace: str
    workflow_id: str
    run_id: bytes | None = None
    paused: bool = True


class Reset(msgspec.Struct, kw_only=True, gc=False):
    """Begin a run again from an event. `history` is all of it as it was read before, `task` and `run` what was read of
    a run that is closed."""

    namespace: str
    workflow_id: str
    run_id: bytes
    event_id: int
    history: list[Event]
    task: Task
    run: Run
    new_run_id: bytes
    digest: bytes = b""  #: of the request, by which a repeat of it is known while the new run is the current one
    reason: str = ""
    identity: str = ""


class PutLimit(msgspec.Struct, kw_only=True, gc=False):
    """Make or replace a limit. One that is declared does not replace one that is not; what is paused stays so."""

    limit: Limit


class PauseLimit(msgspec.Struct, kw_only=True, gc=False):
    """Let nothing start that a limit of this name counts, or (`paused` False) let it start again."""

    name: LimitName
    paused: bool = True
    note: str = ""


class DeleteLimit(msgspec.Struct, kw_only=True, gc=False):
    name: LimitName


class SwitchBreaker(msgspec.Struct, kw_only=True, gc=False):
    """Open the breaker of a type for a cool-down from now on, or close it."""

    name: LimitName
    open: bool
    note: str = ""


class Pull(msgspec.Struct, kw_only=True, gc=False):
    """Put blocked tasks back where something may start; of each subject at most so many as can."""

    subjects: list[str]


LimitChange = PutLimit | PauseLimit | DeleteLimit | SwitchBreaker
Addressed = Tell | Terminate | Pause | Reset
"""Commands that name a run by its workflow id."""
Command = (
    Enqueue
    | Cancel
    | Retry
    | NoteBulk
    | Heartbeat
    | Complete
    | Append
    | Addressed
    | OpenSession
    | CloseSession
    | Chore
    | LimitChange
    | Pull
    | ScheduleCommand
    | WriteStream
)


class Enqueued(msgspec.Struct, frozen=True, gc=False):
    task_id: bytes
    duplicate: bool
    created_at: int = 0  #: 0 where an earlier try or request made it


class Started(msgspec.Struct, frozen=True, gc=False):
    """The run of a workflow id; `started` is False where it was open before."""

    run_id: bytes
    started: bool = True


class Told(msgspec.Struct, frozen=True, gc=False):
    """The message is in the inbox of this run. `answer_id` is the row that gets the answer to an update."""

    run_id: bytes
    answer_id: bytes | None = None


class Appended(msgspec.Struct, frozen=True, gc=False):
    """The state of the run, and the id of the last event of its history; 0 in the answer to a repeated append by which
    the run closed."""

    run_id: bytes
    state: State
    last: int
    waiting: bool = False  #: messages have come that this turn does not see


class Changed(msgspec.Struct, frozen=True, gc=False):
    """The task that a command changed, and its state after it."""

    task_id: bytes
    state: State
    cancel_requested: bool = False


class Alive(msgspec.Struct, frozen=True, gc=False):
    """The answer to a heartbeat: go on, or end it soon."""

    cancel: bool


class LimitIs(msgspec.Struct, frozen=True, gc=False):
    """The limit as it is stored now; None: there is none."""

    limit: Limit | None


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """Committed, nothing to say."""


class Did(msgspec.Struct, frozen=True, gc=False):
    """How many rows a chore changed: as many as its limit means that there may be more."""

    count: int


class Stale(msgspec.Struct, frozen=True, gc=False):
    """The run went on after it was read for the command: read it again."""


Outcome = (
    Enqueued | Started | Told | Appended | Changed | Alive | LimitIs | Scheduled | Accepted | Did | Stale | PerdureError
)
