"""What a batch does by itself and not because somebody asked: alarms that ring, leases of worker processes that are
gone, and retention. First the rows are locked, later they are decided upon, one after another."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from perdure.core import bulk, decide, ids
from perdure.core import commands as c
from perdure.core.ids import Mint
from perdure.core.model import SECOND, Task
from perdure.core.rounds import Rounds
from perdure.core.states import Kind
from perdure.engine import pulse, sessions
from perdure.engine.gather import Item
from perdure.engine.ledger import Ledger
from perdure.engine.relatives import Relatives
from perdure.engine.workflows import Workflows
from perdure.store.base import Batch as Rows

log = logging.getLogger("perdure.engine")

KEY_EXTENSION = 3600 * SECOND  #: how much longer an expired key lives whose task is still open
HOLD_UNKNOWN = SECOND  #: microseconds that lease expiry waits while another server has the pulse


class Chores:
    """Those of one batch. `due` are the rows that each is about."""

    def __init__(self, ledger: Ledger, relatives: Relatives, workflows: Workflows, mint: Mint, rounds: Rounds) -> None:
        self.answers: list[tuple[Item, c.Outcome]] = []
        self.due: list[tuple[Item, list[Task]]] = []
        self.begun: list[Task] = []  #: actions on many jobs whose alarm rang here
        self._hold_until = 0  #: no lease expires before
        self._ledger = ledger
        self._relatives = relatives
        self._workflows = workflows
        self._mint = mint
        self._rounds = rounds

    async def read(self, rows: Rows, chores: list[tuple[Item, Any]]) -> None:
        """Lock the rows."""
        for item, command in chores:
            match command:
                case c.Ring(limit=limit, after=after):
                    self._hold_until = await self._take_pulse(rows)
                    self.due.append((item, await rows.due(limit, after)))
                case c.Reap(limit=limit):
                    self.due.append((item, await sessions.reap(rows, limit)))
                case c.Trim(closed_before=before, limit=limit):
                    count = max(await rows.trim_closed(before, limit), await rows.trim_keys(limit, KEY_EXTENSION))
                    self.answers.append((item, c.Did(count)))
                case c.TrimOutbox(events_before=events, streams_before=streams, limit=limit):
                    count = max(await rows.trim_events(events, limit), await rows.trim_streams(streams, limit))
                    self.answers.append((item, c.Did(count)))
                case c.Erase(task_ids=task_ids):
                    self.answers.append((item, c.Did(await rows.delete_closed(task_ids))))
        for _, tasks in self.due:
            self._ledger.load(tasks)

    async def _take_pulse(self, rows: Rows) -> int:
        """Until when no lease may expire."""
        taken = await pulse.take(rows)
        return rows.now + HOLD_UNKNOWN if taken is None else taken.hold_until

    @property
    def rows(self) -> list[Task]:
        """All of them."""
        return [task for _, tasks in self.due for task in tasks]

    async def keep(self, select: Callable[[list[Task]], Awaitable[list[Task]]]) -> None:
        """Only those rows of each chore that `select` gives back; the others come again."""
        self.due = [(item, await select(tasks)) for item, tasks in self.due]

    def drop(self, held: set[bytes]) -> None:
        """These cannot be decided upon yet; they come again."""
        self.due = [(item, [t for t in tasks if t.id not in held]) for item, tasks in self.due]

    def decide(self, now: int) -> None:
        for item, tasks in self.due:
            decision = self._ring if isinstance(item.command, c.Ring) else self._abandon
            for task in tasks:
                current = self._ledger.rows[task.id]
                if current is task or task.kind is Kind.GROUP:  # else another command of this batch was about it
                    guard(self._ledger, decision, current, now)
            self.answers.append((item, c.Did(len(tasks))))

    def _ring(self, task: Task, now: int) -> None:
        if task.kind in (Kind.JOB, Kind.ACTIVITY):
            effects = decide.ring(task, now, self._mint, self._rounds, self._hold_until)
            self._relatives.apply(effects, now)
        elif task.kind is Kind.BULK:
            begun = bulk.begin(task, now)
            self._ledger.apply([begun])
            self.begun.append(begun.task)
        else:
            self._workflows.ring(task, now, self._hold_until)

    def _abandon(self, task: Task, now: int) -> None:
        reason = "its process or its connection ended"
        if task.kind == Kind.WORKFLOW:
            self._workflows.lose(task, reason, now)
        else:
            self._relatives.apply(decide.abandon(task, reason, now, self._mint, self._rounds), now)


def guard(ledger: Ledger, decision: Callable[[Task, int], Any], task: Task, now: int) -> None:
    """One row that cannot be decided upon (written by another version, say) must not hold up all others."""
    try:
        decision(task, now)
    except Exception:  # a bug, or a row that cannot be read
        name = ids.text(task.id)
        log.exception("task %s cannot be handled; it is looked at again in a minute", name, extra={"task_id": name})
        ledger.apply(decide.postpone(task, now))
