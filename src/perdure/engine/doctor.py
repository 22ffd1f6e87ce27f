"""Runs the standing checks (core/doctor.py): on demand, and once an hour on one of the servers. Everything is read in
bounded steps, with live work between them; nothing is changed."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from perdure.core import doctor, ids
from perdure.core.compensations import Owed
from perdure.core.doctor import EXAMPLES, IDLE, REPORT, Findings
from perdure.core.doctor_messages import DoctorReply, Finding
from perdure.core.model import SECOND, Key, Task
from perdure.core.owners import QueueOwner
from perdure.core.run import Run
from perdure.core.states import Kind, State
from perdure.store.base import Store

log = logging.getLogger("perdure.doctor")

WINDOW = 5_000  #: open rows that one statement looks at
MOST_ROWS = 1_000_000  #: that an examination looks at
MOST_RUNS = 500  #: runs whose children are counted
MOST_CHILDREN = 1_000  #: that are counted of a run
MOST = 10_000  #: entries of any other list
HOUR = 3_600 * SECOND
FIRST = (60.0, 180.0)
"""Seconds after its start, at random between these, in which a server looks whether it is to run the checks."""
SKEW = 5 * SECOND  #: that clocks may differ
LATE = 60 * SECOND  #: that an alarm, or the end of a session, may be late
SAFE = {
    "fsync": {"on"},
    "full_page_writes": {"on"},
    "synchronous_commit": {"on", "remote_write", "remote_apply", "local"},
    "journal_mode": {"wal", "memory"},
    "synchronous": {"2", "3"},
}
"""Values of the database's settings with which an answer means that it stays."""
_NOBODY = bytes(16)


def wall_clock() -> int:
    return time.time_ns() // 1000


