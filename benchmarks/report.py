"""The results as a page: the bars with all pairs, then every number, then the machine."""

from __future__ import annotations

import datetime
import os
import platform
import sqlite3
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from statistics import median

from benchmarks.comparisons import Row, Runs, rows
from benchmarks.workloads import IN_FLIGHT, Sizes

_HEADER = """# Benchmark results

<!-- Written by python -m benchmarks. Run it again instead of editing. -->

"""


def page(runs: Runs, sizes: Sizes, versions: Iterable[str]) -> str:
    """Markdown."""
    compared = any(row.theirs for row in rows(runs))
    parts = [_HEADER, _setting(runs, sizes, versions), "\n\n## Against the bars\n\n"]
    if not compared:
        parts.append("The peers are not installed here (PEERS_DIR), so there are no ratios.\n\n")
    parts += [comparison_table(runs), "\n## Every run\n\n", _numbers_table(runs), "\n", _notes(sizes)]
    return "".join(parts)


def comparison_table(runs: Runs) -> str:
    """A row for each comparison, pairs in the order in which they ran."""
    lines = [
        "| what | Perdure | peer | ratio of each pair | median | bar | |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [_line(row) for row in rows(runs)]
    return "\n".join(lines) + "\n"


def _line(row: Row) -> str:
    middle = f"{median(row.ratios):.2f}x" if row.ratios else _figure(median(row.ours))
    ratios = " ".join(f"{ratio:.2f}" for ratio in row.ratios)
    cells = (row.comparison.title, _figures(row.ours), _figures(row.theirs), ratios, middle, row.bar, row.verdict)
    return f"| {' | '.join(cells)} |"


def _numbers_table(runs: Runs) -> str:
    lines = ["| run | number | in each pair | median |", "| --- | --- | --- | --- |"]
    for name, pairs in runs.items():
        for number in pairs[0]:
            values = [numbers[number] for numbers in pairs]
            lines.append(f"| {name} | {number} | {_figures(values)} | {_figure(median(values))} |")
    return "\n".join(lines) + "\n"


def _setting(runs: Runs, sizes: Sizes, versions: Iterable[str]) -> str:
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    software = [
        f"perdure {metadata.version('perdure')}",
        f"Python {platform.python_version()}",
        f"SQLite {sqlite3.sqlite_version}",
        *sorted(versions),
    ]
    pairs = len(next(iter(runs.values())))
    return (
        f"Measured {now}, {pairs} interleaved runs of each, on {os.cpu_count()} cores ({_processor()}), "
        f"{_memory():.0f} GiB, {platform.system()} {platform.release()}.\n"
        f"{', '.join(software)}. Server, worker and client share the cores."
    )


def _notes(sizes: Sizes) -> str:
    return f"""## What was measured

- Jobs end to end: bulk enqueue of {sizes.jobs:,} jobs with 1 KiB of JSON, then one worker of 100 slots whose handler
  only counts; N over enqueue plus drain. The drain ends when the store shows no open job. Perdure keeps every closed
  job, PgQueuer (batch 100) deletes it.
- Single enqueues: {sizes.enqueues:,} calls, {IN_FLIGHT} in flight, each committed before it returns, not coalesced by
  the client. The peers' own scripts enqueue one by one; PgQueuer is also run with {IN_FLIGHT} in flight over 16
  connections.
- Idle latency: {sizes.samples} jobs one at a time, from the call of enqueue to the result in the client. Celery runs on
  Redis with late acknowledgement, and its client is a blocking one.
- Recovery: jobs end to end with SIGKILL to the worker at half of the executions; a new worker starts at once, with a
  new supervisor or by the old one.
- Growth: once, beside itself. Costs are of calls inside the server's process, with 1,000,000 and with 1,000 jobs
  waiting, in turn; those under an old snapshot are of 180,000 jobs whose rows nothing can clean up meanwhile. Jobs
  that pass run on a clock that is stepped, 100 minutes in all, and PostgreSQL's autovacuum looks around as much more
  often: every second.
"""


def _figures(values: Iterable[float]) -> str:
    return " ".join(map(_figure, values))


def _figure(value: float) -> str:
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.2f}"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _memory() -> float:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
