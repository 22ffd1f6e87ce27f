"""The metrics of worker processes, as Prometheus reads them: what they have told their supervisor, which is at most a
second old. Counts begin anew with a process, which has a `worker_id` of its own. docs/metrics.md says what each
means."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from perdure.worker.status import REPLAY_BOUNDS, Health, ProcessHealth, WorkerStatus

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
WORKER = ("worker_id",)

GAUGES: dict[str, tuple[str, Callable[[WorkerStatus], float | None]]] = {
    "perdure_process_slots": ("Slots of a worker process.", lambda status: status.slots),
    "perdure_process_slots_free": ("Slots that no handler takes.", lambda status: status.free),
    "perdure_process_handlers": ("Handlers that run.", lambda status: status.running),
    "perdure_process_handlers_stuck": (
        "Handlers that go on though they were told to stop half a minute ago.", lambda status: status.stuck,
    ),
    "perdure_process_poll_age_seconds": ("Since a poll was answered.", lambda status: status.poll_age),
    "perdure_process_heartbeat_age_seconds": ("Since a heartbeat was answered.", lambda status: status.heartbeat_age),
    "sticky_cache_hit_ratio": (
        "Share of the turns of async workflows, but the first of each run, whose run was in memory.",
        lambda status: _share(status.figures.cache_hits, status.figures.cache_misses),
    ),
}  # fmt: skip
READY, ENDED, REPLAY = "perdure_process_ready", "perdure_process_tasks_total", "workflow_task_replay_latency"
LABELS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(GAUGES, WORKER), READY: WORKER, ENDED: (*WORKER, "outcome"), REPLAY: ("namespace",),
}  # fmt: skip
"""Each metric and its labels."""


def page(health: Health) -> bytes:
    """What Prometheus reads."""
    registry = CollectorRegistry()
    registry.register(_Families(health))
    return generate_latest(registry)


class _Families:
    """A collector."""

    def __init__(self, health: Health) -> None:
        self._health = health

    def collect(self) -> Iterable[Metric]:
        told = [(process, process.status) for process in self._health.processes if process.status is not None]
        yield from _gauges(told)
        ended = CounterMetricFamily(
            ENDED.removesuffix("_total"), "Tasks and turns by how the worker reported them.", labels=LABELS[ENDED]
        )
        for _, status in told:
            for outcome, number in sorted(status.figures.outcomes.items()):
                ended.add_metric((status.identity, outcome), number)
        yield ended
        yield _replays([status for _, status in told])


def _gauges(told: list[tuple[ProcessHealth, WorkerStatus]]) -> Iterator[Metric]:
    ready = GaugeMetricFamily(READY, "Whether a worker process takes tasks.", labels=WORKER)
    for process, status in told:
        ready.add_metric((status.identity,), process.ready)
    yield ready
    for name, (about, value_of) in GAUGES.items():
        family = GaugeMetricFamily(name, about, labels=WORKER)
        for _, status in told:
            if (value := value_of(status)) is not None:
                family.add_metric((status.identity,), value)
        yield family


def _replays(statuses: list[WorkerStatus]) -> Metric:
    """Of all processes together."""
    family = HistogramMetricFamily(
        REPLAY, "Seconds in which the code of a run that was not in memory went through its history.",
        labels=LABELS[REPLAY],
    )  # fmt: skip
    for namespace in sorted({status.figures.namespace for status in statuses}):
        ours = [status.figures for status in statuses if status.figures.namespace == namespace]
        below = 0
        buckets: list[tuple[str, float]] = []
        for index, bound in enumerate([*map(str, REPLAY_BOUNDS), "+Inf"]):
            below += sum(figures.replays[index] for figures in ours)
            buckets.append((bound, below))
        family.add_metric((namespace,), buckets, sum(figures.replay_seconds for figures in ours))
    return family


def _share(hits: int, misses: int) -> float | None:
    return hits / (hits + misses) if hits + misses else None