class Doctor:
    """The service, and `examine` for who asks."""

    name = "doctor"

    def __init__(self, store: Store, wall: Callable[[], int] = wall_clock) -> None:
        self._store = store
        self._wall = wall
        self._next: float | None = None  #: when it looks again, on the loop's clock

    async def run_once(self) -> float:
        """Once an hour, on whichever server gets the key of that hour."""
        loop = asyncio.get_running_loop()
        if self._next is None:
            self._next = loop.time() + random.uniform(*FIRST)
        if (left := self._next - loop.time()) > 0:
            return left
        mine = await self._is_mine()
        self._next = loop.time() + HOUR / SECOND
        if mine:
            report = await self.examine()
            for found in report.findings:
                where = f"namespace {found.namespace}: " if found.namespace else ""
                log.warning("%s: %s%s. %s", found.check, where, found.detail, found.advice)
            log.info("the standing checks found %d things", len(report.findings))
        return HOUR / SECOND

    async def _is_mine(self) -> bool:
        now = self._store.now()
        key = Key("", "", "doctor", str(now // HOUR), _NOBODY, b"", now + HOUR)
        async with self._store.batch() as rows:
            return bool(await rows.reserve_keys([key]))

    async def examine(self) -> DoctorReply:
        """All checks, now."""
        found = Findings()
        now = self._store.now()
        whole = await self._rows(found, now)
        findings = found.all()
        others = (self._queues, self._failures, self._owing, self._sessions, self._alarms, self._clock, self._settings)
        for check in others:
            findings += await check(now)
        names = [name for name, *_ in doctor.ROW_CHECKS] + ["children", *_OTHERS]
        return DoctorReply(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=now), whole, names, findings)

    # -------------------------------------------------------------------------------------------------------- rows
    async def _rows(self, found: Findings, now: int) -> bool:
        """Look at open tasks; whether at all of them."""
        found.name(
            "children", "{count} of type {type} whose number of open children is not what their row says", REPORT
        )
        left = MOST_RUNS
        after = b""
        for _ in range(MOST_ROWS // WINDOW):
            tasks, last = await self._store.suspects(after, WINDOW, now - doctor.SILENT + 1)
            runs = await self._store.run_rows([task.id for task in tasks if task.kind is Kind.WORKFLOW])
            doubtful: list[tuple[str, Task]] = []
            for task in tasks:
                run = runs.get(task.id)
                if task.kind is Kind.WORKFLOW and run is None:
                    continue  # it has closed and was deleted since
                for name in doctor.looked(task, run, now):
                    if name in doctor.MUST_NOT:
                        doubtful.append((name, task))
                    else:
                        found.add(name, task)
                if left and run is not None and task.state is State.WAITING:
                    left -= 1
                    if await self._differs(run):
                        doubtful.append(("children", task))
            for name, task in doubtful:
                if await self._is_as_it_was(name, task):
                    found.add(name, task)
            if last is None:
                return True
            after = last
            await asyncio.sleep(0)
        return False

    async def _is_as_it_was(self, name: str, task: Task) -> bool:
        """Whether nothing has happened to a row since it was read, so that what was read after it belongs to it."""
        run = (await self._store.run_rows([task.id])).get(task.id)
        if name == "children" and (run is None or not await self._differs(run)):
            return False
        again = (await self._store.read([task.id])).get(task.id)
        return again is not None and again.updated_at == task.updated_at and again.state is task.state

    async def _differs(self, run: Run) -> bool:
        """Whether the row of a run says another number of open children than there are."""
        children, _ = await self._store.pending(run.id, MOST_CHILDREN)
        return len(children) != min(run.children, MOST_CHILDREN)

    # ------------------------------------------------------------------------------------------------------ others
    async def _queues(self, now: int) -> list[Finding]:
        polled = {
            (session.namespace, queue)
            for session in await self._store.every_session(MOST)
            if session.ends_at is None
            for queue in session.queues.split("\n")
        }
        owners = {(one.namespace, one.queue): one for one in await self._store.queue_owners()}
        most = max([MOST, *(one.alert_depth + 1 for one in owners.values())])
        ready: Counter[tuple[str, str]] = Counter()
        for lane in await self._store.count_lanes("", "\U0010ffff", most):
            namespace, queue, _ = lane.lane.split("\x1f")
            ready[namespace, queue] += lane.ready
        found = [_without_worker(*key, number, most) for key, number in ready.items() if number and key not in polled]
        found += [_too_deep(one, ready[key], most) for key, one in owners.items() if ready[key] > one.alert_depth]
        return found + _without_owner({*polled, *ready} - owners.keys())

    async def _failures(self, now: int) -> list[Finding]:
        old = await self._store.old_failures(now - IDLE, MOST)
        counts = Counter((namespace, type_) for namespace, type_, _ in old)
        return [
            Finding(
                check="unread_failures",
                detail=f"{count} dead letters of type {type_!r} that failed more than 7 days ago, and nobody retried",
                advice="See why with `perdure failures list`; then retry them (`perdure tasks retry --where ...`) or "
                "delete them. Retention will, and then nobody ever has read them.",
                count=count,
                namespace=namespace,
                examples=[ids.text(i) for where, which, i in old if (where, which) == (namespace, type_)][:EXAMPLES],
            )
            for (namespace, type_), count in counts.most_common()
        ]

    async def _owing(self, now: int) -> list[Finding]:
        found: defaultdict[tuple[str, str, int], list[bytes]] = defaultdict(list)
        for namespace, type_, run_id, what in await self._store.owing(MOST):
            found[namespace, type_, what].append(run_id)
        return [
            Finding(
                check="compensations",
                detail=f"{len(run_ids)} closed runs of type {type_!r} whose compensations {_OWING[Owed(what)]}",
                advice="Undo by hand what they did not, then note it with `perdure workflows resolve` "
                "(docs/workflow-operations.md).",
                count=len(run_ids),
                namespace=namespace,
                examples=[ids.text(run_id) for run_id in run_ids[:EXAMPLES]],
            )
            for (namespace, type_, what), run_ids in found.items()
        ]

    async def _sessions(self, now: int) -> list[Finding]:
        late = [s for s in await self._store.every_session(MOST) if s.ends_at is not None and s.ends_at < now - LATE]
        advice = "Any server ends the leases of processes that are gone: see that one runs, and that it can write."
        return [
            Finding(
                check="sessions",
                detail=f"worker {session.identity!r} is gone for more than a minute, and its leases were not ended",
                advice=advice,
                namespace=session.namespace,
            )
            for session in late
        ]

    async def _alarms(self, now: int) -> list[Finding]:
        first = await self._store.next_alarm()
        if first is None or first > now - LATE:
            return []
        return [
            Finding(
                check="alarms",
                detail=f"an alarm should have rung {(now - first) // SECOND} s ago",
                advice="Delays, retries, time-outs and schedules wait for it. Is a server running? If so its log says "
                "what holds it up.",
            )
        ]

    async def _clock(self, now: int) -> list[Finding]:
        ahead = self._store.now() - self._wall()
        if abs(ahead) < SKEW:
            return []
        return [
            Finding(
                check="clock",
                detail=f"the database's clock is {abs(ahead) / SECOND:.0f} s "
                f"{'ahead of' if ahead > 0 else 'behind'} this machine's",
                advice="Let both follow one time source (NTP). A row's time never goes back, so what a clock that was "
                "ahead has written waits until the others have caught up.",
            )
        ]

    async def _settings(self, now: int) -> list[Finding]:
        return [
            Finding(
                check="settings",
                detail=f"the database runs with {name} = {value}",
                advice="What was acknowledged can be lost when the machine fails: set it to "
                f"{sorted(SAFE[name])[0]} (docs/operations.md).",
            )
            for name, value in sorted((await self._store.settings()).items())
            if name in SAFE and value not in SAFE[name]
        ]


def _number(ready: int, most: int) -> str:
    return f"{ready}+" if ready >= most else str(ready)


def _without_worker(namespace: str, queue: str, ready: int, most: int) -> Finding:
    return Finding(
        check="no_worker",
        detail=f"{_number(ready, most)} tasks are ready on queue {queue!r}, and no worker polls it",
        advice=f"Start a worker for it (`perdure worker app.py --queue {queue}`), or find out who enqueues to a queue "
        "of this name.",
        count=ready,
        namespace=namespace,
    )


def _too_deep(owner: QueueOwner, ready: int, most: int) -> Finding:
    return Finding(
        check="queue_depth",
        detail=f"{_number(ready, most)} tasks are ready on queue {owner.queue!r} of {owner.owner}, more than the "
        f"{owner.alert_depth} that are to be told of",
        advice="Find out whether more comes in than usual or less is done: too few workers, a limit that holds them "
        "back, a dependency that is slow (`perdure queues`, `perdure limits list`).",
        count=ready,
        namespace=owner.namespace,
    )


def _without_owner(queues: set[tuple[str, str]]) -> list[Finding]:
    """One finding for each namespace."""
    names: defaultdict[str, list[str]] = defaultdict(list)
    for namespace, queue in sorted(queues):
        names[namespace].append(queue)
    return [
        Finding(
            check="no_owner",
            detail=f"{len(found)} queues have no owner",
            advice="Say who looks after each and its dead letters: `perdure queues own QUEUE WHO`.",
            count=len(found),
            namespace=namespace,
            examples=found[:EXAMPLES],
        )
        for namespace, found in names.items()
    ]


_OWING = {Owed.NOT_RUN: "did not all run", Owed.FAILED: "failed"}
_OTHERS = (
    "no_worker", "queue_depth", "no_owner", "unread_failures", "compensations", "sessions", "alarms", "clock",
    "settings",
)  # fmt: skip
