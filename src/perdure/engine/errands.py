"""Rows whose alarm is due at once: messages from one run to another, and sweeps of runs that have closed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from msgspec import MsgspecError

from perdure.core import decide, groups, runs
from perdure.core.effects import Change
from perdure.core.errands import Errand, arrive, errand_of
from perdure.core.ids import Mint
from perdure.core.model import SECOND, Task
from perdure.core.policy import wake_at
from perdure.core.rounds import Rounds
from perdure.core.states import Cause, Kind, is_closed
from perdure.core.turn_commands import CancelExternalWorkflow
from perdure.core.turn_effects import key_of
from perdure.engine.ledger import Ledger
from perdure.engine.relatives import Relatives
from perdure.store.base import Batch as Rows
from perdure.store.base import KeyName

SWEPT = 200  #: children that a closed run closes at a time
SWEEP_PAUSE = SECOND // 50  #: microseconds between two such times


class Errands:
    """Those of one batch."""

    def __init__(self, ledger: Ledger, relatives: Relatives, mint: Mint, rounds: Rounds) -> None:
        self._ledger = ledger
        self._relatives = relatives
        self._mint = mint
        self._rounds = rounds
        self._targets: dict[bytes, bytes] = {}
        self._names: dict[bytes, KeyName] = {}  #: by message: of those to a workflow id, whatever its run
        self._sweeps: dict[bytes, tuple[list[Task], bool]] = {}  #: children, and whether none was held elsewhere

    async def read(self, rows: Rows, due: list[Task]) -> list[Task]:
        """Of due rows those that can be served now: messages whose target is not held elsewhere, and all others."""
        for sweep in (task for task in due if task.kind == Kind.SWEEP):
            assert sweep.parent_run_id is not None
            found, whole = await rows.children(sweep.parent_run_id, SWEPT, sweep.checkpoint or b"")
            self._ledger.load(found)
            self._sweeps[sweep.id] = ([self._ledger.rows[child.id] for child in found], whole)
        messages = [task for task in due if task.kind == Kind.MESSAGE]
        later = await self._find_targets(rows, messages) if messages else set()
        return [task for task in due if task.id not in later]

    async def _find_targets(self, rows: Rows, due: list[Task]) -> set[bytes]:
        """Lock the targets of messages, and the parents of those that may close; the messages that must wait."""
        errands: dict[bytes, Errand] = {}
        for task in due:
            with suppress(MsgspecError):  # `deliver` meets it again, and the row steps aside
                errands[task.id] = errand_of(task)
        names = {task.id: key_of(task.namespace, errands[task.id].workflow_id) for task in due if task.id in errands}
        names = {message: name for message, name in names.items() if not errands[message].run_id}
        targets = {message: errand.run_id for message, errand in errands.items() if errand.run_id}
        targets |= await self._holders(rows, names)
        held = await self._relatives.lock(rows, set(targets.values()))
        locked = self._ledger.rows
        closed = {i: name for i, name in names.items() if i in targets and targets[i] not in locked.keys() | held}
        followed = {i for i, run_id in (await self._holders(rows, closed)).items() if run_id != targets[i]}
        asked = [i for i, errand in errands.items() if isinstance(errand, CancelExternalWorkflow)]
        parents = {i: locked[targets[i]].parent_run_id for i in asked if targets.get(i) in locked}
        held |= await self._relatives.lock(rows, {parent for parent in parents.values() if parent is not None})
        self._names.update(names)
        self._targets.update(targets)
        return followed | {i for i in errands if targets.get(i) in held or parents.get(i) in held}

    async def _holders(self, rows: Rows, names: Mapping[bytes, KeyName]) -> dict[bytes, bytes]:
        """The current runs of these workflow ids, by message."""
        holders = await rows.read_keys(sorted(set(names.values()))) if names else {}
        return {message: holders[name].task_id for message, name in names.items() if name in holders}

    def deliver(self, task: Task, now: int) -> None:
        """A message arrives, or cannot. Where the run of a workflow id closes in this very batch it stays due: there
        may be another one by then (B093)."""
        ledger = self._ledger
        target_id, parent_id = self._targets.get(task.id, b""), task.parent_run_id or b""
        target, run = ledger.rows.get(target_id), ledger.runs.get(target_id)
        if target is not None and is_closed(target.state) and task.id in self._names:
            return
        sender = ledger.runs.get(parent_id)
        effects, news = arrive(errand_of(task), task, sender, target, run, now, self._mint, self._rounds)
        self._relatives.apply(effects, now)
        done, now = decide.own(task, now)
        self._relatives.apply([decide.close(done, Cause.ANSWER, now)], now)
        parent, sender = ledger.rows.get(parent_id), ledger.runs.get(parent_id)
        if parent is not None and sender is not None and not is_closed(parent.state):
            self._relatives.apply(runs.post(parent, sender, [news], now, self._rounds), now)

    def sweep(self, task: Task, now: int) -> None:
        """Some children of a closed run; the row comes again while there is something to do."""
        children, whole = self._sweeps[task.id]
        for child in children:
            if self._ledger.rows[child.id] is not child:  # another command of this batch was about it
                whole = False
                continue
            if child.kind is Kind.GROUP:  # which then looks after its calls, and itself
                effects = groups.sweep(child, now)
            else:
                effects = runs.swept(child, self._ledger.runs.get(child.id), now, self._mint, self._rounds)
            whole = whole and not effects
            self._relatives.apply(effects, now)
        task, now = decide.own(task, now)
        if whole and len(children) < SWEPT:
            self._relatives.apply([decide.close(task, Cause.ANSWER, now)], now)
            return
        if whole:
            task.checkpoint = children[-1].id  # all of these may go on
        task.ready_at = now + SWEEP_PAUSE
        task.wake_at = wake_at(task)
        self._relatives.apply([Change(task)], now)
