"""Our numbers beside those of the peers, pair by pair, and the bars that they have to reach."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

from benchmarks.growth import OPERATIONS

Runs = Mapping[str, list[dict[str, float]]]
"""Name of a run -> its numbers in each pair."""


@dataclass(frozen=True)
class Comparison:
    """One row: `ours` and `theirs` are "run.number"; of several peers the best one of each pair counts.

    `least` and `most` bound the median of the ratios ours / theirs, or, without peers, the median itself. A row
    without a bound is there to be read.
    """

    title: str
    ours: str
    theirs: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    lower_is_better: bool = False

    def row(self, runs: Runs) -> Row | None:
        """None when it was not measured. Peers that were not measured leave the ratios empty."""
        ours = _numbers(runs, self.ours)
        if not ours:
            return None
        pick: Callable[..., float] = min if self.lower_is_better else max
        columns = [numbers for name in self.theirs if (numbers := _numbers(runs, name))]
        theirs = [pick(pair) for pair in zip(*columns, strict=True)]
        return Row(self, ours, theirs)


@dataclass(frozen=True)
class Row:
    comparison: Comparison
    ours: list[float]
    theirs: list[float]

    @property
    def ratios(self) -> list[float]:
        return [ours / theirs for ours, theirs in zip(self.ours, self.theirs, strict=False)]

    @property
    def verdict(self) -> str:
        """Whether the bar is reached; empty without a bar, or without the peers that it needs."""
        judged = self.ratios if self.comparison.theirs else self.ours
        if not judged:
            return ""
        if self.comparison.least is not None:
            return "reached" if median(judged) >= self.comparison.least else "missed"
        if self.comparison.most is not None:
            return "reached" if median(judged) <= self.comparison.most else "missed"
        return ""

    @property
    def bar(self) -> str:
        unit = "x" if self.comparison.theirs else ""
        if self.comparison.least is not None:
            return f"at least {self.comparison.least:g}{unit}"
        if self.comparison.most is not None:
            return f"at most {self.comparison.most:g}{unit}"
        return ""


_ONE_BY_ONE = ("pgqueuer jobs.enqueue_s_rate", "celery enqueues.enqueue_s_rate")
_JOBS = "jobs/s end to end"
_SINGLE = "single enqueues/s"
_LATENCY = "idle latency p50, ms"
_RECOVERY = "SIGKILL to all done, s"
_STORES = (("SQLite", "sqlite"), ("PostgreSQL", "postgresql"))

_GROWTH = tuple(
    row
    for store, run in _STORES
    for row in (
        Comparison(f"idle server, MB, {store}", f"{run} short queue, server.fresh_mb", most=120),
        Comparison(
            f"the same once it took in 1,000,000 jobs, {store}", f"{run} long queue, server.filled_mb", most=120
        ),
        *(
            Comparison(
                f"server of 1,000,000 waiting jobs beside one of 1,000, MB, {store}, {when}",
                f"{run} long queue, server.{number}",
                (f"{run} short queue, server.{number}",),
                most=1.1,
                lower_is_better=True,
            )
            for when, number in (("started", "found_mb"), ("after traffic", "busy_mb"))
        ),
        *(
            Comparison(
                f"{operation} at 1,000,000 waiting jobs beside 1,000, us, {store}",
                f"{run} long queue.{operation}_us",
                (f"{run} short queue.{operation}_us",),
                most=1.3,
                lower_is_better=True,
            )
            for operation in OPERATIONS
        ),
        *(
            Comparison(
                f"the same while a session holds an old snapshot: {operation}",
                f"{run} long queue, old snapshot.{operation}_us",
                (f"{run} short queue again.{operation}_us",),
                most=1.5,
                lower_is_better=True,
            )
            for operation in OPERATIONS
            if run == "postgresql"
        ),
        *(
            Comparison(
                f"1,000,000 jobs pass with 10 minutes of retention, {store}: {what}",
                f"{run} passing jobs.late_{number}",
                (f"{run} passing jobs.early_{number}",),
                most=1.1,
                lower_is_better=True,
            )
            for what, number in (("memory, late beside early, MB", "mb"), ("store, MB", "store_mb"))
        ),
        Comparison(
            f"1,000,000 jobs pass, {store}: most closed jobs, in those of 10 minutes",
            f"{run} passing jobs.most_closed_of_10_minutes",
            most=1.1,
        ),
    )
)

_FLOWS = tuple(
    row
    for store, run in _STORES
    for row in (
        Comparison(
            f"runs/s of 5 inline steps, async def, {store}",
            f"{run} steps.runs_per_s",
            ("restate W2.wf_s",),
            least=5.0 if run == "sqlite" else None,
        ),
        Comparison(
            f"runs/s of 5 inline steps, def, {store}",
            f"{run} plain steps.runs_per_s",
            ("restate W2.wf_s",),
            least=3.0 if run == "sqlite" else None,
        ),
        Comparison(
            f"runs/s of 5 activities, {store}, beside steps of Restate",
            f"{run} activities.runs_per_s",
            ("restate W2.wf_s",),
            least=1.0 if run == "sqlite" else None,
        ),
        Comparison(
            f"runs/s of 5 activities, {store}, beside Temporal",
            f"{run} activities.runs_per_s",
            ("temporal W2.wf_s",),
            least=15.0 if run == "sqlite" else None,
        ),
        Comparison(
            f"1,000 parallel steps, s, {store}",
            f"{run} fan of steps.seconds",
            ("restate W3 steps.seconds",),
            most=1 / 3 if run == "sqlite" else None,
            lower_is_better=True,
        ),
        Comparison(
            f"1,000 activities, s, {store}, beside children of Restate",
            f"{run} fan of activities.seconds",
            ("restate W3 children.seconds",),
            most=0.5 if run == "sqlite" else None,
            lower_is_better=True,
        ),
        Comparison(
            f"one-step workflow, start to result, p50, ms, {store}",
            f"{run} flow latency.p50_ms",
            ("restate W4.e2e_p50_ms",),
            most=0.5 if run == "sqlite" else None,
            lower_is_better=True,
        ),
        Comparison(
            f"1,000 sequential steps, steps/s, {store}",
            f"{run} long history.steps_per_s",
            ("restate W5.steps_s",),
            least=1.5 if run == "sqlite" else None,
        ),
        Comparison(
            f"SIGKILL of the worker to 500 runs done, s, {store}",
            f"{run} flow recovery.recovery_s",
            ("restate W6.recover_s",),
            lower_is_better=True,
        ),
    )
)

COMPARISONS = (
    Comparison(f"{_JOBS}, SQLite", "sqlite jobs.jobs_per_s", ("pgqueuer jobs.e2e_rate",), least=1.2),
    Comparison(f"{_JOBS}, PostgreSQL", "postgresql jobs.jobs_per_s", ("pgqueuer jobs.e2e_rate",), least=1.0),
    Comparison(f"{_JOBS}, embedded SQLite", "embedded jobs.jobs_per_s", ("pgqueuer jobs.e2e_rate",), least=1.6),
    *(
        row
        for store, run in (("SQLite", "sqlite enqueues"), ("PostgreSQL", "postgresql enqueues"))
        for row in (
            Comparison(
                f"{_SINGLE}, {store}, peers one by one",
                f"{run}.enqueues_per_s",
                _ONE_BY_ONE,
                least=3.0 if store == "SQLite" else None,
            ),
            Comparison(
                f"{_SINGLE}, {store}, PgQueuer with 100 in flight too",
                f"{run}.enqueues_per_s",
                ("pgqueuer enqueues.rate",),
            ),
            Comparison(f"{_SINGLE}, {store}, plain HTTP", f"{run}.http_enqueues_per_s", _ONE_BY_ONE),
        )
    ),
    *(
        Comparison(
            f"{_LATENCY}, {store}, {client}",
            f"{run}.{prefix}p50_ms",
            ("celery latency.e2e_p50_ms",),
            most=0.7 if prefix == "" else None,
            lower_is_better=True,
        )
        for store, run in (("SQLite", "sqlite latency"), ("PostgreSQL", "postgresql latency"))
        for client, prefix in (
            ("execute, blocking client", ""),
            ("execute, asyncio client", "asyncio_"),
            ("enqueue, then result, blocking client", "two_calls_"),
        )
    ),
    *(
        Comparison(f"{_RECOVERY}, {store}, {what}", f"{run} {kind}.recovery_s", most=5.0, lower_is_better=True)
        for store, run in (("SQLite", "sqlite"), ("PostgreSQL", "postgresql"))
        for what, kind in (("worker with its supervisor", "recovery"), ("only the worker process", "restart"))
    ),
    *_FLOWS,
    *_GROWTH,
)
"""The bars, and what is reported beside them."""


def rows(runs: Runs) -> list[Row]:
    return [row for comparison in COMPARISONS if (row := comparison.row(runs))]


def _numbers(runs: Runs, name: str) -> list[float]:
    run, _, number = name.partition(".")
    return [numbers[number] for numbers in runs.get(run, ())]
