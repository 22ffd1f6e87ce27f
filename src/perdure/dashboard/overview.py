"""The first page: whether all is well, and where to look if not."""

from __future__ import annotations

import time

from perdure.core import failure_messages as f
from perdure.core import messages as m
from perdure.core import workflow_messages as w
from perdure.core.signal_messages import GoldenSignals
from perdure.dashboard.trends import Point
from perdure.dashboard.visit import Page, Visit

GROUPS = 5
RUNS = 5
_COUNTS = ("ready", "running", "delayed", "retrying")


async def overview(visit: Visit) -> Page:
    """Figures and their trends, queues, what failed last, and the open runs that were started last."""
    queues = (await visit.service.queues(m.ListQueues())).queues
    workers = (await visit.service.workers(m.ListWorkers())).workers
    signals = await visit.service.golden_signals(GoldenSignals())
    failures = await visit.service.failures(f.ListFailures(limit=GROUPS))
    runs = (await visit.service.find_workflows(w.FindWorkflows(open=True, limit=RUNS))).workflows
    counts = {name: sum(getattr(queue, name) for queue in queues) for name in _COUNTS}
    oldest = max((queue.oldest_ready_seconds or 0.0 for queue in queues), default=0.0)
    throughput = signals.started / signals.seconds if signals.seconds > 0 else 0.0
    figures = {**counts, "oldest": oldest, "throughput": throughput}
    data = {
        "queues": queues,
        "counts": counts,
        "at_least": {name for queue in queues for name in queue.at_least},
        "oldest": oldest,
        "throughput": throughput,
        "trends": visit.trends.add(visit.namespace, Point(time.monotonic(), figures)),
        "signals": signals,
        "waits": {queue.name: queue for queue in signals.queues},
        "workers": [worker for worker in workers if not worker.ending],
        "unserved": [queue.name for queue in queues if queue.ready and not queue.workers],
        "deep": [queue for queue in queues if queue.alert_depth is not None and queue.ready > queue.alert_depth],
        "failures": failures,
        "runs": runs,
    }
    return Page("overview.html", "Overview", data)
