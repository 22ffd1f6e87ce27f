"""Starts of workflow runs: who may have the workflow id (RPLY-08, SIG-06).

The key of a workflow id is held by its current run, the open one or the last. Its digest is the request that started
it, so a start that is sent twice is one. Of several starts of an id in one batch the first that may have it gets it,
and the others find an open run.
"""

from __future__ import annotations

from typing import Any

from perdure.core import commands as c
from perdure.core import keys, runs
from perdure.core.errors import WorkflowAlreadyStarted
from perdure.core.model import Key, Task
from perdure.core.states import is_closed
from perdure.engine.gather import Item
from perdure.store.base import Batch as Rows
from perdure.store.base import KeyName

Items = list[tuple[Item, Any]]


class Starts:
    """Those of one batch, and what became of them beside the runs that it makes."""

    def __init__(self) -> None:
        self.answers: list[tuple[Item, c.Outcome]] = []
        self.deferred: list[Item] = []
        self.onto: Items = []  #: they tell an open run something, or take its place
        self.joining: Items = []  #: they tell something to a run which this same batch makes
        self.updating: Items = []  #: they make a run that begins with an update
        self.targets: dict[Item, bytes] = {}  #: the runs that all these are about

    async def free(self, rows: Rows, starts: Items) -> Items:
        """Those that get their id."""
        wanted: dict[KeyName, Items] = {}
        for item, command in starts:
            wanted.setdefault(keys.name(command), []).append((item, command))
        reserved = await rows.reserve_keys([keys.reservation(group[0][1], rows.now) for group in wanted.values()])
        lost = [name for name in sorted(wanted) if name not in reserved]
        holders = await rows.read_keys(lost) if lost else {}
        traces = await rows.trace([key.task_id for key in holders.values()]) if holders else {}
        free = [wanted[name][0] for name in wanted if name in reserved]
        for name in lost:
            holder = holders.get(name)
            if holder is None:
                self.deferred.extend(item for item, _ in wanted.pop(name))
                continue
            last = traces.get(holder.task_id)
            while wanted[name] and not await self._take_over(rows, *wanted[name][0], holder, last):
                wanted[name].pop(0)
            free += wanted[name][:1]
        for group in wanted.values():
            for item, command in group[1:]:
                self._follow(item, command, group[0][1])
        self.updating = [(item, command) for item, command in free if command.start.update is not None]
        self.targets.update((item, command.task_id) for item, command in self.updating)
        return free

    async def _take_over(self, rows: Rows, item: Item, command: c.Enqueue, holder: Key, last: Task | None) -> bool:
        """Whether the id, which some run has, is this one's now."""
        start = command.start
        assert start is not None
        if holder.task_id == command.task_id or (command.digest and holder.digest == command.digest):
            self.answers.append((item, c.Started(holder.task_id)))
            return False
        if last is not None and not is_closed(last.state):
            if start.id_conflict == "terminate_existing" or (start.id_conflict == "use_existing" and start.tells):
                self.onto.append((item, command))
                self.targets[item] = holder.task_id
            else:
                self._conflict(item, command, holder.task_id)
            return False
        if not runs.may_follow(last, start.id_reuse):
            text = f"workflow {command.key!r} ran before, and its id may not be used again"
            self.answers.append((item, WorkflowAlreadyStarted(text, field="workflow_id", limit=start.id_reuse)))
            return False
        if await rows.replace_key(holder, keys.reservation(command, rows.now)):
            return True
        self.deferred.append(item)
        return False

    def _follow(self, item: Item, command: c.Enqueue, first: c.Enqueue) -> None:
        """A start whose id `first` has got in this batch."""
        start, run_id = command.start, first.task_id
        assert start is not None
        assert run_id is not None
        if command.digest and command.digest == first.digest:
            self.answers.append((item, c.Started(run_id)))
        elif start.id_conflict == "terminate_existing":
            self.deferred.append(item)  # a row cannot be made and closed in one batch
        elif start.id_conflict == "use_existing" and start.tells:
            self.joining.append((item, command))
            self.targets[item] = run_id
        else:
            self._conflict(item, command, run_id)

    def _conflict(self, item: Item, command: c.Enqueue, holder: bytes) -> None:
        """The id belongs to an open run, to which this one has nothing to say."""
        assert command.start is not None
        if command.start.id_conflict == "use_existing":
            self.answers.append((item, c.Started(holder, started=False)))
        else:
            text = f"a run of workflow {command.key!r} is open"
            self.answers.append((item, WorkflowAlreadyStarted(text, field="workflow_id")))
