"""Starts of workflow runs: who may have the workflow id (RPLY-08, SIG-06).

The key of a workflow id is held by its current run, the open one or the last. Its digest is the request that started
it, so a start that is sent twice is one.
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
    """Asks the database. `onto` are starts that concern an open run: they signal it, or take its place."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self.answers: list[tuple[Item, c.Outcome]] = []
        self.deferred: list[Item] = []
        self.onto: dict[Item, bytes] = {}

    async def free(self, starts: Items) -> Items:
        """Those that get their id."""
        first: dict[KeyName, tuple[Item, c.Enqueue]] = {}
        for item, command in starts:
            if first.setdefault(keys.name(command), (item, command))[0] is not item:
                self.deferred.append(item)  # another start of this id is in the same batch
        now = self._rows.now
        reserved = await self._rows.reserve_keys([keys.reservation(command, now) for _, command in first.values()])
        lost = [name for name in sorted(first) if name not in reserved]
        holders = await self._rows.read_keys(lost) if lost else {}
        traces = await self._rows.trace([key.task_id for key in holders.values()]) if holders else {}
        free = [pair for name, pair in first.items() if name in reserved]
        for name in lost:
            item, command = first[name]
            holder = holders.get(name)
            if holder is None:
                self.deferred.append(item)
            elif await self._take_over(item, command, holder, traces.get(holder.task_id)):
                free.append((item, command))
        return free

    async def _take_over(self, item: Item, command: c.Enqueue, holder: Key, last: Task | None) -> bool:
        """Whether the id, which some run has, is this one's now."""
        start = command.start
        assert start is not None
        if holder.task_id == command.task_id or (command.digest and holder.digest == command.digest):
            self.answers.append((item, c.Started(holder.task_id)))
            return False
        if last is not None and not is_closed(last.state):
            self._conflict(item, command, start, holder)
            return False
        if not runs.may_follow(last, start.id_reuse):
            text = f"workflow {command.key!r} ran before, and its id may not be used again"
            self.answers.append((item, WorkflowAlreadyStarted(text, field="workflow_id", limit=start.id_reuse)))
            return False
        if await self._rows.replace_key(holder, keys.reservation(command, self._rows.now)):
            return True
        self.deferred.append(item)
        return False

    def _conflict(self, item: Item, command: c.Enqueue, start: c.Start, holder: Key) -> None:
        """The id belongs to an open run."""
        if start.id_conflict == "terminate_existing" or (start.id_conflict == "use_existing" and start.signal):
            self.onto[item] = holder.task_id
        elif start.id_conflict == "use_existing":
            self.answers.append((item, c.Started(holder.task_id, started=False)))
        else:
            text = f"a run of workflow {command.key!r} is open"
            self.answers.append((item, WorkflowAlreadyStarted(text, field="workflow_id")))
