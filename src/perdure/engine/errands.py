"""Rows whose alarm is due at once: messages from one run to another, and sweeps of runs that have closed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from perdure.core import decide, runs
from perdure.core.effects import Change, Effect
from perdure.core.errands import Errand, arrive, errand_of
from perdure.core.ids import Mint
from perdure.core.model import SECOND, Task
from perdure.core.policy import wake_at
from perdure.core.rounds import Rounds
from perdure.core.states import Cause, Kind, is_closed
from perdure.core.turn_effects import key_of
from perdure.engine.ledger import Ledger
from perdure.store.base import Batch as Rows

SWEPT = 200  #: children that a closed run closes at a time
SWEEP_PAUSE = SECOND // 50  #: microseconds between two such times

Apply = Callable[[Iterable[Effect], int], None]


class Errands:
    """Those of one batch. `lock` gives the ids of rows that are held elsewhere."""

    def __init__(
        self,
        ledger: Ledger,
        apply: Apply,
        lock: Callable[[Rows, set[bytes]], Awaitable[set[bytes]]],
        mint: Mint,
        rounds: Rounds,
    ) -> None:
        self._ledger = ledger
        self._apply = apply
        self._lock = lock
        self._mint = mint
        self._rounds = rounds
        self._messages: dict[bytes, Errand] = {}
        self._targets: dict[bytes, bytes] = {}
        self._sweeps: dict[bytes, list[Task]] = {}

    async def read(self, rows: Rows, due: list[Task]) -> list[Task]:
        """Of due rows those that can be served now: messages whose target is not held elsewhere, and all others."""
        for sweep in (task for task in due if task.kind == Kind.SWEEP):
            assert sweep.parent_run_id is not None
            found = await rows.children(sweep.parent_run_id, SWEPT, sweep.checkpoint or b"")
            self._ledger.load(found)
            self._sweeps[sweep.id] = [self._ledger.rows[child.id] for child in found]
        messages = [task for task in due if task.kind == Kind.MESSAGE]
        if not messages:
            return due
        for task in messages:
            self._messages[task.id] = errand_of(task)
        names = {
            task.id: key_of(task.namespace, self._messages[task.id].workflow_id)
            for task in messages
            if not self._messages[task.id].run_id
        }
        holders = await rows.read_keys(sorted(set(names.values()))) if names else {}
        for task in messages:
            holder = holders.get(names[task.id]) if task.id in names else None
            target = holder.task_id if holder is not None else self._messages[task.id].run_id
            if target:
                self._targets[task.id] = target
        held = await self._lock(rows, set(self._targets.values()))
        return [task for task in due if self._targets.get(task.id) not in held]

    def deliver(self, task: Task, now: int) -> None:
        """A message arrives, or cannot."""
        ledger = self._ledger
        target_id, parent_id = self._targets.get(task.id, b""), task.parent_run_id or b""
        target, run = ledger.rows.get(target_id), ledger.runs.get(target_id)
        effects, news = arrive(
            self._messages[task.id], task, ledger.runs.get(parent_id), target, run, now, self._mint, self._rounds
        )
        self._apply(effects, now)
        done, now = decide.own(task, now)
        self._apply([decide.close(done, Cause.ANSWER, now)], now)
        parent, sender = ledger.rows.get(parent_id), ledger.runs.get(parent_id)
        if parent is not None and sender is not None and not is_closed(parent.state):
            self._apply(runs.post(parent, sender, [news], now, self._rounds), now)

    def sweep(self, task: Task, now: int) -> None:
        """Some children of a closed run; the row comes again while there is something to do."""
        children = self._sweeps[task.id]
        changed = False
        for child in children:
            if child.kind != Kind.SWEEP and self._ledger.rows[child.id] is child:
                effects = runs.swept(child, self._ledger.runs.get(child.id), now, self._mint, self._rounds)
                changed = changed or bool(effects)
                self._apply(effects, now)
        task, now = decide.own(task, now)
        if not changed and len(children) < SWEPT:
            self._apply([decide.close(task, Cause.ANSWER, now)], now)
            return
        if not changed:
            task.checkpoint = children[-1].id  # all of these may go on
        task.ready_at = now + SWEEP_PAUSE
        task.wake_at = wake_at(task)
        self._apply([Change(task)], now)
