"""Groups whose alarm is due: the next calls are inserted, the run is told, calls are stopped, the row is closed.

What a step needs is read before anything is decided, and a step is taken only if what was read is still what the group
has to do: commands of the same batch may have ended some of its calls. Else the alarm stays due and rings again.
"""

from __future__ import annotations

from perdure.core import groups, runs
from perdure.core.groups import Step
from perdure.core.ids import Mint
from perdure.core.model import Payloads, Task
from perdure.core.rounds import Rounds
from perdure.core.states import Kind, is_closed
from perdure.engine.ledger import Ledger
from perdure.engine.relatives import Relatives
from perdure.store.base import Batch as Rows
from perdure.store.base import Store

MOST = 2
"""Groups that one batch inserts or stops calls of."""
STOPPED = 200
"""Calls of a group that one batch stops."""


class Groups:
    """Those of one batch. `store` is for reading inputs, which do not change, beside the batch."""

    def __init__(self, ledger: Ledger, relatives: Relatives, store: Store, mint: Mint, rounds: Rounds) -> None:
        self._ledger = ledger
        self._relatives = relatives
        self._store = store
        self._mint = mint
        self._rounds = rounds
        self._steps: dict[bytes, Step] = {}  #: what was read for
        self._inputs: dict[bytes, tuple[int, list[Payloads]]] = {}  #: from which call on
        self._calls: dict[bytes, tuple[list[Task], bool]] = {}  #: and whether none was held elsewhere

    async def read(self, rows: Rows, due: list[Task]) -> list[Task]:
        """Of due rows those that can be served now: all but groups beyond the first few."""
        served: list[Task] = []
        steps = 0
        for task in due:
            if task.kind is Kind.GROUP:
                step = groups.step_of(groups.group_of(task))
                steps += step != Step.TELL
                if steps > MOST:
                    continue
                self._steps[task.id] = step
                await self._read(rows, task, step)
            served.append(task)
        return served

    async def _read(self, rows: Rows, task: Task, step: Step) -> None:
        group = groups.group_of(task)
        if step is Step.INSERT:
            [page] = (await self._store.histories({task.id: group.inserted}, 1))[task.id]
            self._inputs[task.id] = (group.inserted, groups.inputs_from(page, group))
        elif step in (Step.STOP, Step.CLOSE):
            found, whole = await rows.children(task.id, STOPPED, b"" if group.over else group.stopped)
            self._ledger.load(found)
            self._calls[task.id] = ([self._ledger.rows[call.id] for call in found], whole)

    def ring(self, task: Task, now: int) -> None:
        """The alarm of a group. `task` is what it is by now."""
        if is_closed(task.state):
            return
        group = groups.group_of(task)
        step = groups.step_of(group)
        if step is Step.REST:
            self._relatives.apply(groups.rest(task, now), now)
        elif step is not self._steps.get(task.id):
            return
        elif step is Step.TELL:
            self._tell(task, now)
        elif step is Step.INSERT:
            inserted, inputs = self._inputs[task.id]
            if inserted == group.inserted:
                self._relatives.apply(groups.insert(task, inputs, now, self._mint, self._rounds), now)
        else:
            self._stop(task, step, now)

    def _tell(self, task: Task, now: int) -> None:
        news = groups.news(task)
        self._relatives.apply(groups.told(task, now), now)
        run_id = task.parent_run_id or b""
        parent, run = self._ledger.rows.get(run_id), self._ledger.runs.get(run_id)
        if parent is not None and run is not None and not is_closed(parent.state):
            self._relatives.apply(runs.post(parent, run, [news], now, self._rounds), now)

    def _stop(self, task: Task, step: Step, now: int) -> None:
        calls, whole = self._calls[task.id]
        for call in calls:
            if self._ledger.rows[call.id] is call:  # else another command of this batch was about it
                self._relatives.apply(groups.stop(call, step, now), now)
            else:
                whole = False
        after = self._ledger.rows[task.id]
        self._relatives.apply(groups.stopped(after, calls, whole=whole, last=len(calls) < STOPPED, now=now), now)
