"""Our numbers beside those of the peers, pair by pair, and the bars that they have to reach."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

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
)
"""The bars, and what is reported beside them."""


def rows(runs: Runs) -> list[Row]:
    return [row for comparison in COMPARISONS if (row := comparison.row(runs))]


def _numbers(runs: Runs, name: str) -> list[float]:
    run, _, number = name.partition(".")
    return [numbers[number] for numbers in runs.get(run, ())]
