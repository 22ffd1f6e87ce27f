"""The jobs workload in one process: server, worker and client together. Argument: how many jobs.

Started by `python -m benchmarks` with PERDURE_URL and TALLY in the environment; prints its numbers as JSON.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path

from benchmarks.databases import SqliteFile
from benchmarks.deployment import SLOTS
from benchmarks.payload import PAYLOAD
from benchmarks.peers import LOOK
from benchmarks.processes import wait_until
from benchmarks.tasks import app, noop
from benchmarks.workloads import SINGLY


def main(jobs: int) -> dict[str, float]:
    """Bulk enqueue, then a worker in the same process; measured like workloads.jobs."""
    database = SqliteFile(Path(os.environ["PERDURE_URL"].removeprefix("sqlite:///")))
    tally = Path(os.environ["TALLY"])
    with app:
        singly = min(SINGLY, jobs // 5)
        for _ in range(singly):
            app.enqueue(noop, PAYLOAD)
        begun = time.perf_counter()
        app.enqueue_many(noop, [PAYLOAD] * (jobs - singly))
        enqueue_rate = (jobs - singly) / (time.perf_counter() - begun)
        cpu = _cpu()
        with app.worker(slots=SLOTS):
            first = wait_until(lambda: tally.stat().st_size > 0, every=LOOK)
            wait_until(lambda: tally.stat().st_size >= jobs, every=LOOK)
            last = wait_until(lambda: database.open_tasks() == 0, every=LOOK)
    return {
        "jobs_per_s": jobs / (jobs / enqueue_rate + last - first),
        "bulk_enqueue_per_s": enqueue_rate,
        "drain_per_s": jobs / (last - first),
        "us_per_job": (_cpu() - cpu) / jobs * 1e6,
        "executed": tally.stat().st_size,
        "lost": jobs - database.succeeded(),
    }


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]))))
