"""How many tasks wait and run in each lane, for people who look at queues: bounded counts, put together from what the
indexes give. Nothing that runs tasks reads them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import islice

import msgspec

from perdure.core.model import Task
from perdure.core.run import Run
from perdure.core.states import State

MAX_LANES = 1_000
"""Lanes with ready tasks that a census counts; those beyond it are left out."""


class OpenRun(msgspec.Struct, gc=False):
    """An open workflow run, as far as somebody counts it."""

    namespace: str
    type: str
    created_at: int
    events: int  #: of its history
    failures: int  #: turns in a row that failed or were lost
    failed: bool  #: there is a failure to show
    search_attributes: bytes | None = None


class LaneCount(msgspec.Struct):
    """What a lane holds. A count that is named in `at_least` reached its bound, so there may be more."""

    lane: str
    ready: int = 0
    running: int = 0
    delayed: int = 0
    retrying: int = 0
    ready_since: int | None = None  #: microseconds; of the heads of its priorities the one that waits longest
    at_least: list[str] = []


def census(
    most: int,
    ready: Iterable[tuple[str, int, int | None]],
    running: Iterable[tuple[str, int]],
    later: Iterable[tuple[str | None, int, int]],
) -> list[LaneCount]:
    """Puts together, by name of the lane: (lane, ready, oldest), (lane, running), (lane, state, waiting for a time).
    Each count stopped at `most`; a `later` without a lane is the number of alarms that were looked at."""
    counts: dict[str, LaneCount] = {}
    leased, alarms = 0, 0
    for lane, number, since in ready:
        counts[lane] = LaneCount(lane, ready=number, ready_since=since)
    for lane, number in running:
        counts.setdefault(lane, LaneCount(lane)).running = number
        leased += number
    for waiting, state, number in later:
        if waiting is None:
            alarms = number
        elif state == State.RETRY_WAIT:
            counts.setdefault(waiting, LaneCount(waiting)).retrying = number
        elif state == State.ENQUEUED:
            counts.setdefault(waiting, LaneCount(waiting)).delayed = number
    for count in counts.values():
        bounded = {"ready": count.ready, "running": leased, "delayed": alarms, "retrying": alarms}
        count.at_least = [name for name, number in bounded.items() if number >= most]
    return [counts[lane] for lane in sorted(counts)]


def count(tasks: Iterable[Task], first: str, last: str, most: int) -> list[LaneCount]:
    """The census of open tasks in memory."""
    alarms = sorted((task for task in tasks if task.wake_at is not None), key=lambda task: task.wake_at or 0)[:most]
    ours = [task for task in tasks if first < task.lane < last]
    ready: defaultdict[str, list[Task]] = defaultdict(list)
    for task in ours:
        if task.place is not None:
            ready[task.lane].append(task)
    waiting = Counter(
        (task.lane, int(task.state))
        for task in alarms
        if task.place is None and task.session is None and first < task.lane < last
    )
    leased = Counter(islice((task.lane for task in ours if task.session is not None), most))
    return census(
        most,
        ((lane, min(len(found), most), _oldest_head(found)) for lane, found in sorted(ready.items())[:MAX_LANES]),
        leased.items(),
        [(None, 0, len(alarms)), *((lane, state, number) for (lane, state), number in waiting.items())],
    )


def _oldest_head(ready: list[Task]) -> int:
    """The last change of the oldest first task of a priority."""
    heads: dict[int, Task] = {}
    for task in sorted(ready, key=lambda task: (task.place or 0, task.id)):
        heads.setdefault(task.priority, task)
    return min(task.updated_at for task in heads.values())


def open_runs(tasks: Mapping[bytes, Task], runs: Mapping[bytes, Run], most: int) -> list[OpenRun]:
    """Those in memory."""
    both = ((tasks[run_id], run) for run_id, run in runs.items() if run_id in tasks)
    found = sorted(both, key=lambda pair: (pair[0].namespace, pair[1].workflow_id, pair[0].id))
    return [
        OpenRun(
            task.namespace,
            task.type,
            task.created_at,
            run.event_count,
            run.failures,
            task.failure is not None,
            run.search_attributes,
        )
        for task, run in found[:most]
    ]
