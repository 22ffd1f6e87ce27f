"""The metrics of a server, as Prometheus reads them.

Names without a prefix are those by which workflow engines and job systems are commonly watched, so alerts that people
have can be kept; the rest begins with `perdure_`. docs/metrics.md says what each means, and deploy/ holds alerts and a
dashboard that use them; tests compare all three with the tables here.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from typing import NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from perdure.core.breaker import Stage
from perdure.core.figures import MOST_NAMES, Histogram, Labels
from perdure.core.limit_rules import Limits
from perdure.engine.engine import Engine
from perdure.observe.state import Look, Snapshot

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SHARD = "0"
"""One database is one shard: the label of what is measured for it."""
_STATUS = {"SUCCEEDED": "COMPLETED", "CANCELED": "CANCELLED"}
"""The words for workflow runs where they are others than those for tasks."""


class Series(NamedTuple):
    """A metric: its name as it is read, its labels, and what it tells."""

    name: str
    labels: tuple[str, ...]
    help: str


JOB, ACTIVITY, WORKFLOW = (("namespace", f"{noun}_type") for noun in ("job", "activity", "workflow"))
QUEUE, TASK_QUEUE = ("namespace", "queue"), ("namespace", "task_queue")

COUNTERS: dict[str, Series] = {
    "jobs_enqueued": Series("perdure_jobs_enqueued_total", JOB, "Jobs that were made."),
    "jobs_completed": Series("jobs_completed_total", (*JOB, "status"), "Jobs that have closed."),
    "job_retries": Series("perdure_job_retries_total", JOB, "Attempts of jobs that another one follows."),
    "duplicate_starts": Series(
        "jobs_duplicate_start_total", JOB, "Jobs begun again after a lease was lost: the attempt before may still run."
    ),
    "workflows_started": Series("workflow_started_total", WORKFLOW, "Workflow runs that were started."),
    "workflows_completed": Series("workflow_completed_total", (*WORKFLOW, "status"), "Workflow runs that have closed."),
    "turn_failures": Series(
        "workflow_task_failures_total", (*WORKFLOW, "type"), "Turns that failed or whose worker was lost."
    ),
    "activities_completed": Series(
        "perdure_activities_completed_total", (*ACTIVITY, "status"), "Activities that have closed."
    ),
    "activity_retries": Series("activity_retry_total", ACTIVITY, "Attempts of activities that another one follows."),
    "dispatched": Series("perdure_dispatched_total", (*QUEUE, "kind"), "Tasks handed out to workers."),
    "leases_lost": Series(
        "perdure_leases_lost_total", (*QUEUE, "lease"), "Leases that ended without a word of their worker."
    ),
}
HISTOGRAMS: dict[str, Series] = {
    "schedule_to_start": Series(
        "perdure_schedule_to_start_seconds", QUEUE, "From when a job or activity was ready until a worker got it."
    ),
    "turn_wait": Series(
        "workflow_task_latency_seconds", TASK_QUEUE, "From when a turn of a workflow was ready until a worker got it."
    ),
    "activity_wait": Series(
        "activity_task_latency_seconds", ACTIVITY, "From when an activity was ready until a worker got it."
    ),
    "job_seconds": Series("perdure_job_run_seconds", JOB, "The attempt that ended a job."),
    "receive_count": Series("jobs_receive_count", JOB, "Times that a job was handed out until it closed."),
    "history_events": Series("history_size_events", WORKFLOW, "Events of a history when a turn begins."),
    "timer_lag": Series(
        "timer_fire_latency_seconds", ("namespace",), "From when a timer of a workflow was due until it rang."
    ),
    "alarm_lag": Series(
        "perdure_alarm_lag_seconds", (), "From when anything that waits for a time was due until it was done."
    ),
    "transactions": Series(
        "shard_lock_latency_seconds", ("shard_id",), "A batch's transaction: waits for locks, statements, commit."
    ),
}
GAUGES: dict[str, Series] = {
    "tasks": Series("perdure_queue_tasks", (*QUEUE, "kind", "state"), "Open tasks; counts stop at 10,000."),
    "oldest": Series(
        "perdure_queue_oldest_ready_seconds", (*QUEUE, "kind"), "How long the longest waiting ready task has waited."
    ),
    "workers": Series("perdure_workers", ("namespace",), "Registered worker processes."),
    "slots": Series("perdure_worker_slots", ("namespace",), "Slots of registered workers."),
    "utilization": Series("worker_utilization", ("namespace",), "Share of the workers' slots that are taken."),
    "open_runs": Series("perdure_workflows_open", WORKFLOW, "Open workflow runs, of the first 10,000."),
    "stuck": Series("workflow_stuck_count", WORKFLOW, "Open workflow runs whose code cannot go on."),
    "long_histories": Series(
        "perdure_workflow_long_histories", WORKFLOW, "Open workflow runs with more than 10,000 events."
    ),
    "saga_age": Series(
        "saga_incomplete_age_p99", WORKFLOW, "Seconds: 99th percentile of the ages of open runs that owe compensations."
    ),
    "owing": Series(
        "perdure_compensations_owed", (*WORKFLOW, "owed"), "Closed workflow runs that owe compensations, unresolved."
    ),
    "breakers": Series(
        "perdure_breaker_open", ("namespace", "task_type"), "1 while a circuit breaker lets few or none start, else 0."
    ),
    "overdue": Series("perdure_alarm_overdue_seconds", (), "For how long the first alarm should have rung."),
    "away": Series("perdure_database_away_seconds", (), "For how long the database has not been reached; 0: it is."),
    "transfer": Series("transfer_queue_depth", ("shard_id",), "Commands that wait for a batch."),
    "match_ratio": Series(
        "matching_sync_match_ratio", TASK_QUEUE, "Share of tasks handed out by the batch that made them ready."
    ),
    "build": Series("perdure_build_info", ("version",), "1, for each server."),
}
ALL = (*COUNTERS.values(), *HISTOGRAMS.values(), *GAUGES.values())


class Metrics:
    """The page of one server."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._look = Look(engine)
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)

    async def page(self, namespace: str | None = None) -> bytes:
        """What Prometheus reads; with `namespace` nothing of other ones. Gauges that have to be read are left out while
        the database is away."""
        found = await self._look.snapshot()
        registry = CollectorRegistry()
        registry.register(_Families([*self._counted(), *self._looked_up(found)], namespace))
        return generate_latest(registry) + generate_latest(self._process)

    def _counted(self) -> Iterator[Metric]:
        tally = self._engine.tally
        for field, series in COUNTERS.items():
            totals: Mapping[Labels, int] = getattr(tally, field)
            if field == "workflows_completed":
                totals = {(*labels, _STATUS.get(state, state)): n for (*labels, state), n in totals.items()}
            family = CounterMetricFamily(series.name.removesuffix("_total"), series.help, labels=series.labels)
            for labels in sorted(totals):
                family.add_metric(labels, totals[labels])
            yield family
        for field, series in HISTOGRAMS.items():
            yield _histogram(series, getattr(tally, field), (SHARD,) if field == "transactions" else ())

    def _looked_up(self, found: Snapshot | None) -> Iterator[Metric]:
        engine = self._engine
        yield _gauge("away", {(): engine.outage.seconds})
        yield _gauge("transfer", {(SHARD,): engine.waiting})
        yield _gauge("match_ratio", match_ratios(engine.tally.dispatched, engine.tally.matched))
        yield _gauge("build", {(version("perdure"),): 1})
        yield _gauge("breakers", breakers(engine.flow.known.limits))
        if found is None:
            return
        for field in ("tasks", "oldest", "workers", "slots", "open_runs", "stuck", "long_histories", "owing"):
            yield _gauge(field, getattr(found, field))
        yield _gauge("utilization", found.utilization())
        yield _gauge("saga_age", {labels: _p99(ages) for labels, ages in found.saga_ages.items()})
        yield _gauge("overdue", {(): found.overdue})


