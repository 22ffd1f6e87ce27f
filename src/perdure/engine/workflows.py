"""What a batch does about workflow runs: finds those that commands address, locks what hangs together, reads runs and
inboxes behind the locks, and asks core/ what follows.

    resolve    workflow ids to current runs, before any lock
    relatives  parents of children that may close are locked, too; a child whose parent is held elsewhere waits
    errands    due messages to other runs, and sweeps of closed ones, with the rows that they are about
    read       runs and inboxes, in statements sent after the locks were granted
    reserve    request ids and ids of child workflows (reservations.py)
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping
from typing import Any

from perdure.core import commands as c
from perdure.core import decide, pages, runs, turns
from perdure.core import turn_commands as t
from perdure.core.effects import PassOn, PutRun
from perdure.core.errors import (
    Internal,
    InvalidArgument,
    LeaseLost,
    NotFound,
    WorkflowAlreadyStarted,
)
from perdure.core.events import (
    ActivityTaskScheduled,
    WorkflowExecutionCancelRequested,
    WorkflowExecutionSignaled,
    WorkflowExecutionStarted,
)
from perdure.core.history_size import crosses, warning
from perdure.core.ids import Mint
from perdure.core.ids import text as id_text
from perdure.core.lanes import TURNS, lane
from perdure.core.model import Key, Task
from perdure.core.reset import reset
from perdure.core.rounds import Rounds
from perdure.core.run import Run, UpdateRequest
from perdure.core.states import Kind, State, is_closed
from perdure.core.turn_effects import KEY_LIFE, key_of
from perdure.engine import inboxes
from perdure.engine.dispatch import Prepared
from perdure.engine.errands import Errands
from perdure.engine.gather import Item
from perdure.engine.groups import Groups
from perdure.engine.ledger import Ledger
from perdure.engine.relatives import Relatives
from perdure.engine.reservations import Reservations
from perdure.engine.schedules import Schedules
from perdure.store.base import Batch as Rows
from perdure.store.base import KeyName, Store

log = logging.getLogger("perdure.engine")

Items = list[tuple[Item, Any]]


class Workflows:
    """For one batch. `answers` are those to commands that end here; `store` is for reading beside the batch what does
    not change any more."""

    def __init__(
        self, ledger: Ledger, relatives: Relatives, mint: Mint, rounds: Rounds, store: Store, max_events: int
    ) -> None:
        self.answers: list[tuple[Item, c.Outcome]] = []
        self._ledger = ledger
        self._relatives = relatives
        self._mint = mint
        self._rounds = rounds
        self._store = store
        self._max_events = max_events
        self._names: dict[Item, KeyName] = {}  #: of runs that were addressed by workflow id alone
        self._targets: dict[Item, bytes] = {}
        self._holders: dict[Item, bytes] = {}  #: who has the workflow id
        self.reservations = Reservations(ledger, self._targets, store)
        self.errands = Errands(ledger, relatives, mint, rounds)
        self.groups = Groups(ledger, relatives, store, mint, rounds)
        self.schedules = Schedules(ledger, relatives, self._targets, store, mint, rounds)
        self._first: dict[bytes, WorkflowExecutionStarted] = {}

    # ------------------------------------------------------------------------------------------------- before locks
    async def resolve(self, rows: Rows, addressed: Items) -> Items:
        """Those whose run is known."""
        names = {item: key_of(command.namespace, command.workflow_id) for item, command in addressed}
        names = {i: n for i, n in names.items() if isinstance(i.command, c.Reset) or not i.command.run_id}  # type: ignore[union-attr]
        holders = await rows.read_keys(sorted(set(names.values()))) if names else {}
        holders |= await self._kept_no_more(rows, addressed, names, holders)
        known: Items = []
        for item, command in addressed:
            holder = holders.get(names[item]) if item in names else None
            target = command.run_id or (holder.task_id if holder else None)
            if holder is None and isinstance(command, c.Reset):
                self.answers.append((item, c.Stale()))  # another run has just got the workflow id
                continue
            if target is None:
                self.answers.append((item, NotFound("there is no such workflow", field="workflow_id")))
                continue
            if holder is not None and isinstance(command, c.Reset) and command.digest == holder.digest != b"":
                self.answers.append((item, c.Started(holder.task_id)))  # it was sent before
                continue
            self._targets[item] = target
            self._holders[item] = holder.task_id if holder else b""
            known.append((item, command))
        self._names = names
        return known

    async def _kept_no_more(
        self, rows: Rows, addressed: Items, names: Mapping[Item, KeyName], holders: Container[KeyName]
    ) -> dict[KeyName, Key]:
        """A run that closed long ago may have outlived the key of its workflow id: it gets that again."""
        free = {
            names[item]: Key(*names[item], command.run_id, b"", rows.now + KEY_LIFE)
            for item, command in addressed
            if isinstance(command, c.Reset) and names[item] not in holders
        }
        reserved = await rows.reserve_keys([free[name] for name in sorted(free)]) if free else set()
        return {name: free[name] for name in reserved}

    def target(self, targets: Mapping[Item, bytes]) -> None:
        """These commands are about these runs."""
        self._targets.update(targets)

    def ids_of(self, item: Item) -> list[bytes]:
        """The rows that a command is about, the main one first."""
        match item.command:
            case c.Complete(lease=lease):
                return [lease.task_id]
            case c.Append() as command:
                named = (wanted.task_id for wanted in command.commands if isinstance(wanted, _NAMING))
                return [command.lease.task_id, *named]
            case c.Reset():
                return [self._targets[item], self._holders[item]]
            case c.Cancel(task_id=task_id) | c.Retry(task_id=task_id) | c.NoteBulk(task_id=task_id):
                return [task_id]
            case _:
                return [self._targets[item]]

    def lanes_of(self, named: Items) -> set[str]:
        """Lanes in which these commands may make tasks ready, besides those of the rows that they name."""
        lanes = self.schedules.lanes
        for _, command in named:
            if isinstance(command, c.Reset):
                lanes.add(lane(command.namespace, command.task.queue, TURNS))
                lanes.update(
                    lane(command.namespace, event.attributes.task_queue)
                    for event in command.history
                    if isinstance(event.attributes, ActivityTaskScheduled)
                )
            if isinstance(command, c.Append) and (task := self._ledger.rows.get(command.lease.task_id)) is not None:
                for wanted in command.commands:
                    if isinstance(wanted, t.ScheduleActivity):
                        lanes.add(lane(task.namespace, wanted.task_queue))
                    elif isinstance(wanted, (t.StartChildWorkflow, t.ContinueAsNew)) and wanted.task_queue:
                        lanes.add(lane(task.namespace, wanted.task_queue, TURNS))
        return lanes

    # --------------------------------------------------------------------------------------------------- behind locks
    async def followed(self, rows: Rows, gone: Mapping[bytes, Task]) -> list[Item]:
        """Commands whose run has closed since its workflow id was looked up, and was followed by another: they are for
        that one (B093)."""
        late = {
            item: name
            for item, name in self._names.items()
            if (run := gone.get(self._targets.get(item, b""))) is not None
            and is_closed(run.state)
            and not isinstance(item.command, c.Reset)
        }
        holders = await rows.read_keys(sorted(set(late.values()))) if late else {}
        return [i for i, name in late.items() if name in holders and holders[name].task_id != self._targets[i]]

    async def recall(self, rows: Rows, named: Items, gone: Mapping[bytes, Task]) -> None:
        """What was asked before of runs that have closed."""
        closed = [
            (item, command)
            for item, command in (named if gone else ())
            if isinstance(command, c.Tell)
            and (run := gone.get(self._targets[item])) is not None
            and is_closed(run.state)
        ]
        if closed:
            await self.reservations.recall(rows, closed)

    async def read(self, rows: Rows, in_turn: set[bytes]) -> None:
        """The runs among the rows, and the inboxes of those whose turn is looked at."""
        ledger = self._ledger
        ids = [task.id for task in ledger.rows.values() if task.kind == Kind.WORKFLOW and task.id not in ledger.runs]
        if not ids:
            return
        ledger.runs.update(await rows.runs(ids))
        looked_at = [run for i in ids if i in in_turn and (run := ledger.runs.get(i)) is not None]
        reset = {target for item, target in self._targets.items() if isinstance(item.command, c.Reset)}
        ledger.inboxes.update(await inboxes.read(rows, looked_at, whole=reset))

    async def read_first(self, named: Items) -> None:
        """Event 1 of runs that may be followed by another one, which begins with the same. It never changes, so it is
        read beside the batch."""
        ids = [
            command.lease.task_id
            for _, command in named
            if isinstance(command, c.Append)
            and command.commands
            and isinstance(command.commands[-1], (t.ContinueAsNew, t.FailWorkflow, t.CompleteWorkflow))
            and self._may_go_on(command)
        ]
        for run_id, found in (await self._store.histories(dict.fromkeys(ids, 0), 1)).items() if ids else ():
            event = pages.unpack(found[0].data)[0].attributes
            assert isinstance(event, WorkflowExecutionStarted)
            self._first[run_id] = event

    def _may_go_on(self, command: c.Append) -> bool:
        if isinstance(command.commands[-1], t.ContinueAsNew):
            return True
        task, run = self._ledger.rows.get(command.lease.task_id), self._ledger.runs.get(command.lease.task_id)
        return task is not None and run is not None and (task.retry_policy is not None or run.cron is not None)

    # --------------------------------------------------------------------------------------------------- decisions
    def sticky(self, ready: Mapping[str, Iterable[Task]]) -> dict[bytes, int]:
        """Which worker process has which of these runs in memory."""
        if not self._ledger.runs:
            return {}
        found = {task.id: self._ledger.runs.get(task.id) for tasks in ready.values() for task in tasks}
        return {i: run.sticky_session for i, run in found.items() if run is not None and run.sticky_session is not None}

    def begin(self, task: Task, now: int) -> Prepared:
        """Of a run that is leased: what its turn sees is fixed from here on."""
        messages = self._ledger.inboxes.get(task.id, ())
        self._ledger.apply([PutRun(turns.begin(task, self._ledger.runs[task.id], messages, now))])
        return self.prepared(task)

    def prepared(self, task: Task) -> Prepared:
        """What the worker of a leased run is to be shown."""
        run = self._ledger.runs[task.id]
        events, updates = turns.prepared(task, run, self._ledger.inboxes.get(task.id, ()))
        page = self._ledger.first_pages.get(task.id)
        return Prepared(run, events, updates, page if page is not None and page.count == run.event_count else None)

    def append(self, command: c.Append, gone: Task | None, now: int) -> c.Outcome:
        task = self._ledger.rows.get(command.lease.task_id) or gone
        if task is None or task.kind != Kind.WORKFLOW:
            raise LeaseLost(decide.why_lost(task))
        if is_closed(task.state):
            decide.recorded(task, c.Complete(lease=command.lease, outcome="succeeded"))
            return c.Appended(task.id, task.state, 0)
        run = self._ledger.runs[task.id]
        effects, outcome = turns.append(
            task,
            run,
            self._ledger.inboxes.get(task.id, ()),
            command,
            rows=self._ledger.rows,
            taken=self.reservations.taken,
            first=lambda: self._first[task.id],
            now=now,
            mint=self._mint,
            rounds=self._rounds,
            max_events=self._max_events,
        )
        self._relatives.apply(effects, now)
        if isinstance(outcome, c.Appended) and crosses(run.event_count, outcome.last, self._max_events):
            what = warning(outcome.last, self._max_events)
            log.warning("workflow %r, run %s: %s", run.workflow_id, id_text(run.id), what)
        return outcome

    def complete(self, task: Task, command: c.Complete, now: int) -> c.Outcome:
        """A turn that failed, or that its worker hands back."""
        run = self._ledger.runs.get(task.id)
        if run is None:
            return c.Changed(task.id, decide.recorded(task, command))
        match command.outcome:
            case "failed":
                messages = self._ledger.inboxes.get(task.id, ())
                effects, state = turns.fail(task, run, messages, command, now)
            case "released":
                effects, state = turns.release(task, run, command, now, self._rounds)
            case other:
                limit = "failed, released"
                raise InvalidArgument(f"outcome of a turn is {other!r}", field="outcome", limit=limit, kind="str")
        self._relatives.apply(effects, now)
        return c.Changed(task.id, state)

    def start(self, item: Item, command: c.Enqueue, now: int) -> c.Outcome:
        """A start that has got its workflow id. An update that it brings is known by its id from now on."""
        assert command.task_id is not None
        self.reservations.asked_before(item)
        self._relatives.apply(runs.start(command, now, self._rounds), now)
        return c.Started(command.task_id)

    def start_onto(self, item: Item, command: c.Enqueue, gone: Task | None, now: int) -> c.Outcome | None:
        """A start whose workflow id an open run has: that one is told something, or closed and replaced."""
        start, target = command.start, self._targets[item]
        assert start is not None
        assert command.task_id is not None
        task, run = self._ledger.rows.get(target), self._ledger.runs.get(target)
        if task is None or run is None or is_closed(task.state):
            return None  # it has closed since
        if start.id_conflict == "terminate_existing":
            self._relatives.apply(runs.terminate(task, run, "another run takes its place", "", now, self._mint), now)
            self.start(item, command, now)
            name = key_of(task.namespace, run.workflow_id)
            new = Key(*name, command.task_id, command.digest, now + command.key_life)
            self._relatives.apply([PassOn(Key(*name, target, b"", 0), new)], now)
            return c.Started(command.task_id)
        if start.tells and self.reservations.asked_before(item) is None:
            self._relatives.apply(runs.tell(task, run, start, now, self._rounds), now)
        return c.Started(target, started=False)

    def tell(self, item: Item, command: c.Tell, gone: Task | None, now: int) -> c.Outcome | None:
        """None: the run has been followed by another one meanwhile, so it is looked for again. A signal or a cancel
        request goes to that one at once, because its request id is taken by now."""
        task, run = self._target(item, command.namespace, gone)
        if task is None and not isinstance(command.message, UpdateRequest):
            task, run = self._successor(item)
        if task is None or run is None:
            if self._may_be_followed(item):
                return None
            if (key := self.reservations.known(item)) is not None:
                return _told(self._targets[item], key, command)
            runs.refuse_closed(gone or self._ledger.rows[self._targets[item]])
        assert task is not None
        assert run is not None
        if (key := self.reservations.asked_before(item)) is not None:
            return _told(task.id, key, command)
        match command.message:
            case WorkflowExecutionCancelRequested() as request:
                self._relatives.apply(runs.cancel(task, run, request, now, self._mint, self._rounds), now)
                return c.Told(task.id)
            case WorkflowExecutionSignaled() as signal:
                self._relatives.apply(runs.post(task, run, [signal], now, self._rounds), now)
                return c.Told(task.id)
            case UpdateRequest() as update:
                self._relatives.apply(runs.update(task, run, update, now, self._rounds), now)
                return c.Told(task.id, update.task_id)

    def terminate(self, item: Item, command: c.Terminate, gone: Task | None, now: int) -> c.Outcome | None:
        task, run = self._target(item, command.namespace, gone)
        if task is None or run is None:
            if self._may_be_followed(item):
                return None
            closed = gone or self._ledger.rows[self._targets[item]]
            return c.Changed(closed.id, closed.state)
        self._relatives.apply(runs.terminate(task, run, command.reason, command.identity, now, self._mint), now)
        return c.Changed(task.id, State.TERMINATED)

    def pause(self, item: Item, command: c.Pause, gone: Task | None, now: int) -> c.Outcome | None:
        task, run = self._target(item, command.namespace, gone)
        if task is None or run is None:
            if self._may_be_followed(item):
                return None
            runs.refuse_closed(gone or self._ledger.rows[self._targets[item]])
        assert task is not None
        assert run is not None
        self._relatives.apply(runs.pause(task, run, command.paused, now, self._rounds), now)
        return c.Changed(task.id, self._ledger.rows[task.id].state)

    def reset(self, item: Item, command: c.Reset, gone: Task | None, now: int) -> c.Outcome | None:
        target, holder = self._targets[item], self._holders[item]
        task, run = self._target(item, command.namespace, gone)
        if holder != target and holder in self._ledger.rows:
            raise WorkflowAlreadyStarted("another run of this workflow id is open", field="run_id")
        if self._names[item] in self._relatives.passed_on:
            return None
        closed_since = task is None and not is_closed(command.task.state)
        task, run = task or command.task, run or command.run
        if closed_since or run.event_count != len(command.history):
            return c.Stale()
        messages = self._ledger.inboxes.get(target, ())
        self._relatives.apply(reset(task, run, messages, holder, command, now, self._mint, self._rounds), now)
        return c.Started(command.new_run_id)

    def _target(self, item: Item, namespace: str, gone: Task | None) -> tuple[Task | None, Run | None]:
        target = self._targets[item]
        task = self._ledger.rows.get(target)
        known = task or gone
        if known is None or known.namespace != namespace or known.kind != Kind.WORKFLOW:
            raise NotFound("there is no such workflow run", field="run_id")
        if task is None or is_closed(task.state):
            return None, None
        run = self._ledger.runs.get(target)
        if run is not None and isinstance(item.command, c.Addressed) and run.workflow_id != item.command.workflow_id:
            raise NotFound("there is no such run of this workflow", field="run_id")
        return task, run

    def _successor(self, item: Item) -> tuple[Task | None, Run | None]:
        """The run that this batch made to follow the one that the workflow id stood for."""
        following = self._relatives.passed_on.get(self._names.get(item, _NO_NAME))
        if following is None:
            return None, None
        self._targets[item] = following
        return self._ledger.rows[following], self._ledger.runs[following]

    def _may_be_followed(self, item: Item) -> bool:
        """Whether the run that the workflow id stood for closes in this very batch: the next one looks for it again."""
        return item in self._names and self._targets[item] in self._ledger.rows

    def ring(self, task: Task, now: int, hold_until: int) -> None:
        """The alarm of a row that is about workflows."""
        ledger = self._ledger
        match task.kind:
            case Kind.WORKFLOW:
                run = ledger.runs[task.id]
                self._relatives.apply(runs.ring(task, run, now, self._mint, self._rounds, hold_until), now)
            case Kind.TIMER:
                self._relatives.apply(runs.fire(task, now), now)
            case Kind.MESSAGE:
                self.errands.deliver(task, now)
            case Kind.SWEEP:
                self.errands.sweep(task, now)
            case Kind.GROUP:
                self.groups.ring(task, now)
            case Kind.SCHEDULE:
                self.schedules.ring(task, now)
            case _:
                raise Internal(f"a {task.kind.name} has no alarm")

    def lose(self, task: Task, reason: str, now: int) -> None:
        """The worker process that had the turn is gone."""
        task, now = runs.own(task, self._ledger.runs[task.id], now)
        self._relatives.apply(runs.lose(task, self._ledger.runs[task.id], reason, now, self._rounds), now)


def _told(run_id: bytes, key: Key, command: c.Tell) -> c.Told:
    """The first answer to a message that was sent before, to this run or to one that it follows."""
    return c.Told(run_id, key.task_id) if isinstance(command.message, UpdateRequest) else c.Told(key.task_id)


_NO_NAME: KeyName = ("", "", "", "")
_NAMING = (t.CancelActivity, t.CancelGroup, t.CancelTimer, t.AcceptUpdate, t.RejectUpdate, t.CompleteUpdate)
"""Commands that are about a row which exists."""
