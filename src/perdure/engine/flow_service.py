"""Puts blocked tasks back into their lanes where no batch does it by itself, and keeps the limits in memory.

Looked at are subjects on which a batch has just blocked tasks (a slot may have become free while it counted), those
whose rate allows the next start, all when limits have changed, and, once a second, whatever is blocked: so nothing
waits for ever, whatever was missed. A second is also the longest time until a change that another server made holds
here. Without limits, and with nothing blocked, this costs one short read a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from perdure.core import commands as c
from perdure.core.limit_rules import LimitName
from perdure.core.model import SECOND, Task
from perdure.core.rounds import Rounds
from perdure.engine.alarms import Apply
from perdure.engine.flow import PULL, Flow, Known
from perdure.engine.gather import MAX_ROWS, Item
from perdure.store.base import Store

LOOK = 1.0  #: seconds between looks at whether limits have changed, and at what is blocked
SOON = 0.05  #: seconds after which the limits of tasks that were just blocked are looked at once more
SWEEP = 60.0  #: seconds between looks for buckets that are full
MOST = 1_000  #: subjects that one look finds; the next one goes on behind them
_STEP = 50  #: tasks to claim at least in a lane whose first ones were refused
_NEVER = (-1, -1)
_BUCKETS = 1_000  #: buckets that are deleted at once


class FlowService:
    """The service. `heat` is called with lanes in which a limit is free again."""

    name = "flow"

    def __init__(
        self,
        store: Store,
        rounds: Rounds,
        apply: Apply,
        heat: Callable[[Iterable[str]], None],
        nudge: Callable[[], None],
    ) -> None:
        self.known = Known(rounds)
        self._store = store
        self._apply = apply
        self._heat = heat
        self._nudge = nudge
        self._version = _NEVER
        self._taken_over = 0  #: batches of this server that changed limits
        self._due: dict[str, float] = {}  #: by subject: when to look at it, on the loop's clock
        self._denied: dict[LimitName, set[str]] = {}  #: lanes that want a limit which another batch held
        self._look_at = 0.0
        self._sweep_at = 0.0
        self._after = ""  #: where the next look at what is blocked goes on
        self._search = True  #: something may be blocked

    @property
    def loaded(self) -> bool:
        """Whether the limits were read at all."""
        return self._version != _NEVER

    def is_limited(self, task: Task) -> bool:
        """Whether the end of its lease has to be looked at: it frees something, or a breaker counts it."""
        return any(True for _ in self.known.limits.of(task.namespace, task.queue, task.type, task.concurrency_key))

    def lanes_freed(self, items: Sequence[Item], lanes: Iterable[str]) -> set[str]:
        """Those of `lanes` in which these commands may make room: polls that wait there get it in the same batch."""
        limits = self.known.limits
        if not limits or all(not isinstance(i.command, c.Complete) or i.command.lease.job for i in items):
            return set()
        return {lane for lane in lanes if limits.touch(lane)}

    def note(self, flow: Flow) -> None:
        """A batch is committed."""
        if flow.changes:
            self._take_over(flow)
        flow.breakers.report()
        self.known.leave(flow.breakers.uncounted)
        if not flow.used:
            return
        now = asyncio.get_running_loop().time()
        for lane, count in flow.looked_at.items():
            if lane in flow.blocked:
                self.known.steps[lane] = min(MAX_ROWS, max(_STEP, 2 * count))
            else:
                self.known.steps.pop(lane, None)
        self.known.suspects -= flow.exhausted
        blocked = {subject for subjects in flow.blocked.values() for subject in subjects}
        self.known.suspects |= blocked
        self._search = self._search or bool(blocked)
        soonest = min(self._due.values(), default=now + LOOK)
        for subject in blocked | flow.missed:
            self._due.setdefault(subject, now + SOON)
        for subject, at in flow.wake.items():
            seconds = max(0.0, (at - self._store.now()) / SECOND)
            self._due[subject] = min(self._due.get(subject, now + seconds), now + seconds)
        if min(self._due.values(), default=now + LOOK) < soonest:
            self._nudge()
        for name, lanes in flow.denied.items():
            self._denied.setdefault(name, set()).update(lanes)
        if free := [name for name in flow.held if name in self._denied]:
            self._heat({lane for name in free for lane in self._denied.pop(name)})

    def _take_over(self, flow: Flow) -> None:
        """A batch of this server has changed limits."""
        self._taken_over += 1
        rows = dict(self.known.rows)
        for name, limit in flow.changes.items():
            if limit is None:
                rows.pop(name, None)
            else:
                rows[name] = limit
        self.known.learn(rows)
        self._search_now()

    def _search_now(self) -> None:
        self._search, self._look_at, self._after = True, 0.0, ""
        self._nudge()

    async def run_once(self) -> float:
        loop = asyncio.get_running_loop()
        if loop.time() >= self._look_at:
            self._look_at = loop.time() + LOOK
            await self._look()
        now = loop.time()
        due = sorted(subject for subject, at in self._due.items() if at <= now)[:PULL]
        for subject in due:
            del self._due[subject]
        if due:
            (outcome,) = await self._apply([c.Pull(subjects=due)])
            if isinstance(outcome, c.Did) and outcome.count >= PULL:
                self._due.update(dict.fromkeys(due, now))
        if loop.time() >= self._sweep_at:
            self._sweep_at = loop.time() + SWEEP
            await self.sweep()
        return max(0.0, min([self._look_at, *self._due.values()]) - loop.time())

    async def sweep(self) -> None:
        """Delete some buckets that are full."""
        if any(limit.rate is not None for limit in self.known.rows.values()):
            async with self._store.batch() as batch:
                await batch.trim_buckets(_BUCKETS)

    async def load(self) -> None:
        """Learn the limits, if they have changed."""
        version = await self._store.limits_version()
        if version != self._version:
            before = self._taken_over
            found = await self._store.limits()
            if self._taken_over != before:  # what was found may be older than what this server has just committed
                return
            self.known.learn({limit.id: limit for limit in found})
            self._version = version
            self._search_now()

    async def _look(self) -> None:
        await self.load()
        if not self._search:
            return
        subjects = await self._store.blocked_subjects(self._after, MOST)
        self._after = subjects[-1] if len(subjects) == MOST else ""
        if not subjects and not self.known.limits:
            self._search = False
        now = asyncio.get_running_loop().time()
        self.known.suspects.update(subjects)
        self._due.update(dict.fromkeys(subjects, now))
