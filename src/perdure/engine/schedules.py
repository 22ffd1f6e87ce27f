"""What a batch does about schedules.

    resolve    names to rows: a new schedule takes its key, before any row is locked; the others are looked up
    due        what alarms are about, behind the locks: what of earlier firings still runs, and what is to be started
    reserve    keys for all of that: of the firings, and of the workflow ids
    decide     commands about schedules that are there; `create` those that are new; `ring` the alarms

One command about a schedule in a batch, and no alarm beside it: what is to be started is fixed when its keys are
reserved, and nothing may change it between then and the decision.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any

from perdure.core import commands as c
from perdure.core import decide, keys, runs, schedules
from perdure.core.errors import Conflict, NotFound
from perdure.core.ids import Mint
from perdure.core.model import Key, Payloads, Task
from perdure.core.rounds import Rounds
from perdure.core.schedule import Ran
from perdure.core.schedules import Firings
from perdure.core.states import Kind, is_closed
from perdure.core.turn_effects import key_of as workflow_key
from perdure.engine.gather import Item
from perdure.engine.ledger import Ledger
from perdure.engine.relatives import Relatives
from perdure.store.base import Batch as Rows
from perdure.store.base import KeyName, Store

Items = list[tuple[Item, Any]]


class Schedules:
    """For one batch. `targets` are the rows that commands are about; `store` is for reading results beside the
    batch."""

    def __init__(
        self,
        ledger: Ledger,
        relatives: Relatives,
        targets: MutableMapping[Item, bytes],
        store: Store,
        mint: Mint,
        rounds: Rounds,
    ) -> None:
        self.answers: list[tuple[Item, c.Outcome]] = []  #: to commands that end here
        self._ledger = ledger
        self._relatives = relatives
        self._targets = targets
        self._store = store
        self._mint = mint
        self._rounds = rounds
        self._deferred: list[Item] = []
        self._new: Items = []  #: those that make schedules
        self._named: set[bytes] = set()  #: rows that commands of this batch are about
        self._firings: dict[bytes, Firings] = {}  #: by row
        self._faults: dict[bytes, Exception] = {}  #: by row: why it cannot be decided upon
        self._owners: dict[KeyName, bytes] = {}  #: what each key of a firing stands for
        self._holders: dict[Ran, bytes] = {}  #: the last run of a workflow that a schedule started
        self._results: dict[bytes, Payloads] = {}

    @property
    def lanes(self) -> set[str]:
        """In which firings of this batch make something ready."""
        return {firings.lane for firings in self._firings.values() if firings.starts}

    # ------------------------------------------------------------------------------------------------- before locks
    async def resolve(self, rows: Rows, work: Mapping[type, Items]) -> Items:
        """Commands whose row is known, one a row."""
        puts = await self._put(rows, work.get(c.PutSchedule, []))
        changes = [pair for kind in _CHANGES for pair in work.get(kind, ())]
        names = {item: schedules.key_of(change.namespace, change.schedule_id) for item, change in changes}
        holders = await rows.read_keys(sorted(set(names.values()))) if names else {}
        for item, change in changes:
            if (holder := holders.get(names[item])) is None:
                self.answers.append((item, _unknown(change.schedule_id)))
            else:
                puts[item] = holder.task_id
        found: Items = []
        for item, row_id in puts.items():
            if row_id in self._named:
                self._deferred.append(item)
                continue
            self._named.add(row_id)
            self._targets[item] = row_id
            found.append((item, item.command))
        return found

    async def _put(self, rows: Rows, puts: Items) -> dict[Item, bytes]:
        """Those that are about a schedule which exists."""
        first: dict[KeyName, tuple[Item, c.PutSchedule]] = {}
        for item, put in puts:
            if first.setdefault(schedules.key_of(put.namespace, put.schedule_id), (item, put))[0] is not item:
                self._deferred.append(item)
        if not first:
            return {}
        reserved = await rows.reserve_keys([schedules.reservation(put) for _, put in first.values()])
        lost = [name for name in sorted(first) if name not in reserved]
        holders = await rows.read_keys(lost) if lost else {}
        traces = await rows.trace([key.task_id for key in holders.values()]) if holders else {}
        self._new = [pair for name, pair in first.items() if name in reserved]
        onto: dict[Item, bytes] = {}
        for name in lost:
            item, put = first[name]
            holder = holders.get(name)
            if holder is None:
                self._deferred.append(item)
            elif holder.task_id not in traces:  # it was deleted
                again = await rows.replace_key(holder, schedules.reservation(put))
                self._new.append((item, put)) if again else self._deferred.append(item)
            elif holder.digest == put.digest:
                self.answers.append((item, c.Scheduled(holder.task_id, "unchanged")))
            elif put.replace:
                onto[item] = holder.task_id
            else:
                text = f"there is a schedule {put.schedule_id!r}, and it is another one"
                self.answers.append((item, Conflict(text, field="schedule_id")))
        return onto

    # ------------------------------------------------------------------------------------------------- behind locks
    async def due(self, rows: Rows, tasks: list[Task]) -> list[Task]:
        """Of rows whose alarms ring those that can be served now."""
        mine = {task.id: task for task in tasks if task.kind is Kind.SCHEDULE}
        if not mine:
            return tasks
        later = mine.keys() & self._named
        due: dict[bytes, Firings] = {}
        for row_id, task in mine.items():
            if row_id not in later:
                with self._aside(row_id):
                    due[row_id] = Firings(task, rows.now, self._mint)
        self._firings.update(due)
        seen = await self._look(rows, [ran for firings in due.values() for ran in firings.watched])
        for row_id, firings in due.items():
            with self._aside(row_id):
                firings.ring(seen)
        previous = {row_id: {self._holders[ran] for ran in firings.cancels} for row_id, firings in due.items()}
        wanted: set[bytes] = set().union(*previous.values())
        held = await self._relatives.lock(rows, wanted) if wanted else set()
        later |= {row_id for row_id, ids in previous.items() if not held.isdisjoint(ids)}
        for row_id in later | self._faults.keys():
            self._firings.pop(row_id, None)
        return [task for task in tasks if task.id not in later]

    @contextmanager
    def _aside(self, row_id: bytes) -> Iterator[None]:
        """What a row cannot be decided upon for is met again by `ring`, where that row steps aside and no other."""
        try:
            yield
        except Exception as fault:  # noqa: BLE001 - raised in `ring`
            self._faults[row_id] = fault

    async def _look(self, rows: Rows, watched: list[Ran]) -> dict[Ran, Task | None]:
        """What has become of what was started; of workflows, of the last run of the id."""
        if not watched:
            return {}
        names = {ran: workflow_key(namespace, ran.workflow_id) for namespace, ran in self._of_workflows()}
        keys_ = await rows.read_keys(sorted(set(names.values()))) if names else {}
        for ran in watched:
            key = keys_.get(names[ran]) if ran in names else None
            self._holders[ran] = ran.task_id if key is None else key.task_id
        traces = await rows.trace(sorted(set(self._holders.values())))
        return {ran: traces.get(self._holders[ran]) for ran in watched}

    def _of_workflows(self) -> Iterable[tuple[str, Ran]]:
        for firings in self._firings.values():
            for ran in firings.watched:
                if ran.workflow_id:
                    yield firings.row.namespace, ran

    async def reserve(self, rows: Rows, named: Items, starting: Container[bytes | None]) -> None:
        """Keys for all that is to be started. `starting` are runs that this batch makes otherwise."""
        for item, command in named:
            row = self._ledger.rows.get(self._targets.get(item, b""))
            if isinstance(command, c.TriggerSchedule) and row is not None:
                firings = self._firings[row.id] = Firings(row, rows.now, self._mint)
                firings.trigger(command)
        wanted: dict[KeyName, Key] = {}
        for firings in self._firings.values():
            for start in firings.starts:
                for key in firings.keys(start):
                    wanted.setdefault(key.name, key)
        if not wanted:
            return
        self._owners = {name: key.task_id for name, key in wanted.items()}
        reserved = await rows.reserve_keys([wanted[name] for name in sorted(wanted)])
        if lost := [wanted[name] for name in sorted(wanted) if name not in reserved]:
            await self._look_at(rows, lost, starting)
        await self._read_results()

    async def _look_at(self, rows: Rows, lost: list[Key], starting: Container[bytes | None]) -> None:
        """Keys that others hold. One whose task never came to be, or is not kept any more, can be had."""
        holders = await rows.read_keys([key.name for key in lost])
        traces = await rows.trace([holder.task_id for holder in holders.values()])
        for key in lost:
            holder = holders.get(key.name)
            if holder is None or holder.task_id == key.task_id:
                continue
            last = traces.get(holder.task_id)
            over = last is None or (
                key.kind == "firing" and keys.has_expired(holder, rows.now) and is_closed(last.state)
            )
            if holder.task_id in starting or not over or not await rows.replace_key(holder, key):
                self._owners[key.name] = holder.task_id

    async def _read_results(self) -> None:
        """Those of the last workflows that completed: closed rows, which do not change any more."""
        ids = {
            ran.task_id
            for firings in self._firings.values()
            if firings.starts and (ran := firings.schedule.standing.completed) is not None
        }
        found = await self._store.read(sorted(ids)) if ids else {}
        self._results = {task_id: runs.payloads(task.result) for task_id, task in found.items()}

    # --------------------------------------------------------------------------------------------------- decisions
    def decide(self, item: Item, command: c.ScheduleCommand, now: int) -> c.Outcome | None:
        """None: the schedule was deleted meanwhile, and is to be made anew."""
        row = self._ledger.rows.get(self._targets[item])
        if row is None:
            if isinstance(command, c.PutSchedule):
                return None
            raise _unknown(command.schedule_id)
        match command:
            case c.TriggerSchedule():
                firings = self._firings[row.id]
                self._fire(firings, now)
                return c.Scheduled(row.id, "triggered", firings.schedule.standing.recent[0])
            case c.DeleteSchedule():
                self._ledger.apply(schedules.delete(row, now))
                return c.Scheduled(row.id, "deleted")
            case c.PutSchedule():
                effects = schedules.replace(row, command, now)
            case c.UpdateSchedule():
                effects = schedules.update(row, command, now)
            case c.PauseSchedule():
                effects = schedules.pause(row, command, now)
            case c.BackfillSchedule():
                effects = schedules.backfill(row, command, now)
        self._ledger.apply(effects)
        return c.Scheduled(row.id, "updated")

    def create(self, now: int) -> list[Item]:
        """The new ones. Gives the commands that are for the next batch."""
        for item, put in self._new:
            self._ledger.apply(schedules.create(put, now))
            self.answers.append((item, c.Scheduled(put.task_id, "created")))
        return self._deferred

    def ring(self, task: Task, now: int) -> None:
        """The alarm of a schedule."""
        if task.id in self._faults:
            raise self._faults[task.id]
        firings = self._firings[task.id]
        self._fire(firings, now)
        for ran in firings.cancels:
            previous = self._ledger.rows.get(self._holders[ran])
            if previous is not None and not is_closed(previous.state):
                self._ask_to_end(previous, now)

    def _ask_to_end(self, task: Task, now: int) -> None:
        command = c.Cancel(namespace=task.namespace, task_id=task.id, reason="its schedule fires again")
        if task.kind is Kind.WORKFLOW:
            self._relatives.cancel(task, command, now)
        else:
            self._relatives.apply(decide.cancel(task, command, now), now)
        after = self._ledger.rows[task.id]
        if not is_closed(after.state):
            self._relatives.canceled.append(after)

    def _fire(self, firings: Firings, now: int) -> None:
        completed = firings.schedule.standing.completed
        last_result = () if completed is None else self._results.get(completed.task_id, ())
        self._relatives.apply(firings.settle(self._taken(firings), last_result, self._rounds), now)

    def _taken(self, firings: Firings) -> dict[bytes, bytes | None]:
        """See Firings.settle. A start may also meet another one of its own batch."""
        taken: dict[bytes, bytes | None] = {}
        for start in firings.starts:
            for key in reversed(firings.keys(start)):
                if self._owners[key.name] != start.task_id:
                    taken[start.task_id] = self._owners[key.name] if key.kind == "firing" else None
        return taken


_CHANGES = (c.UpdateSchedule, c.PauseSchedule, c.TriggerSchedule, c.BackfillSchedule, c.DeleteSchedule)


def _unknown(schedule_id: str) -> NotFound:
    return NotFound(f"there is no schedule {schedule_id!r}", field="schedule_id")
