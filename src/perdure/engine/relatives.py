"""What hangs on the rows of a batch: parents are locked with children that may close, and hear of it when they do."""

from __future__ import annotations

from collections.abc import Iterable

from perdure.core import commands as c
from perdure.core import groups, runs
from perdure.core.effects import Change, Close, Delete, Effect, PassOn
from perdure.core.events import WorkflowExecutionCancelRequested
from perdure.core.ids import Mint
from perdure.core.model import Task
from perdure.core.rounds import Rounds
from perdure.core.states import Kind, is_closed
from perdure.engine.ledger import Ledger
from perdure.store.base import Batch as Rows
from perdure.store.base import KeyName


class Relatives:
    """Those of one batch. What decides about runs, groups, errands and schedules shares it, and it knows none of
    them."""

    def __init__(self, ledger: Ledger, mint: Mint, rounds: Rounds) -> None:
        self.canceled: list[Task] = []  #: at work, and not wanted any more
        self.passed_on: dict[KeyName, bytes] = {}  #: workflow ids that this batch gives to another run: to which
        self._ledger = ledger
        self._mint = mint
        self._rounds = rounds
        self._looked_for: set[bytes] = set()  #: rows that are in the ledger if they are open

    async def lock(self, rows: Rows, ids: set[bytes]) -> set[bytes]:
        """Lock rows that the batch does not have yet; which of them are open, but held elsewhere."""
        self._looked_for |= ids
        missing = sorted(ids - self._ledger.rows.keys())
        if not missing:
            return set()
        self._ledger.load((await rows.lock(missing)).values())
        absent = [i for i in missing if i not in self._ledger.rows]
        traces = await rows.trace(absent) if absent else {}
        return {i for i, task in traces.items() if not is_closed(task.state)}

    async def lock_parents(self, rows: Rows, tasks: Iterable[Task]) -> set[bytes]:
        """Of these rows the ids of those whose parent is held elsewhere. The run of a group is left alone as long as it
        hears nothing."""
        children = {
            task.id: task.parent_run_id
            for task in tasks
            if task.parent_run_id is not None and (task.kind is not Kind.GROUP or groups.needs_run(task))
        }
        held = await self.lock(rows, set(children.values()))
        return {task_id for task_id, parent in children.items() if parent in held}

    def apply(self, effects: Iterable[Effect], now: int) -> None:
        """Write these down; and what the parents of children that close by them hear."""
        effects = list(effects)
        self._ledger.apply(effects)
        for effect in effects:
            if isinstance(effect, Change) and effect.task.kind == Kind.ACTIVITY and effect.task.cancel_deadline:
                self.canceled.append(effect.task)
            elif isinstance(effect, PassOn):
                self.passed_on[effect.old.name] = effect.new.task_id
            elif isinstance(effect, Delete) or (isinstance(effect, Close) and not effect.continued):
                self._tell_parent(effect.task, now)

    def _tell_parent(self, child: Task, now: int) -> None:
        if child.parent_run_id is None:
            return
        ledger = self._ledger
        parent, run = ledger.rows.get(child.parent_run_id), ledger.runs.get(child.parent_run_id)
        if parent is None and child.parent_run_id not in self._looked_for:
            raise AssertionError("nobody looked for the parent of a row that closes: it would wait for ever")
        if parent is None or is_closed(parent.state):
            return
        if parent.kind is Kind.GROUP:
            ledger.apply(groups.ended(parent, child, now))
        elif run is not None:
            ledger.apply(runs.ended(parent, run, child, ledger.runs.get(child.id), now, self._rounds))

    def cancel(self, task: Task, command: c.Cancel, now: int) -> None:
        """Ask an open run to cancel, by its task's id."""
        request = WorkflowExecutionCancelRequested(cause=command.reason)
        self.apply(runs.cancel(task, self._ledger.runs[task.id], request, now, self._mint, self._rounds), now)
