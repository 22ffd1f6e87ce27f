"""The benchmarks measure what they say and judge it as they say; how fast anything is, is no test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks import report
from benchmarks.__main__ import COMPARED
from benchmarks.comparisons import COMPARISONS, Comparison, rows
from benchmarks.payload import PAYLOAD, SIZE
from benchmarks.workloads import Sizes

ROOT = Path(__file__).parents[1]
RUNS = {
    "pgqueuer jobs": [{"e2e_rate": 100.0}, {"e2e_rate": 200.0}, {"e2e_rate": 100.0}],
    "sqlite jobs": [{"jobs_per_s": 150.0}, {"jobs_per_s": 150.0}, {"jobs_per_s": 130.0}],
    "sqlite latency": [{"p50_ms": 3.0, "two_calls_p50_ms": 3.5, "asyncio_p50_ms": 2.0}],
    "sqlite recovery": [{"recovery_s": 4.0}, {"recovery_s": 7.0}, {"recovery_s": 4.5}],
}


def test_payload_has_a_kibibyte() -> None:
    assert len(json.dumps(PAYLOAD)) == SIZE


def test_a_bar_is_reached_by_the_median_of_the_pairs() -> None:
    """Ratios are taken pair by pair: 1.5, 0.75 and 1.3."""
    row = Comparison("jobs", "sqlite jobs.jobs_per_s", ("pgqueuer jobs.e2e_rate",), least=1.3).row(RUNS)
    assert row is not None
    assert row.ratios == [1.5, 0.75, 1.3]
    assert row.verdict == "reached"
    row = Comparison("jobs", "sqlite jobs.jobs_per_s", ("pgqueuer jobs.e2e_rate",), least=1.31).row(RUNS)
    assert row is not None
    assert row.verdict == "missed"


def test_of_several_peers_the_best_one_of_each_pair_counts() -> None:
    runs = {"ours": [{"n": 4.0}, {"n": 4.0}], "a": [{"n": 2.0}, {"n": 1.0}], "b": [{"n": 1.0}, {"n": 4.0}]}
    row = Comparison("rate", "ours.n", ("a.n", "b.n")).row(runs)
    assert row is not None and row.theirs == [2.0, 4.0]
    row = Comparison("time", "ours.n", ("a.n", "b.n"), lower_is_better=True).row(runs)
    assert row is not None and row.theirs == [1.0, 1.0]


def test_a_ratio_without_its_peer_is_no_verdict() -> None:
    verdicts = {row.comparison.ours: row.verdict for row in rows(RUNS)}
    assert verdicts["sqlite latency.p50_ms"] == ""
    assert verdicts["sqlite recovery.recovery_s"] == "reached"


def test_every_bar_is_unique_and_the_page_shows_it() -> None:
    assert len({comparison.title for comparison in COMPARISONS}) == len(COMPARISONS)
    page = report.page(RUNS, Sizes(), ["pgqueuer 1.0"])
    assert "| 150 150 130 | 100 200 100 | 1.50 0.75 1.30 | 1.30x | at least 1.2x | reached |" in page
    assert "pgqueuer 1.0" in page


def measured(*workloads: str) -> dict[str, dict[str, float]]:
    """The last numbers of each run of a quick benchmark."""
    environment = {name: value for name, value in os.environ.items() if name != "PEERS_DIR"}
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks", *workloads, "--quick"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    lines = [line.partition(" {") for line in run.stdout.splitlines() if " {" in line]
    return {name: json.loads(start + numbers) for name, start, numbers in lines}


def test_quick_run() -> None:
    """Every workload runs on every store, with a worker killed twice, and loses nothing."""
    assert set(measured(*(name for name in COMPARED if name != "flows"))) >= {
        "embedded jobs",
        *(
            f"{store} {workload}"
            for store in ("sqlite", "postgresql")
            for workload in ("jobs", "enqueues", "latency", "recovery", "restart")
        ),
    }


def test_quick_flows() -> None:
    """The same for workflows."""
    assert set(measured("flows")) >= {
        f"{store} {workload}"
        for store in ("sqlite", "postgresql")
        for workload in ("steps", "plain steps", "activities", "fan of steps", "flow latency", "long history")
    }


def test_quick_growth() -> None:
    """Each of its rows finds its numbers; the closed jobs of ten minutes are there and no more (PERS-13)."""
    runs = {name: [numbers] for name, numbers in measured("growth").items()}
    growth = [comparison for comparison in COMPARISONS if " queue" in comparison.ours or "passing" in comparison.ours]
    found = [comparison.row(runs) for comparison in growth]
    assert len(found) > 20 and all(row is not None and row.verdict for row in found)
    for store in ("sqlite", "postgresql"):
        assert 0.9 <= runs[f"{store} passing jobs"][0]["most_closed_of_10_minutes"] <= 1.1
        assert runs[f"{store} short queue, server"][0]["fresh_mb"] < 120, "an idle server is as large as it is"