def match_ratios(dispatched: Mapping[Labels, int], matched: Mapping[Labels, int]) -> dict[Labels, float]:
    """By queue: which share of what was handed out had not to wait for a poll."""
    handed_out: dict[Labels, int] = {}
    for (namespace, queue, _), number in dispatched.items():
        handed_out[namespace, queue] = handed_out.get((namespace, queue), 0) + number
    return {labels: matched.get(labels, 0) / number for labels, number in handed_out.items()}


def breakers(limits: Limits) -> dict[Labels, float]:
    """By type that has one: whether it is not closed."""
    found = itertools.islice(limits.breakers.items(), MOST_NAMES)
    return {labels: limit.circuit is not None and limit.circuit.stage is not Stage.CLOSED for labels, limit in found}


class _Families:
    """A collector of what is there already."""

    def __init__(self, families: Iterable[Metric], namespace: str | None) -> None:
        self._families = list(families)
        if namespace is not None:
            for family in self._families:
                family.samples = [one for one in family.samples if one.labels.get("namespace", namespace) == namespace]

    def collect(self) -> Iterable[Metric]:
        return self._families


def _gauge(field: str, values: Mapping[Labels, float]) -> Metric:
    series = GAUGES[field]
    family = GaugeMetricFamily(series.name, series.help, labels=series.labels)
    for labels in sorted(values):
        family.add_metric(labels, values[labels])
    return family


def _histogram(series: Series, histogram: Histogram, more: Labels) -> Metric:
    family = HistogramMetricFamily(series.name, series.help, labels=series.labels)
    for labels, row in sorted(histogram.rows.items()):
        below = 0
        buckets: list[tuple[str, float]] = []
        for bound, number in zip((*histogram.bounds, float("inf")), row.counts, strict=True):
            below += number
            buckets.append(("+Inf" if bound == float("inf") else str(bound), below))
        family.add_metric((*labels, *more), buckets, row.sum)
    return family


def _p99(values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.99))]
